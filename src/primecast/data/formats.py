"""The file formats of the benchmark sets: the bytes of files in, a frame of float64 out.

The index of the frame has the dates of the rows, or their numbers where the files have no dates. Nothing is repaired
here. What cannot be read is refused with a message that names the file and the first bad cell.

Letters: t rows, n channels.
"""

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from primecast.errors import InputError, format_list

MOST_BYTES = 1 << 28
"""No compressed file is unpacked to more: a few megabytes of it may hold a thousand times as much."""


def read_csv(
    contents: dict[str, bytes],
    *,
    sep: str = ",",
    date: str = "date",
    layout: str | None = None,
    target: str | None = None,
    drop: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a column of dates and columns of numbers; the target is put last.

    layout: how dates are written, as strftime; None: as ISO 8601. drop: columns to leave out.
    """
    ((name, content),) = contents.items()
    frame = _parse(content, name, sep=sep, needed=(date, *([target] if target else []), *drop))
    index = _dates(frame.pop(date), name, layout=layout)
    if target:
        frame[target] = frame.pop(target)
    return _numbers(frame.drop(columns=list(drop)), name, index)


def read_simbench(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read SimBench profiles: separated by semicolons, dates day first; channels that never change are dropped."""
    frame = read_csv(contents, sep=";", date="time", layout="%d.%m.%Y %H:%M")
    return frame.loc[:, frame.max() > frame.min()]


def read_aarhus(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read 5-minute counts, fill gaps by the last value (the first one at the start), sum over complete hours."""
    hours = read_csv(contents).ffill().bfill().resample("h")
    return hours.sum()[hours.size() == 12]


def read_beijing(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read a file per station, all with the same hours, and put the quantities of the stations side by side."""
    stations: list[pd.DataFrame] = []
    clock = ["year", "month", "day", "hour"]
    others = [*clock, "No", "wd", "station"]
    for name, content in contents.items():
        frame = _parse(content, name, needed=others)
        index = _dates(frame[clock], name)
        if stations and not index.equals(stations[0].index):
            raise InputError(f"{name} has other hours than {next(iter(contents))}")
        stations.append(_numbers(frame.drop(columns=others), name, index).add_prefix(f"{name.split('_')[2]} "))
    return pd.concat(stations, axis=1)


def read_rts_gmlc(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read a year of 5-minute values, numbered within each day from 1, and take the means of 10 minutes."""
    ((name, content),) = contents.items()
    clock = ["Year", "Month", "Day", "Period"]
    frame = _parse(content, name, needed=clock)
    minute = 5 * (pd.to_numeric(frame["Period"], errors="coerce") - 1)
    index = _dates(frame[clock[:3]].assign(minute=minute), name)
    if len(frame) % 2:
        raise InputError(f"{name} has {len(frame)} rows of 5 minutes, which do not make whole steps of 10 minutes")
    frame = _numbers(frame.drop(columns=clock), name, index)
    means = frame.to_numpy().reshape(-1, 2, frame.shape[1]).mean(axis=1)
    return pd.DataFrame(means, index=index[::2], columns=frame.columns)


def read_brightwind(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read the longest stretch of 10-minute values without a gap; of equal ones the first."""
    frame = read_csv(contents, date="Timestamp")
    gaps = np.flatnonzero(np.diff(frame.index) != np.timedelta64(10, "m")) + 1
    ends = np.concatenate([[0], gaps, [len(frame)]])
    longest = int(np.argmax(np.diff(ends)))
    return frame.iloc[ends[longest] : ends[longest + 1]]


def read_text(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read Solar-Energy, traffic-20: numbers only, separated by commas or spaces; neither names nor dates."""
    ((name, content),) = contents.items()
    first_line = content.partition(b"\n")[0]
    frame = _parse(content, name, sep="," if b"," in first_line else r"\s+", header=None)
    return _numbers(frame.add_prefix("c"), name)


def read_pems(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read PEMS: an array `data` of (time, sensor, feature), of which feature 0, the flow, is used."""
    ((name, content),) = contents.items()
    return _flow(_array(content, name, "data", axes=("time", "sensor", "feature")))


def read_pems_windows(contents: dict[str, bytes]) -> pd.DataFrame:
    """Read the end of a PEMS series, given as windows `x` and `y` of (window, step, sensor, feature).

    Windows start at every row, so their first steps are the series. The windows of the second file begin where those
    of the first end, and the very last window brings the remaining rows.
    """
    (val, val_content), (test, test_content) = contents.items()
    read = partial(_array, axes=("window", "step", "sensor", "feature"))
    before, x, y = read(val_content, val, "x"), read(test_content, test, "x"), read(test_content, test, "y")
    return _flow(np.concatenate([before[:, 0], x[:, 0], x[-1, 1:], y[-1]]))


FORMATS: dict[str, Callable[[dict[str, bytes]], pd.DataFrame]] = {
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


def _parse(
    content: bytes, name: str, *, sep: str = ",", header: int | None = 0, needed: Sequence[str] = ()
) -> pd.DataFrame:
    """Return the table in a file as pandas reads it; refuse one without the needed columns."""
    try:
        # Weather's column names hold bytes that are no UTF-8 in some copies: names only, so they may be replaced.
        text = io.StringIO(content.decode("utf-8-sig", errors="replace"))
        frame: pd.DataFrame = pd.read_csv(text, sep=sep, header=header, low_memory=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{name} is not a table with the separator {sep!r}: {error}") from error
    for column in needed:
        if column not in frame.columns:
            raise InputError(f"{name} has no column {column!r}; its columns are {format_list(frame.columns)}")
    return frame


def _dates(given: "pd.Series[str] | pd.DataFrame", name: str, *, layout: str | None = None) -> pd.DatetimeIndex:
    """Return the dates in a column, or in columns such as year, month, day and hour; refuse a cell that is no date."""
    dates = pd.to_datetime(given, format=layout, errors="coerce")
    if dates.isna().any():
        row = int(np.argmax(dates.isna()))
        cells = pd.DataFrame(given).iloc[row].to_dict()
        raise InputError(f"row {row} of {name} holds {cells}, which is no date")
    return pd.DatetimeIndex(dates, name=None)


def _numbers(frame: pd.DataFrame, name: str, index: pd.DatetimeIndex | None = None) -> pd.DataFrame:
    return pd.DataFrame(to_numbers(frame, source=name), index=index, columns=frame.columns)


def _array(content: bytes, name: str, key: str, *, axes: Sequence[str]) -> Float64[np.ndarray, "..."]:
    """Return an array of numbers with these axes from an .npz archive; nothing is ever unpickled."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise InputError(f"{name} is no readable .npz archive; is it complete?")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            names, array = archive.files, archive.get(key)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError) as error:
        raise InputError(f"{name} is no readable .npz archive: {error}") from error
    except ValueError as error:
        raise InputError(f"{key!r} in {name} is no array of numbers, and nothing else is read") from error
    if array is None:
        raise InputError(f"{name} has no array {key!r}; it holds {format_list(names)}")
    if not np.issubdtype(array.dtype, np.number):
        raise InputError(f"{key!r} in {name} is no array of numbers but of {array.dtype}")
    if array.ndim != len(axes):
        raise InputError(f"{key!r} in {name} must be ({', '.join(axes)}), its shape is {array.shape}")
    return array.astype(np.float64)


def _flow(data: Float64[np.ndarray, "t n features"]) -> pd.DataFrame:
    return pd.DataFrame(data[:, :, 0]).add_prefix("sensor ")


def uncompressed(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz, .xz or .zip; at most MOST_BYTES are unpacked."""
    try:
        if path.suffix not in PACKED:
            return path.read_bytes()
        with PACKED[path.suffix](path) as packed:
            content = packed.read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} is damaged and cannot be uncompressed: {error}") from error
    except (MemoryError, OSError) as error:
        reason = getattr(error, "strerror", None) or f"its {path.stat().st_size} bytes are more than the memory holds"
        raise InputError(f"cannot read {path}: {reason}") from error
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{path} unpacks to more than {MOST_BYTES} bytes, the most that is read packed; unpack it first"
        )
    return content


def _only_file(path: Path) -> Any:
    """Open the only file of a ZIP archive."""
    with zipfile.ZipFile(path) as archive:
        names = [one for one in archive.namelist() if not (one.endswith("/") or one.startswith("__MACOSX"))]
        if len(names) != 1:
            raise InputError(f"{path} holds {len(names)} files, {format_list(names)}; unpack it and give one of them")
        if archive.getinfo(names[0]).flag_bits & 1:
            raise InputError(f"{path} is encrypted; unpack it first")
        return archive.open(names[0])


PACKED: dict[str, Callable[[Path], Any]] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile, ".zip": _only_file}
"""Ending of a compressed file -> what unpacks it."""


def to_numbers(frame: pd.DataFrame, *, source: str = "the frame") -> Float64[np.ndarray, "t n"]:
    """Return all cells as float64, empty ones as NaN; the first cell that is no number is named."""
    columns = []
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
            columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
            continue
        if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
            raise InputError(f"column {name!r} of {source} is not numeric but {column.dtype}; drop the column")
        if column.map(lambda cell: isinstance(cell, complex | np.complexfloating)).any():
            raise InputError(f"column {name!r} of {source} holds complex numbers; give real and imaginary part apart")
        try:
            numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"column {name!r} of {source} is not numeric: {error}; drop the column") from error
        bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
        if len(bad):
            row = int(bad[0])
            raise InputError(
                f"column {name!r} of {source} is not numeric: row {frame.index[row]} holds {column.iloc[row]!r}; "
                f"correct the cell, drop the column, or say that it means missing, na={str(column.iloc[row]).strip()!r}"
            )
        columns.append(numbers)
    return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))
