"""Backtests: rolling origins without a look ahead, metrics by their formulas, in the units of the data."""

from copy import copy

import numpy as np
import pandas as pd
import pytest

from primecast.backtest import tabulate
from primecast.data.frames import future_index
from primecast.errors import InputError
from primecast.forecaster import Forecaster
from tests.test_forecaster import SMALL, waves


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(**SMALL).fit(waves(499))


def test_metrics_are_their_formulas() -> None:
    rng = np.random.default_rng(0)
    truth, forecast, naive = rng.normal(size=(3, 2, 5, 3)) * [1, 10, 100]
    radius = np.abs(rng.normal(size=(2, 5, 3))) * [1, 10, 100]
    truth[1, 2, 0] = np.nan
    index = [pd.date_range("2024-01-01", periods=5, freq="D"), pd.date_range("2024-01-04", periods=5, freq="D")]
    result = tabulate(
        channels=("a", "b", "c"), cutoffs=[1, 2], times=list(index), truth=truth, forecast=forecast, naive=naive,
        naive_mae=np.array([0.5, 5.0, 0.0]), radii={80: radius},
    )  # fmt: skip
    a = [(forecast[w, h, 0], truth[w, h, 0], radius[w, h, 0]) for w in range(2) for h in range(5)]
    a = [cell for cell in a if not np.isnan(cell[1])]
    assert len(a) == 9
    scores = result.scores
    assert scores.loc["a", "rmse"] == pytest.approx((sum((f - y) ** 2 for f, y, _ in a) / 9) ** 0.5)
    assert scores.loc["a", "mae"] == pytest.approx(sum(abs(f - y) for f, y, _ in a) / 9)
    assert scores.loc["a", "mase"] == pytest.approx(sum(abs(f - y) for f, y, _ in a) / 9 / 0.5)
    assert scores.loc["a", "coverage-80"] == pytest.approx(sum(abs(f - y) <= r for f, y, r in a) / 9)
    assert scores.loc["b", "width-80"] == pytest.approx(2 * radius[..., 1].mean())
    assert scores.loc["b", "naive_mae"] == pytest.approx(np.abs(naive - truth)[..., 1].mean())
    assert np.isnan(scores.loc["c", "mase"])  # a channel whose seasons repeat exactly has nothing to be scaled by
    assert scores.loc["overall", "mae"] == pytest.approx(np.nanmean(np.abs(forecast - truth)))
    assert list(result.forecasts.columns) == [
        "unique_id", "ds", "cutoff", "y", "primecast", "primecast-lo-80", "primecast-hi-80",
    ]  # fmt: skip
    row = result.forecasts.query("unique_id == 'b' and cutoff == 2").iloc[3]
    assert (row["ds"], row["y"]) == (index[1][3], truth[1, 3, 1])
    assert row["primecast-hi-80"] == forecast[1, 3, 1] + radius[1, 3, 1]
    assert "2 origins" in repr(result)


def test_each_window_is_the_forecast_from_its_own_past(fitted: Forecaster) -> None:
    df = waves(499)
    result = fitted.backtest(df, windows=3, step=11, level=[80])
    assert result.origins == [df.index[499 - 7 - 11 * back - 1] for back in (2, 1, 0)]
    for cutoff, part in result.forecasts.groupby("cutoff"):
        past = df.loc[:cutoff]
        forecast = fitted.predict(past)
        for channel, rows in part.groupby("unique_id"):
            np.testing.assert_allclose(rows["primecast"], forecast[channel], rtol=1e-6)
            assert list(rows["ds"]) == list(future_index(pd.DatetimeIndex(past.index), 7))
            np.testing.assert_array_equal(rows["y"], df.loc[rows["ds"], channel])
    pd.testing.assert_frame_equal(fitted.backtest(windows=3, step=11, level=[80]).scores, result.scores)


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_changed_future_changes_no_forecast_and_no_interval(fitted: Forecaster, adaptive: bool) -> None:
    df = waves(499)
    changed = df.copy()
    changed.iloc[-7:] += 50  # the truths of the last window alone
    one = fitted.backtest(df, windows=4, step=7, adaptive=adaptive)
    other = fitted.backtest(changed, windows=4, step=7, adaptive=adaptive)
    told = [name for name in one.forecasts.columns if name != "y"]
    pd.testing.assert_frame_equal(one.forecasts[told], other.forecasts[told])
    assert other.scores.loc["lead", "mae"] > one.scores.loc["lead", "mae"]


