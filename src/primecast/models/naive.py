"""The forecast to beat: what happened one season ago happens again.

Letters: b batch, l look-back, h horizon, n channels.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError


class SeasonalNaive(nn.Module):
    """Repeat the last `season` steps of the look-back to the horizon. It has no parameters and is not trained."""

    def __init__(self, *, lookback: int, horizon: int, season: int) -> None:
        super().__init__()
        if not 1 <= season <= lookback:
            raise InputError(f"season {season} must be at least 1 and at most the look-back {lookback}")
        self.season = season
        self.horizon = horizon

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        steps = torch.arange(self.horizon, device=x.device) % self.season
        return x[:, x.shape[1] - self.season + steps]
