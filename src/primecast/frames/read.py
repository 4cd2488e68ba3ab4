"""Reading: from a file, a frame or an array to a wide pandas frame and its layout.

CSV, Parquet, pandas, polars, numpy ──open_table──> wide frame (time x channels), not yet checked, + Layout
long frame (unique_id, ds, y) ──widen──> wide frame ──lengthen──> long frame
"""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from primecast.data.formats import uncompressed
from primecast.errors import InputError, format_list, unknown
from primecast.frames.dates import holds_dates, read_dates
from primecast.frames.layouts import FILE, Layout, from_native
from primecast.frames.validate import LONG_COLUMNS, check_columns

TIME_NAMES = ("ds", "date", "time", "datetime", "timestamp", "date_time", "index")


def read_table(
    path: Path | str,
    *,
    id: str | None = None,
    time: str | None = None,
    value: str | None = None,
    dayfirst: bool | None = None,
) -> pd.DataFrame:
    """Return a CSV file (may be .gz or .xz) or a Parquet file as a wide frame in the file's order; see `open_table`.

    The header decides between comma, semicolon (then also decimal commas) and tab. The time column is the one named
    `time`; else one with a usual name, such as date or ds; else the first text column that holds dates. A nameless
    column that only numbers the rows, as pandas writes it, is dropped.
    """
    return open_table(Path(path), id=id, time=time, value=value, dayfirst=dayfirst)[0]


def open_table(
    data: object,
    *,
    id: str | None = None,
    time: str | None = None,
    value: str | None = None,
    dayfirst: bool | None = None,
) -> tuple[pd.DataFrame, Layout]:
    """Return the data as a wide pandas frame, not yet checked, and its layout.

    data:  a DataFrame of pandas or polars, the path of a CSV or Parquet file, an array (rows, channels).
    id, time, value: columns of a long table, by default unique_id, ds and y; a table with all three of these columns is
           long. `time` alone is the time column of a wide table; by default a wide frame that has no DatetimeIndex
           takes its one column of dates, if it has one.
    dayfirst: whether 05/02/2024 is 5 February; needed only where no row decides it, see `primecast.frames.dates`.
    """
    if isinstance(data, np.ndarray):
        return _read_array(data), Layout(kind="numpy")
    from_file = isinstance(data, str | Path)
    frame, kind = (_read_file(Path(str(data))), FILE) if from_file else from_native(data)
    check_columns(frame)
    given = Layout(kind=kind, id=id, time=time, value=value)
    if id is not None or value is not None or set(frame.columns) >= LONG_COLUMNS:
        found = Layout(kind=kind, id=id or "unique_id", time=time or "ds", value=value or "y")
        wide, dayfirst = _widen(frame, found, dayfirst=dayfirst, source=str(data) if from_file else "the long frame")
    else:
        found = replace(given, time=_time_column(frame, time, path=str(data) if from_file else None))
        wide, dayfirst = _set_time_index(frame, found.time, dayfirst, source=str(data) if from_file else "the frame")
    whole = [str(name) for name in wide.columns if _is_whole(name)]
    return wide, replace(given if from_file else found, dayfirst=dayfirst, whole=whole)


def reopen_table(data: object, layout: Layout) -> tuple[pd.DataFrame, Layout]:
    """Open a table given later than the one of `layout`: its names apply, to a frame only if it has such columns."""
    long = {"id": layout.id, "time": layout.time, "value": layout.value}
    columns = set(getattr(data, "columns", ()))
    names: dict[str, str | None] = {}
    if isinstance(data, str | Path):
        names = long if layout.kind == FILE else {}
    elif layout.kind != FILE and layout.id is not None and {layout.id, layout.time, layout.value} <= columns:
        names = long
    elif layout.kind != FILE and layout.time in columns:
        names = {"time": layout.time}
    return open_table(data, **names, dayfirst=layout.dayfirst)


def _is_whole(name: object) -> bool:
    return isinstance(name, int | np.integer) and not isinstance(name, bool)


# ---------------------------------------------------------------- files and arrays


