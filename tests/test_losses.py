"""Losses are their formulas and refuse to broadcast."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primecast.errors import InputError
from primecast.nn.losses import LOSSES, create_loss, fredf, huber, mae, mse

B, H, N = 2, 7, 5


def pair(horizon: int = H) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.randn(B, horizon, N, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


def test_losses_equal_their_formulas_in_numpy() -> None:
    forecast, truth = pair()
    error = (forecast - truth).numpy()
    size = np.abs(error)
    assert mse(forecast, truth).item() == pytest.approx(np.mean(error**2))
    assert mae(forecast, truth).item() == pytest.approx(np.mean(size))
    expected = np.where(size < 0.5, error**2 / 2, 0.5 * (size - 0.25)).mean()
    assert huber(forecast, truth, delta=0.5).item() == pytest.approx(expected)


@pytest.mark.parametrize("horizon", [6, 7])
@given(alpha=st.floats(0, 1))
def test_fredf_is_the_mean_modulus_of_the_unscaled_spectrum_and_mse(horizon: int, alpha: float) -> None:
    forecast, truth = pair(horizon)
    error = (forecast - truth).numpy()
    steps = np.arange(horizon)
    bins = [
        np.abs(np.tensordot(np.exp(-2j * np.pi * k * steps / horizon), error, axes=(0, 1)))
        for k in range(horizon // 2 + 1)
    ]
    expected = alpha * np.mean(bins) + (1 - alpha) * np.mean(error**2)
    assert fredf(forecast, truth, alpha=alpha).item() == pytest.approx(expected, rel=1e-9)


def test_fredf_has_a_finite_gradient_where_the_forecast_is_right() -> None:
    forecast = torch.zeros(B, H, N, requires_grad=True)
    fredf(forecast, torch.zeros(B, H, N)).backward()
    assert forecast.grad is not None and not forecast.grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_zero_for_a_perfect_forecast_and_grows_with_the_error(name: str) -> None:
    loss = create_loss(name)
    _, truth = pair()
    assert loss(truth, truth) == 0
    assert 0 < loss(truth + 0.1, truth) < loss(truth + 0.2, truth)


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_broadcasts(name: str) -> None:
    loss = create_loss(name)
    forecast, _ = pair()
    with pytest.raises(Exception, match="one shape|Type-check error"):
        loss(forecast, forecast[:, :1])


def test_unknown_losses_and_arguments_are_listed() -> None:
    with pytest.raises(
        InputError, match=r"unknown loss 'mape' \(did you mean 'mae'\?\); allowed: fredf, huber, mae, mse"
    ):
        create_loss("mape")
    with pytest.raises(InputError, match="unknown argument of loss huber 'alpha'; allowed: delta"):
        create_loss("huber", alpha=1)
    with pytest.raises(InputError, match="alpha is 1.5; it must be between 0 and 1"):
        fredf(*pair(), alpha=1.5)
