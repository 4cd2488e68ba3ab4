"""The DataFrame door: same columns, original units, continued dates, and the benchmark's own path inside."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from primecast.data.frames import ConstantChannelWarning, dataset_from_frame
from primecast.data.windows import split, time_features
from primecast.errors import InputError
from primecast.forecaster import Forecaster, NotFittedError
from primecast.losses import mse
from primecast.models import create_model
from primecast.training import fit

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


def test_the_forecaster_goes_the_way_of_the_benchmark(fitted: Forecaster) -> None:
    df = waves()
    splits = split(dataset_from_frame(df), lookback=19, horizon=7)
    model = create_model(
        "itransformer", lookback=19, horizon=7, channels=3, marks=4, seed=0, primer="full", **SMALL["model_args"]
    )
    fit(model, splits.train, splits.val, loss=mse, lr=5e-4, batch_size=64, epochs=2, patience=3, seed=0, progress="off")
    window = torch.from_numpy(splits.scaler.transform(df.to_numpy()[-19:])).float()[None]
    index = pd.DatetimeIndex(df.index[-19:]).append(pd.DatetimeIndex(fitted.predict().index))
    with torch.no_grad():
        by_hand = splits.scaler.inverse(model(window, time_features(index)[None])[0].double().numpy())
    np.testing.assert_allclose(fitted.predict().to_numpy(), by_hand, rtol=1e-6)


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
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict(), check_freq=False)
    pd.testing.assert_frame_equal(loaded.predict(waves(400)), fitted.predict(waves(400)))
    assert loaded.get_params() == fitted.get_params()


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
        ({"horizon": 0}, "horizon 0 must be at least 1"),
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
        fitted.predict(df[["follow", "lead", "noise"]])
    with pytest.raises(InputError, match="looks at 19 rows, the frame has 18"):
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
    with pytest.raises(InputError, match="config.json"):
        Forecaster.load(tmp_path / "nowhere")
