"""Matrices: a row for each year or day, a column for each of its months or hours; the cells are one series.

    Year  Jan   Feb  ...  Dec   J-D                time        value
    1880  -.19  -.25 ...  -.18  -.17     ──>       1880-01-01  -0.19      J-D is left out
    1881  -.20  -.15 ...  -.07  -.09               1880-02-01  -0.25

Names of months and times of day say what such a table is. Columns 1 to 12 of years, and 0 to 23, H1 to H24 and the like
of days, may also be channels: these are refused until `matrix` says what they are.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from primecast.errors import InputError, format_list
from primecast.frames.date_spellings import MONTH_OF
from primecast.frames.layouts import Layout
from primecast.frames.numbers import is_text
from primecast.frames.time_columns import find_time, part_of, set_time

TIME, VALUE = "time", "value"
"""The columns of the one series."""
HOUR, DAY = 3600, 86400
"""Seconds."""
CLOCK_NAME = r"(\d{1,2}):(\d{2})(?::00)?(?:\s*[-\u2013]\s*\d{1,2}:\d{2}(?::00)?)?"
"""A time of day, or an interval, of which the start counts."""
NUMBER_NAME = r"(m|h|he|hr|hour|std|stunde|heure|hora|ora|uur)?[ _.-]*(\d{1,2})[ ]?(?:h|uhr)?"
"""A month or an hour by its number: 7, 07, M7, H07, Hour 7, 7h."""
IN_A_DAY = (24, 48, 96)
"""Columns of hours, half-hours and quarters of an hour."""


@dataclass(frozen=True)
class Parts:
    """The columns that are parts of a year or a day. certain: they are by their names, and cannot be channels.

    starts: column -> the month from 1 on, or the seconds since midnight.
    """

    of: str
    starts: Mapping[object, int]
    certain: bool

    @property
    def names(self) -> str:
        return {"year": "months", "day": "hours" if len(self.starts) == IN_A_DAY[0] else "times of day"}[self.of]


@dataclass(frozen=True)
class Unfolded:
    """A table whose matrix, if it was one, is a series by now. layout: with the names of its columns."""

    frame: pd.DataFrame
    layout: Layout
    remarks: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def unfold(frame: pd.DataFrame, given: Layout, *, source: str, path: str | None) -> Unfolded:
    """Return a matrix as a table of one series, of one for each id if it has ids; any other table as it is.

    path: of the file, if it was one.
    """
    plain = Unfolded(frame, given)
    parts = parts_of(frame.columns)
    wanted = given.matrix is True and not {TIME, VALUE} <= set(frame.columns)
    nameless = given.header is None and frame.shape[1] == 13 and _are_years(frame.iloc[:, 0])
    if given.matrix is False or given.start is not None or not len(frame) or not (parts or wanted or nameless):
        return plain
    dates = _dates(frame, given, parts, path)
    parts = _parts_in_order(frame, dates, certain=wanted) if parts is None else parts
    if dates is None or parts is None or not _holds(dates.index, parts):
        if wanted:
            raise InputError(
                f"matrix=True, but {source} has neither years with 12 columns for their months nor days with 24, 48 or "
                f"96 columns for their hours; its columns are {format_list(frame.columns)}"
            )
        return plain
    if given.matrix is None and not parts.certain:
        first, *_, last = parts.starts
        raise InputError(
            f"the columns {first} to {last} of {source} may be the {parts.names} of each {parts.of}, which make one "
            f"series, or {len(parts.starts)} channels; choose with matrix=True or matrix=False"
        )
    _check_first(parts, source)
    return _unfolded(frame.reset_index(drop=True), dates, parts, given, source=source)


def _unfolded(frame: pd.DataFrame, dates: "_Dates", parts: Parts, given: Layout, *, source: str) -> Unfolded:
    index, ids = dates.index, [] if given.id is None or given.id not in frame.columns else [given.id]
    others = [name for name in frame.columns if name not in (*parts.starts, *ids, *dates.names)]
    if not ids and not index.is_unique:
        names = [str(name) for name in others if is_text(frame[name]) and frame[name].nunique() > 1]
        remedy = f"give id={names[0]!r}" if names else "delete the rows that repeat one"
        raise InputError(f"the {parts.of}s of {source} repeat, the first {index[index.duplicated()][0]}; {remedy}")
    pieces = [
        pd.DataFrame({**{one: frame[one] for one in ids}, TIME: _later(index, parts.of, start), VALUE: frame[name]})
        for name, start in parts.starts.items()
    ]
    long = pd.concat(pieces).sort_values(TIME, kind="stable", ignore_index=True)
    known = long.loc[long[VALUE].notna(), TIME]
    if len(known):  # the rest of the last year is not there yet
        long = long[long[TIME].between(known.iloc[0], known.iloc[-1])].reset_index(drop=True)
    by_end = parts.of == "day" and min(parts.starts.values()) > 0
    said = f"{parts.names} of {index.nunique()} {parts.of}s as one series{', by their ends' if by_end else ''}"
    layout = replace(given, time=TIME, value=VALUE if ids else None, dayfirst=dates.dayfirst)
    return Unfolded(long, layout, (said,), dict.fromkeys(map(str, others), f"beside the {parts.names}"))


# ---------------------------------------------------------------- columns


def parts_of(columns: Collection[object]) -> Parts | None:
    """Return the columns that are named after all months of a year, or all hours, half-hours or the like of a day."""
    if isinstance(columns, pd.RangeIndex):  # columns of pandas without names
        return None
    plain = {name: str(name).strip().casefold() for name in columns}
    months = {name: MONTH_OF[text.rstrip(".")] for name, text in plain.items() if text.rstrip(".") in MONTH_OF}
    if sorted(months.values()) == list(range(1, 13)):
        return Parts("year", months, certain=True)
    clocks = {name: found for name, text in plain.items() if (found := re.fullmatch(CLOCK_NAME, text))}
    seconds = {name: HOUR * int(found[1]) + 60 * int(found[2]) for name, found in clocks.items()}
    times = sorted(seconds.values())
    if len(times) >= IN_A_DAY[0] and set(np.diff(times)) == {DAY / len(times)}:
        return Parts("day", seconds, certain=True)
    numbers = {name: found for name, text in plain.items() if (found := re.fullmatch(NUMBER_NAME, text))}
    if len({found[1] for found in numbers.values()}) != 1:
        return None
    counts = {name: int(found[2]) for name, found in numbers.items()}
    if sorted(counts.values()) == list(range(1, 13)):
        return Parts("year", counts, certain=False)
    if sorted(counts.values()) in (list(range(24)), list(range(1, 25))):
        return Parts("day", {name: HOUR * count for name, count in counts.items()}, certain=False)
    return None


def _parts_in_order(frame: pd.DataFrame, dates: "_Dates | None", *, certain: bool) -> Parts | None:
    """Return the last columns of a table, in order, whose names say nothing. certain: the caller says what they are."""
    for of, counts in (("year", (12,)), ("day", IN_A_DAY[::-1])):
        for count in counts:
            names = list(frame.columns[-count:])
            starts = range(1, 13) if of == "year" else range(0, DAY, DAY // count)
            parts = Parts(of, dict(zip(names, starts, strict=False)), certain=certain)
            if len(names) == count and dates is not None and _holds(dates.index, parts):
                return parts
    return None


def _check_first(parts: Parts, source: str) -> None:
    """Refuse years that begin with another month than January: of which January they are is not known."""
    months = list(parts.starts.values())
    if parts.of == "year" and months[0] != 1 and set(np.diff(months)) == {1, -11}:
        raise InputError(
            f"the years of {source} begin with {next(iter(parts.starts))}, and whether they are named after their "
            "first or their last month is not known; write a row for each month, with its date"
        )


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class _Dates:
    """The date of each row, the names of its columns, and whether its day came first."""

    index: pd.DatetimeIndex
    names: Sequence[object] = ()
    dayfirst: bool | None = None


def _dates(frame: pd.DataFrame, given: Layout, parts: Parts | None, path: str | None) -> _Dates | None:
    """Return the dates of the rows, of a year its first of January; None where they have none."""
    time: str | Sequence[str] | None = None if given.time == TIME and TIME not in frame.columns else given.time
    others = [name for name in frame.columns if parts is None or name not in parts.starts]
    if (time is None or isinstance(time, str)) and (parts is None or parts.of == "year"):
        known = [name for name in others if time in (None, name) and (name == others[0] or part_of(name) == "year")]
        columns: dict[object, pd.Series[int]] = {name: frame[name] for name in known if _are_years(frame[name])}
        if not columns and _are_years(frame.index.to_series()):
            columns = {frame.index.name: frame.index.to_series()}
        for name, years in columns.items():
            return _Dates(pd.DatetimeIndex(pd.to_datetime(years.astype(int).astype(str), format="%Y")), [name])
    found = find_time(frame[others], time, path=path)
    dated, dayfirst = set_time(frame[others], found, given.dayfirst, tz=None, source=path or "the frame")
    if not isinstance(dated.index, pd.DatetimeIndex):
        return None
    return _Dates(dated.index, [] if found is None else [found] if isinstance(found, str) else found, dayfirst)


def _are_years(column: "pd.Series[int]") -> bool:
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_complex_dtype(column):
        return False
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return bool(((numbers == np.floor(numbers)) & (numbers >= 1000) & (numbers < 3000)).all())


def _holds(index: pd.DatetimeIndex, parts: Parts) -> bool:
    """Return whether the rows are years, or days of which most follow each other."""
    if index.hasnans:
        return False
    if parts.of == "year":
        return bool(index.is_year_start.all() and (index == index.normalize()).all())
    steps = index.unique().sort_values().to_series().diff()
    return bool((index == index.normalize()).all() and (len(index) == 1 or steps.median() == pd.Timedelta(days=1)))


def _later(index: pd.DatetimeIndex, of: str, start: int) -> pd.DatetimeIndex:
    return index + (pd.DateOffset(months=start - 1) if of == "year" else pd.Timedelta(seconds=start))
