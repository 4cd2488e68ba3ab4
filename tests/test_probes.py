"""Probes give the values that the slow and obvious computation gives."""

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from primecast.analysis.cost import cost, kept_bytes, time_interleaved
from primecast.analysis.example_forecasts import example_forecasts
from primecast.analysis.hooks import filter_strength
from primecast.analysis.maps import CALENDAR, attention_maps, concentration, mean_maps
from primecast.analysis.probes import PROBES
from primecast.analysis.sensor_ablation import ABLATION_WINDOWS, sensor_ablation
from primecast.analysis.synthetic_recovery import (
    Estimate,
    average_precision,
    lag_profile,
    score_estimate,
    synthetic_recovery,
    untrained,
)
from primecast.data import CATALOG, Dataset, Splits, lagged_system, load_dataset, split
from primecast.data.catalog import fetch
from primecast.data.synthetic import SYSTEMS, system
from primecast.errors import InputError
from primecast.models import create_model
from primecast.nn.attention import Prime
from primecast.nn.mechanisms import AttentionMap
from primecast.nn.pair_features import instantaneous, lead_lag, standardize
from primecast.nn.primer import Primer
from primecast.nn.primer_layers import LeadLag

LOOKBACK, HORIZON, WIDTH, HEADS = 23, 7, 22, 2


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    made = lagged_system(rows=499, seed=3, lags=[[2]], instant=0, nonlinear=[], independent=3).dataset
    return replace(made, time_features=True)


@pytest.fixture(scope="module")
def splits(dataset: Dataset) -> Splits:
    return split(dataset, lookback=LOOKBACK, horizon=HORIZON)


def model_of(splits: Splits, primer: Any = "full", **options: Any) -> nn.Module:
    return create_model(
        "itransformer",
        lookback=splits.test.lookback,
        horizon=splits.test.horizon,
        channels=splits.test.channels,
        n_time_features=splits.test.n_time_features,
        d_model=WIDTH,
        n_heads=HEADS,
        n_layers=3,
        primer=primer,
        seed=0,
        **options,
    ).eval()


# ---------------------------------------------------------------- maps


@pytest.mark.parametrize("options", [
    {},
    {"grouped": False, "hidden": 3},
    {"base": "identity"},
    {"base": "identity", "learn_base": True, "grouped": False, "hidden": 5, "sparsity": 0.4, "tokens": 5},
    {"sparsity": 0.6, "tokens": 5, "prime_self": False},
], ids=str)  # fmt: skip
def test_strength_is_the_norm_of_the_materialized_primer(options: dict[str, Any]) -> None:
    primer = Primer("full", length=LOOKBACK, d_model=WIDTH, n_heads=HEADS, **options).double()
    prime = primer(torch.randn(3, 5, LOOKBACK, dtype=torch.float64))
    filters = prime.materialize()
    torch.testing.assert_close(filter_strength(prime), filters.square().mean(-1).sqrt())
    other = filters - filters.mean((1, 2), keepdim=True)
    torch.testing.assert_close(filter_strength(prime, centered=True), other.square().mean(-1).sqrt())


def test_a_pair_without_a_primer_has_strength_one() -> None:
    prime = Prime(torch.randn(2, 1, 3, 5, 5), torch.randn(2, 3, 11), pairs=torch.zeros(5, 5, dtype=torch.bool))
    torch.testing.assert_close(filter_strength(prime), torch.ones(2, 5, 5))


