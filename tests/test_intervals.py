"""Intervals: quantiles by a written-out formula, the promise where errors are exchangeable, coverage on real data."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primecast.data.catalog import load_dataset
from primecast.errors import InputError
from primecast.forecasting import intervals
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.intervals import (
    AbsoluteErrors,
    Calibration,
    ErrorDistribution,
    check_levels,
    known_at,
    thinned,
)


def drawn(windows: int, horizon: int, channels: int, *, seed: int = 0, stride: int = 1) -> Calibration:
    """Skewed errors that grow with the level of the forecast, in float64."""
    rng = np.random.default_rng(seed)
    forecasts = rng.normal(size=(windows, horizon, channels))
    errors = (rng.exponential(size=forecasts.shape) - 1) * (1.5 + np.tanh(forecasts))
    return Calibration(errors, forecasts, np.arange(windows) * stride + 3)


# ---------------------------------------------------------------- absolute errors of former folders


def by_hand(scores: np.ndarray, level: float) -> np.ndarray:
    """The finite-sample formula, cell by cell: sort, count ceil((m + 1) level) from below."""
    flat = scores.reshape(len(scores), -1)
    rank = math.ceil(round((len(scores) + 1) * level / 100, 9))
    return np.array([sorted(column)[rank - 1] for column in flat.T]).reshape(scores.shape[1:])


@given(st.integers(1, 97), st.sampled_from([10, 50, 80, 90, 95, 97.5]), st.integers(0, 7))
def test_absolute_errors_give_the_quantile_of_the_written_out_formula(count: int, level: float, seed: int) -> None:
    scores = np.random.default_rng(seed).exponential(size=(count, 3, 2)).astype(np.float32)
    known = Calibration(scores, np.zeros_like(scores), np.arange(count), signed=False)
    told = known_at(known, until=count + 3, season=24, adaptive=True)
    assert isinstance(told, AbsoluteErrors)
    point = np.random.default_rng(seed).normal(size=(1, 3, 2))
    if math.ceil(round((count + 1) * level / 100, 9)) > count:
        with pytest.raises(InputError, match=f"an interval of {level:g} % needs at least .* there are {count}"):
            told.interval(point, np.array([count]), level)
    else:
        low, high = told.interval(point, np.array([count]), level)
        np.testing.assert_allclose(high[0], point[0] + by_hand(scores, level), rtol=1e-12)
        np.testing.assert_allclose(low[0], point[0] - by_hand(scores, level), rtol=1e-12)


def test_absolute_errors_stay_absolute_when_newer_ones_follow() -> None:
    former = replace(drawn(11, 5, 3), signed=False)
    joined = former.followed_by(drawn(7, 5, 3, seed=1))
    assert not joined.signed and len(joined) == 18
    assert (joined.errors[11:] >= 0).all() and (joined.forecasts[11:] == 0).all()


# ---------------------------------------------------------------- the distribution of signed errors


def test_the_least_number_of_windows_is_told_exactly() -> None:
    for level, needed in ((80, 4), (90, 9), (95, 19), (99, 99)):
        point = np.zeros((1, 2, 3))
        for adaptive in (False, True):
            enough, few = (
                ErrorDistribution(drawn(count, 2, 3), until=1000, season=1, adaptive=adaptive)
                for count in (needed, needed - 1)
            )
            assert np.isfinite(enough.interval(point, np.array([1000]), level)).all()
            with pytest.raises(InputError, match=f"needs at least {needed} held-out windows, there are {needed - 1}"):
                few.interval(point, np.array([1000]), level)


def slow_quantile(told: ErrorDistribution, channel: int, level: int, time: int, probability: float) -> float:
    """Of one part: every error with its weight, one after the other, in the bins of the distribution."""
    known, parts = told.calibration, intervals.LEVELS
    _, horizon, _ = known.errors.shape
    weights = np.zeros(len(intervals.EDGES) - 1)
    of_channel = np.zeros_like(weights)
    for window, origin in enumerate(known.origins):
        for step in range(horizon):
            row = origin + step
            if row >= told.now:
                continue
            age = math.exp(-(told.now - 1 - row) / told.memory)
            rank = np.interp(
                known.forecasts[window, step, channel], told.knots[channel], np.linspace(0, 1, 4 * parts + 1)
            )
            own_level = min(int(rank * parts), parts - 1)
            own_time = row % told.season * told.times // told.season
            relative = known.errors[window, step, channel] / told.scale[step, channel]
            place = sum(relative >= edge for edge in intervals.EDGES[1:-1])
            near = {0: 1.0, 1: intervals.NEIGHBOR_LEVEL}.get(abs(own_level - level), 0.0)
            turns = (own_time - time) % told.times
            beside = 1.0 * (turns == 0) + intervals.NEIGHBOR_TIME * ((turns == 1) + (turns == told.times - 1))
            weights[place] += age * (near * beside + intervals.SAME_LEVEL * (own_level == level))
            of_channel[place] += age
    weights += of_channel * min(1, intervals.REST / of_channel.sum())
    total = weights.sum()
    upper = min(max(probability, 1 - probability) * (total + 1), total)
    wanted, place, below = upper if probability > 0.5 else total - upper, 0, 0.0
    while below + weights[place] < wanted:
        below, place = below + weights[place], place + 1
    inside = (wanted - below) / weights[place]
    return float(intervals.EDGES[place] + inside * (intervals.EDGES[place + 1] - intervals.EDGES[place]))


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_table_of_quantiles_is_that_of_the_errors_one_by_one(adaptive: bool) -> None:
    told = ErrorDistribution(drawn(23, 5, 2, stride=2), until=31, season=7, adaptive=adaptive)
    for row in (32, 37, 41):
        told.move_to(row)
    pooled = intervals._pooled(told.counts)
    for probability in (0.1, 0.75):
        (table,) = intervals._table(pooled, [probability])
        for place in ((0, 0, 0), (1, 3, 2), (0, intervals.LEVELS - 1, 3)):
            assert table[place] == pytest.approx(slow_quantile(told, *place, probability), rel=1e-9)


@pytest.mark.parametrize("adaptive", [False, True])
def test_only_what_is_known_at_a_row_counts(adaptive: bool) -> None:
    known = drawn(97, 7, 3, stride=3)
    rows = known.origins[:, None] + np.arange(7)
    changed = replace(known, errors=np.where(rows[..., None] >= 200, 50.0, known.errors))
    unknown = replace(known, errors=np.where(rows[..., None] >= 200, np.nan, known.errors))
    one, other, third = (
        ErrorDistribution(each, until=151, season=24, adaptive=adaptive) for each in (known, changed, unknown)
    )
    point = drawn(1, 7, 3, seed=5).forecasts
    for row in (152, 179, 200):
        told = []
        for each in (one, other, third):
            each.move_to(row)
            told.append(each.quantiles(point, np.array([row]), [0.1, 0.9]))
        np.testing.assert_array_equal(told[0], told[1])
        np.testing.assert_allclose(told[0], told[2], rtol=1e-12)
    for each in (one, other, third):
        each.move_to(203)
    assert (other.interval(point, np.array([203]), 80) != one.interval(point, np.array([203]), 80)).any()
    np.testing.assert_allclose(
        third.counts.sum(), third.known[: third.used].sum() if not adaptive else third.counts.sum()
    )


@settings(deadline=None, max_examples=10)
@given(
    st.integers(29, 97), st.sampled_from([1, 5]), st.integers(0, 99), st.booleans(),
    st.floats(0.1, 10), st.floats(-10, 10),
)  # fmt: skip
def test_intervals_are_nested_and_follow_shift_and_scale_of_a_channel(
    windows: int, horizon: int, seed: int, adaptive: bool, scale: float, shift: float
) -> None:
    known = drawn(windows, horizon, 2, seed=seed, stride=2)
    point = drawn(3, horizon, 2, seed=seed + 1).forecasts
    origins = np.array([300, 305, 310])
    told = ErrorDistribution(known, until=2 * windows + 3, season=24, adaptive=adaptive)
    inner, middle, outer = (told.interval(point, origins, level) for level in (20, 80, 95))
    assert (outer[0] <= middle[0]).all() and (middle[0] <= inner[0]).all() and (inner[0] <= inner[1]).all()
    assert (inner[1] <= middle[1]).all() and (middle[1] <= outer[1]).all()
    moved = Calibration(known.errors * scale, known.forecasts * scale + shift, known.origins)
    again = ErrorDistribution(moved, until=2 * windows + 3, season=24, adaptive=adaptive)
    np.testing.assert_allclose(
        again.interval(point * scale + shift, origins, 80), middle * scale + shift, rtol=1e-5, atol=1e-3 * scale
    )


@pytest.mark.parametrize(("windows", "level"), [(19, 80), (101, 80), (101, 95)])
def test_exchangeable_errors_are_covered_as_promised(windows: int, level: float) -> None:
    """Two thousand channels with errors and forecasts of their own, and the next error of each."""
    known = drawn(windows + 1, 1, 2003, seed=7)
    told = ErrorDistribution(known.only(slice(-1)), until=windows + 3, season=1, adaptive=False)
    low, high = told.interval(known.forecasts[-1:], known.origins[-1:], level)
    truth = known.forecasts[-1] + known.errors[-1]
    inside = 100 * ((low[0] <= truth) & (truth <= high[0])).mean()
    assert level - 2 < inside < min(level + 10, 99.5)


def test_intervals_know_the_level_the_time_of_day_and_the_side() -> None:
    rng = np.random.default_rng(3)
    origins = np.arange(0, 4001, 7)
    rows = origins[:, None] + np.arange(5)
    forecasts = rng.uniform(0, 1, size=(*rows.shape, 1))
    size = np.where(rows % 24 < 12, 1.0, 4.0)[..., None] * (0.2 + forecasts)
    known = Calibration(rng.exponential(size=size.shape) * size, forecasts, origins)
    told = ErrorDistribution(known, until=3001, season=24, adaptive=False)
    later = known.only(known.origins > 3001)
    low, high = told.interval(later.forecasts, later.origins, 80) - later.forecasts
    inside = (low <= later.errors) & (later.errors <= high)
    hours = (later.origins[:, None] + np.arange(5)) % 24
    for part in (later.forecasts < 0.2, later.forecasts > 0.8, (hours < 12)[..., None], (hours >= 12)[..., None]):
        assert 100 * inside[np.broadcast_to(part, inside.shape)].mean() == pytest.approx(80, abs=11)
    assert (low > 0).mean() > 0.9  # no truth lies below


def test_bounds_have_no_comb_over_the_steps() -> None:
    known = drawn(101, 48, 1, stride=5)
    told = ErrorDistribution(known, until=600, season=1, adaptive=False)
    low, high = told.interval(np.zeros((1, 48, 1)), np.array([600]), 80)
    widths = (high - low)[0, :, 0]
    assert np.abs(np.diff(widths)).max() < 0.05 * widths.mean()


def test_the_spread_holds_the_coverage_under_a_drift_that_breaks_the_plain_intervals() -> None:
    """Errors triple. Asked is that the spread undoes at least half of what plain intervals lose of their 80 %."""
    known = drawn(1801, 3, 2, seed=5)
    grown = known.errors * np.interp(np.arange(1801), [600, 1800], [1, 3])[:, None, None]
    drifting = replace(known, errors=grown)
    inside = {}
    for adaptive in (False, True):
        told = ErrorDistribution(drifting, until=603, season=1, adaptive=adaptive)
        hits = []
        for window in range(603, 1801, 3):
            one = drifting.only(slice(window, window + 1))
            if adaptive:
                told.move_to(int(one.origins[0]))
            low, high = told.interval(one.forecasts, one.origins, 80) - one.forecasts
            hits.append((low <= one.errors) & (one.errors <= high))
        inside[adaptive] = np.mean(hits)
    assert inside[False] < 0.5 and inside[True] > (0.8 + inside[False]) / 2


@pytest.mark.parametrize("adaptive", [False, True])
def test_intervals_of_few_windows_are_wider_by_the_written_out_factor(adaptive: bool) -> None:
    """Of w windows that share no row: sqrt(1 + 2 / w) times the distance from the median of the table."""
    told = ErrorDistribution(drawn(23, 5, 2, stride=2), until=31, season=1, adaptive=adaptive)
    told.move_to(41)
    told.spread[:] = 0
    rows = {int(origin) + step for origin in told.calibration.origins for step in range(5)}
    apart = sum(math.exp(-(40 - row) / told.memory) for row in rows if row < 41) / 5
    middle, upper = intervals._table(intervals._pooled(told.counts), [0.5, 0.9])[:, 0, 0, 0]
    lowest = np.full((1, 5, 2), -100.0)
    found = told.quantiles(lowest, np.array([41]), [0.9])[0, 0, :, 0]
    expected = -100 + told.scale[:, 0] * (middle + (upper - middle) * math.sqrt(1 + 2 / apart))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_channel_that_never_erred_has_hardly_any_width() -> None:
    calm = Calibration(np.zeros((29, 2, 3)), np.ones((29, 2, 3)), np.arange(29))
    for adaptive in (False, True):
        low, high = ErrorDistribution(calm, until=31, season=24, adaptive=adaptive).interval(
            np.ones((1, 2, 3)), np.array([31]), 80
        )
        assert (low <= 1).all() and (high >= 1).all() and (high - low < 0.01).all()


def test_levels_are_per_cent() -> None:
    assert check_levels([95, 80, 97.5, 80]) == [80, 95, 97.5]
    assert check_levels(np.array([95, 80])) == check_levels((np.float32(80), np.int64(95))) == [80, 95]
    for bad in (0, 100, -5, True, float("nan"), 0.8, "80", None):
        with pytest.raises(InputError, match=r"is no per cent: an interval level lies between 1 and 100, such as 80"):
            check_levels([bad])
    for bad in (80, "80", None):
        with pytest.raises(InputError, match=rf"level is {bad!r}; it must be a list of per cents, such as \[80, 95\]"):
            check_levels(bad)


@pytest.mark.parametrize(("windows", "cells"), [(7, 3), (499, 3), (5003, 3), (5003, 1_000_000), (2, 10**9)])
def test_thinned_windows_are_evenly_spaced_and_end_with_the_last(windows: int, cells: int) -> None:
    kept = thinned(windows, cells=cells)
    assert kept[-1] == windows - 1 and (kept >= 0).all()
    assert len(np.unique(np.diff(kept))) <= 1
    assert len(kept) <= max(100, min(4000, 1_000_000 // cells))
    assert len(kept) >= min(windows, 51)


def test_coverage_through_a_backtest_of_the_embedded_set_is_within_two_standard_errors() -> None:
    """DLinear, 48 hours to 24: the errors of autumn, which come first, do not cover winter.

    Assumed, not measured: 35 of the 70 days and 5 of the 24 channels (five quantities) are independent. Then two
    standard errors are 200 sqrt(p (1 - p) / 175) points: 6.0 at 80 %, 4.5 at 90 %.
    """
    data = load_dataset("nyc-weather")
    frame = pd.DataFrame(data.values, index=data.index, columns=list(data.names))
    forecaster = Forecaster(horizon=24, lookback=48, model="dlinear", lr=1e-3, batch_size=64, epochs=2, progress="off")
    scores = forecaster.fit(frame).backtest(windows=70, step=24, level=[80, 90]).scores.loc["overall"]
    for level in (80, 90):
        bound = 2 * math.sqrt(level * (100 - level) / (70 / 2 * 5))
        assert abs(100 * scores[f"coverage-{level}"] - level) < bound


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_channel_without_a_known_error_has_no_interval_and_changes_none(adaptive: bool) -> None:
    speaking = drawn(101, 5, 2, seed=3)
    silent = np.full((101, 5, 1), np.nan)
    both = Calibration(
        np.concatenate([speaking.errors, silent], axis=-1),
        np.concatenate([speaking.forecasts, np.ones_like(silent)], axis=-1),
        speaking.origins,
    )
    forecasts, origins = np.full((1, 5, 3), 0.7), np.array([113])
    told = known_at(both, until=113, season=24, adaptive=adaptive).interval(forecasts, origins, 80)
    assert np.isnan(told[..., 2]).all()
    alone = known_at(speaking, until=113, season=24, adaptive=adaptive).interval(forecasts[..., :2], origins, 80)
    np.testing.assert_array_equal(told[..., :2], alone)
