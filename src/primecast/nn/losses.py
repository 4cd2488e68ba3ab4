"""Training losses. Every loss is `loss(forecast, truth) -> scalar` and refuses to broadcast.

Letters: b batch, h horizon, n channels.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from primecast.errors import InputError, check_known
from primecast.schema import check, checked, rules_of

Loss = Callable[[Tensor, Tensor], Tensor]


def mse(forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"]) -> Float[Tensor, ""]:
    """Return the mean of squared errors."""
    return _error(forecast, truth).square().mean()


def mae(forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"]) -> Float[Tensor, ""]:
    """Return the mean of absolute errors."""
    return _error(forecast, truth).abs().mean()


def huber(forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"], *, delta: float = 1.0) -> Float[Tensor, ""]:
    """Return the mean of half the squared error up to delta, linear beyond."""
    _error(forecast, truth)
    return F.huber_loss(forecast, truth, delta=delta)


def fredf(forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"], *, alpha: float = 0.8) -> Float[Tensor, ""]:
    """Return alpha mean |FFT(error)| + (1 - alpha) MSE, with the transform over time.

    The transform is not divided by sqrt(h) and the mean is over real-input frequencies, as in FreDF's public code; its
    alphas hold for that. Wang et al., "FreDF: Learning to Forecast in the Frequency Domain", ICLR 2025.
    """
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha is {alpha}; it must be between 0 and 1")
    error = _error(forecast, truth)
    return alpha * torch.fft.rfft(error, dim=1).abs().mean() + (1 - alpha) * error.square().mean()


def _error(forecast: Tensor, truth: Tensor) -> Tensor:
    if forecast.shape != truth.shape:
        raise InputError(f"forecast {tuple(forecast.shape)} and truth {tuple(truth.shape)} must have one shape")
    return forecast - truth


LOSSES: dict[str, Callable[..., Tensor]] = {"mse": mse, "mae": mae, "huber": huber, "fredf": fredf}


@checked()
def create_loss(name: str, **options: float) -> Loss:
    """Return a loss by name with its options bound: `create_loss("huber", delta=0.5)`."""
    check_known("loss", name, LOSSES)
    allowed = set(signature(LOSSES[name]).parameters) - {"forecast", "truth"}
    for option in options:
        check_known(f"argument of loss {name}", option, allowed)
    return partial(LOSSES[name], **check(rules_of(LOSSES[name]), options))
