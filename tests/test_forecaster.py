"""The DataFrame door: same columns, original units, continued dates, and the benchmark's own path inside."""

import math
import re
import sys
import warnings
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from primecast.data.windows import calendar_features, split
from primecast.errors import InputError
from primecast.forecasting.arguments import Arguments
from primecast.forecasting.designs import resolve
from primecast.forecasting.fitting import masked_loss
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.intervals import Calibration, ErrorDistribution
from primecast.forecasting.memory import needed_bytes
from primecast.forecasting.state import NotFittedError
from primecast.frames.future_covariates import UnknownFutureWarning
from primecast.frames.layouts import lengthen
from primecast.frames.read import ColumnsLeftOutWarning
from primecast.frames.validate import (
    ConstantChannelWarning,
    RevisedRowsWarning,
    SilentChannelWarning,
    dataset_from_frame,
)
from primecast.models import create_model
from primecast.nn.losses import mse
from primecast.training.loop import fit

SMALL: dict[str, Any] = {
    "horizon": 7, "lookback": 19, "epochs": 2, "batch_size": 64, "progress": "off",
    "model_args": {"d_model": 8, "n_heads": 2, "n_layers": 1},
}  # fmt: skip


def waves(rows: int = 331, *, freq: str = "h", tz: str | None = None) -> pd.DataFrame:
    """A wave, the same three steps later at another level, and noise."""
    steps = np.arange(rows)
    noise = np.random.default_rng(0).normal(size=(rows, 3))
    index = pd.date_range("2024-03-01", periods=rows, freq=freq, tz=tz)
    values = np.stack([np.sin(steps / 4), 100 + 5 * np.sin((steps - 3) / 4), 0 * steps], axis=1) + 0.1 * noise
    return pd.DataFrame(values, index=index, columns=["lead", "follow", "noise"])


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(**SMALL).fit(waves())


def test_a_forecast_has_the_same_columns_units_and_the_next_dates(fitted: Forecaster) -> None:
    df, forecast = waves(), fitted.predict()
    assert list(forecast.columns) == list(df.columns)
    assert list(forecast.index) == list(pd.date_range(df.index[-1], periods=8, freq="h")[1:])
    assert 80 < forecast["follow"].mean() < 120 and -3 < forecast["lead"].mean() < 3


def test_the_same_data_and_seed_give_the_same_forecast_and_another_seed_another(fitted: Forecaster) -> None:
    pd.testing.assert_frame_equal(Forecaster(**SMALL).fit(waves()).predict(), fitted.predict())
    assert not Forecaster(**SMALL, seed=1).fit(waves()).predict().equals(fitted.predict())


def test_the_time_column_named_for_a_file_is_read_from_the_next_file_too(tmp_path: Path) -> None:
    frame = waves().rename_axis("logged").reset_index()
    frame.iloc[:300].to_csv(tmp_path / "old.csv", index=False)
    frame.iloc[100:].to_csv(tmp_path / "new.csv", index=False)
    frame.rename(columns={"logged": "when"}).to_csv(tmp_path / "other.csv", index=False)
    fitted = Forecaster(**{**SMALL, "epochs": 1}).fit(tmp_path / "old.csv", time="logged")
    fitted.save(tmp_path / "model")
    for one in (fitted, Forecaster.load(tmp_path / "model")):
        assert one.predict(tmp_path / "new.csv").index[0] == waves().index[-1] + pd.Timedelta("1h")
        with pytest.raises(InputError, match="unknown time column.*'logged'"):
            one.predict(tmp_path / "other.csv")


def test_bfloat16_trains_another_model_that_forecasts_in_float32(fitted: Forecaster) -> None:
    low = Forecaster(**SMALL, precision="bf16", device="cpu").fit(waves())
    assert all(p.dtype == torch.float32 for p in low.model_.parameters())
    assert not low.predict().equals(fitted.predict())
    np.testing.assert_allclose(low.predict()["follow"], fitted.predict()["follow"], rtol=0.05)
    with pytest.raises(InputError, match="unknown precision 'half'.*allowed: bf16, float32"):
        Forecaster(**SMALL, precision="half")
    with pytest.raises(InputError, match="unknown device 'tpu'"):
        Forecaster(**SMALL, device="tpu").fit(waves())


def test_the_forecaster_goes_the_way_of_the_benchmark(fitted: Forecaster) -> None:
    df = waves()
    splits = split(dataset_from_frame(df), lookback=19, horizon=7)
    model = create_model(
        "itransformer", lookback=19, horizon=7, channels=3, n_time_features=4, seed=0, **SMALL["model_args"]
    )
    fit(model, splits.train, splits.val, loss=mse, lr=5e-4, batch_size=64, epochs=2, patience=3, seed=0, progress="off")
    window = torch.from_numpy(splits.scaler.transform(df.to_numpy()[-19:])).float()[None]
    index = pd.DatetimeIndex([*df.index[-19:], *fitted.predict().index])
    with torch.no_grad():
        by_hand = splits.scaler.inverse(model(window, calendar_features(index)[None])[0].double().numpy())
    np.testing.assert_allclose(fitted.predict().to_numpy(), by_hand, rtol=1e-5, atol=1e-6)


def test_it_learns_more_than_repeating_the_last_season() -> None:
    forecaster = Forecaster(**{**SMALL, "epochs": 8, "lr": 5e-3}).fit(waves(997))
    assert forecaster.scores_.mse < forecaster.naive_scores_.mse


def test_newer_rows_are_forecast_without_refitting(fitted: Forecaster) -> None:
    df = waves(400)
    forecast = fitted.predict(df)
    assert forecast.index[0] == df.index[-1] + pd.Timedelta("1h")
    pd.testing.assert_frame_equal(fitted.predict(waves()), fitted.predict())


