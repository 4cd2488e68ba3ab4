"""Spellings of dates that pandas does not read, written as ones that it reads.

2. März 2024, Mo 5.2.24      months and days of the week in other languages than English
Q1 2024, 2024M01, 2024-W05   quarters, half-years, months and weeks of ISO 8601: their first day
Jan-24                       months with years of two digits, where the rows are consecutive months
5.2.2024 00:00-00:15         of an interval its start
5.2.2024 00:00 CEST          zones as offsets from UTC
"""

import re
from calendar import month_abbr

import numpy as np
import pandas as pd

MONTHS = [
    "jan january januar jänner jän janv janvier enero ene gennaio gen januari janeiro",
    "feb february februar feber fév fev févr février fevrier febrero febbraio februari fevereiro",
    "mar march mär mrz märz maerz mars marzo maart mrt março",
    "apr april avr avril abr abril aprile",
    "may mai mayo maggio mag mei maio",
    "jun june juni juin junio giugno giu junho",
    "jul july juli juil juillet julio luglio lug julho",
    "aug august août aout ago agosto augustus",
    "sep sept september septembre septiembre settembre set setembro",
    "oct october okt oktober octobre octubre ottobre ott outubro out",
    "nov november novembre noviembre novembro",
    "dec december dez dezember déc décembre decembre dic diciembre dicembre dezembro",
]
"""Names of each month in English, German, French, Spanish, Italian, Dutch and Portuguese, in lower case."""
MONTH_OF = {word: number for number, words in enumerate(MONTHS, 1) for word in words.split()}
DAYS = [
    "mo di mi do fr sa so montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag",
    "lun mar mer jeu ven sam dim lundi mardi mercredi jeudi vendredi samedi dimanche",
    "mié jue vie sáb dom lunes martes miércoles miercoles jueves viernes sábado sabado domingo",
    "gio sab lunedì martedì mercoledì giovedì venerdì",
    "ma wo vr za zo maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
]
"""Names of days of the week in German, French, Spanish, Italian and Dutch; pandas knows those in English."""
WEEKDAYS = frozenset(word for words in DAYS for word in words.split())
LINKS = ("de", "del", "of", "le")
"""Words between the parts of a date: 2 de enero de 2024."""
ZONES = {
    "UTC": 0, "GMT": 0, "WET": 0, **dict.fromkeys(("WEST", "CET", "MEZ"), 1),
    **dict.fromkeys(("CEST", "MESZ", "EET"), 2), "EEST": 3, "EST": -5, "EDT": -4, "MST": -7, "MDT": -6,
    "PST": -8, "PDT": -7,
}  # fmt: skip
"""Abbreviation of a zone -> its hours ahead of UTC; CST and BST have several meanings."""
WEEK_NAMES = ("week", "kw", "woche", "kalenderwoche", "isoweek", "iso week", "calendar week", "semaine", "semana")
"""Names of columns, in lower case, in which 05/2024 is a week."""
WORD = re.compile(r"[^\W\d_]+\.?")
YEAR = r"(?P<year>\d{4})"
WEEK_SIGN = r"(?:W|KW|CW|Wk|Week)"
PERIODS: dict[str, tuple[str, ...]] = {
    "week": (
        rf"{YEAR}[-/ ]*{WEEK_SIGN}[-. ]*(?P<part>\d{{1,2}})(?:-(?P<day>[1-7]))?",
        rf"{WEEK_SIGN}[-. ]*(?P<part>\d{{1,2}})[-/ ]+{YEAR}",
    ),
    "quarter": (
        rf"{YEAR}[-/. ]*[QT](?P<part>[1-4])",
        rf"[QT](?P<part>[1-4])[-/. ]*{YEAR}",
        rf"(?P<part>[1-4])(?:\.|er|e|ème|st|nd|rd|th)?\s*(?:Q|T|Quartal|Quarter|Trimestre)[-/. ]*{YEAR}",
    ),
    "half": (
        rf"{YEAR}[-/. ]*[HS](?P<part>[12])",
        rf"[HS](?P<part>[12])[-/. ]*{YEAR}",
        rf"(?P<part>[12])\.?\s*(?:H|HJ|Halbjahr)[-/. ]*{YEAR}",
    ),
    "month": (rf"{YEAR}M(?P<part>\d{{1,2}})",),
}
"""Part of a year -> its spellings."""
MONTHS_OF = {"quarter": 3, "half": 6, "month": 1}
BETWEEN = r"^(.*\d{1,2}:\d{2}(?::\d{2})?)\s*[-\u2013]\s*(\d{1,2}):\d{2}(?::\d{2})?$"
"""An interval within a day, 5.2.2024 00:00-00:15; ISO dates with an offset from UTC look alike."""
MOST_OFFSETS, LARGEST_OFFSET = 3, 14
"""Offsets of one place, and the hours of any: more are the ends of intervals."""


