"""Intervals: quantiles by a written-out formula, the promise where scores are exchangeable, coverage on real data."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primecast.data.catalog import load_dataset
from primecast.data.windows import split
from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.intervals import check_levels, conformal_radius, radius, thinned, track
from primecast.models import create_model
from primecast.nn.losses import mse
from primecast.training.loop import fit, predict


def by_hand(scores: np.ndarray, level: float) -> np.ndarray:
    """The finite-sample formula, cell by cell: sort, count ceil((m + 1) level) from below."""
    flat = scores.reshape(len(scores), -1)
    rank = math.ceil(round((len(scores) + 1) * level / 100, 9))
    return np.array([sorted(column)[rank - 1] for column in flat.T]).reshape(scores.shape[1:])


@given(st.integers(1, 97), st.sampled_from([10, 50, 80, 90, 95, 97.5]), st.integers(0, 7))
def test_the_radius_is_the_quantile_of_the_written_out_formula(count: int, level: float, seed: int) -> None:
    scores = np.random.default_rng(seed).exponential(size=(count, 3, 2))
    if math.ceil(round((count + 1) * level / 100, 9)) > count:
        with pytest.raises(InputError, match=f"an interval of {level:g} % needs at least .* there are {count}"):
            conformal_radius(scores, level)
    else:
        np.testing.assert_array_equal(conformal_radius(scores, level), by_hand(scores, level))


def test_the_least_number_of_windows_is_told_exactly() -> None:
    for level, needed in ((80, 4), (90, 9), (95, 19), (99, 99)):
        conformal_radius(np.ones((needed, 1)), level)
        with pytest.raises(InputError, match=f"needs at least {needed} held-out windows, there are {needed - 1}"):
            conformal_radius(np.ones((needed - 1, 1)), level)


def test_exchangeable_scores_are_covered_as_promised() -> None:
    draws = np.random.default_rng(3).standard_normal((20_000, 20)) ** 2
    inside = draws[:, 19] <= conformal_radius(draws[:, :19].T, 80)
    assert inside.mean() == pytest.approx(16 / 20, abs=0.01)  # ceil(20 * 0.8) = 16 of 20 ranks
    naive = draws[:, 19] <= np.quantile(draws[:, :19], 0.8, axis=1)
    assert naive.mean() < 0.79  # what the + 1 is for


def slow_track(scores: np.ndarray, level: float, start: np.ndarray, stride: int, rate: float) -> np.ndarray:
    """One cell at a time: before each window, the news that has arrived moves the radius once for each."""
    used = np.empty_like(scores)
    for k in range(scores.shape[1]):
        delay = math.ceil((k + 1) / stride)
        for c in range(scores.shape[2]):
            now = start[k, c]
            for t in range(len(scores)):
                if t >= delay:
                    missed = scores[t - delay, k, c] > used[t - delay, k, c]
                    now += rate * start[k, c] / math.sqrt(delay) * (missed - (1 - level / 100))
                used[t, k, c] = max(now, 0)
    return used


@pytest.mark.parametrize("stride", [1, 2, 5])
def test_tracking_uses_only_what_is_known_at_each_origin(stride: int) -> None:
    scores = np.random.default_rng(1).exponential(size=(41, 7, 3))
    start = np.full((7, 3), 1.3)
    tracked = track(scores, 80, start=start, stride=stride, gain=0.3)
    np.testing.assert_allclose(tracked.radius, slow_track(scores, 80, start, stride, 0.3), rtol=1e-12)
    changed = scores.copy()
    changed[30:] *= 100  # a window's own error, and those under way, must not reach its radius
    again = track(changed, 80, start=start, stride=stride, gain=0.3)
    for k in range(7):
        first = 30 + math.ceil((k + 1) / stride)
        np.testing.assert_array_equal(again.radius[:first, k], tracked.radius[:first, k])
    assert (again.last > tracked.last).all()


def test_tracking_keeps_its_promise_under_a_drift_that_breaks_the_plain_radius() -> None:
    rng = np.random.default_rng(5)
    before = np.abs(rng.standard_normal((500, 3, 2)))
    after = np.abs(rng.standard_normal((3000, 3, 2))) * np.linspace(1, 4, 3000)[:, None, None]
    start = conformal_radius(before, 90)
    assert (after <= start).mean() < 0.7
    assert (after <= track(after, 90, start=start).radius).mean() == pytest.approx(0.9, abs=0.01)


def test_a_cell_that_never_errs_has_no_width() -> None:
    scores = np.zeros((29, 2, 3))
    assert (radius(scores, 80, adaptive=False) == 0).all()
    assert (radius(scores, 80, adaptive=True) == 0).all()


def test_the_adaptive_radius_follows_the_later_scores() -> None:
    rng = np.random.default_rng(2)
    scores = np.abs(rng.standard_normal((400, 5, 3)))
    scores[200:] *= 3
    assert (radius(scores, 80, adaptive=True) > radius(scores, 80, adaptive=False)).mean() > 0.9
    assert radius(scores[:5], 80, adaptive=True).shape == (5, 3)  # too few to halve: plain


def test_levels_are_per_cent() -> None:
    assert check_levels([95, 80, 97.5, 80]) == [80, 95, 97.5]
    assert check_levels(np.array([95, 80])) == check_levels((np.float32(80), np.int64(95))) == [80, 95]
    for bad in (0, 100, -5, True, float("nan"), 0.8, "80", None):
        with pytest.raises(InputError, match=r"is no per cent: an interval level lies between 1 and 100, such as 80"):
            check_levels([bad])
    for bad in (80, "80", None):
        with pytest.raises(InputError, match=rf"level is {bad!r}; it must be a list of per cents, such as \[80, 95\]"):
            check_levels(bad)


def test_a_score_that_is_not_known_moves_nothing() -> None:
    scores = np.random.default_rng(1).exponential(size=(31, 5, 3))
    start = np.full((5, 3), 1.3)
    holed = scores.copy()
    holed[7:11] = np.nan
    tracked, without = track(holed, 80, start=start), track(scores, 80, start=start)
    np.testing.assert_array_equal(tracked.radius[8:12, 0], tracked.radius[[8] * 4, 0])
    np.testing.assert_array_equal(tracked.radius[:8], without.radius[:8])
    assert (tracked.radius[12, 0] != tracked.radius[11, 0]).all()


@pytest.mark.parametrize(("windows", "cells"), [(7, 3), (499, 3), (5003, 3), (5003, 1_000_000), (2, 10**9)])
def test_thinned_windows_are_evenly_spaced_and_end_with_the_last(windows: int, cells: int) -> None:
    kept = thinned(windows, cells=cells)
    assert kept[-1] == windows - 1 and (kept >= 0).all()
    assert len(np.unique(np.diff(kept))) <= 1
    assert len(kept) <= max(100, min(4000, 2_000_000 // cells))
    assert len(kept) >= min(windows, 51)


def test_coverage_on_the_embedded_set_is_within_two_points_with_the_adaptive_update() -> None:
    """DLinear, 48 hours to 24: calibrated on the validation rows, measured on the test rows, hour by hour."""
    splits = split(load_dataset("nyc-weather"), lookback=48, horizon=24)
    model = create_model("dlinear", lookback=48, horizon=24, channels=24, seed=0)
    fit(model, splits.train, splits.val, loss=mse, lr=1e-3, batch_size=64, epochs=2, patience=3, seed=0, progress="off")
    val, test = (
        (predict(model, windows) - windows.series.unfold(0, 24, 1)[48:].mT).abs().numpy()
        for windows in (splits.val, splits.test)
    )
    for level in (80, 90):
        start = conformal_radius(val, level)
        plain = 100 * (test <= start).mean()
        adaptive = 100 * (test <= track(test, level, start=start).radius).mean()
        assert abs(adaptive - level) < 2
        assert plain < level - 8  # autumn's errors do not cover winter: what exchangeability would have promised


def test_coverage_through_a_backtest_of_the_embedded_set_is_within_two_points() -> None:
    data = load_dataset("nyc-weather")
    frame = pd.DataFrame(data.values, index=data.index, columns=list(data.names))
    forecaster = Forecaster(horizon=24, lookback=48, model="dlinear", lr=1e-3, batch_size=64, epochs=2, progress="off")
    scores = forecaster.fit(frame).backtest(windows=70, step=24, level=[80, 90], adaptive=True).scores.loc["overall"]
    assert abs(100 * scores["coverage-80"] - 80) < 2
    assert abs(100 * scores["coverage-90"] - 90) < 2
