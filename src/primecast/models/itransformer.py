"""iTransformer: each channel's whole look-back window is one token, and attention runs across channels.

    tokens   = Linear(l -> d) of each normalized series; time features are series, hence tokens, too
    layers   = post-norm transformer blocks over the n + m tokens, then one more LayerNorm
    forecast = Linear(d -> h) of each channel's token, brought back to the level of the window

Instance normalization hides the level of a window from the model. norm="level" normalizes in the same way and tells the
model the level: the window's mean and log standard deviation enter each channel's token by a linear map, and a learned
multiple of the mean, one number per channel and step, is added to the forecast. Both start at zero. So a channel can
return to its long-run mean. `linear_skip` adds a linear map of the normalized window to the forecast, shared by all
channels and started at zero, so that the layers learn only what a linear forecast leaves.

No position, no channel identity: permuting the channels permutes the forecast, and no parameter knows n; unless
`channel_embeddings` adds a learned vector to each token, the plain way to let a model know its channels.
Liu et al., "iTransformer: Inverted Transformers Are Effective for Time Series Forecasting", ICLR 2024.

Parameters without a primer: (l+1) d + E [4 (d^2+d) + 2 d f + f + d + 4 d] + 2 d + (d+1) h.
Letters: b batch, l look-back, h horizon, n channels, m time features, d model width, f feed-forward width, E layers.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.nn.dropout import Dropout
from primecast.nn.layers import Block, WindowNorm
from primecast.nn.multi_head import MultiHeadAttention
from primecast.nn.primer import Primer, build_primer
from primecast.nn.primer_layers import PairFeatures


class ITransformer(nn.Module):
    """forward(x: (b, l, n), time_features: (b, l + h, m) or None) -> (b, h, n); it reads the past l time features.

    d_ff is d_model when None. norm: see layers.NORMS, and "level", above. mechanism, modulate, zero_output: see
    MultiHeadAttention.
    channel_embeddings: a vector for each token, time features included, learned from zero, added to its embedding.
    primer: None, a kind, a mapping of Primer arguments, a callable or a Primer; one primer serves all layers.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        d_model: int = 128,
        n_heads: int = 8,
        n_layers: int = 2,
        d_ff: int | None = None,
        dropout: float = 0.1,
        activation: str = "gelu",
        norm: str = "instance",
        linear_skip: bool = False,
        mechanism: str = "dot",
        modulate: str = "kv",
        zero_output: bool = False,
        channel_embeddings: bool = False,
        primer: str | Mapping[str, object] | PairFeatures | Primer | None = None,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.lookback = lookback
        self.n_time_features = n_time_features
        self.norm = WindowNorm("instance" if norm == "level" else norm, channels)
        self.embed = nn.Linear(lookback, d_model)
        self.vectors = nn.Parameter(torch.zeros(channels + n_time_features, d_model)) if channel_embeddings else None
        self.dropout = Dropout(dropout)
        attention: dict[str, Any] = {"dropout": dropout, "modulate": modulate, "zero_output": zero_output}
        self.blocks = nn.ModuleList(
            Block(
                MultiHeadAttention(d_model, n_heads, mechanism=mechanism, depth=depth, **attention),
                d_model,
                d_ff=d_ff or d_model,
                dropout=dropout,
                activation=activation,
            )
            for depth in range(n_layers)
        )
        self.norm_out = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, horizon)
        # Built last, so that everything else starts from the same random numbers with and without a primer.
        tokens = channels + n_time_features
        self.primer = build_primer(
            primer, length=lookback, d_model=d_model, n_heads=n_heads, tokens=tokens, layers=n_layers
        )
        self.level = _zeros(nn.Linear(2, d_model, bias=False)) if norm == "level" else None
        self.reversion = nn.Parameter(torch.zeros(horizon, channels)) if norm == "level" else None
        self.skip = _zeros(nn.Linear(lookback, horizon, bias=False)) if linear_skip else None

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        if x.shape[2] != self.channels:
            raise InputError(f"the model was made for {self.channels} channels, the windows have {x.shape[2]}")
        normal, restore = self.norm(x)
        series = normal.mT
        if time_features is not None and self.n_time_features:
            series = torch.cat([series, time_features[:, : self.lookback].mT], dim=1)
        prime = None if self.primer is None else self.primer(series, covariates=series.shape[1] - self.channels)

        tokens = self.embed(series)
        if self.vectors is not None:
            if len(self.vectors) != tokens.shape[1]:
                raise InputError(
                    f"the model was made for {self.n_time_features} calendar features, the windows came without"
                )
            tokens = tokens + self.vectors
        mean = x.mean(1, keepdim=True)
        if self.level is not None:
            std = ((x - mean).square().mean(1, keepdim=True) + 1e-5).sqrt()
            told = self.level(torch.cat([mean, std.log()], dim=1).mT)
            tokens = torch.cat([tokens[:, : self.channels] + told, tokens[:, self.channels :]], dim=1)
        z = self.dropout(tokens)
        for depth, block in enumerate(self.blocks):
            z = block(z, prime=None if prime is None else prime.layer(depth))
        forecast = self.head(self.norm_out(z[:, : self.channels]))
        if self.skip is not None:
            forecast = forecast + self.skip(normal.mT)
        restored = restore(forecast.mT)
        return restored if self.reversion is None else restored + self.reversion * mean


def _zeros(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    return layer
