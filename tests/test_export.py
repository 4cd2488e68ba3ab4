"""An exported model says what the model says: torch's exported programs, and ONNX run by onnxruntime alone."""

import json
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.data.windows import calendar_features
from primecast.errors import InputError
from primecast.forecasting.export import export_onnx, export_program, exportable
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.state import NotFittedError
from primecast.models import MODELS, create_model

L, S, N, M = 19, 7, 5, 3
SMALL: dict[str, dict[str, Any]] = {
    "autoformer": {"d_model": 12, "n_heads": 3, "n_layers": 1, "d_ff": 17, "kernel": 5},
    "gat": {"d_model": 12, "n_heads": 3, "n_layers": 1},
    "itransformer": {"d_model": 12, "n_heads": 2, "n_layers": 1},
    "timer_xl": {"d_model": 12, "n_heads": 2, "n_layers": 1, "patch": L},
    "patchtst": {"d_model": 12, "n_heads": 3, "n_layers": 1, "d_ff": 13},
    "lift": {"leaders": 3, "states": 2},
    "lagts-reconstruction": {"d_model": 12, "hidden": 7},
}
FOURIER = "it computes Fourier transforms"
NOT_AS_ONNX = {
    "autoformer": FOURIER,  # its attention is an auto-correlation
    "lift": FOURIER,  # it finds leads by correlation, and refines frequencies
    "gat+prime": FOURIER,  # it projects the lags of listed pairs in the frequency domain
}
"""Models that cannot be written as ONNX, and why; all others can."""


def needs_onnx() -> Any:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason="ONNX export needs the extra: pip install 'primecast[export]'")
    return pytest.importorskip("onnxruntime", reason="ONNX is checked with onnxruntime, of the extra `export`")


def small(name: str, **options: Any) -> nn.Module:
    accepted = signature(MODELS[name].build).parameters
    time_features = {"n_time_features": M} if "n_time_features" in accepted else {}
    model = create_model(name, lookback=L, horizon=S, channels=N, **{**SMALL.get(name, {}), **time_features, **options})
    for parameter in model.parameters():  # as after training: nothing is at its start, which may be zero
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


def windows(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, L, N).cumsum(1), torch.rand(batch, L + S, M) - 0.5


def run(path: Path, **inputs: np.ndarray) -> np.ndarray:
    session = needs_onnx().InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    assert {one.name for one in session.get_inputs()} == set(inputs)
    (forecast,) = session.run(["forecast"], inputs)
    return np.asarray(forecast)


PRIMERS = {"": None, "prime": "full", "table": "table"}
VARIANTS = [
    f"{name}+{kind}".rstrip("+")
    for name, entry in MODELS.items()
    for kind in PRIMERS
    if entry.supports_primer or not kind
]


def variant(name: str) -> nn.Module:
    model, _, kind = name.partition("+")
    return small(model, **({"primer": PRIMERS[kind]} if kind else {}))


def check_program(name: str) -> None:
    model = variant(name)
    program = export_program(model, lookback=L, horizon=S, channels=N, n_time_features=M)
    for batch in (1, 5):
        x, time_features = windows(batch)
        assert_close(program.module()(x, time_features), model(x, time_features), rtol=1e-5, atol=1e-5)


