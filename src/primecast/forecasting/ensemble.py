"""Several models as one: a weighted average of forecasts, with weights that the validation windows choose.

    forecast = sum_k w_k member_k(window)          w_k >= 0,   sum_k w_k = 1     for each channel

With e_k the errors of member k, the squared error of the average is w' G w with G_kl = mean(e_k e_l). The choice needs
nothing else of the forecasts than the matrix G. Members are added greedily, with replacement: each time the one that
lowers the error of the average most; the weight of a member is how often it was taken (Caruana et al., ICML 2004).
A member that looks best on the validation windows by chance would get all the weight. So the greedy weights are drawn
toward equal ones, the more so the fewer windows there are that share no row. These weights are the same for all
channels, but a channel leaves out the members that fail on it: networks on a meter that only rises, for instance.

Letters: b batch, l look-back, h horizon, n channels, m time features, w windows, k members.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from primecast.data.windows import Batch, WindowSource
from primecast.errors import InputError
from primecast.forecasting.arguments import Arguments
from primecast.nn.mechanisms import AttentionMap

ROUNDS = 100
"""Greedy additions: greedy weights are multiples of one hundredth."""
FEW = 10.0
"""Validation windows without a common row for which greedy and equal weights count alike; see docs/decisions.md."""
TOLERANCE = 0.25
"""By how much the validation error of a member may exceed that of the best one, as a fraction, and the member still
have a part in the equal weights; with few windows more."""
FAILED = 10.0
"""A member fails on a channel where its validation error is this many times that of the best; with few windows more."""
NEGLIGIBLE = 1e-5
"""Validation errors of a channel, relative to the variance of its training rows, that count as equal."""


class Ensemble(nn.Module):
    """forward(x: (b, l, n), time_features: (b, l + h, m) or None) -> (b, h, n): the weighted average of its members.

    channels: how many; the weights are (k, n). None: one weight for each member, (k,), as in folders saved before.
    """

    def __init__(self, members: Sequence[nn.Module], *, channels: int | None = None) -> None:
        super().__init__()
        if not members:
            raise InputError("an ensemble needs at least one member")
        self.members = nn.ModuleList(members)
        shape = (len(members),) if channels is None else (len(members), channels)
        self.register_buffer("weights", torch.full(shape, 1 / len(members)))
        self.weights: Tensor

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b w m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        weighted = zip(self.weights, self.members, strict=True)
        first, *others = (weight * member(x, time_features) for weight, member in weighted)
        return sum(others, start=first)

    def member_with_attention(self) -> nn.Module:
        """Return the member of the largest weight whose attention can be traced; the ensemble itself if none can."""
        for place in self.weights.reshape(len(self.members), -1).mean(1).argsort(descending=True).tolist():
            if any(isinstance(module, AttentionMap) for module in self.members[place].modules()):
                return self.members[place]
        return self


class LastSteps(nn.Module):
    """A model with a shorter look-back, called with longer windows: it reads their last steps."""

    def __init__(self, model: nn.Module, lookback: int) -> None:
        super().__init__()
        self.model = model
        self.lookback = lookback
        if hasattr(model, "solve"):
            self.solve = self._solve

    def _solve(self, train: WindowSource, val: WindowSource | None) -> None:
        shorter = (windows and LastStepsWindows(windows, self.lookback) for windows in (train, val))
        self.model.solve(*shorter)  # type: ignore[operator]

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b w m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        skipped = x.shape[1] - self.lookback
        forecast: Tensor = self.model(x[:, skipped:], None if time_features is None else time_features[:, skipped:])
        return forecast


@dataclass(frozen=True)
class LastStepsWindows:
    """Windows whose inputs are the last steps of longer ones, a `WindowSource`."""

    windows: WindowSource
    lookback: int

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        x, y, time_features = self.windows.batch(index)
        skipped = x.shape[1] - self.lookback
        return Batch(x[:, skipped:], y, None if time_features is None else time_features[:, skipped:])


def build_member(member: Arguments, *, lookback: int, channels: int, n_time_features: int) -> nn.Module:
    """Return the model of a member for windows of this look-back."""
    model = member.build_model(channels=channels, n_time_features=n_time_features)
    return model if member.lookback == lookback else LastSteps(model, member.lookback)


def build_forecast_model(
    arguments: Arguments,
    members: Sequence[Arguments],
    *,
    channels: int,
    n_time_features: int,
    weights_by_channel: bool,
) -> nn.Module:
    """Return the model of a Forecaster: one model, or the ensemble of these members with equal weights.

    weights_by_channel: whether the ensemble has a weight for each member and channel, or one for each member.
    """
    sizes = {"channels": channels, "n_time_features": n_time_features}
    if not members:
        return arguments.build_model(**sizes)
    built = [build_member(member, lookback=arguments.lookback, **sizes) for member in members]
    return Ensemble(built, channels=channels if weights_by_channel else None)


def parts_of(model: nn.Module) -> list[nn.Module]:
    """Return the members of an ensemble, or the one model there is."""
    return list(model.members) if isinstance(model, Ensemble) else [model]


def with_parts(model: nn.Module, parts: Sequence[nn.Module]) -> nn.Module:
    """Return the same forecast model made of other parts: an ensemble keeps its weights."""
    if not isinstance(model, Ensemble):
        return parts[0]
    other = Ensemble(parts)
    other.weights = model.weights.clone()
    return other.eval()


def retrained_places(model: nn.Module, *, refit: bool) -> list[int]:
    """Return which parts of a forecast model `fit` trains again on all rows: those in closed form, with `refit` all."""
    return [place for place, part in enumerate(parts_of(model)) if refit or hasattr(part, "solve")]


def error_products(
    forecasts: Sequence[Float[Tensor, "w h n"]], truth: Float[Tensor, "w h n"]
) -> Float64[np.ndarray, "k k"]:
    """Return G_kl = mean of e_k e_l over all cells whose truth is known."""
    known = ~truth.isnan()
    errors = torch.stack([(forecast - truth)[known].double() for forecast in forecasts])
    return (errors @ errors.T / errors.shape[1]).numpy()


def channel_errors(
    forecasts: Sequence[Float[Tensor, "w h n"]], truth: Float[Tensor, "w h n"]
) -> Float64[np.ndarray, "k n"]:
    """Return the mean squared error of each channel over its cells whose truth is known; NaN where none is."""
    return np.stack([(forecast - truth).double().square().nanmean((0, 1)).numpy() for forecast in forecasts])


def greedy_weights(
    products: Float64[np.ndarray, "k k"], *, windows: float = math.inf, rounds: int = ROUNDS
) -> Float64[np.ndarray, "k"]:
    """Return weights that sum to 1: greedy selection with replacement, drawn toward equal weights.

    products: see `error_products`; its diagonal holds the mean squared errors of the members.
    windows:  how many of the validation windows share no row: the fewer, the nearer to equal weights.
    """
    taken = np.zeros(len(products))
    for _ in range(rounds):
        # (t + 1_k)' G (t + 1_k), the squared error with member k added, up to a term and a factor that all k share.
        taken[int((2 * products @ taken + np.diag(products)).argmin())] += 1
    shrinkage = FEW / (FEW + windows)
    good = np.diag(products) <= (1 + TOLERANCE * (1 + FEW / windows)) * np.diag(products).min()
    return (1 - shrinkage) * taken / rounds + shrinkage * good / good.sum()


def channel_weights(
    weights: Float64[np.ndarray, "k"], errors: Float64[np.ndarray, "k n"], *, windows: float = math.inf
) -> Float64[np.ndarray, "k n"]:
    """Return the weights of the members for each channel; a member that fails on a channel has weight 0 there.

    weights: of the members, for all channels, see `greedy_weights`.
    errors:  validation MSE of each member on each channel, in scaled units; NaN for a channel without truth.
    windows: as in `greedy_weights`.
    """
    limits = FAILED * (1 + FEW / windows) * np.maximum(errors.min(axis=0), NEGLIGIBLE)
    kept = np.where(errors > limits, 0, weights[:, None])
    best = np.arange(len(errors))[:, None] == errors.argmin(axis=0)
    kept = np.where(kept.any(axis=0), kept, best)
    # Only channels that leave out a member are divided by their sum: rounding would change the last bit of the others.
    return np.where((errors > limits).any(axis=0), kept / kept.sum(axis=0), kept)
