"""What a forecast is trained to make small. Every loss is `loss(forecast, truth) -> scalar` and refuses to broadcast.

Letters: b batch, h horizon, n channels.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from primecast.errors import InputError, unknown

Loss = Callable[[Tensor, Tensor], Tensor]


def mse(forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"]) -> Float[Tensor, ""]:
    """Mean of squared errors."""
    return (_error(forecast, truth)).square().mean()


def mae(forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"]) -> Float[Tensor, ""]:
    """Mean of absolute errors."""
    return _error(forecast, truth).abs().mean()


def huber(forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"], *, delta: float = 1.0) -> Float[Tensor, ""]:
    """Half the squared error up to delta, linear beyond."""
    _error(forecast, truth)
    return F.huber_loss(forecast, truth, delta=delta)


def _error(forecast: Tensor, truth: Tensor) -> Tensor:
    if forecast.shape != truth.shape:
        raise InputError(f"forecast {tuple(forecast.shape)} and truth {tuple(truth.shape)} must have one shape")
    return forecast - truth


LOSSES: dict[str, Callable[..., Tensor]] = {"mse": mse, "mae": mae, "huber": huber}


def create_loss(name: str, **options: float) -> Loss:
    """A loss by name with its options bound: `create_loss("huber", delta=0.5)`."""
    if name not in LOSSES:
        raise unknown("loss", name, LOSSES)
    allowed = set(signature(LOSSES[name]).parameters) - {"forecast", "truth"}
    for option in options:
        if option not in allowed:
            raise unknown(f"argument of loss {name}", option, allowed)
    return partial(LOSSES[name], **options)
