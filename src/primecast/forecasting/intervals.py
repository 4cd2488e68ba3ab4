"""Prediction intervals from the errors a forecaster made where it had not been trained: split-conformal, numpy only.

    score    s = |truth - forecast|, one per held-out window, step and channel
    radius   r = the ceil((m + 1) level)-th smallest of m scores, for each step and channel by itself
    interval   forecast - r ... forecast + r

With m scores exchangeable with the next one, the next truth lies inside with a probability of at least `level`, and at
most `level` + 1/(m + 1) when no two scores are equal; that is what the + 1 is for. Windows of a time series are not
exchangeable: neighbours overlap and share most of their rows, so that m windows count for far fewer, and what drifts
after calibration is not in the scores. What is promised then is no more than: the right share of the calibration
windows lies inside. `track` is the remedy where truth keeps arriving. It moves the radius of each step and channel up
after a miss and down after a hit,

    r <- r + gain (missed - (1 - level)),

so that the share of misses over any long run of windows is the one asked for, whatever the data do (Gibbs & Candes,
NeurIPS 2021; Angelopoulos, Candes & Tibshirani, NeurIPS 2023). It promises that share over time, not for a single
window, and it may only use what is known: the score of step k of a window becomes known k steps after its origin.

Letters: m windows in time order, h steps, n channels.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from primecast.errors import InputError

RATE = 0.2
"""Gain of the adaptive update one step ahead, as a share of the radius it starts from."""
TRACKED = 1000
"""Windows that the adaptive radius is tracked through, at most; it forgets what was long before."""


def check_levels(levels: object) -> list[float]:
    """The levels in per cent, each once, in rising order.

    Below 1 they are taken for shares: nobody wants an interval that holds 0.8 % of the truths.
    """
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise InputError(f"level is {levels!r}; it must be a list of per cents, such as [80, 95]")
    for level in levels:
        number = isinstance(level, int | float | np.integer | np.floating) and not isinstance(level, bool)
        if not number or not 1 <= level < 100:
            raise InputError(f"level {level!r} is no per cent: an interval level lies between 1 and 100, such as 80")
    return sorted({float(level) for level in levels})


def conformal_radius(scores: Float[np.ndarray, "m *cells"], level: float) -> Float[np.ndarray, "*cells"]:
    """The ceil((m + 1) level / 100)-th smallest score of every cell; refused when m is too small to hold it."""
    count = len(scores)
    rank = math.ceil((count + 1) * level / 100 - 1e-9)  # 11 * 0.9 must not become 10 by rounding up 9.9000000001
    if rank > count:
        needed = math.ceil(level / (100 - level) - 1e-9)
        raise InputError(f"an interval of {level:g} % needs at least {needed} held-out windows, there are {count}")
    return np.partition(scores, rank - 1, axis=0)[rank - 1]


@dataclass(frozen=True, eq=False)
class Tracked:
    """What the adaptive update did: the radius each window was given, and the one for the window after the last."""

    radius: Float[np.ndarray, "m h n"]
    last: Float[np.ndarray, "h n"]


def track(
    scores: Float[np.ndarray, "m h n"],
    level: float,
    *,
    start: Float[np.ndarray, "h n"],
    stride: int = 1,
    rate: float = RATE,
) -> Tracked:
    """Go through the windows in time order, giving each a radius made of what was known at its origin.

    start:  the radius of the first window, as `conformal_radius` gives it.
    stride: rows from one window to the next, at least; step k of a window is known ceil(k / stride) windows later.
    rate:   gain as a share of `start`, for a cell whose start is 0 of its mean score.

    A score that is not known is NaN, and moves nothing.
    """
    windows, horizon, _ = scores.shape
    allowed = 1 - level / 100
    delay = np.ceil(np.arange(1, horizon + 1) / stride).astype(int)
    # The longer news takes, the more of it is under way when a radius is used: steps as for delayed gradients.
    mean = np.nansum(scores, axis=0) / np.maximum(1, (~np.isnan(scores)).sum(axis=0))
    gain = rate / np.sqrt(delay)[:, None] * np.where(start > 0, start, mean)
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
        heard = ~np.isnan(scores[known[steps], steps])
        now[steps] += gain[steps] * (missed[known[steps], steps] - allowed) * heard
    return Tracked(radius=radius[:-1], last=radius[-1])


def radius(
    scores: Float[np.ndarray, "m h n"],
    level: float,
    *,
    adaptive: bool,
    stride: int = 1,
    late: Float[np.ndarray, "k h n"] | None = None,
) -> Float[np.ndarray, "h n"]:
    """The radius for the window after these: of all scores alike, or adaptive, tracked through their later half.

    late: for an adaptive one, the scores of windows that have begun since and not ended, the steps to come as NaN. The
    last has begun a stride ago.
    """
    if not adaptive:
        return conformal_radius(scores, level)
    half = max(len(scores) // 2, len(scores) - TRACKED, math.ceil(level / (100 - level) - 1e-9))
    start = conformal_radius(scores[:half], level)
    followed = scores[half:] if late is None else np.concatenate([scores[half:], late])
    return track(followed, level, start=start, stride=stride).last if len(followed) else start


def thinned(windows: int, *, cells: int, most: int = 4000, budget: int = 2_000_000) -> Int[np.ndarray, "m"]:
    """Which windows to keep the scores of: evenly spaced, the last among them, no more than memory is worth.

    Neighbouring windows share all but one row, so leaving most of them out loses little. At least 100 are kept,
    and otherwise no more than `budget` scores of `cells` per window.
    """
    keep = min(most, max(100, budget // max(1, cells)))
    stride = max(1, math.ceil(windows / keep))
    return np.arange(windows - 1, -1, -stride)[::-1]
