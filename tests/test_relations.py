"""Relations: leads scored against systems whose truth is known, attention and primers against their slow twins."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from primecast.analysis.maps import channel_maps, distance_from_mean_filter
from primecast.analysis.relations import Relations, find_leads, mean_correlation
from primecast.analysis.sensor_ablation import ablate_sensors
from primecast.data.synthetic import SyntheticSystem, lagged_system
from primecast.data.windows import Windows
from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.models import create_model
from primecast.nn.attention import Prime
from primecast.nn.pair_features import lead_lag
from primecast.nn.primer import Primer


def held_out(system: SyntheticSystem, rows: int = 601) -> Tensor:
    return torch.from_numpy(system.dataset.values[-rows:]).float()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_leads_of_a_known_system_are_found_and_noise_has_none(seed: int) -> None:
    system = lagged_system(rows=2003, seed=seed, nonlinear=[("tanh", 4)])
    lead, strength = find_leads(held_out(system), lookback=47)
    kind = np.array(system.truth.kind)
    related = kind != "none"
    np.testing.assert_array_equal(lead[related], system.truth.lead[related])
    assert np.isnan(lead[~related]).all()
    assert np.abs(strength[related]).min() > 0.5


def test_pure_noise_has_no_lead_at_all() -> None:
    false = 0
    for seed in range(7):
        noise = torch.randn(503, 11, generator=torch.Generator().manual_seed(seed))
        lead, _ = find_leads(noise, lookback=31)
        false += int(not np.isnan(lead).all())
    assert false <= 1


def test_channels_that_share_no_more_than_a_season_have_no_lead() -> None:
    time = torch.arange(701)[:, None]
    noise = torch.randn(701, 5, generator=torch.Generator().manual_seed(0))
    lead, strength = find_leads(torch.sin(2 * math.pi * time / 24) + 0.7 * noise, lookback=48, season=24)
    assert np.abs(strength).min() > 0.3  # they do correlate
    assert np.isnan(lead).all()


def test_the_mean_correlation_is_the_one_the_primer_sees() -> None:
    series = torch.randn(101, 3).double()
    found = mean_correlation(series, 13, 6)
    windows = series.unfold(0, 13, 6)
    centered = windows - windows.mean(-1, keepdim=True)
    slow = lead_lag(centered / centered.square().mean(-1, keepdim=True).sqrt()).mean(0)
    for lag in range(-6, 7):
        torch.testing.assert_close(found[..., 6 + lag], slow[..., lag % 13])


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="at least 3 look-backs of held-out rows, 93; there are 90"):
        find_leads(torch.randn(90, 2), lookback=31)


def test_a_level_that_cannot_be_honoured_is_refused() -> None:
    series = torch.randn(101, 3, generator=torch.Generator().manual_seed(0))
    series[5:, 1] = series[:-5, 0]
    for alpha in (0.005, 0.5, 0.999):
        assert find_leads(series, lookback=31, alpha=alpha)[0][0, 1] == 5
    for bad in (0, 0.004, 1, 5, -0.1, math.nan, True):
        with pytest.raises(InputError, match=f"alpha is {bad}; it must be a number of at least 0.005 and below 1"):
            find_leads(series, lookback=31, alpha=bad)


# ---------------------------------------------------------------- inside the model


@pytest.mark.parametrize("options", [{}, {"base": "identity"}, {"sparsity": 0.4, "tokens": 5}, {"grouped": False}])
def test_the_distance_from_the_mean_filter_is_that_of_the_materialized_filters(options: dict[str, object]) -> None:
    primer = Primer(length=13, d_model=12, n_heads=3, hidden=6, gain=1.0, **options).double()  # type: ignore[arg-type]
    prime: Prime = primer(torch.randn(2, 5, 13).double())
    filters = prime.materialize()[:, :3, :3]
    mean = filters.mean((1, 2), keepdim=True)
    size = filters.square().sum(-1).mean((1, 2)).sqrt()
    slow = (filters - mean).square().sum(-1).sqrt() / size[:, None, None]
    torch.testing.assert_close(distance_from_mean_filter(prime, 3), slow)


def windows_of(channels: int, *, rows: int = 61, time_features: int = 0) -> Windows:
    return Windows(
        series=torch.randn(rows, channels),
        time_features=torch.randn(rows, time_features) if time_features else None,
        start=0,
        lookback=13,
        horizon=7,
    )


def test_attention_is_averaged_over_layers_heads_and_windows() -> None:
    model = create_model(
        "itransformer", lookback=13, horizon=7, channels=3, n_time_features=2, d_model=8, n_heads=2, primer="full"
    ).eval()
    windows = windows_of(3, time_features=2)
    maps: list[Tensor] = []
    for module in model.modules():
        if type(module).__name__ == "AttentionMap":
            module.register_forward_hook(lambda module, inputs, output: maps.append(output))
    with torch.no_grad():
        for number in range(len(windows)):
            batch = windows.batch(torch.tensor([number]))
            model(batch.x, batch.time_features)
    slow = torch.stack([one[0].mean(0)[:3, :3] for one in maps]).mean(0)
    attention, primer = channel_maps(model, windows, channels=3, batch_size=11)
    assert attention is not None and primer is not None
    np.testing.assert_allclose(attention, slow.double().numpy(), rtol=1e-5)
    assert (attention.sum(axis=1) < 1).all()  # the rest goes to the calendar
    assert primer.shape == (3, 3) and (primer > 0).all()


def test_a_model_without_attention_or_primer_has_none() -> None:
    assert channel_maps(create_model("dlinear", lookback=13, horizon=7, channels=3), windows_of(3), channels=3) == (
        None,
        None,
    )


def relations(attention: np.ndarray | None = None) -> Relations:
    names = ["a", "b", "c"]
    lead = np.array([[np.nan, 2, np.nan], [-2, np.nan, 0], [np.nan, 0, np.nan]])
    strength = np.array([[1, -0.9, 0.1], [-0.9, 1, 0.6], [0.1, 0.6, 1]])
    frame = pd.DataFrame(lead, names, names)
    return Relations(
        lead=frame,
        lead_time=frame.apply(lambda column: column * pd.Timedelta("1h")),
        strength=pd.DataFrame(strength, names, names),
        attention=None if attention is None else pd.DataFrame(attention, names, names),
        primer=None,
    )


def test_the_graph_points_from_leader_to_follower() -> None:
    attention = np.array([[0.5, 0.2, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    graph = relations(attention).graph()
    assert sorted(graph.edges) == [("a", "b"), ("b", "c"), ("c", "b")]
    assert graph.edges["a", "b"] == {"steps": 2, "strength": -0.9, "attention": 0.7}
    assert sorted(relations().graph(threshold=0.7).edges) == [("a", "b")]
    assert sorted(relations().graph(threshold=0.7).nodes) == ["a", "b", "c"]


def test_pairs_are_listed_once_with_the_strongest_first() -> None:
    pairs = relations().pairs()
    assert pairs[["leader", "follower", "steps"]].to_numpy().tolist() == [["a", "b", 2], ["b", "c", 0]]
    assert pairs["time"].tolist() == [pd.Timedelta("2h"), pd.Timedelta(0)]


def test_concentration_tells_uniform_attention_from_attention_to_one_channel() -> None:
    even = relations(np.full((3, 3), 0.25)).concentration()
    assert (even.fraction, even.entropy, even.diagonal, even.calendar) == pytest.approx((1 / 3, 1, 1 / 3, 0.25))
    one = relations(np.array([[0, 1.0, 0]] * 3)).concentration()
    assert (one.channel, one.fraction, one.entropy) == ("b", 1.0, 0.0) and one.diagonal == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="no attention between channels"):
        relations().concentration()


# ---------------------------------------------------------------- sensor ablation


class Copies(nn.Module):
    """Forecasts of channel 0 repeat it; of channel 1, what channel 0 last was; of channel 2, what channel 2 was."""

    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        last = x[:, -1:, [0, 0, 2]]
        return last.expand(-1, 7, -1)


def test_sensor_ablation_measures_the_error_with_the_channel_held() -> None:
    steps = torch.arange(61.0)
    base = torch.stack([torch.sin(steps / 5), torch.sin(steps / 5) + 0.1, torch.cos(steps / 3)], dim=1)
    windows = Windows(series=base, time_features=None, start=0, lookback=13, horizon=7)
    for hold in ("mean", "last"):
        ablation = ablate_sensors(
            Copies(), windows, names=["source", "copy", "alone"], targets=3, hold=hold, batch_size=11
        )
        errors = {}
        for held in (None, 0):
            batch = windows.batch(torch.arange(len(windows)))
            x = batch.x.clone()
            if held is not None:
                x[..., held] = 0 if hold == "mean" else x[:, :1, held]
            errors[held] = (Copies()(x) - batch.y).square().mean((0, 1))
        by_hand = (errors[0] / errors[None] - 1)[1].item()
        assert ablation.growth.loc["copy", "source"] == pytest.approx(by_hand, rel=1e-5)
        assert (ablation.growth.loc["alone", ["source", "copy"]] == 0).all()
        assert (ablation.growth["copy"] == 0).all()  # no forecast depends on it, not even its own
    assert ablation.single_points() == ["source"]
    assert ablation.summary.index[0] == "source" and ablation.summary.loc["source", "channel"] == "copy"


def test_an_unknown_ablation_lists_the_known() -> None:
    with pytest.raises(InputError, match="unknown sensor ablation 'zero'.*last, mean"):
        ablate_sensors(Copies(), windows_of(3), names=["a", "b", "c"], targets=3, hold="zero")


# ---------------------------------------------------------------- through the front door


def test_a_fitted_forecaster_names_what_it_finds() -> None:
    system = lagged_system(rows=1709, seed=0, lags=[[3]], instant=0, nonlinear=[], independent=1)
    df = pd.DataFrame(system.dataset.values, index=system.dataset.index, columns=list(system.dataset.names))
    forecaster = Forecaster(
        horizon=5, lookback=29, epochs=6, lr=3e-3, batch_size=64, progress="off",
        model_args={"d_model": 16, "n_heads": 2, "n_layers": 1},
    ).fit(df)  # fmt: skip
    found = forecaster.relations()
    names = list(df.columns)
    for frame in (found.lead, found.lead_time, found.strength, found.attention, found.primer):
        assert frame is not None and list(frame.columns) == list(frame.index) == names
    assert found.lead.loc["driver 0", "driver 0 after 3"] == 3
    assert found.lead_time is not None
    assert found.lead_time.loc["driver 0 after 3", "driver 0"] == -pd.Timedelta("3h")
    assert found.pairs()["leader"].tolist() == ["driver 0"]
    ablation = forecaster.sensor_ablation()
    assert list(ablation.growth.index) == list(ablation.growth.columns) == names
    own = np.diag(ablation.growth)
    assert (own[[0, 2]] > 0).all()  # a channel without its own past is forecast worse


@pytest.mark.parametrize(
    ("freq", "zone", "time"),
    [
        ("MS", None, None),
        ("B", None, None),
        ("W", None, "21 days"),
        ("D", "Europe/Berlin", "3 days"),
        ("h", "UTC", "3h"),
    ],
)
def test_leads_have_a_time_where_all_rows_are_of_one_length(freq: str, zone: str | None, time: str | None) -> None:
    system = lagged_system(rows=503, seed=0, lags=[[3]], instant=0, nonlinear=[], independent=0)
    index = pd.date_range("1999-01-01", periods=503, freq=freq, tz=zone)
    df = pd.DataFrame(system.dataset.values, index=index, columns=list(system.dataset.names))
    found = Forecaster(horizon=5, lookback=29, epochs=1, model="dlinear", progress="off").fit(df).relations()
    (pair,) = found.pairs().itertuples(index=False)
    assert pair.steps == 3
    if time is None:
        assert found.lead_time is None and pair.time is None
    else:
        assert pair.time == pd.Timedelta(time)
