"""Prediction intervals from errors on rows that the model was not trained on: split-conformal, numpy only.

    score    s = |truth - forecast|, one per held-out window, step and channel
    radius   r = the ceil((m + 1) level)-th smallest of m scores, for each step and channel by itself
    interval   forecast - r ... forecast + r

If the m scores are exchangeable with the next one, the next truth lies inside with a probability of at least `level`,
and of at most `level` + 1/(m + 1) when no two scores are equal; the + 1 in the rank ensures it. Windows of a time
series are not exchangeable: neighbors share most of their rows, so that m windows count for far fewer, and a drift
after calibration is not in the scores. Then the only guarantee is that the right fraction of the calibration windows
lies inside. `track` is the remedy where truths keep arriving. It moves the radius of each step and channel up after a
miss and down after a hit,

    r <- r + gain (missed - (1 - level)),

so that the fraction of misses over any long run of windows is 1 - `level`, whatever the data do (Gibbs & Candes,
NeurIPS 2021; Angelopoulos, Candes & Tibshirani, NeurIPS 2023). It guarantees that fraction over time, not for a single
window, and it may only use what is known: the score of step k of a window becomes known k steps after its origin.

Letters: m windows in time order, h steps, n channels, k windows that have begun and not ended.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from primecast.errors import InputError

GAIN = 0.2
"""Gain of the adaptive update one step ahead, as a fraction of the radius it starts from."""
TRACKED = 1000
"""Windows over which the adaptive radius is tracked, at most; older ones have no influence on it."""


def check_levels(levels: object) -> list[float]:
    """Return the levels in per cent, each once, in rising order.

    A level below 1 is refused: it is mostly a fraction, 0.8 for 80.
    """
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise InputError(f"level is {levels!r}; it must be a list of per cents, such as [80, 95]")
    for level in levels:
        number = isinstance(level, int | float | np.integer | np.floating) and not isinstance(level, bool)
        if not number or not 1 <= level < 100:
            raise InputError(f"level {level!r} is no per cent: an interval level lies between 1 and 100, such as 80")
    chosen = sorted({float(level) for level in levels})
    for one, other in pairwise(chosen):
        if f"{one:g}" == f"{other:g}":
            raise InputError(f"levels {one!r} and {other!r} share the column names of {one:g}; give one of them")
    return chosen


def conformal_radius(scores: Float[np.ndarray, "m *cells"], level: float) -> Float[np.ndarray, "*cells"]:
    """Return the ceil((m + 1) level / 100)-th smallest score of every cell; refuse an m that is too small for it."""
    count = len(scores)
    rank = math.ceil((count + 1) * level / 100 - 1e-9)  # 11 * 0.9 must not become 10 by rounding up 9.9000000001
    if rank > count:
        needed = math.ceil(level / (100 - level) - 1e-9)
        raise InputError(f"an interval of {level:g} % needs at least {needed} held-out windows, there are {count}")
    return np.partition(scores, rank - 1, axis=0)[rank - 1]


@dataclass(frozen=True, eq=False)
class Tracked:
    """The radius that the adaptive update gave to each window, and the one for the window after the last."""

    radius: Float[np.ndarray, "m h n"]
    last: Float[np.ndarray, "h n"]


def track(
    scores: Float[np.ndarray, "m h n"],
    level: float,
    *,
    start: Float[np.ndarray, "h n"],
    stride: int = 1,
    gain: float = GAIN,
) -> Tracked:
    """Track the radius through the windows in time order; each radius depends on what was known at its origin.

    start:  the radius of the first window, as `conformal_radius` gives it.
    stride: rows from one window to the next, at least; step k of a window is known ceil(k / stride) windows later.
    gain:   as a fraction of `start`; of the mean score for a cell whose start is 0.

    A score that is not known is NaN, and moves nothing.
    """
    windows, horizon, _ = scores.shape
    allowed = 1 - level / 100
    delay = np.ceil(np.arange(1, horizon + 1) / stride).astype(int)
    # The later a score becomes known, the smaller the step, as for delayed gradients.
    mean = np.nansum(scores, axis=0) / np.maximum(1, (~np.isnan(scores)).sum(axis=0))
    steps_gain = gain / np.sqrt(delay)[:, None] * np.where(start > 0, start, mean)
    radius = np.empty((windows + 1, *scores.shape[1:]), dtype=scores.dtype)
    missed = np.zeros(scores.shape, dtype=bool)
    now = start.astype(np.float64)
    for window in range(windows + 1):
        radius[window] = np.maximum(now, 0)
        if window == windows:
            break
        missed[window] = scores[window] > radius[window]
        known = window + 1 - delay  # for every step, the window whose truth arrives before the next origin
        steps = np.flatnonzero(known >= 0)
        is_known = ~np.isnan(scores[known[steps], steps])
        now[steps] += steps_gain[steps] * (missed[known[steps], steps] - allowed) * is_known
    return Tracked(radius=radius[:-1], last=radius[-1])


def radius(
    scores: Float[np.ndarray, "m h n"],
    level: float,
    *,
    adaptive: bool,
    stride: int = 1,
    begun: Float[np.ndarray, "k h n"] | None = None,
) -> Float[np.ndarray, "h n"]:
    """Return the radius for the window after these: of all scores alike, or adaptive, tracked through the later half.

    begun: for an adaptive one, the scores of windows that have begun since and not ended, with NaN for future steps;
    the last began a stride ago.
    """
    if not adaptive:
        return conformal_radius(scores, level)
    half = max(len(scores) // 2, len(scores) - TRACKED, math.ceil(level / (100 - level) - 1e-9))
    start = conformal_radius(scores[:half], level)
    recent = scores[half:] if begun is None else np.concatenate([scores[half:], begun])
    return track(recent, level, start=start, stride=stride).last if len(recent) else start


def thinned(windows: int, *, cells: int, most: int = 4000, budget: int = 2_000_000) -> Int[np.ndarray, "m"]:
    """Return the windows whose scores are kept: at a constant stride, ending with the last, within a memory budget.

    Neighboring windows share all but one row, so leaving most of them out loses little. At least 100 are kept if there
    are so many, and otherwise no more than `budget` scores of `cells` per window.
    """
    keep = min(most, max(100, budget // max(1, cells)))
    stride = max(1, math.ceil(windows / keep))
    return np.arange(windows - 1, -1, -stride)[::-1]
