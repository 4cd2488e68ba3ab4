"""The folder of a saved Forecaster: the fitted state that is written into it, and its way back.

What is read is checked before it is used: the configuration in `saved_config`, the files in `storage.folder`.

Letters: n columns, k targets, t rows, m calibration windows, h horizon.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from primecast.data.windows import Scaler, is_subhourly
from primecast.errors import InputError
from primecast.forecasting.arguments import Arguments, tensor_kinds
from primecast.forecasting.designs import DESIGNS
from primecast.forecasting.ensemble import Ensemble, build_forecast_model, parts_of, retrained_places, with_parts
from primecast.forecasting.intervals import Calibration
from primecast.forecasting.memory import check_forecast_memory
from primecast.forecasting.model_card import model_card
from primecast.forecasting.saved_config import (
    FORM,
    VERSION,
    Saved,
    check_config,
    check_fields,
    index_as_json,
    open_forecaster,
)
from primecast.forecasting.state import FittedState
from primecast.frames.dates import Index, describe_step
from primecast.frames.layouts import Layout
from primecast.frames.roles import Roles, shifts
from primecast.frames.validate import CheckedFrame, check_magnitude
from primecast.frames.window_builder import WindowBuilder
from primecast.storage.folder import read_consistently, save_folder
from primecast.storage.tensors import load_weights

MEMBER = ("model", "attention", "model_args", "lookback", "lr", "epochs", "seed")
"""The arguments in which a member of an ensemble differs from its Forecaster."""
# ---------------------------------------------------------------- saving


def save_state(state: FittedState, folder: Path) -> None:
    """Write config.json, model.safetensors and README.md into the folder, all of them or none."""
    save_forecaster(
        folder,
        params=asdict(state.arguments),
        model=_saved_modules(state.model, _final_parts(state.model, state.final, refit=state.arguments.refit)),
        index=state.recent.index,
        fields={
            "columns": state.columns,
            "layout": asdict(state.layout),
            "time_features": _n_time_features(state.arguments, state.roles, state.recent.index, state.builder.minute),
            "season": state.season,
            "stride": state.stride,
            "rows": state.rows,
            "periods": {name: list(ends) for name, ends in state.periods.items()},
            "facts": state.facts,
            "signed": state.calibration.signed,
            "final": state.final is not None,
            "weights_by_channel": isinstance(state.model, Ensemble) and state.model.weights.ndim == 2,
            "members": [{name: getattr(member, name) for name in MEMBER} for member in state.members],
        },
        arrays={
            "scaler.mean": state.scaler.mean,
            "scaler.std": state.scaler.std,
            "recent.values": state.recent.frame.to_numpy(),
            "recent.gaps": state.recent.gaps,
            "constant": state.constant,
            "naive_mae": state.naive_mae,
            "calibration": state.calibration.errors,
            "calibration.forecasts": state.calibration.forecasts,
            "calibration.origins": state.calibration.origins,
            "nonnegative": state.nonnegative,
        },
        card=model_card(state.facts),
    )


def _final_parts(model: nn.Module, final: nn.Module | None, *, refit: bool) -> dict[int, nn.Module]:
    """Return the parts of the final model that are not those of the model, by their places."""
    if final is None:
        return {}
    return {place: parts_of(final)[place] for place in retrained_places(model, refit=refit)}


def _saved_modules(model: nn.Module, again: Mapping[int, nn.Module]) -> nn.ModuleDict:
    """Return the modules whose tensors a folder holds: the model, and what the final model has instead of its parts."""
    return nn.ModuleDict({"model": model, "final": nn.ModuleDict({str(place): part for place, part in again.items()})})


def _build_saved(arguments: Arguments, members: list[Arguments], *, final: bool, **sizes: Any) -> nn.ModuleDict:
    model = build_forecast_model(arguments, members, **sizes)
    return _saved_modules(model, _final_parts(model, deepcopy(model) if final else None, refit=arguments.refit))


def _n_time_features(arguments: Arguments, roles: Roles, index: pd.Index, minute: bool) -> int:
    calendar = 4 + minute if isinstance(index, pd.DatetimeIndex) else 0
    covariates = len(roles.future)
    return calendar + len(shifts(lookback=arguments.lookback, horizon=arguments.horizon)) * covariates


def save_forecaster(
    folder: Path,
    *,
    params: Mapping[str, Any],
    model: nn.Module,
    index: Index,
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    card: str,
) -> None:
    """Write the folder, after checking that it can be loaded; on failure it holds what it held before."""
    tensors = {
        **model.state_dict(),
        **{name: torch.from_numpy(array.copy()) for name, array in arrays.items()},
    }
    config = {
        "version": VERSION,
        "params": dict(params),
        "index": index_as_json(index),
        "windows": len(arrays["calibration"]),
        **fields,
    }
    _check_loadable(folder, config, tensors, index)
    save_folder(folder, form=FORM, config=config, tensors=tensors, card=card)


def _check_loadable(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], index: Index) -> None:
    """Refuse what could not be loaded again, before the folder is touched."""
    try:
        saved = check_config(folder, json.loads(json.dumps(config, allow_nan=False)), arguments=config["params"])
    except ValueError as error:  # of JSON, and every InputError
        raise InputError(f"cannot save to {folder}, from where it could not be loaded: {error}") from error
    if not _same(saved.index, index):
        raise InputError(
            f"cannot save to {folder}: the step and zone of the rows, {describe_step(index)}, have no name from which "
            "they could be loaded; give the frame an index whose freq has one, such as 'h', 'B' or 'MS', in a zone "
            "such as 'Europe/Berlin'"
        )
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"cannot save to {folder}: {name} holds values that are not finite numbers")


def _same(one: Index, other: Index) -> bool:
    """Return whether the rows, the future rows and their local times are the same."""
    if not (isinstance(one, pd.DatetimeIndex) and isinstance(other, pd.DatetimeIndex)):
        return one.equals(other)
    clocks = [index.tz_localize(None) for index in (one, other)]
    return one.freq == other.freq and bool((one == other).all()) and bool((clocks[0] == clocks[1]).all())


# ---------------------------------------------------------------- loading


def load_state(folder: Path) -> FittedState:
    """Return the state that `save_state` wrote; every name, size and number is checked first."""
    return read_consistently(folder, lambda: _load_state(folder))


def _load_state(folder: Path) -> FittedState:
    saved = open_forecaster(folder, arguments=[field.name for field in fields(Arguments)])
    with saved.reraise_for():
        arguments = Arguments(**saved.fields["params"])
        arguments.check()
        columns: list[str] = saved.fields["columns"]
        roles = Roles.of(columns, past=arguments.past or (), future=arguments.future or ())
        minute, n_time_features = _check_time_features(saved, arguments, roles)
        sizes = {"channels": len(roles.channels), "n_time_features": n_time_features}
        members = _members(arguments, saved.fields["members"])
        final, by_channel = saved.fields["final"], saved.fields["weights_by_channel"]
        build = partial(_build_saved, arguments, members, final=final, weights_by_channel=by_channel, **sizes)
        kinds = tensor_kinds(build)
        for one in members or [arguments]:
            check_forecast_memory(one, **sizes)
        weights, arrays = saved.tensors(kinds, _array_kinds(saved, roles, arguments.horizon))
        scaler = Scaler(mean=arrays["scaler.mean"], std=arrays["scaler.std"])
        frame = pd.DataFrame(arrays["recent.values"], index=saved.index, columns=list(roles.columns))
        recent = CheckedFrame(frame, arrays["recent.gaps"])
        calibration = _calibration(saved, arrays)
        _check_arrays(arrays, recent, scaler, lookback=arguments.lookback, signed=calibration.signed)
        modules = build()
        load_weights(modules, weights, source=str(folder))
        model, again = modules.eval()["model"], dict(modules["final"].items())  # type: ignore[operator]
        parts = [again.get(str(place), part) for place, part in enumerate(parts_of(model))]
        return FittedState(
            arguments=arguments,
            model=model,
            final=with_parts(model, parts) if final else None,
            builder=WindowBuilder(scaler, roles, arguments.lookback, arguments.horizon, arguments.missing, minute),
            layout=Layout(**saved.fields["layout"]),
            columns=columns,
            recent=recent,
            periods={name: (str(first), str(last)) for name, (first, last) in saved.fields["periods"].items()},
            constant=arrays["constant"],
            naive_mae=arrays["naive_mae"],
            calibration=calibration,
            nonnegative=arrays.get("nonnegative", np.zeros(len(roles.targets), dtype=bool)),
            members=tuple(members),
            **{name: saved.fields[name] for name in ("season", "stride", "rows", "facts")},
        )


def _calibration(saved: Saved, arrays: Mapping[str, np.ndarray]) -> Calibration:
    """Return the errors of held-out windows; before 0.2 they were absolute, at a constant stride."""
    errors, fields = arrays["calibration"], saved.fields
    if not saved.former:
        return Calibration(errors, arrays["calibration.forecasts"], arrays["calibration.origins"], fields["signed"])
    origins = np.arange(1 - len(errors), 1) * fields["stride"] - fields["rows"] - errors.shape[1]
    return Calibration(errors, np.zeros_like(errors), origins, signed=False)


def _check_arrays(
    arrays: Mapping[str, np.ndarray], recent: CheckedFrame, scaler: Scaler, *, lookback: int, signed: bool
) -> None:
    """Refuse numbers that no fitted Forecaster has."""
    if len(recent) < lookback or not (scaler.std > 0).all():
        raise InputError("its rows are fewer than the look-back, or a standard deviation of its scaler is not above 0")
    absolute = {"naive_mae": arrays["naive_mae"]} | ({} if signed else {"calibration": arrays["calibration"]})
    for name, errors in absolute.items():
        if (errors < 0).any():
            raise InputError(f"its {name} holds absolute errors below 0")
    check_magnitude(recent, scaler)


def _members(arguments: Arguments, saved: list[Any]) -> list[Arguments]:
    """Return the members of an ensemble, each checked as the arguments of one model."""
    if bool(saved) != bool(arguments.quality) or len(saved) > len(DESIGNS):
        raise InputError(f"it has {len(saved)} members with quality {arguments.quality!r}")
    members = []
    for one in saved:
        check_fields(one, dict.fromkeys(MEMBER, object), "a member")
        member = replace(arguments, quality=None, time_limit=None, **one)
        member.check()
        if member.lookback > arguments.lookback:
            raise InputError(f"a member has look-back {member.lookback}, its Forecaster {arguments.lookback}")
        members.append(member)
    return members


def _check_time_features(saved: Saved, arguments: Arguments, roles: Roles) -> tuple[bool, int]:
    """Return whether they include the minute of the hour, and their number; before 0.2 they never did."""
    given = saved.fields["time_features"]
    allowed = {
        _n_time_features(arguments, roles, saved.index, minute): minute
        for minute in ((True, False) if is_subhourly(saved.index) else (False,))
    }
    if given not in allowed:
        raise InputError(f"it has {given} time features, but its other fields need {min(allowed)}")
    return allowed[given], given


def _array_kinds(saved: Saved, roles: Roles, horizon: int) -> dict[str, str]:
    n, k, rows, windows = len(roles.columns), len(roles.targets), len(saved.index), saved.fields["windows"]
    later = {
        "calibration.forecasts": f"float32[{windows}, {horizon}, {k}]",
        "calibration.origins": f"int64[{windows}]",
        "nonnegative": f"bool[{k}]",
    }
    return {
        **({} if saved.former else later),
        "scaler.mean": f"float64[{n}]",
        "scaler.std": f"float64[{n}]",
        "recent.values": f"float64[{rows}, {n}]",
        "recent.gaps": f"bool[{rows}, {n}]",
        "constant": f"bool[{k}]",
        "naive_mae": f"float64[{k}]",
        "calibration": f"float32[{windows}, {horizon}, {k}]",
    }
