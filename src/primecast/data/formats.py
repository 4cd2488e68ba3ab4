"""The file formats of the benchmark sets: the bytes of a file in, values, dates and names out.

Nothing is repaired here. What cannot be read is refused with a message that names the file and the first bad cell.

Letters: t rows, n channels.
"""

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float64

from primecast.errors import InputError, format_list


@dataclass(frozen=True, eq=False)
class RawTable:
    """What a file holds."""

    values: Float64[np.ndarray, "t n"]
    index: pd.DatetimeIndex | None
    names: tuple[str, ...]


def read_csv(
    contents: dict[str, bytes],
    *,
    sep: str = ",",
    date: str = "date",
    layout: str | None = None,
    target: str | None = None,
    drop: tuple[str, ...] = (),
) -> RawTable:
    """Read a column of dates and columns of numbers; the target is put last.

    layout: how dates are written, as strftime; None: as ISO 8601. drop: columns to leave out.
    """
    (name, content), *_ = contents.items()
    frame = _parse(content, name, sep=sep)
    _check_columns(frame, name, (date, *([target] if target else []), *drop))
    index = _dates(frame.pop(date), name, layout=layout)
    if target:
        frame[target] = frame.pop(target)
    frame = frame.drop(columns=list(drop))
    return RawTable(to_numbers(frame, source=name), index, tuple(frame.columns))


def read_simbench(contents: dict[str, bytes]) -> RawTable:
    """Read SimBench profiles: separated by semicolons, dates day first; channels that never change are dropped."""
    table = read_csv(contents, sep=";", date="time", layout="%d.%m.%Y %H:%M")
    changing = table.values.max(axis=0) > table.values.min(axis=0)
    names = tuple(name for name, kept in zip(table.names, changing, strict=True) if kept)
    return RawTable(table.values[:, changing], table.index, names)


def read_aarhus(contents: dict[str, bytes]) -> RawTable:
    """Read 5-minute counts, fill gaps by the last value (the first one at the start), sum over complete hours."""
    table = read_csv(contents)
    filled = pd.DataFrame(table.values, index=table.index).ffill().bfill().resample("h")
    hourly = filled.sum()[filled.size() == 12]
    return RawTable(np.ascontiguousarray(hourly.to_numpy()), pd.DatetimeIndex(hourly.index), table.names)


def read_beijing(contents: dict[str, bytes]) -> RawTable:
    """Read a file per station, all with the same hours, and put the quantities of the stations side by side."""
    columns, names, first = [], [], None
    for name, content in contents.items():
        frame = _parse(content, name, sep=",")
        _check_columns(frame, name, (*CLOCK, "No", "wd", "station"))
        index = _clock(frame, name)
        if first is not None and not index.equals(first):
            raise InputError(f"{name} has other hours than {next(iter(contents))}")
        first = index
        station = name.split("_")[2] if name.count("_") > 2 else name
        frame = frame.drop(columns=[*CLOCK, "No", "wd", "station"])
        columns.append(to_numbers(frame, source=name))
        names += [f"{station} {column}" for column in frame.columns]
    return RawTable(np.concatenate(columns, axis=1), first, tuple(names))


def read_rts_gmlc(contents: dict[str, bytes]) -> RawTable:
    """Read a year of 5-minute values, numbered within each day from 1, and take the means of 10 minutes."""
    (name, content), *_ = contents.items()
    frame = _parse(content, name, sep=",")
    _check_columns(frame, name, ("Year", "Month", "Day", "Period"))
    clock = frame[["Year", "Month", "Day"]].rename(columns=str.lower)
    clock["minute"] = 5 * (pd.to_numeric(frame["Period"], errors="coerce") - 1)
    index = _clock(clock, name)
    frame = frame.drop(columns=["Year", "Month", "Day", "Period"])
    if len(frame) % 2:
        raise InputError(f"{name} has {len(frame)} rows of 5 minutes, which do not make whole steps of 10 minutes")
    values = to_numbers(frame, source=name)
    return RawTable(values.reshape(-1, 2, values.shape[1]).mean(axis=1), index[::2], tuple(frame.columns))


def read_brightwind(contents: dict[str, bytes]) -> RawTable:
    """Read the longest stretch of 10-minute values without a gap; of equal ones the first."""
    table = read_csv(contents, date="Timestamp")
    assert table.index is not None
    gaps = np.flatnonzero(np.diff(table.index) != np.timedelta64(10, "m")) + 1
    ends = np.concatenate([[0], gaps, [len(table.index)]])
    longest = int(np.argmax(np.diff(ends)))
    rows = slice(int(ends[longest]), int(ends[longest + 1]))
    return RawTable(table.values[rows], table.index[rows], table.names)


def read_text(contents: dict[str, bytes]) -> RawTable:
    """Read Solar-Energy, traffic-20: numbers only, separated by commas or spaces; neither names nor dates."""
    (name, content), *_ = contents.items()
    first_line = content.partition(b"\n")[0]
    frame = _parse(content, name, sep="," if b"," in first_line else r"\s+", header=None)
    frame.columns = [f"c{channel}" for channel in range(frame.shape[1])]
    return RawTable(to_numbers(frame, source=name), None, tuple(frame.columns))


