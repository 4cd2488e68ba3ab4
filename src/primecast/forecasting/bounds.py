"""Channels that cannot be negative: all of their known values are 0 or more, so their forecasts are, too.

Letters: b batch, l look-back, h horizon, n channels, k targets, m time features.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from primecast.data.windows import Scaler

BOUNDS = ("auto", None)
"""Which forecasts and bounds of intervals are kept from below 0: those of channels that never were, or none."""


def find_nonnegative(values: Float64[np.ndarray, "t k"], bounds: str | None) -> Bool[np.ndarray, "k"]:
    """Return the channels without a value below 0; NaN is unknown. None with bounds None."""
    found = ~(values < 0).any(axis=0)
    return np.asarray(found if bounds else np.zeros_like(found))


class AtLeast(nn.Module):
    """A model whose forecasts are raised to a least value of each channel, in its scaled units."""

    least: Tensor

    def __init__(self, model: nn.Module, least: Float[Tensor, "n"]) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("least", least)

    @classmethod
    def zero(cls, model: nn.Module, scaler: Scaler, nonnegative: Bool[np.ndarray, "k"]) -> nn.Module:
        """Return a model whose forecasts of these targets, the first columns, are 0 at least in original units."""
        if not nonnegative.any():
            return model
        least = np.full(len(scaler.mean), -np.inf)
        zero = scaler.transform(np.zeros((1, len(scaler.mean))))[0]
        least[: len(nonnegative)][nonnegative] = zero[: len(nonnegative)][nonnegative]
        return cls(model, torch.tensor(least, dtype=torch.float32)).eval()

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        forecast: Float[Tensor, "b h n"] = self.model(x, time_features)
        return torch.maximum(forecast, self.least[: forecast.shape[-1]].to(forecast))
