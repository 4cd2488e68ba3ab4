"""What lies between the channels: who leads whom, what the model looks at, and whose loss would hurt.

    lead, strength    of the data: the lag at which the windows of two channels correlate most, and how strongly there
    attention         of the model: the softmax weights, averaged over layers and heads; row asks, column answers
    primer            of the model: how far a pair's filter F_ij is from the mean filter of all pairs

All are averages over held-out windows. The sign of a lead: `lead.loc[i, j] > 0` when i leads j by that many steps.

Two channels of pure noise correlate most at *some* lag, too. So every pair is held against surrogates: the same rows
with each channel rotated by a random amount, which keeps what a channel is by itself and destroys what lies between
two. The rows are cut to whole seasons first, so that rotation does not break a season that two channels share. A pair
is significant when its peak, in standard deviations of its own surrogates, is above what the largest of all pairs
reaches in all but a share `alpha` of the surrogates: what is bounded is the chance of even one false pair. Elsewhere
there is no lead (NaN), not a lead of 0. What is measured is linear: who follows the square of its leader is not seen.

Letters: b windows, n channels, m time features, l look-back, h horizon or heads, e layers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Complex, Float, Float64
from torch import Tensor, nn

from primecast.analysis.hooks import errors_without, evenness, filter_strength, layers_of, trace_attention
from primecast.data.windows import WindowSource
from primecast.errors import InputError
from primecast.nn.attention import Prime

SURROGATES = 199
MOST_WINDOWS = 128
"""Windows that leads are looked for in, at most; at hundreds of channels they are the cost."""


@dataclass(frozen=True, eq=False)
class Relations:
    """Frames of channel × channel.

    lead:      steps by which the channel of the row leads that of the column; NaN where no lead is significant.
    lead_time: the same as Timedelta; None where rows are only numbered, or of several lengths, as months are.
    strength:  mean correlation of the windows at the lead, with its sign; at the best lag where there is no lead.
    attention: mean weight with which the row's channel looks at the column's; None if the model has no such map. A row
               sums to less than 1 when there are calendar tokens, by what they get.
    primer:    |F_ij - mean F| / (root mean square of |F|), 0 where all pairs are filtered alike; None without primer.
    """

    lead: pd.DataFrame
    lead_time: pd.DataFrame | None
    strength: pd.DataFrame
    attention: pd.DataFrame | None
    primer: pd.DataFrame | None

    def pairs(self) -> pd.DataFrame:
        """The significant pairs, strongest first: leader, follower, steps, time, strength; steps 0 move together."""
        names, lead, strength = list(self.lead.columns), self.lead.to_numpy(), self.strength.to_numpy()
        rows = []
        for i, j in np.argwhere(~np.isnan(lead)):
            if lead[i, j] > 0 or (lead[i, j] == 0 and i < j):
                time = None if self.lead_time is None else self.lead_time.iloc[i, j]
                rows.append((names[i], names[j], int(lead[i, j]), time, float(strength[i, j])))
        rows.sort(key=lambda row: -abs(row[-1]))
        return pd.DataFrame(rows, columns=["leader", "follower", "steps", "time", "strength"])

    def graph(self, threshold: float = 0.0) -> Any:
        """A networkx DiGraph: an edge from leader to follower for each significant pair of at least this |strength|.

        Edges have `steps`, `strength` and, where there is one, `attention` (of the follower to the leader). A pair that
        moves together has an edge each way, with 0 steps.
        """
        try:
            nx = import_module("networkx")
        except ImportError as error:
            raise InputError("a graph needs networkx: pip install networkx") from error
        graph = nx.DiGraph()
        graph.add_nodes_from(self.lead.columns)
        for leader, follower, steps, _, strength in self.pairs().itertuples(index=False):
            ways = [(leader, follower)] + ([(follower, leader)] if steps == 0 else [])
            for one, other in ways if abs(strength) >= threshold else ():
                looked = {} if self.attention is None else {"attention": float(self.attention[one][other])}
                graph.add_edge(one, other, steps=steps, strength=strength, **looked)
        return graph

    def concentration(self) -> "Concentration":
        """Whether the model looks at all channels or hangs on one; of the attention among channels."""
        if self.attention is None:
            raise InputError("this model has no attention between channels, so there is nothing to be concentrated")
        weights = self.attention.to_numpy()
        found = evenness(np.column_stack([weights, 1 - weights.sum(axis=1)]))  # what is left goes to other tokens
        return Concentration(
            channel=str(self.attention.columns[found.top]),
            share=found.share,
            entropy=found.entropy,
            diagonal=found.diagonal,
            calendar=found.calendar,
        )


@dataclass(frozen=True)
class Concentration:
    """channel, share: the most attended channel and its share of all attention among channels (even would be 1/n).

    entropy: of the received shares by that of even ones: 1 when all receive alike, 0 when one receives everything.
    diagonal: mean share a channel gives to itself. calendar: share that goes to calendar and known covariates instead.
    """

    channel: str
    share: float
    entropy: float
    diagonal: float
    calendar: float


# ---------------------------------------------------------------- leads, from the data


def find_leads(
    series: Float[Tensor, "t n"],
    *,
    lookback: int,
    season: int = 1,
    alpha: float = 0.01,
    surrogates: int = SURROGATES,
    seed: int = 0,
) -> tuple[Float64[np.ndarray, "n n"], Float64[np.ndarray, "n n"]]:
    """Steps by which row leads column (NaN where not significant), and the mean correlation at that lag.

    alpha: how likely one false pair may be; of so many surrogates, 1 / (surrogates + 1) is the least that can be told.
    Only leads shorter than half the look-back are told, since a correlation around a circle cannot tell lag t from
    t - l.
    """
    rows, channels = series.shape
    least = 1 / (surrogates + 1)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.floating) or not least <= alpha < 1:
        raise InputError(f"alpha is {alpha!r}; it must be a number of at least {least:g} and below 1")
    if rows < 3 * lookback:
        raise InputError(f"relations need at least 3 look-backs of held-out rows, {3 * lookback}; there are {rows}")
    stride = max(1, lookback // 2, rows // MOST_WINDOWS)
    found = correlations(window_spectra(series, lookback, stride), lookback)
    whole = 7 * season if rows >= 21 * season else season  # a day has a week around it
    turned = series[rows % whole :] if rows >= 2 * whole else series
    generator = torch.Generator().manual_seed(seed)
    chance = torch.stack([_surrogate_peak(turned, lookback, stride, generator) for _ in range(surrogates)])
    mean = chance.nanmean(0)
    deviation = (chance - mean).square().nanmean(0).sqrt().clamp(min=1e-12)
    if channels > 1:
        largest = ((chance - mean) / deviation).nan_to_num(-math.inf).flatten(1).amax(1).sort().values
        rank = min(surrogates, math.ceil((1 - alpha) * (surrogates + 1)))
        significant = (found.abs().amax(-1) - mean) / deviation > largest[rank - 1]
    else:
        significant = torch.zeros(1, 1, dtype=torch.bool)

    best = found.abs().argmax(-1)
    strength = found.gather(-1, best[..., None])[..., 0]
    steps = best - (found.shape[-1] - 1) // 2
    lead = torch.where(significant, steps.double(), math.nan)
    return lead.numpy(), strength.double().numpy()


def window_spectra(series: Float[Tensor, "t n"], lookback: int, stride: int) -> Complex[Tensor, "w n f"]:
    """Spectra of the standardised windows of every channel; a window that stands still is 0."""
    windows = series.unfold(0, lookback, stride)
    centred = windows - windows.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    normal = torch.where(deviation > 1e-6, centred / deviation.clamp(min=1e-6), torch.zeros_like(centred))
    return torch.fft.rfft(normal)


def correlations(spectra: Complex[Tensor, "w n f"], lookback: int) -> Float[Tensor, "n n lags"]:
    """Circular correlation, averaged over windows, at lags -k .. k with k = (l - 1) // 2; above 0 the row leads."""
    by_frequency = spectra.permute(2, 1, 0)  # f n w
    cross = (by_frequency.conj() @ by_frequency.mT).permute(1, 2, 0) / len(spectra)
    correlation = torch.fft.irfft(cross, n=lookback) / lookback
    reach = (lookback - 1) // 2
    return torch.cat([correlation[..., lookback - reach :], correlation[..., : reach + 1]], dim=-1)


