"""Dates of a column: text in any usual form, or numbers such as 20240131 and Unix times, as time stamps.

ISO dates (2024-01-31 23:00) are read as they are. Of dates such as 05/02/2024 the rows decide whether the day comes
first, where one of them can be read in only one way; otherwise `dayfirst` must say so.
"""

import re
import warnings
from datetime import datetime

import dateutil.parser
import numpy as np
import pandas as pd

from primecast.errors import InputError, show
from primecast.frames.date_spellings import respell

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
DATE_NAMES = ("date", "datum", "datetime", "date/time")
EXCEL = (20_000, 80_000)
"""Days since 1900, as Excel numbers those from 1954 to 2119."""
LAST_SHORT_YEAR = 2068
"""The last year that two digits stand for: 69 to 99 are 1969 to 1999, as in POSIX."""
MIDNIGHT = r"(?<=[ T])24:00"
"""The end of a day, as some write it."""
MOSTLY = 0.9
"""Fraction of a column that holds dates, above which the rows without are said."""
SHORTEST = 3
"""Rows: two steps are the fewest from which a frequency can be inferred."""


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
    column = respell(column)
    dayfirst = _resolve_dayfirst(column, dayfirst)
    stamps = _parse(column, dayfirst=bool(dayfirst))
    if stamps is not None:
        return stamps, dayfirst
    first = first_without_date(frame[time])
    if first is not None:
        raise InputError(
            f"column {time!r} of {source} holds dates, but row {first + 1} has "
            f"{show(frame[time].iloc[first])}; correct or delete it"
        )
    raise InputError(f"column {time!r} of {source} does not hold dates in all rows; write them like 2024-01-31 23:00")


def holds_dates(column: "pd.Series[str]") -> bool:
    """Return whether every row can be read as a date, with either `dayfirst`."""
    column = respell(column)
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
    if len(column) and isinstance(column.iloc[0], str):
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
            return None if stamps.hasnans else _in_century(column, stamps)
    return None


def _in_century(column: "pd.Series[str]", stamps: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Return the dates, their years of two digits as LAST_SHORT_YEAR has it: pandas decides by the date of today."""
    late = stamps.year > LAST_SHORT_YEAR
    if late.any() and isinstance(column.iloc[0], str):
        short = late & ~column.str.contains(r"\d{4}").to_numpy(dtype=bool)
        stamps = stamps.where(~short, stamps - pd.DateOffset(years=100))
    return stamps


def _lacks_year(cell: object) -> bool:
    """Return whether pandas would take the year of a text, such as 00:00 or 5 Jan, from elsewhere, such as today."""
    if not isinstance(cell, str):
        return False
    if ";" in cell or re.match(r"\s*\d+,\d+,", cell):  # it leaves out the second number
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
    column = respell(column)
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
    if str(column.name).strip().lower() in DATE_NAMES and (EXCEL[0] < numbers).all() and (numbers < EXCEL[1]).all():
        days = pd.Timestamp("1899-12-30") + pd.to_timedelta(numbers, unit="D")
        return pd.DatetimeIndex(days.round("s"), name=column.name), "days as Excel numbers them"
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
