"""DLinear: two linear maps from the past of a channel to its future, one for its trend and one for its season.

    trend    = moving average of x over 25 steps, ends padded by repeating
    season   = x - trend
    forecast = W_season season + W_trend trend + both biases

All channels share the two maps, and no channel sees another: the reference that every mixing of channels must beat.
Both W start at 1/l everywhere: the first forecast is the mean of the window. So they do in the code that the authors
first published and in Time-Series-Library; the authors' later code keeps those lines as a comment and starts from
torch's default.
Zeng et al., "Are Transformers Effective for Time Series Forecasting?", AAAI 2023.

Parameters: 2 (l+1) h; (l+1) h without decomposition.
Letters: b batch, l look-back, h horizon, n channels, m time features.
"""

from jaxtyping import Float
from torch import Tensor, nn

from primecast.nn.layers import WindowNorm, moving_average


class DLinear(nn.Module):
    """forward(x: (b, l, n), time_features) -> (b, h, n); time features are accepted and not used.

    kernel: steps of the moving average, an odd number. None: no decomposition, one linear map of the window as it is;
            with norm "instance" that is RLinear, the linear forecaster inside LightMTS.
    norm:   see layers.NORMS; "none" is DLinear as published.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        kernel: int | None = 25,
        norm: str = "none",
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.norm = WindowNorm(norm, channels)
        self.trend = _averaging(lookback, horizon)
        self.season = None if kernel is None else _averaging(lookback, horizon)

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        normal, restore = self.norm(x)
        if self.kernel is None or self.season is None:
            return restore(self.trend(normal.mT).mT)
        trend = moving_average(normal, self.kernel)
        return restore((self.season((normal - trend).mT) + self.trend(trend.mT)).mT)


def _averaging(lookback: int, horizon: int) -> nn.Linear:
    """Return a linear map that starts as the mean of its input, but for its bias."""
    layer = nn.Linear(lookback, horizon)
    nn.init.constant_(layer.weight, 1 / lookback)
    return layer
