"""Columns by role, and future covariates as time features.

    target        model input, forecast, scored
    past          model input only: a channel like the targets that is not forecast
    future        known beforehand (a holiday, a planned set point): joins the time features

Models read time features over the look-back alone. So a covariate c that is known up to the end of the horizon is given
to them several times, each time shifted: c(t), c(t + l), ... and last c(t + h), until every future value lies within
the look-back. Beyond the horizon the last known value is repeated.

Letters: b windows in a batch, w rows of a window, l look-back, h horizon, m time features.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from primecast.errors import InputError, unknown


@dataclass(frozen=True)
class Roles:
    """The columns of a frame by role; `columns` is their order in windows."""

    targets: tuple[str, ...]
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Collection[str], *, past: Sequence[str], future: Sequence[str]) -> "Roles":
        past, future = (
            [column for name in names for column in cls._columns_of(name, columns, role)]
            for role, names in (("past", past), ("future", future))
        )
        targets = tuple(name for name in columns if name not in past and name not in future)
        if not targets:
            raise InputError("all columns are covariates: nothing is left to forecast")
        return cls(targets, tuple(past), tuple(future))

    @staticmethod
    def _columns_of(name: str, columns: Collection[str], role: str) -> list[str]:
        """Return the column of a covariate, or those that it became: "wind=N" of text, "price | A" of a series."""
        parts = (f"{name}=", f"{name} | ")
        found = [name] if name in columns else [column for column in columns if column.startswith(parts)]
        if not found:
            raise unknown(f"{role} covariate", name, columns)
        return found

    @property
    def channels(self) -> tuple[str, ...]:
        return self.targets + self.past

    @property
    def columns(self) -> tuple[str, ...]:
        return self.targets + self.past + self.future


def shifts(*, lookback: int, horizon: int) -> list[int]:
    """Return the shifts at which a future covariate is given to a model: 0, l, 2 l, ... and last h.

    >>> shifts(lookback=96, horizon=24), shifts(lookback=96, horizon=200)
    ([0, 24], [0, 96, 192, 200])
    """
    return [*range(0, horizon, lookback), horizon]


def shift_future_covariates(
    time_features: Float[Tensor, "b w m"], *, known: int, lookback: int
) -> Float[Tensor, "b w time_features"]:
    """Return time features of whole windows with the last `known` columns, the future covariates, once per shift."""
    if not known:
        return time_features
    steps = time_features.shape[1]
    time = torch.arange(steps, device=time_features.device)
    covariates = time_features[..., -known:]
    shifted = [
        covariates[:, (time + shift).clamp(max=steps - 1)]
        for shift in shifts(lookback=lookback, horizon=steps - lookback)
    ]
    return torch.cat([time_features[..., :-known], *shifted], dim=-1)
