"""LIFT: leads are found where they were planted, the refiner is its formula, and a frozen backbone stays as it was."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.data.windows import Batch
from primecast.errors import InputError
from primecast.experiments.spec import Spec, resolve
from primecast.models import create_model, lift, list_models
from primecast.models.lift import LIFT, Leads, Refiner, aligned, find_leads
from primecast.nn.losses import mse
from primecast.nn.pair_features import lead_lag, standardize
from primecast.training.loop import fit
from tests import test_models
from tests.reference import leads_by_loops, refine_by_loops

B, N, L, H, K, S = 2, 5, 23, 11, 3, 7


def windows(batch: int = B, channels: int = N, length: int = L) -> Tensor:
    return torch.randn(batch, channels, length, dtype=torch.float64)


def small(**options: Any) -> LIFT:
    model = create_model("lift", lookback=L, horizon=H, channels=N, **{"leaders": K, "states": S, **options})
    assert isinstance(model, LIFT)
    return model.double().eval()


def trained(model: LIFT) -> LIFT:
    """As if it had learnt something: no parameter of the refiner is left where it started."""
    for parameter in model.refiner.parameters():
        nn.init.uniform_(parameter, 0.1, 0.5)
    return model


# ---------------------------------------------------------------- who leads whom


@pytest.mark.parametrize("estimate", ["circular", "overlap"])
@pytest.mark.parametrize("length", [22, 23])
def test_leads_agree_with_sums_and_comparisons_written_out(estimate: str, length: int) -> None:
    series = standardize(windows(length=length))
    channel, steps, correlation = find_leads(series, K, estimate=estimate)
    for b in range(B):
        expected = leads_by_loops(series[b].numpy(), K, circular=estimate == "circular")
        assert channel[b].tolist() == [[j for j, _, _ in row] for row in expected]
        assert steps[b].tolist() == [[lag for _, lag, _ in row] for row in expected]
        assert_close(correlation[b], torch.tensor([[r for _, _, r in row] for row in expected], dtype=torch.float64))


@pytest.mark.parametrize("sign", [1, -1])
@given(steps=st.integers(1, L - 2), seed=st.integers(0, 1000))
def test_a_planted_lead_is_found_with_its_sign(sign: int, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    leader = torch.randn(1, 1, L, generator=generator, dtype=torch.float64)
    follower = sign * leader.roll(steps, dims=-1)  # what the leader does now, the follower does `steps` later
    channel, found, correlation = find_leads(standardize(torch.cat([leader, follower], dim=1)), 1)
    assert channel[0, 1, 0] == 0 and found[0, 1, 0] == steps
    assert_close(correlation[0, 1, 0].item(), float(sign))


def test_leads_are_peaks_of_the_lags_that_primers_see_with_the_leader_as_row() -> None:
    series = standardize(windows())
    channel, steps, correlation = find_leads(series, K)
    lags = lead_lag(series)  # R_ij peaks at t when i leads j by t
    for b in range(B):
        for i in range(N):
            assert_close(correlation[b, i], lags[b, channel[b, i], i, steps[b, i]])


def test_without_wrap_around_a_lead_is_what_overlapping_steps_say() -> None:
    leader = torch.zeros(1, 1, L, dtype=torch.float64)
    leader[..., 3] = 1
    follower = leader.roll(5, dims=-1)
    both = torch.cat([leader, follower], dim=1)
    assert find_leads(both, 1, estimate="overlap").steps[0, 1, 0] == 5
    # Around the ring the follower also leads, by all the rest of the way; on the overlap it does not.
    assert find_leads(both, 2, estimate="circular").correlation[0, 0].abs().max() > 0
    assert find_leads(both, 2, estimate="overlap").correlation[0, 0].abs().max() < 1e-12


def test_of_two_equal_peaks_the_shorter_lead_wins() -> None:
    steps = torch.arange(24, dtype=torch.float64)
    series = standardize(torch.sin(2 * torch.pi * steps / 8).expand(1, 1, -1))
    assert find_leads(series, 1).steps.item() == 4  # half a period, with a minus sign; as strong as 8, 12, 16 and 20


def test_a_constant_channel_leads_nobody_and_follows_nobody() -> None:
    series = windows()
    series[:, 2] = 0
    channel, _, correlation = find_leads(series, N)
    assert (correlation[:, 2] == 0).all() and (correlation[channel == 2] == 0).all()


def test_leads_do_not_depend_on_how_many_channels_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    series = standardize(windows())
    together = find_leads(series, K)
    monkeypatch.setattr(lift, "AT_ONCE", 2 * B * N * L)
    for one, other in zip(together, find_leads(series, K), strict=True):
        assert_close(one, other)


def test_the_aligned_leader_of_a_perfect_follower_is_its_future() -> None:
    generator = np.random.default_rng(0)
    leader = torch.from_numpy(generator.normal(size=L + H + 4))
    both = torch.stack([leader[4:], -leader[:-4]])[None]  # the second does what the first did 4 steps before, negated
    past, future = both[..., :L], both[..., L:]
    leads = Leads(torch.tensor([[[0], [0]]]), torch.tensor([[[1], [4]]]), torch.tensor([[[0.1], [-0.9]]]).double())
    assert_close(aligned(past, future, leads)[:, 1, 0], future[:, 1])


# ---------------------------------------------------------------- the refiner


@pytest.mark.parametrize("horizon", [10, 11])
def test_the_refiner_agrees_with_its_formula_written_out(horizon: int) -> None:
    refiner = Refiner(lookback=L, horizon=horizon, channels=N, leaders=K, states=S, temperature=0.7).double()
    for parameter in refiner.parameters():
        if parameter.ndim:
            nn.init.normal_(parameter)
    past, future, seen = windows(), windows(length=horizon), windows()
    leads = find_leads(standardize(past), K)
    weights = {name: value.numpy() for name, value in refiner.state_dict().items()}
    refined = refiner(past, future, leads, seen=seen)
    for b in range(B):
        rows = [list(zip(*(part[b, i].tolist() for part in leads), strict=True)) for i in range(N)]
        expected = refine_by_loops(past[b].numpy(), future[b].numpy(), rows, seen[b].numpy(), weights)
        assert_close(refined[b], torch.from_numpy(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("channels", "leaders", "states", "horizon", "expected"), [(7, 4, 8, 96, 32_977), (321, 8, 12, 96, 109_485)]
)
def test_the_refiner_has_the_published_number_of_parameters(
    channels: int, leaders: int, states: int, horizon: int, expected: int
) -> None:
    model = create_model(
        "lift", lookback=96, horizon=horizon, channels=channels, leaders=leaders, states=states, temperature=0.1
    )
    assert sum(p.numel() for name, p in model.named_parameters() if name.startswith("refiner.")) == expected


@given(lookback=st.integers(3, 20), horizon=st.integers(1, 20), channels=st.integers(1, 6), states=st.integers(1, 4))
def test_refiner_parameters_follow_the_formula(lookback: int, horizon: int, channels: int, states: int) -> None:
    model = create_model("lift", lookback=lookback, horizon=horizon, channels=channels, states=states)
    k, s, f = min(4, channels), states, horizon // 2 + 1
    expected = 1 + 2 * (3 * f * f + f) + s * f * (2 * k + 1) * (k + 1)
    if s > 1:
        expected += lookback * s + channels * s + s
    assert sum(p.numel() for name, p in model.named_parameters() if name.startswith("refiner.")) == expected


def test_no_gradient_flows_through_the_leaders_forecasts() -> None:
    """Against automatic differentiation of the formula written out with constant leaders, in float64."""
    refiner = Refiner(lookback=L, horizon=H, channels=N, leaders=K, states=S, temperature=0.7).double()
    for parameter in refiner.parameters():
        nn.init.uniform_(parameter, 0.1, 0.5)
    past, seen, weight = windows(), windows(), windows(length=H)
    future = windows(length=H).requires_grad_()
    leads = find_leads(standardize(past), K)
    (refiner(past, future, leads, seen=seen) * weight).sum().backward()

    f = H // 2 + 1
    with torch.no_grad():
        constant = torch.fft.rfft(aligned(past, future, leads))
        strengths = torch.cat([torch.ones(B, N, 1, dtype=torch.float64), leads.correlation.abs()], dim=-1)
        mixed = (strengths / refiner.temperature).softmax(-1)[..., 1:]
        states = (refiner.state + refiner.channel_state + refiner.route(seen)).softmax(-1)  # type: ignore[misc]
        maps = torch.einsum("bns,sko->bnko", states, refiner.filters)
        filters = (torch.einsum("bnk,bnko->bno", mixed, maps[..., :-1, :]) + maps[..., -1, :]).unflatten(-1, (-1, f))
    twin = future.detach().clone().requires_grad_()
    own = torch.fft.rfft(twin)
    leading = filters[:, :, 1 : K + 1] * constant
    parts = [leading.sum(2), (filters[:, :, K + 1 :] * (leading - own[:, :, None])).sum(2), filters[:, :, 0] * own]
    out = torch.cat(parts, -1) @ torch.complex(*refiner.mix).mT + torch.complex(*refiner.mix_bias)
    ((twin + torch.fft.irfft(out, n=H)) * weight).sum().backward()
    assert_close(future.grad, twin.grad, rtol=1e-10, atol=1e-10)


def test_with_one_state_the_refiner_is_its_formula_and_has_no_router() -> None:
    refiner = Refiner(lookback=L, horizon=H, channels=N, leaders=K, states=1, temperature=0.7).double()
    assert {name for name, _ in refiner.named_parameters()} == {"temperature", "filters", "mix", "mix_bias"}
    for parameter in refiner.parameters():
        nn.init.uniform_(parameter, 0.1, 0.5)
    past, future = windows(), windows(length=H)
    leads = find_leads(standardize(past), K)
    weights = {name: value.numpy() for name, value in refiner.state_dict().items()}
    router = {"route.weight": np.ones((1, L)), "channel_state": np.ones((N, 1)), "state": np.ones(1)}
    refined = refiner(past, future, leads, seen=past)
    for b in range(B):
        rows = [list(zip(*(part[b, i].tolist() for part in leads), strict=True)) for i in range(N)]
        expected = refine_by_loops(past[b].numpy(), future[b].numpy(), rows, past[b].numpy(), weights | router)
        assert_close(refined[b], torch.from_numpy(expected), rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------- the model


def test_an_untrained_lift_forecasts_what_its_backbone_does() -> None:
    model, x = small(), windows().mT
    assert_close(model(x), model.backbone(x))


def test_it_is_its_backbone_and_the_refiner_on_normalised_windows() -> None:
    model, x = trained(small()), 3 * windows().mT + 5
    mean, deviation = x.mean(1, keepdim=True), (x.var(1, correction=0, keepdim=True) + 1e-8).sqrt()
    past, future = ((x - mean) / deviation).mT, ((model.backbone(x) - mean) / deviation).mT
    expected = model.refiner(past, future, find_leads(past, K), seen=x.mT)
    assert_close(model(x), expected.mT * deviation + mean)
    assert not torch.allclose(model(x), model.backbone(x))


def test_a_router_that_sees_normalised_windows_carries_scale_and_level_over() -> None:
    x = windows().mT
    plain = {"norm": "instance"}
    model = trained(small(router="normal", backbone_args=plain))
    assert_close(model(6 * x - 30), 6 * model(x) - 30, rtol=1e-4, atol=1e-4)
    raw = trained(small(router="raw", backbone_args=plain))
    nn.init.normal_(raw.refiner.filters)
    assert raw.refiner.route is not None
    nn.init.normal_(raw.refiner.route.weight)
    assert not torch.allclose(raw(6 * x - 30), 6 * raw(x) - 30, rtol=1e-4, atol=1e-4)


def test_what_a_leader_did_last_changes_the_forecast_of_its_follower() -> None:
    model = trained(small(leaders=1))
    noise = windows(batch=1, channels=1)
    x = torch.cat([noise, noise.roll(4, dims=-1), windows(batch=1, channels=N - 2)], dim=1).mT
    later = x.clone()
    later[:, -1, 0] += 0.01
    assert find_leads(standardize(later.mT), 1).channel[0, 1, 0] == 0
    assert (model(later) - model(x))[..., 1].abs().max() > 1e-6
    assert (model.backbone(later) - model.backbone(x))[..., 1].abs().max() == 0


@pytest.mark.parametrize("name", [name for name in list_models() if name != "lift"])
def test_every_model_can_be_the_backbone(name: str) -> None:
    sizes: dict[str, Any] = {"lookback": test_models.L, "horizon": test_models.S, "channels": test_models.N}
    options = dict(test_models.SMALL.get(name, {}))
    n_time_features = options.pop("n_time_features", 0)
    model = create_model(
        "lift", **sizes, n_time_features=n_time_features, backbone=name, backbone_args=options, leaders=2
    ).eval()
    x, calendar, _ = test_models.inputs()
    forecast = model(x, calendar)
    assert_close(forecast, model.backbone(x, calendar), rtol=1e-4, atol=1e-4)  # type: ignore[operator]


def test_a_ready_model_can_be_the_backbone() -> None:
    ready = create_model("dlinear", lookback=L, horizon=H, channels=N)
    assert small(backbone=ready).backbone is ready
    with pytest.raises(InputError, match="backbone_args are for a backbone given by name"):
        small(backbone=ready, backbone_args={"kernel": 5})


def test_with_few_channels_all_of_them_can_lead_and_no_more_can_be_asked_for() -> None:
    model = create_model("lift", lookback=L, horizon=H, channels=2)
    assert model.leaders == 2
    with pytest.raises(InputError, match="leaders 3 must be at least 1 and at most the number of channels, 2"):
        create_model("lift", lookback=L, horizon=H, channels=2, leaders=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "dliner"}, r"unknown model 'dliner' \(did you mean 'dlinear'\?\)"),
        ({"backbone_args": {"kernle": 3}}, "unknown argument of model dlinear 'kernle'"),
        ({"backbone_args": {"horizon": 3}}, "horizon of the backbone is that of LIFT"),
        ({"states": 0}, "states is 0; it must be a whole number of at least 1"),
        ({"temperature": 0.0}, r"temperature 0.0 must be greater than 0"),
        ({"estimate": "accurate"}, "unknown estimate 'accurate'; allowed: circular, overlap"),
        ({"router": "log"}, "unknown router 'log'; allowed: normal, raw"),
    ],
)
def test_what_cannot_be_used_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**options)
    with pytest.raises(InputError, match="lookback 2 has no inner lag"):
        create_model("lift", lookback=2, horizon=H, channels=N)


# ---------------------------------------------------------------- two stages


@dataclass
class Held:
    """Windows held in memory, as `fit` takes them."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor) -> Batch:
        return Batch(self.x[index], self.y[index], None)


