"""Which columns of a table are channels: those asked for, else the numeric ones that measure something.

Left out, and said, are text, dates, empty columns, numbers of rows and parts of the date. A column that the caller
names is kept as it is; text that is named as a covariate becomes one column of 0 and 1 for each of its values.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from primecast.errors import InputError, format_list, unknown
from primecast.frames.date_columns import holds_dates
from primecast.frames.numbers import is_text
from primecast.frames.time_columns import part_of, split_names

NAMELESS = "unnamed: 0"
"""What pandas calls a first column without a name, which it writes to number the rows."""
ROW_NUMBERS = ("no", "no.", "nr", "nr.", "#", "id", "idx", "index", "row", "rownum", "number", "instant", NAMELESS)
"""Usual names of a column that numbers the rows, in lower case."""
CALENDAR: dict[str, Callable[[pd.DatetimeIndex], Sequence[pd.Index]]] = {
    "year": lambda index: [index.year],
    "month": lambda index: [index.month],
    "day": lambda index: [index.day],
    "hour": lambda index: [index.hour],
    "minute": lambda index: [index.minute],
    "second": lambda index: [index.second],
    "weekday": lambda index: [index.day_of_week, index.day_of_week + 1, (index.day_of_week + 1) % 7],
    "quarter": lambda index: [index.quarter],
    "week": lambda index: [pd.Index(index.isocalendar().week)],
    "day of year": lambda index: [index.day_of_year, index.day_of_year - 1],
}
"""Part of the calendar -> its values at these rows, in each way to count them."""
WEEKDAYS = ("weekday", "dayofweek", "day_of_week", "dow")
MOST_CATEGORIES = 100
SHORTEST_COUNT = 10
"""Rows that a column must count before it is said, and rows that tell dates from other text."""
AS_ASKED = "as asked"


@dataclass
class Choice:
    """The columns that become channels. left_out: name -> why. kept: what is worth saying of a channel.

    suspects: number that may mean missing -> channel -> rows that hold it.
    categories: text covariate -> its values, each of which is a column now.
    """

    frame: pd.DataFrame
    left_out: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    suspects: dict[str, dict[str, int]] = field(default_factory=dict)
    categories: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, names: Sequence[object], why: str) -> None:
        self.left_out |= {str(name): why for name in names}
        self.frame = self.frame.drop(columns=list(names))


def choose_columns(
    choice: Choice,
    *,
    columns: Sequence[str] | str | None,
    covariates: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    measured: bool,
) -> None:
    """Leave out what is no channel, or all but `columns` and the covariates.

    categories: the values of text covariates where they are known. measured: all other columns are channels.
    """
    frame = choice.frame
    wanted = list(covariates)
    if columns is not None:
        wanted += [str(name) for name in existing(columns, frame.columns, what="column")]
        choice.leave_out([name for name in frame.columns if str(name) not in wanted], AS_ASKED)
    for name in list(choice.frame.columns):
        column = choice.frame[name]
        for value, count in may_mean_missing(column).items():
            choice.suspects.setdefault(value, {})[str(name)] = count
        if str(name) in covariates and _why_not(column) == "text":
            encode(choice, name, categories.get(str(name)))
        elif measured:
            continue
        elif str(name) not in wanted and (why := _why_not(column) or _in_date(name, column)):
            choice.leave_out([name], why)
        elif str(name) not in wanted and (said := _doubtful(name, column)):
            choice.kept.append(said)
    if choice.left_out and not len(choice.frame.columns):
        reasons = [f"{name} ({why})" for name, why in choice.left_out.items()]
        raise InputError(
            f"no column is left to forecast; left out: {format_list(reasons)}; name some with columns=[...]"
        )


def existing(given: str | Sequence[str], columns: Sequence[object] | pd.Index, *, what: str) -> list[object]:
    """Return the columns of these names; refuse a name that is none of them."""
    names = split_names(given, list(columns))
    for name in names:
        if name not in columns:
            raise unknown(what, name, columns)
    return names


# ---------------------------------------------------------------- what is no channel


def _why_not(column: "pd.Series[str]") -> str | None:
    """Return why a column cannot be a channel; None where it can, or where `validate` is to name the bad cell."""
    if len(column) and column.isna().all():
        return "empty"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "text"
    if not is_text(column) or not len(column):
        return None
    cells = column.dropna()
    if not cells.map(lambda cell: isinstance(cell, str)).all():
        return None
    if pd.to_numeric(cells, errors="coerce").notna().any():
        return None
    return "dates" if holds_dates(cells.head(SHORTEST_COUNT)) else "text"


def _in_date(name: object, column: "pd.Series[int]") -> str | None:
    """Return that a column numbers the rows or repeats a part of the date, if its name and its values say so."""
    numbers = _whole_numbers(column)
    if numbers is None:
        return None
    steps = np.diff(numbers)
    plain = str(name).strip().lower()
    if plain in ROW_NUMBERS and ((steps > 0).all() or (steps < 0).all() or (plain == NAMELESS and column.is_unique)):
        return "numbers the rows"
    part = "weekday" if plain in WEEKDAYS else part_of(name) or plain
    if part not in CALENDAR or not isinstance(column.index, pd.DatetimeIndex):
        return None
    same = any(np.array_equal(values, numbers) for values in CALENDAR[part](column.index))
    return "part of the date" if same else None


def _doubtful(name: object, column: "pd.Series[int]") -> str | None:
    """Return what is to be said of a numeric column that may be no measurement."""
    numbers = _whole_numbers(column)
    if numbers is None:
        return _steady(name, column)
    if len(numbers) >= SHORTEST_COUNT and (np.diff(numbers) == 1).all():
        return f"{name} counts the rows by one"
    if said := _steady(name, column):
        return said
    return f"{name} is named like a part of the date" if part_of(name) in CALENDAR else None


def may_mean_missing(column: "pd.Series[float]") -> dict[str, int]:
    """Return the numbers such as -9999 that may mean missing, far from all others of their column, and their rows."""
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_complex_dtype(column):
        return {}
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    values, repeats = np.unique(numbers[np.abs(numbers) <= LARGEST], return_counts=True)
    counts = repeats.tolist()
    first, after = 0, len(values)
    while first < min(MOST_SENTINELS, after) and _may_be_sentinel(values[first], counts[first]):
        first += 1
    while after > max(first, len(values) - MOST_SENTINELS) and _may_be_sentinel(values[after - 1], counts[after - 1]):
        after -= 1
    others = values[first:after]
    found = {}
    for place in [*range(first), *range(after, len(values))]:
        # Any number may be a measurement: one that is not of nines must repeat, be rare and lie further away.
        nines = _is_of_nines(values[place])
        apart = (1 if nines else 2) * np.ptp(others) if len(others) else np.inf
        possible = nines or (len(others) >= SHORTEST_COUNT and counts[place] <= len(numbers) / 5)
        if possible and np.abs(others - values[place]).min(initial=np.inf) > apart > 0:
            found[f"{values[place]:.6g}"] = counts[place]
    return found


MOST_SENTINELS = 2
"""Numbers at either end of a column that may mean missing."""


def _may_be_sentinel(value: float, count: int) -> bool:
    return _is_of_nines(value) or (count > 1 and bool(value != 0))


def _is_of_nines(value: float) -> bool:
    return bool(re.fullmatch(r"-?99+(\.[09]+)?|-32768(\.0)?", str(value)))


def describe_suspects(suspects: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a sentence for each number that may mean missing."""
    said = []
    for value, rows in suspects.items():
        counts = [f"{count} row{'s' * (count > 1)} of {name}" for name, count in rows.items()]
        said.append(
            f"{value} stands in {format_list(counts, most=4)}, far from all other values; if it means missing, "
            f"give na={value}"
        )
    return said


