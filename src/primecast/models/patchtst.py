"""PatchTST: each channel alone, cut into overlapping patches, and attention among the patches of that channel.

    patches  = 16 steps each, one every 8 steps, of the normalized window, its last value repeated 8 times at the end
    tokens   = Linear(16 -> d) of each patch + a learned vector for its place
    layers   = post-norm transformer blocks over the T = (l - 16) // 8 + 2 patches of a channel, with batch norms
    forecast = Linear(T d -> h) of all patches of the channel at once, brought back to the level of the window

Channels are samples of one and the same model: no channel sees another.
Nie et al., "A Time Series is Worth 64 Words: Long-term Forecasting with Transformers", ICLR 2023. As in the public
code, attention weights have no dropout, and the output of attention is dropped twice: after its projection and before
the sum. The public code also adds the attention scores of a layer to those of the next; that is left out here.

Parameters: (p+1) d + T d + E [4 (d^2+d) + 2 d f + f + d + 4 d] + (T d + 1) h.
Letters: b batch, l look-back, h horizon, n channels, m time features, p steps of a patch, T patches, d model width,
f feed-forward width, E layers.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.nn.dropout import Dropout
from primecast.nn.layers import Block, WindowNorm
from primecast.nn.multi_head import MultiHeadAttention


class PatchTST(nn.Module):
    """forward(x: (b, l, n), time_features) -> (b, h, n); time features are accepted and not used.

    patch, stride: steps of a patch, and from one to the next. norm: see layers.NORMS.

    The defaults for width, heads and dropout are those of the public scripts for all but the smallest data sets, where
    they are 16, 4 and 0.3 with d_ff 128 (see presets).
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        patch: int = 16,
        stride: int = 8,
        d_model: int = 128,
        n_heads: int = 16,
        n_layers: int = 3,
        d_ff: int = 256,
        dropout: float = 0.2,
        activation: str = "gelu",
        norm: str = "instance",
    ) -> None:
        super().__init__()
        if not 1 <= stride <= patch <= lookback:
            raise InputError(
                f"patches of {patch} steps every {stride} steps do not cover a look-back of {lookback}: "
                "stride <= patch <= lookback must hold"
            )
        self.patch = patch
        self.stride = stride
        self.norm = WindowNorm(norm, channels)
        self.embed = nn.Linear(patch, d_model)
        places = (lookback - patch) // stride + 2
        self.place = nn.Parameter(torch.empty(places, d_model).uniform_(-0.02, 0.02))
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(
                DroppedAttention(d_model, n_heads, output_dropout=dropout),
                d_model,
                d_ff=d_ff,
                dropout=dropout,
                activation=activation,
                norm=TokenBatchNorm,
            )
            for _ in range(n_layers)
        )
        self.head = nn.Linear(places * d_model, horizon)

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        normal, restore = self.norm(x)
        z = self.embed(patches(normal.mT, patch=self.patch, stride=self.stride)) + self.place  # b n T d
        z = self.dropout(z).flatten(0, 1)
        for block in self.blocks:
            z = block(z)
        forecast = self.head(z.flatten(1)).unflatten(0, (x.shape[0], x.shape[2]))
        return restore(forecast.mT)


class DroppedAttention(MultiHeadAttention):
    """Attention whose output is dropped, in training only; its weights are not."""

    def __init__(self, d_model: int, n_heads: int, *, output_dropout: float) -> None:
        super().__init__(d_model, n_heads)
        self.output_dropout = Dropout(output_dropout)

    def forward(self, x: Float[Tensor, "b i d"], *terms: Any, **named: Any) -> Float[Tensor, "b i d"]:
        dropped: Float[Tensor, "b i d"] = self.output_dropout(super().forward(x, *terms, **named))
        return dropped


def patches(series: Float[Tensor, "b n l"], *, patch: int, stride: int) -> Float[Tensor, "b n T p"]:
    """Return overlapping pieces of a series whose last value is repeated `stride` times at the end."""
    return F.pad(series, (0, stride), mode="replicate").unfold(-1, patch, stride)


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch normalization of tokens: each of the d features over all tokens of the batch."""

    def forward(self, z: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return super().forward(z.flatten(0, 1)).view_as(z)