@pytest.mark.parametrize("primer", [None, "full", {"kind": "full", "layers": True}], ids=str)
def test_maps_are_the_mean_over_windows_and_heads(splits: Splits, primer: Any) -> None:
    model = model_of(splits, primer)
    found = mean_maps(model, splits.test, most=13)

    weights: list[list[Tensor]] = [[], [], []]
    primes: list[Prime] = []
    places = [module for module in model.modules() if isinstance(module, AttentionMap)]
    for place, attention_map in enumerate(places):
        attention_map.register_forward_hook(lambda module, args, out, place=place: weights[place].append(out))
    for module in model.modules():
        if isinstance(module, Primer):
            module.register_forward_hook(lambda module, args, out: primes.append(out))
    with torch.no_grad():
        for number in range(13):
            batch = splits.test.batch(torch.tensor([number * len(splits.test) // 13]))
            model(batch.x, batch.time_features)
    expected = torch.stack([torch.cat(layer).double().mean((0, 1)) for layer in weights])
    torch.testing.assert_close(found.attention, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.attention.sum(-1), torch.ones_like(found.attention[..., 0]), atol=1e-5, rtol=0)
    if primer is None:
        assert found.strength is None and found.distinct is None
        return
    assert found.strength is not None
    layers = 3 if isinstance(primer, dict) else 1
    assert len(found.strength) == layers
    last = torch.stack([prime.layer(layers - 1).materialize()[0].square().mean(-1).sqrt() for prime in primes])
    torch.testing.assert_close(found.strength[-1], last.double().mean(0), atol=1e-5, rtol=1e-4)


def test_no_hook_is_left_after_a_trace(splits: Splits) -> None:
    model = model_of(splits)
    mean_maps(model, splits.test, most=3)
    assert not any(module._forward_hooks for module in model.modules())


def test_maps_name_their_tokens_and_go_into_the_row(splits: Splits, dataset: Dataset) -> None:
    row = attention_maps(model_of(splits), splits, dataset)
    assert row["tokens"] == [*dataset.names, *CALENDAR]
    assert np.shape(row["map"]) == (9, 9)
    assert row["map_layers"].shape == (3, 9, 9) and row["strength_layers"].shape == (1, 9, 9)
    assert row["strength_mean"] == pytest.approx(row["strength_layers"][:, :5, :5].mean())
    assert row["distinct_mean"] == pytest.approx(row["distinct_layers"][:, :5, :5].mean())
    np.testing.assert_allclose(row["map"], row["map_layers"].mean(0), rtol=1e-4)
    assert row["top_share"] == pytest.approx(np.mean(row["top_share_by_layer"]))
    assert row["top_channel"] in dataset.names
    assert "strength_mean" not in attention_maps(model_of(splits, None), splits, dataset)


def test_concentration_of_known_maps() -> None:
    one = np.zeros((5, 5))
    one[:, 3] = 1
    for attention, expected in (
        (np.full((5, 7), 1 / 7), (1 / 5, 1.0, 1 / 5, 2 / 7)),
        (one, (1.0, 0.0, 0.2, 0.0)),
        (np.eye(5), (0.2, 1.0, 1.0, 0.0)),
    ):
        channel, *values = astuple(concentration(attention, "abcde"))
        assert channel == ("d" if attention is one else "a") and values == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "reason"), [("gat", "GAT has no attention map"), ("timer_xl", "not maps of channels")]
)
def test_a_model_whose_maps_are_not_of_channels_is_refused(
    splits: Splits, dataset: Dataset, name: str, reason: str
) -> None:
    options: dict[str, Any] = {"patch": 24} if name == "timer_xl" else {}
    own = split(dataset, lookback=48, horizon=HORIZON)
    model = create_model(
        name, lookback=48, horizon=HORIZON, channels=own.test.channels, d_model=8, n_heads=2, **options
    )
    with pytest.raises(InputError, match=reason):
        attention_maps(model.eval(), own, dataset)


# ---------------------------------------------------------------- sensor ablation


class Follow(nn.Module):
    """Every channel's forecast is the last value of channel 2."""

    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        return x[:, -1:, 2:3].expand(-1, HORIZON, x.shape[2])


def test_ablation_of_a_channel_hurts_those_that_depend_on_it_and_no_other(splits: Splits, dataset: Dataset) -> None:
    row = sensor_ablation(Follow(), splits, dataset)
    growth = np.array(row["growth"])
    assert (growth[[0, 1, 3, 4]] == 0).all()
    assert row["harm_share"] in (0.0, 1.0)

    silent, base = np.zeros(5), np.zeros(5)
    for number in range(min(ABLATION_WINDOWS, len(splits.test))):
        x, y, _ = splits.test.batch(torch.tensor([number]))
        silent += y[0].double().square().mean(0).numpy()
        base += (x[0, -1, 2] - y[0]).double().square().mean(0).numpy()
    np.testing.assert_allclose(growth[2], silent / base - 1, rtol=1e-4)
    others = [0, 1, 3, 4]
    assert row["harm"][2] == pytest.approx(silent[others].sum() / base[others].sum() - 1, rel=1e-4)
    assert row["harm_max"] == pytest.approx(max(row["harm"]), rel=1e-4)


def test_ablation_changes_nothing_for_channels_forecast_independently(splits: Splits, dataset: Dataset) -> None:
    model = create_model("dlinear", lookback=LOOKBACK, horizon=HORIZON, channels=5, seed=0).eval()
    row = sensor_ablation(model, splits, dataset)
    growth = np.array(row["growth"])
    assert (growth[~np.eye(5, dtype=bool)] == 0).all() and (np.diag(growth) != 0).all()
    assert (row["harm_max"], row["harm_mean"], row["harm_share"], row["pair_growth_max"]) == (0, 0, 0, 0)


# ---------------------------------------------------------------- examples


def test_examples_are_in_the_units_of_the_data(splits: Splits, dataset: Dataset) -> None:
    row = example_forecasts(Follow(), splits, dataset)
    channels = [dataset.names.index(name) for name in row["example_channels"]]
    assert channels[0] == 0 and len(set(channels)) == len(channels)
    assert dataset.index is not None
    for number, start in enumerate(row["example_rows"]):
        assert row["example_stamps"][number] == str(dataset.index[start])
        values = dataset.values[:, channels]
        np.testing.assert_allclose(row["past"][number], values[start - LOOKBACK : start], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(row["truth"][number], values[start : start + HORIZON], rtol=1e-3, atol=1e-4)
    scaled = (np.array(row["forecast"]) - np.array(row["truth"])) / splits.scaler.std[channels]
    np.testing.assert_allclose(row["example_mse"], (scaled**2).mean(1), rtol=1e-2)


def test_two_models_show_the_same_windows_and_channels(splits: Splits, dataset: Dataset) -> None:
    first, second = (example_forecasts(model, splits, dataset) for model in (Follow(), model_of(splits)))
    for name in ("example_rows", "example_channels", "past", "truth"):
        assert first[name] == second[name]


# ---------------------------------------------------------------- synthetic recovery


def loop_precision(score: list[float], true: list[bool]) -> float:
    found = []
    for mine, is_true in zip(score, true, strict=True):
        if is_true:
            at_least = [other for value, other in zip(score, true, strict=True) if value >= mine]
            found.append(sum(at_least) / len(at_least))
    return sum(found) / len(found)


def test_average_precision_counts_what_ranks_at_least_as_high() -> None:
    rng = np.random.default_rng(5)
    for _ in range(7):
        score, true = rng.integers(0, 5, 31).astype(float), rng.random(31) < 0.3
        assert average_precision(score, true) == pytest.approx(loop_precision(score.tolist(), true.tolist()))
    assert average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, True, False])) == 1
    assert average_precision(np.zeros(11), np.arange(11) < 2) == pytest.approx(2 / 11)


