"""Looking inside a trained model: what its attention and its primers say, and what it does when a channel is lost.

Nothing here averages over windows or gives names: `relations` does it for people, `probes` for studies.

Letters: b windows, t tokens (channels, then calendar features), n channels, h heads or horizon, l look-back; i asking and
j answering token, m hidden units of a primer.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from primecast.data.windows import Batch
from primecast.errors import unknown
from primecast.nn.attention import Prime
from primecast.nn.mechanisms import AttentionMap
from primecast.nn.primer import Primer

ABLATIONS = {
    "mean": "the sensor reads its mean of the training rows",
    "last": "the sensor stands still at the oldest value of the window",
}


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """What passed through a model for one batch: a map for each layer, averaged over heads, and what primers gave."""

    maps: list[Float[Tensor, "b i j"]]
    primes: list[Prime]


def trace_attention(model: nn.Module, batches: Iterable[Batch]) -> Iterator[AttentionTrace]:
    """Let the model forecast, and tell what passed through its attention; afterwards nobody listens any more."""
    maps: list[Tensor] = []
    primes: list[Prime] = []

    def see_map(module: nn.Module, inputs: object, weights: Tensor) -> None:
        maps.append(weights.double().mean(1))

    def see_primer(module: nn.Module, inputs: object, prime: Prime) -> None:
        base = None if prime.base is None else prime.base.detach()
        primes.append(replace(prime, gains=prime.gains.detach(), base=base))

    handles = [m.register_forward_hook(see_map) for m in model.modules() if isinstance(m, AttentionMap)]
    handles += [m.register_forward_hook(see_primer) for m in model.modules() if isinstance(m, Primer)]
    model.eval()
    try:
        for batch in batches:
            maps.clear()
            primes.clear()
            with torch.inference_mode():
                model(batch.x, batch.time_features)
            yield AttentionTrace(list(maps), list(primes))
    finally:
        for handle in handles:
            handle.remove()


def layers_of(prime: Prime) -> list[Prime]:
    """One for each layer whose gains are its own; a primer that all layers share counts once."""
    return [prime.layer(depth) for depth in range(len(prime.gains))] if prime.gains.ndim == 4 else [prime]


def filter_strength(prime: Prime, *, centred: bool = False) -> Float[Tensor, "b i j"]:
    """|F_ij| / sqrt(d), which is 1 for a pair without a primer; centred: of F_ij minus its mean over all pairs.

    |sum_m phi_m u_m|^2 = sum_mm' phi_m phi_m' (u_m . u_m'): neither F nor anything of its size is built.
    """
    prime = prime.complete()
    phi, gains = prime.phi, prime.gains
    if centred:
        phi = phi - phi.mean((-2, -1), keepdim=True)
    elif prime.base is not None:
        phi = torch.cat([phi, torch.ones_like(phi[:, :, :1])], dim=2)
        gains = torch.cat([gains, prime.base[:, None]], dim=1)
    gram = gains @ gains.mT  # h m m
    if phi.shape[1] == 1:  # dense: all heads read the same units
        gram = gram.sum(0, keepdim=True)
    square = (phi * torch.einsum("hmo,bhoij->bhmij", gram, phi)).sum((1, 2))
    return (square.clamp(min=0) / (gains.shape[0] * gains.shape[2])).sqrt()


@dataclass(frozen=True)
class Evenness:
    """How much of what channels ask goes to one of them, to themselves, to the calendar.

    top, share: the most attended channel and its share of the attention among channels (1/n when all receive alike).
    entropy:    of the received shares, divided by log n: 1 when all receive alike, 0 when one receives everything.
    diagonal:   share that channels give to themselves. calendar: share of all attention that goes to other tokens.
    """

    top: int
    share: float
    entropy: float
    diagonal: float
    calendar: float


def evenness(attention: Float64[np.ndarray, "n t"]) -> Evenness:
    """Of a mean map: the rows are the channels, the columns all tokens, channels first."""
    channels = len(attention)
    among = attention[:, :channels]
    received = among.sum(0) / among.sum()
    spread = -float(np.sum(received * np.log(received, where=received > 0, out=np.zeros_like(received))))
    return Evenness(
        top=int(received.argmax()),
        share=float(received.max()),
        entropy=spread / math.log(channels) if channels > 1 else 1.0,
        diagonal=float(np.trace(among) / among.sum()),
        calendar=float(attention[:, channels:].sum() / attention.sum()),
    )


def errors_without(
    model: nn.Module, batches: Iterable[Batch], *, channels: int, targets: int, hold: str = "mean"
) -> Float64[Tensor, "lost targets"]:
    """Sums of squared errors of the first `targets` channels, once for each channel that is lost; the last row: none.

    hold: what a lost channel reads, a name in ABLATIONS. In scaled units the training mean is 0.
    """
    if hold not in ABLATIONS:
        raise unknown("way to lose a sensor", hold, ABLATIONS)
    errors = torch.zeros(channels + 1, targets, dtype=torch.float64)
    model.eval()
    with torch.inference_mode():
        for batch in batches:
            for lost in range(channels + 1):
                x = batch.x.clone()
                x[:, :, lost : lost + 1] = 0.0 if hold == "mean" else x[:, :1, lost : lost + 1]
                error = model(x, batch.time_features)[..., :targets] - batch.y[..., :targets]
                errors[lost] += error.double().square().sum((0, 1))
    return errors
