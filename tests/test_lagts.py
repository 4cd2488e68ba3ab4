"""The reconstruction of LagTS: sums over leaders and lags agree with loops, lags are learnt, and its name says it."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.models import MODELS, create_model, lagts, list_models
from primecast.models.lagts import LagTSReconstruction, shift
from primecast.nn.losses import mse
from primecast.nn.pair_features import correlate_shifted, standardize
from tests.reference import align_by_loops

B, N, L, H, T = 3, 5, 19, 11, 7


def small(**options: Any) -> LagTSReconstruction:
    sizes = {"d_model": 6, "hidden": 8, "max_lag": T, "dropout": 0.0}
    model = create_model("lagts-reconstruction", lookback=L, horizon=H, channels=N, **{**sizes, **options})
    assert isinstance(model, LagTSReconstruction)
    return model.double()


def windows(channels: int = N) -> Tensor:
    return torch.randn(B, channels, L, dtype=torch.float64)


def test_it_calls_itself_a_reconstruction_wherever_it_is_named() -> None:
    assert [name for name in list_models() if "lagts" in name] == ["lagts-reconstruction"]
    for text in (MODELS["lagts-reconstruction"].reference, lagts.__doc__, LagTSReconstruction.__doc__):
        assert "reconstruction" in str(text)


@given(max_lag=st.integers(0, L - 1))
def test_shifted_windows_hold_what_was_so_many_steps_ago(max_lag: int) -> None:
    series = windows()
    shifted = shift(series, max_lag)
    assert shifted.shape == (B, N, max_lag + 1, L + max_lag)
    for t in range(max_lag + 1):
        assert torch.equal(shifted[:, :, t, t : t + L], series)
        assert (shifted[:, :, t, :t] == 0).all() and (shifted[:, :, t, t + L :] == 0).all()


@given(steps=st.integers(0, T), seed=st.integers(0, 1000))
def test_the_guiding_correlation_peaks_where_the_column_leads_the_row(steps: int, seed: int) -> None:
    long = torch.randn(1, L + T, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    series = torch.stack([long[:, T:], long[:, T - steps : L + T - steps]], dim=1)  # the second follows the first
    correlation = correlate_shifted(series, shift(series, T)[..., : series.shape[-1]])
    assert_close(
        correlation[0, 1, 0, steps],
        (series[0, 1, steps:] * series[0, 0, : L - steps]).sum() / L,
        rtol=1e-12,
        atol=1e-12,
    )
    assert_close(correlation[0, 1, 0, steps], series[0, 1, steps:].square().sum() / L)


def test_what_a_layer_is_told_agrees_with_the_sum_over_leaders_and_lags() -> None:
    model, series = small(n_layers=2), windows()
    told: list[Tensor] = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, given: told.append(given[1]))
    x = series.mT
    model(x)
    normal, _ = model.norm(x)
    lags, weights = model.pairs(normal.mT)
    assert_close(lags.exp().sum(-1), torch.ones(B, N, N, dtype=torch.float64))
    for depth in range(2):
        for b in range(B):
            expected = align_by_loops(
                normal[b].T.detach().numpy(),
                weights[b, ..., depth].detach().numpy(),
                lags[b].exp().detach().numpy(),
            )
            assert_close(told[depth][b], torch.from_numpy(expected))


def test_a_pair_is_an_mlp_over_both_windows_side_by_side() -> None:
    model, series = small(), windows()
    lags, weights = model.pairs(series)
    first = torch.cat([model.pairs.follower.weight, model.pairs.leader.weight], dim=1)
    for i in range(N):
        for j in range(N):
            both = torch.cat([series[:, i], series[:, j]], dim=-1)
            hidden = torch.nn.functional.gelu(both @ first.T + model.pairs.follower.bias)
            assert_close(lags[:, i, j], model.pairs.lags(hidden).log_softmax(-1))
    assert (weights.abs().sum(2) <= 1 + 1e-12).all()


def test_the_training_loss_is_that_of_the_forecast_and_by_its_weight_that_of_the_lags() -> None:
    x, y = windows().mT, torch.randn(B, H, N, dtype=torch.float64)
    torch.manual_seed(3)
    without = small(guidance=0.0)
    torch.manual_seed(3)
    guided = small(guidance=0.25, temperature=0.5)
    assert_close(without.training_loss(x, y, None, mse), mse(without(x), y))

    normal, _ = guided.norm(x)
    lags, _ = guided.pairs(normal.mT)
    target = (correlate_shifted(normal.mT, shift(normal.mT, T)[..., :L]).abs() / 0.5).softmax(-1)
    entropy = torch.nn.functional.cross_entropy(lags.flatten(0, 2), target.flatten(0, 2))
    assert_close(guided.training_loss(x, y, None, mse), mse(guided(x), y) + 0.25 * entropy)


def test_guidance_teaches_the_lag_that_was_planted() -> None:
    long = torch.randn(B, L + 3, dtype=torch.float64)
    x = standardize(torch.stack([long[:, 3:], long[:, :-3], *windows(3).transpose(0, 1)], dim=1)).mT
    y = torch.randn(B, H, N, dtype=torch.float64)
    model = small(guidance=1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        model.training_loss(x, y, None, mse).backward()
        optimizer.step()
    lags, _ = model.pairs(model.norm(x)[0].mT)
    assert (lags[:, 1, 0].argmax(-1) == 3).all()  # channel 1 follows channel 0
    assert (lags.diagonal(dim1=1, dim2=2).argmax(1) == 0).all()  # and each is with itself at lag 0


def test_the_newest_step_of_a_leader_reaches_the_forecast_of_another_channel() -> None:
    model, x = small().eval(), windows().mT.requires_grad_()
    model(x)[..., 1].sum().backward()
    assert x.grad is not None and (x.grad[:, -1, 0].abs() > 0).all()


def test_constant_windows_and_a_single_channel_give_finite_losses() -> None:
    model = create_model("lagts-reconstruction", lookback=L, horizon=H, channels=1)
    loss = model.training_loss(torch.full((B, L, 1), 3.0), torch.randn(B, H, 1), None, mse)  # type: ignore[operator]
    loss.backward()
    assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_lag": L}, f"max_lag {L} must be at least 0 and below the look-back {L}"),
        ({"guidance": -1.0}, "guidance -1.0 must not be negative"),
        ({"temperature": 0.0}, "temperature 0.0 be above 0"),
    ],
)
def test_what_cannot_be_used_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**options)
