"""Timer-XL: patches of all channels are tokens; each attends to all patches up to its own time and predicts the next.

    tokens   = Linear(p -> d) of each patch of p steps; patch i of channel c is token c t + i
    layers   = post-norm transformer blocks with time attention over the n t tokens, then one more LayerNorm
    forecast = Linear(d -> p) of each token: the patch after its own, brought back to the level of the window; the
               forecast joins the window, which drops its oldest patch, until the horizon is reached ("rolling").
               Or Linear(d -> s) of each channel's last token: the whole horizon at once ("direct")

Time attention: query patch i of channel m attends to key patch j of channel n if j <= i; per head

    score = ( q . R(i - j) k  +  u [m = n]  +  v [m != n] ) / sqrt(size)

R rotates by the time between the patches, u and v are two learned numbers of each head and layer. The public code
rotates by the number of the token instead, which depends on the order of the channels: `rotary="flattened"`.
Liu et al., "Timer-XL: Long-Context Transformers for Unified Time Series Forecasting", ICLR 2025.

Primed, every pair of channels has a primer, applied to keys before the rotation. At one patch it is that of
iTransformer. At more, a query of patch i must not depend on later steps: its features are those of the steps up to
the end of patch i, repeated backwards to the length of the look-back (`known_until`), so that one primer of one
length serves all patches, and the last patch, from which the forecast is made, has the features of the whole window.

Instance normalization, as in the public code, uses mean and std of the whole window: through these two numbers
early patches depend on later ones in training. The forecast is made from the last patch, which has no later ones.

Parameters without a primer: (p+1) d + E [4 (d^2+d) + 2 d f + f + d + 4 d + 2 h] + 2 d + (d+1) p; direct: (d+1) s.
Letters: b batch, l look-back, s horizon, n channels, p steps of a patch, t patches, x tokens (n t), d model width,
f feed-forward width, E layers, h heads, g 1 or h, m hidden units of a head's primer.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from primecast.errors import InputError, check_known
from primecast.nn.attention import Prime
from primecast.nn.checks import PositionFn
from primecast.nn.layers import Block, WindowNorm
from primecast.nn.losses import Loss
from primecast.nn.multi_head import MultiHeadAttention
from primecast.nn.primer import Primer, build_primer
from primecast.nn.primer_layers import PairFeatures

ROTARY = {
    "time": "by the number of the patch, as in the paper: the order of the channels does not matter",
    "flattened": "by the number of the token, as in the public code: the order of the channels matters",
}
HEADS = {
    "rolling": "every token predicts the patch after its own; forecasts are rolled on to the horizon",
    "direct": "the last token of each channel predicts the whole horizon",
}
TIME_MECHANISMS = ("dot", "differential", "gated")
"""Mechanisms of attention that support mask, bias and rotation; selective and directional take no mask."""


# ---------------------------------------------------------------- time attention: mask, rotation, bias


def causal_mask(channels: int, patches: int) -> Bool[Tensor, "x x"]:
    """Return True where patch i of any channel may attend to patch j of any channel: j <= i."""
    return torch.ones(patches, patches, dtype=torch.bool).tril().repeat(channels, channels)


def rotation(index: Float[Tensor, "x"], size: int, *, base: float = 10000.0) -> PositionFn:
    """Rotate neighbouring dimensions 2 r and 2 r + 1 of the first half of a head by index * base^(-2 r / width).

    The product of a query and a key so turned depends on their indices by the difference only. width is the half of
    the head's size, or the even number below it.
    """
    width = size // 4 * 2
    rates = base ** (-torch.arange(0, width, 2).to(index) / max(width, 1))
    angles = index[:, None] * rates
    cos, sin = angles.cos(), angles.sin()

    def turn(z: Float[Tensor, "*b x k"]) -> Float[Tensor, "*b x k"]:
        even, odd = z[..., 0:width:2], z[..., 1:width:2]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
        return torch.cat([turned, z[..., width:]], dim=-1)

    return turn


class ChannelBias(nn.Module):
    """A bias of scaled scores: u / sqrt(size) within a channel, v / sqrt(size) between channels, per head."""

    def __init__(self, n_heads: int, *, size: int) -> None:
        super().__init__()
        self.same = nn.Parameter(torch.randn(n_heads))
        self.other = nn.Parameter(torch.randn(n_heads))
        self.size = size

    def forward(self, channel: Int64[Tensor, "x"]) -> Float[Tensor, "1 h x x"]:
        same = channel[:, None] == channel
        bias = torch.where(same, self.same[:, None, None], self.other[:, None, None])
        return bias[None] / math.sqrt(self.size)


# ---------------------------------------------------------------- priming without look-ahead


def known_until(series: Float[Tensor, "b n l"], patch: int) -> Float[Tensor, "b t n l"]:
    """Return for each patch the windows up to its end, the newest step last.

    The known steps are repeated backwards to the full length: a season that fits the patch looks the same at every
    patch, and circular lags keep their meaning. The last patch has the windows as they are.
    """
    length = series.shape[-1]
    known = torch.arange(patch, length + 1, patch, device=series.device)[:, None]
    ago = torch.arange(length, device=series.device).flip(0)
    return series[:, :, known - 1 - ago % known].transpose(1, 2)


def over_patches(prime: Prime, patches: int) -> Prime:
    """Return primers of channel pairs at each query patch, (b t) in the batch, laid out over all pairs of tokens."""
    at_patch = prime.phi.unflatten(0, (-1, patches)).permute(0, 2, 3, 4, 1, 5)  # b g m n t n
    phi = at_patch[..., None].expand(*at_patch.shape, patches).flatten(5).flatten(3, 4)
    pairs = prime.pairs
    if pairs is not None:
        pairs = pairs.repeat_interleave(patches, 0).repeat_interleave(patches, 1)
    return replace(prime, phi=phi, pairs=pairs)


# ---------------------------------------------------------------- the model


class TimerXL(nn.Module):
    """forward(x: (b, l, n), time_features: ignored) -> (b, s, n), in training and evaluation alike.

    patch:  steps of a patch; it must divide the look-back. Without a primer the weights depend on neither look-back
            nor (rolling) horizon, and windows of any number of patches can be given.
    n_time_features: accepted and ignored: Timer-XL has no tokens of time features.
    d_ff:   4 d_model when None. norm: see layers.NORMS; at each roll the window is normalized again.
    rotary: a name in ROTARY. head: a name in HEADS. mechanism: a name in TIME_MECHANISMS.
    modulate, zero_output, primer: as in iTransformer; a primer is one of pairs of channels, and so are the pairs it
            exempts (prime_self, sparsity).

    Published sizes and learning rates of each data set are in presets.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        patch: int = 96,
        d_model: int = 128,
        n_heads: int = 8,
        n_layers: int = 2,
        d_ff: int | None = None,
        dropout: float = 0.1,
        activation: str = "relu",
        norm: str = "instance",
        rotary: str = "time",
        head: str = "rolling",
        mechanism: str = "dot",
        modulate: str = "kv",
        zero_output: bool = False,
        primer: str | Mapping[str, object] | PairFeatures | Primer | None = None,
    ) -> None:
        super().__init__()
        if patch < 1 or lookback % patch:
            raise InputError(f"lookback {lookback} is not a multiple of patch {patch}; give a patch that divides it")
        check_known("rotary", rotary, ROTARY)
        check_known("head", head, HEADS)
        check_known("mechanism of timer_xl", mechanism, TIME_MECHANISMS)
        self.horizon = horizon
        self.patch = patch
        self.rotary = rotary
        self.rolling = head == "rolling"
        self.norm = WindowNorm(norm, channels)
        self.embed = nn.Linear(patch, d_model)
        attention: dict[str, Any] = {"dropout": dropout, "modulate": modulate, "zero_output": zero_output}
        self.blocks = nn.ModuleList(
            Block(
                MultiHeadAttention(d_model, n_heads, mechanism=mechanism, depth=depth, **attention),
                d_model,
                d_ff=d_ff or 4 * d_model,
                dropout=dropout,
                activation=activation,
            )
            for depth in range(n_layers)
        )
        self.size = d_model // n_heads
        self.biases = nn.ModuleList(ChannelBias(n_heads, size=self.size) for _ in range(n_layers))
        self.norm_out = nn.LayerNorm(d_model)
        self.step = patch if self.rolling else horizon
        self.head = nn.Linear(d_model, self.step)
        # Built last, so that everything else starts from the same random numbers with and without a primer.
        self.primer = build_primer(
            primer, length=lookback, d_model=d_model, n_heads=n_heads, tokens=channels, layers=n_layers
        )

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b w m"] | None = None
    ) -> Float[Tensor, "b s n"]:
        window, steps = x, []
        for _ in range(0, self.horizon, self.step):
            z, restore = self._encode(window)
            steps.append(restore(self.head(z[:, :, -1]).mT))
            window = torch.cat([window[:, self.step :], steps[-1]], dim=1)
        return torch.cat(steps, dim=1)[:, : self.horizon]

    def next_patches(self, x: Float[Tensor, "b l n"]) -> Float[Tensor, "b l n"]:
        """Return what the tokens predict, patch after patch: steps p to p + l, counted from the window's first."""
        z, restore = self._encode(x)
        return restore(self.head(z).flatten(2).mT)

    def training_loss(
        self,
        x: Float[Tensor, "b l n"],
        y: Float[Tensor, "b s n"],
        time_features: Float[Tensor, "b w m"] | None,
        loss: Loss,
    ) -> Float[Tensor, ""]:
        """Return the loss of every token's next patch, given the true past (rolling), or of the forecast (direct).

        The patch after the last is known as far as y reaches: with a horizon shorter than a patch only its first
        steps count. The loss gets one patch at a time, so that a spectral loss transforms the output of one token.
        """
        if not self.rolling:
            return loss(self(x, time_features), y)
        truth = torch.cat([x, y], dim=1)[:, self.patch : self.patch + x.shape[1]]
        patches = zip(self.next_patches(x).split(self.patch, 1), truth.split(self.patch, 1), strict=True)
        losses = [loss(y_hat[:, : true.shape[1]], true) * (true.shape[1] / truth.shape[1]) for y_hat, true in patches]
        return torch.stack(losses).sum()

    def _encode(
        self, x: Float[Tensor, "b l n"]
    ) -> tuple[Float[Tensor, "b n t d"], Callable[[Float[Tensor, "b w n"]], Float[Tensor, "b w n"]]]:
        """Return the tokens of a window after all layers, and the function that restores its level."""
        channels, patches = x.shape[2], x.shape[1] // self.patch
        if x.shape[1] != patches * self.patch or not patches:
            raise InputError(f"windows of {x.shape[1]} steps cannot be cut into patches of {self.patch}")
        normal, restore = self.norm(x)
        series = normal.mT
        prime = None
        if self.primer is not None:
            known = known_until(series, self.patch).flatten(0, 1)
            prime = over_patches(self.primer(known).for_batch(known.shape[0]), patches)

        z = self.embed(series.unflatten(2, (patches, self.patch)).flatten(1, 2))
        token = torch.arange(channels * patches, device=x.device)
        mask = causal_mask(channels, patches).to(x.device)[None, None] if patches > 1 else None
        place = token if self.rotary == "flattened" else token % patches
        position = rotation(place.to(z.dtype), self.size) if patches > 1 or self.rotary == "flattened" else None
        for depth, (block, bias) in enumerate(zip(self.blocks, self.biases, strict=True)):
            z = block(
                z,
                prime=None if prime is None else prime.layer(depth),
                mask=mask,
                bias=bias(token // patches),
                position=position,
            )
        return self.norm_out(z).unflatten(1, (channels, patches)), restore
