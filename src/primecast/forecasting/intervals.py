"""Prediction intervals from errors on rows that the model was not trained on: asymmetric, by level and time of day.

    error         truth - forecast, of each held-out window, step and channel
    relative      error / scale, the mean size of the errors of its channel and step, smooth over the steps
    distribution  of the relative errors of a channel, by eighths of the forecast's level and sixths of the day;
                  each part also counts its neighbors and, with little weight, the rest of the channel
    bound         forecast + scale * quantile of the distribution, interpolated in level and time of day

Errors of all steps share a distribution, so that bounds move smoothly from step to step. A lower and an upper quantile
are taken, so that intervals are as asymmetric as the errors are, and an interval contains those of lower levels.
Quantiles are corrected for small numbers as in split-conformal prediction: of m errors the (m + 1) p-th smallest.

If errors are exchangeable with the next one, the next truth lies inside with the probability asked for. Windows of a
time series are not: neighbors share most of their rows, and errors drift. Two remedies where truths keep arriving make
a distribution adaptive:

    memory   an error that is a rows old has the weight exp(-a / memory)
    spread   both halves of the interval are multiplied by factors exp(g), one for each channel, level and side; a truth
             outside the 80 % interval of its time raises g of its side, one inside lowers it,
             g <- g + gain (missed - 0.1)

The second is in the spirit of the adaptive update of Gibbs & Candes (NeurIPS 2021): over a long run it pulls the misses
of the 80 % interval back to their fraction, whatever the data do; other levels share its factors, nothing is promised
of a single window, and a fast drift is followed late. Only what is known counts: the error of step k
of a window from k rows after its origin on.

Windows that share rows err alike, so few rows tell less of the next error than their number of errors suggests. With w
windows that share no row (the rows known, by weight, over the horizon), the next one deviates from their mean with the
variance 1 + 1 / w, and their own deviations show 1 - 1 / w: halves are multiplied by sqrt(1 + 2 / w), their ratio
for large w (2 was compared with 0 and 1, see docs/decisions.md).

The distribution is a histogram over fixed bins of relative errors, so that errors can be added one row at a time.

Letters: m windows, h steps, n channels, q probabilities, v levels and d times of day of the parts, g bins, o origins.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int64

from primecast.errors import InputError

LEVELS, TIMES = 8, 6
"""Parts of the forecast's range in each channel, with equally many forecasts in each, and of the day."""
MEMORY = 1400
"""Rows after which the weight of an error has fallen to 1/e; at least seven horizons."""
TRACKED = (0.1, 0.9)
"""The quantiles whose misses the spread learns from."""
ISSUED, RESPONSE = 10, 25
"""Rows between windows whose misses are learned, at least, and rows over which the spread responds, at least."""
NEIGHBOR_LEVEL, NEIGHBOR_TIME, SAME_LEVEL = 0.1, 0.2, 0.05
"""The weight of errors of the neighboring parts, and of all times of day at the same level."""
REST = 20
"""Number of errors for which the whole channel counts in each part."""
EDGES: Float64[np.ndarray, "g"] = np.sinh(np.linspace(-10, 10, 300)) / 8
"""Of the bins of relative errors: narrow at 0, where one bin is centered, up to 1,400 times the mean size."""
LEAST_APART = 0.5
"""Of windows that share no row: intervals are made at most 2.2 times as wide because there are few."""
LEAST_SCALE = 0.01
"""Of errors, in scaled units: a channel that has hardly erred may do so later."""


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


def least_windows(level: float) -> int:
    """Return how many held-out windows an interval of this level needs."""
    return math.ceil(level / (100 - level) - 1e-9)


def check_windows(windows: int, level: float) -> None:
    """Refuse a number of held-out windows that is too small for an interval of this level."""
    if windows < least_windows(level):
        raise InputError(
            f"an interval of {level:g} % needs at least {least_windows(level)} held-out windows, there are {windows}"
        )


@dataclass(frozen=True, eq=False)
class Calibration:
    """Errors of held-out windows in time order, scaled.

    errors:    truth - forecast, NaN where the truth is not known. forecasts: those that erred.
    origins:   the first row that each window forecasts; any row may be number 0.
    signed:    False for folders saved before 0.2: these errors are absolute, and their forecasts are not known.
    """

    errors: Float[np.ndarray, "m h n"]
    forecasts: Float[np.ndarray, "m h n"]
    origins: Int64[np.ndarray, "m"]
    signed: bool = True

    def __len__(self) -> int:
        return len(self.errors)

    def only(self, chosen: slice | Bool[np.ndarray, "m"]) -> "Calibration":
        """Return these windows."""
        return Calibration(self.errors[chosen], self.forecasts[chosen], self.origins[chosen], self.signed)

    def followed_by(self, later: "Calibration") -> "Calibration":
        """Return the windows of both; the origins count from the same row. Absolute errors stay absolute."""
        errors = later.errors if self.signed else np.abs(later.errors)
        forecasts = later.forecasts if self.signed else np.zeros_like(later.forecasts)
        return Calibration(
            np.concatenate([self.errors, errors]),
            np.concatenate([self.forecasts, forecasts]),
            np.concatenate([self.origins, later.origins]),
            self.signed,
        )

    def shifted(self, rows: int) -> "Calibration":
        """Return the same windows with the rows numbered anew."""
        return replace(self, origins=self.origins + rows)


