"""Long tables: a row for each series and time, with an id, a time, a value and perhaps covariates.

    long (unique_id, ds, y, price, holiday) ──widen──> wide: A, B, "price | A", "price | B", "holiday"

Series of different starts and lengths are put on one grid. A covariate that the caller names becomes a column for each
series, or one column if all series have the same values at each time. A static feature, constant in each series such as
a region, tells no more than the name of the series, which a model of several channels knows: it is left out, and is
refused as a covariate.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from primecast.errors import InputError, format_list, unknown
from primecast.frames.date_columns import read_dates
from primecast.frames.dates import frequency
from primecast.frames.layouts import Layout
from primecast.frames.numbers import is_text
from primecast.frames.regular import at_clock_change, on_one_grid
from primecast.frames.time_columns import find_date, set_time, split_names
from primecast.frames.validate import LONG_COLUMNS, check_columns

STATIC = "constant in each series, tells no more than the name of the series"
UNNAMED = "not named as a covariate"


def series_covariate(name: str, series: object) -> str:
    """Return the name in a wide table of a covariate of one series."""
    return f"{name} | {series}"


def refuse_long(wide: pd.DataFrame, *, source: str) -> None:
    """Refuse a table whose times repeat, once for each value of a column of text: it is long, and did not say so.

    So is one whose times are in order only within each value of such a column.
    """
    index = wide.index
    texts = [name for name in wide.columns if is_text(wide[name]) or isinstance(wide[name].dtype, pd.CategoricalDtype)]
    if index.is_unique:
        _refuse_disordered(wide, texts, source=source)
        return
    if at_clock_change(index[index.duplicated()]):
        return
    ids = [name for name in texts if not pd.MultiIndex.from_arrays([index, wide[name].astype(str)]).has_duplicates]
    numbers = [name for name in wide.columns if pd.api.types.is_numeric_dtype(wide[name])]
    fractions = [name for name in numbers if pd.api.types.is_float_dtype(wide[name]) and wide[name].notna().any()]
    values = [*fractions, *numbers]  # whole numbers may count something
    if ids and values:
        raise InputError(
            f"the times of {source} repeat, once for each {ids[0]}: if it is a long table, with a row for each "
            f"{ids[0]} and time, give id={str(ids[0])!r}, value={str(values[0])!r}"
        )


def _refuse_disordered(wide: pd.DataFrame, texts: Sequence[object], *, source: str) -> None:
    index = wide.index
    if not isinstance(index, pd.DatetimeIndex):
        return
    if index.is_monotonic_increasing or index.is_monotonic_decreasing:
        _refuse_interleaved(wide, texts, source=source)
        return
    times = index.to_series().reset_index(drop=True)
    for name in texts:
        groups = times.groupby(wide[name].astype(str).to_numpy(), sort=False)
        others = [other for other in wide.columns if pd.to_numeric(wide[other], errors="coerce").notna().mean() > HALF]
        ordered = groups.ngroups < HALF * len(wide) and all(one.is_monotonic_increasing for _, one in groups)
        if name not in others and others and ordered:
            raise InputError(
                f"the times of {source} are in order only within each {name}: if it is a long table, give "
                f"id={str(name)!r}, value={str(others[0])!r} and a step for all series, such as freq='h'"
            )


def _refuse_interleaved(wide: pd.DataFrame, texts: Sequence[object], *, source: str) -> None:
    """Refuse rows in order at irregular times, whose one value is of another sensor in each row."""
    numbers = [name for name in wide.columns if pd.api.types.is_numeric_dtype(wide[name])]
    ids = [name for name in texts if str(name).strip().lower() in ID_NAMES and wide[name].nunique() > 1]
    if len(numbers) == 1 and ids and frequency(pd.DatetimeIndex(wide.index)) is None:
        raise InputError(
            f"the rows of {source} are of {wide[ids[0]].nunique()} {ids[0]}s at irregular times: give "
            f"id={str(ids[0])!r} and a step for all of them, such as freq='h'"
        )


ID_NAMES = (
    "entity_id", "sensor", "sensor_id", "device", "device_id", "tag", "tagname", "tag_name", "point", "metric",
    "series", "variable", "parameter", "channel", "name", "id", "_field", "unique_id", "meter", "meter_id", "station",
)  # fmt: skip
"""Usual names, in lower case, of a column that names the series of a long table."""
HALF = 0.5
"""Of the rows: a column of ids has fewer values, one of measurements has numbers in more."""


def names_long(layout: Layout, columns: Collection[object]) -> bool:
    """Return whether a table has the columns of this long layout; a table of covariates alone needs no values."""
    return {layout.id, layout.time} <= set(columns) and (layout.value in columns or bool(layout.covariates))


def add_absent_series(wide: pd.DataFrame, names: Sequence[str], layout: Layout) -> pd.DataFrame:
    """Return the table with an empty column for each of `names` that is a covariate of a series without rows."""
    prefixes = [series_covariate(name, "") for name, own in layout.covariates.items() if own]
    here = tuple(one for one in prefixes if any(str(column).startswith(one) for column in wide.columns))
    absent = [name for name in names if name.startswith(here) and name not in wide.columns]
    return wide.reindex(columns=[*wide.columns, *absent])


def as_long(frame: pd.DataFrame, given: Layout, covariates: Sequence[str], *, source: str) -> "LongTable | None":
    """Return the table as a long one; None if it is wide. covariates: of the first table; later `given` has them."""
    named = replace(given, id=given.id or "unique_id", time=given.time or "ds", value=given.value or "y")
    columns = set(frame.columns)
    if given.id is not None:
        named = _with_found_names(frame, given, named)
    later = bool(given.covariates) and names_long(named, columns)
    if given.id is None and given.value is None and not columns >= LONG_COLUMNS and not later:
        return None
    required = [named.id, named.time] if later else [named.id, named.time, named.value]
    for name in required:
        if name not in columns:
            numbers = frame.select_dtypes("number").columns
            hint = (
                f" for the values: name one, such as value={str(numbers[0])!r}" if name == "y" and len(numbers) else ""
            )
            raise InputError(f"{source} has no column {name!r}{hint}; its columns are {format_list(frame.columns)}")
    table = LongTable(frame, named, source)
    for name in covariates:
        if name not in [*table.others(), *frame[named.id].unique()]:
            raise unknown("covariate", name, map(str, table.others()))
    own = {name: table.is_own(name) for name in covariates if name in table.others()}
    return table if given.covariates else replace(table, layout=replace(named, covariates=own))


def _with_found_names(frame: pd.DataFrame, given: Layout, named: Layout) -> Layout:
    """Return the names of a long table whose id is named: its dates, and its numbers if they are one column."""
    if given.time is None and named.time not in frame.columns:
        named = replace(named, time=find_date(frame, searched=True) or named.time)
    if given.value is None and named.value not in frame.columns:
        numbers = frame.drop(columns=[named.id, named.time], errors="ignore").select_dtypes("number").columns
        named = replace(named, value=str(numbers[0])) if len(numbers) == 1 else named
    return named


@dataclass(frozen=True, eq=False)
class LongTable:
    """A long table. layout: with the names of its columns and, for each covariate, whether each series has its own."""

    frame: pd.DataFrame
    layout: Layout
    source: str

    def others(self) -> list[object]:
        """Return the columns beside id, time and value."""
        own = (self.layout.id, self.layout.time, self.layout.value)
        return [name for name in self.frame.columns if name not in own]

    def is_own(self, name: str) -> bool:
        """Return whether the values of a covariate differ between series; refuse a static feature."""
        times = self.frame.groupby(str(self.layout.time), sort=False)[name]
        if self.frame[self.layout.id].nunique() == 1:
            return False
        if not self._varies(name) and self.frame[name].nunique() > 1:
            raise InputError(
                f"covariate {name!r} is constant in each series: it tells no more than the name of the series, which "
                "the model knows; leave it out"
            )
        return bool(times.nunique().max() > 1 or times.count().max() < 2)

    def _varies(self, name: object) -> bool:
        """Return whether a column changes within some series."""
        try:
            return bool(self.frame[name].groupby(self.frame[self.layout.id], sort=False).nunique().max() > 1)
        except TypeError:  # cells that cannot be compared, such as lists
            return True

    def left_out(self) -> dict[str, str]:
        """Return the columns that are not used, and why."""
        unused = [name for name in self.others() if name not in self.layout.covariates]
        return {str(name): UNNAMED if self._varies(name) else STATIC for name in unused}

    def covariates_in_wide(
        self, names: Sequence[str], wide: pd.DataFrame, columns: str | Sequence[str] | None
    ) -> list[str]:
        """Return the columns of covariates in the wide table, of the series that are kept: `columns`, or all."""
        kept = list(wide.columns) if columns is None else split_names(columns, list(wide.columns))
        series = [one for one in self.frame[self.layout.id].unique() if one in kept]
        found: list[str] = []
        for name in names:
            found += [series_covariate(name, one) for one in series] if self.layout.covariates.get(name) else [name]
        return found

    def own_columns(self) -> list[str]:
        """Return the columns of the wide table that are a covariate of one series."""
        series = self.frame[self.layout.id].unique()
        return [series_covariate(name, one) for name, own in self.layout.covariates.items() if own for one in series]

    def categories(self) -> Mapping[str, list[str]]:
        """Return the values of each covariate of text, the same for all series, so that each may have any later."""
        found: dict[str, list[str]] = {}
        for name, own in self.layout.covariates.items():
            cells = self.frame[name].dropna()
            if own and (is_text(cells) or isinstance(cells.dtype, pd.CategoricalDtype)):
                values = sorted(cells.astype(str).str.strip().unique())
                found |= {series_covariate(name, one): values for one in self.frame[self.layout.id].unique()}
        return found

    def widen(self) -> tuple[pd.DataFrame, bool | None]:
        """Return the wide table, a column per id in the order in which ids appear, and whether days came first."""
        layout, df = self.layout, self.frame
        id, time = str(layout.id), str(layout.time)
        stamps, dayfirst = read_dates(df, time, dayfirst=layout.dayfirst, source=self.source)
        df = df.assign(**{time: stamps})
        nameless = df[id].isna()
        if nameless.any():
            raise InputError(
                f"{int(nameless.sum())} rows have no {id!r}, the first at {stamps[nameless.to_numpy()][0]}; fill it in "
                f"or drop them with df.dropna(subset=[{id!r}])"
            )
        twice = df.duplicated([id, time])
        if twice.any():
            first = df[twice].iloc[0]
            raise InputError(
                f"{int(twice.sum())} rows repeat an id and time, the first {first[id]!r} at {first[time]}; "
                f"keep one, for example with df.drop_duplicates([{id!r}, {time!r}])"
            )
        parts = [_pivot(df, id, time, layout.value)] if layout.value in df.columns else []
        parts += [self._covariate(df, name, own) for name, own in layout.covariates.items() if name in df.columns]
        wide = pd.concat(parts, axis=1) if len(parts) > 1 else parts[0]
        check_columns(wide)
        wide, _ = set_time(wide, None, None, tz=layout.tz, source=self.source)
        grid = on_one_grid(wide.index)
        return wide if grid is wide.index else wide.reindex(grid), dayfirst

    def _covariate(self, df: pd.DataFrame, name: str, own: bool) -> pd.DataFrame:
        """Return a covariate in columns: one for each series if each has its own, else one."""
        id, time = str(self.layout.id), str(self.layout.time)
        if own:
            return _pivot(df, id, time, name).rename(columns=lambda series: series_covariate(name, series))
        values = df.groupby(time)[name]
        different = values.nunique() > 1
        if different.any():
            raise InputError(
                f"covariate {name!r} was the same for all series in the table of fit, but is not at "
                f"{different.idxmax()}"
            )
        return values.first().to_frame()


def _pivot(df: pd.DataFrame, id: str, time: str, value: str | None) -> pd.DataFrame:
    wide = df.pivot(index=time, columns=id, values=str(value))
    # Not wide[names]: of names that are true and false that would choose rows.
    return wide.reindex(columns=df[id].unique()).rename_axis(columns=None)


def widen(
    df: pd.DataFrame,
    *,
    id_column: str = "unique_id",
    time_column: str = "ds",
    value_column: str = "y",
    dayfirst: bool | None = None,
) -> pd.DataFrame:
    """Return a long frame as a wide one: a column per id, in the order in which ids appear; absent pairs are NaN."""
    layout = Layout(id=id_column, time=time_column, value=value_column, dayfirst=dayfirst)
    table = as_long(df, layout, (), source="the long frame")
    assert table is not None  # an id column is given
    return table.widen()[0]
