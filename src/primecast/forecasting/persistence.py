"""A Forecaster's folder: what is written into it, and everything that is checked before anything of it is believed.

The checks go from the cheap to the dear: fields and their types, sizes, names and shapes of the tensors as the file's
header has them, and only then memory is taken and numbers are read. Whatever is wrong is one sentence, and nothing is
loaded.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from primecast.errors import InputError, unknown
from primecast.frames.checked import step_of, zone_name
from primecast.frames.read import Index
from primecast.storage.tensors import CONFIG, WEIGHTS, load_tensors, open_folder, save_folder

FORM = "primecast.Forecaster"
VERSION = 1
LARGEST = 1 << 16
"""No size of a model is larger: what is, is not a model's."""
SIZES = ("horizon", "lookback", "model_args")
"""The arguments by which memory is taken when a model is built."""
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
}
LAYOUT: dict[str, type | UnionType] = {
    **dict.fromkeys(("time", "id", "value", "file_time", "file_id", "file_value"), str | None),
    "kind": str,
    "day_first": bool | None,
    "whole": list,
}
LACKING: dict[str, object] = {"file_id": None, "file_value": None, "day_first": None, "whole": []}
"""What the layouts of earlier folders do not say."""
FORMER_NAMES = {
    "marks": "time_features",
    "channel_vectors": "channel_embeddings",
    "prime-free": "prime-table",
    "free": "table",
}
"""Names of fields, arguments, attentions and kinds of a primer in folders saved before 0.2, and those of today."""


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
    """Write the folder; it holds either what it held before or all of this."""
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
    """What could not be loaded again is refused while the folder still holds what it held before."""
    try:
        saved = _checked(folder, json.loads(json.dumps(config, allow_nan=False)), arguments=config["params"])
    except ValueError as error:  # of JSON, and every InputError
        raise InputError(f"cannot save to {folder}, from where it could not be loaded: {error}") from error
    if not _same(saved.index, index):
        raise InputError(
            f"cannot save to {folder}: the step and zone of the rows, {step_of(index)}, have no name from which they "
            "could be loaded; give the frame an index whose freq has one, such as 'h', 'B' or 'MS', in a zone such as "
            "'Europe/Berlin'"
        )
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"cannot save to {folder}: {name} holds values that are not finite numbers")


def _same(one: Index, other: Index) -> bool:
    """Whether the rows, those to come and what a clock shows at them are the same."""
    if not (isinstance(one, pd.DatetimeIndex) and isinstance(other, pd.DatetimeIndex)):
        return one.equals(other)
    clocks = [index.tz_localize(None) for index in (one, other)]
    return one.freq == other.freq and bool((one == other).all()) and bool((clocks[0] == clocks[1]).all())


@dataclass(frozen=True, eq=False)
class Saved:
    """A folder whose configuration has been checked, and whose tensors have not been read yet.

    former: it was saved under the names of before 0.2, and so are its tensors.
    """

    folder: Path
    fields: dict[str, Any]
    index: Index
    former: bool = False

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.fields["params"]
        return params

    @property
    def windows(self) -> int:
        return int(self.fields["windows"])

    def tensors(
        self, model: Mapping[str, str], arrays: Mapping[str, str]
    ) -> tuple[dict[str, Tensor], dict[str, np.ndarray]]:
        """The weights and the arrays, if the file holds exactly these names with these types and shapes."""
        stored = {name: name.replace("time_features", "marks") if self.former else name for name in (*model, *arrays)}
        expected = {f"model.{stored[name]}": kind for name, kind in model.items()}
        expected |= {stored[name]: kind for name, kind in arrays.items()}
        read, _ = load_tensors(self.folder / WEIGHTS, expected)
        weights = {name: read[f"model.{stored[name]}"] for name in model}
        return weights, {name: read[stored[name]].numpy() for name in arrays}

    @contextmanager
    def reraise_for(self) -> Iterator[None]:
        """Whatever is wrong inside is wrong with this folder, and the message says so."""
        try:
            yield
        except (InputError, TypeError, ValueError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
            named = str(self.folder) in str(error)
            raise InputError(str(error) if named else f"{self.folder / CONFIG} cannot be used: {error}") from error


def open_forecaster(folder: Path, *, arguments: Collection[str]) -> Saved:
    """The checked configuration of a folder. arguments: those a Forecaster takes, all of which must be there."""
    fields = open_folder(folder, form=FORM)
    saved = _checked(folder, _with_current_names(fields), arguments=arguments)
    return replace(saved, former="marks" in fields)


def _with_current_names(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a folder under the names of today, whatever they were when it was saved."""
    fields = {FORMER_NAMES.get(name, name): value for name, value in fields.items()}
    params = fields.get("params")
    if not isinstance(params, dict):  # refused later, with its name
        return fields
    params = {**params, "attention": _current(params.get("attention"))}
    if isinstance(params.get("model_args"), dict):
        arguments = {FORMER_NAMES.get(name, name): value for name, value in params["model_args"].items()}
        if isinstance(arguments.get("primer"), dict):
            arguments["primer"] = {name: _current(value) for name, value in arguments["primer"].items()}
        elif "primer" in arguments:
            arguments["primer"] = _current(arguments["primer"])
        params["model_args"] = arguments
    return {**fields, "params": params}


def _current(name: Any) -> Any:
    return FORMER_NAMES.get(name, name) if isinstance(name, str) else name


def _checked(folder: Path, fields: dict[str, Any], *, arguments: Collection[str]) -> Saved:
    source = str(folder / CONFIG)
    if fields.get("version") != VERSION:
        raise InputError(f"{source} is of version {fields.get('version')!r}, this primecast reads version {VERSION}")
    check_fields(fields, FIELDS, source)
    check_fields(fields["params"], dict.fromkeys(arguments, object), f"params of {source}")
    fields["layout"] = {**LACKING, **fields["layout"]}
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
    """Refuse what is not a mapping of exactly these fields with values of these types."""
    if not isinstance(given, dict):
        raise InputError(f"{where} is no mapping but {type(given).__name__}")
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
    """Refuse whole numbers that no model has, before anything of their size is allocated."""
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
