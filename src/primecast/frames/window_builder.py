"""Windows of a checked frame: scaled by its training rows, columns by role, gaps excluded from the truth.

    WindowBuilder.windows    to train on: gaps are filled with everything that is known in the end
    WindowBuilder.held_out   to score and analyze: each window reads what was known at its origin
    WindowBuilder.next       the one window whose truth is still to come

Letters: t rows, b windows in a batch, w windows, l look-back, h horizon, n channels (targets, then past), m time
features, c future covariates.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from primecast.data.windows import Batch, Scaler, Windows
from primecast.errors import InputError
from primecast.frames.dates import future_index, time_features_of, with_length
from primecast.frames.point_in_time import PointInTimeValues
from primecast.frames.roles import Roles, shift_future_covariates, shifts
from primecast.frames.validate import CheckedFrame, warn_silent_channels


@dataclass(frozen=True, eq=False)
class RoleWindows:
    """Windows of columns with roles, a `WindowSource`.

    base:     windows of the channels; the last `known` time features are the future covariates.
    targets:  how many channels are scored. The truth of the others is `unscored`: NaN for a masked loss, 0 where the
              forecast of those channels is 0, too.
    gaps:     the cells of `base.series` that were missing; their truth is NaN.
    values:   all columns, scaled, as they were known at each time; None: inputs are those of `base`.
    chosen:   the windows of `base` that there are; None: all.
    """

    base: Windows
    targets: int
    known: int = 0
    unscored: float = float("nan")
    gaps: Bool[Tensor, "t n"] | None = None
    values: PointInTimeValues | None = None
    chosen: Int64[Tensor, "w"] | None = None

    def __len__(self) -> int:
        return len(self.base) if self.chosen is None else len(self.chosen)

    @property
    def channels(self) -> int:
        return self.base.channels

    @property
    def n_time_features(self) -> int:
        added = len(shifts(lookback=self.base.lookback, horizon=self.base.horizon)) - 1
        return self.base.n_time_features + added * self.known

    @property
    def numbers(self) -> Int64[Tensor, "w"]:
        """Return the numbers of the windows in `base`."""
        return torch.arange(len(self.base)) if self.chosen is None else self.chosen

    @property
    def origins(self) -> Int64[np.ndarray, "w"]:
        """Return the first row that each window forecasts."""
        return self.numbers.numpy() + self.base.start + self.base.lookback

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        index = index if self.chosen is None else self.chosen[index]
        batch = self.base.batch(index)
        x, y, time_features = batch if self.values is None else self._as_of_origin(index, batch, self.values)
        if self.targets < self.channels:
            y = torch.cat([y[..., : self.targets], torch.full_like(y[..., self.targets :], self.unscored)], dim=-1)
        if self.gaps is not None:
            missing = self.gaps.unfold(0, self.base.lookback + self.base.horizon, 1).mT[index]
            y = y.masked_fill(missing[:, self.base.lookback :], float("nan"))
        if time_features is not None:
            time_features = shift_future_covariates(time_features, known=self.known, lookback=self.base.lookback)
        return Batch(x, y, time_features)

    def _as_of_origin(self, index: Int64[Tensor, "b"], batch: Batch, values: PointInTimeValues) -> Batch:
        first, lookback = index.numpy() + self.base.start, self.base.lookback
        rows = first[:, None] + np.arange(lookback + self.base.horizon)
        known = torch.from_numpy(values.as_of(rows, first + lookback))
        x, covariates = known[:, :lookback, : self.channels], known[..., self.channels :]
        time_features = batch.time_features
        if time_features is not None:
            time_features = torch.cat([time_features[..., : time_features.shape[-1] - self.known], covariates], dim=-1)
        return Batch(x.contiguous(), batch.y, time_features)

    def only(self, index: Int64[np.ndarray, "k"]) -> "RoleWindows":
        """Return the windows of these numbers."""
        return replace(self, chosen=self.numbers[torch.from_numpy(index.copy())])

    def complete(self) -> "RoleWindows":
        """Return the windows whose truth has no gap, which any score can take."""
        if self.gaps is None:
            return replace(self, unscored=0.0)
        future = self.gaps[self.base.lookback :, : self.targets].any(dim=1)
        whole = ~future.unfold(0, self.base.horizon, 1).any(dim=1)
        if self.chosen is not None:
            whole &= torch.zeros_like(whole).index_fill(0, self.chosen, True)
        chosen = whole.nonzero()[:, 0]
        if not len(chosen):
            raise InputError(
                f"no window of {self.base.horizon} steps from row {self.base.start + self.base.lookback} on is without "
                "a gap, so nothing can be scored there; choose missing='interpolate' or drop the channels with gaps"
            )
        return replace(self, unscored=0.0, gaps=None, chosen=chosen)


@dataclass(frozen=True, eq=False)
class SeasonalNaiveWindows:
    """The same windows with the rows one season before the forecast ones as inputs, wherever these lie."""

    windows: RoleWindows
    values: PointInTimeValues  # scaled
    season: int

    @property
    def lookback(self) -> int:
        """Return the rows of a season that are repeated."""
        return min(self.season, self.windows.base.horizon)

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        origins = self.windows.origins[index.numpy()]
        x = self.values.as_of(origins[:, None] - self.season + np.arange(self.lookback), origins)
        return Batch(torch.from_numpy(x[..., : self.windows.channels]), self.windows.batch(index).y, None)


@dataclass(frozen=True, eq=False)
class WindowBuilder:
    """Build the windows of tables whose columns are in the order of the roles.

    missing: the policy that filled their gaps.
    minute:  whether the minute of the hour is a time feature: with steps below an hour, unless saved before 0.2.
    """

    scaler: Scaler
    roles: Roles
    lookback: int
    horizon: int
    missing: str
    minute: bool = False

    @property
    def targets(self) -> int:
        return len(self.roles.targets)

    def windows(self, table: CheckedFrame, rows: range) -> RoleWindows:
        """Return all windows of these rows."""
        part = table.frame.iloc[rows.start : rows.stop]
        series = torch.from_numpy(self.scaler.transform(part.to_numpy()).astype(np.float32))
        channels = len(self.roles.channels)
        time_features = time_features_of(part.index, minute=self.minute)
        if self.roles.future:
            calendar = [] if time_features is None else [time_features]
            time_features = torch.cat([*calendar, series[:, channels:]], dim=1)
        masked = self.missing == "mask" and table.gaps.any()
        gaps = torch.from_numpy(table.gaps[rows.start : rows.stop, :channels].copy()) if masked else None
        return RoleWindows(
            Windows(series[:, :channels], time_features, rows.start, self.lookback, self.horizon),
            targets=self.targets,
            known=len(self.roles.future),
            gaps=gaps,
        )

    def held_out(self, table: CheckedFrame, rows: range) -> RoleWindows:
        """Return the same windows, each with the inputs that were known at its origin."""
        windows = self.windows(table, rows)
        if self.missing != "interpolate" or not table.gaps.any():
            return windows  # every other policy fills a gap with what was known before it
        return replace(windows, values=PointInTimeValues.of(table).scaled(self.scaler))

    def from_origins(self, table: CheckedFrame, origins: Int64[np.ndarray, "w"]) -> RoleWindows:
        """Return the held-out windows that forecast from these rows on; each has a look-back before it.

        Rows beyond the end of the table, which only truths need, repeat its last row.
        """
        rows = range(int(origins[0]) - self.lookback, int(origins[-1]) + self.horizon)
        return self.held_out(_padded(table, rows.stop), rows).only(origins - origins[0])

    def next(self, table: CheckedFrame, known: Float64[np.ndarray, "h c"]) -> RoleWindows:
        """Return the window of the table's last look-back rows. known: the future covariates after them."""
        seen = table.last(self.lookback)
        warn_silent_channels(seen)
        future = np.repeat(seen.frame.to_numpy()[-1:], self.horizon, axis=0)
        future[:, len(self.roles.channels) :] = known
        index = seen.frame.index.append(future_index(seen.index, self.horizon))
        frame = pd.DataFrame(np.concatenate([seen.frame.to_numpy(), future]), index=index, columns=seen.frame.columns)
        gaps = np.zeros(frame.shape, dtype=bool)
        windows = self.windows(CheckedFrame(frame, gaps), range(self.lookback + self.horizon))
        # Row by row in memory, whatever the frame's order: the last bits of a product depend on it.
        return replace(windows, base=replace(windows.base, series=windows.base.series.contiguous()))

    def origins(self, table: CheckedFrame, rows: range) -> Int64[np.ndarray, "w"]:
        """Return those of these rows after which the targets of a whole horizon are known, or will be."""
        origins = np.arange(rows.start, rows.stop - self.horizon + 1)
        if self.missing != "mask":
            return origins
        gone = table.gaps[:, : self.targets].any(axis=1)
        before = np.concatenate([[0], np.cumsum(gone)])  # gaps before each row
        return origins[before[origins + self.horizon] == before[origins]]


def _padded(table: CheckedFrame, rows: int) -> CheckedFrame:
    """Return the table with so many rows, the last one repeated and marked as missing."""
    added = rows - len(table)
    if added <= 0:
        return table
    values = np.concatenate([table.frame.to_numpy(), table.frame.to_numpy()[[-1] * added]])
    gaps = np.concatenate([table.gaps, np.ones((added, table.gaps.shape[1]), dtype=bool)])
    frame = pd.DataFrame(values, index=with_length(table.index, rows), columns=table.frame.columns)
    return CheckedFrame(frame, gaps)
