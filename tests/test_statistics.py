"""Intervals: against a slow twin, and on simulated errors whose truth is known."""

import math
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from primecast.analysis.statistics import (
    BETTER,
    TIE,
    WORSE,
    Comparison,
    block_record,
    block_sums,
    cell_counts,
    cell_size,
    cells,
    compare,
    draw_blocks,
    read_blocks,
    student_quantile,
    summarize,
    write_blocks,
)
from primecast.errors import InputError


def overlapping(generator: np.random.Generator, *shape: int, windows: int, horizon: int, memory: float) -> np.ndarray:
    """Means over `horizon` neighbours in a series with memory: what errors of overlapping windows look like."""
    noise = generator.standard_normal((*shape, windows + horizon - 1))
    series = np.empty_like(noise)
    series[..., 0] = noise[..., 0] / math.sqrt(1 - memory**2)
    for step in range(1, noise.shape[-1]):
        series[..., step] = memory * series[..., step - 1] + noise[..., step]
    sums = np.concatenate([np.zeros((*shape, 1)), series.cumsum(-1)], axis=-1)
    return (sums[..., horizon:] - sums[..., :-horizon]) / horizon


def summed(errors: np.ndarray, cell: int) -> np.ndarray:
    return np.stack([block_sums(row, cell) for row in errors])


# ---------------------------------------------------------------- cells of a table


def test_a_cell_has_mean_deviation_and_number_of_seeds() -> None:
    frame = pd.DataFrame({"variant": ["b", "b", "a", "b"], "seed": [0, 1, 0, 2], "mse": [1.0, 2.0, 5.0, 6.0]})
    found = cells(frame, ["variant"])
    assert list(found["variant"]) == ["b", "a"] and list(found["n"]) == [3, 1]
    assert found.loc[0, "mean"] == 3 and found.loc[0, "sd"] == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert math.isnan(found["sd"][1])


def test_a_seed_that_occurs_twice_is_refused() -> None:
    frame = pd.DataFrame({"variant": ["a", "a"], "seed": [3, 3], "mse": [1.0, 1.0]})
    with pytest.raises(InputError, match="seed 3 occurs twice for variant a"):
        cells(frame, ["variant"])


# ---------------------------------------------------------------- sums over cells


@pytest.mark.parametrize(("windows", "cell"), [(7, 3), (9, 3), (2, 5), (101, 7)])
def test_sums_over_cells_are_those_of_slices(windows: int, cell: int) -> None:
    errors = np.random.default_rng(0).random(windows).astype(np.float32)
    slow = [errors[start : start + cell].astype(np.float64).sum() for start in range(0, windows, cell)]
    np.testing.assert_allclose(block_sums(errors, cell), slow, rtol=1e-12)
    counts = cell_counts(windows, cell)
    assert counts.tolist() == [len(errors[start : start + cell]) for start in range(0, windows, cell)]


def test_a_run_has_at_most_128_cells_of_at_least_24_windows() -> None:
    assert [cell_size(windows) for windows in (5, 2785, 3072, 3073, 10444)] == [24, 24, 24, 25, 82]
    for windows in (100, 2785, 10444, 11425):
        assert len(cell_counts(windows, cell_size(windows))) <= 128


