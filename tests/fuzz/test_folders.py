"""Hostile folders of saved models: loaded, they forecast and can be saved; or they are refused in one sentence."""

import hashlib
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.frames.dates import future_index
from primecast.storage.folder import CARD, CONFIG, WEIGHTS, with_checksum
from tests.fuzz.mutations import NASTY, damaged, mutated
from tests.fuzz.outcomes import fuzz, outcome
from tests.test_forecaster import SMALL, waves


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders of a single model of dates, and of an ensemble of numbered rows."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("single", "ensemble")}
    small: dict[str, Any] = {**SMALL, "epochs": 1}
    Forecaster(**small, future=["noise"]).fit(waves(151)).save(folders["single"])
    rows = waves(151).reset_index(drop=True)
    Forecaster(**{**small, "model": "dlinear", "model_args": None}, quality="fast", past=["noise"]).fit(rows).save(
        folders["ensemble"]
    )
    return folders


def use(folder: Path, config: object, weights: bytes) -> None:
    """Load a folder of this content and do everything with it that needs no other rows than its own."""
    folder.mkdir(exist_ok=True)
    if isinstance(config, dict) and config.get("checksum"):
        config = with_checksum(config)
    (folder / CONFIG).write_text(json.dumps(config))
    (folder / WEIGHTS).write_bytes(weights)
    (folder / CARD).unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of future values that are not known
        forecaster = Forecaster.load(folder)
        check(forecaster)
        forecaster.leaderboard()
        forecaster.save(folder.with_name("again"))
        check(Forecaster.load(folder.with_name("again")))
        state = forecaster.state_
        rows = state.recent.frame.tail(2).set_axis(future_index(state.recent.index, 2), axis="index")
        forecaster.update(rows[state.columns])
        check(forecaster)


def check(forecaster: Forecaster) -> None:
    """Check that a forecast, if there is one, consists of finite numbers within its intervals."""
    try:
        forecast = forecaster.predict(level=[50])
    except InputError as error:
        if "held-out windows" not in str(error):
            raise
        forecast = forecaster.predict()
    state = forecaster.state_
    if state.layout.kind == "numpy" or state.layout.id is not None:
        numbers = forecast if isinstance(forecast, np.ndarray) else forecast.iloc[:, 2:].to_numpy(float)
        assert np.isfinite(numbers).all()
        return
    assert isinstance(forecast, pd.DataFrame) and len(forecast) == state.horizon
    assert np.isfinite(forecast.select_dtypes("number").to_numpy()).all()
    for name in forecast.columns:
        if f"{name}-lo-50" in forecast.columns:
            assert (forecast[f"{name}-lo-50"] <= forecast[f"{name}-hi-50"]).all()


def with_digest(config: dict[str, Any], weights: bytes) -> dict[str, Any]:
    return {**config, "sha256": hashlib.sha256(weights).hexdigest()}


@fuzz(few=20)
@given(st.data())
def test_a_folder_with_a_mutated_configuration(tmp_path: Path, saved: dict[str, Path], data: st.DataObject) -> None:
    source = saved[data.draw(st.sampled_from(sorted(saved)))]
    config = mutated(data, json.loads((source / CONFIG).read_text()))
    outcome("configurations", lambda: use(tmp_path / "folder", config, (source / WEIGHTS).read_bytes()))


@fuzz(few=8)
@given(st.data())
def test_a_folder_with_weights_of_changed_bytes(tmp_path: Path, saved: dict[str, Path], data: st.DataObject) -> None:
    source = saved[data.draw(st.sampled_from(sorted(saved)))]
    weights = damaged(data, (source / WEIGHTS).read_bytes())
    config = with_digest(json.loads((source / CONFIG).read_text()), weights)
    outcome("weights of changed bytes", lambda: use(tmp_path / "folder", config, weights))


NUMBERS = [number for number in NASTY if isinstance(number, int | float) and abs(number) < 1 << 63]


def as_a_number_of(dtype: torch.dtype, number: float) -> float | bool:
    """Return the number, or the nearest one that a tensor of this type can be given."""
    if dtype == torch.bool:
        return bool(number)
    if dtype.is_floating_point:
        return number
    limits = torch.iinfo(dtype)
    return 0 if math.isnan(number) else int(max(limits.min, min(limits.max, number)))


@fuzz(few=8)
@given(st.data())
def test_a_folder_with_weights_of_changed_numbers(tmp_path: Path, saved: dict[str, Path], data: st.DataObject) -> None:
    source = saved[data.draw(st.sampled_from(sorted(saved)))]
    tensors = load((source / WEIGHTS).read_bytes())
    name = data.draw(st.sampled_from(sorted(tensors)))
    tensor = tensors[name]
    action = data.draw(st.sampled_from(["one", "all", "scale", "shape", "type", "delete"]))
    number = data.draw(st.one_of(st.sampled_from(NUMBERS), st.floats(width=32)))
    if action in ("one", "all"):
        flat = tensor.view(-1)
        flat[: 1 if action == "one" else None] = as_a_number_of(tensor.dtype, number)
    elif action == "scale":
        tensors[name] = (tensor.double() * number).to(tensor.dtype)
    elif action == "shape":
        tensors[name] = data.draw(st.sampled_from([tensor.flatten(), tensor[None], tensor[:0], tensor[:1]]))
    elif action == "type":
        tensors[name] = tensor.to(data.draw(st.sampled_from([torch.float64, torch.float16, torch.int8, torch.bool])))
    else:
        del tensors[name]
    weights = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    config = with_digest(json.loads((source / CONFIG).read_text()), weights)
    outcome("weights of changed numbers", lambda: use(tmp_path / "folder", config, weights))