def read_pems(contents: dict[str, bytes]) -> RawTable:
    """Read PEMS: an array `data` of (time, sensor, feature), of which feature 0, the flow, is used."""
    (name, content), *_ = contents.items()
    data = _array(content, name, "data")
    if data.ndim != 3:
        raise InputError(f"'data' in {name} must be (time, sensor, feature), its shape is {data.shape}")
    return _sensors(data[:, :, 0])


def read_pems_windows(contents: dict[str, bytes]) -> RawTable:
    """Read the end of a PEMS series, given as windows `x` and `y` of (window, step, sensor, feature).

    Windows start at every row, so their first steps are the series. The windows of the second file begin where those
    of the first end, and the very last window brings the remaining rows.
    """
    (val, val_content), (test, test_content) = contents.items()
    before = _array(val_content, val, "x")
    x, y = _array(test_content, test, "x"), _array(test_content, test, "y")
    for name, windows in ((val, before), (test, x), (test, y)):
        if windows.ndim != 4:
            raise InputError(f"windows in {name} must have 4 axes, their shape is {windows.shape}")
    series = np.concatenate([before[:, 0], x[:, 0], x[-1, 1:], y[-1]])
    return _sensors(series[:, :, 0])


FORMATS: dict[str, Callable[[dict[str, bytes]], RawTable]] = {
    "csv": partial(read_csv, target="OT"),
    "wth": partial(read_csv, layout="%m/%d/%Y %H:%M", target="WetBulbCelsius"),
    "eia": partial(read_csv, date="date_time", drop=("AEC", "PSEI")),
    "simbench": read_simbench,
    "aarhus": read_aarhus,
    "beijing": read_beijing,
    "rts-gmlc": read_rts_gmlc,
    "brightwind": read_brightwind,
    "text": read_text,
    "pems": read_pems,
    "pems-windows": read_pems_windows,
}


def _parse(content: bytes, name: str, *, sep: str, header: int | None = 0) -> pd.DataFrame:
    try:
        # Weather's column names hold bytes that are no UTF-8 in some copies: names only, so they may be replaced.
        text = io.StringIO(content.decode("utf-8-sig", errors="replace"))
        frame: pd.DataFrame = pd.read_csv(text, sep=sep, header=header, low_memory=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{name} is not a table with the separator {sep!r}: {error}") from error
    frame.columns = frame.columns.map(str)
    return frame


def _check_columns(frame: pd.DataFrame, name: str, needed: Iterable[str]) -> None:
    for column in needed:
        if column not in frame.columns:
            raise InputError(f"{name} has no column {column!r}; its columns are {format_list(frame.columns)}")


CLOCK = ("year", "month", "day", "hour")


def _clock(frame: pd.DataFrame, name: str) -> pd.DatetimeIndex:
    """Return the dates that columns such as year, month, day and hour spell out."""
    parts = frame[[part for part in (*CLOCK, "minute") if part in frame.columns]]
    dates = pd.to_datetime(parts, errors="coerce")
    if dates.isna().any():
        row = int(np.argmax(dates.isna()))
        raise InputError(f"row {row} of {name} holds {parts.iloc[row].to_dict()}, which is no date")
    return pd.DatetimeIndex(dates)


def _dates(column: "pd.Series[str]", name: str, *, layout: str | None) -> pd.DatetimeIndex:
    try:
        return pd.DatetimeIndex(pd.to_datetime(column, format=layout))
    except (ValueError, TypeError) as error:
        dates = pd.to_datetime(column, format=layout, errors="coerce")
        row = int(np.argmax(dates.isna()))
        raise InputError(
            f"column {column.name!r} of {name} holds {column.iloc[row]!r} in row {row}, which is no date"
        ) from error


def _array(content: bytes, name: str, key: str) -> Float64[np.ndarray, "..."]:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise InputError(f"{name} is no readable .npz archive; is it complete?")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:  # nothing is ever unpickled
            names = archive.files
            array = archive[key] if key in names else None
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError) as error:
        raise InputError(f"{name} is no readable .npz archive: {error}") from error
    except ValueError as error:
        raise InputError(f"{key!r} in {name} is no array of numbers, and nothing else is read") from error
    if array is None:
        raise InputError(f"{name} has no array {key!r}; it holds {format_list(names)}")
    if not np.issubdtype(array.dtype, np.number):
        raise InputError(f"{key!r} in {name} is no array of numbers but of {array.dtype}")
    return array.astype(np.float64)


def _sensors(values: Float64[np.ndarray, "t n"]) -> RawTable:
    names = tuple(f"sensor {number}" for number in range(values.shape[1]))
    return RawTable(np.ascontiguousarray(values), None, names)


def uncompressed(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz or .xz."""
    content = path.read_bytes()
    try:
        if path.suffix == ".gz":
            return gzip.decompress(content)
        if path.suffix == ".xz":
            return lzma.decompress(content)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} is damaged and cannot be uncompressed: {error}") from error
    return content


def to_numbers(frame: pd.DataFrame, *, source: str = "the frame") -> Float64[np.ndarray, "t n"]:
    """Return all cells as float64, empty ones as NaN; the first cell that is no number is named."""
    columns = []
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
            columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
            continue
        if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
            raise InputError(f"column {name!r} of {source} is not numeric but {column.dtype}; drop the column")
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
        if len(bad):
            row = int(bad[0])
            raise InputError(
                f"column {name!r} of {source} is not numeric: row {frame.index[row]} holds {column.iloc[row]!r}; "
                "correct the cell or drop the column"
            )
        columns.append(numbers)
    return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))