def known_at(
    calibration: Calibration, *, until: int, season: int, adaptive: bool
) -> "ErrorDistribution | AbsoluteErrors":
    """Return what the errors known before a row tell of the next ones; see `ErrorDistribution`."""
    if calibration.signed:
        return ErrorDistribution(calibration, until=until, season=season, adaptive=adaptive)
    return AbsoluteErrors(calibration, until=until)


class AbsoluteErrors:
    """Symmetric intervals, alike at every level and time of day: all that errors saved before 0.2 allow."""

    def __init__(self, calibration: Calibration, *, until: int) -> None:
        self.calibration = calibration
        self.move_to(until)

    def move_to(self, row: int) -> None:
        """Take in the windows that have ended before this row."""
        ended = self.calibration.origins + self.calibration.errors.shape[1] <= row
        errors = self.calibration.errors[ended]
        self.known = errors[~np.isnan(errors).any(axis=(1, 2))]

    def interval(
        self, forecasts: Float[np.ndarray, "o h n"], origins: Int[np.ndarray, "o"], level: float
    ) -> Float64[np.ndarray, "2 o h n"]:
        """Return the bounds of the intervals of a level: the ceil((m + 1) level)-th smallest error to either side."""
        check_windows(len(self.known), level)
        rank = math.ceil((len(self.known) + 1) * level / 100 - 1e-9)  # 11 * 0.9 must not become 10 by rounding up
        radius = np.partition(self.known, rank - 1, axis=0)[rank - 1].astype(np.float64)
        return np.stack([forecasts - radius, forecasts + radius])


