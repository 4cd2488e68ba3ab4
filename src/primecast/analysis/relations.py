"""Relations between channels: which channel leads which, and what the model's attention and primer do with each pair.

    lead, strength    of the data: the lag at which two channels correlate most, and the correlation there
    attention         of the model: the softmax weights, averaged over layers and heads; row: query, column: key
    primer            of the model: how far a pair's filter F_ij is from the mean filter of all pairs

All are averages over held-out windows. The sign of a lead: `lead.loc[i, j] > 0` when i leads j by that many steps.

Two channels of pure noise correlate most at *some* lag, too. So every pair is compared with surrogates: the same rows
with each channel rotated by a random amount, which keeps each channel's own structure and destroys what relates two.
The rows are cut to whole seasons first, so that a rotation does not break a season that two channels share. A pair is
significant when its peak, in standard deviations of its own surrogates, exceeds what the largest of all pairs reaches
in all but a fraction `alpha` of the surrogates: this bounds the probability of even one false pair. Other pairs have no
lead (NaN), not a lead of 0. The measure is linear: a channel that follows the square of another is not found.

Letters: t rows, n channels, l look-back.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from primecast.analysis.maps import Concentration, channel_maps, concentration
from primecast.data.windows import WindowSource
from primecast.errors import InputError
from primecast.nn.pair_features import mean_lead_lag, standardize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SURROGATES = 199
MOST_WINDOWS = 128
"""At most so many windows are correlated: with hundreds of channels they are the cost."""


@dataclass(frozen=True, eq=False)
class Relations:
    """Frames of channel × channel.

    lead:      steps by which the channel of the row leads that of the column; NaN where no lead is significant.
    lead_time: the same as Timedelta; None where rows are numbered or of different lengths, such as months.
    strength:  mean correlation of the windows at the lead, with its sign; at the best lag where there is no lead.
    attention: mean weight of the row's channel (query) on the column's (key); None if the model has no such map. With
               calendar tokens, a row sums to less than 1: they receive the rest.
    primer:    |F_ij - mean F| / (root mean square of |F|), 0 where all filters are equal; None without primer.
    """

    lead: pd.DataFrame
    lead_time: pd.DataFrame | None
    strength: pd.DataFrame
    attention: pd.DataFrame | None
    primer: pd.DataFrame | None

    def __repr__(self) -> str:
        pairs = self.pairs()
        lines = [f"Relations of {len(self.lead)} channels: {len(pairs)} significant lead-lag pairs"]
        if len(pairs):
            lines.append(pairs.head(10).to_string(index=False, float_format="{:.4g}".format))
        return "\n".join(lines)

    def pairs(self) -> pd.DataFrame:
        """Return the significant pairs, strongest first: leader, follower, steps, time, strength; 0 steps: together."""
        names, lead, strength = list(self.lead.columns), self.lead.to_numpy(), self.strength.to_numpy()
        rows = []
        for i, j in np.argwhere((lead > 0) | np.triu(lead == 0, 1)):
            time = None if self.lead_time is None else self.lead_time.iloc[i, j]
            rows.append((names[i], names[j], int(lead[i, j]), time, float(strength[i, j])))
        rows.sort(key=lambda row: -abs(row[-1]))
        return pd.DataFrame(rows, columns=["leader", "follower", "steps", "time", "strength"])

    def graph(self, threshold: float = 0.0) -> Any:
        """Return a networkx DiGraph with an edge from leader to follower for each pair of at least this |strength|.

        Edges have `steps`, `strength` and, if the model has it, `attention` (of the follower to the leader). A pair
        without lag has an edge in each direction, with 0 steps.
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
                weight = {} if self.attention is None else {"attention": float(self.attention[one][other])}
                graph.add_edge(one, other, steps=steps, strength=strength, **weight)
        return graph

    def plot(self, *, channels: Sequence[object] | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw a map of the significant pairs: color, the correlation; number, the steps by which the row leads.

        channels: those to draw, by default the 30 with the strongest pairs. Return the matplotlib axes.
        """
        from primecast.plotting.plots import plot_relations  # matplotlib only where something is drawn

        return plot_relations(self.lead, self.strength, channels=channels, ax=ax)

    def concentration(self) -> Concentration:
        """Measure whether the attention among channels is spread over all of them or concentrated on one."""
        if self.attention is None:
            raise InputError("this model has no attention between channels, so it has no concentration")
        return concentration_of(self.attention)


def concentration_of(weights: pd.DataFrame) -> Concentration:
    """Measure weights between channels; what a row lacks to 1 goes to other tokens."""
    other_tokens = 1 - weights.to_numpy().sum(axis=1)
    return concentration(np.column_stack([weights.to_numpy(), other_tokens]), list(weights.columns))


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
    """Return the steps by which row leads column (NaN where not significant) and the mean correlation at that lag.

    alpha: the probability of one false pair or more; at least 1 / (surrogates + 1). Leads are shorter than half the
    look-back, since a circular correlation cannot distinguish lag t from t - l.
    """
    rows = len(series)
    least = 1 / (surrogates + 1)
    if not least <= alpha < 1:
        raise InputError(f"alpha is {alpha!r}; it must be a number of at least {least:g} and below 1")
    if rows < 3 * lookback:
        raise InputError(f"relations need at least 3 look-backs of held-out rows, {3 * lookback}; there are {rows}")
    stride = max(1, lookback // 2, rows // MOST_WINDOWS)
    found = mean_correlation(series, lookback, stride)
    whole = 7 * season if rows >= 21 * season else season  # days have weeks
    rotated = series[rows % whole :] if rows >= 2 * whole else series
    generator = torch.Generator().manual_seed(seed)
    peaks = torch.stack([_surrogate_peak(rotated, lookback, stride, generator) for _ in range(surrogates)])
    mean = peaks.nanmean(0)
    std = (peaks - mean).square().nanmean(0).sqrt().clamp(min=1e-12)
    largest = ((peaks - mean) / std).nan_to_num(-math.inf).flatten(1).amax(1).sort().values
    rank = min(surrogates, math.ceil((1 - alpha) * (surrogates + 1)))
    significant = (found.abs().amax(-1) - mean) / std > largest[rank - 1]  # a channel with itself: NaN, so False
    best = found.abs().argmax(-1)
    strength = found.gather(-1, best[..., None])[..., 0]
    steps = best - (found.shape[-1] - 1) // 2
    lead = torch.where(significant, steps.double(), math.nan)
    return lead.numpy(), strength.double().numpy()


def mean_correlation(series: Float[Tensor, "t n"], lookback: int, stride: int) -> Float[Tensor, "n n lags"]:
    """Return the mean circular correlation over windows at lags -k .. k, k = (l - 1) // 2; above 0 the row leads."""
    correlation = mean_lead_lag(standardize(series.unfold(0, lookback, stride)))
    reach = (lookback - 1) // 2
    return torch.cat([correlation[..., lookback - reach :], correlation[..., : reach + 1]], dim=-1)


def _surrogate_peak(
    series: Float[Tensor, "t n"], lookback: int, stride: int, generator: torch.Generator
) -> Float[Tensor, "n n"]:
    """Return the peaks of one surrogate; NaN for pairs rotated by nearly the same amount, which stay related."""
    rows, channels = series.shape
    rotation = torch.randint(rows, (channels,), generator=generator)
    rotated = series.gather(0, (torch.arange(rows)[:, None] + rotation) % rows)
    apart = (rotation[:, None] - rotation) % rows
    near = torch.minimum(apart, rows - apart) < lookback
    peak = mean_correlation(rotated, lookback, stride).abs().amax(-1)
    return peak.masked_fill(near, math.nan)


# ---------------------------------------------------------------- all of it


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
    """Find the leads in the rows of `series` and average attention and primer over the windows."""
    lead, strength = find_leads(series, lookback=lookback, season=season, alpha=alpha, seed=seed)
    attention, primer = channel_maps(model, windows, channels=len(names))

    def frame(values: Float64[np.ndarray, "n n"]) -> pd.DataFrame:
        return pd.DataFrame(values, index=list(names), columns=list(names))

    return Relations(
        lead=frame(lead),
        lead_time=None if step is None else frame(lead).apply(lambda column: column * step),
        strength=frame(strength),
        attention=None if attention is None else frame(attention),
        primer=None if primer is None else frame(primer),
    )