def respell(column: "pd.Series[str]") -> "pd.Series[str]":
    """Return a column of text with its dates as pandas reads them; a spelling that is not known stays as it is."""
    known = column.dropna()
    if not len(known) or not isinstance(known.iloc[0], str) or not known.map(lambda cell: isinstance(cell, str)).all():
        return column
    name = column.name
    for change in (_starts, _periods, _zones, _words, _short_years):
        changed = change(column, column.dropna().iloc[0].strip())
        if changed is not column:
            changed.name = name
            column = changed
    return column


def _starts(column: "pd.Series[str]", first: str) -> "pd.Series[str]":
    """Return the starts of intervals."""
    for sign in (" - ", " \u2013 "):
        if sign in first:
            return column.str.partition(sign)[0]
    if re.fullmatch(BETWEEN, first):
        ends = column.str.extract(BETWEEN)
        hours = pd.to_numeric(ends[1])
        if hours.notna().all() and (hours.max() > LARGEST_OFFSET or hours.nunique() > MOST_OFFSETS):
            return ends[0]
    return column


def _periods(column: "pd.Series[str]", first: str) -> "pd.Series[str]":
    """Return the first days of weeks, months, quarters and half-years."""
    spellings = [(part, spelling) for part, several in PERIODS.items() for spelling in several]
    if str(column.name).strip().lower() in WEEK_NAMES:
        spellings.append(("week", rf"(?P<part>\d{{1,2}})[-/. ]+{YEAR}"))
    for part, spelling in spellings:
        if not re.fullmatch(spelling, first, re.IGNORECASE):
            continue
        found = column.str.strip().str.extract(f"^{spelling}$", flags=re.IGNORECASE)
        if found["part"].isna().any():
            return column
        if part == "week":
            days = "-1" if "day" not in found else "-" + found["day"].fillna("1")
            dates = pd.to_datetime(
                found["year"] + "-" + found["part"].str.zfill(2) + days, format="%G-%V-%u", errors="coerce"
            )
        else:
            months = MONTHS_OF[part] * (found["part"].astype(int) - 1) + 1
            dates = pd.to_datetime(found["year"] + "-" + months.astype(str), format="%Y-%m", errors="coerce")
        return column if dates.isna().any() else dates.dt.strftime("%Y-%m-%d")
    return column


def _zones(column: "pd.Series[str]", first: str) -> "pd.Series[str]":
    """Return the dates with offsets from UTC for abbreviations of zones."""
    pattern = rf"\s*\(?\b({'|'.join(ZONES)})\)?\s*$"
    if not re.search(pattern, first):
        return column

    def offset(found: "re.Match[str]") -> str:
        return f"{ZONES[found[1]]:+03d}:00"

    return column.str.replace(pattern, offset, regex=True)


def _words(column: "pd.Series[str]", first: str) -> "pd.Series[str]":
    """Return dates whose months are in English, without days of the week."""
    words = {word.rstrip(".").casefold() for word in WORD.findall(first)}
    if not words & (MONTH_OF.keys() | WEEKDAYS):
        return column
    texts = {cell: _in_english(cell) for cell in column.dropna().unique()}
    return column.map(texts)


def _in_english(cell: str) -> str:
    rest = re.sub(r"^\s*[^\W\d_]+\.?,?\s*(?=\d)", "", cell)
    first = WORD.match(cell.strip())
    # "Mar" is a Tuesday, too: a day of the week stands before a whole date.
    if first and first[0].rstrip(".").casefold() in WEEKDAYS and (
        re.match(r"\d+ *[-./] *\d+ *[-./] *\d", rest) or _has_month(rest)
    ):  # fmt: skip
        cell = rest

    def english(found: "re.Match[str]") -> str:
        word = found[0].rstrip(".").casefold()
        return month_abbr[MONTH_OF[word]] if word in MONTH_OF else "" if word in LINKS else found[0]

    text = WORD.sub(english, cell)
    return re.sub(r"\s+", " ", re.sub(r"(\d)(?:\.|er)\s*(?=[A-Z][a-z]{2})", r"\1 ", text)).strip()


def _has_month(text: str) -> bool:
    return any(word.rstrip(".").casefold() in MONTH_OF for word in WORD.findall(text))


def _short_years(column: "pd.Series[str]", first: str) -> "pd.Series[str]":
    """Return months with years of two digits as dates, where the rows are consecutive months, in either order."""
    if not re.fullmatch(r"[A-Z][a-z]{2}[-' ]*\d{2}", first):
        return column
    dates = pd.to_datetime(column.str.replace(r"[-' ]+", "-", regex=True), format="%b-%y", errors="coerce")
    if dates.isna().any():
        return column
    steps = np.diff(12 * dates.dt.year.to_numpy() + dates.dt.month.to_numpy())
    consecutive = len(steps) > 1 and (abs(steps) == 1).all() and len(set(steps.tolist())) == 1
    return dates.dt.strftime("%Y-%m-%d") if consecutive else column
