"""Statistics of runs: means over seeds, paired differences with confidence intervals, and counts over a table.

Two runs with one seed are compared window by window: d_w = error of one - error of the other. The mean of d over
windows and seeds is uncertain for two reasons, and the interval covers both.

Windows: consecutive windows share most of their steps, so their errors are not independent. A moving-block bootstrap
draws blocks of at least look-back + horizon windows. It is still too narrow, for three known reasons, so its deviations
from the mean are multiplied by three factors, with B blocks of b windows and a horizon of h:

    sqrt(B / (B - 1))           blocks are centered on their own mean, not on the true one
    1 / sqrt(1 - h / (3 b))     a block cuts off part of the correlation of windows that overlap by up to h steps:
                                that of a triangle of base h, of which a block of b windows keeps all but h / (3 b)
    t / z                       a variance from few blocks is itself uncertain: Student's quantile over the normal one

A relative change is the difference divided by the mean error of the baseline, and so are the ends of its interval. They
are not quantiles of the ratio of both drawn errors: with few blocks the baseline's draws spread so widely that some
come near 0.

Seeds: runs are drawn with replacement, the same for both sides, and multiplied by sqrt(S / (S - 1)). Satterthwaite's
formula gives the degrees of freedom from the variances of both sources. With one seed nothing is drawn: the interval is
then about this one pair of runs.

Coverage of the 95 % interval in 2000 simulated comparisons each (tests/test_statistics.py has smaller ones): one seed
94 %, three seeds 93 to 94 %, five seeds 95 %; if windows are taken as independent, 16 %. With two seeds it is 95 % if
they differ little, but 89 % if they differ as much as the windows do: two seeds are too few to estimate their own
standard deviation, so read a verdict from two seeds with care.

The committed files hold sums of errors over cells of consecutive windows: 24 windows or more, at most 128 cells per run
(see `cell_size`). Blocks are made of whole cells, so they start at fewer places; a block of 192 windows is 8 cells of
24. An interval from cells of 24 differs from that of single windows by about 2 % of its width.

Letters: s seeds, w windows, c cells, k draws.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Float64, Int64

from primecast.errors import InputError
from primecast.storage.atomic import write_bytes_atomically

LEVEL = 0.95
DRAWS = 2000
CELL, CELLS = 24, 128
NORMAL = 1.959963984540054  # the 97.5 % quantile of the normal distribution
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
BETTER, WORSE, TIE = "better", "worse", "no significant difference"


# ---------------------------------------------------------------- cells of a table: over seeds


def cells(frame: pd.DataFrame, by: Sequence[str], value: str = "mse") -> pd.DataFrame:
    """Return the mean, the sample standard deviation and the number of seeds of each cell.

    Cells are in the order of their first row; the standard deviation of a single seed is NaN. The same seed twice in
    one cell is an error.
    """
    twice = frame.duplicated([*by, "seed"])
    if twice.any():
        first = frame[twice].iloc[0]
        raise InputError(f"seed {first['seed']} occurs twice for {', '.join(f'{name} {first[name]}' for name in by)}")
    groups = frame.groupby(list(by), sort=False)[value]
    return groups.agg(mean="mean", sd="std", n="count").reset_index()


# ---------------------------------------------------------------- sums over cells of windows, as committed


def cell_size(windows: int) -> int:
    """Return the number of windows in a cell: 24, or as many as make 128 cells."""
    return max(CELL, math.ceil(windows / CELLS))


def block_sums(errors: Float[np.ndarray, "w"], cell: int) -> Float64[np.ndarray, "c"]:
    """Return the sums over cells of `cell` consecutive windows; the last cell may be shorter."""
    return np.add.reduceat(errors.astype(np.float64), np.arange(0, len(errors), cell))


def cell_counts(windows: int, cell: int) -> Int64[np.ndarray, "c"]:
    """Return the number of windows in each cell."""
    return np.diff(np.append(np.arange(0, windows, cell), windows))


def block_record(key: str, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the line of a run: key, windows, cell, and the sums of squared and absolute errors over cells."""
    windows = len(arrays["window_mse"])
    cell = cell_size(windows)
    sums = {name: block_sums(arrays[f"window_{name}"], cell) for name in ("mse", "mae")}
    return {"key": key, "windows": windows, "cell": cell, **sums}


def write_blocks(path: Path, blocks: pd.DataFrame) -> None:
    """Write CSV with sums of five digits, which changes a mean over cells by less than 1e-5 of itself."""
    texts = blocks.assign(**{name: blocks[name].map(_digits) for name in ("mse", "mae")})
    write_bytes_atomically(path, texts.to_csv(index=False, lineterminator="\n").encode())


