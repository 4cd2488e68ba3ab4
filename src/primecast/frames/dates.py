"""Dates: reading them from text, the frequency of an index, its season, its future, and rows that must match it.

A table has a DatetimeIndex, or an integer index that counts in equal steps (a RangeIndex), of which only the order is
known: no calendar, no season. ISO dates (2024-01-31 23:00) are read as they are. Of dates such as 05/02/2024 the rows
decide whether the day comes first, where one of them can be read in only one way; otherwise `dayfirst` must say so.

Letters: t rows, m time features.
"""

import re
import warnings
from datetime import datetime, timezone, tzinfo

import dateutil.parser
import numpy as np
import pandas as pd
from jaxtyping import Float32
from pandas.api.typing import NaTType
from torch import Tensor

from primecast.data.windows import calendar_features
from primecast.errors import InputError, show

Index = pd.DatetimeIndex | pd.RangeIndex
"""The index of a checked frame."""

NUMBERS = {"integer", "floating", "mixed-integer", "mixed-integer-float", "decimal", "boolean", "complex"}
"""Contents, as pandas infers them, that `pandas.to_datetime` would take for nanoseconds since 1970."""
CLOCK = r"^\D*(?:\d{1,2}(?::\d{2}[^-./ ]*(?:\.\d+)?(?: *[AaPp]\.?[Mm]\.?)?| *[AaPp]\.?[Mm]\.?)[ ,]+\D*)?"
"""What may stand before a date: the day of the week, the time of day."""
DAY_OR_MONTH = CLOCK + r"(\d{1,2})(?: *[-./] *| )(\d{1,2})(?: *[-./] *| )\d"
"""Dates in which the first number may be the day or the month: 05/02/2024, Mon 5.2.24 13:00, 13:00 5.2.24."""
SHORT_YEAR = CLOCK + r"(\d{2})[-./](\d{1,2})[-./](\d{2})(?!\d)"
"""Dates in which the first number may be the day or the year."""
YEAR_FIRST = CLOCK + r"(?:\d{4}(?: *[-./] *| )\d{1,2}(?!\d)|\d{8}(?!\d))"
"""Dates in which the month follows the year: 2024/02/05, 20240205T13."""
FREQUENCIES: dict[str, tuple[str, str, int]] = {
    "s": ("second", "every second", 86400),
    "min": ("minute", "every minute", 1440),
    "h": ("hour", "hourly", 24),
    "D": ("day", "daily", 7),
    "B": ("business day", "business days", 5),
    "W": ("week", "weekly", 52),
    **dict.fromkeys(("ME", "MS", "BME", "BMS"), ("month", "monthly", 12)),
    **dict.fromkeys(("QE", "QS", "BQE", "BQS"), ("quarter", "quarterly", 4)),
    **dict.fromkeys(("YE", "YS", "BYE", "BYS"), ("year", "yearly", 1)),
}
"""Code of a pandas frequency -> its unit, the word for one unit per row, and the units of its usual season."""
WRITTEN = {
    "%Y%m%d": "20240131", "%Y%m%d%H": "2024013123", "%Y%m%d%H%M": "202401312359",
    "%Y%m%d%H%M%S": "20240131235959", "%Y%m": "202401",
}  # fmt: skip
"""Dates written as a number: as strftime has it -> an example."""
UNIX = {
    "s": ("seconds", 10**8), "ms": ("milliseconds", 10**11), "us": ("microseconds", 10**14),
    "ns": ("nanoseconds", 10**17),
}  # fmt: skip
"""Unit of Unix times -> its name and the least number, of 1973; a hundred times as much is in the year 2286."""
WEEK = r"\d{4}-?W\d{1,2}"
"""A week of ISO 8601: 2024-W05."""
MIDNIGHT = r"(?<=[ T])24:00"
"""The end of a day, as some write it."""
MOSTLY = 0.9
"""Fraction of a column that holds dates, above which the rows without are said."""
SHORTEST = 3
"""Rows: two steps are the fewest from which a frequency can be inferred."""


# ---------------------------------------------------------------- reading dates


