"""Autoformer is what its paper says: delays found and summed as by loops, nothing of the future but its calendar."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.experiments.spec import Spec, resolve
from primecast.models import create_model
from primecast.models.autoformer import (
    AutoCorrelation,
    Autoformer,
    SeasonNorm,
    decompose,
    delay_count,
    delay_scores,
)
from primecast.models.presets import published
from primecast.nn.mechanisms import AttentionArgs
from primecast.nn.multi_head import MultiHeadAttention
from tests.reference import auto_correlation_by_loops, decompose_by_loops, delay_scores_by_sums

B, L, S, N, M, D = 3, 20, 11, 5, 2, 7


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def small(**options: Any) -> Autoformer:
    torch.manual_seed(0)
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 12, "kernel": 5, "dropout": 0.0, "n_time_features": M}
    model = create_model("autoformer", lookback=L, horizon=S, channels=N, **{**sizes, **options})
    assert isinstance(model, Autoformer)
    return model.double()


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(B, L, N, dtype=torch.float64).cumsum(1)
    return x, torch.rand(B, L + S, M, dtype=torch.float64) - 0.5


# ---------------------------------------------------------------- auto-correlation


def test_delays_are_scored_by_the_sum_of_shifted_products() -> None:
    for steps in (8, 11):
        q, k = draw(B, steps, D), draw(B, steps, D)
        assert_close(delay_scores(q, k), delay_scores_by_sums(q, k))


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("answering", [13, 9, 17], ids=["same length", "padded", "cut"])
def test_auto_correlation_equals_its_loops_in_forward_and_gradients(training: bool, answering: int) -> None:
    q, k, v = draw(B, 13, D), draw(B, answering, D), draw(B, answering, D)
    mechanism = AutoCorrelation(2.0).train(training)
    up = torch.randn(B, 13, D, dtype=torch.float64)
    fast = mechanism(q, k, v, q, AttentionArgs())
    slow = auto_correlation_by_loops(q, k, v, count=5, training=training)
    assert_close(fast, slow)
    for one, other in zip(
        torch.autograd.grad((fast * up).sum(), (q, k, v)),
        torch.autograd.grad((slow * up).sum(), (q, k, v)),
        strict=True,
    ):
        assert_close(one, other)


def test_a_delayed_copy_is_found_at_its_delay() -> None:
    k = torch.randn(1, 30, 4, dtype=torch.float64)
    scores = delay_scores(k.roll(7, dims=1), k)
    assert scores.argmax() == 7


def test_samples_share_their_delays_in_training_only() -> None:
    q, k, v = draw(B, 13, D), draw(B, 13, D), draw(B, 13, D)
    mechanism = AutoCorrelation()
    alone = [
        mechanism.eval()(q[b : b + 1], k[b : b + 1], v[b : b + 1], q[b : b + 1], AttentionArgs()) for b in range(B)
    ]
    assert_close(mechanism(q, k, v, q, AttentionArgs()), torch.cat(alone))
    assert not torch.allclose(mechanism.train()(q, k, v, q, AttentionArgs()), torch.cat(alone))


@pytest.mark.parametrize(
    ("factor", "steps", "count"), [(3.0, 96, 13), (1.0, 96, 4), (3.0, 144, 14), (3.0, 1, 1), (0.1, 9, 1), (9.0, 4, 4)]
)
def test_the_number_of_delays_is_the_published_one_and_never_none_or_too_many(
    factor: float, steps: int, count: int
) -> None:
    assert delay_count(factor, steps) == count


def test_heads_change_nothing() -> None:
    torch.manual_seed(0)
    one = MultiHeadAttention(8, 1, mechanism=AutoCorrelation(3.0))
    torch.manual_seed(0)
    four = MultiHeadAttention(8, 4, mechanism=AutoCorrelation(3.0))
    x = torch.randn(B, 13, 8)
    assert torch.equal(one(x), four(x))


def test_what_needs_pairs_is_refused() -> None:
    layer = MultiHeadAttention(8, 2, mechanism=AutoCorrelation(3.0))
    x = torch.randn(B, 13, 8)
    with pytest.raises(InputError, match="auto-correlation aggregates delays, not pairs"):
        layer(x, prime=torch.ones(B, 13, 13, 8))
    with pytest.raises(InputError, match="auto-correlation aggregates delays, not pairs: it takes no mask"):
        layer(x, mask=torch.ones(1, 1, 13, 13, dtype=torch.bool))
    with pytest.raises(InputError, match="takes no dropout"):
        layer.mechanism(x, x, x, x, AttentionArgs(dropout=0.1))
    with pytest.raises(InputError, match=r"factor 0\.0 must be positive"):
        AutoCorrelation(0.0)
    with pytest.raises(InputError, match="unknown argument of model autoformer 'primer'"):
        small(primer="full")


# ---------------------------------------------------------------- decomposition


@given(steps=st.integers(1, 15), half=st.integers(0, 12))
def test_season_and_trend_are_those_of_the_loops_at_any_length(steps: int, half: int) -> None:
    x = torch.randn(2, steps, 3, dtype=torch.float64)
    kernel = 2 * half + 1
    season, trend = decompose(x, kernel)
    expected_season, expected_trend = decompose_by_loops(x, kernel)
    assert_close(trend, expected_trend)
    assert_close(season, expected_season)


def test_a_season_norm_leaves_no_level() -> None:
    norm = SeasonNorm(8)
    nn.init.normal_(norm.norm.bias)
    assert_close(norm(torch.randn(B, 13, 8)).mean(1), torch.zeros(B, 8))


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize(
    ("channels", "expected"), [(7, 10_535_943), (21, 10_607_637), (321, 12_143_937), (862, 14_914_398)]
)
def test_autoformer_has_the_published_number_of_parameters(channels: int, expected: int) -> None:
    with torch.device("meta"):
        model = create_model(
            "autoformer",
            lookback=96,
            horizon=96,
            channels=channels,
            n_time_features=4,
            **dict[str, Any](published("autoformer", "ETTh1", 96).model),
        )
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize("n_time_features", [0, 3])
@pytest.mark.parametrize(("encoders", "decoders"), [(1, 1), (2, 1), (1, 3)])
def test_autoformer_parameters_follow_the_formula(n_time_features: int, encoders: int, decoders: int) -> None:
    model = small(n_time_features=n_time_features, n_layers=encoders, n_decoders=decoders)
    d, f = 8, 12
    layers = encoders * (4 * (d * d + d) + 2 * d * f) + decoders * (8 * (d * d + d) + 2 * d * f + 3 * d * N)
    expected = 2 * (3 * N * d + n_time_features * d) + layers + 4 * d + d * N + N
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_autoformer_is_the_sum_of_its_published_parts(training: bool) -> None:
    """One encoder and one decoder layer, written out with the weights of the module."""
    model = small(n_layers=1, label=6).train(training)
    w = dict(model.named_parameters())
    x, time_features = inputs()

    def linear(name: str, z: Tensor) -> Tensor:
        bias = w.get(f"{name}.bias")
        return z @ w[f"{name}.weight"].T + (0 if bias is None else bias)

    def circular(name: str, z: Tensor) -> Tensor:
        weight = w[f"{name}.weight"]
        return torch.stack([z.roll(1 - step, dims=1) @ weight[:, :, step].T for step in range(3)]).sum(0)

    def correlate(name: str, z: Tensor, memory: Tensor) -> Tensor:
        q, k, v = linear(f"{name}.query", z), linear(f"{name}.key", memory), linear(f"{name}.value", memory)
        count = int(3 * torch.tensor(float(z.shape[1])).log())
        return linear(f"{name}.out", auto_correlation_by_loops(q, k, v, count=count, training=training))

    def feed(name: str, z: Tensor) -> Tensor:
        return linear(f"{name}.down", nn.functional.gelu(linear(f"{name}.up", z)))

    def norm(name: str, z: Tensor) -> Tensor:
        centred = z - z.mean(-1, keepdim=True)
        normal = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        normal = normal * w[f"{name}.norm.weight"] + w[f"{name}.norm.bias"]
        return normal - normal.mean(1, keepdim=True)

    def trend_of(z: Tensor) -> Tensor:
        return decompose_by_loops(z, 5)[1]

    memory = circular("embed_past.values", x) + linear("embed_past.marks", time_features[:, :L])
    memory = memory + correlate("encoders.0.attention", memory, memory)
    memory = memory - trend_of(memory)
    memory = memory + feed("encoders.0.feed", memory)
    memory = norm("norm_past", memory - trend_of(memory))

    season = torch.cat([(x - trend_of(x))[:, -6:], torch.zeros(B, S, N, dtype=x.dtype)], 1)
    trend = torch.cat([trend_of(x)[:, -6:], x.mean(1, keepdim=True).repeat(1, S, 1)], 1)
    z = circular("embed_future.values", season) + linear("embed_future.marks", time_features[:, L - 6 :])
    trends = torch.zeros_like(z)
    parts: list[Callable[[Tensor], Tensor]] = [
        lambda z: correlate("decoders.0.attention", z, z),
        lambda z: correlate("decoders.0.cross", z, memory),
        lambda z: feed("decoders.0.feed", z),
    ]
    for part in parts:
        z = z + part(z)
        trends = trends + trend_of(z)
        z = z - trend_of(z)
    trend = trend + circular("decoders.0.trend", trends)
    expected = (trend + linear("head", norm("norm_future", z)))[:, -S:]
    assert_close(model(x, time_features), expected, rtol=1e-10, atol=1e-10)


def test_the_decoder_knows_the_calendar_of_the_future_and_nothing_else_of_it() -> None:
    model = small(label=6).eval()
    x, time_features = inputs()
    season, trend = model._start(x)
    assert season.shape == trend.shape == (B, 6 + S, N)
    assert not season[:, 6:].any()
    assert_close(trend[:, 6:], x.mean(1, keepdim=True).expand(-1, S, -1))
    later = time_features.clone()
    later[:, L:] += torch.rand(S, 1)
    assert not torch.allclose(model(x, later), model(x, time_features))


def test_a_forecast_in_eval_mode_does_not_depend_on_the_rest_of_the_batch() -> None:
    model = small().eval()
    x, time_features = inputs()
    alone = torch.cat([model(x[b : b + 1], time_features[b : b + 1]) for b in range(B)])
    assert_close(model(x, time_features), alone)


def test_autoformer_works_without_marks_and_with_any_label() -> None:
    x, _ = inputs()
    for label in (0, 1, L):
        assert small(n_time_features=0, label=label)(x).shape == (B, S, N)
    assert small().label == L // 2
    assert small()(x).shape == (B, S, N)
    with pytest.raises(InputError, match="label 21 must lie between 0 and the look-back 20"):
        small(label=L + 1)
    with pytest.raises(InputError, match="unknown activation 'swish'; allowed: gelu, relu"):
        small(activation="swish")


def test_a_window_norm_can_be_added() -> None:
    x, time_features = inputs()
    model = small(norm="instance").eval()
    assert_close(model(10 * x + 3, time_features), 10 * model(x, time_features) + 3, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("dataset", "horizon", "epochs", "factor"),
    [("ETTh1", 96, 10, 3), ("ETTm2", 192, 10, 1), ("Weather", 96, 2, 3), ("Weather", 192, 10, 3),
     ("Traffic", 720, 3, 3), ("Exchange", 336, 1, 3), ("Exchange", 720, 10, 3)],
)  # fmt: skip
def test_exceptions_of_the_published_scripts_are_kept(dataset: str, horizon: int, epochs: int, factor: float) -> None:
    plan = resolve(Spec(dataset=dataset, model="autoformer", attention="standard", horizon=horizon))
    assert (plan.training["epochs"], plan.model["factor"]) == (epochs, factor)