def test_a_changed_past_before_the_look_back_changes_nothing(fitted: Forecaster) -> None:
    df = waves(400)
    other = df.copy()
    other.iloc[:-19] += 1
    pd.testing.assert_frame_equal(fitted.predict(df), fitted.predict(other))


def test_save_and_load_give_the_same_forecast(fitted: Forecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.predict(level=[80]).equals(fitted.predict(level=[80]))  # to the last bit
    pd.testing.assert_frame_equal(loaded.predict(waves(400)), fitted.predict(waves(400)))
    assert loaded.get_params() == resolve(fitted.get_params())


@pytest.mark.parametrize(("freq", "features"), [("15min", 5), ("h", 4), ("D", 4)])
def test_the_minute_of_the_hour_is_a_time_feature_of_steps_below_an_hour(
    freq: str, features: int, tmp_path: Path
) -> None:
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(waves(200, freq=freq))
    assert forecaster.model_.n_time_features == features
    forecaster.save(tmp_path)
    assert f'"time_features": {features}' in (tmp_path / "config.json").read_text()
    assert Forecaster.load(tmp_path).predict().equals(forecaster.predict())


def test_a_folder_saved_with_four_time_features_of_steps_below_an_hour_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("primecast.forecasting.fitting.is_subhourly", lambda index: False)
        forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(waves(200, freq="10min"))
    forecaster.save(tmp_path)
    loaded = Forecaster.load(tmp_path)
    assert loaded.model_.n_time_features == 4
    assert loaded.predict().equals(forecaster.predict())


@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Berlin"])
def test_dates_and_zones_survive_save_and_load(tz: str | None, tmp_path: Path) -> None:
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(waves(200, freq="D", tz=tz))
    forecaster.save(tmp_path)
    pd.testing.assert_index_equal(Forecaster.load(tmp_path).predict().index, forecaster.predict().index, exact="equiv")


def test_a_constant_channel_is_a_warning_and_is_forecast_as_its_constant() -> None:
    df = waves().assign(still=42.5)
    with pytest.warns(ConstantChannelWarning, match="still"):
        forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(df)
    assert (forecaster.predict()["still"] == 42.5).all()


def test_a_channel_that_stands_still_in_recent_rows_is_no_warning(fitted: Forecaster) -> None:
    df = waves(400)
    df.loc[df.index[-40:], "noise"] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(fitted.predict(df.iloc[-40:]).to_numpy()).all()


def test_nothing_can_be_asked_of_it_before_it_is_fitted(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="call fit"):
        Forecaster(horizon=3).predict()
    with pytest.raises(NotFittedError, match="nothing to save"):
        Forecaster(horizon=3).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert issubclass(NotFittedError, ValueError) and issubclass(NotFittedError, AttributeError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "itransfomer"}, "unknown model 'itransfomer'"),
        ({"attention": "primed"}, "unknown attention of model itransformer 'primed'"),
        ({"horizon": 0}, "horizon is 0; it must be a whole number of at least 1"),
        ({"loss": "mape"}, "unknown loss 'mape'"),
        ({"model_args": {"d_modle": 3}}, "unknown argument of model itransformer 'd_modle'"),
        ({"model_args": {"d_model": 10, "n_heads": 4}}, "d_model 10 cannot be divided"),
    ],
)
def test_wrong_arguments_are_refused_at_once(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Forecaster(**{**SMALL, **change})


def test_frames_that_cannot_be_used_are_refused(fitted: Forecaster) -> None:
    df = waves()
    with pytest.raises(InputError, match="channels"):
        fitted.predict(df[["follow", "lead"]])
    with pytest.raises(InputError, match="needs 19 rows, the frame has 18"):
        fitted.predict(df.iloc[-18:])
    with pytest.raises(InputError, match="missing"):
        Forecaster(**SMALL).fit(df.mask(df > 100.5))
    with pytest.raises(InputError, match="rows"):
        Forecaster(**SMALL).fit(df.iloc[:40])


def test_a_checkpoint_of_another_model_or_a_truncated_one_is_refused(fitted: Forecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a")
    Forecaster(**{**SMALL, "epochs": 1, "model_args": {"d_model": 16, "n_heads": 2}}).fit(waves()).save(tmp_path / "b")
    weights = (tmp_path / "b" / "model.safetensors").read_bytes()
    (tmp_path / "a" / "model.safetensors").write_bytes(weights)
    with pytest.raises(InputError, match="model.safetensors"):
        Forecaster.load(tmp_path / "a")
    (tmp_path / "b" / "model.safetensors").write_bytes(weights[:-100])
    with pytest.raises(InputError, match="model.safetensors"):
        Forecaster.load(tmp_path / "b")
    with pytest.raises(InputError, match="there is no folder"):
        Forecaster.load(tmp_path / "nowhere")


# ---------------------------------------------------------------- intervals


def test_intervals_are_named_as_neuralforecast_names_them_and_widen_with_the_level(fitted: Forecaster) -> None:
    forecast = fitted.predict(level=[95, 80])
    names = [f"follow{end}" for end in ("", "-lo-95", "-lo-80", "-hi-80", "-hi-95")]
    assert list(forecast.columns[5:10]) == names
    point, lo95, lo80, hi80, hi95 = (forecast[name] for name in names)
    assert (lo95 <= lo80).all() and (lo80 < point).all() and (point < hi80).all() and (hi80 <= hi95).all()
    pd.testing.assert_frame_equal(forecast[["lead", "follow", "noise"]], fitted.predict())


def test_intervals_are_those_of_the_held_out_errors(fitted: Forecaster) -> None:
    df = waves()
    rows, trained = len(df), int(0.7 * 331)
    scaled = fitted.scaler_.transform(df.to_numpy())
    forecasts = [
        fitted.scaler_.transform(fitted.predict(df.iloc[start : start + 19]).to_numpy())
        for start in range(trained - 19, rows - 26 + 1)
    ]
    origins = np.arange(trained, rows - 7 + 1)
    known = Calibration(scaled[origins[:, None] + np.arange(7)] - forecasts, np.stack(forecasts), origins)
    clock = df.index[0].hour
    by_hand = ErrorDistribution(known.shifted(clock), until=rows + clock, season=24, adaptive=False)
    told = fitted.predict(level=[80], adaptive=False)
    point = fitted.scaler_.transform(told[df.columns].to_numpy())
    low, high = by_hand.interval(point[None], np.array([rows + clock]), 80)[:, 0]
    for place, name in enumerate(df.columns):
        std, mean = fitted.scaler_.std[place], fitted.scaler_.mean[place]
        np.testing.assert_allclose(told[f"{name}-lo-80"], low[:, place] * std + mean, rtol=1e-3, atol=2e-3 * std)
        np.testing.assert_allclose(told[f"{name}-hi-80"], high[:, place] * std + mean, rtol=1e-3, atol=2e-3 * std)


def test_channels_that_were_never_negative_get_no_negative_forecast_nor_bound() -> None:
    df = waves()
    df["follow"] = (df["follow"] - df["follow"].mean()).clip(lower=0)
    df.iloc[-7:, 1] = 0
    auto, free = (Forecaster(**{**SMALL, "epochs": 1, "bounds": bounds}).fit(df) for bounds in ("auto", None))
    assert list(auto.state_.nonnegative) == [(df[name] >= 0).all() for name in df.columns]
    assert auto.state_.nonnegative[1] and not free.state_.nonnegative.any()
    for told, bound in ((auto.predict(level=[80, 95]), True), (free.predict(level=[80, 95]), False)):
        lowest = told[["follow", "follow-lo-80", "follow-lo-95"]].min().min()
        assert lowest >= 0 if bound else lowest < 0
    raw, raised = free.predict(), auto.predict()
    np.testing.assert_allclose(raised["follow"], raw["follow"].clip(lower=0), atol=1e-6)
    tested = auto.backtest(windows=5, level=[95]).forecasts.query("unique_id == 'follow'")
    assert tested[["primecast", "primecast-lo-95"]].min().min() >= 0
    assert auto.scores_.mse <= free.scores_.mse
    with pytest.raises(InputError, match="unknown bounds 'zero'; allowed: auto"):
        Forecaster(**{**SMALL, "bounds": "zero"})


def test_a_channel_with_a_later_value_below_0_is_no_longer_kept_from_below_0(tmp_path: Path) -> None:
    falling = pd.DataFrame({"temperature": np.linspace(40, -3, 331), "other": waves(331)["lead"].to_numpy()})
    falling.index = waves(331).index
    options = {**SMALL, "model": "ridge", "attention": None, "model_args": None}

    def lowest(table: pd.DataFrame) -> float:
        return float(table.filter(like="temperature").min().min())

    fitted = Forecaster(**options).fit(falling)
    assert lowest(fitted.predict(level=[80])) < -3
    assert lowest(fitted.predict(falling.iloc[:300], level=[80])) < 3
    before = Forecaster(**options).fit(falling.iloc[:300])
    assert before.state_.nonnegative[0] and lowest(before.predict(level=[80])) >= 0
    assert lowest(before.predict(falling)) < -3  # rows that tell otherwise
    before.save(tmp_path / "model")
    assert lowest(before.update(falling).predict()) < -3 and not before.state_.nonnegative[0]
    tested = Forecaster.load(tmp_path / "model").backtest(falling, windows=4).forecasts
    assert tested.query("unique_id == 'temperature'")["primecast"].min() < 0


@pytest.mark.parametrize("options", [{"model": "ridge"}, {"quality": "fast"}], ids=str)
def test_a_table_of_constants_is_forecast_as_them(options: dict[str, Any]) -> None:
    """No model makes an error, so that no error is relative to another."""
    constants = pd.DataFrame({"a": 17.0, "b": -3.5}, index=waves(151).index)
    with pytest.warns(UserWarning, match="never change"):
        fitted = Forecaster(**SMALL | {"model_args": None, "epochs": 1} | options).fit(constants)
    forecast = fitted.predict(level=[80])
    for name, value in (("a", 17.0), ("b", -3.5)):
        for column in (name, f"{name}-lo-80", f"{name}-hi-80"):
            assert (forecast[column] == value).all()
    assert fitted.facts_["scores"]["mse"] == 0
    assert all(one["verdict"] is None for one in fitted.facts_["comparison"].values())
    fitted.leaderboard()


@pytest.mark.parametrize(("lookback", "horizon"), [(7, 3), (13, 5), (24, 24)])
def test_as_many_rows_as_are_said_to_be_enough_or_more_are_enough(lookback: int, horizon: int) -> None:
    small: dict[str, Any] = {"lookback": lookback, "horizon": horizon, "model": "ridge", "progress": "off"}
    enough = set()
    for rows in range(2 * horizon, 6 * (lookback + horizon), 1 + horizon):
        try:
            Forecaster(**small).fit(waves(rows)[["noise"]])
        except InputError as error:
            found = re.search(r"; (\d+) are enough", str(error))
            assert found, str(error)
            enough.add(int(found[1]))
            assert rows < min(enough)
    for rows in range(min(enough), min(enough) + 11):
        Forecaster(**small).fit(waves(rows)[["noise"]])


def test_a_constant_channel_has_an_interval_without_width() -> None:
    with pytest.warns(ConstantChannelWarning):
        told = Forecaster(**{**SMALL, "epochs": 1}).fit(waves().assign(still=42.5)).predict(level=[80])
    assert (told["still-lo-80"] == 42.5).all() and (told["still-hi-80"] == 42.5).all()


def test_levels_may_come_from_a_generator(fitted: Forecaster) -> None:
    levels = (level for level in (80, 95))
    pd.testing.assert_frame_equal(fitted.predict(level=levels), fitted.predict(level=[80, 95]))  # type: ignore[arg-type]


def test_bad_levels_and_clashing_names_are_refused(fitted: Forecaster) -> None:
    with pytest.raises(InputError, match="level 120 is no per cent"):
        fitted.predict(level=[120])
    with pytest.raises(InputError, match="99.9 % needs at least 999 held-out windows, there are 94"):
        fitted.predict(level=[99.9])
    clash = Forecaster(**{**SMALL, "epochs": 1}).fit(waves().rename(columns={"noise": "lead-lo-80"}))
    with pytest.raises(InputError, match="need the name 'lead-lo-80', which is a channel's"):
        clash.predict(level=[80])


def test_updating_moves_on_and_learns_from_the_errors_without_touching_the_model() -> None:
    whole = waves(400)
    wild = whole.copy()
    wild.iloc[331:] += np.random.default_rng(1).normal(size=(69, 3)) * [3, 15, 3]
    forecaster = Forecaster(**SMALL).fit(whole.iloc[:331])
    before, weights = forecaster.predict(level=[80]), forecaster.model_.state_dict()["head.weight"].clone()
    for first in range(331, 400, 10):
        forecaster.update(wild.iloc[:331] if first == 331 else wild.iloc[first - 20 : first])  # rows may overlap
    forecaster.update(wild)
    after = forecaster.predict(level=[80])
    assert after.index[0] == whole.index[-1] + pd.Timedelta("1h")
    pd.testing.assert_frame_equal(forecaster.predict(), forecaster.predict(wild))
    width = [(told["lead-hi-80"] - told["lead-lo-80"]).mean() for told in (before, after)]
    assert width[1] > 1.2 * width[0]
    at_once = Forecaster(**SMALL).fit(whole.iloc[:331]).update(wild)
    np.testing.assert_allclose(at_once.calibration_, forecaster.calibration_, rtol=1e-5, atol=1e-6)
    assert torch.equal(forecaster.model_.state_dict()["head.weight"], weights)
    with pytest.raises(InputError, match=r"the next row is that of 2024-03-17 16:00:00, but the newer rows begin at"):
        forecaster.update(waves(500).iloc[430:])


def test_known_rows_that_come_again_with_other_values_are_used_and_said(tmp_path: Path) -> None:
    df = waves(340)
    fitted = Forecaster(**{**SMALL, "epochs": 1}).fit(df.iloc[:331])
    fitted.save(tmp_path / "model")
    other = df.copy()
    other.iloc[[320, 328], 0] += 5
    other.iloc[328, 1] = 7
    other.iloc[11, 2] = 9  # long forgotten
    said = (
        r"^2 of the last 26 rows known so far are given with other values in 2 of 3 channels, such as 'lead' at "
        r"2024-03-14 08:00: -?[\d.]+ before, [\d.]+ now; the new values are used$"
    )
    for given in (other.iloc[:331], other):  # with and without newer rows
        forecaster = Forecaster.load(tmp_path / "model")
        with pytest.warns(RevisedRowsWarning, match=said) as warned:
            forecaster.update(given)
        assert len(warned) == 1
        pd.testing.assert_frame_equal(forecaster.predict(), forecaster.predict(given))
        assert not forecaster.predict().equals(fitted.predict(df.iloc[: len(given)]))
        forecaster.update(given)  # which is what it knows now: no warning, or the test would fail
    assert len(fitted.update(other.iloc[:300]).recent_) == 26  # all of them long forgotten


def test_known_rows_that_come_again_rounded_or_with_gaps_change_nothing(fitted: Forecaster) -> None:
    df, known = waves(), fitted.recent_
    gappy = df.astype("float32").copy()
    gappy.iloc[-3, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert deepcopy(fitted).update(gappy).recent_.frame.equals(known.frame)


@pytest.mark.parametrize("missing", ["interpolate", "ffill", "mask"])
@pytest.mark.parametrize("row", [305, 320, 330])  # the first of the rows that are kept, one within, the last
def test_a_known_gap_is_filled_by_the_value_that_comes_later(missing: str, row: int) -> None:
    whole = waves(340)
    gappy = whole.copy()
    gappy.iloc[row, 1] = np.nan
    forecaster = Forecaster(**{**SMALL, "epochs": 1}, missing=missing).fit(gappy.iloc[:331])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        filled = deepcopy(forecaster).update(whole.iloc[:331])
        pd.testing.assert_frame_equal(filled.predict(), forecaster.predict(whole.iloc[:331]))
        assert not filled.recent_.gaps.any() and filled.recent_.frame.equals(whole.iloc[305:331])
        pd.testing.assert_frame_equal(filled.update(whole).predict(), forecaster.predict(whole))


def test_rows_twice_or_between_those_known_are_no_later_rows(fitted: Forecaster) -> None:
    df = waves()
    with pytest.raises(InputError, match="the row of 2024-03-14 18:00 occurs more than once; keep one"):
        deepcopy(fitted).update(pd.concat([df, df.iloc[[-1]]]))
    with pytest.raises(InputError, match="the row of 2024-03-14 21:00 occurs more than once; keep one"):
        deepcopy(fitted).update(waves(340).iloc[[331, 332, 333, 333]])
    with pytest.raises(InputError, match="the row of 2024-03-14 17:30 lies between the rows that are known, which are"):
        deepcopy(fitted).update(df.iloc[-2:].shift(freq="30min"))


def test_rows_of_an_array_are_all_new() -> None:
    values = waves(400).to_numpy()
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(values[:331])
    np.testing.assert_array_equal(forecaster.update(values[331:]).predict(), forecaster.predict(values))
    np.testing.assert_array_equal(forecaster.update(values[:0]).predict(), forecaster.predict(values))


def test_rows_that_are_only_numbered_must_go_on_from_those_known() -> None:
    df = waves(400).reset_index(drop=True)
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(df.iloc[:331])
    for again in (df.iloc[331:], df.iloc[31:]):  # counted from 0, as a file that is read anew
        with pytest.raises(
            InputError, match=r"numbered 0 to \d+, but those known by .* others; the next row is number 331"
        ):
            forecaster.update(again.reset_index(drop=True))
    before = forecaster.predict()
    pd.testing.assert_frame_equal(forecaster.update(df.iloc[:331]).predict(), before)
    assert forecaster.update(df).predict().index[0] == 400
    pd.testing.assert_frame_equal(forecaster.predict(), forecaster.predict(df))


def test_rows_may_come_one_by_one() -> None:
    df = waves(353)
    one_by_one, at_once = (Forecaster(**{**SMALL, "epochs": 1}).fit(df.iloc[:331]) for _ in range(2))
    for row in range(331, 353):
        one_by_one.update(df.iloc[[row]])
    at_once.update(df)
    pd.testing.assert_frame_equal(one_by_one.predict(level=[80]), at_once.predict(level=[80]), rtol=1e-5)
    with pytest.raises(
        InputError, match="next row is that of 2024-03-15 17:00:00, but the newer rows begin at .* 19:00"
    ):
        one_by_one.update(waves(400).iloc[355:357])
    with pytest.raises(
        InputError, match="next row is that of 2024-03-15 19:00:00, but the newer rows go on with .* 20:00"
    ):
        one_by_one.update(waves(400).iloc[[353, 354, 356]])


@pytest.mark.parametrize("missing", ["interpolate", "ffill", "mask"])
def test_newer_rows_are_filled_from_those_before_them(missing: str, tmp_path: Path) -> None:
    df = waves(400)
    df.iloc[320:340, 0] = np.nan
    forecaster = Forecaster(**{**SMALL, "epochs": 1, "missing": missing}).fit(df.iloc[:331])
    forecaster.save(tmp_path)
    for one in (forecaster, Forecaster.load(tmp_path)):
        for last in (337, 343, 353):  # the gap is still open, has closed, is behind the look-back
            one.update(df.iloc[331:last])
            pd.testing.assert_frame_equal(one.predict(), one.predict(df.iloc[:last]), rtol=1e-6)
    read = df.copy()
    read.iloc[352:354, 0], read.iloc[354, 0] = np.nan, 1000.0
    forecaster.update(read.iloc[352:354])
    assert (forecaster.recent_.frame["lead"].iloc[-1:] == df["lead"].iloc[352]).all()


def test_a_sensor_that_is_down_does_not_stop_the_others() -> None:
    df = waves(461)
    df.iloc[331:, 0] = np.nan
    forecaster = Forecaster(**{**SMALL, "epochs": 1, "missing": "mask"}).fit(df.iloc[:331])
    before = forecaster.calibration_
    for first in range(331, 461, 13):
        forecaster.update(df.iloc[first : first + 13])
        silent = first + 13 - 331 >= SMALL["lookback"]
        with pytest.warns(SilentChannelWarning, match="no value in the last .*: lead;") if silent else nullcontext():
            assert np.isfinite(forecaster.predict(level=[80], adaptive=True).to_numpy()).all()
    np.testing.assert_array_equal(forecaster.calibration_, before)  # no window was whole
    assert (forecaster.recent_.frame["lead"] == df["lead"].iloc[330]).all()
    with pytest.raises(InputError, match="1 value is missing: 1 in lead"):
        Forecaster(**{**SMALL, "epochs": 1}).fit(waves(331)).update(df.iloc[[331]])


@pytest.mark.parametrize(("row", "value"), [(17, 1.7e308), (400, 1.7e308), (400, -9.96921e36)])
def test_a_value_too_large_to_be_scaled_is_named(row: int, value: float) -> None:
    df = waves(461)
    df.iloc[row, 1] = value
    told = rf"channel 'follow' holds {value:g} at {df.index[row]}, too far from its other values".replace("+", r"\+")
    with pytest.raises(InputError, match=told):
        Forecaster(**SMALL).fit(df)
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(waves(331))
    with pytest.raises(InputError, match=told):
        forecaster.predict(df)
    with pytest.raises(InputError, match=told.replace(str(df.index[row]), "2024-03-14 19:00:00")):
        forecaster.update(df.iloc[[row]].set_axis(df.index[[331]], axis="index"))


# ---------------------------------------------------------------- tables of other kinds


def test_long_frames_come_and_go(fitted: Forecaster) -> None:
    long = lengthen(waves(), id_column="sensor", time_column="at", value_column="reading")
    forecaster = Forecaster(**SMALL).fit(long, id="sensor", time="at", value="reading")
    told = forecaster.predict(level=[80])
    assert list(told.columns) == ["sensor", "at", "primecast", "primecast-lo-80", "primecast-hi-80"]
    wide = fitted.predict(level=[80])
    np.testing.assert_allclose(told["primecast-hi-80"], np.concatenate([wide[f"{c}-hi-80"] for c in waves().columns]))
    again = forecaster.predict(long.sample(frac=1, random_state=0).sort_values("at"))  # ids in another order
    np.testing.assert_allclose(again.set_index(["sensor", "at"])["primecast"].sort_index(),
                               told.set_index(["sensor", "at"])["primecast"].sort_index(), rtol=1e-6)  # fmt: skip
    default = Forecaster(**SMALL).fit(lengthen(waves())).predict()
    assert list(default.columns) == ["unique_id", "ds", "primecast"]


def test_a_time_column_stays_a_column(fitted: Forecaster) -> None:
    df = waves().rename_axis("when").reset_index()
    told = Forecaster(**SMALL).fit(df).predict()
    assert list(told.columns) == ["when", "lead", "follow", "noise"]
    np.testing.assert_array_equal(told["follow"], fitted.predict()["follow"])
    text = df.assign(when=df["when"].astype(str))
    assert list(Forecaster(**SMALL).fit(text, time="when").predict()["when"]) == list(told["when"])
    with pytest.raises(InputError, match="no time column 'then'; its columns are when, lead"):
        Forecaster(**SMALL).fit(df, time="then")


def test_a_csv_is_read_from_its_path(fitted: Forecaster, tmp_path: Path) -> None:
    waves().to_csv(tmp_path / "plant.csv", index_label="date")
    told = Forecaster(**SMALL).fit(tmp_path / "plant.csv").predict()
    np.testing.assert_allclose(told.to_numpy(), fitted.predict().to_numpy(), rtol=1e-5)


def test_arrays_have_numbered_rows_and_no_calendar() -> None:
    values = waves().to_numpy()
    forecaster = Forecaster(**SMALL).fit(values)
    assert forecaster.predict().shape == (7, 3)
    assert forecaster.predict(level=[80, 95]).shape == (7, 3, 5)
    assert np.array_equal(forecaster.predict(values), forecaster.predict())
    counted = pd.DataFrame(values, index=range(100, 100 + 3 * 331, 3), columns=list("abc"))
    told = Forecaster(**SMALL).fit(counted).predict()
    assert told.index.tolist() == list(range(100 + 3 * 331, 100 + 3 * 338, 3))
    for bad, message in (
        (values[0], "has 1 axes"),
        (values.astype(str), "must hold numbers"),
        ([1, 2], "builtins.list"),
    ):
        with pytest.raises(InputError, match=message):
            Forecaster(**SMALL).fit(bad)


@pytest.mark.parametrize(("freq", "tz"), [("B", None), ("MS", None), ("ME", None), ("h", "Europe/Berlin")])
def test_forecasts_continue_the_calendar_also_after_save_and_load(freq: str, tz: str | None, tmp_path: Path) -> None:
    whole = waves(208, freq=freq, tz=tz)
    if tz:  # the forecast begins two hours before the clocks go forward
        whole.index = pd.date_range(end=pd.Timestamp("2024-03-31 05:00", tz=tz), periods=208, freq=freq)
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(whole.iloc[:201])
    forecaster.save(tmp_path)
    for told in (forecaster.predict(), Forecaster.load(tmp_path).predict()):
        assert list(told.index) == list(whole.index[201:])


def test_polars_frames_come_and_go(fitted: Forecaster) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    pytest.importorskip("narwhals", reason="narwhals is not installed")
    df = waves()
    frame = pl.DataFrame({"at": df.index.to_numpy(), **{name: df[name].to_numpy() for name in df.columns}})
    told = Forecaster(**SMALL).fit(frame).predict(level=[80])
    assert isinstance(told, pl.DataFrame) and told.columns[:3] == ["at", "lead", "lead-lo-80"]
    np.testing.assert_allclose(told["follow"].to_numpy(), fitted.predict()["follow"], rtol=1e-6)
    long = frame.unpivot(index="at", variable_name="id", value_name="v")
    told = Forecaster(**SMALL).fit(long, id="id", time="at", value="v").predict()
    assert isinstance(told, pl.DataFrame) and told.columns == ["id", "at", "primecast"]


def test_other_frames_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)

    class Frame:
        __module__ = "polars.dataframe"

    with pytest.raises(
        InputError, match=r"a table of type polars.Frame needs narwhals: pip install 'primecast\[polars\]'"
    ):
        Forecaster(**SMALL).fit(Frame())


def test_newer_rows_of_another_step_zone_or_set_of_channels_are_refused(fitted: Forecaster) -> None:
    with pytest.raises(InputError, match="fitted on rows of 'h', the frame has rows of 'D'"):
        fitted.predict(waves(freq="D"))
    with pytest.raises(InputError, match="fitted on rows of 'h', the frame has rows of 'h' in UTC"):
        fitted.predict(waves(tz="UTC"))
    with pytest.raises(InputError, match="other channels than that of fit: missing: noise; new: more"):
        fitted.predict(waves().rename(columns={"noise": "more"}))
    pd.testing.assert_frame_equal(fitted.predict(waves()[["noise", "lead", "follow"]]), fitted.predict())


# ---------------------------------------------------------------- covariates

QUICK: dict[str, Any] = {
    **SMALL, "attention": "standard", "epochs": 6, "patience": 6, "lr": 4e-3, "batch_size": 16, "schedule": "constant",
    "model_args": {"d_model": 32, "n_heads": 2, "n_layers": 1, "dropout": 0.0},
}  # fmt: skip
"""Enough to learn a linear law in seconds."""


def pushed(rows: int = 997) -> pd.DataFrame:
    """What happens to `level` is said beforehand by `plan`, and by nothing else."""
    rng = np.random.default_rng(4)
    plan = (rng.random(rows) < 0.4).astype(float)
    values = {"level": 10 + 3 * plan + 0.05 * rng.normal(size=rows), "other": rng.normal(size=rows), "plan": plan}
    return pd.DataFrame(values, index=pd.date_range("2024-01-01", periods=rows, freq="h"))


def test_a_covariate_known_beforehand_is_used_where_it_is_known() -> None:
    df = pushed(1007)
    settings = {**QUICK, "epochs": 8}
    blind = Forecaster(**settings).fit(df.iloc[:1000].drop(columns="plan"))
    told = Forecaster(**settings, future=["plan"]).fit(df.iloc[:1000])
    assert told.scores_.channel_mse[0] < 0.5 * blind.scores_.channel_mse[0]
    ahead = df.iloc[1000:][["plan"]]
    forecast = told.predict(future=ahead)
    assert list(forecast.columns) == ["level", "other"]
    error = (forecast["level"] - df["level"].iloc[1000:]).abs().mean()
    assert error < (forecast["level"].mean() - df["level"].iloc[1000:]).abs().mean()
    other = told.predict(future=1 - ahead)
    assert ((other["level"] - forecast["level"]).abs() > 0.5).any()
    with pytest.warns(UnknownFutureWarning, match="7 of 7 future values of plan are not known"):
        told.predict()
    with pytest.warns(UnknownFutureWarning, match="4 of 7 .* needed from 2024-02-11 16:00:00 to 2024-02-11 22:00:00"):
        told.predict(future=ahead.iloc[:3])
    with pytest.raises(InputError, match="the future frame has no column plan; it has other"):
        told.predict(future=df.iloc[1000:][["other"]])
    with pytest.raises(InputError, match="has no future covariates"):
        blind.predict(future=ahead)
    pd.testing.assert_frame_equal(told.predict(future=ahead.to_numpy()), forecast)
    with pytest.raises(InputError, match="the future array has 2 columns, there are 1 future covariates: plan"):
        told.predict(future=np.zeros((7, 2)))
    with pytest.raises(
        InputError, match="1 rows of the future frame occur more than once, the first 2024-02-11 18:00:00"
    ):
        told.predict(future=ahead.iloc[[0, 1, 2, 2, 3]])
    with pytest.raises(InputError, match="fitted on rows of 'h', the frame has rows of 'h' in UTC"):
        told.predict(future=ahead.tz_localize("UTC"))


def test_the_past_of_a_covariate_is_looked_at_and_not_forecast() -> None:
    rng = np.random.default_rng(0)
    valve = rng.normal(size=1009)
    flow = np.concatenate([rng.normal(size=3), valve[:-3]]) * 5 + 50
    index = pd.date_range("2024-01-01", periods=1009, freq="h")
    df = pd.DataFrame({"valve": valve, "flow": flow}, index=index)
    settings = {**QUICK, "horizon": 3}
    with_past = Forecaster(**settings, past=["valve"]).fit(df)
    alone = Forecaster(**settings).fit(df[["flow"]])
    assert list(with_past.predict().columns) == ["flow"]
    assert with_past.scores_.channel_mse.shape == (1,)
    assert with_past.scores_.mse == pytest.approx(with_past.scores_.channel_mse[0])
    assert with_past.scores_.mse < 0.3 * alone.scores_.mse
    assert with_past.backtest(windows=2).scores.index.tolist() == ["overall", "flow"]
    assert with_past.relations().lead.loc["valve", "flow"] == 3
    assert with_past.sensor_ablation().growth["valve"]["flow"] > 0.5


def test_covariates_survive_save_and_load(tmp_path: Path) -> None:
    df = pushed(400)
    forecaster = Forecaster(**{**SMALL, "epochs": 1}, future=["plan"], past=["other"]).fit(df.iloc[:393])
    forecaster.save(tmp_path)
    ahead = df.iloc[393:][["plan"]]
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path).predict(future=ahead), forecaster.predict(future=ahead))


