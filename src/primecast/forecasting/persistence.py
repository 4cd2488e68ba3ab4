"""The folder of a saved Forecaster: what is written into it, and every check before anything of it is used.

The checks go from cheap to expensive: fields and their types, sizes, names and shapes of the tensors as the file's
header has them; only then memory is allocated and numbers are read. Every refusal is one sentence, and nothing is
loaded. Folders saved by earlier versions are translated first, see `_current_names`.

Letters: n columns, k targets, t rows, m calibration windows, h horizon.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from primecast.data.windows import Scaler, is_subhourly
from primecast.errors import InputError, unknown
from primecast.forecasting.arguments import DESIGNS, Arguments, tensor_kinds
from primecast.forecasting.ensemble import build_forecast_model
from primecast.forecasting.model_card import model_card
from primecast.forecasting.state import FittedState
from primecast.frames.dates import Index, describe_step, zone_name
from primecast.frames.layouts import FILE, Layout
from primecast.frames.roles import Roles, shifts
from primecast.frames.validate import CheckedFrame
from primecast.frames.window_builder import WindowBuilder
from primecast.storage.tensors import CONFIG, WEIGHTS, load_tensors, load_weights, open_folder, save_folder

FORM = "primecast.Forecaster"
VERSION = 1
LARGEST = 1 << 16
"""No size of a model is larger."""
SIZES = ("horizon", "lookback", "model_args")
"""The arguments that decide how much memory a model needs."""
FIELDS: dict[str, type] = {
    "version": int,
    "params": dict,
    "index": dict,
    "windows": int,
    "columns": list,
    "layout": dict,
    "time_features": int,
    "season": int,
    "stride": int,
    "rows": int,
    "periods": dict,
    "facts": dict,
    "members": list,
}
MEMBER = ("model", "attention", "model_args", "lookback", "lr", "seed")
"""The arguments in which a member of an ensemble differs from its Forecaster."""
LAYOUT: dict[str, type | UnionType] = {
    **dict.fromkeys(("time", "id", "value"), str | None),
    "kind": str,
    "dayfirst": bool | None,
    "whole": list,
}
FORMER_NAMES = {
    "marks": "time_features",
    "channel_vectors": "channel_embeddings",
    "prime-free": "prime-table",
    "free": "table",
    "answering": "key",
}
"""Fields, arguments, attentions and kinds of a primer in folders saved before 0.2, and their names of today."""


# ---------------------------------------------------------------- saving


def save_state(state: FittedState, folder: Path) -> None:
    """Write config.json, model.safetensors and README.md into the folder, all of them or none."""
    save_forecaster(
        folder,
        params=asdict(state.arguments),
        model=state.model,
        index=state.recent.index,
        fields={
            "columns": state.columns,
            "layout": asdict(state.layout),
            "time_features": _n_time_features(state.arguments, state.recent.index, minute=state.builder.minute),
            "season": state.season,
            "stride": state.stride,
            "rows": state.rows,
            "periods": {name: list(ends) for name, ends in state.periods.items()},
            "facts": state.facts,
            "members": [{name: getattr(member, name) for name in MEMBER} for member in state.members],
        },
        arrays={
            "scaler.mean": state.scaler.mean,
            "scaler.std": state.scaler.std,
            "recent.values": state.recent.frame.to_numpy(),
            "recent.gaps": state.recent.gaps,
            "constant": state.constant,
            "naive_mae": state.naive_mae,
            "calibration": state.calibration,
        },
        card=model_card(state.facts),
    )


def _n_time_features(arguments: Arguments, index: pd.Index, *, minute: bool) -> int:
    calendar = 4 + minute if isinstance(index, pd.DatetimeIndex) else 0
    covariates = len(arguments.future or ())
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
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    config = {
        "version": VERSION,
        "params": dict(params),
        "index": _index_as_json(index),
        "windows": len(arrays["calibration"]),
        **fields,
    }
    _check_loadable(folder, config, tensors, index)
    save_folder(folder, form=FORM, config=config, tensors=tensors, card=card)


def _check_loadable(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], index: Index) -> None:
    """Refuse what could not be loaded again, before the folder is touched."""
    try:
        saved = _check_config(folder, json.loads(json.dumps(config, allow_nan=False)), arguments=config["params"])
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
    saved = open_forecaster(folder, arguments=[field.name for field in fields(Arguments)])
    with saved.reraise_for():
        arguments = Arguments(**saved.fields["params"])
        arguments.check()
        columns: list[str] = saved.fields["columns"]
        roles = Roles.of(columns, past=arguments.past or (), future=arguments.future or ())
        minute, n_time_features = _check_time_features(saved, arguments)
        sizes = {"channels": len(roles.channels), "n_time_features": n_time_features}
        members = _members(arguments, saved.fields["members"])
        kinds = tensor_kinds(partial(build_forecast_model, arguments, members, **sizes))
        weights, arrays = saved.tensors(kinds, _array_kinds(saved, roles, arguments.horizon))
        if len(saved.index) < arguments.lookback or not (arrays["scaler.std"] > 0).all():
            raise InputError(
                "its rows are fewer than the look-back, or a standard deviation of its scaler is not above 0"
            )
        model = build_forecast_model(arguments, members, **sizes)
        load_weights(model, weights, source=str(folder))
        scaler = Scaler(mean=arrays["scaler.mean"], std=arrays["scaler.std"])
        frame = pd.DataFrame(arrays["recent.values"], index=saved.index, columns=list(roles.columns))
        return FittedState(
            arguments=arguments,
            model=model.eval(),
            builder=WindowBuilder(scaler, roles, arguments.lookback, arguments.horizon, arguments.missing, minute),
            layout=Layout(**saved.fields["layout"]),
            columns=columns,
            recent=CheckedFrame(frame, arrays["recent.gaps"]),
            periods={name: (str(first), str(last)) for name, (first, last) in saved.fields["periods"].items()},
            constant=arrays["constant"],
            naive_mae=arrays["naive_mae"],
            calibration=arrays["calibration"],
            members=tuple(members),
            **{name: saved.fields[name] for name in ("season", "stride", "rows", "facts")},
        )


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


def _check_time_features(saved: "Saved", arguments: Arguments) -> tuple[bool, int]:
    """Return whether they include the minute of the hour, and their number; before 0.2 they never did."""
    given = saved.fields["time_features"]
    allowed = {
        _n_time_features(arguments, saved.index, minute=minute): minute
        for minute in ((True, False) if is_subhourly(saved.index) else (False,))
    }
    if given not in allowed:
        raise InputError(f"it has {given} time features, but its other fields need {min(allowed)}")
    return allowed[given], given


def _array_kinds(saved: "Saved", roles: Roles, horizon: int) -> dict[str, str]:
    n, k, rows, windows = len(roles.columns), len(roles.targets), len(saved.index), saved.fields["windows"]
    return {
        "scaler.mean": f"float64[{n}]",
        "scaler.std": f"float64[{n}]",
        "recent.values": f"float64[{rows}, {n}]",
        "recent.gaps": f"bool[{rows}, {n}]",
        "constant": f"bool[{k}]",
        "naive_mae": f"float64[{k}]",
        "calibration": f"float32[{windows}, {horizon}, {k}]",
    }


@dataclass(frozen=True, eq=False)
class Saved:
    """A folder whose configuration has been checked, and whose tensors have not been read yet.

    former: it was saved before 0.2, and its tensors have the names of then.
    """

    folder: Path
    fields: dict[str, Any]
    index: Index
    former: bool = False

    def tensors(
        self, model: Mapping[str, str], arrays: Mapping[str, str]
    ) -> tuple[dict[str, Tensor], dict[str, np.ndarray]]:
        """Return the weights and the arrays, if the file holds exactly these names with these types and shapes."""
        stored = {name: f"model.{name.replace('time_features', 'marks') if self.former else name}" for name in model}
        expected = {**{stored[name]: kind for name, kind in model.items()}, **arrays}
        read, _ = load_tensors(self.folder / WEIGHTS, expected)
        return {name: read[stored[name]] for name in model}, {name: read[name].numpy() for name in arrays}

    @contextmanager
    def reraise_for(self) -> Iterator[None]:
        """Raise errors from inside as an InputError that names this folder."""
        try:
            yield
        except (InputError, TypeError, ValueError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
            named = str(self.folder) in str(error)
            raise InputError(str(error) if named else f"{self.folder / CONFIG} cannot be used: {error}") from error


def open_forecaster(folder: Path, *, arguments: Collection[str]) -> Saved:
    """Return the checked configuration of a folder. arguments: those of a Forecaster, all of which must be there."""
    config = open_folder(folder, form=FORM)
    return replace(_check_config(folder, _current_names(config), arguments=arguments), former="marks" in config)


def _current_names(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the names of today, whichever version of primecast wrote it."""
    before_ensembles = "marks" in config
    config = {_current(name): value for name, value in config.items()}
    params, layout = config.get("params"), config.get("layout")
    if isinstance(layout, dict):
        config["layout"] = _current_layout(layout)
    if isinstance(params, dict):  # anything else is refused later
        config["params"] = params = {
            name: _current(value) if name == "attention" else value for name, value in params.items()
        }
        if before_ensembles:
            config["members"] = []
            params |= {"quality": None, "time_limit": None}
        if isinstance(params.get("model_args"), dict):
            params["model_args"] = {_current(name): value for name, value in params["model_args"].items()}
            primer = params["model_args"].get("primer")
            if isinstance(primer, dict):
                params["model_args"]["primer"] = {name: _current(value) for name, value in primer.items()}
            elif primer is not None:
                params["model_args"]["primer"] = _current(primer)
    return config


