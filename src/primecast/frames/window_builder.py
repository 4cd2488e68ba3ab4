"""How a forecaster looks at a table: scaled as its training rows were, in windows, its columns by their roles.

    windows    to train on: gaps are filled with all that is known in the end
    held_out   to score on and to look into: each window sees what `predict` would have seen at its origin
    past       what a model said, or would have said, at rows of the past
    forecast   what it says now

Letters: t rows, m forecasts, h horizon, c covariates that are known beforehand, k targets.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import nn

from primecast.data.windows import Scaler, Windows
from primecast.frames.checked import CheckedFrame, time_features_of
from primecast.frames.point_in_time import HeldOutForecasts, PointInTimeValues, PointInTimeWindows, padded
from primecast.frames.read import Index
from primecast.frames.roles import Roles, RoleWindows, shift_future_covariates, with_roles


@dataclass(frozen=True, eq=False)
class WindowBuilder:
    """Tables come with their columns in the order of the roles; missing: the policy that filled their gaps."""

    scaler: Scaler
    roles: Roles
    lookback: int
    horizon: int
    missing: str

    @property
    def targets(self) -> int:
        return len(self.roles.targets)

    def windows(self, table: CheckedFrame, rows: range) -> RoleWindows:
        """All windows of these rows."""
        part = table.frame.iloc[rows.start : rows.stop]
        windows = Windows(
            series=torch.from_numpy(self.scaler.transform(part.to_numpy()).astype(np.float32)),
            time_features=time_features_of(part.index),
            start=rows.start,
            lookback=self.lookback,
            horizon=self.horizon,
        )
        masked = self.missing == "mask" and table.gaps.any()
        return with_roles(windows, self.roles, table.gaps if masked else None)

    def held_out(self, table: CheckedFrame, rows: range) -> RoleWindows:
        """The same, where each looks at what was known at its origin."""
        windows = self.windows(table, rows)
        if self.missing != "interpolate" or not table.gaps.any():
            return windows  # all other policies fill a gap with what was known before it
        known = PointInTimeValues.of(table).scaled(self.scaler)
        return replace(windows, base=PointInTimeWindows(**vars(windows.base), known=known))

    def origins(self, table: CheckedFrame, rows: range) -> Int64[np.ndarray, "m"]:
        """Those of these rows from which on the targets of a whole horizon are, or will be, known."""
        origins = np.arange(rows.start, rows.stop - self.horizon + 1)
        if self.missing != "mask":
            return origins
        gone = table.gaps[:, : self.targets].any(axis=1)
        before = np.concatenate([[0], np.cumsum(gone)])  # gaps before each row
        return origins[before[origins + self.horizon] == before[origins]]

    def past(
        self, model: nn.Module, table: CheckedFrame, origins: Int64[np.ndarray, "m"], *, batch_size: int
    ) -> HeldOutForecasts:
        """The forecasts from these rows on; all of them have a look-back before them."""
        forecasts = [np.zeros((0, self.horizon, self.targets), dtype=np.float32)]
        if len(origins):
            rows = range(int(origins[0]) - self.lookback, int(origins[-1]) + self.horizon)
            windows = self.held_out(padded(table, rows.stop), rows)
            for part in torch.from_numpy(origins - origins[0]).split(batch_size):
                batch = windows.batch(part)
                with torch.inference_mode():
                    forecasts.append(model.eval()(batch.x, batch.time_features)[..., : self.targets].numpy())
        never = table.gaps[:, : self.targets] if self.missing == "mask" else None
        return HeldOutForecasts(
            np.concatenate(forecasts), origins, PointInTimeValues.of(table).scaled(self.scaler), never
        )

    def forecast(
        self, model: nn.Module, table: CheckedFrame, ahead: Index, known: Float64[np.ndarray, "h c"]
    ) -> Float64[np.ndarray, "h k"]:
        """The targets after the last of these look-back rows, in original units."""
        roles, values = self.roles, self.scaler.transform(table.frame.to_numpy())
        channels = len(roles.channels)
        filler = np.zeros((self.horizon, channels))
        after = self.scaler.transform(np.concatenate([filler, known], axis=1))[:, channels:]
        covariates = torch.from_numpy(np.concatenate([values[:, channels:], after])).float()
        dated = time_features_of(table.frame.index.append(ahead))
        parts = ([] if dated is None else [dated]) + ([covariates] if roles.future else [])
        time_features = torch.cat(parts, dim=1)[None] if parts else None
        if time_features is not None:
            time_features = shift_future_covariates(time_features, known=len(roles.future), lookback=self.lookback)
        # Laid out anew, since the last bits of a product depend on how its factors lie in memory.
        window = torch.from_numpy(np.ascontiguousarray(values[:, :channels])).float()
        with torch.inference_mode():
            scaled = model.eval()(window[None], time_features)[0]
        full = np.zeros((self.horizon, len(roles.columns)))
        full[:, :channels] = scaled.double().numpy()
        return self.scaler.inverse(full)[:, : self.targets]