def _read_file(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    return _read_parquet(path) if path.suffix in (".parquet", ".pq") else _read_csv(path)


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        text = uncompressed(path).decode("utf-8-sig")
        header, _, rest = text.partition("\n")
        sep = max(",;\t", key=header.count)
        decimal = "," if sep == ";" and "," in rest.partition("\n")[0] else "."
        frame = pd.read_csv(io.StringIO(text), sep=sep, decimal=decimal, low_memory=False)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path} is not a CSV table: {str(error).strip()}") from error

    nameless = frame.columns[0]
    if nameless == "Unnamed: 0" and pd.api.types.is_integer_dtype(frame[nameless]) and frame[nameless].is_unique:
        return frame.drop(columns=nameless)
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, engine="pyarrow")
    except ImportError as error:
        raise InputError(
            f"reading {path} needs pyarrow: pip install 'primecast[parquet]', or save it as CSV"
        ) from error
    except (ValueError, OSError, NotImplementedError) as error:  # pyarrow's own errors are kinds of these
        raise InputError(f"{path} is not a Parquet table: {error}") from error


def _read_array(data: np.ndarray) -> pd.DataFrame:
    if data.ndim != 2:
        raise InputError(f"an array must have rows and channels, but this one has {data.ndim} axes")
    if data.dtype.kind not in "iufb":
        raise InputError(f"an array must hold numbers, but this one holds {data.dtype}")
    return pd.DataFrame(data, columns=[f"channel {number}" for number in range(data.shape[1])])


# ---------------------------------------------------------------- the time column of a wide table


def _time_column(frame: pd.DataFrame, time: str | None, *, path: str | None) -> str | None:
    """Return the name of the time column; None where the index has the time. path: of the file, if it was one."""
    if time is not None:
        if time in frame.columns:
            return time
        if path is not None:
            raise unknown(f"time column of {path}", time, frame.columns)
        raise InputError(f"the frame has no time column {time!r}; its columns are {format_list(frame.columns)}")
    if isinstance(frame.index, pd.DatetimeIndex):
        return None
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    usual = [name for name in text if str(name).strip().lower() in TIME_NAMES]
    if path is None:
        dates = [name for name in text if pd.api.types.is_datetime64_any_dtype(frame[name])]
        found = dates or [name for name in usual if holds_dates(frame[name])]
        return str(found[0]) if len(found) == 1 else None
    for name in [*usual, *(name for name in text if name not in usual)]:
        if holds_dates(frame[name]):
            return str(name)
    raise InputError(
        f"{path} has no time column: no column of text holds dates in all rows "
        f"(columns: {format_list(frame.columns)}); write them like 2024-01-31 23:00"
    )


def _set_time_index(
    frame: pd.DataFrame, time: str | None, dayfirst: bool | None, *, source: str
) -> tuple[pd.DataFrame, bool | None]:
    if time is None:
        return frame, None
    stamps, dayfirst = read_dates(frame, time, dayfirst=dayfirst, source=source)
    return frame.drop(columns=time).set_axis(stamps, axis="index"), dayfirst


# ---------------------------------------------------------------- long tables


def widen(
    df: pd.DataFrame,
    *,
    id_column: str = "unique_id",
    time_column: str = "ds",
    value_column: str = "y",
    dayfirst: bool | None = None,
) -> pd.DataFrame:
    """Return a long frame as a wide one: a column per id, in the order in which ids appear; absent pairs are NaN."""
    layout = Layout(id=id_column, time=time_column, value=value_column)
    return _widen(df, layout, dayfirst=dayfirst, source="the long frame")[0]


def _widen(df: pd.DataFrame, layout: Layout, *, dayfirst: bool | None, source: str) -> tuple[pd.DataFrame, bool | None]:
    id, time, value = str(layout.id), str(layout.time), str(layout.value)
    for name in (id, time, value):
        if name not in df.columns:
            raise InputError(f"{source} has no column {name!r}; its columns are {format_list(df.columns)}")
    stamps, dayfirst = read_dates(df, time, dayfirst=dayfirst, source=source)
    df = df.assign(**{time: stamps})
    nameless = df[id].isna()
    if nameless.any():
        raise InputError(
            f"{int(nameless.sum())} rows have no {id!r}, the first at {stamps[nameless.to_numpy()][0]}; fill it in or "
            f"drop them with df.dropna(subset=[{id!r}])"
        )
    twice = df.duplicated([id, time])
    if twice.any():
        first = df[twice].iloc[0]
        raise InputError(
            f"{int(twice.sum())} rows repeat an id and time, the first {first[id]!r} at {first[time]}; "
            f"keep one, for example with df.drop_duplicates([{id!r}, {time!r}])"
        )
    wide = df.pivot(index=time, columns=id, values=value)
    return wide[df[id].unique()].rename_axis(columns=None), dayfirst
