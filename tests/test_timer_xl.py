"""Timer-XL: causal in time, blind to the order of channels, rolled as one would by hand, primed without look-ahead."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.models import create_model
from primecast.models.presets import TABLES, published
from primecast.models.timer_xl import (
    TIME_MECHANISMS,
    ChannelBias,
    TimerXL,
    causal_mask,
    known_until,
    over_patches,
    rotation,
)
from primecast.nn.attention import Prime, split_heads
from primecast.nn.losses import create_loss, mae, mse
from primecast.nn.pair_features import instantaneous, lead_lag, standardize
from primecast.nn.primer import Primer
from primecast.training.optimizer import SCHEDULES
from tests.reference import rotate_by_pairs, time_attention_by_loops

B, N, P, T, D, H = 2, 3, 7, 5, 24, 2
L = P * T
PRIMERS = [None, "full", "table", {"kind": "lead_lag", "prime_self": False, "layers": True, "learn_base": True}]


def model(**options: Any) -> TimerXL:
    torch.manual_seed(0)
    sizes = {"lookback": L, "horizon": P, "channels": N, "patch": P, "d_model": D, "n_heads": H, "d_ff": 11}
    built = create_model("timer_xl", attention="standard", **{**sizes, **options}).double().eval()
    assert isinstance(built, TimerXL)
    return built


def window(batch: int = B, length: int = L) -> Tensor:
    return torch.randn(batch, length, N, dtype=torch.float64).cumsum(1)


# ---------------------------------------------------------------- mask, rotation, bias


@given(channels=st.integers(1, 4), patches=st.integers(1, 5))
def test_a_token_may_look_at_its_own_time_and_before_in_any_channel(channels: int, patches: int) -> None:
    mask = causal_mask(channels, patches)
    assert mask.shape == (channels * patches, channels * patches)
    for m in range(channels):
        for i in range(patches):
            for n in range(channels):
                for j in range(patches):
                    assert bool(mask[m * patches + i, n * patches + j]) == (j <= i)


@pytest.mark.parametrize("size", [4, 8, 20])
def test_rotation_turns_pairs_of_the_first_half_of_a_head(size: int) -> None:
    z = torch.randn(B, H, T, size, dtype=torch.float64)
    index = torch.tensor([0, 1, 5, 2, 100], dtype=torch.float64)
    turned = rotation(index, size)(z)
    for b in range(B):
        for h in range(H):
            for token in range(T):
                expected = rotate_by_pairs(z[b, h, token].tolist(), int(index[token]))
                assert_close(turned[b, h, token], torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12)
    assert torch.equal(turned[..., size // 2 :], z[..., size // 2 :])
    assert_close(turned.norm(dim=-1), z.norm(dim=-1))


@given(shift=st.integers(0, 50))
def test_rotated_products_depend_on_the_difference_of_the_indices_only(shift: int) -> None:
    q, k = torch.randn(2, T, 8, dtype=torch.float64)
    index = torch.arange(T, dtype=torch.float64)
    here, later = rotation(index, 8), rotation(index + shift, 8)
    assert_close(later(q) @ later(k).mT, here(q) @ here(k).mT)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 10])
def test_sizes_whose_half_has_no_pairs_rotate_the_even_number_below(size: int) -> None:
    z = torch.randn(1, T, size, dtype=torch.float64)
    turned = rotation(torch.arange(T, dtype=torch.float64), size)(z)
    width = size // 4 * 2
    assert torch.equal(turned[..., width:], z[..., width:])
    assert width == 0 or not torch.equal(turned[..., :width], z[..., :width])


def test_the_bias_tells_tokens_of_the_same_channel_from_others_and_is_scaled_like_the_products() -> None:
    bias = ChannelBias(H, size=9)
    values = bias(torch.arange(N * T) // T)
    assert values.shape == (1, H, N * T, N * T)
    for h in range(H):
        for asking in range(N * T):
            for answering in range(N * T):
                learned = bias.same[h] if asking // T == answering // T else bias.other[h]
                assert_close(values[0, h, asking, answering], learned / 3)


@pytest.mark.parametrize("rotary", ["time", "flattened"])
@pytest.mark.parametrize("primer", PRIMERS)
@pytest.mark.parametrize("patches", [1, 3])
def test_time_attention_agrees_with_one_pair_of_tokens_at_a_time(patches: int, primer: Any, rotary: str) -> None:
    """What the second layer of a model receives and returns, against the loop with the layer's own weights."""
    built = model(lookback=patches * P, rotary=rotary, primer=primer)
    seen: list[tuple[Tensor, Any, Tensor]] = []
    layer = built.blocks[1].attention
    layer.register_forward_hook(  # type: ignore[union-attr]
        lambda _, given, options, out: seen.append((given[0], options["prime"], out)), with_kwargs=True
    )
    built(window(length=patches * P))
    tokens, prime, out = seen[0]
    assert tokens.shape == (B, N * patches, D)
    q, k, v = (split_heads(part(tokens), H) for part in (layer.query, layer.key, layer.value))  # type: ignore[union-attr,operator]
    slow = time_attention_by_loops(
        q,
        k,
        v,
        patches=patches,
        same=built.biases[1].same,  # type: ignore[arg-type]
        other=built.biases[1].other,  # type: ignore[arg-type]
        filters=None if prime is None else prime.materialize(),
        flattened=rotary == "flattened",
    )
    expected = layer.out(slow.transpose(1, 2).flatten(-2))  # type: ignore[union-attr,operator]
    assert_close(out, expected, rtol=1e-9, atol=1e-10)


