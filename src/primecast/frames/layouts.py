"""Tables in, the same kind of table out: how a caller's data is laid out, remembered until the forecast is handed back.

    file, pandas, polars, numpy; wide or long ──open_table──> wide pandas frame + Layout ... ──Layout.render──> in kind

A file is handed back as a wide pandas frame. Frames that are not pandas come and go through narwhals, an extra.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import InputError, format_list
from primecast.frames.read import TIME_NAMES, check_columns, date_by, holds_dates, is_long, lengthen, open_file, spread

FORECAST = "primecast"
"""The name of the forecast's column in long frames, where the column of the truth keeps its own."""


@dataclass(frozen=True)
class Layout:
    """kind: "pandas", "numpy", or a backend of narwhals such as "polars".

    time:  the column that holds the time; None: the index, or nothing does.
    id, value: the other two columns of a long frame; None: the frame is wide.
    file_time, file_id, file_value: what was said of the columns of a file; its frame is wide, with the time as index.
    day_first: whether dates in text were read with the day first; None: that was no question.
    whole: those channels whose names were whole numbers; inside, all names are text.
    """

    kind: str = "pandas"
    time: str | None = None
    id: str | None = None
    value: str | None = None
    file_time: str | None = None
    file_id: str | None = None
    file_value: str | None = None
    day_first: bool | None = None
    whole: Sequence[str] = ()

    def render(self, point: pd.DataFrame, bounds: Mapping[str, pd.DataFrame]) -> Any:
        """The forecast as the caller's kind of table; `bounds` are named "lo-80", from the lowest to the highest.

        Wide: each channel followed by its bounds, "temp", "temp-lo-80", "temp-hi-80". Long: a column `primecast` and
        "primecast-lo-80", as neuralforecast names them. numpy: (steps, channels), with bounds (steps, channels,
        1 + bounds), the forecast first.
        """
        if self.kind == "numpy":
            arrays = [frame.to_numpy() for frame in (point, *bounds.values())]
            return np.stack(arrays, axis=-1) if bounds else arrays[0]
        names = {name: int(name) for name in self.whole}
        point = point.rename(columns=names)
        bounds = {name: frame.rename(columns=names) for name, frame in bounds.items()}
        frame = _beside(point, bounds) if self.id is None else self._long(point, bounds)
        if self.id is None and self.time is not None:
            frame = frame.rename_axis(self.time).reset_index()
        return frame if self.kind == "pandas" else _to_native(frame, self.kind)

    def _long(self, point: pd.DataFrame, bounds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        names = {"id_column": str(self.id), "time_column": str(self.time)}
        long = lengthen(point, **names, value_column=FORECAST)
        for name, frame in bounds.items():
            long[f"{FORECAST}-{name}"] = frame.to_numpy().ravel(order="F")
        return long


def _beside(point: pd.DataFrame, bounds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    columns = {}
    for channel in point.columns:
        columns[channel] = point[channel]
        for name, frame in bounds.items():
            if f"{channel}-{name}" in point.columns:
                raise InputError(f"the bounds of {channel!r} need the name '{channel}-{name}', which is a channel's")
            columns[f"{channel}-{name}"] = frame[channel]
    wide = pd.DataFrame(columns, index=point.index)
    return wide if bounds else point


def open_table(
    data: object,
    *,
    id: str | None = None,
    time: str | None = None,
    value: str | None = None,
    day_first: bool | None = None,
) -> tuple[pd.DataFrame, Layout]:
    """The data as a wide pandas frame, not yet checked, and how it was laid out.

    data:  a DataFrame of pandas or of polars, a path to a CSV or Parquet file, an array (rows, channels).
    id, time, value: columns of a long table, unique_id, ds and y where not given; a table with all three of these
           columns is long. `time` alone is the time column of a wide table; without it a wide frame that has no dates
           as its index takes its one column of dates, if it has one.
    day_first: how to read dates in which day and month could be either, see `as_stamps`.
    """
    if isinstance(data, np.ndarray):
        return _of_array(data), Layout(kind="numpy")
    if isinstance(data, str | Path):
        wide, day_first = open_file(data, id=id, time=time, value=value, day_first=day_first)
        layout = Layout(file_id=id, file_time=time, file_value=value)
    elif isinstance(data, pd.DataFrame):
        wide, day_first, layout = _of_frame(data, "pandas", id=id, time=time, value=value, day_first=day_first)
    else:
        frame, kind = _from_native(data)
        wide, day_first, layout = _of_frame(frame, kind, id=id, time=time, value=value, day_first=day_first)
    return wide, replace(layout, day_first=day_first, whole=[str(name) for name in wide.columns if _whole(name)])


def reopen_table(data: object, layout: Layout) -> tuple[pd.DataFrame, Layout]:
    """A table given later than the one of `layout`: its names apply, to a frame only if it has such columns."""
    names: dict[str, str | None] = {}
    columns = set(getattr(data, "columns", ()))
    if isinstance(data, str | Path):
        names = {"id": layout.file_id, "time": layout.file_time, "value": layout.file_value}
    elif layout.id is not None and {layout.id, layout.time, layout.value} <= columns:
        names = {"id": layout.id, "time": layout.time, "value": layout.value}
    elif layout.time in columns:
        names = {"time": layout.time}
    return open_table(data, **names, day_first=layout.day_first)


def _whole(name: object) -> bool:
    return isinstance(name, int | np.integer) and not isinstance(name, bool)


def _of_frame(
    frame: pd.DataFrame, kind: str, *, id: str | None, time: str | None, value: str | None, day_first: bool | None
) -> tuple[pd.DataFrame, bool | None, Layout]:
    check_columns(frame)
    if is_long(frame, id=id, value=value):
        long = Layout(kind=kind, id=id or "unique_id", time=time or "ds", value=value or "y")
        wide, day_first = spread(frame, id=id, time=time, value=value, day_first=day_first, source="the long frame")
        return wide.rename_axis(columns=None), day_first, long
    if time is None and not isinstance(frame.index, pd.DatetimeIndex):
        time = _only_time_column(frame)
    if time is None:
        return frame, None, Layout(kind=kind)
    if time not in frame.columns:
        raise InputError(f"the frame has no time column {time!r}; its columns are {format_list(frame.columns)}")
    wide, day_first = date_by(frame, time, day_first=day_first, source="the frame")
    return wide, day_first, Layout(kind=kind, time=time)


def _of_array(data: np.ndarray) -> pd.DataFrame:
    if data.ndim != 2:
        raise InputError(f"an array must have rows and channels, but this one has {data.ndim} axes")
    if data.dtype.kind not in "iufb":
        raise InputError(f"an array must hold numbers, but this one holds {data.dtype}")
    return pd.DataFrame(data, columns=[f"channel {number}" for number in range(data.shape[1])])


def _only_time_column(frame: pd.DataFrame) -> str | None:
    """The one column of dates, or the one of a usual name whose text is dates; None when there are none or several."""
    dates = [name for name in frame.columns if pd.api.types.is_datetime64_any_dtype(frame[name])]
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name]) and name not in dates]
    usual = [name for name in text if str(name).strip().lower() in TIME_NAMES and holds_dates(frame[name])]
    found = dates or usual
    return str(found[0]) if len(found) == 1 else None


