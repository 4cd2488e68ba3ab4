"""Dates as programs and people of several countries write them: each spelling is read as the dates it stands for."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from primecast import InputError
from primecast.frames.date_columns import holds_dates
from primecast.frames.read import open_table

GERMAN = ["Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez"]
FRENCH = [
    "janvier",
    "février",
    "mars",
    "avril",
    "mai",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
]
SPANISH = [
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
]
DAYS_FR = ["lun.", "mar.", "mer.", "jeu.", "ven.", "sam.", "dim."]
DAYS_DE = ["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"]


def week(day: pd.Timestamp) -> tuple[int, int, int]:
    year, number, weekday = day.isocalendar()
    return year, number, weekday


def local(day: pd.Timestamp) -> str:
    return f"{day.tz_convert('Europe/Berlin'):%d.%m.%Y %H:%M %Z}"


def between(day: pd.Timestamp, minutes: int) -> str:
    return f"{day:%H:%M}-{day + pd.Timedelta(minutes=minutes):%H:%M}"


SPELLINGS: dict[str, tuple[str, Callable[[pd.Timestamp], str]]] = {
    "German months": ("MS", lambda day: f"{GERMAN[day.month - 1]} {day.year}"),
    "German days": ("D", lambda day: f"{DAYS_DE[day.day_of_week]}, {day:%d.%m.%y}"),
    "German dates in words": ("D", lambda day: f"{day.day}. {GERMAN[day.month - 1]} {day.year}"),
    "French": ("D", lambda day: f"{day.day} {FRENCH[day.month - 1]} {day.year}"),
    "French Tuesdays of March": (
        "D",
        lambda day: f"{DAYS_FR[day.day_of_week]} {day.day} {FRENCH[day.month - 1]} {day.year}",
    ),
    "Spanish": ("D", lambda day: f"{day.day} de {SPANISH[day.month - 1]} de {day.year}"),
    "quarters": ("QS", lambda day: f"Q{day.quarter} {day.year}"),
    "quarters after the year": ("QS", lambda day: f"{day.year}-Q{day.quarter}"),
    "quarters in words": ("QS", lambda day: f"{day.quarter}. Quartal {day.year}"),
    "half-years": ("2QS", lambda day: f"{day.year}-H{1 + day.month // 7}"),
    "months of Eurostat": ("MS", lambda day: f"{day.year}M{day.month:02d}"),
    "months of Stata": ("MS", lambda day: f"{day.year}m{day.month}"),
    "months with short years": ("MS", lambda day: f"{day:%b-%y}"),
    "weeks": ("W-MON", lambda day: f"{week(day)[0]} W{week(day)[1]:02d}"),
    "German weeks": ("W-MON", lambda day: f"KW {week(day)[1]:02d}/{week(day)[0]}"),
    "days of weeks": ("D", lambda day: "{}-W{:02d}-{}".format(*week(day))),
    "intervals within a day": ("15min", lambda day: f"{day:%d.%m.%Y} {between(day, 15)}"),
    "intervals with zones": ("h", lambda day: f"{day:%d/%m/%Y %H:%M} (UTC) - {day:%d/%m/%Y %H:59} (UTC)"),
    "clocks with the name of their zone": ("h", lambda day: local(day)),
}


@pytest.mark.parametrize(("freq", "spelled"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_dates_are_read_as_they_are_spelled(freq: str, spelled: Callable[[pd.Timestamp], str]) -> None:
    zone = "UTC" if freq == "h" else None
    start = "2024-10-10" if zone else "2024-01-10" if freq == "15min" else "2024-01-01"  # some day after the 12th
    days = pd.date_range(start, periods=701, freq=freq, tz=zone)
    days = days[days < pd.Timestamp("2050", tz=zone)]  # years of two digits
    frame = pd.DataFrame({"date": [spelled(day) for day in days], "a": np.arange(len(days)) / 7})
    found = pd.DatetimeIndex(open_table(frame).frame.index)
    assert list(found) == list(days)


def test_an_offset_from_utc_is_not_taken_for_the_end_of_an_interval() -> None:
    hours = pd.date_range("2024-01-01", periods=53, freq="h")
    frame = pd.DataFrame({"date": hours.strftime("%Y-%m-%d %H:%M-05:00"), "a": np.arange(53) / 7})
    assert open_table(frame).frame.index[0] == pd.Timestamp("2024-01-01 05:00", tz="UTC")


def test_weeks_without_a_sign_are_read_where_the_column_is_named_after_them() -> None:
    cells = [f"{number:02d}/2023" for number in range(1, 53)]
    frame = pd.DataFrame({"KW": cells, "a": np.arange(52) / 7})
    found = open_table(frame, time="KW").frame.index
    assert list(found) == list(pd.date_range("2023-01-02", periods=52, freq="W-MON"))


@pytest.mark.parametrize("cells", [["Jan-24"] * 5, ["Jan-24", "Feb-24", "May-24"], ["2024-W60"] * 3, ["2024-Q5"] * 3])
def test_what_only_looks_like_a_spelling_is_no_date(cells: list[str]) -> None:
    assert not holds_dates(pd.Series(cells))


def test_a_row_without_a_date_is_named_among_dates_in_other_languages() -> None:
    days = pd.date_range("2024-01-01", periods=41)
    cells = [f"{day.day}. {GERMAN[day.month - 1]} {day.year}" for day in days]
    with pytest.raises(InputError, match="column 'date' of .* holds dates, but row 42 has 'Summe'"):
        open_table(pd.DataFrame({"date": [*cells, "Summe"], "a": np.arange(42) / 7}), time="date")


@pytest.mark.parametrize("year", [1969, 1970, 1975, 1999, 2000, 2068])
def test_years_of_two_digits_are_of_1969_to_2068_whatever_today_is(year: int) -> None:
    dates = pd.date_range(f"{year}-01-29", periods=5, freq="D")
    frame = pd.DataFrame({"date": dates.strftime("%d.%m.%y %H:%M:%S"), "a": range(5)})
    assert list(open_table(frame, time="date").frame.index) == list(dates)
