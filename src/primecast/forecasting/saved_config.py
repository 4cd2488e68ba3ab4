"""The configuration of a saved Forecaster: its fields, their checks, and those of earlier versions.

The checks go from cheap to expensive: fields and their types, sizes, names and shapes of the tensors as the file's
header has them; only then memory is allocated and numbers are read. Every refusal is one sentence, and nothing is
loaded. Folders saved by earlier versions are translated first, see `_current_names`.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from primecast.errors import InputError, check_known, unknown
from primecast.frames.dates import Index, future_index, read_stamp, rows_until, zone_name
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
    "final": bool,
    "weights_by_channel": bool,
    "members": list,
}
LAYOUT: dict[str, type | UnionType] = {
    **dict.fromkeys(("id", "value", "decimal", "tz", "freq", "start"), str | None),
    "time": str | list | None,
    "kind": str,
    **dict.fromkeys(("dayfirst", "matrix"), bool | None),
    "whole": list,
    "na": list,
    "header": int | str | None,
    "left_out": dict,
    "categories": dict,
    "covariates": dict,
}
KINDS = ("pandas", "numpy", FILE, "polars", "pyarrow", "modin", "cudf")
"""The kinds of a table that a layout may name."""
LONGEST_COUNT = 1 << 40
"""No number of rows or steps is larger."""
PERIODS = dict.fromkeys(("train", "val", "test"), (str, str))
FACTS = {
    "data": {
        **{key: [str] for key in ("targets", "past", "future")},
        **dict.fromkeys(("step", "missing"), str),
        "periods": PERIODS,
        "season": int,
    },
    "model": {
        **dict.fromkeys(("name", "attention"), str),
        **dict.fromkeys(("parameters", "lookback", "horizon"), int),
    },
    "scores": {"windows": int, **dict.fromkeys(("mse", "mae", "naive_mse", "naive_mae"), float)},
    "coverage": {str: float | None},
    "calibration": int,
    "versions": {str: str},
}
"""The facts that a model card, a leaderboard and a report read: what each field must hold, see `_find_misfit`."""
MISSING = object()
MEMBER_FACTS = {
    "name": str,
    **dict.fromkeys(("weight", "val_mse", "val_mae", "test_mse", "test_mae", "seconds"), float),
}
COMPARISON_FACTS = {**dict.fromkeys(("mse_change", "mse_low", "mse_high"), float | None), "verdict": str | None}
FORMER_NAMES = {  # they cannot be left out: saved folders hold them
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
        stored = {name: name.replace("time_features", "marks") if self.former else name for name in model}
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
    before_ensembles, before_final = "marks" in config, "final" not in config
    config = {"weights_by_channel": False, **{_current(name): value for name, value in config.items()}}
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
    if before_final:
        config["final"] = False
        for one in [params, *(config["members"] if isinstance(config.get("members"), list) else ())]:
            _pin_two_units(one)
    return config


def _pin_two_units(arguments: object) -> None:
    """Write out the hidden units of a primer of kind "learned": their number was two per head, today it is one."""
    given = arguments.get("model_args") or {} if isinstance(arguments, dict) else None
    if not isinstance(given, dict) or not isinstance(arguments, dict):
        return
    usual = {"kind": "learned", "prime_self": False} if arguments.get("attention") == "prime-learned" else None
    primer, heads = given.get("primer", usual), given.get("n_heads", 8)
    primer = {"kind": primer} if isinstance(primer, str) else primer
    if isinstance(primer, dict) and primer.get("kind") == "learned" and isinstance(heads, int):
        arguments["model_args"] = {**given, "primer": {"hidden": 2 * heads, **primer}}


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
        fields["layout"] = {**asdict(Layout(whole=[], na=[])), **fields["layout"]}
    check_fields(fields["layout"], LAYOUT, f"layout of {source}")
    _check_sizes({name: fields["params"][name] for name in SIZES}, source)
    _check_layout(fields["layout"], source)
    with Saved(folder, fields, pd.RangeIndex(0)).reraise_for():
        _check_columns(fields["columns"], fields["layout"])
        for name, least in {"season": 1, "stride": 1, "rows": 0}.items():
            if not least <= fields[name] <= LONGEST_COUNT:
                raise InputError(f"its {name} is {fields[name]}; it must lie between {least} and {LONGEST_COUNT}")
        _check_facts(fields["facts"])
        index = _index_from_json(fields["index"], source=source)
        future_index(index, fields["params"]["horizon"])  # those rows, too, must lie in the range of dates
        _check_periods(fields["periods"], index)
        return Saved(folder, fields, index)


def _check_columns(columns: list[Any], layout: Mapping[str, Any]) -> None:
    if len(columns) > LARGEST or not all(isinstance(name, str) for name in columns) or not columns:
        raise InputError(f"its columns are not between 1 and {LARGEST} names")
    different, whole = Counter(columns), layout["whole"]
    if len(different) < len(columns):
        raise InputError(f"it has several columns {different.most_common(1)[0][0]!r}")
    for name in whole:
        if not (isinstance(name, str) and different.pop(name, 0) and re.fullmatch(r"0|-?[1-9]\d{,19}", name)):
            raise InputError(f"it calls {name!r} a whole number that names one of its columns")
    check_known("kind of table", layout["kind"], KINDS)
    if layout["kind"] == FILE:
        return
    names = [layout[name] for name in ("id", "time", "value")]
    is_long = layout["id"] is not None
    if is_long and (None in names or len(set(names)) < 3):
        raise InputError(f"a long table has columns of its own for id, time and value, not {names}")
    if not is_long and (layout["value"] is not None or layout["time"] in columns):
        raise InputError(f"a wide table has no column {layout['value'] or layout['time']!r} beside its channels")


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Refuse facts of which no model card, leaderboard or report can be made; it may have others beside them."""
    wrong = (
        _find_misfit(facts, FACTS, "facts")
        or _find_misfit(facts.get("members", []), [MEMBER_FACTS], "members")
        or _find_misfit(facts.get("comparison", {}), {str: COMPARISON_FACTS}, "comparison")
    )
    if wrong:
        raise InputError(f"it has no usable {wrong}")


