"""The channel-independent references are what their papers say, part by part, and no channel sees another."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.models import create_model
from primecast.models.patchtst import TokenBatchNorm, patches
from primecast.nn import layers
from primecast.nn.dropout import Dropout
from primecast.nn.layers import moving_average
from tests.reference import dlinear_by_loops, moving_average_by_loops, patches_by_slices

B, L, S, N = 2, 29, 11, 5


def model(name: str, **options: Any) -> nn.Module:
    small = {"d_model": 6, "n_heads": 2, "d_ff": 7, "n_layers": 2} if name == "patchtst" else {}
    return create_model(name, lookback=L, horizon=S, channels=N, **{**small, **options}).double().eval()


def windows() -> Tensor:
    return torch.randn(B, L, N, dtype=torch.float64).cumsum(1)


@pytest.mark.parametrize(
    ("name", "options"),
    [("dlinear", {}), ("dlinear", {"norm": "instance"}), ("dlinear", {"kernel": None}), ("patchtst", {})],
)
def test_no_channel_sees_another(name: str, options: dict[str, Any]) -> None:
    forecaster, x = model(name, **options), windows()
    other = x.clone()
    other[..., 2] += torch.randn(B, L, dtype=torch.float64)
    changed = (forecaster(other) - forecaster(x)).abs().amax((0, 1))
    assert changed[2] > 1e-3 and changed[[0, 1, 3, 4]].max() < 1e-12


@pytest.mark.parametrize("name", ["dlinear", "patchtst"])
def test_every_step_of_the_window_counts(name: str) -> None:
    forecaster, x = model(name), windows().requires_grad_()
    forecaster(x).sum().backward()
    assert x.grad is not None and (x.grad.abs() > 0).all()


@pytest.mark.parametrize("name", ["dlinear", "patchtst"])
def test_time_features_are_accepted_and_not_used(name: str) -> None:
    x = windows()
    forecaster = model(name, n_time_features=3)
    assert torch.equal(forecaster(x, torch.rand(B, L + S, 3, dtype=torch.float64)), forecaster(x))


# ---------------------------------------------------------------- DLinear


@given(length=st.integers(1, 12), half=st.integers(0, 9), seed=st.integers(0, 99))
def test_the_moving_average_agrees_with_the_mean_of_each_neighbourhood(length: int, half: int, seed: int) -> None:
    x = torch.randn(B, length, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    smooth = moving_average(x, 2 * half + 1)
    for b in range(B):
        for n in range(3):
            expected = moving_average_by_loops(x[b, :, n].numpy(), 2 * half + 1)
            assert_close(smooth[b, :, n], torch.from_numpy(expected))


def test_the_moving_average_of_a_long_window_needs_no_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(B, 31, 3, dtype=torch.float64)
    products = [moving_average(x, kernel) for kernel in (1, 5, 67)]
    monkeypatch.setattr(layers, "LARGEST_MATRIX", 30)
    for kernel, product in zip((1, 5, 67), products, strict=True):
        assert_close(moving_average(x, kernel), product)
    monkeypatch.undo()
    assert moving_average(torch.ones(1, 65536, 1), 25).eq(1).all()  # a matrix would take 17 GB


@pytest.mark.parametrize("kernel", [0, -1, 24])
def test_a_moving_average_without_a_middle_is_refused(kernel: int) -> None:
    with pytest.raises(InputError, match=f"kernel is {kernel}; a moving average takes an odd number"):
        moving_average(windows(), kernel)


@pytest.mark.parametrize("kernel", [1, 5, 25])
def test_dlinear_agrees_with_its_formula_channel_by_channel(kernel: int) -> None:
    forecaster, x = model("dlinear", kernel=kernel), windows()
    for weight in forecaster.parameters():
        nn.init.normal_(weight)
    w = {name: value.detach().numpy() for name, value in forecaster.named_parameters()}
    for b in range(B):
        expected = dlinear_by_loops(
            x[b].numpy(), w["season.weight"], w["trend.weight"], w["season.bias"] + w["trend.bias"], kernel
        )
        assert_close(forecaster(x)[b], torch.from_numpy(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"kernel": None}, {"norm": "instance"}])
def test_dlinear_starts_from_the_mean_of_the_window(options: dict[str, Any]) -> None:
    forecaster, x = model("dlinear", **options), windows()
    for name, weight in forecaster.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
    assert_close(forecaster(x), x.mean(1, keepdim=True).expand(-1, S, -1))


def test_dlinear_with_instance_norm_carries_scale_and_level_over() -> None:
    forecaster, x = model("dlinear", norm="instance"), windows()
    assert_close(forecaster(7 * x - 40), 7 * forecaster(x) - 40, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kernel", "expected"), [(25, 2 * 97 * 96), (None, 97 * 96)])
def test_dlinear_has_the_published_number_of_parameters(kernel: int | None, expected: int) -> None:
    forecaster = create_model("dlinear", lookback=96, horizon=96, channels=7, kernel=kernel)
    assert sum(p.numel() for p in forecaster.parameters()) == expected


# ---------------------------------------------------------------- PatchTST


@given(length=st.integers(8, 40), patch=st.integers(1, 8), seed=st.integers(0, 99), data=st.data())
def test_patches_agree_with_slices_of_the_padded_series(length: int, patch: int, seed: int, data: Any) -> None:
    stride = data.draw(st.integers(1, patch))
    series = np.random.default_rng(seed).normal(size=(B, N, length))
    cut = patches(torch.from_numpy(series), patch=patch, stride=stride)
    assert cut.shape == (B, N, (length - patch) // stride + 2, patch)
    for b in range(B):
        for n in range(N):
            assert_close(cut[b, n], torch.from_numpy(patches_by_slices(series[b, n], patch, stride)))


def test_a_look_back_of_96_makes_the_published_12_patches() -> None:
    assert patches(torch.zeros(1, 1, 96), patch=16, stride=8).shape == (1, 1, 12, 16)


@pytest.mark.parametrize(("patch", "stride"), [(30, 8), (8, 9)])
def test_patches_that_do_not_cover_the_window_are_refused(patch: int, stride: int) -> None:
    with pytest.raises(
        InputError, match=f"patches of {patch} steps every {stride} steps do not cover a look-back of 29"
    ):
        model("patchtst", patch=patch, stride=stride)


@given(width=st.integers(1, 4), wide=st.integers(1, 20), layers=st.integers(1, 3), lookback=st.integers(16, 60))
def test_patchtst_parameters_follow_the_formula(width: int, wide: int, layers: int, lookback: int) -> None:
    d, count, h = 2 * width, (lookback - 16) // 8 + 2, 5
    sizes: dict[str, Any] = {"d_model": d, "n_heads": 2, "d_ff": wide, "n_layers": layers}
    forecaster = create_model("patchtst", lookback=lookback, horizon=h, channels=3, **sizes)
    block = 4 * (d * d + d) + 2 * d * wide + wide + d + 4 * d
    assert sum(p.numel() for p in forecaster.parameters()) == 17 * d + count * d + layers * block + (count * d + 1) * h


def test_batch_norm_takes_each_feature_over_all_tokens_of_the_batch() -> None:
    z = torch.randn(3, 5, 7, dtype=torch.float64) * 3 + 2
    normal = TokenBatchNorm(7).double()(z)
    assert_close(normal.mean((0, 1)), torch.zeros(7, dtype=torch.float64))
    assert_close(normal.var((0, 1), correction=0), torch.ones(7, dtype=torch.float64), rtol=1e-4, atol=1e-4)


def test_patchtst_drops_where_the_public_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training, with masks that are drawn once, against one layer written out in float64.

    Tokens; attention after its projection and again before the sum; feed-forward inside and before the sum: five masks,
    and none on the attention weights.
    """
    forecaster = model("patchtst", n_layers=1, n_heads=1, patch=8, stride=4, dropout=0.3).train()
    masks: list[Tensor] = []

    def drop(self: Dropout, z: Tensor) -> Tensor:
        assert self.rate == 0.3
        masks.append((torch.rand_like(z) > 0.3) / 0.7)
        return z * masks[-1]

    monkeypatch.setattr(Dropout, "forward", drop)
    monkeypatch.setattr("primecast.nn.mechanisms.drop", lambda weights, rate: weights if rate == 0 else weights / 0)
    x, w = windows(), forecaster.state_dict()
    forecast = forecaster(x)
    tokens, projected, mixed, wide, down = masks

    def linear(name: str, z: Tensor) -> Tensor:
        return z @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(z: Tensor) -> Tensor:  # over all tokens of the batch; scale 1 and shift 0 at the start
        return (z - z.mean((0, 1))) / (z.var((0, 1), correction=0) + 1e-5).sqrt()

    mean, std = x.mean(1, keepdim=True), (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    cut = patches(((x - mean) / std).mT, patch=8, stride=4)
    z = ((linear("embed", cut) + w["place"]) * tokens).flatten(0, 1)
    q, k, v = (linear(f"blocks.0.attention.{part}", z) for part in ("query", "key", "value"))
    attended = linear("blocks.0.attention.out", (q @ k.mT / 6**0.5).softmax(-1) @ v)
    z = norm(z + attended * projected * mixed)
    z = norm(z + linear("blocks.0.down", nn.functional.gelu(linear("blocks.0.up", z)) * wide) * down)
    expected = linear("head", z.flatten(1)).unflatten(0, (B, N)).mT * std + mean
    assert_close(forecast, expected, rtol=1e-10, atol=1e-10)


def test_patchtst_is_the_sum_of_its_published_parts() -> None:
    """One layer, one head, written out with the weights of the module; batch norms by their running statistics."""
    forecaster = model("patchtst", n_layers=1, n_heads=1, patch=8, stride=4)
    for name, buffer in forecaster.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            nn.init.uniform_(buffer, 0.5, 2)
    w = forecaster.state_dict()
    x = windows()

    def linear(name: str, z: Tensor) -> Tensor:
        return z @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, z: Tensor) -> Tensor:
        z = (z - w[f"{name}.running_mean"]) / (w[f"{name}.running_var"] + 1e-5).sqrt()
        return z * w[f"{name}.weight"] + w[f"{name}.bias"]

    for b in range(B):
        for n in range(N):
            series = x[b, :, n]
            mean, deviation = series.mean(), (series.var(correction=0) + 1e-5).sqrt()
            cut = torch.from_numpy(patches_by_slices(((series - mean) / deviation).numpy(), 8, 4))
            z = linear("embed", cut) + w["place"]
            q, k, v = (linear(f"blocks.0.attention.{part}", z) for part in ("query", "key", "value"))
            z = norm("blocks.0.norm1", z + linear("blocks.0.attention.out", (q @ k.T / 6**0.5).softmax(-1) @ v))
            z = norm("blocks.0.norm2", z + linear("blocks.0.down", nn.functional.gelu(linear("blocks.0.up", z))))
            expected = linear("head", z.flatten()) * deviation + mean
            assert_close(forecaster(x)[b, :, n], expected, rtol=1e-10, atol=1e-10)
