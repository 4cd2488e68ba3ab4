"""The dates of a table: the frequency of an index, its season, its future, and rows that must match it.

A table has a DatetimeIndex, or an integer index that counts in equal steps (a RangeIndex), of which only the order is
known: no calendar, no season.

Letters: t rows, m time features.
"""

import re
from datetime import datetime, timezone, tzinfo

import pandas as pd
from jaxtyping import Float32
from pandas.api.typing import NaTType
from torch import Tensor

from primecast.data.windows import calendar_features
from primecast.errors import InputError
from primecast.frames.date_columns import SHORTEST, holds_dates

Index = pd.DatetimeIndex | pd.RangeIndex
"""The index of a checked frame."""

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
    if isinstance(index, pd.MultiIndex):
        raise InputError(
            f"the rows have {index.nlevels} indexes (a MultiIndex); make columns of them with df.reset_index(), and "
            "name them as id and time if each row is one of several series"
        )
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
