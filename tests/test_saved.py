"""What a folder is saved with comes back the same, or is refused before the folder is touched."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dateutil.tz import gettz, tzoffset, tzutc
from torch import nn

from primecast.errors import InputError
from primecast.forecasting import fitting
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.persistence import save_forecaster
from primecast.forecasting.saved_config import open_forecaster
from primecast.frames.dates import Index, future_index

HOURS = pd.date_range("2024-01-01", periods=8, freq="h")
PARAMS: dict[str, Any] = {"horizon": 3, "lookback": 5, "model_args": {"d_model": 7}, "season": None, "batch_size": 32}
FACTS: dict[str, Any] = {
    "data": {"targets": ["a", "17"], "past": [], "future": [], "step": "hourly", "missing": "mask", "season": 1}
    | {"periods": {key: ["2024-01-01", "2024-01-02"] for key in ("train", "val", "test")}},
    "model": {"name": "dlinear", "attention": "standard", "parameters": 11, "lookback": 5, "horizon": 3},
    "scores": {"windows": 2, "mse": 0.5, "mae": 0.5, "naive_mse": 0.5, "naive_mae": 1},
    "coverage": {"80": 0.75, "90": None},
    "calibration": 2,
    "versions": {"primecast": "0.2.0"},
}


def save(folder: Path, index: Index = HOURS, *, error: float = 0.5, mse: float = 0.5, **params: Any) -> None:
    save_forecaster(
        folder,
        params={**PARAMS, **params},
        model=nn.Linear(2, 3),
        index=index,
        fields={
            "columns": ["a", "17"],
            "layout": dict.fromkeys(("time", "id", "value", "dayfirst")) | {"kind": "pandas", "whole": ["17"]},
            **dict.fromkeys(("time_features", "season", "stride", "rows"), 1),
            "periods": {key: [str(index[0]), str(index[-1])] for key in ("train", "val", "test")},
            "facts": FACTS | {"scores": FACTS["scores"] | {"mse": mse}},
            "signed": True,
            **dict.fromkeys(("final", "weights_by_channel"), False),
            "members": [],
        },
        arrays={"calibration": np.full((2, 3, 2), error)},
        card="",
    )


def load(folder: Path) -> Index:
    return open_forecaster(folder, arguments=PARAMS).index


@pytest.mark.parametrize(
    "index",
    [
        *(HOURS, pd.RangeIndex(3, 27, 3), pd.RangeIndex(-5, 2)),
        *(HOURS.as_unit(unit) for unit in ("s", "ns")),
        *(pd.date_range("2024-01-01", periods=8, freq=freq) for freq in ("60min", "B", "W-WED", "ME", "QE-FEB", "C")),
        *(
            pd.date_range("2024-03-27", periods=8, freq="D", tz=zone)
            for zone in ("Europe/Berlin", "+02:00", gettz("Europe/Berlin"), tzutc(), tzoffset(None, 7200))
        ),
    ],
    ids=str,
)
def test_rows_and_those_to_come_are_the_same_after_loading(index: Index, tmp_path: Path) -> None:
    save(tmp_path, index)
    loaded = load(tmp_path)
    assert list(loaded) == list(index)
    assert list(future_index(loaded, 29)) == list(future_index(index, 29))
    assert list(map(str, loaded)) == list(map(str, index))  # what a clock shows
    assert loaded.dtype == index.dtype or "tz" in str(index.dtype)  # zones of dateutil have other objects


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": pd.date_range("2024-01-01", periods=8, freq=pd.offsets.CustomBusinessDay(holidays=["2024-05-01"]))},
         r"the step and zone of the rows, 'C', have no name .*give the frame an index whose freq has one"),
        ({"index": pd.date_range("2024-01-01", periods=8, freq=pd.offsets.BusinessHour(start="10:00", end="16:00"))},
         "the step and zone of the rows, 'bh', have no name"),
        ({"index": pd.date_range("2024-01-01", periods=8, freq=pd.offsets.Easter())}, "could not be loaded: .*Easter"),
        ({"lookback": 1 << 17}, "could not be loaded: .*holds the size 131072; the largest a model may have is 65536"),
        ({"model_args": {"d_model": 1 << 17}}, "could not be loaded: .*holds the size 131072"),
        ({"error": np.nan}, "calibration holds values that are not finite numbers"),
        ({"mse": np.inf}, "could not be loaded: .*not JSON compliant"),
    ],
)  # fmt: skip
def test_what_could_not_be_loaded_is_refused_and_the_folder_stays(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=rf"cannot save to .*{message}") as refusal:
        save(tmp_path, **change)
    assert "\n" not in str(refusal.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert list(load(tmp_path)) == list(HOURS)


def test_what_takes_no_memory_may_be_large(tmp_path: Path) -> None:
    save(tmp_path, season=86400, batch_size=1 << 20)
    assert list(load(tmp_path)) == list(HOURS)


# ---------------------------------------------------------------- folders saved by earlier versions


@pytest.mark.parametrize("folder", sorted((Path(__file__).parent / "saved").glob("*/*")), ids=lambda path: path.name)
def test_a_folder_saved_by_an_earlier_version_gives_the_same_forecast(folder: Path, tmp_path: Path) -> None:
    then = json.loads((folder / "forecast.json").read_text())
    loaded = Forecaster.load(folder)
    loaded.save(tmp_path / "again")
    for forecaster in (loaded, Forecaster.load(tmp_path / "again")):
        forecast = forecaster.predict(level=[80])
        assert list(forecast.columns) == then["columns"] and list(map(str, forecast.index)) == then["index"]
        np.testing.assert_allclose(forecast.to_numpy(), then["values"], rtol=1e-6)


def test_rows_below_an_hour_have_the_minute_among_their_time_features_and_folders_without_it_keep_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).normal(size=(97, 2)).cumsum(0)
    frame = pd.DataFrame(values, index=pd.date_range("2024-01-01", periods=97, freq="15min"), columns=["a", "b"])
    settings: dict[str, Any] = {"model_args": {"d_model": 4, "n_heads": 2, "n_layers": 1}, "progress": "off"}

    def save_fitted(folder: Path) -> tuple[int, pd.DataFrame]:
        fitted = Forecaster(horizon=3, lookback=7, epochs=1, **settings).fit(frame)
        fitted.save(folder)
        pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), fitted.predict())
        return json.loads((folder / "config.json").read_text())["time_features"], fitted.predict()

    features, forecast = save_fitted(tmp_path / "now")
    monkeypatch.setattr(fitting, "is_subhourly", lambda index: False)  # as before 0.2
    before, other = save_fitted(tmp_path / "before")
    assert (features, before) == (5, 4) and not forecast.equals(other)
