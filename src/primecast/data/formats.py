"""The file formats of the benchmark sets: the bytes of a file in, values, dates and names out.

Nothing is repaired here. What cannot be read is refused with a sentence that names the file and the first offender.

Letters: t rows, n channels.
"""

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float64

from primecast.errors import InputError, format_list

TARGET = "OT"


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds."""

    values: Float64[np.ndarray, "t n"]
    index: pd.DatetimeIndex | None
    names: tuple[str, ...]


def read_csv(contents: dict[str, bytes]) -> Table:
    """ETT, Exchange, Weather, ECL, Traffic: a `date` column, then channels; the target OT is put last."""
    (name, content), *_ = contents.items()
    frame = _parse(content, name, sep=",")
    for column in ("date", TARGET):
        if column not in frame.columns:
            raise InputError(f"{name} has no column {column!r}; its columns are {format_list(frame.columns)}")
    index = _dates(frame.pop("date"), name, layout=None)
    frame[TARGET] = frame.pop(TARGET)
    return Table(to_numbers(frame, source=name), index, tuple(frame.columns))


def read_simbench(contents: dict[str, bytes]) -> Table:
    """SimBench profiles: semicolons, a `time` column written day first; channels that never change are dropped."""
    (name, content), *_ = contents.items()
    frame = _parse(content, name, sep=";")
    if "time" not in frame.columns:
        raise InputError(f"{name} has no column 'time'; its columns are {format_list(frame.columns)}")
    index = _dates(frame.pop("time"), name, layout="%d.%m.%Y %H:%M")
    values = to_numbers(frame, source=name)
    changing = values.max(axis=0) > values.min(axis=0)
    return Table(values[:, changing], index, tuple(frame.columns[changing]))


def read_text(contents: dict[str, bytes]) -> Table:
    """Solar-Energy, traffic-20: numbers only, separated by commas or spaces; neither names nor dates."""
    (name, content), *_ = contents.items()
    first_line = content.partition(b"\n")[0]
    frame = _parse(content, name, sep="," if b"," in first_line else r"\s+", header=None)
    frame.columns = [f"c{channel}" for channel in range(frame.shape[1])]
    return Table(to_numbers(frame, source=name), None, tuple(frame.columns))


def read_pems(contents: dict[str, bytes]) -> Table:
    """PEMS: an array `data` of (time, sensor, feature), of which feature 0, the flow, is used."""
    (name, content), *_ = contents.items()
    data = _array(content, name, "data")
    if data.ndim != 3:
        raise InputError(f"'data' in {name} must be (time, sensor, feature), its shape is {data.shape}")
    return _sensors(data[:, :, 0])


def read_pems_windows(contents: dict[str, bytes]) -> Table:
    """The end of a PEMS series, told again as windows `x` and `y` of (window, step, sensor, feature).

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


FORMATS: dict[str, Callable[[dict[str, bytes]], Table]] = {
    "csv": read_csv,
    "simbench": read_simbench,
    "text": read_text,
    "pems": read_pems,
    "pems-windows": read_pems_windows,
}


def _parse(content: bytes, name: str, *, sep: str, header: int | None = 0) -> pd.DataFrame:
    try:
        # Weather's column names hold bytes that are no UTF-8 in some copies: names only, so they may be replaced.
        text = io.StringIO(content.decode("utf-8", errors="replace"))
        frame: pd.DataFrame = pd.read_csv(text, sep=sep, header=header, low_memory=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{name} is not a table with the separator {sep!r}: {error}") from error
    frame.columns = frame.columns.map(str)
    return frame


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


def _sensors(values: Float64[np.ndarray, "t n"]) -> Table:
    names = tuple(f"sensor {number}" for number in range(values.shape[1]))
    return Table(np.ascontiguousarray(values), None, names)


def uncompressed(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz or .xz."""
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
    """All cells as float64, empty ones as NaN; the first cell that is no number is named."""
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