def test_covariates_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="unknown past covariate 'valve'"):
        Forecaster(**SMALL, past=["valve"]).fit(waves())
    with pytest.raises(InputError, match="nothing is left to forecast"):
        Forecaster(**SMALL, past=["lead", "follow", "noise"]).fit(waves())
    with pytest.raises(InputError, match="given as past and as future: noise"):
        Forecaster(**SMALL, past=["noise"], future=["noise"])
    with pytest.raises(InputError, match="past is 'noise'; it must be a list"):
        Forecaster(**SMALL, past="noise")
    with pytest.raises(InputError, match="model 'dlinear' reads no time features, so it cannot use future covariates"):
        Forecaster(horizon=3, model="dlinear", future=["noise"])


# ---------------------------------------------------------------- missing values


def test_masked_gaps_are_no_errors_to_learn_from() -> None:
    df = waves(997)
    holed = df.copy()
    holed.iloc[100:140, 0] = np.nan
    wrong = df.copy()
    wrong.iloc[100:140, 0] = 100.0
    settings = {**SMALL, "epochs": 3, "lr": 3e-3}
    clean = Forecaster(**settings).fit(df)
    masked = Forecaster(**settings, missing="mask").fit(holed)
    with pytest.warns(ColumnsLeftOutWarning, match="100 stands in 40 rows of lead"):
        filled = Forecaster(**settings).fit(wrong)
    assert abs(masked.scores_.channel_mae[0] * masked.scaler_.std[0] - clean.scores_.channel_mae[0]) < 0.2
    errors = [np.abs(one.predict()["lead"] - clean.predict()["lead"]).mean() for one in (masked, filled)]
    assert errors[0] < errors[1]