# ---------------------------------------------------------------- frames that are not pandas


def _narwhals(what: str) -> Any:
    try:
        return import_module("narwhals")
    except ImportError as error:
        raise InputError(
            f"{what} needs narwhals: pip install 'primecast[polars]', or give a pandas DataFrame"
        ) from error


def _from_native(data: object) -> tuple[pd.DataFrame, str]:
    """Column by column, so that no pyarrow is needed on the way."""
    kind = f"{type(data).__module__.split('.')[0]}.{type(data).__name__}"
    if type(data).__module__.split(".")[0] in ("builtins", "torch"):
        raise InputError(
            f"cannot read a table from {kind}; give a DataFrame (pandas, polars), a numpy array or the path of a file"
        )
    nw = _narwhals(f"a table of type {kind}")
    try:
        table = nw.from_native(data, eager_only=True)
    except TypeError as error:
        raise InputError(
            f"cannot read a table from {kind}; give a DataFrame (pandas, polars), a numpy array or the path of a file"
        ) from error
    columns: dict[str, object] = {}
    for name, dtype in table.schema.items():
        values = table[name].to_numpy()
        if isinstance(dtype, nw.Datetime) and dtype.time_zone:
            values = pd.DatetimeIndex(values).tz_localize("UTC").tz_convert(dtype.time_zone)
        columns[name] = values
    return pd.DataFrame(columns), str(table.implementation.value)


def _to_native(frame: pd.DataFrame, kind: str) -> Any:
    nw = _narwhals(f"a forecast as a {kind} frame")
    columns, zones = {}, {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            zones[str(name)] = str(column.dtype.tz)
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        text = pd.api.types.is_string_dtype(column) or pd.api.types.is_object_dtype(column)
        columns[str(name)] = column.tolist() if text else column.to_numpy()
    table = nw.from_dict(columns, backend=kind)
    for name, zone in zones.items():
        stamps = nw.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
        table = table.with_columns(stamps.alias(name))
    return table.to_native()