@pytest.mark.parametrize("stride", [1, 3])
def test_no_adaptive_interval_knows_a_row_after_its_origin(fitted: Forecaster, stride: int) -> None:
    df, known = waves(499), 499 - 7 - 2 * 5  # rows before the first of three origins
    changed = df.copy()
    changed.iloc[known:] += 50
    few = copy(fitted)
    few.stride_ = stride
    one, other = (few.backtest(rows, windows=3, step=5, adaptive=True).forecasts for rows in (df, changed))
    told = [name for name in one.columns if name != "y"]
    first = one["cutoff"] == df.index[known - 1]
    pd.testing.assert_frame_equal(one.loc[first, told], other.loc[first, told])
    assert not one.loc[~first, told].equals(other.loc[~first, told])


def test_an_adaptive_interval_hears_of_a_miss_before_its_window_has_ended(fitted: Forecaster) -> None:
    df = waves(499)
    jumped = df.copy()
    jumped.iloc[-1] += 50  # no window that missed it has ended but the one that was to end there
    calm, wide = (fitted.predict(rows, level=[80], adaptive=True) for rows in (df, jumped))
    widths = [(rows["lead-hi-80"] - rows["lead-lo-80"]).to_numpy() for rows in (calm, wide)]
    wider = widths[1] - widths[0]
    assert (wider > -1e-9).all() and (wider > 0.1).sum() >= 3  # others had been missed as it was
    plain = [fitted.predict(rows, level=[80]) for rows in (df, jumped)]
    np.testing.assert_allclose(*(rows["lead-hi-80"] - rows["lead-lo-80"] for rows in plain))


def test_mase_is_scaled_by_the_training_rows(fitted: Forecaster) -> None:
    df = waves(499)
    season = min(24, 19)  # of the day, but never longer than the look-back
    trained = df.iloc[: int(0.7 * 499)].to_numpy()
    scale = np.abs(trained[season:] - trained[:-season]).mean(axis=0)
    scores = fitted.backtest(windows=2).scores
    np.testing.assert_allclose(scores["mae"].iloc[:3] / scale, scores["mase"].iloc[:3], rtol=1e-9)


def test_newer_rows_take_the_errors_known_from_fit_along(fitted: Forecaster) -> None:
    newer = waves(560).iloc[499:]
    result = fitted.backtest(newer, windows=2, step=5, level=[80])
    assert np.isfinite(result.scores["width-80"]).all()


def test_refitting_trains_on_the_rows_before_each_origin(fitted: Forecaster) -> None:
    df = waves(499)
    result = fitted.backtest(df, windows=1, refit=True, level=[80])
    by_hand = Forecaster(**SMALL).fit(df.iloc[:-7]).predict()
    told = result.forecasts.query("unique_id == 'follow'")["primecast"]
    np.testing.assert_allclose(told, by_hand["follow"], rtol=1e-9)


def test_missing_truths_count_nowhere() -> None:
    df = waves(499)
    holed = df.copy()
    holed.iloc[-3:, 0] = np.nan
    result = Forecaster(**{**SMALL, "epochs": 1, "missing": "ffill"}).fit(holed).backtest(windows=1, level=[80])
    part = result.forecasts.query("unique_id == 'lead'")
    assert part["y"].isna().sum() == 3
    known = part.dropna()
    assert result.scores.loc["lead", "mae"] == pytest.approx((known["y"] - known["primecast"]).abs().mean())


def test_impossible_backtests_are_refused(fitted: Forecaster) -> None:
    with pytest.raises(InputError, match="windows is 0; it must be a whole number"):
        fitted.backtest(windows=0)
    with pytest.raises(InputError, match="80 windows 7 rows apart, .* need 579 rows; there are 499"):
        fitted.backtest(windows=80)
    with pytest.raises(
        InputError, match=r"rows until 2024-03-15 12:00:00 were trained on; take fewer windows, or refit"
    ):
        fitted.backtest(windows=30)
    with pytest.raises(InputError, match="level 0 is no per cent"):
        fitted.backtest(level=[0])
    with pytest.raises(InputError, match="99.9 % needs at least 999 held-out windows"):
        fitted.backtest(level=[99.9])