def test_windows_with_gaps_in_their_truth_are_not_scored() -> None:
    df = waves(499)
    df.iloc[450:453, 1] = np.nan
    forecaster = Forecaster(**{**SMALL, "epochs": 1, "missing": "mask"}).fit(df)
    assert forecaster.scores_.windows == (99 - 6) - (3 + 6)
    assert np.isfinite(forecaster.predict().to_numpy()).all()
    df.iloc[400::5, 1] = np.nan
    with pytest.raises(InputError, match="no window of 7 steps from row 400 on is without a gap"):
        Forecaster(**{**SMALL, "missing": "mask"}).fit(df)


def test_a_loss_of_what_is_known_is_the_loss_of_the_rest() -> None:
    forecast, truth = torch.randn(2, 5, 3, 2, requires_grad=True)
    holed = truth.detach().clone()
    holed[1, 2, 0] = holed[4, 0, 1] = math.nan
    known = ~holed.isnan()
    value = masked_loss(mse)(forecast, holed)
    assert value.item() == pytest.approx((forecast - truth)[known].square().mean().item())
    (gradient,) = torch.autograd.grad(value, forecast)
    assert (gradient[~known] == 0).all() and gradient.isfinite().all()
    assert masked_loss(mse)(forecast, torch.full_like(holed, math.nan)).item() == 0