def check_onnx(name: str, path: Path) -> None:
    model = variant(name)
    if name in NOT_AS_ONNX:
        with pytest.raises(InputError, match=f"cannot be (exported|written as ONNX): {NOT_AS_ONNX[name]}"):
            export_onnx(model, path, lookback=L, horizon=S, channels=N, n_time_features=M)
        assert not path.exists()
        return
    export_onnx(model, path, lookback=L, horizon=S, channels=N, n_time_features=M)
    for batch in (1, 5):
        x, time_features = windows(batch)
        expected = model(x, time_features).detach().numpy()
        np.testing.assert_allclose(
            run(path, x=x.numpy(), time_features=time_features.numpy()), expected, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("name", ["itransformer+prime", "itransformer+table", "timer_xl+table"])
def test_an_exported_program_says_what_the_model_says(name: str) -> None:
    check_program(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_every_model_exports_as_a_program(name: str) -> None:
    check_program(name)


@pytest.mark.parametrize("name", ["itransformer+prime", "itransformer+table"])
def test_an_onnx_file_says_what_the_model_says_at_any_batch(name: str, tmp_path: Path) -> None:
    needs_onnx()
    check_onnx(name, tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_every_model_is_written_as_onnx_or_says_why_not(name: str, tmp_path: Path) -> None:
    needs_onnx()
    check_onnx(name, tmp_path / "model.onnx")


def test_a_model_without_marks_has_one_input(tmp_path: Path) -> None:
    needs_onnx()
    model = create_model("dlinear", lookback=L, horizon=S, channels=N).eval()
    export_onnx(model, tmp_path / "m.onnx", lookback=L, horizon=S, channels=N, metadata={"site": "plant 7"})
    x, _ = windows(3)
    np.testing.assert_allclose(run(tmp_path / "m.onnx", x=x.numpy()), model(x).detach().numpy(), rtol=1e-5, atol=1e-5)
    session = needs_onnx().InferenceSession((tmp_path / "m.onnx").read_bytes())
    assert session.get_modelmeta().custom_metadata_map.items() >= {("site", "plant 7"), ("lookback", str(L))}
    assert session.get_inputs()[0].shape == ["batch", L, N] and session.get_outputs()[0].shape == ["batch", S, N]


def test_the_copy_computes_by_products_and_the_model_stays_as_it_is() -> None:
    model = small("itransformer", primer="full", dropout=0.5).train()
    forms = [module.form for module in model.modules() if hasattr(module, "form")]
    twin = exportable(model)
    assert forms == ["auto", "auto"] == [module.form for module in model.modules() if hasattr(module, "form")]
    assert [module.form for module in twin.modules() if hasattr(module, "form")] == ["matrix", "matrix"]
    assert model.training and not twin.training and all(p.requires_grad for p in model.parameters())
    x, time_features = windows(2)
    assert_close(twin(x, time_features), model.eval()(x, time_features), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- forecasters


def fitted(**options: Any) -> tuple[Forecaster, pd.DataFrame]:
    index = pd.date_range("2024-02-27", periods=205, freq="h", tz="Europe/Berlin")
    steps = np.arange(205)
    values = {
        "power": 5e5 + 1e4 * np.sin(steps / 3.7) + np.random.default_rng(0).normal(size=205),
        "still": np.full(205, 3.25),
        "valve": np.cos(steps / 3.7),
        "holiday": (steps // 24 % 7 == 6).astype(float),
    }
    frame = pd.DataFrame(values, index=index)[[*options.pop("columns", values)]]
    args = {"d_model": 12, "n_heads": 2, "n_layers": 1}
    forecaster = Forecaster(horizon=S, lookback=L, model_args=args, epochs=1, progress="off", **options)
    return forecaster, frame


def same_in_units(forecast: np.ndarray, expected: pd.DataFrame, frame: pd.DataFrame) -> None:
    """To 1e-5 of each channel's deviation."""
    error = np.abs(forecast - expected.to_numpy()) / np.maximum(frame[expected.columns].std().to_numpy(), 1e-9)
    assert error.max() < 1e-5


@pytest.mark.filterwarnings("ignore::primecast.frames.validate.ConstantChannelWarning")
def test_a_forecaster_alone_in_a_file_takes_and_returns_original_units(tmp_path: Path) -> None:
    needs_onnx()
    forecaster, frame = fitted(past=["valve"], future=["holiday"])
    forecaster.fit(frame)
    known = pd.DataFrame(
        {"holiday": [1.0] * S}, index=pd.date_range(frame.index[-1], periods=S + 1, freq="h", name=frame.index.name)[1:]
    )
    expected = forecaster.predict(future=known)
    forecaster.export(tmp_path / "model.onnx")

    session = needs_onnx().InferenceSession((tmp_path / "model.onnx").read_bytes())
    facts = session.get_modelmeta().custom_metadata_map
    channels, future = json.loads(facts["channels"]), json.loads(facts["future"])
    assert json.loads(facts["targets"]) == ["power", "still"] and channels == ["power", "still", "valve"]
    assert (facts["lookback"], facts["horizon"], facts["frequency"], facts["units"]) == (
        str(L),
        str(S),
        "h",
        "original",
    )
    assert facts["zone"] == "Europe/Berlin"
    rows = frame.iloc[-int(facts["lookback"]) :]
    inputs = {
        "window": rows[channels].to_numpy()[None],
        "calendar": calendar_features(pd.DatetimeIndex(rows.index.append(known.index))).numpy()[None],
        "future": np.concatenate([rows[future], known[future]])[None],
    }
    (forecast,) = session.run(["forecast"], inputs)
    same_in_units(forecast[0], expected, frame)
    assert (forecast[0, :, 1] == 3.25).all()

    moved = rows[[*channels, *future]].copy()
    moved.iloc[-3:, 1] = 7.0  # a channel that stood still in `fit` begins to move
    inputs["window"] = moved[channels].to_numpy()[None]
    (forecast,) = session.run(["forecast"], inputs)
    same_in_units(forecast[0], forecaster.predict(moved, future=known), frame.assign(still=moved["still"]).fillna(3.25))


def test_a_forecaster_of_counted_rows_takes_windows_alone(tmp_path: Path) -> None:
    needs_onnx()
    forecaster, frame = fitted(columns=["power", "valve"])
    frame = frame.reset_index(drop=True)
    forecaster.fit(frame)
    forecaster.export(tmp_path / "model.onnx")
    window = frame.to_numpy()[-L:][None].repeat(2, axis=0)
    forecast = run(tmp_path / "model.onnx", window=window)
    for one in forecast:
        same_in_units(one, forecaster.predict(), frame)


def test_a_forecaster_that_is_not_fitted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="has not been fitted: there is nothing to export"):
        fitted()[0].export(tmp_path / "model.onnx")


def test_a_missing_package_is_named_with_the_extra_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = create_model("dlinear", lookback=L, horizon=S, channels=N)
    with pytest.raises(InputError, match=r"needs onnx, which is not installed: pip install 'primecast\[export\]'"):
        export_onnx(model, tmp_path / "model.onnx", lookback=L, horizon=S, channels=N)