# ---------------------------------------------------------------- no look-ahead


NO_LOOK_AHEAD: list[dict[str, Any]] = [
    *({"primer": primer} for primer in PRIMERS),
    {"primer": "instantaneous"},
    {"primer": {"kind": "full", "pairing": "permuted"}},
    {"rotary": "flattened", "primer": "full"},
    *({"mechanism": mechanism, "primer": "full"} for mechanism in TIME_MECHANISMS),
]


@pytest.mark.parametrize("options", NO_LOOK_AHEAD)
@pytest.mark.parametrize("changed", [0, 2, T - 1])
def test_no_token_knows_what_comes_after_its_patch(changed: int, options: dict[str, Any]) -> None:
    built = model(norm="none", **options)
    x = window()
    later = x.clone()
    later[:, changed * P :, 1] = 3 * torch.randn(B, L - changed * P, dtype=torch.float64)
    before, after = built.next_patches(x), built.next_patches(later)
    known = changed * P
    assert_close(after[:, :known], before[:, :known], rtol=1e-12, atol=1e-12)
    for channel in range(N):  # and all channels do know of the change as soon as it has happened
        assert not torch.allclose(after[:, known : known + P, channel], before[:, known : known + P, channel])


def test_instance_normalisation_lets_early_tokens_know_the_level_of_the_whole_window() -> None:
    """As in the public code; the other tests of causality therefore leave it out."""
    built = model(norm="instance")
    x = window()
    later = x.clone()
    later[:, -P:] += 10
    assert not torch.allclose(built.next_patches(later)[:, :P], built.next_patches(x)[:, :P])


