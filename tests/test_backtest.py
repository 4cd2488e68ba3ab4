"""Backtests: rolling origins without a look ahead, metrics by their formulas, in the units of the data."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from primecast.errors import InputError
from primecast.forecasting import prediction
from primecast.forecasting.backtesting import tabulate
from primecast.forecasting.forecaster import Forecaster
from primecast.frames.dates import future_index
from primecast.frames.validate import ConstantChannelWarning
from tests.test_forecaster import SMALL, waves


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(**SMALL).fit(waves(499))


def test_metrics_are_their_formulas() -> None:
    rng = np.random.default_rng(0)
    truth, forecast, naive = rng.normal(size=(3, 2, 5, 3)) * [1, 10, 100]
    low, high = forecast + np.abs(rng.normal(size=(2, 2, 5, 3))) * [1, 10, 100] * np.reshape([-1, 1], (2, 1, 1, 1))
    truth[1, 2, 0] = np.nan
    index = [pd.date_range("2024-01-01", periods=5, freq="D"), pd.date_range("2024-01-04", periods=5, freq="D")]
    result = tabulate(
        channels=("a", "b", "c"), cutoffs=[1, 2], times=list(index), truth=truth, forecast=forecast, naive=naive,
        naive_mae=np.array([0.5, 5.0, 0.0]), bounds={80: np.stack([low, high])},
    )  # fmt: skip
    places = [(w, h, 0) for w in range(2) for h in range(5)]
    a = [(forecast[at], truth[at], low[at] <= truth[at] <= high[at]) for at in places]
    a = [cell for cell in a if not np.isnan(cell[1])]
    assert len(a) == 9
    scores = result.scores
    assert scores.loc["a", "rmse"] == pytest.approx((sum((f - y) ** 2 for f, y, _ in a) / 9) ** 0.5)
    assert scores.loc["a", "mae"] == pytest.approx(sum(abs(f - y) for f, y, _ in a) / 9)
    assert scores.loc["a", "mase"] == pytest.approx(sum(abs(f - y) for f, y, _ in a) / 9 / 0.5)
    assert scores.loc["a", "coverage-80"] == pytest.approx(sum(inside for _, _, inside in a) / 9)
    assert scores.loc["b", "width-80"] == pytest.approx((high - low)[..., 1].mean())
    assert scores.loc["b", "naive_mae"] == pytest.approx(np.abs(naive - truth)[..., 1].mean())
    assert np.isnan(scores["mase"]["c"])  # a channel whose seasons repeat exactly has nothing to be scaled by
    assert scores.loc["overall", "mae"] == pytest.approx(np.nanmean(np.abs(forecast - truth)))
    assert list(result.forecasts.columns) == [
        "unique_id", "ds", "cutoff", "y", "primecast", "primecast-lo-80", "primecast-hi-80",
    ]  # fmt: skip
    row = result.forecasts.query("unique_id == 'b' and cutoff == 2").iloc[3]
    assert (row["ds"], row["y"]) == (index[1][3], truth[1, 3, 1])
    assert row["primecast-hi-80"] == high[1, 3, 1]
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
            np.testing.assert_array_equal(rows["y"], df[channel].loc[rows["ds"]])
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
    assert other.scores["mae"]["lead"] > one.scores["mae"]["lead"]


@pytest.mark.parametrize("stride", [1, 3])
def test_no_adaptive_interval_knows_a_row_after_its_origin(
    fitted: Forecaster, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    df, known = waves(499), 499 - 7 - 2 * 5  # rows before the first of three origins
    changed = df.copy()
    changed.iloc[known:] += 50
    monkeypatch.setattr(prediction, "thinned", lambda windows, cells: np.arange(windows)[::-stride][::-1])
    one, other = (fitted.backtest(rows, windows=3, step=5, adaptive=True).forecasts for rows in (df, changed))
    told = [name for name in one.columns if name != "y"]
    first = one["cutoff"] == df.index[known - 1]
    pd.testing.assert_frame_equal(one.loc[first, told], other.loc[first, told])
    assert not one.loc[~first, told].equals(other.loc[~first, told])


def gappy(rows: int = 499, *, missing: str = "interpolate") -> pd.DataFrame:
    """Waves with gaps all over, each channel with one over the row 481; with "error" there are none."""
    df = waves(rows)
    if missing != "error":
        for channel, holes in enumerate(((53, 59), (211, 223), (401, 413), (433, 439))):
            df.iloc[slice(*holes), channel % 3] = np.nan
        df.iloc[474:487, 0] = df.iloc[478:490, 1] = df.iloc[480:483, 2] = np.nan
    return df


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("missing", ["error", "interpolate", "ffill", "mask"])
def test_no_forecast_and_no_interval_looks_beyond_its_origin_whatever_becomes_of_gaps(
    missing: str, adaptive: bool
) -> None:
    df = gappy(missing=missing)
    forecaster = Forecaster(**{**SMALL, "epochs": 1, "missing": missing}).fit(df)
    changed = df.copy()
    changed.iloc[482:] += 50  # of the eleven origins, 482 is the first
    if missing != "error":
        changed.iloc[484:486] = 7.0  # and the gap ends otherwise
    tables = [forecaster.backtest(rows, windows=11, step=1, adaptive=adaptive).forecasts for rows in (df, changed)]
    first = [rows[rows["cutoff"] == df.index[481]].drop(columns="y") for rows in tables]
    assert len(first[0]) == 21
    pd.testing.assert_frame_equal(*first)
    told = forecaster.predict(df.iloc[:482])
    for channel, part in first[0].groupby("unique_id"):
        np.testing.assert_allclose(part["primecast"], told[channel], rtol=1e-6)


@pytest.mark.parametrize("missing", ["interpolate", "ffill", "mask"])
def test_held_out_errors_and_scores_are_of_forecasts_from_what_was_known(missing: str) -> None:
    df = gappy(missing=missing)
    forecaster = Forecaster(**{**SMALL, "epochs": 1, "missing": missing}).fit(df)
    filled = df.interpolate(method="time") if missing == "interpolate" else df.ffill()
    truth = forecaster.scaler_.transform(filled.to_numpy())
    whole = df.notna().all(axis=1).to_numpy() | (missing != "mask")
    origins = [origin for origin in range(349, 493) if whole[origin : origin + 7].all()]
    for place in (0, 5, 61, len(origins) - 11, len(origins) - 5, len(origins) - 1):
        origin = origins[place]
        told = forecaster.scaler_.transform(forecaster.predict(df.iloc[:origin]).to_numpy())
        errors = truth[origin : origin + 7] - told
        np.testing.assert_allclose(forecaster.calibration_[place], errors, atol=1e-5)
        tested = place - sum(one < 400 for one in origins)
        if tested >= 0:
            assert forecaster.scores_.window_mae[tested] == pytest.approx(np.abs(errors).mean(), abs=1e-5)


def test_training_rows_are_not_filled_from_beyond_them() -> None:
    df = waves(499)
    df.iloc[340:360, 0] = np.nan  # the training rows end with 348
    other = df.copy()
    other.iloc[360:] += 50
    one, moved = (Forecaster(**{**SMALL, "epochs": 1, "missing": "interpolate"}).fit(rows) for rows in (df, other))
    np.testing.assert_array_equal(one.scaler_.mean, moved.scaler_.mean)
    with pytest.raises(InputError, match="no value in the 349 rows that train: noise; drop them"):
        Forecaster(**SMALL, missing="ffill").fit(df.assign(noise=df["noise"].where(np.arange(499) >= 349)))


def test_origins_before_a_channels_first_value_are_refused(fitted: Forecaster) -> None:
    forecaster, state = copy(fitted), fitted.state_
    forecaster.missing = "ffill"
    forecaster.state_ = replace(state, arguments=replace(state.arguments, missing="ffill"))
    newer = waves(601).iloc[499:]
    newer.iloc[:31, 1] = np.nan
    with pytest.raises(
        InputError, match="03-23 02:00:00, but some channel has no value before 2024-03-23 02:00:00; take"
    ):
        forecaster.backtest(newer, windows=65, step=1)
    assert len(forecaster.backtest(newer, windows=64, step=1).origins) == 64


@pytest.mark.parametrize("settings", [{"refit": True}, {"model": "ridge", "model_args": None}], ids=str)
def test_what_was_trained_on_all_rows_forecasts_only_the_rows_after_them(settings: dict[str, Any]) -> None:
    df = waves(601)
    final = Forecaster(**{**SMALL, "epochs": 1, **settings}).fit(df.iloc[:499])
    plain = copy(final)
    plain.state_ = replace(final.state_, final=final.state_.model)
    for rows in (300, 420, 498):
        pd.testing.assert_frame_equal(final.predict(df.iloc[:rows]), plain.predict(df.iloc[:rows]))
    for rows in (499, 500, 530):
        assert not final.predict(df.iloc[:rows]).equals(plain.predict(df.iloc[:rows]))
    pd.testing.assert_frame_equal(final.backtest(windows=9).forecasts, plain.backtest(windows=9).forecasts)
    assert not final.backtest(df, windows=9).forecasts.equals(plain.backtest(df, windows=9).forecasts)
    np.testing.assert_array_equal(
        final.update(df.iloc[499:507]).calibration_, plain.update(df.iloc[499:507]).calibration_
    )


def test_a_model_that_an_earlier_version_refitted_on_all_rows_is_not_tested_on_them() -> None:
    df = waves(601)
    forecaster = Forecaster(**{**SMALL, "epochs": 1, "refit": True}).fit(df.iloc[:499])
    assert forecaster.state_.final is not None
    forecaster.state_ = replace(forecaster.state_, model=forecaster.state_.final, final=None)
    for look in (forecaster.backtest, forecaster.relations, forecaster.sensor_ablation):
        with pytest.raises(InputError, match="rows until 2024-03-21 18:00:00 were trained on; at least 7 later rows"):
            look()
    with pytest.raises(InputError, match="rows until 2024-03-21 18:00:00 were trained on; take fewer windows"):
        forecaster.backtest(df, windows=15)
    tested = forecaster.backtest(df, windows=14, level=[80])
    assert np.isfinite(tested.scores.to_numpy()).all()
    assert len(forecaster.backtest(windows=1, refit=True, level=[80]).origins) == 1
    # The windows that have begun within the rows it was trained on tell nothing of its errors.
    plain, adaptive = (forecaster.predict(level=[80], adaptive=way) for way in (False, True))
    assert prediction.errors_so_far(forecaster.state_, forecaster.recent_) is None and list(plain) == list(adaptive)
    before = forecaster.calibration_
    forecaster.update(df.iloc[499:505])
    np.testing.assert_array_equal(forecaster.calibration_, before)
    forecaster.update(df.iloc[505:507])  # of the first window that began after them all seven rows, and one more
    np.testing.assert_array_equal(forecaster.calibration_[:-2], before[2:])


@pytest.mark.parametrize("missing", ["error", "mask"])
def test_adaptive_widths_do_not_depend_on_how_the_errors_of_fit_were_thinned(missing: str) -> None:
    forecaster = Forecaster(**{**SMALL, "epochs": 1, "missing": missing}).fit(gappy(missing=missing))
    widths = []
    for stride in (1, 3, 5):
        other = copy(forecaster)
        other.state_ = replace(forecaster.state_, stride=stride)
        widths.append(other.backtest(windows=3, step=5, level=[80], adaptive=True).scores["width-80"].to_numpy())
    np.testing.assert_array_equal(widths[0], widths[1])
    np.testing.assert_array_equal(widths[0], widths[2])


def test_the_stride_of_errors_between_gaps_is_their_least_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    df = waves(499)
    df.iloc[350:499:11, 0] = np.nan  # four of eleven windows are whole, in a row
    monkeypatch.setattr(prediction, "thinned", lambda windows, cells: np.arange(windows)[::-3][::-1])
    assert Forecaster(**{**SMALL, "epochs": 1, "missing": "mask"}).fit(df).state_.stride == 3


def test_an_adaptive_interval_hears_of_a_miss_before_its_window_has_ended(fitted: Forecaster) -> None:
    df = waves(499)
    jumped = df.copy()
    jumped.iloc[-1] += 50  # no window that missed it has ended but the one that was to end there
    calm, wide = (fitted.predict(rows, level=[80], adaptive=True) for rows in (df, jumped))
    widths = [(rows["lead-hi-80"] - rows["lead-lo-80"]).to_numpy() for rows in (calm, wide)]
    wider = widths[1] - widths[0]
    assert (wider > -1e-9).all() and (wider > 0.1).sum() >= 3  # others had been missed as it was
    tables = [prediction.read_later(fitted.state_, rows)[0] for rows in (df, jumped)]
    plain = [prediction.known_errors(fitted.state_, rows, adaptive=False) for rows in tables]
    np.testing.assert_array_equal(vars(plain[0])["counts"], vars(plain[1])["counts"])


def test_mase_is_scaled_by_the_training_rows(fitted: Forecaster) -> None:
    df = waves(499)
    season = 24  # of the day, also where the look-back is shorter
    trained = df.iloc[: int(0.7 * 499)].to_numpy()
    scale = np.abs(trained[season:] - trained[:-season]).mean(axis=0)
    scores = fitted.backtest(windows=2).scores
    np.testing.assert_allclose(scores["mae"].iloc[1:] / scale, scores["mase"].iloc[1:], rtol=1e-9)


def test_a_season_longer_than_the_look_back_is_found_in_the_rows_before() -> None:
    rows = np.arange(499)
    noise = np.random.default_rng(0).normal(size=(499, 2))
    values = np.stack([np.sin(rows * np.pi / 12), np.cos(rows * np.pi / 12)], axis=1) + 0.1 * noise
    df = pd.DataFrame(values, index=pd.date_range("2024-03-01", periods=499, freq="h"), columns=["a", "b"])
    forecaster = Forecaster(**{**SMALL, "lookback": 11, "epochs": 1}).fit(df)
    scaled = forecaster.scaler_.transform(values)
    by_hand = [scaled[origin : origin + 7] - scaled[origin - 24 : origin - 17] for origin in range(400, 493)]
    assert forecaster.naive_scores_.mse == pytest.approx(np.square(by_hand).mean(), rel=1e-5)
    assert forecaster.facts_["data"]["season"] == 24
    scores = forecaster.backtest(windows=3, level=[]).scores
    assert scores.loc["a", "naive_mae"] == pytest.approx(np.abs(values[478:499, 0] - values[454:475, 0]).mean())
    with pytest.raises(InputError, match="season is 349; it must be less than the 349 rows that train"):
        Forecaster(**SMALL, season=349).fit(df)


def test_a_season_shorter_than_the_horizon_is_repeated() -> None:
    df = waves(499)
    scores = Forecaster(**{**SMALL, "epochs": 1, "season": 3}).fit(df).backtest(windows=1, level=[]).scores
    repeated = df["lead"].to_numpy()[[489, 490, 491, 489, 490, 491, 489]]
    assert scores.loc["lead", "naive_mae"] == pytest.approx(np.abs(df["lead"].to_numpy()[492:] - repeated).mean())


def test_an_origin_without_a_season_before_it_counts_in_no_naive_score(fitted: Forecaster) -> None:
    newer = waves(530).iloc[499:]  # 31 rows: the last origin, and no other, has 24 rows before it
    assert fitted.backtest(newer.iloc[:-1], windows=2, step=3, level=[]).scores["naive_mae"].isna().all()
    scores = fitted.backtest(newer, windows=2, step=3, level=[]).scores
    error = newer["lead"].to_numpy()[24:] - newer["lead"].to_numpy()[:7]
    assert scores.loc["lead", "naive_mae"] == pytest.approx(np.abs(error).mean())


def test_a_constant_that_begins_to_move_is_forecast_with_an_interval() -> None:
    df = waves(601).assign(still=42.5)
    with pytest.warns(ConstantChannelWarning):
        forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(df.iloc[:499])
    df.iloc[520:, 3] += np.random.default_rng(1).normal(size=81)
    tested = forecaster.backtest(df.iloc[499:], windows=61, step=1, level=[80])
    assert tested.scores["coverage-80"]["still"] > 0.1 and tested.scores["width-80"]["still"] > 0.1
    calm = tested.forecasts.query("unique_id == 'still'").iloc[:7]  # its origin is 534: moved already
    assert (calm["primecast-hi-80"] > calm["primecast-lo-80"]).all()
    before = forecaster.predict(df.iloc[:520], level=[80])
    assert (before["still-lo-80"] == 42.5).all() and (before["still-hi-80"] == 42.5).all()
    forecaster.update(df.iloc[499:])
    told = forecaster.predict(level=[80])
    assert (told["still-hi-80"] > told["still-lo-80"]).all()


def test_a_channel_called_overall_keeps_its_scores() -> None:
    df = waves(499).rename(columns={"lead": "overall"})
    scores = Forecaster(**{**SMALL, "epochs": 1}).fit(df).backtest(windows=2, level=[80]).scores
    assert list(scores.index) == ["overall", "overall", "follow", "noise"]
    assert scores["mae"].iloc[1] < 2 < scores["mae"].iloc[2] and scores["mae"].iloc[0] == pytest.approx(
        scores["mae"].iloc[1:].mean()
    )


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
    with pytest.raises(
        InputError, match=r"99.9 % needs at least 999 .* at 2024-\S+ \S+; take fewer windows or a lower level"
    ):
        fitted.backtest(level=[99.9])