def test_the_truth_itself_scores_perfectly_and_its_opposite_does_not() -> None:
    truth = system("synthetic-lagged-0").truth
    related = np.array([[kind != "none" for kind in row] for row in truth.kind])
    noise = np.random.default_rng(0).random(related.shape) / 10
    right = score_estimate(Estimate(related + noise + noise.T, truth.lead.astype(float), True), related, truth.lead)
    assert right == {
        "average_precision": 1.0,
        "precision": 1.0,
        "recall": 1.0,
        "top_precision": 1.0,
        "direction": 1.0,
        "lag_error": 0.0,
        "lag_exact": 1.0,
    }
    wrong = score_estimate(Estimate(~related + noise + noise.T, -truth.lead.astype(float), True), related, truth.lead)
    assert (wrong["precision"], wrong["recall"], wrong["direction"], wrong["lag_exact"]) == (0, 0, 0, 0)
    assert wrong["lag_error"] == pytest.approx(2 * np.abs(truth.lead[truth.lead > 0]).mean())
    signs = score_estimate(Estimate(related + noise + noise.T, np.sign(truth.lead) * 1.0, False), related, truth.lead)
    assert (signs["direction"], signs["lag_error"], signs["lag_exact"]) == (1.0, None, None)


@pytest.mark.parametrize(
    "options",
    [{}, {"grouped": False, "hidden": 3, "smooth": True}, {"layers": 2}, {"pair_offsets": True, "tokens": 3}],
    ids=str,
)
def test_the_part_of_a_lag_is_its_derivative_times_itself(options: dict[str, Any]) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        primer = Primer("full", length=11, d_model=6, n_heads=2, **options)
    finally:
        torch.set_default_dtype(torch.float32)
    lags = next(layer for layer in primer.first if isinstance(layer, LeadLag))
    parts: Any = primer.first
    own = parts[-1].table if "pair_offsets" in options else torch.zeros(1, 3, 3, dtype=torch.float64)
    if "pair_offsets" in options:
        nn.init.normal_(own)
    series = torch.randn(7, 3, 11, dtype=torch.float64)
    normal = standardize(series)
    features, together = lead_lag(normal), instantaneous(normal)

    def filters(lag: Tensor, window: int, i: int, j: int, layer: int) -> Tensor:
        """F_ij of a window whose lag features were these."""
        seen = lag.tanh() if lags.smooth else lag
        hidden = lags.weight @ seen + parts[1].weight @ together[window, i, j] + primer.offset + own[:, i, j]
        phi = nn.functional.gelu(hidden).view(1, primer.groups, -1, 1, 1)
        return Prime(phi, primer.gains, primer.base).layer(layer).materialize()[0, 0, 0]

    found = lag_profile(primer, lags, iter(series.split(3)))
    for i, j in ((0, 0), (0, 1), (1, 0), (2, 1)):
        square = torch.zeros(11, dtype=torch.float64)
        for layer in range(options.get("layers", 1)):
            part = torch.zeros(6, 11, dtype=torch.float64)
            for window in range(7):
                lag = features[window, i, j]
                jacobian = torch.autograd.functional.jacobian(
                    lambda lag, w=window, i=i, j=j, e=layer: filters(lag, w, i, j, e), lag
                )
                part += jacobian * lag / 7
            square += part.square().sum(0)
        torch.testing.assert_close(found[i, j], square.sqrt().detach())


