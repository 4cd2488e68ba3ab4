"""The configuration of a saved Forecaster: its fields, their checks, and those of earlier versions.

The checks go from cheap to expensive: fields and their types, sizes, names and shapes of the tensors as the file's
header has them; only then memory is allocated and numbers are read. Every refusal is one sentence, and nothing is
loaded. Folders saved by earlier versions are translated first, see `_current_names`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from primecast.errors import InputError, unknown
from primecast.frames.dates import Index, zone_name
from primecast.frames.layouts import FILE, Layout
from primecast.storage.folder import CONFIG, open_folder, read_weights

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
    "signed": bool,
    "members": list,
}
LAYOUT: dict[str, type | UnionType] = {
    **dict.fromkeys(("id", "value", "decimal", "tz", "freq", "start"), str | None),
    "time": str | list | None,
    "kind": str,
    "dayfirst": bool | None,
    "whole": list,
    "header": int | str | None,
    "left_out": dict,
    "categories": dict,
}
FORMER_NAMES = {
    "marks": "time_features",
    "channel_vectors": "channel_embeddings",
    "prime-free": "prime-table",
    "free": "table",
    "answering": "key",
}
"""Fields, arguments, attentions and kinds of a primer in folders saved before 0.2, and their names of today."""


@dataclass(frozen=True, eq=False)
class Saved:
    """A folder whose configuration has been checked, and whose tensors have not been read yet.

    sha256: of the weights that belong to it. former: it was saved before 0.2, and its tensors have the names of then.
    """

    folder: Path
    fields: dict[str, Any]
    index: Index
    sha256: str = ""
    former: bool = False

    def tensors(
        self, model: Mapping[str, str], arrays: Mapping[str, str]
    ) -> tuple[dict[str, Tensor], dict[str, np.ndarray]]:
        """Return the weights and the arrays, if the file holds exactly these names with these types and shapes."""
        stored = {name: f"model.{name.replace('time_features', 'marks') if self.former else name}" for name in model}
        expected = {**{stored[name]: kind for name, kind in model.items()}, **arrays}
        read = read_weights(self.folder, self.sha256, expected)
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
    config, sha256 = open_folder(folder, form=FORM)
    saved = check_config(folder, _current_names(config), arguments=arguments)
    return replace(saved, sha256=sha256, former="marks" in config)


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
            config |= {"members": [], "signed": False}
            params |= {"quality": None, "time_limit": None, "bounds": None}
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
    return {"dayfirst" if name == "day_first" else name: value for name, value in layout.items()}


def check_config(folder: Path, fields: dict[str, Any], *, arguments: Collection[str]) -> Saved:
    """Return the configuration with its index, once every field is known to be usable."""
    source = str(folder / CONFIG)
    if fields.get("version") != VERSION:
        raise InputError(f"{source} is of version {fields.get('version')!r}, this primecast reads version {VERSION}")
    check_fields(fields, FIELDS, source)
    check_fields(fields["params"], dict.fromkeys(arguments, object), f"params of {source}")
    if isinstance(fields["layout"], dict):  # older ones have fewer fields
        fields["layout"] = {**asdict(Layout(whole=[])), **fields["layout"]}
    check_fields(fields["layout"], LAYOUT, f"layout of {source}")
    _check_sizes({name: fields["params"][name] for name in SIZES}, source)
    if len(fields["columns"]) > LARGEST or not all(isinstance(name, str) for name in fields["columns"]):
        raise InputError(f"{source} cannot be used: its columns are not at most {LARGEST} names")
    columns = set(fields["columns"])
    _check_layout(fields["layout"], source)
    for name in fields["layout"]["whole"]:
        if not (isinstance(name, str) and name in columns and re.fullmatch(r"-?\d{1,20}", name)):
            raise InputError(f"{source} cannot be used: it calls {name!r} a whole number that names one of its columns")
    with Saved(folder, fields, pd.RangeIndex(0)).reraise_for():
        return Saved(folder, fields, _index_from_json(fields["index"], source=source))


def _check_layout(layout: dict[str, Any], source: str) -> None:
    names = [*(layout["time"] if isinstance(layout["time"], list) else ()), *layout["left_out"].values()]
    names += [
        text for values in layout["categories"].values() for text in (values if isinstance(values, list) else [0])
    ]
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{source} cannot be used: its layout names columns or values that are no text")


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


def index_as_json(index: Index) -> dict[str, Any]:
    if isinstance(index, pd.RangeIndex):
        return {"rows": len(index), "start": index.start, "step": index.step, "name": _text(index.name)}
    return {
        "rows": len(index),
        "start": (index[0] if index.tz is None else index[0].tz_convert("UTC")).isoformat(),
        "freq": index.freqstr,
        "zone": None if index.tz is None else zone_name(index.tz),
        "unit": index.unit,
        "name": _text(index.name),
    }


def _text(name: object) -> str | None:
    return None if name is None else str(name)


def _index_from_json(saved: dict[str, Any], *, source: str) -> Index:
    saved = saved if "step" in saved else {"unit": None, **saved}  # which was not saved before 0.2
    dated = {"rows": int, "start": str, "freq": str, "zone": object, "unit": str | None, "name": object}
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
    index = pd.date_range(start, periods=saved["rows"], freq=saved["freq"], name=saved["name"])
    return index if saved["unit"] is None else index.as_unit(saved["unit"])