def read_dates(
    frame: pd.DataFrame, time: str, *, dayfirst: bool | None, source: str
) -> tuple[pd.DatetimeIndex, bool | None]:
    """Return the column `time` as dates, and whether the day came first (None where either reading is the same)."""
    column = frame[time]
    if not len(column):
        raise InputError(f"{source} has 0 rows, but at least {SHORTEST} are needed")
    if _holds_numbers(column):
        known = dates_of_numbers(column)
        if known is not None:
            return known[0], None
        raise InputError(
            f"column {time!r} of {source} holds numbers, the first {column.iloc[0]}, which are neither dates like "
            "20240131 nor Unix seconds or milliseconds; rows without dates are dated with freq='h', start='2024-01-31'"
        )
    dayfirst = _resolve_dayfirst(column, dayfirst)
    stamps = _parse(column, dayfirst=bool(dayfirst))
    if stamps is not None:
        return stamps, dayfirst
    first = first_without_date(column)
    if first is not None:
        raise InputError(
            f"column {time!r} of {source} holds dates, but row {first + 1} has {show(column.iloc[first])}; correct or "
            "delete it"
        )
    raise InputError(f"column {time!r} of {source} does not hold dates in all rows; write them like 2024-01-31 23:00")


def holds_dates(column: "pd.Series[str]") -> bool:
    """Return whether every row can be read as a date, with either `dayfirst`."""
    return _parse(column, dayfirst=bool(_resolve_dayfirst(column, dayfirst=False))) is not None


def _resolve_dayfirst(column: "pd.Series[str]", dayfirst: bool | None) -> bool | None:
    """Return how all rows are read: by a row that has one reading only, else by `dayfirst`; None: no question."""
    if not (len(column) and isinstance(column.iloc[0], str)) or re.match(YEAR_FIRST, column.iloc[0]):
        return None
    numbers = column.str.extract(DAY_OR_MONTH).astype(float)
    if (numbers.max() > 12).any():
        if numbers[0].max() > 12 and dayfirst is None:
            _check_year_is_last(column)
        return bool(numbers[0].max() > 12)
    if dayfirst is not None:
        return dayfirst
    day, month = (_parse(column, dayfirst=reading) for reading in (True, False))
    if day is None or month is None or (day == month).all():
        return None
    row = int((day != month).argmax())
    raise InputError(
        f"{column.iloc[row]!r} in column {column.name!r} may be {day[row]:%d %B %Y} or {month[row]:%d %B %Y}, and no "
        "other row decides it; choose with dayfirst=True or dayfirst=False, or write dates like 2024-01-31 23:00"
    )


def _check_year_is_last(column: "pd.Series[str]") -> None:
    """Refuse dates such as 24-02-13 where the rows are as near to each other with the year first as with it last."""
    numbers = column.str.extract(SHORT_YEAR).astype(float)
    first, last = (
        pd.to_datetime(
            pd.DataFrame({"year": 2000 + numbers[year], "month": numbers[1], "day": numbers[2 - year]}), errors="coerce"
        )
        for year in (0, 2)
    )
    ordered = first.is_monotonic_increasing or first.is_monotonic_decreasing
    # A leap year among either may make a difference of a day.
    if not first.hasnans and ordered and first.max() - first.min() <= last.max() - last.min() + pd.Timedelta(days=1):
        raise InputError(
            f"{column.iloc[0]!r} in column {column.name!r} may be {last.iloc[0]:%d %B %Y} or {first.iloc[0]:%d %B %Y}; "
            "choose dayfirst=True for the first, or write years with four digits, like 2024-01-31"
        )


def _parse(column: "pd.Series[str]", *, dayfirst: bool) -> pd.DatetimeIndex | None:
    """Return the column as dates, None where some row is no date; differing UTC offsets become UTC."""
    if _holds_numbers(column) or (len(column) and _lacks_year(column.iloc[0])):
        return None
    if len(column) and re.fullmatch(WEEK, str(column.iloc[0]).strip()):
        weeks = column.astype(str).str.strip().str.replace("-", "", regex=False) + "-1"
        mondays = pd.DatetimeIndex(pd.to_datetime(weeks, format="%GW%V-%u", errors="coerce"), name=column.name)
        return None if mondays.hasnans else mondays
    if len(column) and isinstance(column.iloc[0], str):
        if " - " in column.iloc[0]:  # of an interval its start
            column = pd.Series(column.str.partition(" - ")[0], name=column.name)
        last = column.str.contains(MIDNIGHT).fillna(False).to_numpy(dtype=bool)
        if last.any():
            days = _parse(column.str.replace(MIDNIGHT, "00:00", regex=True), dayfirst=dayfirst)
            return None if days is None else days + pd.to_timedelta(last.astype(int), unit="D")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pandas warns that it infers the format of each cell
        for utc in (False, True):
            try:
                stamps = pd.DatetimeIndex(pd.to_datetime(column, dayfirst=dayfirst, utc=utc), name=column.name)
            except (ValueError, TypeError, OverflowError):
                continue
            return None if stamps.hasnans else stamps
    return None


