"""To be in the registry is to be tested: these run for every model, and iTransformer is what its paper says."""

from inspect import signature
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.models import MODELS, ModelEntry, create_model, default_attention, list_models, reads_time_features
from primecast.nn.primer import Primer
from primecast.storage.tensors import load_tensors, load_weights, save_tensors

B, L, S, N, M = 3, 19, 11, 5, 2

SMALL: dict[str, dict[str, Any]] = {
    "autoformer": {"d_model": 12, "n_heads": 3, "n_layers": 1, "d_ff": 17, "kernel": 5, "n_time_features": M},
    "gat": {"d_model": 12, "n_heads": 3, "n_time_features": M},
    "itransformer": {"d_model": 12, "n_heads": 2, "n_time_features": M},
    "timer_xl": {"d_model": 12, "n_heads": 2, "patch": L},
    "patchtst": {"d_model": 12, "n_heads": 3, "d_ff": 13},
    "lift": {"backbone_args": {"norm": "instance"}, "leaders": 3, "states": 2},
    "lagts-reconstruction": {"d_model": 12, "hidden": 7},
}
"""Sizes that make each model quick; a model that is registered without being here is tested at its defaults."""


def small(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return create_model(
        name, lookback=L, horizon=S, channels=N, attention="standard", **{**SMALL.get(name, {}), **options}
    )


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(B, L, N, dtype=dtype).cumsum(1)
    return x, torch.rand(B, L + S, M, dtype=dtype) - 0.5, torch.randn(B, S, N, dtype=dtype)


def variants(entry: ModelEntry) -> list[dict[str, Any]]:
    """The mechanisms of a model, each without and with a primer."""
    others = [m for m in entry.mechanisms if m != "dot"]
    found: list[dict[str, Any]] = [{}, *({"mechanism": m} for m in others)]
    if entry.supports_primer:
        found += [{"primer": kind} for kind in ("full", "learned", "full+learned", "table", "random")]
        found += [{"mechanism": m, "primer": "full"} for m in others]
    return found


VARIANTS = [
    pytest.param(name, options, id=f"{name}-{'-'.join(map(str, options.values())) or 'plain'}")
    for name, entry in MODELS.items()
    for options in variants(entry)
]
TRAINED = [v for v in VARIANTS if MODELS[str(v.values[0])].has_parameters]


@pytest.mark.parametrize(("name", "options"), TRAINED)
def test_forward_and_backward_are_finite_and_reach_every_parameter(name: str, options: dict[str, Any]) -> None:
    model = small(name, **options)
    x, time_features, y = inputs()
    forecast = model(x, time_features)
    assert forecast.shape == (B, S, N) and torch.isfinite(forecast).all()
    (forecast - y).square().mean().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize(("name", "options"), TRAINED)
def test_one_batch_can_be_learnt_by_heart(name: str, options: dict[str, Any]) -> None:
    no_dropout = {"dropout": 0.0} if "dropout" in signature(MODELS[name].build).parameters else {}
    model = small(name, **no_dropout, **options)
    x, time_features, y = inputs()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = (model(x, time_features) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(("name", "options"), TRAINED)
def test_saved_and_loaded_weights_forecast_the_same(name: str, options: dict[str, Any], tmp_path: Any) -> None:
    model = small(name, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # those of ridge start at zero
            parameter.add_(0.1 * torch.randn_like(parameter))
    save_tensors(tmp_path / "model.safetensors", model.state_dict(), {})
    torch.manual_seed(1)
    other = create_model(
        name, lookback=L, horizon=S, channels=N, attention="standard", **{**SMALL.get(name, {}), **options}
    ).eval()
    x, time_features, _ = inputs()
    assert not torch.equal(other(x, time_features), model(x, time_features))
    load_weights(other, load_tensors(tmp_path / "model.safetensors")[0], source="model.safetensors")
    assert torch.equal(other(x, time_features), model(x, time_features))


@pytest.mark.parametrize("name", list_models())
def test_a_model_without_parameters_says_so(name: str) -> None:
    assert MODELS[name].has_parameters == any(True for _ in small(name).parameters())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        v
        for v in VARIANTS
        if MODELS[str(v.values[0])].permutes
        and not {"learned", "full+learned", "table", "random"} & set(str(v.id).split("-"))
    ],
)
def test_permuting_channels_permutes_the_forecast(name: str, options: dict[str, Any]) -> None:
    model = small(name, **options).double().eval()
    x, time_features, _ = inputs(torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert_close(model(x[..., order], time_features), model(x, time_features)[..., order])


@pytest.mark.parametrize(("name", "options"), [v for v in VARIANTS if MODELS[str(v.values[0])].equivariant])
@given(scale=st.floats(0.5, 20), shift=st.floats(-50, 50))
def test_scale_and_level_of_a_window_carry_over_to_its_forecast(
    name: str, options: dict[str, Any], scale: float, shift: float
) -> None:
    model = small(name, **options).double().eval()
    x, time_features, _ = inputs(torch.float64)
    # Instance normalisation adds 1e-5 to the variance, so the equivariance holds up to that.
    assert_close(
        model(x * scale + shift, time_features), model(x, time_features) * scale + shift, rtol=1e-3, atol=1e-3 * scale
    )


@pytest.mark.parametrize("name", list_models())
def test_the_same_seed_makes_the_same_model(name: str) -> None:
    first, second = small(name).state_dict(), small(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


READERS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in MODELS] + [
    ("lift", {"backbone": name}) for name in ("itransformer", "patchtst")
]


@pytest.mark.parametrize(("name", "options"), READERS)
def test_the_registry_says_which_models_read_time_features(name: str, options: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"lookback": 24, "horizon": 5, "channels": 3, "n_time_features": M}
    patch = {"timer_xl": {"patch": 24}}.get(name, {})
    model = create_model(name, **sizes, attention="standard", **patch, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # some start at zero
            parameter.copy_(0.1 * torch.randn_like(parameter))
    x = torch.randn(2, 24, 3)
    one, other = (model(x, torch.rand(2, 24 + 5, M)) for _ in range(2))
    assert torch.equal(one, other) != reads_time_features(name, options)
    if not options:
        assert MODELS[name].reads_time_features == reads_time_features(name)


@pytest.mark.parametrize("name", list_models())
def test_unknown_arguments_are_listed(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown argument of model {name} 'd_modle'"):
        small(name, d_modle=3)


def test_unknown_models_are_listed() -> None:
    with pytest.raises(InputError, match=r"unknown model 'itransfomer' \(did you mean 'itransformer'\?\); allowed: "):
        create_model("itransfomer", lookback=2, horizon=3, channels=5)
    with pytest.raises(InputError, match="horizon is 0; it must be a whole number of at least 1"):
        create_model("itransformer", lookback=2, horizon=0, channels=5)


@pytest.mark.parametrize("name", ["gat", "itransformer"])
@pytest.mark.parametrize("norm", ["instance", "none"])
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(("made", "fed"), [(1, 5), (3, 5), (3, 2)])
def test_windows_of_another_number_of_channels_are_refused(
    name: str, norm: str, marked: bool, made: int, fed: int
) -> None:
    model = create_model(name, lookback=L, horizon=S, channels=made, norm=norm, **SMALL[name])
    x, time_features = torch.randn(B, L, fed), torch.rand(B, L + S, M) if marked else None
    with pytest.raises(InputError, match=f"the model was made for {made} channels, the windows have {fed}"):
        model(x, time_features)


@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.supports_primer])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_primed_model_in_half_precision_is_near_the_double_one(name: str, dtype: torch.dtype) -> None:
    model = small(name, primer="full").to(dtype).eval()
    x, time_features, _ = (z.to(dtype) for z in inputs())
    forecast = model(x, time_features)
    assert forecast.dtype == dtype
    assert_close(forecast.double(), model.double()(x.double(), time_features.double()), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.supports_primer])
def test_a_primed_model_forecasts_nothing_of_nothing(name: str) -> None:
    x, time_features, _ = inputs()
    assert small(name, primer="full")(x[:0], time_features[:0]).shape == (0, S, N)


# ---------------------------------------------------------------- iTransformer


@pytest.mark.parametrize(
    ("d_model", "n_layers", "expected"),
    [(512, 3, 4_833_888), (256, 2, 841_568), (128, 2, 224_224), (64, 2, 63_008), (128, 6, 622_560)],
)
def test_itransformer_has_the_published_number_of_parameters(d_model: int, n_layers: int, expected: int) -> None:
    sizes: dict[str, Any] = {"lookback": 96, "horizon": 96, "channels": 7, "d_model": d_model, "n_layers": n_layers}
    model = create_model("itransformer", **sizes, attention="standard")
    assert sum(p.numel() for p in model.parameters()) == expected


@given(
    lookback=st.integers(2, 30), horizon=st.integers(1, 30), width=st.integers(1, 5), wide=st.integers(1, 40),
    layers=st.integers(1, 3),
)  # fmt: skip
def test_itransformer_parameters_follow_the_formula(
    lookback: int, horizon: int, width: int, wide: int, layers: int
) -> None:
    d = 8 * width
    model = create_model(
        "itransformer", lookback=lookback, horizon=horizon, channels=3, d_model=d, d_ff=wide, n_layers=layers,
        attention="standard",
    )  # fmt: skip
    block = 4 * (d * d + d) + 2 * d * wide + wide + d + 4 * d
    expected = (lookback + 1) * d + layers * block + 2 * d + (d + 1) * horizon
    assert sum(p.numel() for p in model.parameters()) == expected


def test_the_rest_of_a_primed_model_starts_from_the_weights_of_the_standard_one() -> None:
    standard, primed = small("itransformer"), small("itransformer", primer="full")
    shared = standard.state_dict()
    assert all(torch.equal(shared[key], primed.state_dict()[key]) for key in shared)


def test_channel_embeddings_change_nothing_at_the_start_and_tell_channels_apart_once_learned() -> None:
    plain, knowing = small("itransformer").eval(), small("itransformer", channel_embeddings=True).eval()
    x, time_features, _ = inputs()
    assert torch.equal(plain(x, time_features), knowing(x, time_features))
    same = x[..., :1].expand_as(x)
    assert torch.allclose(knowing(same, time_features)[..., 0], knowing(same, time_features)[..., 1])
    knowing(x, time_features).square().sum().backward()
    vectors = knowing.get_parameter("vectors")
    assert vectors.grad is not None
    assert vectors.grad.shape == (N + M, 12) and vectors.grad.abs().sum(1).min() > 0
    with torch.no_grad():
        vectors[0] += 1
    assert not torch.allclose(knowing(same, time_features)[..., 0], knowing(same, time_features)[..., 1])
    with pytest.raises(InputError, match="made for 2 calendar features"):
        knowing(x)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_default_attention_unless_it_is_asked_for_another(name: str) -> None:
    sizes: dict[str, Any] = {"lookback": L, "horizon": S, "channels": N, "seed": 0, **SMALL.get(name, {})}
    weights, asked = (create_model(name, **sizes, attention=a).state_dict() for a in (None, default_attention(name)))
    assert weights.keys() == asked.keys() and all(torch.equal(weights[key], asked[key]) for key in weights)
    primed = any(key.startswith("primer.") for key in weights)
    assert primed == MODELS[name].supports_primer
    others: list[dict[str, Any]] = [{"attention": "standard"}, *([{"primer": None}] if primed else [])]
    for other in others:
        assert not any(key.startswith("primer.") for key in create_model(name, **sizes, **other).state_dict())
    with pytest.raises(InputError, match=f"unknown attention of model {name} 'primed'"):
        create_model(name, **sizes, attention="primed")


def test_a_primer_and_a_mechanism_win_over_the_attention_that_is_named() -> None:
    sizes: dict[str, Any] = {"lookback": L, "horizon": S, "channels": N, "d_model": 12, "n_heads": 2, "seed": 0}
    ours = create_model("itransformer", **sizes, attention="prime-table", primer="full")
    given = create_model("itransformer", **sizes, primer="full")
    assert {n: p.shape for n, p in ours.named_parameters()} == {n: p.shape for n, p in given.named_parameters()}
    assert create_model("itransformer", **sizes, mechanism="gated").primer is None


def test_itransformer_looks_at_past_marks_only() -> None:
    model = small("itransformer").eval()
    x, time_features, _ = inputs()
    later = time_features.clone()
    later[:, L:] += 1
    earlier = time_features.clone()
    earlier[:, :L] += 1
    assert torch.equal(model(x, later), model(x, time_features))
    assert not torch.equal(model(x, earlier), model(x, time_features))


def test_itransformer_is_the_sum_of_its_published_parts() -> None:
    """One layer, one head, written out with the weights of the module."""
    model = (
        create_model("itransformer", lookback=L, horizon=S, channels=N, d_model=7, n_heads=1, n_layers=1, primer=None)
        .double()
        .eval()
    )
    w = dict(model.named_parameters())
    x = torch.randn(1, L, N, dtype=torch.float64)

    def linear(name: str, z: Tensor) -> Tensor:
        return z @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, z: Tensor) -> Tensor:
        centred = z - z.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]
        )

    mean = x.mean(1, keepdim=True)
    deviation = (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    z = linear("embed", ((x - mean) / deviation).mT)
    q, k, v = (linear(f"blocks.0.attention.{part}", z) for part in ("query", "key", "value"))
    mixed = linear("blocks.0.attention.out", (q @ k.mT / 7**0.5).softmax(-1) @ v)
    z = norm("blocks.0.norm1", z + mixed)
    z = norm("blocks.0.norm2", z + linear("blocks.0.down", nn.functional.gelu(linear("blocks.0.up", z))))
    expected = linear("head", norm("norm_out", z)).mT * deviation + mean
    assert_close(model(x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm", ["instance", "revin", "revin-printed", "shrink", "none"])
def test_norms_bring_a_window_back_to_its_level_as_described(norm: str) -> None:
    layer = small("itransformer", norm=norm).double().norm
    if norm.startswith("revin"):
        torch.nn.init.uniform_(layer.scale, 0.5, 2)  # type: ignore[union-attr,arg-type]
        torch.nn.init.normal_(layer.shift)  # type: ignore[union-attr,arg-type]
    x, _, _ = inputs(torch.float64)
    normal, restore = layer(x)  # type: ignore[operator]
    if norm == "revin-printed":
        assert not torch.allclose(restore(normal), x)
    else:
        assert_close(restore(normal), x)
    if norm == "instance":
        assert_close(normal.mean(1), torch.zeros(B, N, dtype=torch.float64))
        assert_close(normal.std(1, correction=0), torch.ones(B, N, dtype=torch.float64), rtol=1e-3, atol=1e-3)


def test_unknown_norms_and_activations_are_listed() -> None:
    with pytest.raises(InputError, match="unknown norm 'layer'; allowed: instance, none, revin, revin-printed, shrink"):
        small("itransformer", norm="layer")
    with pytest.raises(InputError, match="unknown activation 'swish'; allowed: gelu, relu"):
        small("itransformer", activation="swish")


def test_a_ready_primer_can_be_given() -> None:
    primer = Primer("lead_lag", length=L, d_model=12, n_heads=2, hidden=6)
    model = small("itransformer", primer=primer)
    assert model.primer is primer
