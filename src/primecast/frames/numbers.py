"""Numbers in text: padded, grouped by thousands, with a decimal comma or a unit; rows of units; what means missing."""

import re
from calendar import month_abbr, month_name
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from primecast.errors import InputError

NOTHING = [
    *("?", "-", "--", "---", "----", "\u2013", "\u2014", ".", "n.a.", "N.A.", "k.A.", "k. A.", "#NV", "#DIV/0!"),
    *("*" * count for count in range(1, 9)),
    *("\\N", "#ERROR!", "#REF!", "#VALUE!"),
]
"""Cells that stand for a missing value, beside those that pandas knows, such as NA and the empty cell."""
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
DATA = rf"{NUMBER}|[+-]?\d*,\d+|\d[\d.:/T+Z -]*\d"
"""A cell of numbers or dates."""
THOUSANDS = r"(?!0)\d{1,3}(?:,\d{3})+"
SPACES = "[\\s'\u2019\u00a0\u2009\u202f]"  # between groups of three digits in many countries; Arrow knows no \\u
NO_NUMBERS = [
    *("", "NA", "NaN", "nan", "null", "NULL", "N/A", "n/a", "MM", "ND", "n.d.", "ERR", "Err", "ERROR", "Error"),
    *("unavailable", "Unavailable", "unknown", "Unknown", "undefined"),
]
"""Words that stand for a missing value among numbers; among words they may be values."""
WITH_UNIT = (
    r"([€$£¥]?)\s*([+-]?\d[\d.,'"
    "\u2019\u00a0\u202f"
    r"]*(?:[eE][+-]?\d+)?)\s*([%‰€$£¥°A-Za-zµμΩ][^\d,;]{0,11})?"
)
"""12.5 kW, 45%, $ 1,200: a currency, a number, a unit."""
NO_UNITS = {"am", "pm", "a.m.", "p.m.", *(month.lower() for month in (*month_abbr, *month_name) if month)}
MOSTLY_NUMBERS = 0.5
"""Fraction of the cells of a column that are numbers, from which on its words stand among numbers."""
UNIT_ROWS = 3
"""Rows under the names, at most, that may hold units and the like."""


def is_text(column: "pd.Series[str]") -> bool:
    """Return whether the column may hold text."""
    return pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)


def make_missing(frame: pd.DataFrame, na: Sequence[object]) -> pd.DataFrame:
    """Return the frame without the cells that the caller says to mean missing: -9999, "Bad Input"."""
    texts = [str(one).strip() for one in na]
    numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").dropna().tolist()
    gone = {}
    for name in frame.columns:
        column = frame[name]
        if is_text(column):
            cells = column.astype(str).str.strip()
            gone[name] = cells.isin(texts) | pd.to_numeric(cells, errors="coerce").isin(numbers)
        elif pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            gone[name] = column.isin(numbers)
    found = {name: frame[name].mask(cells) for name, cells in gone.items() if cells.any()}
    if not found:
        return frame
    made = pd.DataFrame({name: found.get(name, frame[name]) for name in frame.columns}, index=frame.index)
    made.attrs = frame.attrs
    return made


# ---------------------------------------------------------------- the decimal sign


def decimal_sign(frame: pd.DataFrame, *, semicolons: bool, path: Path) -> str:
    """Return the decimal sign that the cells show; refuse a file in which 1,234 may be either number."""
    doubtful = None
    for name in frame.columns:
        if not is_text(frame[name]):
            continue
        cells = frame[name].dropna().astype(str).str.strip()
        cells = cells[cells.str.contains(",", regex=False)]
        if not len(cells) or not cells.str.fullmatch(r"[+-]?[\d.,'\s]*\d[\d.,'\s]*(?:[eE][+-]?\d+)?").all():
            continue
        if cells.str.contains(r",\d{3}\.\d", regex=True).any():
            return "."
        if semicolons or not cells.str.fullmatch(rf"[+-]?{THOUSANDS}").all():
            return ","
        doubtful = doubtful or (name, cells.iloc[0])
    floats = frame.select_dtypes("float").to_numpy()
    fractions = (np.isfinite(floats) & (floats != np.floor(floats))).any()
    if doubtful is not None and not fractions:
        thousands, fraction = doubtful[1].replace(",", ""), doubtful[1].replace(",", ".")
        raise InputError(
            f"{doubtful[1]!r} in column {doubtful[0]!r} of {path} may be {thousands} or {fraction}, and no other cell "
            "decides it; choose with decimal='.' or decimal=','"
        )
    return "."


# ---------------------------------------------------------------- columns of numbers