def _surrogate_peak(
    series: Float[Tensor, "t n"], lookback: int, stride: int, generator: torch.Generator
) -> Float[Tensor, "n n"]:
    """The peaks of one surrogate; NaN for pairs turned by nearly the same amount, which still are what they were."""
    rows, channels = series.shape
    rotation = torch.randint(rows, (channels,), generator=generator)
    turned = series.gather(0, (torch.arange(rows)[:, None] + rotation) % rows)
    apart = (rotation[:, None] - rotation) % rows
    near = torch.minimum(apart, rows - apart) < lookback
    peak = correlations(window_spectra(turned, lookback, stride), lookback).abs().amax(-1)
    return peak.masked_fill(near, math.nan)


# ---------------------------------------------------------------- attention and primers, from the model


def look_inside(
    model: nn.Module, windows: WindowSource, *, channels: int, batch_size: int = 64
) -> tuple[Float64[np.ndarray, "n n"] | None, Float64[np.ndarray, "n n"] | None]:
    """Mean attention and mean deviation of the primer between channels; None for what the model does not have."""
    attention, primer = [], []
    batches = (windows.batch(index) for index in torch.arange(len(windows)).split(batch_size))
    for seen in trace_attention(model, batches):
        maps = [one[:, :channels, :channels] for one in seen.maps if one.shape[-1] == one.shape[-2]]
        if maps and all(one.shape[-1] == channels for one in maps):
            attention.append(torch.stack(maps).mean(0).sum(0))
        primes = [layer for prime in seen.primes if prime.phi.shape[-1] >= channels for layer in layers_of(prime)]
        if primes:
            primer.append(torch.stack([primer_deviation(prime, channels) for prime in primes]).mean(0).sum(0))
    means = (torch.stack(sums).sum(0) / len(windows) if sums else None for sums in (attention, primer))
    looked, deviation = (None if mean is None else mean.numpy() for mean in means)
    return looked, deviation