LARGEST = 1e300
"""Numbers whose differences are finite."""
SHORTEST_METER = 100
"""Rows in which a column must never fall to be called a meter reading."""


def _steady(name: object, column: "pd.Series[int] | pd.Series[float]") -> str | None:
    """Return what is to be said of a column that never falls: it rises by equal steps, or is the reading of a meter."""
    if not pd.api.types.is_float_dtype(column) and not pd.api.types.is_integer_dtype(column):
        return None
    numbers = column.dropna().to_numpy(dtype=np.float64)
    if len(numbers) and np.abs(numbers).max() > LARGEST:
        return None
    steps = np.diff(numbers)
    if len(steps) < SHORTEST_METER or not (steps >= 0).all() or (steps > 0).mean() < 0.5:
        return None
    if np.ptp(steps) <= 1e-6 * steps.mean():
        return f"{name} rises by {np.median(steps):.6g} in each row"
    return f"{name} never falls, like the reading of a meter: the differences of its rows may be what is to be forecast"


def _whole_numbers(column: "pd.Series[int]") -> np.ndarray | None:
    """Return a column of whole numbers, none missing."""
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if not numeric or pd.api.types.is_complex_dtype(column) or not len(column):
        return None
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers if (np.isfinite(numbers) & (numbers == np.floor(numbers))).all() else None


# ---------------------------------------------------------------- text as columns of 0 and 1


def encode(choice: Choice, name: object, categories: Sequence[str] | None) -> None:
    """Replace a column of text by one column for each of its values, "wind=N"; a missing text is missing in all.

    categories: the values it had in the first table; None: this is the first.
    """
    column = choice.frame[name]
    cells = column.where(column.isna(), column.astype(str).str.strip())
    found = sorted(cells.dropna().unique())
    if categories is None and len(found) > MOST_CATEGORIES:
        raise InputError(f"covariate {name!r} has {len(found)} different texts; at most {MOST_CATEGORIES} can be used")
    values = found if categories is None else list(categories)
    for text in found:
        if text not in values:
            raise unknown(f"value of {name!r}", text, values)
    columns: dict[object, pd.Series[float]] = {}
    for other in choice.frame.columns:
        if other == name:
            columns |= {
                f"{name}={text}": (cells == text).astype(float).where(cells.notna().to_numpy()) for text in values
            }
        else:
            columns[other] = choice.frame[other]
    encoded = pd.DataFrame(columns, index=choice.frame.index)
    encoded.attrs = choice.frame.attrs
    choice.frame = encoded
    choice.categories[str(name)] = values


def choose_again(
    frame: pd.DataFrame, left_out: Mapping[str, str], categories: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    """Return a later table without the columns that were left out of the first, and with its text encoded alike."""
    choice = Choice(frame.drop(columns=[name for name in frame.columns if str(name) in left_out]))
    for name, values in categories.items():
        if name in choice.frame.columns:
            encode(choice, name, values)
    return choice.frame