class ErrorDistribution:
    """Distribution of relative errors by channel, level of the forecast and time of the season, as known at a row.

    calibration: its errors count from the row on in which they become known; row numbers are those of its origins.
    until:    the row at which it begins: before it `move_to` cannot go.
    season:   rows of a day, or of another season; 1 without any.
    adaptive: whether it forgets and learns from its own misses; these begin in the middle of the rows before `until`.
    """

    def __init__(self, calibration: Calibration, *, until: int, season: int, adaptive: bool) -> None:
        self.calibration, self.season, self.times = calibration, season, min(TIMES, season)
        _, self.horizon, self.channels = self.calibration.errors.shape
        self.windows = int((calibration.origins + self.horizon <= until).sum())
        self.memory = max(MEMORY, 7.0 * self.horizon) if adaptive else math.inf
        self.counts = np.zeros((self.channels, LEVELS, self.times, len(EDGES) - 1))
        self.spread = np.zeros((2, self.channels, LEVELS))
        """Logarithms of the factors of the lower and the upper half of each interval."""
        self.open: list[Issued] = []
        origins = self.calibration.origins
        begin = int(origins.min(initial=until) + until) // 2 if adaptive else until
        self._collect(until=until)
        self.now, self.used, self.issued = begin, 0, 0
        self.to_issue = _apart(origins, first=begin, distance=ISSUED) if adaptive else []
        self.move_to(until)

    def _collect(self, *, until: int) -> None:
        """Take scales and levels from what is known before a row; sort all errors by the row that makes them known."""
        errors, forecasts = self.calibration.errors, self.calibration.forecasts
        rows = self.calibration.origins[:, None] + np.arange(self.horizon)
        known = ~np.isnan(errors) & (rows < until)[..., None]
        self.scale = _smooth_over_steps(np.where(known, np.abs(errors), 0).sum(axis=0), known.sum(axis=0))
        self.knots = [
            np.quantile(forecasts[..., c][seen], np.linspace(0, 1, 4 * LEVELS + 1)) if seen.any() else np.zeros(1)
            for c, seen in enumerate(np.moveaxis(known, -1, 0))
        ]
        bins = np.searchsorted(EDGES[1:-1], errors / self.scale, side="right")
        time = rows % self.season * self.times // self.season
        place = (np.arange(self.channels) * LEVELS + self._part(forecasts)) * self.times + time[..., None]
        order = np.argsort(rows.ravel(), kind="stable")
        self.rows = rows.ravel()[order]
        self.distinct = np.unique(rows)
        self.places = (place * (len(EDGES) - 1) + bins).reshape(-1, self.channels)[order]
        self.known = ~np.isnan(errors).reshape(-1, self.channels)[order]

    def _level(self, forecasts: Float[np.ndarray, "*w h n"]) -> Float64[np.ndarray, "*w h n"]:
        """Return the fraction of the known forecasts of a channel that lie below each of these."""
        columns = [
            np.interp(forecasts[..., channel], knots, np.linspace(0, 1, len(knots)))
            for channel, knots in enumerate(self.knots)
        ]
        return np.stack(columns, axis=-1)

    def _part(self, forecasts: Float[np.ndarray, "*w h n"]) -> Int64[np.ndarray, "*w h n"]:
        return np.minimum(self._level(forecasts) * LEVELS, LEVELS - 1).astype(np.int64)

    # ---------------------------------------------------------------- what becomes known

    def move_to(self, row: int) -> None:
        """Take in what is known before this row, which is not before the present one."""
        while self.issued < len(self.to_issue) and self.calibration.origins[self.to_issue[self.issued]] < row:
            window = self.to_issue[self.issued]
            self._know(int(self.calibration.origins[window]))
            self._issue(window)
            self.issued += 1
        self._know(row)

    def _know(self, row: int) -> None:
        """Add the errors that are known before this row, and learn from misses."""
        stop = int(np.searchsorted(self.rows, row))
        if math.isfinite(self.memory):
            self.counts *= math.exp((self.now - row) / self.memory)
        age = (row - 1 - self.rows[self.used : stop]) / self.memory
        weights = np.exp(-age)[:, None] * self.known[self.used : stop]
        added = np.bincount(self.places[self.used : stop].ravel(), weights=weights.ravel(), minlength=self.counts.size)
        self.counts += added.reshape(self.counts.shape)
        self.now, self.used = row, stop
        for window in self.open:
            window.learn(self.spread, row)
        self.open = [window for window in self.open if window.learned < self.horizon]

    def _issue(self, window: int) -> None:
        """Note what an interval of the present would miss of this window, to be learned as it becomes known."""
        one = self.calibration.only(slice(window, window + 1))
        low, high = (self.quantiles(one.forecasts, one.origins, TRACKED) - one.forecasts)[:, 0]
        error, part = one.errors[0], self._part(one.forecasts)[0]
        missed = np.stack([error < low, error > high])
        allowed = (1 - (TRACKED[1] - TRACKED[0])) / 2
        gain = ISSUED / max(RESPONSE, self.horizon) / self.horizon
        change = np.where(np.isnan(error), 0.0, gain * (missed - allowed))
        self.open.append(Issued(int(one.origins[0]), change, part))

    # ---------------------------------------------------------------- what is told

    def quantiles(
        self, forecasts: Float[np.ndarray, "o h n"], origins: Int[np.ndarray, "o"], probabilities: Sequence[float]
    ) -> Float64[np.ndarray, "q o h n"]:
        """Return the quantiles of the truth after forecasts from these origins, by what is known now."""
        table = _table(_pooled(self.counts), [0.5, *probabilities])
        level = np.clip(self._level(forecasts) * LEVELS - 0.5, 0, LEVELS - 1)
        rows = origins[:, None] + np.arange(self.horizon)
        time = ((rows % self.season + 0.5) / self.season * self.times - 0.5)[..., None]
        low, early = np.floor(level).astype(np.int64), np.floor(time).astype(np.int64)
        above, after = level - low, time - early
        channel, high = np.arange(self.channels), np.minimum(low + 1, LEVELS - 1)
        first, second = early % self.times, (early + 1) % self.times
        relative = (1 - above) * ((1 - after) * table[:, channel, low, first] + after * table[:, channel, low, second])
        relative += above * ((1 - after) * table[:, channel, high, first] + after * table[:, channel, high, second])
        spread = np.exp((1 - above) * self.spread[:, channel, low] + above * self.spread[:, channel, high])
        spread *= math.sqrt(1 + 2 / max(self._windows_apart(), LEAST_APART))
        middle, distance = relative[0], relative[1:] - relative[0]
        return np.asarray(forecasts + self.scale * (middle + distance * np.where(distance < 0, spread[0], spread[1])))

    def _windows_apart(self) -> float:
        """Return how many windows that share no row the known rows make, by their weight."""
        known = self.distinct[: np.searchsorted(self.distinct, self.now)]
        return float(np.exp((known - self.now + 1) / self.memory).sum()) / self.horizon

    def interval(
        self, forecasts: Float[np.ndarray, "o h n"], origins: Int[np.ndarray, "o"], level: float
    ) -> Float64[np.ndarray, "2 o h n"]:
        """Return the lower and the upper bounds of the intervals of a level; refuse too few windows for it."""
        check_windows(self.windows, level)
        return self.quantiles(forecasts, origins, [0.5 - level / 200, 0.5 + level / 200])