def test_in_two_stages_the_first_trains_the_backbone_and_the_second_leaves_it_bit_identical() -> None:
    options = {"d_model": 6, "n_heads": 2, "d_ff": 7, "n_layers": 1, "dropout": 0.5}
    model = small(backbone="patchtst", backbone_args=options).float()
    held = Held(torch.randn(24, L, N).cumsum(1), torch.randn(24, H, N))
    training: dict[str, Any] = {"loss": mse, "lr": 1e-2, "batch_size": 8, "epochs": 2, "patience": 2, "seed": 0}

    def state() -> dict[str, Tensor]:
        return {name: value.clone() for name, value in model.state_dict().items()}

    start = state()
    fit(model.backbone, held, held, **training, progress="off")
    middle = state()
    assert not torch.equal(middle["backbone.head.weight"], start["backbone.head.weight"])
    assert all(torch.equal(middle[name], start[name]) for name in start if name.startswith("refiner."))

    fit(model, held, held, **training, parameters="refiner", progress="off")
    end = state()
    # Running statistics of its batch norms too, which no gradient moves but a training mode would.
    assert all(torch.equal(end[name], middle[name]) for name in start if name.startswith("backbone."))
    assert not torch.equal(end["refiner.mix"], middle["refiner.mix"])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_joint_training_moves_both_parts() -> None:
    model = small().float()
    held = Held(torch.randn(24, L, N), torch.randn(24, H, N))
    start = {name: value.clone() for name, value in model.named_parameters()}
    fit(model, held, held, loss=mse, lr=1e-2, batch_size=8, epochs=1, patience=1, seed=0, progress="off")
    assert not any(torch.equal(start[name], value) for name, value in model.named_parameters())


def test_a_backbone_that_learns_is_in_training_mode_and_a_frozen_one_is_not() -> None:
    model = small(backbone="patchtst", backbone_args={"d_model": 6, "n_heads": 2})
    assert model.train().backbone.training
    model.backbone.requires_grad_(False)
    assert model.train().training and not model.backbone.training and model.refiner.training


@pytest.mark.parametrize(
    ("dataset", "horizon", "expected"),
    [("ETTh1", 96, (1, 1, 5e-3, 1)), ("ETTh2", 336, (2, 1, 5e-4, 1)), ("ETTm2", 192, (2, 1, 1e-3, 1)),
     ("Weather", 96, (4, 12, 1e-3, 1)), ("ECL", 720, (4, 2, 5e-3, 0.1)), ("PEMS08", 12, (1, 1, 5e-3, 1))],
)  # fmt: skip
def test_leaders_states_and_rate_are_the_published_ones_of_the_nearest_horizon(
    dataset: str, horizon: int, expected: tuple[float, ...]
) -> None:
    plan = resolve(Spec(dataset=dataset, model="lift", attention="standard", horizon=horizon))
    model = plan.model
    found = (model["leaders"], model["states"], plan.training["lr"], model.get("temperature", 1))
    assert found == expected