def _find_misfit(value: object, kind: Any, where: str) -> str | None:
    """Return the place of the first part of a JSON value that is not of its kind, None if all are.

    Kinds: a type; [kind] a list; (kind, kind) a list of this length; {str: kind} a mapping of any names, {name: kind}
    one of at least these names. A float is any finite number, a whole number at least 0.
    """
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return where
        expected = dict.fromkeys(value, kind[str]) if str in kind else kind
        parts = [(value.get(name, MISSING), one, f"{where}.{name}") for name, one in expected.items()]
    elif isinstance(kind, list | tuple):
        if not isinstance(value, list) or (isinstance(kind, tuple) and len(value) != len(kind)):
            return where
        kinds = kind if isinstance(kind, tuple) else kind * len(value)
        parts = [(part, one, f"{where}[{place}]") for place, (part, one) in enumerate(zip(value, kinds, strict=True))]
    else:
        if isinstance(value, int) and not isinstance(value, bool):
            fits = 0 <= value <= LONGEST_COUNT if kind is int else isinstance(0.0, kind) and abs(value) < LONGEST_COUNT
        else:
            fits = isinstance(value, kind) and not (isinstance(value, float) and not math.isfinite(value))
        return None if fits else where
    return next((found for part in parts if (found := _find_misfit(*part))), None)


def _check_periods(periods: Mapping[str, Any], index: Index) -> None:
    if wrong := _find_misfit(periods, PERIODS, "periods"):
        raise InputError(f"it has no usable {wrong}")
    for name, (first, last) in periods.items():
        for stamp in (first, last):
            if isinstance(index, pd.DatetimeIndex) and pd.isna(read_stamp(stamp)):
                raise InputError(f"its period {name!r} has no date")
            rows_until(index, stamp)  # which reads it


def _check_layout(layout: dict[str, Any], source: str) -> None:
    names = [*(layout["time"] if isinstance(layout["time"], list) else ()), *layout["left_out"].values()]
    names += [
        text for values in layout["categories"].values() for text in (values if isinstance(values, list) else [0])
    ]
    if not all(isinstance(own, bool) for own in layout["covariates"].values()):
        raise InputError(f"{source} cannot be used: its layout does not say of each covariate whether series share it")
    if not all(isinstance(cell, str | int | float) for cell in layout["na"]):
        raise InputError(f"{source} cannot be used: its layout calls missing what is neither text nor a number")
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
        return {"rows": len(index), "start": index.start, "step": index.step, "name": _plain(index.name)}
    return {
        "rows": len(index),
        "start": (index[0] if index.tz is None else index[0].tz_convert("UTC")).isoformat(),
        "freq": index.freqstr,
        "zone": None if index.tz is None else zone_name(index.tz),
        "unit": index.unit,
        "name": _plain(index.name),
    }


def _plain(name: object) -> str | int | None:
    """Return the name of an index, text or a whole number, as JSON holds it."""
    return str(name) if isinstance(name, str) else None if name is None else int(name)  # type: ignore[call-overload]


def _index_from_json(saved: dict[str, Any], *, source: str) -> Index:
    counted = {"rows": int, "start": object, "step": int, "name": str | int | None}
    dated = {"rows": int, "start": str, "freq": str, "zone": str | None, "unit": str | None, "name": str | int | None}
    if "step" not in saved:
        saved = {"unit": None, **saved}  # before 0.2 it was not saved
    check_fields(saved, counted if "step" in saved else dated, f"the index of {source}")
    if isinstance(saved["name"], bool):
        raise InputError(f"{source} names its index {saved['name']}, which is no name")
    if not 0 < saved["rows"] <= 2 * LARGEST:
        raise InputError(f"{source} says {saved['rows']} rows: that is no look-back and horizon")
    if "step" in saved:
        start, step = saved["start"], saved["step"]
        if type(start) is not int or abs(start) > 1 << 62 or not 0 < step <= LONGEST_COUNT:
            raise InputError(f"{source} counts its rows from {start!r} in steps of {step}")
        return pd.RangeIndex(start, start + saved["rows"] * step, step, name=saved["name"])
    if saved["unit"] is not None:
        check_known("unit of time", saved["unit"], ("s", "ms", "us", "ns"))
    start = pd.Timestamp(saved["start"])
    if saved["zone"] is not None:
        start = start.tz_convert(saved["zone"])
    index = pd.date_range(start, periods=saved["rows"], freq=saved["freq"], name=saved["name"], unit=saved["unit"])
    if not index[0] < index[-1]:
        raise InputError(f"{source} has rows that are not in the order of time, with freq {saved['freq']!r}")
    return index
