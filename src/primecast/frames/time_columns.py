"""The time of a wide table: its index, a column of dates, or several columns that make a date.

date                       one column: named by the caller, by a usual name, or the first column of dates
year, month, day, hour     numbers that make a date, or a column of days beside its hours
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from zoneinfo import available_timezones

import numpy as np
import pandas as pd

from primecast.errors import InputError, format_list, show, unknown
from primecast.frames.date_columns import dates_of_numbers, first_without_date, holds_dates, read_dates
from primecast.frames.date_spellings import MONTH_OF
from primecast.frames.numbers import is_text

TIME_NAMES = ("ds", "date", "time", "datetime", "timestamp", "date_time", "_time", "index")
NUMBER_NAMES = (
    *TIME_NAMES,
    "datum",
    "mess_datum",
    "ts",
    "unix",
    "epoch",
    "unixtime",
    "unix_time",
    *("time_ms", "timestamp_ms", "unix_ms", "epoch_ms", "ts_ms", "unix_timestamp"),
    "month",
    "day",
    "yyyymm",
    "yyyymmdd",
)
"""Names under which numbers such as 20240131 or 1706659200 are dates."""
PARTS = {
    "year": ("year", "yr", "yy", "yyyy", "jahr", "année", "annee"),
    "month": ("month", "mon", "mnth", "mo", "monat", "mois"),
    "day": ("day", "dd", "dy", "tag", "jour"),
    "hour": ("hour", "hr", "hh", "stunde", "heure", "he", "hour ending", "hour_ending", "hourending"),
    "minute": ("minute", "mn"),
    "second": ("second",),
}
"""Part of a date -> usual names of its column, in lower case."""
CLOCK = tuple(PARTS)[3:]
OTHER_PARTS = {
    "week": ("week", "wk", "kw", "isoweek", "iso_week", "weekofyear", "week_of_year"),
    "day of year": ("doy", "dayofyear", "day_of_year", "jday", "julian", "julianday", "day of year"),
}
"""Part of a date that stands for month and day -> usual names of its column."""
HHMM_NAMES = ("time", "hhmm", "hrmn", "hour", "utc", "gmt", "lst", "uhrzeit", "zeit", "heure")
"""Names, in lower case, of columns in which 2345 is a time of day."""


def part_of(name: object) -> str | None:
    """Return which part of a date a column is named after."""
    plain = str(name).strip().lower()
    if plain == "mm":  # which may be rain, too: `find_time` takes it beside hh only
        return "month" if str(name).strip() == "MM" else "minute"
    return next((part for part, names in {**PARTS, **OTHER_PARTS}.items() if plain in names), None)


# ---------------------------------------------------------------- finding it


def split_names(given: str | Sequence[str], columns: Sequence[object]) -> list[object]:
    """Return the columns of these names; a text may hold several names between commas, "year,month".

    A column whose name is a whole number is found by its text.
    """
    known = {str(name): name for name in reversed(list(columns))}
    texts = [given] if isinstance(given, str) else list(map(str, given))
    names = [part for one in texts for part in ([one] if one in known else _split(one, known))]
    return [name if name in columns else known.get(str(name), name) for name in names]


def _split(text: str, known: Mapping[str, object]) -> list[str]:
    """Return the names in a text; a name may itself hold commas, "Temp, °C,RH, %"."""
    parts, names = text.split(","), []
    while parts:
        whole = next((count for count in range(len(parts), 0, -1) if ",".join(parts[:count]).strip() in known), 1)
        names.append(",".join(parts[:whole]).strip())
        parts = parts[whole:]
    return names


def find_time(frame: pd.DataFrame, time: str | Sequence[str] | None, *, path: str | None) -> str | list[str] | None:
    """Return the name of the time column, or of several; None where the index has the time.

    path: of the file, if it was one; a file must have a time.
    """
    if time is not None:
        names = split_names(time, list(frame.columns))
        for name in names:
            if name not in frame.columns:
                if path is not None:
                    raise unknown(f"time column of {path}", name, frame.columns)
                raise InputError(f"the frame has no time column {name!r}; its columns are {format_list(frame.columns)}")
            _check_text(name)
        single = len(names) == 1 and part_of(names[0]) != "year"
        return str(names[0]) if single else [str(name) for name in names]
    if isinstance(frame.index, pd.DatetimeIndex):
        return None
    found = find_date(frame, searched=path is not None)
    if found is not None:
        return _with_clock(frame, found)
    frame = frame.assign(
        **{str(name): months for name in frame.columns if (months := _months(name, frame[name])) is not None}
    )
    parts = {part: str(name) for name in reversed(frame.columns) if _counts(frame[name]) and (part := part_of(name))}
    if parts.get("minute") == "mm" and parts.get("hour", "").lower() != "hh":
        del parts["minute"]
    for other in OTHER_PARTS:
        if {"year", other} <= set(parts) and not {"month", "day"} & set(parts):
            return [parts[part] for part in ("year", other, *CLOCK) if part in parts]
    if {"year", "month"} <= set(parts) and ("day" in parts or not set(CLOCK) & set(parts)):
        return [parts[part] for part in PARTS if part in parts]
    if set(parts) == {"year"} and _counts_years(frame[parts["year"]]):
        return [parts["year"]]
    if path is None:
        return None
    _refuse_likely_dates(frame, path)
    years = [name for name in frame.columns if re.fullmatch(r"(1[89]|20)\d\d", str(name))]
    if len(years) > max(2, len(frame.columns) / 2):
        raise InputError(turn_the_table(path))
    raise InputError(
        f"{path} has no time column: no column of text holds dates in all rows "
        f"(columns: {format_list(frame.columns)}); write them like 2024-01-31 23:00, or date the rows with "
        "freq='h', start='2024-01-31'"
    )


def turn_the_table(path: object) -> str:
    """Return what is to be said of a table whose dates are the names of its columns."""
    name = str(path).replace("\\", "/").rpartition("/")[2]
    return (
        f"the dates of {path} stand in its first row, with a row for each series below: turn the table, for example "
        f"with pandas.read_csv({name!r}, index_col=0).T.to_csv('turned.csv')"
    )


def _counts_years(column: "pd.Series[int]") -> bool:
    """Return whether the column holds years, one after the other, in either order."""
    years = column.to_numpy(dtype=np.float64)
    steps = np.diff(years)
    return bool(years.min() >= 1000 and years.max() < 3000 and len(steps) and (abs(steps) == 1).all())


def _refuse_likely_dates(frame: pd.DataFrame, path: str) -> None:
    """Refuse a table in which a column holds dates in most rows, or numbers that may be dates; name them."""
    for name in frame.columns:
        known = dates_of_numbers(frame[name])
        if known is not None and known[0].is_unique and known[0].is_monotonic_increasing:
            raise InputError(f"{path} has no time column; {name!r} may hold {known[1]}: if so, give time={name!r}")
        if is_text(frame[name]) and (row := first_without_date(frame[name])) is not None:
            raise InputError(
                f"column {name!r} of {path} holds dates, but row {row + 1} has {show(frame[name].iloc[row])}; correct "
                "or delete it"
            )


def find_date(frame: pd.DataFrame, *, searched: bool) -> str | None:
    """Return the column of dates. searched: of all text columns the first that holds dates is taken."""
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    usual = [name for name in text if str(name).strip().lower() in TIME_NAMES]
    numbers = [name for name in frame.columns if str(name).strip().lower() in NUMBER_NAMES]
    numbers = [name for name in numbers if dates_of_numbers(frame[name]) is not None]
    if not searched:
        dates = [name for name in text if pd.api.types.is_datetime64_any_dtype(frame[name])]
        found = dates or [name for name in usual if holds_dates(frame[name])] or numbers
        return _check_text(found[0]) if len(found) == 1 else None
    ordered = [*usual, *(name for name in text if name not in usual)]
    dated = (str(name) for name in ordered if not _is_clock(frame[name]) and holds_dates(frame[name]))
    return next(dated, None) or next(map(str, numbers), None)


def _check_text(name: object) -> str:
    """Return the name of a time column; refuse one that is no text, which a forecast could not give back."""
    if not isinstance(name, str):
        raise InputError(f"the time column is named {name!r}, which is no text; rename it, for example to 'time'")
    return name


def _with_clock(frame: pd.DataFrame, date: str) -> str | list[str]:
    """Return the column of dates, followed by that of the time of day where dates repeat and there is one."""
    if date not in frame.columns or frame[date].is_unique:
        return date
    clocks = [str(name) for name in frame.columns if name != date and _is_clock(frame[name])]
    clocks += [str(name) for name in frame.columns if str(name).strip().lower() in HHMM_NAMES and _is_hhmm(frame[name])]
    clocks.sort(key=lambda name: name.strip().lower() != "time")
    hours = [str(name) for name in frame.columns if part_of(name) in CLOCK and _counts(frame[name])]
    hours.sort(key=lambda name: CLOCK.index(str(part_of(name))))
    return [date, *(clocks[:1] or hours)] if clocks or hours else date


def _is_hhmm(column: "pd.Series[int]") -> bool:
    """Return whether the column holds times of day as numbers, 2345 for 23:45."""
    return _counts(column) and bool(((column % 100 < 60) & (column <= 2400)).all() and column.max() >= 100)


def _counts(column: "pd.Series[int]") -> bool:
    """Return whether the column holds whole numbers from 0 on."""
    if not pd.api.types.is_numeric_dtype(column) or not len(column) or pd.api.types.is_complex_dtype(column):
        return False
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return bool(((numbers >= 0) & np.isfinite(numbers) & (numbers == np.floor(numbers))).all())


def _months(name: object, column: "pd.Series[str]") -> "pd.Series[int] | None":
    """Return the numbers of months in words, in a column named after them."""
    if part_of(name) != "month" or not is_text(column):
        return None
    numbers = column.astype(str).str.strip().str.rstrip(".").str.casefold().map(MONTH_OF)
    return None if numbers.isna().any() else numbers


def _is_clock(column: "pd.Series[str]") -> bool:
    """Return whether the first row holds a time of day, 18:00, 06:00 PM or 18.00.00."""
    text = str(column.iloc[0]).strip() if len(column) and not pd.api.types.is_numeric_dtype(column) else ""
    return bool(re.fullmatch(r"\d{1,2}[:.]\d{2}([:.]\d{2})?(\s?[AaPp][Mm]?)?", text))


# ---------------------------------------------------------------- reading it


def set_time(
    frame: pd.DataFrame, time: str | Sequence[str] | None, dayfirst: bool | None, *, tz: str | None, source: str
) -> tuple[pd.DataFrame, bool | None]:
    """Return the frame with its time as the index, in the zone `tz` if one is given, and whether the day came first."""
    stamps: pd.Index
    if time is None:
        stamps, dayfirst = frame.index, None
    elif isinstance(time, str):
        stamps, dayfirst = read_dates(frame, time, dayfirst=dayfirst, source=source)
        frame = frame.drop(columns=time)
    else:
        names = split_names(time, list(frame.columns))
        stamps, dayfirst = _combine(frame, names, dayfirst, source=source)
        frame = frame.drop(columns=names)
    if str(stamps.name).startswith("Unnamed: "):  # by pandas: the file does not name it
        stamps = stamps.rename("time")
    if tz is not None:
        stamps = _in_zone(stamps, tz, source=source)
    return frame.set_axis(stamps, axis="index"), dayfirst


def _combine(
    frame: pd.DataFrame, names: list[object], dayfirst: bool | None, *, source: str
) -> tuple[pd.DatetimeIndex, bool | None]:
    """Return the dates that several columns make: numbers named after parts of a date, or a day and a time of day."""
    months = {name: found for name in names if (found := _months(name, frame[name])) is not None}
    frame = frame.assign(**{str(name): found for name, found in months.items()})
    frame = _with_clock_in_text(frame, names)
    numbers = [name for name in names if pd.api.types.is_numeric_dtype(frame[name])]
    given = {part_of(name): frame[name] for name in numbers}
    if None in given and len(numbers) == len(names) and _counts(frame[names[0]]) and frame[names[0]].min() >= 1000:
        # Their names say nothing, but the first holds years: the others follow in the order of a date.
        given = {part: frame[name] for part, name in zip(PARTS, names, strict=False)}
    others = [name for name in names if name not in numbers]
    if None in given or len(given) < len(numbers) or not (others or "year" in given):
        raise InputError(
            f"the columns {format_list(names)} of {source} make no date: give one column of dates, or numbers named "
            f"{', '.join(PARTS)}, from the year on"
        )
    for name in numbers:
        if not _counts(frame[name]):
            raise InputError(f"column {name!r} of {source} must hold whole numbers to be part of a date")
    if others:
        first, *clock = [frame[name] for name in others]
        text = first.astype(str)
        for one in clock:
            text = text + " " + _colons(one.astype(str).str.strip())
        days, dayfirst = read_dates(text.rename("time").to_frame(), "time", dayfirst=dayfirst, source=source)
    else:
        dates = _whole_days(given, frame.index)
        if dates.isna().any():
            row = frame[names].iloc[int(dates.isna().argmax())].to_dict()
            raise InputError(f"{row} in {source} is no date")
        days = pd.DatetimeIndex(dates)
    for part in CLOCK:  # added, so that hours from 1 to 24 are the ends of hours
        if part in given:
            days = days + pd.to_timedelta(given[part].to_numpy(dtype=np.float64), unit=part)  # type: ignore[call-overload]
    return pd.DatetimeIndex(days, name="time"), dayfirst


def _with_clock_in_text(frame: pd.DataFrame, names: Sequence[object]) -> pd.DataFrame:
    """Return a day and a time of day as text where the latter is a number, 2345 for 23:45."""
    if len(names) != 2 or not _is_hhmm(frame[names[1]]):
        return frame
    clock = frame[names[1]].astype(int).astype(str).str.zfill(4)
    known = dates_of_numbers(frame[names[0]])
    day = frame[names[0]] if known is None else pd.Series(known[0].strftime("%Y-%m-%d"), index=frame.index)
    return frame.assign(**{str(names[0]): day, str(names[1]): clock.str[:2] + ":" + clock.str[2:]})


def _whole_days(given: Mapping[str | None, pd.Series], rows: pd.Index) -> pd.Series:
    """Return the days that numbers make: year, month and day, a week of ISO 8601 or a day of the year."""
    if "week" in given:
        texts = given["year"].astype(int).astype(str) + "-" + given["week"].astype(int).astype(str) + "-1"
        return pd.to_datetime(texts, format="%G-%V-%u", errors="coerce")
    parts = {part: given.get(part, 1) for part in ("year", "month", "day")}
    dates = pd.to_datetime(pd.DataFrame(parts, index=rows), errors="coerce")
    if "day of year" in given:
        days = given["day of year"].to_numpy(dtype=np.float64)
        dates = (dates + pd.to_timedelta(days - 1, unit="D")).where((days >= 1) & (days <= 366))
    return dates


def _colons(clock: "pd.Series[str]") -> "pd.Series[str]":
    """Return times of day with colons, and with am or pm where they have a or p alone, 12:30a."""
    if not _is_clock(clock):
        return clock
    return clock.str.replace(".", ":", regex=False).str.replace(r"(?<=\d)\s?([AaPp])$", r" \1m", regex=True)


def _in_zone(stamps: pd.Index, tz: str, *, source: str) -> pd.DatetimeIndex:
    if not isinstance(stamps, pd.DatetimeIndex):
        raise InputError(f"tz={tz!r} was given, but the rows of {source} have no dates")
    try:
        if stamps.tz is not None:
            return stamps.tz_convert(tz)
        return stamps.tz_localize(tz, ambiguous="infer")
    except (KeyError, IndexError, OSError) as error:  # OSError: "US" is a folder of zones
        places = {zone.rpartition("/")[2].casefold(): zone for zone in sorted(available_timezones())}
        near = get_close_matches(tz.rpartition("/")[2].casefold(), places, n=1)
        hint = f" (did you mean {places[near[0]]!r}?)" if near else ""
        raise InputError(f"unknown time zone {tz!r}{hint}; zones have names like Europe/Berlin") from error
    except (ValueError, TypeError, OverflowError) as error:  # ValueError: times that do not exist, or twice
        what = str(error).partition("\n")[0]
        raise InputError(f"the times of {source} cannot be read in the zone {tz!r}: {what}") from error