def primer_deviation(prime: Prime, channels: int) -> Float[Tensor, "b n n"]:
    """|F_ij - mean F| / (root mean square of |F|) over the pairs of channels, without building F."""
    whole = prime.complete()
    among = Prime(
        whole.phi.double()[..., :channels, :channels],
        whole.gains.double(),
        None if whole.base is None else whole.base.double(),
    )
    size = filter_strength(among).square().mean((1, 2), keepdim=True).sqrt()
    return filter_strength(among, centred=True) / size.clamp(min=1e-12)


def relate(
    model: nn.Module,
    windows: WindowSource,
    series: Float[Tensor, "t n"],
    *,
    names: Sequence[str],
    lookback: int,
    season: int,
    step: pd.Timedelta | None,
    alpha: float = 0.01,
    seed: int = 0,
) -> Relations:
    """All of it: leads of the rows in `series`, attention and primer over the windows."""
    lead, strength = find_leads(series, lookback=lookback, season=season, alpha=alpha, seed=seed)
    attention, primer = look_inside(model, windows, channels=len(names))

    def framed(values: Float64[np.ndarray, "n n"] | None) -> pd.DataFrame | None:
        return None if values is None else pd.DataFrame(values, index=list(names), columns=list(names))

    steps = pd.DataFrame(lead, index=list(names), columns=list(names))
    return Relations(
        lead=steps,
        lead_time=None if step is None else steps.apply(lambda column: column * step),
        strength=pd.DataFrame(strength, index=list(names), columns=list(names)),
        attention=framed(attention),
        primer=framed(primer),
    )


# ---------------------------------------------------------------- what is lost with a sensor


@dataclass(frozen=True, eq=False)
class SensorAblation:
    """growth: by what share the squared error of each channel (row) grows when a sensor (column) is lost; 0.1 is 10 %.

    summary: per sensor, the mean growth of the other channels, the largest one and whose that is, worst sensor first.
    """

    growth: pd.DataFrame
    summary: pd.DataFrame

    def single_points(self, threshold: float = 0.1) -> list[str]:
        """The sensors without which some other channel's squared error grows by more than `threshold`."""
        return [str(name) for name in self.summary.index[self.summary["largest"] > threshold]]


def ablate_sensors(
    model: nn.Module,
    windows: WindowSource,
    *,
    names: Sequence[str],
    targets: int,
    hold: str = "mean",
    batch_size: int = 64,
) -> SensorAblation:
    """Forecast the windows again and again, each time with one of the channels dead. `hold`: a name in ABLATIONS."""
    channels = len(names)
    batches = (windows.batch(index) for index in torch.arange(len(windows)).split(batch_size))
    errors = errors_without(model, batches, channels=channels, targets=targets, hold=hold)
    whole = errors[channels].clamp(min=1e-30)
    growth = (errors[:channels] / whole - 1).T.numpy()
    frame = pd.DataFrame(growth, index=list(names[:targets]), columns=list(names))
    return SensorAblation(growth=frame, summary=_summary(frame))


def _summary(growth: pd.DataFrame) -> pd.DataFrame:
    rows = {}
    for sensor in growth.columns:
        others = growth[sensor].drop(index=sensor, errors="ignore")
        if len(others):
            rows[sensor] = {"mean": others.mean(), "largest": others.max(), "channel": others.idxmax()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "largest", "channel"])
    return table.sort_values("mean", ascending=False, kind="stable")
