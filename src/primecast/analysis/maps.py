"""Mean attention maps, the strength of primers, and how concentrated attention is on single channels.

Letters: b windows, n channels, t tokens (channels, then calendar features), e layers, p layers with gains of their own;
i query token, j key token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from primecast.analysis.hooks import filter_strength, layers_of, trace_attention
from primecast.data.windows import Dataset, Splits, Windows, WindowSource, evenly_spaced
from primecast.errors import InputError
from primecast.nn.attention import Prime
from primecast.nn.mechanisms import AttentionMap

CALENDAR = ("hour of day", "day of week", "day of month", "day of year")
"""Names of the calendar tokens, in the order of `calendar_features`."""

BATCH = 32
"""Batch size of all probes: that of the presets, which is known to fit into memory."""

MAP_WINDOWS = 1024
MOST_TOKENS = 64
"""A row holds no map of more tokens than this: nobody could read the figure."""


def five_digits(values: Float[np.ndarray, "..."]) -> Any:
    """Convert an array to nested lists of numbers with five significant digits, for JSON."""
    return np.vectorize(lambda value: float(f"{value:.5g}"), otypes=[float])(values).tolist()


# ---------------------------------------------------------------- concentration


@dataclass(frozen=True)
class Concentration:
    """How much attention goes to one channel, to the query channel itself, and to the calendar.

    channel, fraction: the most attended channel and its fraction of the attention among channels (uniform: 1/n).
    entropy:  of the fractions that channels receive, divided by log n: 1 is uniform, 0 is everything to one channel.
    diagonal: fraction of the attention among channels that a channel gives to itself.
    calendar: fraction of all attention that goes to other tokens (calendar, future covariates).
    """

    channel: str
    fraction: float
    entropy: float
    diagonal: float
    calendar: float


def concentration(attention: Float64[np.ndarray, "n t"], names: Sequence[str]) -> Concentration:
    """Measure a mean attention map whose rows are the channels and whose columns are all tokens, channels first."""
    channels = len(attention)
    among = attention[:, :channels]
    received = among.sum(0) / among.sum()
    entropy = -float(np.sum(received * np.log(received, where=received > 0, out=np.zeros_like(received))))
    return Concentration(
        channel=str(names[int(received.argmax())]),
        fraction=float(received.max()),
        entropy=entropy / math.log(channels) if channels > 1 else 1.0,
        diagonal=float(np.trace(among) / among.sum()),
        calendar=float(attention[:, channels:].sum() / attention.sum()),
    )


# ---------------------------------------------------------------- between channels, for users


def channel_maps(
    model: nn.Module, windows: WindowSource, *, channels: int, batch_size: int = 64
) -> tuple[Float64[np.ndarray, "n n"] | None, Float64[np.ndarray, "n n"] | None]:
    """Return mean attention and mean `distance_from_mean_filter` between channels; None where the model has none."""
    attention: list[Tensor] = []
    primer: list[Tensor] = []
    for all_maps, all_primes in trace_attention(model, windows, batch_size=batch_size):
        maps = [one[:, :channels, :channels] for one in all_maps if one.shape[-1] == one.shape[-2]]
        if maps and all(one.shape[-1] == channels for one in maps):
            attention.append(torch.stack(maps).mean(0).sum(0))
        primes = [layer for prime in all_primes if prime.phi.shape[-1] >= channels for layer in layers_of(prime)]
        if primes:
            primer.append(torch.stack([distance_from_mean_filter(one, channels) for one in primes]).mean(0).sum(0))

    def mean(sums: list[Tensor]) -> Float64[np.ndarray, "n n"] | None:
        return (torch.stack(sums).sum(0) / len(windows)).numpy() if sums else None

    return mean(attention), mean(primer)


@torch.no_grad()
def distance_from_mean_filter(prime: Prime, channels: int) -> Float[Tensor, "b n n"]:
    """Return |F_ij - mean F| / (root mean square of |F|) over the pairs of channels, without building F."""
    prime = prime.complete()
    among = Prime(
        prime.phi.double()[..., :channels, :channels],
        prime.gains.double(),
        None if prime.base is None else prime.base.double(),
    )
    size = filter_strength(among).square().mean((1, 2), keepdim=True).sqrt()
    return filter_strength(among, centered=True) / size.clamp(min=1e-12)


# ---------------------------------------------------------------- between all tokens, for studies


@dataclass(frozen=True, eq=False)
class MeanMaps:
    """Attention maps (mean over windows and heads) and `filter_strength` of the primer (mean over windows)."""

    attention: Float64[Tensor, "e t t"]
    strength: Float64[Tensor, "p t t"] | None
    distinct: Float64[Tensor, "p t t"] | None  # strength of F_ij minus the mean F of the window


def mean_maps(model: nn.Module, windows: Windows, *, most: int) -> MeanMaps:
    """Average the attention maps and the primer of a model over at most `most` evenly spaced windows."""
    if not any(isinstance(module, AttentionMap) for module in model.modules()):
        raise InputError(f"{type(model).__name__} has no attention map to look at; itransformer has")
    index = evenly_spaced(len(windows), most)
    maps: list[Tensor] = []
    strengths: list[Tensor] = []
    for layers, primes in trace_attention(model, windows, index=index, batch_size=BATCH):
        maps.append(torch.stack([one.sum(0) for one in layers]))
        for prime in primes[:1]:
            both = [
                torch.stack([filter_strength(one, centered=centered).double().sum(0) for one in layers_of(prime)])
                for centered in (False, True)
            ]
            strengths.append(torch.stack(both))
    attention = torch.stack(maps).sum(0) / len(index)
    tokens = windows.channels + windows.n_time_features
    if attention.shape[1:] != (tokens, tokens):
        raise InputError(
            f"{type(model).__name__} attends over {attention.shape[2]} tokens, but there are {windows.channels} "
            f"channels and {windows.n_time_features} calendar features: its maps are not maps of channels"
        )
    strength, distinct = reduce(torch.add, strengths) / len(index) if strengths else (None, None)
    return MeanMaps(attention, strength, distinct)


def attention_maps(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Probe: mean attention maps of every layer, strength of the primer for every pair, and concentration.

    The concentration values are means over layers; `<name>_by_layer` lists those of each layer. `strength_mean` and
    `distinct_mean` are means over pairs of channels. The row holds the mean map of all layers for up to MOST_TOKENS.
    """
    found = mean_maps(model, splits.test, most=MAP_WINDOWS)
    attention = found.attention.numpy()
    channels = splits.test.channels
    layers = [concentration(layer[:channels], dataset.names) for layer in attention]
    fields = {"top_share": "fraction", "entropy": "entropy", "diagonal": "diagonal", "calendar": "calendar"}
    by_layer = {name: [getattr(layer, field) for layer in layers] for name, field in fields.items()}
    row: dict[str, Any] = {name: float(np.mean(values)) for name, values in by_layer.items()}
    row |= {f"{name}_by_layer": values for name, values in by_layer.items()}
    received = attention[:, :channels, :channels].mean(0).sum(0)
    row["top_channel"] = dataset.names[int(received.argmax())]
    row["tokens"] = [*dataset.names, *CALENDAR[: splits.test.n_time_features]]
    row["channel_count"] = channels
    row["map_windows"] = min(MAP_WINDOWS, len(splits.test))
    if attention.shape[-1] <= MOST_TOKENS:
        row["map"] = five_digits(attention.mean(0))
    row["map_layers"] = attention.astype(np.float32)
    for name, values in (("strength", found.strength), ("distinct", found.distinct)):
        if values is not None:
            row[f"{name}_mean"] = float(values[:, :channels, :channels].mean())
            row[f"{name}_layers"] = values.numpy().astype(np.float32)
    return row