def _current(name: Any) -> Any:
    return FORMER_NAMES.get(name, name) if isinstance(name, str) else name


def _current_layout(layout: dict[str, Any]) -> dict[str, Any]:
    """Return a layout with the fields of today: files had names of their own, `dayfirst` was `day_first`."""
    file_names = {name: layout.pop(f"file_{name}", None) for name in ("id", "time", "value")}
    if any(name is not None for name in file_names.values()):
        layout = {**layout, **file_names, "kind": FILE}
    layout = {"dayfirst" if name == "day_first" else name: value for name, value in layout.items()}
    return {"dayfirst": None, "whole": [], **layout}


def _check_config(folder: Path, fields: dict[str, Any], *, arguments: Collection[str]) -> Saved:
    source = str(folder / CONFIG)
    if fields.get("version") != VERSION:
        raise InputError(f"{source} is of version {fields.get('version')!r}, this primecast reads version {VERSION}")
    check_fields(fields, FIELDS, source)
    check_fields(fields["params"], dict.fromkeys(arguments, object), f"params of {source}")
    check_fields(fields["layout"], LAYOUT, f"layout of {source}")
    _check_sizes({name: fields["params"][name] for name in SIZES}, source)
    if len(fields["columns"]) > LARGEST or not all(isinstance(name, str) for name in fields["columns"]):
        raise InputError(f"{source} cannot be used: its columns are not at most {LARGEST} names")
    columns = set(fields["columns"])
    for name in fields["layout"]["whole"]:
        if not (isinstance(name, str) and name in columns and re.fullmatch(r"-?\d{1,20}", name)):
            raise InputError(f"{source} cannot be used: it calls {name!r} a whole number that names one of its columns")
    with Saved(folder, fields, pd.RangeIndex(0)).reraise_for():
        return Saved(folder, fields, _index_from_json(fields["index"], source=source))


