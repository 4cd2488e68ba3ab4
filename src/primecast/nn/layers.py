"""Layers that several models share.

Letters: b batch, l look-back, h horizon, n channels or tokens, d model width.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError, check_known
from primecast.nn.dropout import Dropout

NORMS = {
    "instance": "each window to mean 0 and standard deviation 1, undone on the forecast; no parameters",
    "revin": "the same with a learned scale and shift per channel, both undone on the forecast (Kim et al. 2022)",
    "revin-printed": "the same as the prime attention paper prints it: scale and shift are not undone",
    "shrink": "(x - w mean) / std^u, with w and u in (0, 1) learned per channel, undone on the forecast",
    "none": "windows as they are",
}


SHRINK_SPEED = 10.0
"""Factor on the learned weights of norm "shrink" inside their sigmoid."""


class WindowNorm(nn.Module):
    """Normalize a window by its own mean and standard deviation, and undo it on the forecast.

    `forward` returns the normalized window and the function that undoes it on a forecast. The standard deviation is
    sqrt(var + 1e-5), with var over the look-back (divided by l), as in the backbones' public code.
    """

    def __init__(self, norm: str, channels: int) -> None:
        super().__init__()
        check_known("norm", norm, NORMS)
        self.norm = norm
        if norm == "shrink":
            # They start at sigmoid(3) = 0.95, near instance normalization. Adam's steps are as large as the learning
            # rate, and the factor lets them reach any value within an epoch.
            self.weights = nn.Parameter(torch.full((2, channels), 3.0 / SHRINK_SPEED))
        if norm.startswith("revin"):
            self.scale = nn.Parameter(torch.ones(channels))
            self.shift = nn.Parameter(torch.zeros(channels))

    def forward(
        self, x: Float[Tensor, "b l n"]
    ) -> tuple[Float[Tensor, "b l n"], Callable[[Float[Tensor, "b h n"]], Float[Tensor, "b h n"]]]:
        if self.norm == "none":
            return x, lambda y: y
        mean = x.mean(1, keepdim=True).detach()
        centered = x - mean
        std = (centered.square().mean(1, keepdim=True) + 1e-5).sqrt()
        normal = centered / std
        if self.norm == "instance":
            return normal, lambda y: y * std + mean
        if self.norm == "shrink":
            of_mean, of_std = (SHRINK_SPEED * self.weights).sigmoid()
            level, scale = of_mean * mean, std**of_std
            return (x - level) / scale, lambda y: y * scale + level
        normal = normal * self.scale + self.shift
        if self.norm == "revin-printed":
            return normal, lambda y: y * std + mean
        # A scale that training drives to 0 must not divide the forecast by 0.
        return normal, lambda y: (y - self.shift) / (self.scale + 1e-10) * std + mean


LARGEST_MATRIX = 1 << 24
"""Entries of the matrix of a moving average, at most: of 4096 steps."""


def moving_average(x: Float[Tensor, "b t n"], kernel: int) -> Float[Tensor, "b t n"]:
    """Return the mean over `kernel` steps around each step, an odd number; both ends are padded by their last value.

    DLinear and Autoformer take it as the trend of a series, with 25 steps, and the rest as the season. Computed as a
    product with a t x t matrix, which at the lengths of look-backs takes a fifth of the time of a pooling; where that
    matrix would be large, as a pooling.
    """
    if kernel < 1 or kernel % 2 == 0:
        raise InputError(f"kernel is {kernel}; a moving average takes an odd number of steps")
    side, steps = kernel // 2, x.shape[1]
    if steps * max(steps, kernel) > LARGEST_MATRIX:
        return F.avg_pool1d(F.pad(x.mT, (side, side), mode="replicate"), kernel, stride=1).mT
    around = torch.arange(steps, device=x.device)[:, None] + torch.arange(-side, side + 1, device=x.device)
    fractions = torch.full(around.shape, 1 / kernel, dtype=x.dtype, device=x.device)
    means = torch.zeros(steps, steps, dtype=x.dtype, device=x.device)
    return means.scatter_add(1, around.clamp(0, steps - 1), fractions) @ x


FEED_FORWARD_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class Block(nn.Module):
    """A post-norm transformer layer: attention, then two linear layers on each token.

    attention: any module of tokens; it receives the keyword arguments of `forward`.
    norm:      makes the two norms from the width of the tokens.
    """

    def __init__(
        self,
        attention: nn.Module,
        d_model: int,
        *,
        d_ff: int,
        dropout: float,
        activation: str = "gelu",
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        check_known("activation", activation, FEED_FORWARD_ACTIVATIONS)
        self.attention = attention
        self.norm1 = norm(d_model)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.norm2 = norm(d_model)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, z: Float[Tensor, "*tokens d"], **args: Any) -> Float[Tensor, "*tokens d"]:
        z = self.norm1(z + self.dropout(self.attention(z, **args)))
        wide = self.dropout(FEED_FORWARD_ACTIVATIONS[self.activation](self.up(z)))
        return self.norm2(z + self.dropout(self.down(wide)))
