"""Columns with roles: what is forecast, what is only looked at, what is known beforehand; and gaps that do not count.

    target        looked at, forecast, scored
    past          looked at only: a channel like the targets, whose forecast nobody asks for
    future        known beforehand (a holiday, a planned set point): it joins the calendar features

Models look at time_features over the look-back alone, so a covariate c known up to the end of the horizon is shown to them more
than once, each time moved ahead: c(t), c(t + l), ... and last c(t + h), as many as it takes for every future value to
come into view. What would lie beyond the horizon is the last value known.

A missing target is NaN in the truth of a window, and `masked_loss` makes any loss leave it out.

Letters: t rows, b windows in a batch, l look-back, h horizon, n channels (targets, then past), m time_features.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor, nn

from primecast.data.windows import Batch, Windows
from primecast.errors import InputError, unknown
from primecast.nn.losses import Loss


@dataclass(frozen=True)
class Roles:
    """The columns of a frame by role; `columns` is the order in which windows have them."""

    targets: tuple[str, ...]
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Collection[str], *, past: Sequence[str], future: Sequence[str]) -> "Roles":
        for role, names in (("past", past), ("future", future)):
            for name in names:
                if name not in columns:
                    raise unknown(f"{role} covariate", name, columns)
        targets = tuple(name for name in columns if name not in past and name not in future)
        if not targets:
            raise InputError("all columns are covariates: nothing is left to forecast")
        return cls(targets, tuple(past), tuple(future))

    @property
    def channels(self) -> tuple[str, ...]:
        return self.targets + self.past

    @property
    def columns(self) -> tuple[str, ...]:
        return self.targets + self.past + self.future


def shifts(*, lookback: int, horizon: int) -> list[int]:
    """How far ahead a known covariate is moved, each time it is shown: 0, l, 2 l, ... and at last h.

    >>> shifts(lookback=96, horizon=24), shifts(lookback=96, horizon=200)
    ([0, 24], [0, 96, 192, 200])
    """
    return [*range(0, horizon, lookback), horizon]


def shift_future_covariates(
    time_features: Float[Tensor, "b w m"], *, known: int, lookback: int
) -> Float[Tensor, "b w time_features"]:
    """Marks of whole windows, in which the last `known` columns are covariates, with these moved ahead (see above)."""
    if not known:
        return time_features
    steps = time_features.shape[1]
    time = torch.arange(steps, device=time_features.device)
    covariates = time_features[..., -known:]
    moved = [
        covariates[:, (time + shift).clamp(max=steps - 1)]
        for shift in shifts(lookback=lookback, horizon=steps - lookback)
    ]
    return torch.cat([time_features[..., :-known], *moved], dim=-1)


@dataclass(frozen=True, eq=False)
class RoleWindows:
    """Windows of columns with roles; to `fit` and `evaluate` they are windows like any others.

    base:    windows whose series are the channels, and whose last `known` time_features are the known covariates.
    targets: how many of the channels are scored. The truth of the others is `unscored`: NaN for a loss that is to
             leave them out, 0 where the model is a `TargetsOnly`, which forecasts 0 there.
    gaps:    which cells of `base.series` were missing; their truth is NaN, too.
    chosen:  the windows of `base` that there are; None is all.
    """

    base: Windows
    targets: int
    known: int = 0
    unscored: float = float("nan")
    gaps: Bool[Tensor, "t n"] | None = None
    chosen: Int64[Tensor, "w"] | None = None

    def __len__(self) -> int:
        return len(self.base) if self.chosen is None else len(self.chosen)

    @property
    def channels(self) -> int:
        return self.base.channels

    @property
    def n_time_features(self) -> int:
        moved = len(shifts(lookback=self.base.lookback, horizon=self.base.horizon)) - 1
        return self.base.n_time_features + moved * self.known

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        index = index if self.chosen is None else self.chosen[index]
        x, y, time_features = self.base.batch(index)
        if self.targets < self.channels:
            y = torch.cat([y[..., : self.targets], torch.full_like(y[..., self.targets :], self.unscored)], dim=-1)
        if self.gaps is not None:
            gone = self.gaps.unfold(0, self.base.lookback + self.base.horizon, 1).mT[index]
            y = y.masked_fill(gone[:, self.base.lookback :], float("nan"))
        if time_features is not None:
            time_features = shift_future_covariates(time_features, known=self.known, lookback=self.base.lookback)
        return Batch(x, y, time_features)

    @property
    def numbers(self) -> Int64[Tensor, "w"]:
        """The numbers that the windows have in `base`."""
        return torch.arange(len(self.base)) if self.chosen is None else self.chosen

    def only(self, index: Int64[np.ndarray, "k"]) -> "RoleWindows":
        """Those of these numbers."""
        return replace(self, chosen=self.numbers[torch.from_numpy(index.copy())])

    def complete(self) -> "RoleWindows":
        """Only the windows of whose truth nothing is missing, which every score can take."""
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


def with_roles(windows: Windows, roles: Roles, gaps: Bool[np.ndarray, "t n"] | None) -> RoleWindows:
    """Windows over all columns, in the order of `roles.columns`, with their known columns among the time_features."""
    channels = len(roles.channels)
    known = windows.series[:, channels:]
    calendar = [] if windows.time_features is None else [windows.time_features]
    time_features: Float32[Tensor, "t m"] | None = (
        torch.cat([*calendar, known], dim=1) if roles.future else windows.time_features
    )
    return RoleWindows(
        base=replace(windows, series=windows.series[:, :channels], time_features=time_features),
        targets=len(roles.targets),
        known=len(roles.future),
        gaps=None if gaps is None else torch.from_numpy(gaps[windows.rows.start : windows.rows.stop, :channels].copy()),
    )


class TargetsOnly(nn.Module):
    """A model seen by what it says of the targets: its forecast of the channels after them is 0."""

    def __init__(self, model: nn.Module, targets: int) -> None:
        super().__init__()
        self.model = model
        self.targets = targets

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        forecast: Float[Tensor, "b h n"] = self.model(x, time_features)
        return torch.cat([forecast[..., : self.targets], torch.zeros_like(forecast[..., self.targets :])], dim=-1)

    def training_loss(
        self,
        x: Float[Tensor, "b l n"],
        y: Float[Tensor, "b h n"],
        time_features: Float[Tensor, "b t m"] | None,
        loss: Loss,
    ) -> Float[Tensor, ""]:
        """The model's own way to a loss if it has one."""
        own = getattr(self.model, "training_loss", None)
        return loss(self.model(x, time_features), y) if own is None else own(x, y, time_features, loss)


def masked_loss(loss: Loss) -> Loss:
    """A loss of what is known: where the truth is NaN nothing is counted, and the mean is over the rest.

    Exact for losses that are means over cells. One of whole series, as FreDF's of spectra, sees an error of 0 there.
    """
    return partial(_loss_of_known, loss)


def _loss_of_known(loss: Loss, forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"]) -> Float[Tensor, ""]:
    known = ~truth.isnan()
    share = known.double().mean().item()
    if share == 0:
        return (forecast * 0).sum()
    zero = torch.zeros_like(truth)
    return loss(torch.where(known, forecast, zero), torch.where(known, truth, zero)) / share