def _lacks_year(cell: object) -> bool:
    """Return whether pandas would take the year of a text, such as 00:00 or 5 Jan, from elsewhere, such as today."""
    if not isinstance(cell, str):
        return False
    if re.match(r"\s*\d+,\d+,", cell):  # it leaves out the second number
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zones that it does not know, which pandas refuses
            first, second = (dateutil.parser.parse(cell, default=datetime(year, 1, 1)).year for year in (2000, 2004))
    except (ValueError, OverflowError):  # pandas reads other texts, too, such as 2024Q1; all of these have a year
        return False
    return first != second


def _holds_numbers(column: "pd.Series[str]") -> bool:
    return pd.api.types.infer_dtype(column) in NUMBERS


def first_without_date(column: "pd.Series[str]") -> int | None:
    """Return the first row that holds no date, in a column of text that holds dates in most rows; else None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            known = pd.to_datetime(column, errors="coerce", utc=True).notna().to_numpy()
        except (ValueError, TypeError, OverflowError):
            return None
    return int(known.argmin()) if MOSTLY < known.mean() < 1 else None


def dates_of_numbers(column: "pd.Series[int]") -> tuple[pd.DatetimeIndex, str] | None:
    """Return dates written as numbers, such as 20240131, or Unix times, and which they are; None: neither."""
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_complex_dtype(column) or not len(column):
        return None
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers > 0)).all() or numbers.max() > 2.0**62:
        return None
    whole = pd.Series(column.to_numpy(dtype=np.int64))
    for layout, example in WRITTEN.items():
        texts = whole.astype(str)
        if (texts.str.len() == len(example)).all() and texts.str.fullmatch(r"(1[89]|20)\d+").all():
            dates = pd.to_datetime(texts, format=layout, errors="coerce")
            if dates.notna().all():
                return pd.DatetimeIndex(dates, name=column.name), f"dates like {example}"
    for unit, (name, least) in UNIX.items():
        if (whole >= least).all() and (whole < 100 * least).all():
            stamps = pd.DatetimeIndex(whole.to_numpy().astype(f"datetime64[{unit}]"), name=column.name)
            return stamps.tz_localize("UTC"), f"Unix {name}"
    return None


# ---------------------------------------------------------------- frequency and season


def frequency(index: pd.DatetimeIndex) -> pd.offsets.BaseOffset | None:
    """Return the `freq` of the index, or else the one that its dates show."""
    freq = index.freq
    # pandas cannot read the name of a plain Week again, and a DateOffset has none.
    nameless = type(freq) is pd.DateOffset or (isinstance(freq, pd.offsets.Week) and freq.rule_code == "W")
    if freq is not None and not nameless:
        return freq
    return pd.DatetimeIndex(without_freq(index), freq="infer").freq if len(index) >= SHORTEST else None


def without_freq(index: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Return the dates alone: pandas computes steps from a freq where there is one, and fails if it is a DateOffset."""
    return pd.DatetimeIndex(index, freq=None)  # type: ignore[arg-type]  # pandas-stubs know no None


def season_of(index: Index) -> int:
    """Return the rows of the usual season: a day for rows within days, then a week, a year, or none (1).

    A season must fit twice into the rows; numbered rows have none.
    """
    freq = None if isinstance(index, pd.RangeIndex) else frequency(index)
    if freq is None:
        return 1
    _, _, units = FREQUENCIES.get(_code(freq), ("", "", 1))
    season, rest = divmod(units, freq.n)
    return season if rest == 0 and 2 * season <= len(index) else 1


def future_index(index: Index, horizon: int) -> Index:
    """Return the next `horizon` rows of the same calendar: business days skip weekends, month ends stay month ends."""
    if horizon < 1:
        raise InputError(f"horizon must be at least 1 step, but {horizon} was given")
    if isinstance(index, pd.RangeIndex):
        return pd.RangeIndex(index.stop, index.stop + horizon * index.step, index.step, name=index.name)
    freq = frequency(index)
    if freq is None:
        raise InputError(
            f"the step of these {len(index)} time stamps is unknown; pass the frame through validate first"
        )
    try:
        return pd.date_range(index[-1], periods=horizon + 1, freq=freq, name=index.name)[1:]
    except (ValueError, OverflowError) as error:  # pandas' OutOfBoundsDatetime is a ValueError
        raise InputError(
            f"{horizon} steps after {index[-1]} are beyond the dates that the unit {index.unit!r} can hold; take a "
            "coarser one with df.index = df.index.as_unit('s'), or correct the dates"
        ) from error