@pytest.fixture(scope="module")
def known() -> tuple[Dataset, Splits]:
    dataset = load_dataset("synthetic-lagged-0")
    return dataset, split(dataset, lookback=41, horizon=5)


def test_cross_correlation_finds_the_lags_of_a_clean_system(known: tuple[Dataset, Splits]) -> None:
    dataset, splits = known
    row = synthetic_recovery(model_of(splits), splits, dataset)
    assert row["related_pairs"] == 7
    assert row["correlation_direction"] == 1.0
    assert row["correlation_lag_exact"] == 1.0 and row["correlation_lag_error"] == 0.0
    assert row["correlation_average_precision"] > 0.9 > 5 * row["related_share"]
    assert row["attention_lag_error"] is None
    for source in ("correlation", "attention", "primer", "untrained"):
        assert np.shape(row[f"{source}_score"]) == (13, 13)
        assert np.allclose(row[f"{source}_score"], np.transpose(row[f"{source}_score"]), rtol=1e-3)
    assert not [
        name for name in synthetic_recovery(model_of(splits, None), splits, dataset) if name.startswith("primer")
    ]


def test_a_primer_that_knows_no_lags_tells_of_none(known: tuple[Dataset, Splits]) -> None:
    dataset, splits = known
    row = synthetic_recovery(model_of(splits, "instantaneous"), splits, dataset)
    assert row["primer_average_precision"] > 0 and row["primer_lag_error"] is row["primer_direction"] is None