def read_blocks(path: Path) -> pd.DataFrame:
    """Read what `write_blocks` wrote."""
    frame = pd.read_csv(path, dtype={"key": str, "mse": str, "mae": str})
    for name in ("mse", "mae"):
        frame[name] = pd.Series([np.array(text.split(), float) for text in frame[name]], dtype=object)
    return frame


def _digits(sums: Float64[np.ndarray, "c"]) -> str:
    digits = 5 if len(sums) > 1 else 9  # the rounding of a single sum is not averaged out
    return " ".join(f"{value:.{digits}g}" for value in sums)


# ---------------------------------------------------------------- paired comparison


@dataclass(frozen=True, eq=False)
class Comparison:
    """Mean error of the candidate and of the baseline, and the 95 % interval of their difference; below 0 is better.

    relative_low, relative_high: the interval relative to the baseline's error. seeds: pairs of runs. series: the test
    series that both were measured on.
    """

    candidate: float
    baseline: float
    low: float
    high: float
    relative_low: float
    relative_high: float
    seeds: int
    series: str
    relative_draws: Float64[np.ndarray, "k"] = field(repr=False)

    @property
    def difference(self) -> float:
        return self.candidate - self.baseline

    @property
    def relative(self) -> float:
        return self.candidate / self.baseline - 1 if self.baseline else math.nan  # it makes no error at all

    @property
    def verdict(self) -> str:
        return BETTER if self.high < 0 else WORSE if self.low > 0 else TIE


def compare(
    candidate: Float64[np.ndarray, "s c"],
    baseline: Float64[np.ndarray, "_ _"],  # s c, too
    counts: Int64[np.ndarray, "_"],  # c
    *,
    block: int,
    overlap: int,
    draws: int = DRAWS,
    seed: int = 0,
    series: str = "",
) -> Comparison:
    """Compare runs paired by seed, given the sums of their errors over the same cells of windows.

    block:   windows in a block, at least; look-back + horizon. overlap: the horizon, see above.
    series:  what the windows are from; comparisons at one horizon on one series draw the same blocks of it.

    If the windows make fewer than two blocks, the interval is infinite.
    """
    if candidate.shape != baseline.shape or candidate.shape[1] != len(counts):
        raise InputError(
            f"errors of the two sides and counts must be of the same seeds and cells, got {candidate.shape}, "
            f"{baseline.shape} and {counts.shape}"
        )
    seeds, total = candidate.shape
    sums = np.stack([candidate, baseline])  # 2 s c
    means = sums.sum(-1) / counts.sum()  # 2 s
    sides = means.mean(-1)
    length = math.ceil(block / counts[0])
    blocks = total / length
    moved = np.full((draws, 2), np.nan)
    if blocks >= 2:
        weights = draw_blocks(total, length, draws, (seed, zlib.crc32(series.encode())))
        drawn = (weights @ sums.reshape(-1, total).T).reshape(draws, 2, seeds) / (weights @ counts)[:, None, None]
        widen = math.sqrt(blocks / (blocks - 1)) / math.sqrt(1 - min(0.9, overlap / (3 * length * counts[0])))
        by_window = widen * (drawn - drawn.mean(0))  # k 2 s
        resampled = _draw_seeds(seeds, draws, np.random.default_rng([seed, 1, zlib.crc32(series.encode()), overlap]))
        moved = _deviations(by_window, resampled, means, blocks)
    differences = sides[0] - sides[1] + moved[:, 0] - moved[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = differences / sides[1]
    intervals = (*_interval(differences), *_interval(relative))
    return Comparison(float(sides[0]), float(sides[1]), *intervals, seeds, series, relative)


def _deviations(
    by_window: Float64[np.ndarray, "k 2 s"],
    resampled: Float64[np.ndarray, "k s"],
    means: Float64[np.ndarray, "2 s"],
    blocks: float,
) -> Float64[np.ndarray, "k 2"]:
    """Return the deviations of both sides from their means, due to windows, seeds and both together."""
    windows, seeds = by_window.mean(-1), resampled @ means.T
    of_windows, of_seeds = (float(np.var(side[:, 0] - side[:, 1])) for side in (windows, seeds))
    ratio = _student_ratio(of_windows, of_seeds, blocks - 1, means.shape[1] - 1)
    mixed = (by_window * resampled[:, None]).sum(-1)
    return ratio * (windows + seeds + mixed)


def _draw_seeds(seeds: int, draws: int, generator: np.random.Generator) -> Float64[np.ndarray, "k s"]:
    """Draw seeds with replacement and return how much the weight of each deviates from 1 / seeds."""
    weights = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws) / seeds - 1 / seeds
    return weights * math.sqrt(seeds / (seeds - 1)) if seeds > 1 else weights


