"""Forward hooks: record the attention maps and the primers of a model while it forecasts.

Letters: b windows, t tokens (channels, then calendar features), h heads, m hidden units of a primer; i query token,
j key token.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from primecast.data.windows import WindowSource
from primecast.nn.attention import Prime
from primecast.nn.mechanisms import AttentionMap
from primecast.nn.primer import Primer
from primecast.training.loop import predict_batches


def trace_attention(
    model: nn.Module, windows: WindowSource, *, index: Int64[Tensor, "w"] | None = None, batch_size: int = 64
) -> Iterator[tuple[list[Float[Tensor, "b i j"]], list[Prime]]]:
    """Forecast the windows and yield, for each batch, the attention maps and the outputs of the primers.

    There is a map for each layer, averaged over heads. The hooks are removed at the end.

    index: numbers of the windows to forecast; all of them by default.
    """
    maps: list[Tensor] = []
    primes: list[Prime] = []

    def record_map(module: nn.Module, inputs: object, weights: Tensor) -> None:
        maps.append(weights.double().mean(1))

    def record_prime(module: nn.Module, inputs: tuple[Tensor, ...], prime: Prime) -> None:
        primes.append(prime.for_batch(len(inputs[0])))

    handles = [m.register_forward_hook(record_map) for m in model.modules() if isinstance(m, AttentionMap)]
    handles += [m.register_forward_hook(record_prime) for m in model.modules() if isinstance(m, Primer)]
    try:
        for _ in predict_batches(model, windows, index=index, batch_size=batch_size):
            yield list(maps), list(primes)
            maps.clear()
            primes.clear()
    finally:
        for handle in handles:
            handle.remove()


def layers_of(prime: Prime) -> list[Prime]:
    """Split a prime whose layers have gains of their own; a prime that all layers share is one layer."""
    return [prime.layer(depth) for depth in range(len(prime.gains))] if prime.gains.ndim == 4 else [prime]


@torch.no_grad()
def filter_strength(prime: Prime, *, centered: bool = False) -> Float[Tensor, "b i j"]:
    """Return |F_ij| / sqrt(d), which is 1 for an unprimed pair; centered: of F_ij minus its mean over all pairs.

    |sum_m phi_m u_m|^2 = sum_mm' phi_m phi_m' (u_m . u_m'), so F, which has size n * n * d, is never built.
    """
    prime = prime.complete()
    phi, gains = prime.phi, prime.gains
    if centered:
        phi = phi - phi.mean((-2, -1), keepdim=True)
    elif prime.base is not None:
        phi = torch.cat([phi, torch.ones_like(phi[:, :, :1])], dim=2)
        gains = torch.cat([gains, prime.base[:, None]], dim=1)
    gram = gains @ gains.mT  # h m m
    if phi.shape[1] == 1:  # dense: all heads read the same units
        gram = gram.sum(0, keepdim=True)
    square = (phi * torch.einsum("hmo,bhoij->bhmij", gram, phi)).sum((1, 2))
    return (square.clamp(min=0) / (gains.shape[0] * gains.shape[2])).sqrt()