def test_an_untrained_primer_is_drawn_anew_and_the_given_one_left_alone() -> None:
    primer = Primer("full", length=LOOKBACK, d_model=WIDTH, n_heads=HEADS, pair_offsets=True, tokens=5)
    nn.init.ones_(primer.first[-1].get_parameter("table"))
    before = {name: value.clone() for name, value in primer.state_dict().items()}
    first, again = untrained(primer), untrained(primer)
    for name, value in primer.state_dict().items():
        torch.testing.assert_close(value, before[name])
        torch.testing.assert_close(first.state_dict()[name], again.state_dict()[name])
    assert not torch.equal(first.gains, primer.gains) and not first.first[-1].get_parameter("table").any()


def test_relations_of_data_without_a_known_truth_are_refused(splits: Splits, dataset: Dataset) -> None:
    with pytest.raises(InputError, match="unknown synthetic system 'synthetic'.*allowed: synthetic-lagged-0"):
        synthetic_recovery(model_of(splits), splits, dataset)


# ---------------------------------------------------------------- cost


def test_kept_bytes_are_those_of_the_tensors_a_graph_holds() -> None:
    layer = nn.Linear(5, 3, bias=False)
    x = torch.randn(7, 5)
    assert kept_bytes(layer, lambda: layer(x).sum()) == 7 * 5 * 4  # the input; the weight is the model's own
    # exp keeps its result, and squaring it the same tensor once more: one storage, counted once
    assert kept_bytes(layer, lambda: layer(x).exp().square().sum()) == (7 * 5 + 7 * 3) * 4


def test_calls_are_timed_in_turns_after_warming_up() -> None:
    order: list[str] = []
    first, second = time_interleaved(lambda: order.append("a"), lambda: order.append("b"))
    assert order == ["a", "b"] * (2 + 9) and first.shape == second.shape == (9,)

    def count() -> None:
        sum(range(200_000))

    slow, quick = time_interleaved(count, lambda: None)
    assert np.median(slow) > np.median(quick)


def test_cost_is_measured_on_a_copy(splits: Splits, dataset: Dataset) -> None:
    model = model_of(splits)
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    row = cost(model, splits, dataset)
    assert torch.equal(state, torch.get_rng_state()) and not model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert row["forward_ms"] > 0 and row["step_ms"] > 0
    assert 0 < row["step_ratio"] < 100
    plain = cost(model_of(splits, None), splits, dataset)
    assert row["kept_mib"] > plain["kept_mib"] > 0 and row["weights_mib"] > plain["weights_mib"] > 0


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_answers_can_be_written_down(probe: Callable[..., dict[str, Any]], known: tuple[Dataset, Splits]) -> None:
    dataset, splits = known
    row = probe(model_of(splits), splits, dataset)
    arrays = {name: value for name, value in row.items() if isinstance(value, np.ndarray)}
    assert all(value.dtype == np.float32 for value in arrays.values())
    rest = {name: value for name, value in row.items() if name not in arrays}
    assert json.loads(json.dumps(rest, allow_nan=False)) == rest
    assert len(json.dumps(rest)) < 60_000


def test_systems_are_data_sets_known_by_name() -> None:
    for name in SYSTEMS:
        dataset, truth = load_dataset(name), system(name).truth
        assert dataset.name == name and not dataset.time_features
        assert dataset.values.shape == (CATALOG[name].rows, len(truth.kind))
        assert dataset.fingerprint == load_dataset(name).fingerprint
        dataset.values[:] = 0
        assert load_dataset(name).values.any()
    assert len({load_dataset(name).fingerprint for name in SYSTEMS}) == len(SYSTEMS)
    with pytest.raises(InputError, match="need not be fetched: primecast computes it"):
        fetch("synthetic-noisy-0")
