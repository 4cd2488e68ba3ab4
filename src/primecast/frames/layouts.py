"""The layout of a caller's table, remembered so that a forecast is returned as the same kind of table.

    file, pandas, polars, numpy; wide or long ──read.open_table──> wide frame + Layout ──Layout.render──> in kind

A forecast for a file is a wide pandas frame. Frames that are not pandas are converted by narwhals, an extra.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import InputError

FORECAST = "primecast"
"""The forecast's column in long frames."""
FILE = "file"


@dataclass(frozen=True)
class Layout:
    """kind: "pandas", "numpy", "file", or a backend of narwhals such as "polars".

    time:  the time column, or the columns that make a date; None: the index, or none. id, value: the other columns of a
           long table; None: it is wide. Of a file, these are the names that the caller gave.
    dayfirst: whether dates in text were read with the day first; None: both readings are the same.
    whole: the channels whose names were whole numbers; inside, all names are text.
    header, decimal: of a text file, see `open_table`. tz: the zone given for dates without one. na: cells that mean
           missing.
    freq, start: the step and the first date given for rows without dates. matrix: see `open_table`.
    left_out: columns that are no channels, and why; they are left out of later tables, too.
    categories: text covariates and their values, each of which is a column, "wind=N".
    covariates: of a long table, the columns that are covariates, and whether each series has its own values.
    """

    kind: str = "pandas"
    time: str | Sequence[str] | None = None
    id: str | None = None
    value: str | None = None
    dayfirst: bool | None = None
    whole: Sequence[str] = ()
    header: int | str | None = "infer"
    decimal: str | None = None
    tz: str | None = None
    na: Sequence[object] = ()
    freq: str | None = None
    start: str | None = None
    matrix: bool | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    covariates: Mapping[str, bool] = field(default_factory=dict)

    def render(self, point: pd.DataFrame, bounds: Mapping[str, pd.DataFrame]) -> Any:
        """Return the forecast as the caller's kind of table; `bounds` are named "lo-80", from lowest to highest.

        Wide: each channel followed by its bounds, "temp", "temp-lo-80", "temp-hi-80". Long: a column `primecast` and
        "primecast-lo-80", as in neuralforecast. numpy: (steps, channels), with bounds (steps, channels, 1 + bounds),
        the forecast first.
        """
        if self.kind == "numpy":
            arrays = [frame.to_numpy() for frame in (point, *bounds.values())]
            return np.stack(arrays, axis=-1) if bounds else arrays[0]
        names = {name: int(name) for name in self.whole}
        point = point.rename(columns=names)
        bounds = {name: frame.rename(columns=names) for name, frame in bounds.items()}
        if self.kind == FILE:
            return _wide(point, bounds)
        frame = _wide(point, bounds) if self.id is None else self._long(point, bounds)
        if self.id is None and self.time is not None:
            frame = frame.rename_axis(self.time if isinstance(self.time, str) else "time").reset_index()
        return frame if self.kind == "pandas" else to_native(frame, self.kind)

    def _long(self, point: pd.DataFrame, bounds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        long = lengthen(point, id_column=str(self.id), time_column=str(self.time), value_column=FORECAST)
        for name, frame in bounds.items():
            long[f"{FORECAST}-{name}"] = frame.to_numpy().ravel(order="F")
        return long


def _wide(point: pd.DataFrame, bounds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    columns = {}
    for channel in point.columns:
        columns[channel] = point[channel]
        for name, frame in bounds.items():
            if f"{channel}-{name}" in point.columns:
                raise InputError(f"the bounds of {channel!r} need the name '{channel}-{name}', which is a channel's")
            columns[f"{channel}-{name}"] = frame[channel]
    return pd.DataFrame(columns, index=point.index) if bounds else point


def lengthen(
    df: pd.DataFrame, *, id_column: str = "unique_id", time_column: str = "ds", value_column: str = "y"
) -> pd.DataFrame:
    """Return a wide frame as a long one, channel after channel; missing values stay rows."""
    return pd.DataFrame(
        {
            id_column: np.repeat(df.columns.to_numpy(), len(df)),
            time_column: df.index[np.tile(np.arange(len(df)), df.shape[1])],
            value_column: df.to_numpy().ravel(order="F"),
        }
    )


# ---------------------------------------------------------------- frames that are not pandas


def _narwhals(what: str) -> Any:
    try:
        return import_module("narwhals")
    except ImportError as error:
        raise InputError(
            f"{what} needs narwhals: pip install 'primecast[polars]', or give a pandas DataFrame"
        ) from error


CONVERSIONS = {
    "polars.LazyFrame": "data.collect()",
    "polars.Series": "data.to_frame()",
    "xarray.DataArray": "data.to_pandas()",
    "xarray.Dataset": "data.to_dataframe()",
    "torch": "data.numpy()",
    "builtins.dict": "pandas.DataFrame(data)",
    "builtins.list": "numpy.asarray(data)",
}
"""Package, or package and type, of what is no table -> the call that makes one of it."""


def from_native(data: object) -> tuple[pd.DataFrame, str]:
    """Return any eager frame as a pandas frame, and its backend; column by column, so that pyarrow is not needed."""
    if isinstance(data, pd.DataFrame):
        return data, "pandas"
    if isinstance(data, pd.Series):
        return data.to_frame("value" if data.name is None else data.name), "pandas"
    package = type(data).__module__.split(".")[0]
    kind = f"{package}.{type(data).__name__}"
    conversion = next((line for name, line in CONVERSIONS.items() if name in (kind, package)), None)
    remedy = (
        f"convert it with {conversion}"
        if conversion
        else "give a DataFrame (pandas, polars), a numpy array or the path of a file"
    )
    refusal = InputError(f"cannot read a table from {kind}; {remedy}")
    if conversion or package == "builtins":
        raise refusal
    nw = _narwhals(f"a table of type {kind}")
    try:
        table = nw.from_native(data, eager_only=True)
    except TypeError as error:
        raise refusal from error
    columns: dict[str, object] = {}
    for name, dtype in table.schema.items():
        values = table[name].to_numpy()
        if isinstance(dtype, nw.Datetime) and dtype.time_zone:
            values = pd.DatetimeIndex(values).tz_localize("UTC").tz_convert(dtype.time_zone)
        columns[name] = values
    return pd.DataFrame(columns), str(table.implementation.value)


def to_native(frame: pd.DataFrame, kind: str) -> Any:
    nw = _narwhals(f"a forecast as a {kind} frame")
    columns, zones = {}, {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            zones[str(name)] = str(column.dtype.tz)
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        if column.dtype == "datetime64[s]":  # as pandas makes of days, and which polars has not
            column = column.dt.as_unit("ms")
        text = pd.api.types.is_string_dtype(column) or pd.api.types.is_object_dtype(column)
        columns[str(name)] = column.tolist() if text else column.to_numpy()
    table = nw.from_dict(columns, backend=kind)
    for name, zone in zones.items():
        stamps = nw.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
        table = table.with_columns(stamps.alias(name))
    return table.to_native()
