"""Ridge regression in closed form: from the past of a channel and the calendar to its future.

    z        = [x_1 - x_l, ..., x_{l-1} - x_l,  x_l,  components,  calendar,  covariates]
    forecast = x_l + W z + b                               W and b of each channel, or shared by all
    W, b     = argmin  mean over windows |y - x_l - W z - b|^2 + lambda |W|^2         of standardized z

The larger lambda, the closer the forecast to the last value plus the mean change since. Each channel has the lambda
that is best on the validation windows by the mean of two errors: its own and, since few windows tell little of one
channel, the mean over the channels, each relative to the channel's best. The calendar of the last row is a Fourier
series in the time of day, one in the time of the week, and one in the time of day at weekends; every step has its own
W, so that the phase of the last row is enough. With `components`, the leading principal components of all channels at
the last row, and their change over one step and over twelve, are inputs of every channel; without them no channel sees
another. `fit` calls `solve`: there are no epochs. Solving again on more windows keeps the lambdas.

Hoerl & Kennard, "Ridge Regression: Biased Estimation for Nonorthogonal Problems", Technometrics 1970.

Parameters: n (f + 1) h with f inputs; 25 of them are the calendar.
Letters: b batch, l look-back, h horizon, n channels, m time features, f inputs, c shared inputs, w windows.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from primecast.errors import InputError

LAMBDAS = tuple(10.0**power for power in range(-5, 2))
TRAIN_WINDOWS, VAL_WINDOWS = 5000, 200
"""At most so many evenly spaced windows are solved for, and choose lambda."""
SHARED_WINDOWS, FEWEST = 20_000, 500
"""At most so many windows of single channels are solved for together, if that is not too few of each."""
CHUNK = 64
"""Channels that are solved at once, and that choose lambda together: their normal equations take n f^2 numbers."""
BATCH = 256
DAY_HARMONICS, WEEK_HARMONICS, WEEKEND_HARMONICS = 6, 3, 3
CALENDAR = (4, 5)
"""Time features that are the calendar: hour, day of week, of month, of year; a fifth is the minute of the hour."""


@runtime_checkable
class Windows(Protocol):
    """Windows numbered from 0, gathered by number as past, truth and time features."""

    def __len__(self) -> int: ...
    def batch(self, index: Int64[Tensor, "b"]) -> Any: ...


class Ridge(nn.Module):
    """forward(x: (b, l, n), time_features: (b, l + h, m) or None) -> (b, h, n); it begins as the last value.

    n_covariates: how many of the time features, the last ones, are not the calendar; their past l rows are inputs as
                  they are. None: all of them, unless there are as many time features as the calendar has.
    components:   how many principal components of the channels are inputs, at most as many as there are channels.
    shared:       one W and b for all channels, for series too short for their own.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        n_covariates: int | None = None,
        components: int = 0,
        shared: bool = False,
    ) -> None:
        super().__init__()
        if n_covariates is None:
            n_covariates = 0 if n_time_features in CALENDAR else n_time_features
        self.n_time_features, self.n_calendar = n_time_features, n_time_features - n_covariates
        calendar = 2 * (DAY_HARMONICS + WEEK_HARMONICS + WEEKEND_HARMONICS) + 1 if self.n_calendar else 0
        self.register_buffer("basis", torch.zeros(channels, min(components, channels)))
        self.basis: Tensor
        inputs = lookback + calendar + lookback * n_covariates + 3 * self.basis.shape[1]
        self.channels, self.shared = channels, shared
        self.penalties: Float64[Tensor, "k"] | None = None
        self.weight = nn.Parameter(torch.zeros(1 if shared else channels, inputs, horizon))
        self.bias = nn.Parameter(torch.zeros(1 if shared else channels, 1, horizon))

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        inputs = self._inputs(x, time_features)
        return x[:, -1:] + (self.bias + inputs @ self.weight).permute(1, 2, 0)

    def _inputs(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None
    ) -> Float[Tensor, "n b f"]:
        last = x[:, -1:]
        parts = [(x[:, :-1] - last).permute(2, 0, 1), last.permute(2, 0, 1)]
        rows = [x[:, -1], x[:, -1] - x[:, -min(2, x.shape[1])], x[:, -1] - x[:, -min(13, x.shape[1])]]
        common = [row @ self.basis for row in rows]
        if self.n_time_features:
            if time_features is None:
                raise InputError(f"the model was made for {self.n_time_features} time features, there are none")
            past = time_features[:, : x.shape[1]]
            if self.n_calendar:
                common.append(_fourier(past[:, -1, : self.n_calendar]))
            common.append(past[..., self.n_calendar :].flatten(1))
        parts += [one.expand(x.shape[-1], -1, -1) for one in common]
        return torch.cat(parts, dim=-1)

    # ---------------------------------------------------------------- closed form

    @torch.no_grad()
    def solve(self, train: Windows, val: Windows | None) -> None:
        """Set W and b by the training windows, with the lambda of each channel that the validation windows choose.

        val: None keeps the lambdas of the call before. A window whose truth is NaN at some step of a channel does not
        count for this channel.
        """
        if val is not None:
            self.penalties = torch.zeros(len(self.weight), dtype=torch.float64)
        if self.penalties is None:
            raise InputError("without validation windows only lambdas chosen before can be used: there are none")
        if self.basis.shape[1]:
            self.basis.copy_(_leading_components(train, self.basis.shape[1]))
        step = self.channels if self.shared else CHUNK
        for part in (slice(first, first + step) for first in range(0, self.channels, step)):
            gram, cross, mean, mean_change = self._moments(train, part)
            std = gram.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
            usable = std > 1e-6  # a constant input, such as the hour of daily data
            inverse = torch.where(usable, 1 / std, 0.0)
            values, vectors = torch.linalg.eigh(gram * inverse[:, :, None] * inverse[:, None])
            rotated = vectors.mT @ (cross * inverse[..., None])

            def weight(
                penalty: Float64[Tensor, "n 1 1"] | float, *, values: Tensor = values, vectors: Tensor = vectors,
                rotated: Tensor = rotated, inverse: Tensor = inverse,
            ) -> Float64[Tensor, "n f h"]:  # fmt: skip
                shrunk = rotated / (values.clamp_min(0)[..., None] + penalty)
                return inverse[..., None] * (vectors @ shrunk)

            own = slice(None) if self.shared else part
            if val is not None:
                errors = []
                for penalty in LAMBDAS:
                    self._set(part, weight(penalty), mean, mean_change)
                    errors.append(self._errors(val, part))
                self.penalties[own] = torch.tensor(LAMBDAS).double()[_pooled(torch.stack(errors)).argmin(0)]
            self._set(part, weight(self.penalties[own][:, None, None]), mean, mean_change)

    def _set(
        self,
        part: slice,
        weight: Float64[Tensor, "k f h"],
        mean: Float64[Tensor, "k 1 f"],
        mean_change: Float64[Tensor, "k 1 h"],
    ) -> None:
        own = slice(None) if self.shared else part
        self.weight[own] = weight.float()
        self.bias[own] = (mean_change - mean @ weight).float()

    def _moments(
        self, train: Windows, part: slice
    ) -> tuple[Float64[Tensor, "k f f"], Float64[Tensor, "k f h"], Float64[Tensor, "k 1 f"], Float64[Tensor, "k 1 h"]]:
        """Return covariances of the inputs, also with the changes y - x_l, and the means of both."""
        sums: list[Tensor] = []
        most = max(FEWEST, min(TRAIN_WINDOWS, SHARED_WINDOWS // self.channels)) if self.shared else TRAIN_WINDOWS
        for x, y, time_features in _batches(train, most):
            inputs = self._inputs(x, time_features)[part].double()
            change = (y - x[:, -1:]).permute(2, 0, 1)[part].double()
            known = ~change.isnan().any(dim=-1, keepdim=True)
            inputs, change = inputs * known, change.nan_to_num() * known
            products = [
                inputs.mT @ inputs,
                inputs.mT @ change,
                inputs.sum(1, keepdim=True),
                change.sum(1, keepdim=True),
                known.double().sum(1, keepdim=True),
            ]
            if self.shared:
                products = [product.sum(0, keepdim=True) for product in products]
            sums = [a + b for a, b in zip(sums, products, strict=True)] if sums else products
        count = sums.pop().clamp_min(1)
        gram, cross, mean, mean_change = (one / count for one in sums)
        return gram - mean.mT @ mean, cross - mean.mT @ mean_change, mean, mean_change

    def _errors(self, val: Windows, part: slice) -> Float64[Tensor, "k"]:
        """Return the squared error of each channel on the validation windows."""
        own = slice(None) if self.shared else part
        total = torch.zeros(len(self.weight[own]), dtype=torch.float64)
        for x, y, time_features in _batches(val, VAL_WINDOWS):
            inputs = self._inputs(x, time_features)[part]
            forecast = x[..., part][:, -1:] + (self.bias[own] + inputs @ self.weight[own]).permute(1, 2, 0)
            errors = (forecast - y[..., part]).square().nan_to_num().double().sum((0, 1))
            total += errors.sum() if self.shared else errors
        return total


def _pooled(errors: Float64[Tensor, "p k"]) -> Float64[Tensor, "p k"]:
    """Return the errors by which each channel chooses one of p penalties: its own and the mean of all, relative."""
    relative = errors / errors.min(dim=0).values.clamp_min(torch.finfo(errors.dtype).tiny)
    return (relative + relative.mean(dim=1, keepdim=True)) / 2


def _batches(windows: Windows, most: int) -> Iterator[Any]:
    """Yield at most so many evenly spaced windows: neighbors share all but one row."""
    count = min(most, len(windows))
    return (windows.batch(index) for index in (torch.arange(count) * len(windows) // count).split(BATCH))


def _leading_components(train: Windows, count: int) -> Float[Tensor, "n c"]:
    """Return the directions of the largest mean square of the windows' last rows."""
    rows = torch.cat([x[:, -1] for x, _, _ in _batches(train, TRAIN_WINDOWS)])
    return torch.linalg.eigh(rows.double().mT @ rows.double()).eigenvectors[:, -count:].float()


def _fourier(calendar: Float[Tensor, "b m"]) -> Float[Tensor, "b c"]:
    """Return the Fourier series of the calendar from the columns of `calendar_features`."""
    hour, weekday = (calendar[:, 0] + 0.5) * 23, ((calendar[:, 1] + 0.5) * 6).round()
    minute = (calendar[:, 4] + 0.5) * 59 if calendar.shape[1] > 4 else torch.zeros_like(hour)
    day = (hour + minute / 60) / 24
    week, weekend = (weekday + day) / 7, (weekday >= 5).float()
    phases = [
        *(harmonic * day for harmonic in range(1, DAY_HARMONICS + 1)),
        *(harmonic * week for harmonic in range(1, WEEK_HARMONICS + 1)),
        *(harmonic * day for harmonic in range(1, WEEKEND_HARMONICS + 1)),
    ]
    angles = 2 * math.pi * torch.stack(phases, dim=1)
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)
    only_weekends = torch.ones_like(angles)
    only_weekends[:, -WEEKEND_HARMONICS:] = weekend[:, None]
    return torch.cat([waves * only_weekends.repeat(1, 2), weekend[:, None]], dim=1)