@dataclass
class Issued:
    """A window whose interval has been told. change: of the spread, low and high; learned: steps known so far."""

    origin: int
    change: Float64[np.ndarray, "2 h n"]
    part: Int64[np.ndarray, "h n"]
    learned: int = 0

    def learn(self, spread: Float64[np.ndarray, "2 n v"], row: int) -> None:
        """Change the spread by what has become known before this row."""
        until = min(row - self.origin, len(self.part))
        steps = slice(self.learned, until)
        channel = np.broadcast_to(np.arange(self.part.shape[1]), self.part[steps].shape)
        for side in (0, 1):
            np.add.at(spread[side], (channel, self.part[steps]), self.change[side, steps])
        self.learned = max(self.learned, until)


def _apart(origins: Int64[np.ndarray, "m"], *, first: int, distance: int) -> list[int]:
    """Return the places of origins from a row on, in time order, no two closer than a distance."""
    places: list[int] = []
    for place in np.argsort(origins, kind="stable"):
        if origins[place] >= (origins[places[-1]] + distance if places else first):
            places.append(int(place))
    return places


def _smooth_over_steps(sums: Float[np.ndarray, "h n"], numbers: Int[np.ndarray, "h n"]) -> Float64[np.ndarray, "h n"]:
    """Return the mean, over neighboring steps as well: a normal kernel of a twelfth of the horizon."""
    steps = np.arange(len(sums))
    kernel = np.exp(-0.5 * ((steps[:, None] - steps) / max(1.0, len(sums) / 12)) ** 2)
    return np.maximum((kernel @ sums) / np.maximum(kernel @ numbers, 1e-12), LEAST_SCALE)


def _pooled(counts: Float64[np.ndarray, "n v d g"]) -> Float64[np.ndarray, "n v d g"]:
    """Return the weight of every bin in each part: with its neighbors, and a little of the rest of the channel."""
    pooled = counts.copy()
    pooled[:, 1:] += NEIGHBOR_LEVEL * counts[:, :-1]
    pooled[:, :-1] += NEIGHBOR_LEVEL * counts[:, 1:]
    if counts.shape[2] > 1:
        pooled += NEIGHBOR_TIME * (np.roll(pooled, 1, axis=2) + np.roll(pooled, -1, axis=2))
        pooled += SAME_LEVEL * counts.sum(axis=2, keepdims=True)
    channel = counts.sum(axis=(1, 2), keepdims=True)
    return pooled + channel * np.minimum(1, REST / np.maximum(channel.sum(axis=-1, keepdims=True), 1e-12))


def _table(counts: Float64[np.ndarray, "n v d g"], probabilities: list[float]) -> Float64[np.ndarray, "q n v d"]:
    """Return quantiles of each part: the (m + 1) p-th smallest of m errors, uniform within a bin, from either end.

    NaN where no error of the channel is known, as of a sensor that is silent in all held-out rows.
    """
    below = counts.cumsum(axis=-1)
    total = below[..., -1]
    found = []
    for probability in probabilities:
        upper = np.minimum(max(probability, 1 - probability) * (total + (probability != 0.5)), total)
        wanted = upper if probability >= 0.5 else total - upper
        reached = np.maximum(wanted, 1e-12 * total)  # of nothing, the first bin with an error
        place = np.minimum((below < reached[..., None]).sum(axis=-1), below.shape[-1] - 1)[..., None]
        inside = np.take_along_axis(counts, place, axis=-1)[..., 0]
        before = np.take_along_axis(below, place, axis=-1)[..., 0] - inside
        place, fraction = place[..., 0], (wanted - before) / np.maximum(inside, 1e-300)
        quantile = EDGES[place] + np.clip(fraction, 0, 1) * (EDGES[place + 1] - EDGES[place])
        found.append(np.where(total > 0, quantile, np.nan))
    return np.stack(found)


def thinned(windows: int, *, cells: int, most: int = 4000, budget: int = 1_000_000) -> Int[np.ndarray, "m"]:
    """Return the windows whose errors are kept: at a constant stride, ending with the last, within a memory budget.

    Neighboring windows share all but one row, so leaving most of them out loses little. At least 100 are kept if there
    are so many, and otherwise no more than `budget` errors of `cells` per window.
    """
    keep = min(most, max(100, budget // max(1, cells)))
    stride = max(1, math.ceil(windows / keep))
    return np.arange(windows - 1, -1, -stride)[::-1]