def test_blocks_survive_the_way_to_the_disk_and_back(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {
        key: {f"window_{name}": generator.random(size).astype(np.float32) for name in ("mse", "mae")}
        for key, size in (("0123", 53), ("abcd", 1000))
    }
    blocks = pd.DataFrame([block_record(key, found) for key, found in arrays.items()])
    write_blocks(tmp_path / "blocks.csv", blocks)
    again = read_blocks(tmp_path / "blocks.csv")
    assert list(again["key"]) == ["0123", "abcd"] and list(again["windows"]) == [53, 1000]
    for name in ("mse", "mae"):
        for written, read in zip(blocks[name], again[name], strict=True):
            np.testing.assert_allclose(read, written, rtol=1e-4)
        mean = again.loc[1, name].sum() / 1000  # type: ignore[union-attr]
        assert mean == pytest.approx(arrays["abcd"][f"window_{name}"].mean(), rel=1e-5)


# ---------------------------------------------------------------- the bootstrap and its twin


def slow_blocks(total: int, length: int, draws: int, generator: np.random.Generator) -> np.ndarray:
    """Each draw as a list of cells, stretch by stretch, cut to size and counted."""
    starts = generator.integers(0, total - length + 1, size=(draws, math.ceil(total / length)))
    counted = []
    for row in starts:
        drawn = [int(start) + step for start in row for step in range(length)][:total]
        counted.append([drawn.count(cell) for cell in range(total)])
    return np.array(counted, float)


@pytest.mark.parametrize(("total", "length"), [(13, 5), (12, 3), (7, 7), (11, 1)])
def test_drawing_blocks_is_drawing_stretches_one_after_the_other(total: int, length: int) -> None:
    fast = draw_blocks(total, length, 17, (5,))
    np.testing.assert_array_equal(fast, slow_blocks(total, length, 17, np.random.default_rng(5)))
    assert (fast.sum(1) == total).all()


def test_the_interval_of_one_pair_is_the_stretched_quantile_of_block_means() -> None:
    """By the formulas of the module's docstring, on single windows, with loops."""
    generator = np.random.default_rng(1)
    windows, horizon, block, draws = 211, 7, 20, 300
    ours, theirs = 1 + 0.1 * overlapping(generator, 2, windows=windows, horizon=horizon, memory=0.5)
    found = compare(
        ours[None], theirs[None], np.ones(windows, int), block=block, overlap=horizon, draws=draws, seed=3, series="x"
    )

    weights = slow_blocks(windows, block, draws, np.random.default_rng([3, zlib.crc32(b"x")]))
    means = np.array([[np.repeat(side, row.astype(int)).mean() for side in (ours, theirs)] for row in weights])
    blocks = windows / block
    stretch = math.sqrt(blocks / (blocks - 1)) / math.sqrt(1 - horizon / (3 * block))
    stretch *= student.ppf(0.975, blocks - 1) / 1.959964
    deviations = stretch * (means - means.mean(0))
    drawn = np.array([ours.mean(), theirs.mean()]) + deviations
    low, high = np.quantile(drawn[:, 0] - drawn[:, 1], [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-5)
    relative = (low / theirs.mean(), high / theirs.mean())
    assert (found.relative_low, found.relative_high) == pytest.approx(relative, rel=1e-5)
    assert found.difference == pytest.approx(ours.mean() - theirs.mean())
    assert found.relative == pytest.approx(ours.mean() / theirs.mean() - 1)


def test_the_same_arguments_give_the_same_interval_and_another_seed_nearly_the_same() -> None:
    errors = 1 + overlapping(np.random.default_rng(2), 2, 3, windows=500, horizon=11, memory=0.3)
    counts = cell_counts(500, 5)

    def interval(seed: int) -> tuple[float, float]:
        sums = [summed(side, 5) for side in errors]
        found = compare(sums[0], sums[1], counts, block=25, overlap=11, seed=seed)
        return found.low, found.high

    assert interval(0) == interval(0) != interval(1)
    assert interval(0) == pytest.approx(interval(1), abs=0.1 * (interval(0)[1] - interval(0)[0]))


@pytest.mark.parametrize("freedom", [1, 1.65, 2, 4.5, 13.5, 60])
def test_students_quantile_is_that_of_scipy(freedom: float) -> None:
    assert student_quantile(freedom) == pytest.approx(student.ppf(0.975, freedom), rel=1e-4)
    assert student_quantile(1e6) == pytest.approx(1.96, abs=1e-3)


# ---------------------------------------------------------------- does the interval hold the truth?


def coverage(
    *, windows: int, horizon: int, lookback: int, memory: float, seeds: int = 1, between: float = 0.0, cell: int = 24
) -> dict[str, float]:
    """Shares of simulated comparisons whose interval holds the true difference, relative change, and without blocks."""
    generator = np.random.default_rng(7)
    repetitions, truth = 1000, 0.02  # a share of 0.93 is then known to 0.008
    shared = overlapping(generator, repetitions, 2, windows=windows, horizon=horizon, memory=memory)
    counts = cell_counts(windows, cell)
    held = {"difference": 0, "relative": 0, "independent": 0}
    for pair in shared:
        run = between * generator.standard_normal((2, seeds, 1)) if seeds > 1 else 0.0
        errors = 1 + 0.1 * (pair[:, None] + run)
        errors[0] += truth
        found = compare(
            summed(errors[0], cell),
            summed(errors[1], cell),
            counts,
            block=lookback + horizon,
            overlap=horizon,
            draws=250,
        )
        held["difference"] += found.low <= truth <= found.high
        held["relative"] += found.relative_low <= truth <= found.relative_high
        difference = (errors[0] - errors[1]).mean(0)
        width = 1.96 * difference.std() / math.sqrt(windows)
        held["independent"] += abs(difference.mean() - truth) <= width
    return {name: count / repetitions for name, count in held.items()}


@pytest.mark.parametrize(
    ("windows", "horizon", "memory"), [(1422, 96, 0.0), (2785, 96, 0.9), (2545, 336, 0.5), (2161, 720, 0.9)]
)
def test_an_interval_holds_the_truth_as_often_as_it_says(windows: int, horizon: int, memory: float) -> None:
    held = coverage(windows=windows, horizon=horizon, lookback=96, memory=memory)
    assert 0.90 <= held["difference"] <= 0.98 and 0.90 <= held["relative"] <= 0.98
    assert held["independent"] < 0.3  # what one gets who takes overlapping windows for independent ones


@pytest.mark.parametrize(("seeds", "between"), [(2, 0.05), (3, 0.2), (3, 1.0), (5, 0.2)])
def test_an_interval_over_seeds_holds_the_truth_as_often_as_it_says(seeds: int, between: float) -> None:
    held = coverage(windows=1422, horizon=96, lookback=96, memory=0.5, seeds=seeds, between=between)
    assert 0.90 <= held["difference"] <= 0.98 and 0.90 <= held["relative"] <= 0.98


def test_two_seeds_that_differ_much_hold_the_truth_less_often_than_they_say() -> None:
    """A known weakness, written down in the module: 89 % in 2000 comparisons. Two seeds do not know their spread."""
    held = coverage(windows=1422, horizon=96, lookback=96, memory=0.5, seeds=2, between=0.2)
    assert 0.86 <= held["difference"] <= 0.92


def test_the_mean_over_horizons_of_one_series_holds_the_truth_as_often_as_it_says() -> None:
    """Horizons of one series share their days: taken for independent cells they would hold it in four of five cases."""
    generator, repetitions, windows, truth = np.random.default_rng(13), 300, 2161, 0.02
    days = 0.1 * overlapping(generator, repetitions, 2, windows=windows + 719, horizon=1, memory=0.9)
    counts, held = cell_counts(windows, 24), 0
    for pair in days:
        found = []
        for horizon in (96, 192, 336, 720):
            sums = np.concatenate([np.zeros((2, 1)), pair.cumsum(-1)], axis=-1)
            errors = 1 + (sums[:, horizon : horizon + windows] - sums[:, :windows]) / horizon
            errors[0] += truth
            ours, theirs = (summed(side[None], 24) for side in errors)
            found.append(compare(ours, theirs, counts, block=96 + horizon, overlap=horizon, draws=400, series="x"))
        over = summarize(found)
        held += over.low <= truth <= over.high
    assert 0.90 <= held / repetitions <= 0.99


def test_cells_of_windows_hardly_change_an_interval() -> None:
    errors = 1 + 0.1 * overlapping(np.random.default_rng(3), 20, 2, windows=2785, horizon=96, memory=0.5)
    ratios = []
    for pair in errors:
        width = {}
        for cell in (1, 24):
            found = compare(
                summed(pair[0][None], cell),
                summed(pair[1][None], cell),
                cell_counts(2785, cell),
                block=192,
                overlap=96,
                draws=1000,
            )
            width[cell] = found.high - found.low
        ratios.append(width[24] / width[1])
    assert np.mean(ratios) == pytest.approx(1, abs=0.03) and np.std(ratios) < 0.06


# ---------------------------------------------------------------- verdicts


def settled(difference: float, *, spread: float = 0.01, seeds: int = 2, series: str = "") -> Comparison:
    generator = np.random.default_rng([11, *map(ord, series)])
    theirs = 1 + spread * generator.standard_normal((seeds, 400))
    ours = theirs + difference + spread * generator.standard_normal((seeds, 400))
    counts = np.ones(400, int)
    return compare(ours, theirs, counts, block=5, overlap=1, series=series)


def test_a_verdict_is_better_worse_or_not_distinguishable() -> None:
    assert [settled(by).verdict for by in (-0.1, 0.1, 0.0)] == [BETTER, WORSE, TIE]


def test_a_table_counts_wins_and_losses_and_has_a_mean_change_with_its_interval() -> None:
    found = summarize([settled(by, series=name) for by, name in ((-0.1, "a"), (-0.2, "b"), (0.1, "c"), (0.0, "d"))])
    assert (found.wins, found.ties, found.losses) == (2, 1, 1)
    assert found.relative == pytest.approx(-0.05, abs=0.003) and found.low < found.relative < found.high
    assert found.high - found.low < 0.02


def test_too_few_windows_for_two_blocks_say_nothing() -> None:
    found = compare(np.ones((2, 31)), np.full((2, 31), 2.0), np.ones(31, int), block=16, overlap=5)
    assert found.verdict == TIE and math.isinf(found.low) and math.isinf(found.high)
    over = summarize([found])
    assert (over.wins, over.ties, over.losses, over.unknown) == (0, 1, 0, 1) and math.isnan(over.relative)
    assert summarize([found, settled(-0.1)]).relative == pytest.approx(-0.1, abs=0.003)


def test_runs_that_agree_to_the_bit_are_not_distinguishable() -> None:
    same = np.random.default_rng(0).random((3, 50))
    found = compare(same, same, np.ones(50, int), block=5, overlap=1)
    assert found.verdict == TIE and found.low == found.high == 0


def test_sides_that_do_not_match_are_refused() -> None:
    with pytest.raises(InputError, match=r"same seeds and cells, got \(2, 5\), \(3, 5\) and \(5,\)"):
        compare(np.ones((2, 5)), np.ones((3, 5)), np.ones(5, int), block=1, overlap=1)
