"""A checked frame that remembers which of its cells were missing, and what can be asked of its rows.

Letters: t rows, n columns.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timezone, tzinfo

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float32, Float64
from torch import Tensor

from primecast.data.formats import to_numbers
from primecast.data.windows import Scaler, calendar_features
from primecast.errors import InputError
from primecast.frames.read import Index, check_kind, filled, future_index, validate
from primecast.frames.roles import Roles


@dataclass(frozen=True, eq=False)
class CheckedFrame:
    """A checked frame with its gaps filled, and where they were."""

    frame: pd.DataFrame
    gaps: Bool[np.ndarray, "t n"]

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def truth(self) -> Float64[np.ndarray, "t n"]:
        """The values with the gaps as NaN."""
        return np.where(self.gaps, np.nan, self.frame.to_numpy())

    def of(self, roles: Roles) -> "CheckedFrame":
        """The columns in the order of the roles."""
        order = [list(self.frame.columns).index(name) for name in roles.columns]
        return CheckedFrame(self.frame.iloc[:, order], self.gaps[:, order])

    def rows(self, first: int, after: int) -> "CheckedFrame":
        return CheckedFrame(self.frame.iloc[first:after], self.gaps[first:after])

    def last(self, count: int) -> "CheckedFrame":
        return self.rows(max(0, len(self) - count), len(self))

    def as_given(self, columns: Sequence[str], *, until: int) -> pd.DataFrame:
        """The first rows as they came: gaps are gaps, columns in their own order."""
        truth = pd.DataFrame(self.truth, index=self.frame.index, columns=self.frame.columns)
        return truth[list(columns)].iloc[:until]


def checked(wide: pd.DataFrame, missing: str) -> CheckedFrame:
    frame = validate(wide.rename(columns=str), missing="error" if missing == "error" else "mask")
    gaps = frame.isna().to_numpy()
    return CheckedFrame(filled(frame, "ffill" if missing == "mask" else missing), gaps)


def index_of(frame: pd.DataFrame) -> Index:
    assert isinstance(frame.index, pd.DatetimeIndex | pd.RangeIndex)
    return frame.index


def continued(index: Index, rows: int) -> Index:
    """The index with rows added, or taken away, at its end."""
    if isinstance(index, pd.RangeIndex):
        return pd.RangeIndex(index.start, index.start + rows * index.step, index.step, name=index.name)
    return pd.date_range(index[0], periods=rows, freq=index.freq, name=index.name)


def time_features_of(index: pd.Index) -> Float32[Tensor, "t m"] | None:
    return calendar_features(index) if isinstance(index, pd.DatetimeIndex) else None


def step_of(index: pd.Index) -> str:
    """What one row is, in words: its step and its zone."""
    if isinstance(index, pd.DatetimeIndex):
        step = "unknown step" if index.freq is None else repr(index.freqstr)
        return step + ("" if index.tz is None else f" in {zone_name(index.tz)}")
    return f"numbers {getattr(index, 'step', 1)} apart"


def zone_name(zone: tzinfo) -> str:
    """The name by which pandas finds the zone on any machine; dateutil calls its zones by their files on this one."""
    offset = zone.utcoffset(None)  # None where it changes
    return re.sub(r"^tzfile\('.*zoneinfo/(.+)'\)$", r"\1", str(zone)) if offset is None else str(timezone(offset))


def in_step(wide: pd.DataFrame, own: Index) -> pd.DataFrame:
    """Rows given later, oldest first, in the zone of `own` and, if they keep to it, with its step; not yet checked.

    Of themselves a few rows may show another step: a week of business days looks like days.
    """
    check_kind(wide.index)
    index = wide.index
    if _kind(index) != _kind(own):
        raise _other_rows(index, own)
    if isinstance(index, pd.DatetimeIndex) and isinstance(own, pd.DatetimeIndex) and own.tz is not None:
        index = index.tz_convert(own.tz)
    wide = wide.set_axis(index, axis="index")
    if not index.is_monotonic_increasing and index.is_monotonic_decreasing:
        wide = wide.iloc[::-1]
    if isinstance(own, pd.RangeIndex) or not len(index) or index.hasnans:
        return wide
    expected = pd.date_range(wide.index[0], periods=len(wide), freq=own.freq, name=index.name)
    return wide.set_axis(expected, axis="index") if (wide.index == expected).all() else wide


def check_step(index: pd.Index, own: Index) -> None:
    """Refuse rows of another step than `own`; they went through `in_step`, and then through `checked`."""
    step = "freq" if isinstance(own, pd.DatetimeIndex) else "step"
    if getattr(index, step) != getattr(own, step):
        raise _other_rows(index, own)


def _kind(index: pd.Index) -> tuple[bool, bool]:
    """Whether its rows are dated, and whether that is in a zone."""
    return isinstance(index, pd.DatetimeIndex), getattr(index, "tz", None) is not None


def _other_rows(index: pd.Index, own: Index) -> InputError:
    return InputError(f"this Forecaster was fitted on rows of {step_of(own)}, the frame has rows of {step_of(index)}")


def rows_until(index: pd.Index, stamp: str) -> int:
    """How many rows lie at or before this one."""
    limit = pd.Timestamp(stamp) if isinstance(index, pd.DatetimeIndex) else int(stamp)
    return int((index <= limit).sum())


def check_overlap(wide: pd.DataFrame, known: CheckedFrame) -> None:
    """Rows that are only numbered must be those known by these numbers: mostly they have been counted from 0 anew."""
    place = index_of(known.frame).get_indexer(wide.index)
    shared = wide[place >= 0]
    given, own = to_numbers(shared), known.truth[place[place >= 0]][:, known.frame.columns.get_indexer(wide.columns)]
    if not len(shared) or ((given != own) & ~np.isnan(given) & ~np.isnan(own)).any():
        raise InputError(
            f"the rows are numbered {wide.index[0]} to {wide.index[-1]}, but those known by these numbers are others; "
            f"the next row is number {future_index(index_of(known.frame), 1)[0]}"
        )


def check_magnitude(table: CheckedFrame, scaler: Scaler) -> None:
    """Refuse values whose scaled square, as errors have it, is no float32: nothing but inf and NaN would follow."""
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


def all_known(table: CheckedFrame) -> int:
    """The first row before which every column has had a value."""
    return int((~table.gaps).argmax(axis=0).max()) + 1


def row_length(index: Index) -> pd.Timedelta | None:
    """How long a row is; None where rows are numbered or, like months, of several lengths."""
    if isinstance(index, pd.RangeIndex):
        return None
    for stamps in (index, index.tz_localize(None)):  # a day is a day also when the clocks change
        steps = stamps[1:] - stamps[:-1]
        if (steps == steps[0]).all():
            return steps[0]
    return None