def with_length(index: Index, rows: int) -> Index:
    """Return the index of so many rows that starts and steps as this one does."""
    if isinstance(index, pd.RangeIndex):
        return pd.RangeIndex(index.start, index.start + rows * index.step, index.step, name=index.name)
    return pd.date_range(index[0], periods=rows, freq=index.freq, name=index.name)


def row_number(index: Index) -> int:
    """Return the number of the row after the last, counted so that a row keeps its number in every table with it."""
    if isinstance(index, pd.RangeIndex):
        return int(index[-1] // index.step) + 1
    freq, last = frequency(index), index[-1].tz_localize(None)
    try:
        step = pd.Timedelta(freq).as_unit(last.unit)  # type: ignore[arg-type]
        return int((last - pd.Timestamp(0).as_unit(last.unit)) // step) + 1
    except ValueError:  # the rows have no constant length, such as months
        return _steps_since_1970(freq, last) + 1


def _steps_since_1970(freq: pd.offsets.BaseOffset | None, last: pd.Timestamp) -> int:
    """Return after how many steps of a calendar from its first date on or after 1970 on, or before it, a date comes.

    By bisection: a calendar of hours has millions of steps, and pandas lists none before 1678 or after 2262.
    """
    assert freq is not None
    first = freq.rollforward(pd.Timestamp(0).as_unit(last.unit))

    def reached(steps: int) -> bool:
        try:
            return bool(first + steps * freq <= last)
        except (NotImplementedError, OverflowError, TypeError, ValueError):  # beyond the years 1 to 9999
            return steps < 0

    before, after = -1, 1
    while not reached(before):
        before *= 2
    while reached(after):
        after *= 2
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if reached(middle) else (before, middle)
    return before


def row_length(index: Index) -> pd.Timedelta | None:
    """Return the time between two rows; None where rows are numbered or, like months, of several lengths."""
    if isinstance(index, pd.RangeIndex):
        return None
    for stamps in (index, index.tz_localize(None)):  # a day counts as a day also when the clocks change
        steps = stamps[1:] - stamps[:-1]
        if (steps == steps[0]).all():
            return steps[0]
    return None


def time_features_of(index: pd.Index, *, minute: bool) -> Float32[Tensor, "t m"] | None:
    """Return the time features of dated rows, with or without the minute of the hour; None for numbered rows."""
    return calendar_features(index, minute=minute) if isinstance(index, pd.DatetimeIndex) else None


# ---------------------------------------------------------------- frequency in words


def frequency_in_words(index: pd.Index) -> str:
    """Return the frequency of an index in words.

    >>> frequency_in_words(pd.date_range("2024", periods=3, freq="15min")), frequency_in_words(pd.RangeIndex(3))
    ('every 15 minutes', 'numbered rows')
    """
    if not isinstance(index, pd.DatetimeIndex):
        return "numbered rows"
    if index.is_monotonic_decreasing:
        index = index[::-1]  # newest first
    freq = index.freq if type(index.freq) is pd.DateOffset else frequency(index)
    if freq is None:
        return "irregular"
    if type(freq) is pd.DateOffset:  # made of parts, such as hours=3, it has no code
        parts = (unit.removesuffix("s") if count == 1 else f"{count} {unit}" for unit, count in freq.kwds.items())
        return f"every {', '.join(parts)}"
    if _code(freq) not in FREQUENCIES:
        return str(freq.freqstr)
    unit, word, _ = FREQUENCIES[_code(freq)]
    return word if freq.n == 1 else f"every {freq.n} {unit}s"


def units_of_rows(index: pd.Index) -> str:
    """Return what the rows are in the plural, "hours" for hourly rows; "rows" where a row is no single unit."""
    freq = frequency(index.sort_values()) if isinstance(index, pd.DatetimeIndex) else None
    return (
        f"{FREQUENCIES[_code(freq)][0]}s" if freq is not None and freq.n == 1 and _code(freq) in FREQUENCIES else "rows"
    )


def describe_step(index: pd.Index) -> str:
    """Return the step and time zone of the rows as pandas names them: "'h' in UTC"."""
    if isinstance(index, pd.DatetimeIndex):
        step = "unknown step" if index.freq is None else repr(index.freqstr)
        return step + ("" if index.tz is None else f" in {zone_name(index.tz)}")
    return f"numbers {getattr(index, 'step', 1)} apart"


def zone_name(zone: tzinfo) -> str:
    """Return the name by which pandas finds the zone on any machine; dateutil names its zones by local files."""
    offset = zone.utcoffset(None)  # None where it changes
    return re.sub(r"^tzfile\('.*zoneinfo/(.+)'\)$", r"\1", str(zone)) if offset is None else str(timezone(offset))


def _code(freq: pd.offsets.BaseOffset) -> str:
    return str(freq.rule_code.split("-")[0])


# ---------------------------------------------------------------- rows that must match those of `fit`


def check_kind(index: pd.Index) -> None:
    """Refuse an index that holds neither dates nor whole numbers."""
    if isinstance(index, pd.PeriodIndex):
        raise InputError("the frame has a PeriodIndex; make stamps of its periods with df.to_timestamp()")
    if not (isinstance(index, pd.DatetimeIndex) or pd.api.types.is_integer_dtype(index.dtype)):
        if len(index) and holds_dates(pd.Series(index[:SHORTEST])):
            raise InputError("the index of the frame has dates as text or objects: df.index = pd.to_datetime(df.index)")
        raise InputError(
            f"the frame has neither dates nor whole numbers as its index but {index.dtype}; set it with "
            "df.set_index('your time column'), parsed by pandas.to_datetime"
        )


def align_rows(wide: pd.DataFrame, own: Index, *, absent: bool = False) -> pd.DataFrame:
    """Return rows given later, oldest first, in the zone of `own` and, where their dates allow it, with its frequency.

    A few rows alone may show another frequency: a week of business days looks daily. The rows are not checked yet.
    absent: whether rows that are not there, at most as many as there are, become gaps.
    """
    check_kind(wide.index)
    index = wide.index
    if _kind(index) != _kind(own):
        raise _mismatch(index, own)
    if isinstance(index, pd.DatetimeIndex) and isinstance(own, pd.DatetimeIndex) and own.tz is not None:
        index = index.tz_convert(own.tz)
    wide = wide.set_axis(index, axis="index")
    if not index.is_monotonic_increasing and index.is_monotonic_decreasing:
        wide = wide.iloc[::-1]
    if isinstance(own, pd.RangeIndex) or not len(index) or index.hasnans:
        return wide
    expected = pd.date_range(wide.index[0], periods=(1 + absent) * len(wide), freq=own.freq, name=index.name)
    if absent and wide.index.is_unique and wide.index.isin(expected).all():
        return wide.reindex(expected[expected <= wide.index[-1]])
    expected = expected[: len(wide)]
    return wide.set_axis(expected, axis="index") if (wide.index == expected).all() else wide


def check_step(index: pd.Index, own: Index) -> None:
    """Refuse checked rows of another step than `own`."""
    step = "freq" if isinstance(own, pd.DatetimeIndex) else "step"
    if getattr(index, step) != getattr(own, step):
        raise _mismatch(index, own)


def rows_until(index: pd.Index, stamp: str) -> int:
    """Return how many rows lie at or before this date or number."""
    limit = read_stamp(stamp) if isinstance(index, pd.DatetimeIndex) else int(stamp)
    return int((index <= limit).sum())


def read_stamp(text: str) -> pd.Timestamp | NaTType:
    """Return the date of a text that `str` made of one; pandas itself reads no offsets with seconds.

    >>> read_stamp("1890-01-01 00:00:00+00:19:32").utcoffset()
    datetime.timedelta(seconds=1172)
    """
    try:
        return pd.Timestamp(text)
    except ValueError:
        return pd.Timestamp(datetime.fromisoformat(text))


def _kind(index: pd.Index) -> tuple[bool, bool]:
    """Return whether the rows are dated, and whether in a time zone."""
    return isinstance(index, pd.DatetimeIndex), getattr(index, "tz", None) is not None


def _mismatch(index: pd.Index, own: Index) -> InputError:
    return InputError(
        f"this Forecaster was fitted on rows of {describe_step(own)}, the frame has rows of {describe_step(index)}"
    )