def check_fields(given: object, expected: Mapping[str, type | UnionType], where: str) -> None:
    """Refuse anything but a mapping of exactly these fields with values of these types."""
    if not isinstance(given, dict):
        raise InputError(f"{where} is not a mapping but {type(given).__name__}")
    for name in given:
        if name not in expected:
            raise unknown(f"field in {where}", name, expected)
    for name, kind in expected.items():
        if name not in given:
            raise InputError(f"{where} has no field {name!r}")
        if not isinstance(given[name], kind) or (kind is int and (isinstance(given[name], bool) or given[name] < 0)):
            wanted = getattr(kind, "__name__", kind)  # a union has no name but itself
            raise InputError(f"field {name!r} of {where} must be of type {wanted}, but is {given[name]!r}")


def _check_sizes(value: object, where: str) -> None:
    """Refuse sizes that no model has, before memory of their size is allocated."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _check_sizes(part, where)
    if isinstance(value, int) and value > LARGEST:
        raise InputError(f"{where} holds the size {value}; the largest a model may have is {LARGEST}")


def _index_as_json(index: Index) -> dict[str, Any]:
    if isinstance(index, pd.RangeIndex):
        return {"rows": len(index), "start": index.start, "step": index.step, "name": _text(index.name)}
    return {
        "rows": len(index),
        "start": index[0].isoformat(),
        "freq": index.freqstr,
        "zone": None if index.tz is None else zone_name(index.tz),
        "name": _text(index.name),
    }


def _text(name: object) -> str | None:
    return None if name is None else str(name)


def _index_from_json(saved: dict[str, Any], *, source: str) -> Index:
    dated = {"rows": int, "start": str, "freq": str, "zone": object, "name": object}
    counted = {"rows": int, "start": int, "step": int, "name": object}
    check_fields(saved, counted if "step" in saved else dated, f"the index of {source}")
    if not 0 < saved["rows"] <= 2 * LARGEST:
        raise InputError(f"{source} says {saved['rows']} rows: that is no look-back and horizon")
    if "step" in saved:
        stop = saved["start"] + saved["rows"] * saved["step"]
        return pd.RangeIndex(saved["start"], stop, saved["step"], name=saved["name"])
    start = pd.Timestamp(saved["start"])
    if saved["zone"] is not None:
        start = start.tz_convert(saved["zone"])
    return pd.date_range(start, periods=saved["rows"], freq=saved["freq"], name=saved["name"])
