"""Reading: from a file, a frame or an array to a wide pandas frame and its layout.

CSV, Parquet, Excel, pandas, polars, numpy ──open_table──> OpenTable: wide frame (time x channels), not yet checked
`files` reads files, `time_columns` finds the time, `columns` the channels, `long_tables` makes long tables wide.
"""

import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import InputError, format_list, stamp
from primecast.frames.columns import AS_ASKED, Choice, choose_again, choose_columns, describe_suspects, existing
from primecast.frames.date_columns import dates_of_numbers
from primecast.frames.dates import frequency_in_words, zone_name
from primecast.frames.files import path_of, read_file
from primecast.frames.given_steps import at_step, dated_from
from primecast.frames.layouts import FILE, Layout, from_native
from primecast.frames.long_tables import LongTable, as_long, names_long, refuse_long
from primecast.frames.matrices import parts_of, unfold
from primecast.frames.numbers import make_missing
from primecast.frames.regular import with_absent_rows
from primecast.frames.text_files import names_nothing
from primecast.frames.time_columns import find_date, find_time, set_time
from primecast.frames.validate import check_columns, describe_gaps
from primecast.schema import Rule, checked

LISTED = Rule(("name", "list"), optional=True)
"""A name, or several."""


class ColumnsLeftOutWarning(UserWarning):
    """Some columns of a table are no channels, or may be none, or hold what may mean missing; nobody said so."""


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table that was read. frame: wide, not yet checked. source: what messages call it.

    remarks: how the file was written. kept: what is worth saying of a channel that may be none. suspects: sentences on
    numbers that may mean missing. covariates: the columns that are no channels.
    """

    frame: pd.DataFrame
    layout: Layout
    source: str = "the frame"
    remarks: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()

    def describe(self, *, missing: str = "error") -> str:
        """Return two lines: rows, step, first and last row; channels, gaps, what was left out and why.

        A line more for each number that may mean missing.
        """
        frame = self.frame if missing == "error" else with_absent_rows(self.frame)
        index, absent = frame.index, len(frame) - len(self.frame)
        ends = f", from {stamp(index.min())} to {stamp(index.max())}" if len(index) else ""
        zone = f" in {zone_name(index.tz)}" if isinstance(index, pd.DatetimeIndex) and index.tz is not None else ""
        time = f"time column {index.name!r}" if isinstance(index, pd.DatetimeIndex) and index.name is not None else None
        if not isinstance(self.layout.time, str | None):
            time = f"time from {', '.join(self.layout.time)}"
        elif self.layout.start is not None:
            time = f"dated from {self.layout.start}"
        remarks = ", ".join(part for part in (time, *self.remarks) if part)
        gaps = f"{absent} rows that are not there are gaps; " if absent > 1 else ""
        gaps = "1 row that is not there is a gap; " if absent == 1 else gaps
        said = [gaps + describe_gaps(frame, missing=missing), *self.doubts()]
        names = [f'"{name}"' if "," in str(name) else name for name in frame.columns if name not in self.covariates]
        channels = "1 channel" if len(names) == 1 else f"{len(names)} channels"
        roles = f"{format_list(names)}{f'; covariates: {format_list(self.covariates)}' if self.covariates else ''}"
        return (
            f"{self.source}: {len(self.frame)} rows, {frequency_in_words(index)}{ends}{zone}"
            f"{f' ({remarks})' if remarks else ''}\n"
            f"{channels}: {roles}; {'; '.join(said)}{''.join(f'{chr(10)}note: {one}' for one in self.suspects)}"
        )

    def doubts(self, *, asked: bool = True) -> list[str]:
        """Return what was left out, grouped by why, and what was kept though it may be no channel.

        asked: with the columns that the caller left out.
        """
        reasons: dict[str, list[str]] = {}
        for name, why in self.layout.left_out.items():
            if asked or not (why == AS_ASKED or name == "Unnamed: 0"):  # as pandas writes it
                reasons.setdefault(why, []).append(name)
        left = [f"{format_list(names)} ({why})" for why, names in reasons.items()]
        return [
            *([f"left out: {', '.join(left)}"] if left else []),
            *([f"kept: {', '.join(self.kept)}"] if self.kept else []),
        ]

    def say(self, *, missing: str, shown: bool) -> None:
        """Print the two lines on stderr; if they are not to be shown, warn of columns left out without being asked."""
        if shown:
            sys.stderr.write(f"{self.describe(missing=missing)}\n")
        else:
            self.warn()

    def warn(self) -> None:
        """Warn of columns that were left out, or kept, without being asked for."""
        doubts = self.doubts(asked=False)
        said = [f"of {self.source} {'; '.join(doubts)}; choose with columns=[...] or drop=[...]"] if doubts else []
        said += [f"in {self.source} {one}" for one in self.suspects]
        if said:
            warnings.warn("; ".join(said), ColumnsLeftOutWarning, stacklevel=3)


def read_table(path: Path | str, **options: Any) -> pd.DataFrame:
    """Return a CSV (may be .gz or .xz), Parquet, Feather or Excel file as a wide frame in the file's order.

    options: as for `open_table`. Of a text file encoding, separator and decimal sign are found. The time column is the
    one named `time`; else one with a usual name, such as date or ds; else the first text column that holds dates; else
    columns named year, month, day, hour. Columns that are no channels are left out, with a ColumnsLeftOutWarning.
    """
    table = open_table(Path(path), **options)
    table.warn()
    return table.frame


@checked(time=LISTED, columns=LISTED, drop=LISTED, covariates=LISTED)
def open_table(
    data: object,
    *,
    id: str | None = None,
    time: str | Sequence[str] | None = None,
    value: str | None = None,
    dayfirst: bool | None = None,
    columns: str | Iterable[object] | None = None,
    drop: str | Iterable[object] = (),
    header: int | str | None = "infer",
    decimal: str | None = None,
    freq: str | None = None,
    start: str | None = None,
    tz: str | None = None,
    na: object = (),
    matrix: bool | None = None,
    covariates: Sequence[str] = (),
) -> OpenTable:
    """Return the data as a wide pandas frame, not yet checked, with its layout.

    data:  a DataFrame of pandas or polars, a Series, the path of a CSV, Parquet, Feather or Excel file, an array (rows,
           channels), or a table that is open already.
    id, time, value: columns of a long table, by default unique_id, ds and y; a table with all three of these columns is
           long. `time` alone is the time column of a wide table, or several that make a date (year, month, day, hour);
           by default a wide frame that has no DatetimeIndex takes its one column of dates, if it has one.
    dayfirst: whether 05/02/2024 is 5 February; needed only where no row decides it, see `primecast.frames.dates`.
    columns, drop: the channels to keep, or to leave out, by name; a text may hold several between commas.
    header: None for a file whose first row is data; 0 if its names look like data.
    decimal: the decimal sign of a text file, "." or ","; needed only where no cell decides it.
    freq, start: step and first date of rows that have no dates, "h" and "2024-01-31". freq alone: the step to which
           dated rows are brought, by the means of the rows within each step.
    na:    cells that mean missing, such as -9999 or "Bad Input"; empty cells, NA, n/a, ?, . and dashes always do.
    matrix: whether a row for each year with its months in columns, or for each day with its hours, is one series;
           needed only where the names of the columns do not decide it, see `matrices`.
    tz:    the zone of dates that have none, "Europe/Berlin"; hours that a change to winter time repeats are told apart.
    covariates: columns that are kept whatever they look like; those of text are encoded, see `columns`. Those of a long
           table become a column for each series, see `long_tables`.
    """
    if isinstance(data, OpenTable):
        return data
    given = Layout(
        id=id, time=time, value=value, dayfirst=dayfirst, header=header, decimal=decimal, freq=freq, start=start, tz=tz,
        na=list(na) if isinstance(na, Iterable) and not isinstance(na, str) else [na], matrix=matrix,
    )  # fmt: skip
    with _whole_characters():
        chosen = None if columns is None else _listed(columns)
        return _opened(data, given, columns=chosen, drop=_listed(drop), covariates=covariates)


def _opened(
    data: object,
    given: Layout,
    *,
    columns: Sequence[str] | None,
    drop: Sequence[str],
    covariates: Sequence[str],
) -> OpenTable:
    table, long = _open(data, given, covariates)
    choice = Choice(table.frame, left_out=dict(table.layout.left_out))
    if drop:
        choice.leave_out(existing(drop, choice.frame.columns, what="column to drop"), AS_ASKED)
    if long is not None:
        covariates = long.covariates_in_wide(covariates, choice.frame, columns)
        choice.leave_out([name for name in long.own_columns() if name not in covariates], AS_ASKED)
    measured = long is not None or table.layout.kind == "numpy"
    categories = {} if long is None else long.categories()
    choose_columns(choice, columns=columns, covariates=covariates, measured=measured, categories=categories)
    layout = replace(table.layout, left_out=choice.left_out, categories=choice.categories)
    parts = tuple(f"{name}{sign}" for name in covariates for sign in ("=", " | "))
    known = [str(name) for name in choice.frame.columns]
    return replace(
        table,
        frame=choice.frame,
        layout=_with_whole(layout, choice.frame),
        kept=tuple(choice.kept),
        suspects=tuple(describe_suspects(choice.suspects)),
        covariates=tuple(name for name in known if name in covariates or name.startswith(parts)),
    )


def reopen_table(data: object, layout: Layout, *, start: str | None = None) -> tuple[pd.DataFrame, Layout]:
    """Open a table given later than the one of `layout`: what is known of that one applies, and its choice of columns.

    Names of columns apply to a frame only if it has such columns. start: the first date of rows without dates.
    """
    given = replace(layout, id=None, time=None, value=None, start=start)
    names: dict[str, Any] = {"id": layout.id, "time": layout.time, "value": layout.value}
    columns = set(getattr(data, "columns", ()))
    if isinstance(data, str | Path):
        given = replace(given, **names) if layout.kind == FILE else given
        if layout.start is not None and start is None:
            raise InputError(
                f"the rows of {data} have no dates; give that of the first row, start='2025-01-31' (in Python to "
                f"primecast.frames.read_table, with freq={layout.freq!r})"
            )
    elif layout.kind != FILE and layout.id in columns and (names_long(layout, columns) or parts_of(columns)):
        given = replace(given, **names)
    elif layout.kind != FILE and layout.time is not None and columns.issuperset(_listed(layout.time)):
        given = replace(given, time=layout.time)
    if layout.start is not None and (not isinstance(data, str | Path) or start is None):
        given = replace(given, freq=None, start=None)
    with _whole_characters():
        table, _ = _open(data, given)
        return choose_again(table.frame, layout.left_out, layout.categories), _with_whole(table.layout, table.frame)


@contextmanager
def _whole_characters() -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:
        raise InputError(
            f"the table holds half a character (a lone surrogate) in {error.object!r}; correct the text"
        ) from error


def _listed(names: str | Iterable[object]) -> list[str]:
    return [names] if isinstance(names, str) else list(map(str, names))


def _open(data: object, given: Layout, covariates: Sequence[str] = ()) -> tuple[OpenTable, LongTable | None]:
    """Return the table with all its columns but those of the time, and the long table that it was."""
    if isinstance(data, np.ndarray):
        frame = _read_array(data)
        if given.start is not None or given.freq is not None:
            frame = dated_from(frame, start=given.start, freq=given.freq, tz=given.tz, source="the array")
        return OpenTable(frame, replace(given, kind="numpy", time=None, id=None, value=None), source="the array"), None
    remarks: tuple[str, ...] = ()
    units: dict[str, str] = {}
    path = path_of(data) if isinstance(data, str | Path) else None
    if path is not None:
        frame, form = read_file(path, header=given.header, decimal=given.decimal, na=given.na)
        units = form.units
        given, remarks = replace(given, kind=FILE, decimal=form.decimal), form.remarks
    else:
        frame, kind = from_native(data)
        given = replace(given, kind=kind)
        if parts_of(frame.columns) is None:
            _check_names(frame)
        frame = make_missing(frame, given.na)
    check_columns(frame)
    source = "the frame" if path is None else str(path)
    matrix = unfold(frame, given, source=source, path=None if path is None else str(path))
    frame, found, left_out, remarks = matrix.frame, matrix.layout, matrix.left_out, (*matrix.remarks, *remarks)
    long = as_long(frame, found, covariates, source=source if path is not None else "the long frame")
    if long is not None:
        found, source, left_out = long.layout, long.source, {**left_out, **long.left_out()}
        wide, dayfirst = long.widen()
        wide = wide if given.freq is None else at_step(wide, given.freq)
        remarks = (f"long, {frame[found.id].nunique()} series by {found.id!r}", *remarks)
    elif given.start is not None or (given.freq is not None and not _has_dates(frame, given, path)):
        wide = dated_from(frame, start=given.start, freq=given.freq, tz=given.tz, source=source)
        dayfirst = given.dayfirst
    else:
        found = replace(found, time=find_time(frame, found.time, path=None if path is None else str(path)))
        wide, dayfirst = set_time(frame, found.time, given.dayfirst, tz=given.tz, source=source)
        remarks = (*_kind_of_dates(frame, found.time), *remarks)
        refuse_long(wide, source=source)
        if given.freq is not None:
            wide = at_step(wide, given.freq)
            remarks = (f"means of steps of {given.freq!r}", *remarks)
    several = not isinstance(found.time, str | None)  # of a file, too: it is said, and read alike later
    dayfirst = matrix.layout.dayfirst if matrix.remarks else dayfirst
    layout = replace(found if path is None or several else given, dayfirst=dayfirst, left_out=left_out)
    layout = replace(layout, covariates=found.covariates)
    if units:
        wide.attrs["units"] = {**units, **wide.attrs.get("units", {})}
    return OpenTable(wide, layout, source=source, remarks=remarks), long


def _has_dates(frame: pd.DataFrame, given: Layout, path: Path | None) -> bool:
    """Return whether the rows of a table have dates."""
    dated = isinstance(frame.index, pd.DatetimeIndex) or given.time is not None
    return dated or find_date(frame, searched=path is not None) is not None


def _kind_of_dates(frame: pd.DataFrame, time: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return what the numbers of a time column are: Unix seconds, or dates like 20240131."""
    known = dates_of_numbers(frame[time]) if isinstance(time, str) and time in frame.columns else None
    return () if known is None else (known[1],)


def _check_names(frame: pd.DataFrame) -> None:
    """Refuse names that are a row of data, not all whole numbers: the first one of a file without a header."""
    names = [str(name) for name in frame.columns]
    if names_nothing(names) and not all(re.fullmatch(r"[+-]?\d+", name) for name in names):
        raise InputError(
            f"the columns are named {format_list(frame.columns, most=3)}, like a row of numbers: read the file with "
            "header=None if it has no names, or rename them"
        )


def _with_whole(layout: Layout, wide: pd.DataFrame) -> Layout:
    """Return the layout with the names of channels that are whole numbers."""
    return replace(layout, whole=[str(name) for name in wide.columns if not isinstance(name, str)])


def _read_array(data: np.ndarray) -> pd.DataFrame:
    if data.ndim != 2:
        line = "; a single channel is array[:, None]" if data.ndim == 1 else ""
        raise InputError(f"an array must have rows and channels, but this one has {data.ndim} axes{line}")
    if data.dtype.kind not in "iufb":
        raise InputError(f"an array must hold numbers, but this one holds {data.dtype}")
    return pd.DataFrame(data, columns=[f"channel {number}" for number in range(data.shape[1])])
