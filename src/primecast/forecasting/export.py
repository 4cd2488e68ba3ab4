"""Export of models to files that run without primecast: ONNX, and torch's exported programs.

    model, fitted state ─> a copy whose primer features are matrix products ─> torch.export ─> ONNX ─> one file

The graph holds the whole model with its normalization and its primer. That of a Forecaster also holds its scaler, so
that it takes and returns original units; the file's metadata describe inputs and outputs. The batch size is free. The
user's model is never changed: a copy is exported.

ONNX has no Fourier transform here, so models that compute one are refused. Lag features are computed by products
instead (form "matrix" of `Primer`), equal up to rounding.

Letters: b windows in a batch, l look-back, h horizon, n channels, k targets, m time features, c future covariates.
"""

import copy
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float64
from torch import Tensor, nn

from primecast.data.windows import Scaler
from primecast.errors import InputError
from primecast.forecasting.state import FittedState
from primecast.frames.dates import zone_name
from primecast.frames.roles import shift_future_covariates
from primecast.nn.primer_layers import Instantaneous, LeadLag
from primecast.storage.atomic import write_bytes_atomically

CALENDAR = "hour / 23, day of week (Monday 0) / 6, (day of month - 1) / 30, (day of year - 1) / 365{}; each minus 0.5"
"""What a row of calendar features is, for those who have the file alone; `primecast.data.windows.calendar_features`."""


