"""The forecast to beat: what happened one season ago happens again.

Letters: b batch, l look-back, h horizon, n channels.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError


class SeasonalNaive(nn.Module):
    """forward(x: (b, l, n), time_features) -> (b, h, n): the last `season` steps of the look-back, repeated.

    It has no parameters, and time features are accepted and not used.
    """

    def __init__(
        self, *, lookback: int, horizon: int, channels: int, n_time_features: int = 0, season: int = 1
    ) -> None:
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

    def solve(self, train: object, val: object) -> None:
        """Do nothing: with it, `fit` scores the validation windows and takes no steps."""