def numbers_in_text(column: "pd.Series[str]", *, decimal: str = ".") -> "pd.Series[float] | pd.Series[str]":
    """Return a column of text as numbers if all its cells are numbers, padded or with thousands separators."""
    cells = column.where(column.isna(), column.astype(str).str.strip())
    cells = cells.mask(cells.isin([*NOTHING, *NO_NUMBERS]))
    group, sign = (r"\.", ",") if decimal == "," else (",", r"\.")
    for separator in (group, SPACES):
        grouped = (
            cells.str.fullmatch(rf"[+-]?\d{{1,3}}(?:{separator}\d{{3}})+(?:{sign}\d*)?").fillna(False).astype(bool)
        )
        cells = cells.mask(grouped, cells.str.replace(separator, "", regex=True))
    if decimal == ",":
        cells = cells.mask(cells.str.contains(r"\.", regex=True).fillna(False).astype(bool), "x")
        cells = cells.str.replace(",", ".", regex=False)
    # Accountants write (12.5) for -12.5.
    negative = cells.str.fullmatch(rf"\((?:{NUMBER})\)").fillna(False).astype(bool)
    cells = cells.mask(negative, "-" + cells.str.strip("()"))
    known = cells.notna()
    numbers = cells[known].str.fullmatch(NUMBER)
    if not known.any() or not numbers.all():
        # Of words among numbers `validate` names the first; it knows no decimal commas.
        return column if decimal == "." or numbers.mean() < MOSTLY_NUMBERS else column.mask(known & numbers, cells)
    return pd.to_numeric(cells).astype(np.float64)


def without_unit(column: "pd.Series[str]") -> "tuple[pd.Series[str], str | None]":
    """Return a column of text without the unit that follows, or the currency that precedes, the number of each cell."""
    cells = column.dropna().astype(str).str.strip()
    cells = cells[~cells.isin([*NOTHING, *NO_NUMBERS])]
    if not len(cells) or not re.fullmatch(WITH_UNIT, cells.iloc[0]):
        return column, None
    parts = cells.str.extract(f"^{WITH_UNIT}$").fillna("")
    currency, unit = parts[0].iloc[0], parts[2].iloc[0].strip()
    same = (parts[1] != "").all() and (parts[0] == currency).all() and (parts[2].str.strip() == unit).all()
    if not same or not (currency or unit) or unit.lower() in NO_UNITS:
        return column, None
    return parts[1].reindex(column.index), currency or unit


def without_unit_rows(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[dict[str, str]]]:
    """Return the frame without the rows under its names that hold units or other words, and the texts of these rows.

    Such a row has neither a number nor a date, and a word in some column that holds numbers below it.
    """
    below = frame.iloc[UNIT_ROWS:50]
    numeric = [name for name in frame.columns if is_text(frame[name]) and _holds_numbers(below[name])]
    words: list[dict[str, str]] = []
    for row in range(min(UNIT_ROWS, len(frame))) if numeric else ():
        known = frame.iloc[row].dropna()
        if (
            words
            and len(known) == 1
            and known.index[0] == frame.columns[0]
            and not re.search(r"\d", str(known.iloc[0]))
        ):
            words.append({str(frame.columns[0]): str(known.iloc[0]).strip()})  # the name of the dates alone
            continue
        is_word = [isinstance(cell, str) and not re.fullmatch(DATA, cell.strip()) for cell in known]
        if not all(is_word) or not set(known.index) & set(numeric):
            break
        words.append({str(name): cell.strip() for name, cell in known.items()})
    return frame.iloc[len(words) :].reset_index(drop=True) if words else frame, words


def with_two_rows_of_names(
    frame: pd.DataFrame, below: list[dict[str, str]]
) -> tuple[pd.DataFrame, list[dict[str, str]], bool]:
    """Return the frame with the names of groups, which stand over several columns, before those of the row below them.

    below: the rows of words under the names. Also returned: the rows that are none of names, whether names were joined.
    """
    groups = ["" if name.startswith("Unnamed: ") else re.sub(r"\.\d+$", "", name) for name in map(str, frame.columns)]
    first = below[0] if below else {}
    if len(first) < len(groups) - 1 or (all(groups[1:]) and len(set(groups)) == len(groups)):
        return frame, below, False
    names = joined_names(groups, [first.get(str(name), "") for name in frame.columns])
    if names is None:
        return frame, below, False
    return frame.set_axis(names, axis=1), below[1:], True


def joined_names(groups: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """Return each name after that of its group; None where names then repeat. A group reaches to the next one.

    >>> joined_names(["", "Hall 1", "", "Hall 2"], ["Time", "T", "RH", "T"])
    ['Time', 'Hall 1 T', 'Hall 1 RH', 'Hall 2 T']
    """
    joined, group = [names[0] or groups[0]], ""  # the first column has the time
    for above, name in zip(groups[1:], names[1:], strict=True):
        group = above or group
        joined.append(f"{group} {name}".strip())
    return joined if len(set(joined)) == len(joined) and all(joined) else None


def _holds_numbers(column: "pd.Series[str]") -> bool:
    known = column.dropna()
    return len(known) > 0 and bool(pd.to_numeric(known, errors="coerce").notna().all())
