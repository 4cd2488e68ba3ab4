"""A reconstruction of LagTS: lags between channels are learned by a network over pairs, guided by a loss of their own.

This is NOT the published system. LagTS (Liu et al., "LagTS: Toward adaptive lag relationship modeling for multivariate
time series forecasting", ICASSP 2025) has no public code, and its shapes, loss and settings are not known to us. What
is known: an MLP extracts relations from pairs of channels; a loss of its own guides it towards lagged
correlations, so that estimating leads is part of learning; a channel has one representation per layer, the same for
all channels that attend to it. This file builds the simplest model with those properties, and its scores are its own.

    pair_ij      = GELU(A x_i + B x_j + c)                      a two-layer MLP over [x_i, x_j]
    P_ij(t)      = softmax over t = 0 .. T of  Linear(pair_ij)  by how many steps j leads i
    a_ij         = softmax over j of  Linear(pair_ij),  times  tanh of  Linear(pair_ij);  one of each per layer
    aligned_i(s) = sum_j a_ij sum_t P_ij(t) x_j(s - t),  s = 0 .. l + T - 1,  x_j = 0 outside of the window
    layer        = z_i <- LayerNorm(z_i + Linear(aligned_i)), then two linear layers on each token, as in iTransformer
    forecast     = Linear(d -> h) of each channel's z, which began as Linear(l -> d) of its window

s >= l is the future: what leaders have done and followers will do. Beside the forecast's loss, training minimizes
the cross-entropy of P_ij with softmax over t of |R_ij(t)| / temperature, R_ij(t) = (1/l) sum_s x_i(s) x_j(s - t).

Nothing of size n x n x l is built: the sum over j and t is one product with the n T shifted windows.
Letters: b batch, l look-back, h horizon, n channels, m time features, T longest lag, r hidden units of a pair, d model
width, f feed-forward width, E layers.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.nn.dropout import Dropout
from primecast.nn.layers import WindowNorm
from primecast.nn.losses import Loss
from primecast.nn.pair_features import correlate_shifted

MOST_NUMBERS = 1 << 28
"""In one tensor of one window: a gigabyte."""


class LagTSReconstruction(nn.Module):
    """forward(x: (b, l, n), time_features) -> (b, h, n); time features are accepted, not used. A reconstruction.

    max_lag:     T; a quarter of the look-back when None.
    hidden:      units of the pair network.
    guidance:    weight of the loss that guides the lags. temperature: how sharply it picks the strongest correlation.
    d_ff is d_model when None. norm: see layers.NORMS; the lags are found in the normalized windows.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        max_lag: int | None = None,
        hidden: int = 32,
        guidance: float = 0.1,
        temperature: float = 0.1,
        d_model: int = 128,
        n_layers: int = 2,
        d_ff: int | None = None,
        dropout: float = 0.1,
        norm: str = "instance",
    ) -> None:
        super().__init__()
        max_lag = lookback // 4 if max_lag is None else max_lag
        if not 0 <= max_lag < lookback:
            raise InputError(f"max_lag {max_lag} must be at least 0 and below the look-back {lookback}")
        if guidance < 0 or not temperature > 0:
            raise InputError(f"guidance {guidance} must not be negative, and temperature {temperature} be above 0")
        largest = channels * max(channels * max(hidden, max_lag), (max_lag + 1) * (lookback + max_lag))
        if largest > MOST_NUMBERS:
            raise InputError(
                f"{channels} channels with look-back {lookback} and max_lag {max_lag} make {largest} numbers of each "
                f"window, and at most {MOST_NUMBERS} are computed: take a smaller max_lag or fewer channels"
            )
        self.max_lag = max_lag
        self.guidance = guidance
        self.temperature = temperature
        self.norm = WindowNorm(norm, channels)
        self.pairs = PairLags(lookback, lags=max_lag + 1, hidden=hidden, layers=n_layers)
        self.embed = nn.Linear(lookback, d_model)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            LagLayer(lookback + max_lag, d_model, d_ff=d_ff or d_model, dropout=dropout) for _ in range(n_layers)
        )
        self.norm_out = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, horizon)

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        return self._run(x)[0]

    def training_loss(
        self,
        x: Float[Tensor, "b l n"],
        y: Float[Tensor, "b h n"],
        time_features: Float[Tensor, "b t m"] | None,
        loss: Loss,
    ) -> Float[Tensor, ""]:
        """Return the loss of the forecast plus `guidance` times that of the lags."""
        forecast, lags, correlation = self._run(x)
        target = (correlation.abs() / self.temperature).softmax(-1)
        return loss(forecast, y) - self.guidance * (target * lags).sum(-1).mean()

    def _run(
        self, x: Float[Tensor, "b l n"]
    ) -> tuple[Float[Tensor, "b h n"], Float[Tensor, "b n n t"], Float[Tensor, "b n n t"]]:
        """Return the forecast, log P_ij(t), and the R_ij(t) that guides it."""
        normal, restore = self.norm(x)
        series = normal.mT
        shifted = shift(series, self.max_lag)
        lags, weights = self.pairs(series)

        z = self.dropout(self.embed(series))
        for depth, layer in enumerate(self.layers):
            each = (weights[..., depth, None] * lags.exp()).flatten(-2)  # b n (n t): a_ij P_ij(t)
            z = layer(z, each @ shifted.flatten(1, 2))
        forecast = restore(self.head(self.norm_out(z)).mT)
        # R_ij(t) = (1/l) sum_s x_i(s) x_j(s - t): large at t when j leads i by t steps. No gradient.
        correlation = correlate_shifted(series.detach(), shifted[..., : series.shape[-1]].detach())
        return forecast, lags, correlation


class PairLags(nn.Module):
    """Log of the distribution of the lag between two windows, and the weight of the pair in each layer.

    A first layer over [x_i, x_j] is the sum of a layer over x_i and one over x_j: the pair itself is never built.
    """

    def __init__(self, lookback: int, *, lags: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.follower = nn.Linear(lookback, hidden)
        self.leader = nn.Linear(lookback, hidden, bias=False)
        self.lags = nn.Linear(hidden, lags)
        self.share = nn.Linear(hidden, layers)
        self.sign = nn.Linear(hidden, layers)

    def forward(self, series: Float[Tensor, "b n l"]) -> tuple[Float[Tensor, "b n n t"], Float[Tensor, "b n n E"]]:
        pair = F.gelu(self.follower(series)[:, :, None] + self.leader(series)[:, None])  # b i j r
        weights = self.share(pair).softmax(2) * self.sign(pair).tanh()
        return self.lags(pair).log_softmax(-1), weights


class LagLayer(nn.Module):
    """A post-norm layer that adds the aligned leaders of a channel, then two linear layers on each token."""

    def __init__(self, length: int, d_model: int, *, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Linear(length, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, z: Float[Tensor, "b n d"], aligned: Float[Tensor, "b n s"]) -> Float[Tensor, "b n d"]:
        z = self.norm1(z + self.dropout(self.embed(aligned)))
        return self.norm2(z + self.dropout(self.down(self.dropout(F.gelu(self.up(z))))))


def shift(series: Float[Tensor, "b n l"], max_lag: int) -> Float[Tensor, "b n t s"]:
    """Return x_j(s - t) for t = 0 .. T and s = 0 .. l + T - 1; 0 outside of the window."""
    length = series.shape[-1] + max_lag
    return F.pad(series, (max_lag, max_lag)).unfold(-1, length, 1).flip(-2)