def test_known_windows_end_with_the_newest_step_and_go_back_by_repetition() -> None:
    series = torch.arange(12.0).expand(1, 2, 12)
    known = known_until(series, 3)[0, :, 0]
    assert known.tolist() == [
        [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2],
        [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5],
        [6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    ]


def test_features_of_a_repeated_window_are_those_of_the_part_known() -> None:
    """At a patch that divides the look-back: circular lags repeat, Pearson's and Spearman's correlation are exact."""
    series = standardize(torch.randn(B, N, 4 * P, dtype=torch.float64))
    known = standardize(known_until(series, P)[:, 1])
    part = standardize(series[..., : 2 * P])
    assert_close(lead_lag(known), lead_lag(part).repeat(1, 1, 1, 2), rtol=1e-10, atol=1e-12)
    assert_close(instantaneous(known)[..., [0, 2]], instantaneous(part)[..., [0, 2]], rtol=1e-10, atol=1e-12)


def test_a_season_that_fits_the_patch_has_the_same_primer_at_every_patch() -> None:
    series = torch.randn(B, N, P, dtype=torch.float64).repeat(1, 1, T)
    primer = Primer("full", length=L, d_model=D, n_heads=H).double()
    phi = primer(known_until(series, P).flatten(0, 1)).phi.unflatten(0, (B, T))
    assert_close(phi, phi[:, -1:].expand_as(phi))


def test_primers_of_channel_pairs_are_laid_out_over_tokens_by_the_asking_patch() -> None:
    phi = torch.randn(B * T, H, 2, N, N)
    pairs = torch.rand(N, N) < 0.5
    grid = over_patches(Prime(phi, torch.randn(H, 2, 3), pairs=pairs), T)
    assert grid.phi.shape == (B, H, 2, N * T, N * T) and grid.pairs is not None
    for m in range(N):
        for i in range(T):
            for n in range(N):
                for j in range(T):
                    assert torch.equal(grid.phi[..., m * T + i, n * T + j], phi.unflatten(0, (B, T))[:, i, ..., m, n])
                    assert grid.pairs[m * T + i, n * T + j] == pairs[m, n]


def test_with_one_patch_the_primer_is_the_plain_one_of_channel_pairs() -> None:
    built = model(lookback=P, primer="full", norm="none")
    seen: list[Prime] = []
    built.blocks[0].register_forward_hook(lambda _, __, options, ___: seen.append(options["prime"]), with_kwargs=True)
    x = window(length=P)
    built(x)
    assert built.primer is not None
    assert_close(seen[0].phi, built.primer(x.mT).phi)


# ---------------------------------------------------------------- forecast


@pytest.mark.parametrize("primer", [None, "full"])
@pytest.mark.parametrize("norm", ["instance", "revin", "none"])
@pytest.mark.parametrize("patches", [1, 3])
def test_a_long_forecast_is_the_short_one_repeated_by_hand(patches: int, norm: str, primer: Any) -> None:
    lookback, horizon = patches * P, 3 * P + 2
    sizes = {"lookback": lookback, "norm": norm, "primer": primer}
    short, long = model(**sizes, horizon=P), model(**sizes, horizon=horizon)
    x = window(length=lookback)
    first = short(x)
    second = short(torch.cat([x, first], dim=1)[:, -lookback:])
    third = short(torch.cat([x, first, second], dim=1)[:, -lookback:])
    fourth = short(torch.cat([x, first, second, third], dim=1)[:, -lookback:])
    assert_close(long(x), torch.cat([first, second, third, fourth[:, :2]], dim=1), rtol=1e-10, atol=1e-10)


def test_the_forecast_is_what_the_last_tokens_foretell() -> None:
    built = model()
    x = window()
    assert_close(built(x), built.next_patches(x)[:, -P:])
    assert torch.equal(model(horizon=3)(x), built(x)[:, :3])


def test_training_and_evaluation_forecast_the_same_without_dropout() -> None:
    built = model(horizon=2 * P, dropout=0.0, primer="full")
    x = window()
    assert torch.equal(built.train()(x), built.eval()(x))


def test_calendar_marks_are_ignored() -> None:
    built, marked = model(), model(n_time_features=4)
    x = window()
    assert torch.equal(marked(x, torch.randn(B, L + P, 4, dtype=torch.float64)), built(x))


def test_the_direct_head_reads_the_last_token_of_each_channel() -> None:
    built = model(head="direct", horizon=2 * P + 3, norm="none")
    assert built.head.weight.shape == (2 * P + 3, D)
    tokens: list[Tensor] = []
    built.norm_out.register_forward_hook(lambda _, __, out: tokens.append(out))
    x = window()
    forecast = built(x)
    assert len(tokens) == 1
    for channel in range(N):
        last = tokens[0][:, channel * T + T - 1]
        assert_close(forecast[..., channel], last @ built.head.weight.T + built.head.bias)
    y = torch.randn(B, 2 * P + 3, N, dtype=torch.float64)
    assert_close(built.training_loss(x, y, None, mse), mse(forecast, y))


def test_without_a_primer_a_model_takes_windows_of_any_number_of_patches() -> None:
    built, longer = model(), model(lookback=3 * L)
    x = window(length=3 * L)
    assert torch.equal(built(x), longer(x))
    with pytest.raises(InputError, match=f"made for a look-back of {L} steps, the windows have {3 * L}"):
        model(primer="full")(x)


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("loss", [mse, mae, create_loss("huber", delta=0.3)])
@pytest.mark.parametrize("horizon", [1, 4, P, P + 1, 3 * P])
def test_training_teaches_every_token_its_next_patch(horizon: int, loss: Any) -> None:
    built = model(horizon=horizon)
    x, y = window(), torch.randn(B, horizon, N, dtype=torch.float64)
    told = built.next_patches(x)
    errors = []
    for step in range(L):  # what is told of step P + `step`, against the truth, as far as it is known
        if step + P < L:
            errors.append((told[:, step], x[:, step + P]))
        elif step + P - L < horizon:
            errors.append((told[:, step], y[:, step + P - L]))
    expected = loss(*(torch.stack(part, dim=1) for part in zip(*errors, strict=True)))
    assert_close(built.training_loss(x, y, None, loss), expected)


def test_with_one_patch_training_is_regression_on_the_horizon() -> None:
    built = model(lookback=P)
    x, y = window(length=P), torch.randn(B, P, N, dtype=torch.float64)
    assert torch.equal(built.training_loss(x, y, None, mse), mse(built(x), y))


def test_losses_see_one_patch_at_a_time() -> None:
    seen = []

    def loss(forecast: Tensor, truth: Tensor) -> Tensor:
        seen.append(tuple(forecast.shape))
        return mse(forecast, truth)

    model(horizon=3).training_loss(window(), torch.randn(B, 3, N, dtype=torch.float64), None, loss)
    assert seen == [(B, P, N)] * (T - 1) + [(B, 3, N)]


@pytest.mark.parametrize("primer", PRIMERS)
def test_training_reaches_every_parameter(primer: Any) -> None:
    built = model(primer=primer).train()
    built.training_loss(window(), torch.randn(B, P, N, dtype=torch.float64), None, mse).backward()
    for name, parameter in built.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all() and parameter.grad.any(), name


# ---------------------------------------------------------------- channels


@pytest.mark.parametrize("primer", [None, "full"])
@pytest.mark.parametrize("patches", [1, 3])
def test_the_order_of_channels_matters_to_the_flattened_rotation_only(patches: int, primer: Any) -> None:
    x, order = window(length=patches * P), torch.tensor([2, 0, 1])
    sizes = {"lookback": patches * P, "primer": primer, "horizon": 2 * P}
    by_time, by_token = model(**sizes, rotary="time"), model(**sizes, rotary="flattened")
    assert_close(by_time(x[..., order]), by_time(x)[..., order])
    assert not torch.allclose(by_token(x[..., order]), by_token(x)[..., order])


# ---------------------------------------------------------------- sizes and settings


def parameters(**options: Any) -> int:
    sizes = {"lookback": 96, "horizon": 96, "channels": 7}
    built = create_model("timer_xl", attention="standard", **{**sizes, **options})
    return sum(p.numel() for p in built.parameters())


@pytest.mark.parametrize(
    ("dataset", "millions"),
    [("ETTh1", 8.60), ("ECL", 15.9), ("Weather", 12.7), ("Traffic", 12.7), ("Solar-Energy", 19.0)],
)
def test_timer_xl_has_the_published_number_of_parameters(dataset: str, millions: float) -> None:
    count = parameters(**published("timer_xl", dataset, 96).model)
    assert round(count / 1e6, 2 if dataset == "ETTh1" else 1) == millions


@given(
    patch=st.integers(1, 12), patches=st.integers(1, 3), horizon=st.integers(1, 30), heads=st.integers(1, 4),
    wide=st.integers(1, 20), layers=st.integers(1, 3), rolling=st.booleans(),
)  # fmt: skip
def test_parameters_follow_the_formula(
    patch: int, patches: int, horizon: int, heads: int, wide: int, layers: int, rolling: bool
) -> None:
    d = 4 * heads
    count = parameters(
        lookback=patch * patches, horizon=horizon, patch=patch, d_model=d, n_heads=heads, d_ff=wide, n_layers=layers,
        head="rolling" if rolling else "direct",
    )  # fmt: skip
    block = 4 * (d * d + d) + 2 * d * wide + wide + d + 4 * d + 2 * heads
    out = patch if rolling else horizon
    assert count == patch * d + d + layers * block + 2 * d + d * out + out


def test_the_rest_of_a_primed_model_starts_from_the_weights_of_the_standard_one() -> None:
    standard, primed = model().state_dict(), model(primer="full").state_dict()
    assert all(torch.equal(standard[key], primed[key]) for key in standard)


def test_settings_can_be_used_and_say_where_they_come_from() -> None:
    paper = {"ETTh1", "ETTh2", "ETTm1", "ETTm2", "Exchange", "Weather", "Solar-Energy", "ECL", "Traffic", "PEMS03"}
    rows = {name: published("timer_xl", name, 96) for name in TABLES["timer_xl"] if name != "all"}
    assert paper | {"PEMS08"} <= set(rows)
    for row in rows.values():
        assert row.training["schedule"] in SCHEDULES and row.note
    assert rows["ETTm2"] == replace(rows["ETTh1"], note="Follows ETTh1.")


def test_what_cannot_be_used_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="lookback 96 is not a multiple of patch 36; give a patch that divides it"):
        parameters(patch=36)
    with pytest.raises(InputError, match="patch is 0; it must be a whole number of at least 1"):
        parameters(patch=0)
    with pytest.raises(InputError, match=r"unknown rotary 'flat'.*; allowed: flattened, time"):
        parameters(rotary="flat")
    with pytest.raises(InputError, match=r"unknown head 'roll'.*; allowed: direct, rolling"):
        parameters(head="roll")
    with pytest.raises(InputError, match="unknown mechanism of timer_xl 'selective'; allowed: diff"):
        parameters(mechanism="selective")
    with pytest.raises(InputError, match=f"windows of {L - 1} steps cannot be cut into patches of {P}"):
        model()(window(length=L - 1))