def exportable(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode, on the CPU, without gradients, whose primers use matrix products only."""
    twin = copy.deepcopy(model).cpu().eval().requires_grad_(False)
    for module in twin.modules():
        if isinstance(module, LeadLag | Instantaneous):
            module.form = "matrix"
    return twin


def export_program(
    model: nn.Module, *, lookback: int, horizon: int, channels: int, n_time_features: int = 0
) -> torch.export.ExportedProgram:
    """Return the exported program of a model for any batch size: `program.module()(x, time_features)`.

    n_time_features: those that the model was created with; 0: the program takes `x` alone.
    """
    twin = exportable(model)
    dtype = next((p.dtype for p in model.parameters()), torch.get_default_dtype())
    sizes = [(lookback, channels), *([(lookback + horizon, n_time_features)] if n_time_features else [])]
    return _program(twin, [torch.zeros(1, *size, dtype=dtype) for size in sizes])


def export_onnx(
    model: nn.Module,
    path: Path | str,
    *,
    lookback: int,
    horizon: int,
    channels: int,
    n_time_features: int = 0,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a model as ONNX: inputs `x` (b, l, n) and `time_features` (b, l + h, m), output `forecast` (b, h, n).

    n_time_features: those that the model was created with; 0: there is no input `time_features`.
    metadata: written into the file beside our own.
    """
    program = export_program(
        model, lookback=lookback, horizon=horizon, channels=channels, n_time_features=n_time_features
    )
    sizes = {"lookback": str(lookback), "horizon": str(horizon), "units": "as the model was trained on"}
    _write_onnx(program, Path(path), ["x", "time_features"][: 1 + bool(n_time_features)], {**sizes, **(metadata or {})})


def export_state(state: FittedState, path: Path | str) -> None:
    """Write a fitted state as ONNX that takes and returns original units, as float64.

    Inputs:  `window` (b, l, n): the last look-back rows of the channels named in the metadata.
             `calendar` (b, l + h, 4 or 5), float32, if its rows are dated: see CALENDAR; past rows, then future ones.
             `future` (b, l + h, c), if it has future covariates: past rows, then future ones.
    Output:  `forecast` (b, h, k): the targets named in the metadata.
    Metadata: `inputs`, `channels`, `targets`, `future` and `calendar` in JSON, `lookback`, `horizon`, `frequency`,
              `zone`, `units` and `primecast`, the version that wrote it.
    """
    roles, index = state.roles, state.recent.index
    dated = isinstance(index, pd.DatetimeIndex)
    steps = state.lookback + state.horizon
    example = {
        "window": torch.zeros(1, state.lookback, len(roles.channels), dtype=torch.float64),
        **({"calendar": torch.zeros(1, steps, 4 + state.builder.minute)} if dated else {}),
        **({"future": torch.zeros(1, steps, len(roles.future), dtype=torch.float64)} if roles.future else {}),
    }
    module = InUnits(
        exportable(state.final or state.model),
        state.scaler,
        targets=len(roles.targets),
        channels=len(roles.channels),
        constant=torch.tensor(state.constant),
        nonnegative=torch.tensor(state.nonnegative),
        inputs=list(example),
    )
    metadata = {
        "inputs": json.dumps(list(example)),
        "channels": json.dumps(roles.channels),
        "targets": json.dumps(roles.targets),
        "future": json.dumps(roles.future),
        "calendar": CALENDAR.format(", minute / 59" if state.builder.minute else "") if dated else "none",
        "lookback": str(state.lookback),
        "horizon": str(state.horizon),
        "frequency": str(index.freqstr) if isinstance(index, pd.DatetimeIndex) else "none: numbered rows",
        "zone": zone_name(index.tz) if isinstance(index, pd.DatetimeIndex) and index.tz is not None else "none",
        "units": "original",
    }
    _write_onnx(_program(module, list(example.values())), Path(path), list(example), metadata)


class InUnits(nn.Module):
    """A model between its scaler and its inverse: the computation of `Forecaster.predict` as one module."""

    mean: Tensor
    std: Tensor
    constant: Tensor
    nonnegative: Tensor

    def __init__(
        self,
        model: nn.Module,
        scaler: Scaler,
        *,
        targets: int,
        channels: int,
        constant: Bool[Tensor, "k"],
        nonnegative: Bool[Tensor, "k"],
        inputs: Sequence[str],
    ) -> None:
        super().__init__()
        self.model = model
        self.targets = targets
        self.channels = channels
        self.inputs = tuple(inputs)
        self.register_buffer("mean", torch.tensor(scaler.mean))
        self.register_buffer("std", torch.tensor(scaler.std))
        self.register_buffer("constant", constant)
        self.register_buffer("nonnegative", nonnegative)

    def forward(self, window: Float64[Tensor, "b l n"], *others: Tensor) -> Float64[Tensor, "b h k"]:
        """`others` are `calendar` (b, l + h, 4 or 5) and `future` (b, l + h, c), as far as `inputs` has them."""
        mean, std = self.mean[: self.channels], self.std[: self.channels]
        given = dict(zip(self.inputs[1:], others, strict=True))
        if "future" in given:
            given["future"] = ((given["future"] - self.mean[self.channels :]) / self.std[self.channels :]).float()
        time_features = None
        if given:
            known = given["future"].shape[-1] if "future" in given else 0
            time_features = shift_future_covariates(
                torch.cat(list(given.values()), dim=-1), known=known, lookback=window.shape[1]
            )
        forecast = self.model(((window - mean) / std).float(), time_features).double()
        original = (forecast * std + mean)[..., : self.targets]
        past = window[..., : self.targets]
        unchanged = self.constant & (past == mean[: self.targets]).all(1, keepdim=True)
        forecast = torch.where(unchanged, past[:, -1:], original)
        nonnegative = self.nonnegative & (past >= 0).all(1, keepdim=True)
        return torch.where(nonnegative, forecast.clamp(min=0), forecast)


# ---------------------------------------------------------------- the exporters


def _program(module: nn.Module, inputs: list[Tensor]) -> torch.export.ExportedProgram:
    """Return a program for any batch size; `inputs` are of one window."""
    batch = torch.export.Dim("batch", min=1)
    shapes: tuple[Any, ...] = tuple({0: batch} for _ in inputs)
    if isinstance(module, InUnits) and len(inputs) > 1:  # the others are one argument, a tuple
        shapes = (shapes[0], shapes[1:])
    with _quietly(_name(module), "exported"):
        return torch.export.export(
            module.eval(), tuple(x.expand(3, -1, -1).clone() for x in inputs), dynamic_shapes=shapes
        )


def _write_onnx(
    program: torch.export.ExportedProgram, path: Path, inputs: list[str], metadata: Mapping[str, str]
) -> None:
    for package in ("onnx", "onnxscript"):
        try:
            import_module(package)
        except ImportError as error:
            raise InputError(
                f"ONNX export needs {package}, which is not installed: pip install 'primecast[export]'"
            ) from error
    with _quietly("the model", "written as ONNX"):
        graph = torch.onnx.export(program, dynamo=True, verbose=False, input_names=inputs, output_names=["forecast"])
        assert graph is not None
        graph.model.metadata_props.update({**metadata, "primecast": version("primecast")})
        proto = graph.model_proto
        _name_the_batch(proto)
        data = proto.SerializeToString()
    write_bytes_atomically(path, data)


def _name_the_batch(proto: Any) -> None:
    """Rename the batch dimension to "batch": the exporter numbers sizes that are not fixed, such as "s3"."""
    numbered = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:  # inside the graph it may be a formula, such as "8*s3"
                size.dim_param = re.sub(rf"\b{re.escape(numbered)}\b", "batch", size.dim_param)


def _name(module: nn.Module) -> str:
    return type(module.model if isinstance(module, InUnits) else module).__name__


@contextmanager
def _quietly(what: str, done: str) -> Iterator[None]:
    """Silence the internal warnings of the exporters; raise their errors as one sentence with model and reason."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it misses torchvision, which is not needed here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        reason = _reason(error)
        raise InputError(f"{what} cannot be {done}: {reason}") from error
    finally:
        logger.setLevel(level)


REASONS = {
    "fft": "it computes Fourier transforms",
    "complex": "it computes Fourier transforms",
    "Constraints violated": "its result depends on the batch size",
    "data-dependent": "its control flow depends on the values of its inputs",
}
"""Phrases in errors of the exporters, and their meaning."""


def _reason(error: BaseException) -> str:
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    text = "\n".join(map(str, chain))
    known = (reason for phrase, reason in REASONS.items() if phrase in text)
    return next(known, next((line.strip() for line in str(chain[-1]).splitlines() if line.strip()), repr(error)))
