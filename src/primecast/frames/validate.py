"""Validation: from a wide frame to a checked one (float64, regular index, gaps filled by a policy), or one sentence.

A wide frame has one numeric column per channel. Every refusal names the first offender and the remedy. Missing values
are refused unless a policy is chosen, see POLICIES.

Letters: t rows, n columns.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64

from primecast.data.formats import to_numbers
from primecast.data.windows import Dataset, Ratio, Scaler
from primecast.errors import InputError, format_list, stamp, unknown
from primecast.frames.date_columns import SHORTEST
from primecast.frames.dates import Index, check_kind, frequency_in_words, future_index, season_of, units_of_rows
from primecast.frames.regular import GIVE_ZONE, at_clock_change, regular_index, with_absent_rows
from primecast.schema import COUNT, checked

POLICIES = {
    "error": "missing values are refused",
    "interpolate": "time interpolation between neighbors, the nearest value at the edges",
    "ffill": "the last value before the gap; a gap at the start takes the first value after it",
    "mask": "as ffill in the inputs, and no error is counted where the truth is missing",
}
ROUNDING = 1e-6
"""Relative to its size: a value that differs by less is the same, written with fewer digits or as float32."""
LONG_COLUMNS = {"unique_id", "ds", "y"}


class ConstantChannelWarning(UserWarning):
    """Some channels never change; nothing can be learned from them, and their forecast is their constant."""


class SilentChannelWarning(UserWarning):
    """Some channels have no value in the whole look-back; their forecast rests on a value from before it."""


class RevisedRowsWarning(UserWarning):
    """Rows that were known are given again with other values."""


def warn_silent_channels(table: "CheckedFrame") -> None:
    """Warn of channels without any value in these rows, the look-back of a forecast."""
    silent = table.frame.columns[np.asarray(table.gaps.all(axis=0))]
    if len(silent):
        warnings.warn(
            f"these channels have no value in the last {len(table)} rows, all that the model sees: "
            f"{format_list(silent)}; their forecast rests on an older value, and their intervals may be far too narrow",
            SilentChannelWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class CheckedFrame:
    """A checked frame with its gaps filled. gaps: the cells that were missing."""

    frame: pd.DataFrame
    gaps: Bool[np.ndarray, "t n"]

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def index(self) -> Index:
        assert isinstance(self.frame.index, pd.DatetimeIndex | pd.RangeIndex)
        return self.frame.index

    @property
    def truth(self) -> Float64[np.ndarray, "t n"]:
        """Return the values with the gaps as NaN."""
        return np.where(self.gaps, np.nan, self.frame.to_numpy())

    def ordered(self, columns: Sequence[str]) -> "CheckedFrame":
        """Return the columns in this order."""
        order = [list(self.frame.columns).index(name) for name in columns]
        return CheckedFrame(self.frame.iloc[:, order], self.gaps[:, order])

    def rows(self, first: int, after: int) -> "CheckedFrame":
        return CheckedFrame(self.frame.iloc[first:after], self.gaps[first:after])

    def last(self, count: int) -> "CheckedFrame":
        return self.rows(max(0, len(self) - count), len(self))

    def as_given(self) -> pd.DataFrame:
        """Return the frame with its gaps as NaN."""
        return pd.DataFrame(self.truth, index=self.frame.index, columns=self.frame.columns)

    def first_complete_row(self) -> int:
        """Return the first row before which every column has had a value."""
        return int((~self.gaps).argmax(axis=0).max()) + 1


# ---------------------------------------------------------------- the one validation


def check_frame(df: pd.DataFrame, *, missing: str) -> CheckedFrame:
    """Return the frame as float64 with a regular index and its gaps filled by a policy; refuse what cannot be used.

    Absent rows are gaps, too, unless missing values are refused.

    Rows in reverse order, newest first, are reversed. Any other disorder is refused: mostly it means misread dates or
    concatenated files.
    """
    if missing not in POLICIES:
        raise unknown("policy for missing values", missing, POLICIES)
    check_columns(df)
    if missing != "error":
        df = with_absent_rows(df)
    index = regular_index(_check_index(df))
    if not len(df.columns):
        raise InputError("the frame has no columns; give one numeric column per channel")
    values = to_numbers(df.sort_index())  # at most a reversal: any other disorder is refused above
    frame = pd.DataFrame(values, index=index, columns=df.columns)
    frame.attrs = df.attrs  # units, for pictures
    _check_values(frame, missing)
    return CheckedFrame(_fill(frame, missing), frame.isna().to_numpy())


@checked()
def validate(df: pd.DataFrame, *, missing: str = "error") -> pd.DataFrame:
    """Return `check_frame` of a frame as a frame; with "mask" its gaps stay NaN.

    Channels that never change bring a ConstantChannelWarning.
    """
    table = check_frame(df, missing=missing)
    warn_constant_channels(table)
    return table.as_given() if missing == "mask" else table.frame


def warn_constant_channels(table: CheckedFrame) -> None:
    constant = table.frame.columns[(table.frame.max() == table.frame.min()).to_numpy()]
    if len(constant):
        warnings.warn(
            f"these channels never change, their forecast is their constant: {format_list(constant)}",
            ConstantChannelWarning,
            stacklevel=3,
        )


@checked(season=replace(COUNT, optional=True))
def dataset_from_frame(df: pd.DataFrame, *, name: str = "", season: int | None = None) -> Dataset:
    """Return a frame as a data set of the benchmarks, split 7:1:2 as `Forecaster.fit` splits it."""
    table = check_frame(df, missing="error")
    return Dataset(
        name=name,
        values=table.frame.to_numpy(dtype=np.float64),
        index=table.index if isinstance(table.index, pd.DatetimeIndex) else None,
        names=tuple(map(str, table.frame.columns)),
        borders=Ratio(),
        season=season_of(table.index) if season is None else season,
    )


# ---------------------------------------------------------------- its parts


def check_columns(df: pd.DataFrame) -> None:
    """Refuse column names that repeat or have several levels."""
    if df.columns.nlevels > 1:
        raise InputError(
            f"column names have {df.columns.nlevels} levels (a MultiIndex), the first {df.columns[0]!r}; make one name "
            "of each, for example with df.columns = [' '.join(map(str, name)) for name in df.columns]"
        )
    names: list[object] = list(df.columns)
    for name in names:
        if not _is_name(name):
            raise InputError(
                f"the column name {name!r} is neither text nor a whole number, so it could not be given back; make "
                "texts of the names with df.columns = df.columns.map(str)"
            )
        if isinstance(name, str) and not name.isprintable() and name != name.encode("utf-8", "replace").decode():
            raise InputError(f"the column name {name!r} holds half a character (a lone surrogate); rename the column")
    twice = df.columns[df.columns.map(str).duplicated()]
    if len(twice):
        raise InputError(f"column names must differ, but these are repeated: {format_list(twice)}")


def _is_name(name: object) -> bool:
    """Return whether a name can be saved and given back as it was."""
    return isinstance(name, str | int | np.integer) and not isinstance(name, bool)


def _check_index(df: pd.DataFrame) -> pd.Index:
    """Return the index, oldest row first; there must be enough rows, all dated or numbered, all different, in order."""
    index = df.index
    if set(df.columns) >= LONG_COLUMNS:
        raise InputError("the frame looks like a long frame: make it wide with primecast.frames.widen(df)")
    check_kind(index)
    if not (index.name is None or _is_name(index.name)):
        raise InputError(
            f"the index is named {index.name!r}, neither text nor a whole number, so its name could not be given back; "
            "give it another with df.index.name = 'time'"
        )
    if len(index) < SHORTEST:
        raise InputError(f"the frame has {len(index)} rows, but at least {SHORTEST} are needed")
    if index.hasnans:
        raise InputError(f"missing time stamps (NaT) in {np.count_nonzero(index.isna())} rows; drop these")
    twice = index[index.duplicated()].unique()
    what = "time stamps" if isinstance(index, pd.DatetimeIndex) else "row numbers"
    if len(twice):
        clocks = f"clocks seem to have changed to winter time there: {GIVE_ZONE}"
        means = "take the means of each step, freq='h' if they are hourly, or " if what == "time stamps" else ""
        one = f"{means}keep one row of each, for example with df[~df.index.duplicated()]"
        count = f"1 {what[:-1]} occurs" if len(twice) == 1 else f"{len(twice)} {what} occur"
        raise InputError(
            f"{count} more than once, the first {format_list(twice[:3])}; {clocks if at_clock_change(twice) else one}"
        )
    if not (index.is_monotonic_increasing or index.is_monotonic_decreasing):
        late = int(np.flatnonzero(index[1:] < index[:-1])[0])
        raise InputError(
            f"{what} are not in order: {index[late + 1]} comes after {index[late]}; if the dates were read "
            "correctly, sort the rows by time, for example with df.sort_index()"
        )
    return index.sort_values()


def _check_values(frame: pd.DataFrame, missing: str) -> None:
    infinite = np.isinf(frame.to_numpy())
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise InputError(
            f"{int(infinite.sum())} values are infinite, the first in {frame.columns[column]!r} at {frame.index[row]}; "
            "correct them or make them missing with df.replace([inf, -inf], nan)"
        )
    gaps = frame.isna().sum()
    empty = frame.columns[(gaps == len(frame)).to_numpy()]
    if len(empty):
        raise InputError(f"these channels have no value at all: {format_list(empty)}; drop them")
    if missing == "error" and gaps.any():
        counts = [f"{count} in {name}" for name, count in gaps[gaps > 0].items()]
        raise InputError(
            f"{int(gaps.sum())} {'value is' if gaps.sum() == 1 else 'values are'} missing: {format_list(counts)}; "
            "choose a policy, "
            f"missing='interpolate' ({POLICIES['interpolate']}), missing='ffill' ({POLICIES['ffill']}) or "
            f"missing='mask' ({POLICIES['mask']})"
        )


def _fill(frame: pd.DataFrame, missing: str) -> pd.DataFrame:
    if missing == "interpolate":
        frame = frame.interpolate(method="time" if isinstance(frame.index, pd.DatetimeIndex) else "index")
    return frame if missing == "error" else frame.ffill().bfill()


# ---------------------------------------------------------------- checks beside rows already known


def revised(known: CheckedFrame, given: pd.DataFrame) -> Float64[np.ndarray, "t n"]:
    """Return the truth of known rows as a later table gives it; its missing values change nothing, nor do roundings.

    given: columns as those of `known`. Rows that occur twice, or lie between known rows, are refused.
    """
    twice, place = given.index[given.index.duplicated()], known.index.get_indexer(given.index)
    if len(twice):
        raise InputError(f"the row of {stamp(twice[0])} occurs more than once; keep one of them")
    between = (place < 0) & (given.index >= known.index[0]) & (given.index <= known.index[-1])
    if between.any():
        raise InputError(
            f"the row of {stamp(given.index[between][0])} lies between the rows that are known, which are "
            f"{frequency_in_words(known.index)} from {stamp(known.index[0])} on"
        )
    truth, shared, place = known.truth, to_numbers(given[place >= 0]), place[place >= 0]
    same = np.isnan(shared) | np.isclose(shared, truth[place], rtol=ROUNDING, atol=0)
    truth[place] = np.where(same, truth[place], shared)
    return truth


def check_overlap(wide: pd.DataFrame, known: CheckedFrame, truth: Float64[np.ndarray, "t n"]) -> None:
    """Refuse numbered rows that differ from those known by the same numbers: mostly they were counted from 0 again.

    truth: of the known rows, as the table gives it, see `revised`.
    """
    if not known.index.isin(wide.index).any() or _contradictions(known, truth).any():
        raise InputError(
            f"the rows are numbered {wide.index[0]} to {wide.index[-1]}, but those known by these numbers are others; "
            f"the next row is number {future_index(known.index, 1)[0]}"
        )


def warn_revised_rows(known: CheckedFrame, truth: Float64[np.ndarray, "t n"]) -> None:
    """Warn of known rows whose truth is another now, with an example."""
    other = _contradictions(known, truth)
    if not other.any():
        return
    row, column = (int(place[0]) for place in np.nonzero(other))
    warnings.warn(
        f"{np.count_nonzero(other.any(axis=1))} of the last {len(known)} rows known so far are given with other values "
        f"in {np.count_nonzero(other.any(axis=0))} of {other.shape[1]} channels, such as "
        f"{known.frame.columns[column]!r} at {stamp(known.index[row])}: {known.truth[row, column]:.10g} before, "
        f"{truth[row, column]:.10g} now; the new values are used",
        RevisedRowsWarning,
        stacklevel=4,  # the call of `Forecaster.update`
    )


def _contradictions(known: CheckedFrame, truth: Float64[np.ndarray, "t n"]) -> Bool[np.ndarray, "t n"]:
    """Return which values were known and are others now; a gap that got a value is no contradiction."""
    return np.asarray((truth != known.truth) & ~known.gaps)


def check_magnitude(table: CheckedFrame, scaler: Scaler) -> None:
    """Refuse values whose scaled square is no finite float32: errors would be inf or NaN."""
    values = table.frame.to_numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(scaler.transform(values).astype(np.float32))
    bad = ~(np.isfinite(squares).all(axis=0) & np.isfinite(scaler.std))
    if bad.any():
        column = int(bad.argmax())
        row = int(np.abs(values[:, column]).argmax())
        raise InputError(
            f"channel {table.frame.columns[column]!r} holds {values[row, column]:g} at {table.frame.index[row]}, too "
            "far from its other values to be scaled with them; correct it or make it missing"
        )


def describe_gaps(df: pd.DataFrame, *, missing: str = "interpolate") -> str:
    """Return one sentence on the missing values of a frame and how the policy treats them."""
    gaps = df.isna().sum().sort_values(ascending=False, kind="stable")
    rows = units_of_rows(df.index)
    if not gaps.any():
        return f"no value is missing in {len(df)} {rows}"
    gaps = gaps[gaps > 0]
    *others, last = [f"{name} ({count})" for name, count in gaps.head(3).items()]
    where = f"{', '.join(others)} and {last}" if others else last
    treated = {
        "error": "left as they are",
        "interpolate": "filled by time interpolation",
        "ffill": "filled forward",
        "mask": "filled forward in the inputs and left out of every error",
    }
    return (
        f"{int(df.isna().any(axis='columns').sum())} of {len(df)} {rows} have missing values, "
        f"{'most' if len(gaps) > 3 else 'all'} of them in {where}, {treated[missing]}"
    )