def _interval(drawn: Float64[np.ndarray, "k"]) -> tuple[float, float]:
    """Return the 95 % interval of the draws; infinite where they are NaN."""
    if np.isnan(drawn).all():
        return -math.inf, math.inf
    low, high = np.quantile(drawn, TAILS)
    return float(low), float(high)


@lru_cache(maxsize=16)  # a table compares many variants on the same blocks of the same windows
def draw_blocks(total: int, length: int, draws: int, seed: tuple[int, ...]) -> Float64[np.ndarray, "k c"]:
    """Return how often each cell is drawn when blocks of `length` cells are drawn until there are `total` cells."""
    generator = np.random.default_rng(seed)
    starts = generator.integers(0, total - length + 1, size=(draws, math.ceil(total / length)))
    ends = starts + length
    ends[:, -1] -= starts.shape[1] * length - total  # the last block is cut to size
    steps = np.zeros((draws, total + 1))
    rows = np.arange(draws)[:, None]
    np.add.at(steps, (rows, starts), 1)
    np.add.at(steps, (rows, ends), -1)
    return steps.cumsum(1)[:, :total]


def _student_ratio(windows: float, seeds: float, blocks: float, runs: float) -> float:
    """Return Student's quantile over the normal one, with Satterthwaite's degrees of freedom of two variances."""
    if windows + seeds == 0:
        return 1.0
    freedom = (windows + seeds) ** 2 / (windows**2 / blocks + (seeds**2 / runs if seeds > 0 else 0))
    return student_quantile(freedom) / NORMAL


def student_quantile(freedom: float, level: float = LEVEL) -> float:
    """Return the two-sided quantile of Student's t, f >= 1 degrees of freedom: t = sqrt(f) tan a, a ~ cos(a)^(f-1)."""
    if freedom > 1e4:
        return NORMAL
    angles = np.linspace(0, np.pi / 2, 20001)
    density = np.cos(angles) ** (freedom - 1)
    mass = np.append(0, np.cumsum((density[1:] + density[:-1]) / 2))
    return float(math.sqrt(freedom) * math.tan(np.interp(level, mass / mass[-1], angles)))


# ---------------------------------------------------------------- over a table


@dataclass(frozen=True)
class Summary:
    """Numbers of better, worse and not significantly different comparisons, and the mean relative change over all.

    unknown: of the ties, those with too few windows for an interval; the mean change is without them.
    """

    wins: int
    ties: int
    losses: int
    unknown: int
    relative: float
    low: float
    high: float


def summarize(comparisons: Iterable[Comparison]) -> Summary:
    """Summarize the cells of a table. The change is the mean over the cells with an interval; NaN if none has one.

    The errors of cells of one test series, such as its horizons, are correlated: they share days and seeds. By how much
    is unknown, since their blocks are drawn separately. So they are taken as fully correlated, quantile by quantile,
    which gives the widest interval of their mean. Series are taken as independent.
    """
    found = list(comparisons)
    verdicts = [one.verdict for one in found]
    wins, ties, losses = (verdicts.count(verdict) for verdict in (BETTER, TIE, WORSE))
    known: dict[str, list[Comparison]] = {}
    for one in found:
        if np.isfinite(one.relative_draws).all():
            known.setdefault(one.series, []).append(one)
    relative = low = high = math.nan
    count = sum(map(len, known.values()))
    if known:
        relative = float(sum(one.relative for cells_of in known.values() for one in cells_of) / count)
        drawn = sum(_together(series, cells_of) for series, cells_of in known.items()) / count
        low, high = _interval(np.asarray(drawn))
    return Summary(wins, ties, losses, len(found) - count, relative, low, high)


def _together(series: str, cells_of: Sequence[Comparison]) -> Float64[np.ndarray, "k"]:
    """Return the sums of the draws of fully correlated cells, shuffled to be independent of other series."""
    if len(cells_of) == 1:
        return cells_of[0].relative_draws
    summed = np.sum([np.sort(one.relative_draws) for one in cells_of], axis=0)
    return np.random.default_rng([2, zlib.crc32(series.encode())]).permutation(summed)
