"""A checked frame that remembers which of its cells were missing, and what can be asked of its rows.

Letters: t rows, n columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float32, Float64
from torch import Tensor

from primecast.data.frames import Index, filled, validate
from primecast.data.roles import Roles
from primecast.data.windows import time_features


@dataclass(frozen=True, eq=False)
class Table:
    """A checked frame with its gaps filled, and where they were."""

    frame: pd.DataFrame
    gaps: Bool[np.ndarray, "t n"]

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def truth(self) -> Float64[np.ndarray, "t n"]:
        """The values with the gaps as NaN."""
        return np.where(self.gaps, np.nan, self.frame.to_numpy())

    def of(self, roles: Roles) -> "Table":
        """The columns in the order of the roles."""
        order = [list(self.frame.columns).index(name) for name in roles.columns]
        return Table(self.frame.iloc[:, order], self.gaps[:, order])

    def rows(self, first: int, after: int) -> "Table":
        return Table(self.frame.iloc[first:after], self.gaps[first:after])

    def last(self, count: int) -> "Table":
        return self.rows(max(0, len(self) - count), len(self))

    def after(self, stamp: object) -> "Table":
        return self.rows(int((self.frame.index <= stamp).sum()), len(self))

    def join(self, later: "Table") -> "Table":
        frame = pd.concat([self.frame, later.frame])
        return Table(
            frame.set_axis(continued(index_of(self.frame), len(frame)), axis="index"),
            np.concatenate([self.gaps, later.gaps]),
        )

    def as_given(self, columns: Sequence[str], *, until: int) -> pd.DataFrame:
        """The first rows as they came: gaps are gaps, columns in their own order."""
        truth = pd.DataFrame(self.truth, index=self.frame.index, columns=self.frame.columns)
        return truth[list(columns)].iloc[:until]


def checked(wide: pd.DataFrame, missing: str) -> Table:
    frame = validate(wide.rename(columns=str), missing="error" if missing == "error" else "mask")
    gaps = frame.isna().to_numpy()
    return Table(filled(frame, "ffill" if missing == "mask" else missing), gaps)


def index_of(frame: pd.DataFrame) -> Index:
    assert isinstance(frame.index, pd.DatetimeIndex | pd.RangeIndex)
    return frame.index


def continued(index: Index, rows: int) -> Index:
    """The index with rows added, or taken away, at its end."""
    if isinstance(index, pd.RangeIndex):
        return pd.RangeIndex(index.start, index.start + rows * index.step, index.step, name=index.name)
    return pd.date_range(index[0], periods=rows, freq=index.freq, name=index.name)


def calendar_marks(index: pd.Index) -> Float32[Tensor, "t m"] | None:
    return time_features(index) if isinstance(index, pd.DatetimeIndex) else None


def step_of(index: pd.Index) -> str:
    """What one row is, in words: its step and its zone."""
    if isinstance(index, pd.DatetimeIndex):
        return f"{index.freqstr!r}" + ("" if index.tz is None else f" in {index.tz}")
    return f"numbers {getattr(index, 'step', 1)} apart"


def rows_until(index: pd.Index, stamp: str) -> int:
    """How many rows lie at or before this one."""
    limit = pd.Timestamp(stamp) if isinstance(index, pd.DatetimeIndex) else int(stamp)
    return int((index <= limit).sum())