# ---------------------------------------------------------------- scikit-learn API


def test_parameters_are_got_set_and_cloned_as_scikit_learn_does_it(fitted: Forecaster) -> None:
    forecaster = Forecaster(**SMALL)
    params = forecaster.get_params()
    assert all(params[name] is SMALL[name] for name in SMALL)
    clone = Forecaster(**params)
    assert all(clone.get_params()[name] is value for name, value in params.items())
    assert forecaster.set_params(horizon=3, lr=1e-2) is forecaster
    assert (forecaster.horizon, forecaster.lr) == (3, 1e-2)
    with pytest.raises(InputError, match="horizon is -1"):
        forecaster.set_params(lr=5e-2, horizon=-1)
    assert (forecaster.horizon, forecaster.lr) == (3, 1e-2)
    with pytest.raises(InputError, match="unknown argument of Forecaster 'horzion'"):
        forecaster.set_params(horzion=3)
    assert repr(Forecaster(horizon=3, lr=0.1)) == "Forecaster(horizon=3, lr=0.1)"
    base = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed")
    assert base.clone(fitted).get_params() == fitted.get_params()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lookback": 0}, "lookback is 0; it must be a whole number of at least 1"),
        ({"epochs": True}, "epochs is True; it must be a whole number"),
        ({"seed": -1}, "seed is -1"),
        ({"lr": 0.0}, "lr is 0.0; it must be a finite number above 0"),
        ({"schedule": "half"}, "unknown schedule 'half'"),
        ({"missing": "drop"}, "unknown policy for missing values 'drop'"),
        ({"progress": "loud"}, "unknown progress 'loud'"),
        ({"season": 0}, "season is 0"),
        ({"future": ["noise", "noise"]}, r"future is \['noise', 'noise'\]; it must name each covariate once"),
        ({"model_args": {"primer": torch.nn.Identity()}}, "such as JSON can hold: .*Identity"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_anything_else(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Forecaster(**{**SMALL, **change})


def test_arguments_that_were_changed_after_fit_want_a_new_one(tmp_path: Path) -> None:
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(waves())
    before = forecaster.predict()
    forecaster.set_params(horizon=3)
    for ask in (forecaster.predict, forecaster.backtest, lambda: forecaster.save(tmp_path / "model")):
        with pytest.raises(
            InputError, match="was fitted with horizon=7 and has horizon=3 now: fit it again, or set it"
        ):
            ask()
    assert not (tmp_path / "model").exists()
    assert len(forecaster.fit(waves()).predict()) == 3
    again = Forecaster(**{**SMALL, "epochs": 1}).fit(waves())
    pd.testing.assert_frame_equal(again.set_params(lr=0.5).set_params(lr=5e-4, progress="auto").predict(), before)
    again.save(tmp_path / "model")
    with pytest.raises(InputError, match="fitted with seed=0 and has seed=3 now"):
        Forecaster.load(tmp_path / "model").set_params(seed=3).predict()


def test_a_fit_that_is_refused_leaves_the_fitted_state() -> None:
    forecaster = Forecaster(**{**SMALL, "epochs": 1}).fit(waves())
    before = forecaster.predict()
    for bad in (
        waves().iloc[:30],
        waves().assign(noise=["x", *"1" * 330]),
        waves().assign(noise=np.inf),
        "nowhere.csv",
    ):
        with pytest.raises(InputError):
            forecaster.fit(bad)
    pd.testing.assert_frame_equal(forecaster.predict(), before)


def test_refitting_on_all_rows_changes_the_forecast_and_not_the_scores() -> None:
    settings = {**SMALL, "epochs": 2}
    one, other = (Forecaster(**settings, refit=refit).fit(waves()) for refit in (False, True))
    assert one.scores_.mse == other.scores_.mse
    assert np.array_equal(one.calibration_, other.calibration_)
    assert not one.predict().equals(other.predict())


def test_the_periods_are_told(fitted: Forecaster) -> None:
    index = waves().index
    assert fitted.periods_ == {
        "train": (str(index[0]), str(index[230])),
        "val": (str(index[231]), str(index[264])),
        "test": (str(index[265]), str(index[330])),
    }


def test_a_training_that_does_not_fit_into_memory_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primecast.forecasting.memory.machine_memory", lambda: 10**3)
    with pytest.raises(
        InputError, match=r"on 3 channels, batch_size \d+, takes about 0 GB of memory, and this machine"
    ):
        Forecaster(**SMALL).fit(waves())
    small = Arguments(**resolve(Forecaster(horizon=24, model="itransformer").get_params()))
    for channels, gigabytes in ((700, 4.3), (5000, 213)):  # 32 windows; a step of 4 with 700 was measured: 0.73 GB
        assert needed_bytes(small, channels=channels, n_time_features=4) == pytest.approx(gigabytes * 1e9, rel=0.05)


def test_scores_are_three_lines_and_a_notebook_shows_a_table(fitted: Forecaster) -> None:
    lines = str(fitted.scores_).splitlines()
    assert len(lines) == 3
    assert lines[0] == f"Scores of {fitted.scores_.windows} windows, {fitted.horizon} steps, 3 channels"
    assert lines[1].startswith(f"MSE {fitted.scores_.mse:.4g}: ") and lines[2].startswith("MAE ")
    html = fitted._repr_html_()
    assert "lead, follow, noise" in html and f"{fitted.naive_scores_.mse:.4g}" in html
    assert "no: call fit(df)" in Forecaster(horizon=3)._repr_html_()
    assert "&lt;b&gt;" in Forecaster(horizon=3, past=["<b>"])._repr_html_()
