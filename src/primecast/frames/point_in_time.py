"""What was known when: tables, windows, forecasts and their errors as they were at a moment of the past.

A gap that is interpolated is bridged with a value that comes after it. A forecast of that time had not seen it; so
whatever is held out looks at its rows through `Known`.

Letters: t rows, n columns, b windows of a batch, w rows of a window, m forecasts, h horizon.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from primecast.data.windows import Batch, Scaler, Windows
from primecast.frames.checked import CheckedFrame, continued, index_of
from primecast.frames.roles import RoleWindows


@dataclass(frozen=True, eq=False)
class PointInTimeValues:
    """What was known of each cell at each moment: a gap is bridged only when a value has come after it.

    filled: the cells as the policy for missing values fills them when all rows are known.
    held:   gaps as the last value before them; that is what they are until a value comes.
    closes: the row at which it comes; of a cell without a gap its own, of one whose gap stays open the number of rows.
    """

    filled: Float[np.ndarray, "t n"]
    held: Float[np.ndarray, "t n"]
    closes: Int64[np.ndarray, "t n"]

    @classmethod
    def of(cls, table: CheckedFrame) -> "PointInTimeValues":
        values, rows = table.frame.to_numpy(), len(table)
        if not table.gaps.any():
            return cls(values, values, np.broadcast_to(np.arange(rows)[:, None], values.shape))
        truth = table.truth
        truth[0] = values[0]  # of a gap that began before these rows, what they say of it
        later = np.where(table.gaps, rows, np.arange(rows)[:, None])
        closes = np.minimum.accumulate(later[::-1], axis=0)[::-1]
        return cls(values, pd.DataFrame(truth).ffill().to_numpy(), closes)

    def as_of(self, rows: Int64[np.ndarray, "*b w"], now: int | Int64[np.ndarray, "*b"]) -> Float[np.ndarray, "*b w n"]:
        """These rows as they were known before the row `now`."""
        open_then = self.closes[rows] >= np.asarray(now)[..., None, None]
        return np.where(open_then, self.held[rows], self.filled[rows])

    def frame_as_of(self, table: CheckedFrame, now: int) -> CheckedFrame:
        """The rows of the table before `now`, as they were then."""
        part = table.rows(0, now)
        if not part.gaps.any():
            return part
        values = self.as_of(np.arange(now), now)
        return CheckedFrame(pd.DataFrame(values, index=part.frame.index, columns=part.frame.columns), part.gaps)

    def scaled(self, scaler: Scaler) -> "PointInTimeValues":
        filled, held = (scaler.transform(values).astype(np.float32) for values in (self.filled, self.held))
        return PointInTimeValues(filled, held, self.closes)


@dataclass(frozen=True, eq=False)
class PointInTimeWindows(Windows):
    """Windows that look at what was known at their origin; their truth is what is known in the end.

    known: of all columns, scaled: those of `series`, then the covariates, which are the last of `time_features`.
    """

    known: PointInTimeValues

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        _, y, time_features = super().batch(index)
        first = index.numpy() + self.start
        rows = first[:, None] + np.arange(self.lookback + self.horizon)
        seen = torch.from_numpy(self.known.as_of(rows, first + self.lookback))
        x, covariates = seen[:, : self.lookback, : self.channels], seen[..., self.channels :]
        if time_features is not None:
            time_features = torch.cat(
                [time_features[..., : time_features.shape[-1] - covariates.shape[-1]], covariates], dim=-1
            )
        return Batch(x.contiguous(), y, time_features)


@dataclass(frozen=True, eq=False)
class SeasonalNaiveWindows:
    """The same windows, looking instead at the rows a season before those they forecast, wherever these lie."""

    windows: RoleWindows
    known: PointInTimeValues  # scaled
    season: int

    @property
    def lookback(self) -> int:
        """No more rows of a season than are repeated."""
        return min(self.season, self.windows.base.horizon)

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        base = self.windows.base
        origins = self.windows.numbers[index].numpy() + base.start + base.lookback
        seen = self.known.as_of(origins[:, None] - self.season + np.arange(self.lookback), origins)
        return Batch(torch.from_numpy(seen[..., : base.channels]), self.windows.batch(index).y, None)


@dataclass(frozen=True, eq=False)
class HeldOutForecasts:
    """Forecasts from several origins, scaled, each of what was known there; their errors come in as truth does.

    never: the truths that stay unknown.
    """

    forecasts: Float32[np.ndarray, "m h n"]
    origins: Int64[np.ndarray, "m"]
    known: PointInTimeValues  # scaled
    never: Bool[np.ndarray, "t n"] | None

    @property
    def ends(self) -> Int64[np.ndarray, "m"]:
        """The row after the last one that each forecasts."""
        return self.origins + self.forecasts.shape[1]

    @property
    def stride(self) -> int | None:
        """The least number of rows between two: news is never thought older than it is."""
        return int(np.diff(self.origins).min()) if len(self.origins) > 1 else None

    def errors(self, now: int) -> Float32[np.ndarray, "m h n"]:
        """Absolute errors as they were known before the row `now`, NaN where they were not."""
        _, horizon, targets = self.forecasts.shape
        truth = self.known.as_of(np.arange(now), now)[:, :targets]
        if self.never is not None:
            truth = np.where(self.never[:now], np.float32(np.nan), truth)
        to_come = np.full((1, targets), np.nan, dtype=np.float32)
        steps = np.minimum(self.origins[:, None] + np.arange(horizon), now)
        return np.abs(self.forecasts - np.concatenate([truth, to_come])[steps])


def padded(table: CheckedFrame, rows: int) -> CheckedFrame:
    """The table with as many rows, its last one standing for those to come."""
    if len(table) >= rows:
        return table
    values = np.concatenate([table.frame.to_numpy(), table.frame.to_numpy()[[-1] * (rows - len(table))]])
    gaps = np.concatenate([table.gaps, np.ones((rows - len(table), table.gaps.shape[1]), dtype=bool)])
    return CheckedFrame(
        pd.DataFrame(values, index=continued(index_of(table.frame), rows), columns=table.frame.columns), gaps
    )
