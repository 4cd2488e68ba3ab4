"""One benchmark cell: settings are resolved before anything starts, and the row says what was run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from primecast.analysis.probes import PROBES
from primecast.data.catalog import load_dataset
from primecast.data.windows import split
from primecast.errors import InputError
from primecast.experiments.run import run
from primecast.experiments.spec import Spec, fingerprint, identity, key, key_of, parse_setting, resolve
from primecast.experiments.store import Store
from primecast.models import MODELS, attention_options, create_model
from primecast.training.loop import evaluate

QUICK = {"epochs": 1, "d_model": 16, "n_layers": 1, "batch_size": 256}


def test_a_preset_becomes_arguments_of_model_and_training() -> None:
    plan = resolve(Spec(dataset="ETTh1"))
    assert plan.attention == "prime-table"
    assert plan.model == {
        "mechanism": "dot", "primer": {"kind": "table", "seed": 0}, "d_model": 256, "d_ff": 256, "n_layers": 2,
        "n_heads": 8, "dropout": 0.1, "norm": "instance",
    }  # fmt: skip
    assert plan.training == {"lr": 1e-4, "batch_size": 32, "epochs": 10, "patience": 3, "schedule": "halving"}
    assert resolve(Spec(dataset="Weather", preset="paper")).training["batch_size"] == 128
    assert resolve(Spec(dataset="PEMS08", horizon=96)).model["norm"] == "none"


def test_models_with_settings_of_their_own_are_trained_by_them() -> None:
    timer = resolve(Spec(dataset="ETTh1", model="timer_xl"))
    assert (timer.model["d_model"], timer.model["d_ff"], timer.training["schedule"]) == (1024, 2048, "tenth")
    linear = resolve(Spec(dataset="Weather", model="dlinear"))
    assert linear.attention == "standard" and linear.model == {}
    gat = resolve(Spec(dataset="ETTh1", model="gat"))
    assert gat.model["d_model"] == 256 and gat.model["primer"]["kind"] == "table"


def test_the_fredf_preset_brings_its_loss_with_the_published_alpha() -> None:
    plan = resolve(Spec(dataset="ETTh2", preset="fredf"))
    assert (plan.loss, plan.loss_options, plan.training["schedule"]) == ("fredf", {"alpha": 0.9}, "halving-early")
    assert resolve(Spec(dataset="ETTh2", settings={"loss": "fredf"})).loss_options == {"alpha": 0.9}
    assert resolve(Spec(dataset="ETTh2", preset="fredf", settings={"loss.alpha": 0.5})).loss_options == {"alpha": 0.5}
    assert resolve(Spec(dataset="Exchange", preset="fredf")).loss_options == {}


def test_settings_replace_the_preset() -> None:
    settings = {
        "lr": 1e-3,
        "dropout": 0.3,
        "primer.hidden": 32,
        "primer.grouped": False,
        "loss": "huber",
        "loss.delta": 2,
    }
    plan = resolve(Spec(dataset="ETTh1", attention="prime", settings=settings))
    assert plan.training["lr"] == 1e-3 and plan.model["dropout"] == 0.3
    assert plan.model["primer"] == {"kind": "full", "prime_self": False, "hidden": 32, "grouped": False}
    assert (plan.loss, plan.loss_options) == ("huber", {"delta": 2})
    shuffled = resolve(Spec(dataset="ETTh1", attention="prime-shuffled-pairs", settings={"primer.hidden": 8}))
    paper = {"kind": "full", "prime_self": False}
    assert shuffled.model["primer"] == {**paper, "pairing": "permuted", "hidden": 8, "seed": 0}


@pytest.mark.parametrize(
    "settings", [{"primer.kind": "random"}, {"primer.sparsity": 0.4}, {"primer.pairing": "permuted"}]
)
def test_what_a_primer_draws_is_drawn_anew_for_each_seed_unless_told(settings: dict[str, Any]) -> None:
    def primer(seed: int, **changes: Any) -> dict[str, Any]:
        return resolve(Spec(dataset="ETTh1", attention="prime", seed=seed, settings=changes)).model["primer"]

    for seed in (0, 3):
        assert primer(seed, **settings)["seed"] == seed
        assert resolve(Spec(dataset="ETTh1", seed=seed)).model["primer"] == {"kind": "table", "seed": seed}
    assert primer(3, **settings, **{"primer.seed": 5})["seed"] == 5
    assert primer(3, **{"primer.hidden": 8}) == {"kind": "full", "prime_self": False, "hidden": 8}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"dataset": "ETTh3"}, "unknown data set 'ETTh3'"),
        ({"model": "itransfomer"}, "unknown model 'itransfomer'"),
        ({"attention": "primed"}, r"unknown attention of model itransformer 'primed' \(did you mean 'prime'\?\)"),
        ({"model": "dlinear", "attention": "prime"}, "unknown attention of model dlinear 'prime'; allowed: standard"),
        ({"preset": "best"}, "unknown preset 'best'"),
        ({"settings": {"lrr": 1}}, r"unknown setting 'lrr' \(did you mean 'lr'\?\)"),
        ({"attention": "standard", "settings": {"primer.hidden": 1}}, "unknown setting 'primer.hidden'"),
        ({"settings": {"schedule": "step"}}, "unknown schedule 'step'"),
        ({"settings": {"loss": "mape"}}, "unknown loss 'mape'"),
        ({"settings": {"loss.delta": 1}}, "unknown argument of loss mse 'delta'"),
        ({"probes": ("maqs",)}, r"unknown probe 'maqs' \(did you mean 'maps'\?\)"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(spec: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(Spec(**{"dataset": "ETTh1", **spec}))  # type: ignore[arg-type]


def test_a_row_says_what_was_run_and_can_be_written_as_json() -> None:
    spec = Spec(dataset="nyc-weather", horizon=24, settings=QUICK)
    whole = run(spec, progress="off")
    row = whole.fields
    assert json.loads(json.dumps(row)) == row
    expected = (
        "key variant fingerprint dataset model attention horizon lookback seed preset mse mae val_mse val_mae windows "
        "epochs best_epoch steps parameters overhead overhead_of_attention seconds seconds_per_epoch peak_mib hardware "
        "versions channel_mse channel_mae step_mse step_mae settings probes"
    )
    assert set(expected.split()) == set(row)
    assert row["settings"]["model"]["d_model"] == 16 and row["settings"]["training"]["epochs"] == 1
    assert 0 < row["mse"] < 2 and row["overhead"] > 0 and row["peak_mib"] > 50
    assert row["key"] == spec.key() == key_of(row) == key_of(json.loads(json.dumps(row)))
    assert (len(row["channel_mse"]), len(row["step_mae"])) == (24, 24)
    for name in ("mse", "mae"):
        assert np.mean(row[f"channel_{name}"]) == pytest.approx(row[name], rel=1e-5)
        windows = whole.arrays[f"window_{name}"]
        assert windows.dtype == np.float32 and len(windows) == row["windows"]
        assert windows.mean(dtype=np.float64) == pytest.approx(row[name], rel=1e-6)


def test_the_same_spec_gives_the_same_score_and_another_seed_another() -> None:
    spec = {"dataset": "nyc-weather", "horizon": 24, "attention": "standard", "settings": QUICK}
    first, again, other = (run(Spec(**spec, seed=s), progress="off").fields["mse"] for s in (0, 0, 1))  # type: ignore[arg-type]
    assert first == again != other


# ---------------------------------------------------------------- keys


PRIME_SELF = {"primer.prime_self": True}


def key_with(**fields: Any) -> str:
    """The key of a spec on ETTh1; where it names no attention, of prime attention by its printed formula."""
    if "attention" not in fields:
        fields |= {"attention": "prime", "settings": {**PRIME_SELF, **fields.get("settings", {})}}
    return key(Spec(**{"dataset": "ETTh1", **fields}), "of the data")


def test_a_spec_survives_the_way_to_json_and_back() -> None:
    spec = Spec(dataset="ETTh1", seed=3, settings={"lr": 1e-3, "primer.base": "identity"}, probes=("maps",))
    assert Spec.from_json(spec.to_json()) == spec
    turned = replace(spec, settings={"primer.base": "identity", "lr": 1e-3})
    assert turned.to_json() == spec.to_json()


@pytest.mark.parametrize(
    "spelling",
    [
        {"attention": "prime", "settings": PRIME_SELF},
        {"attention": "dot+prime", "settings": PRIME_SELF},
        {"settings": {"primer": "full"}},
        {"settings": {"primer.hidden": 16, "primer.base": "zero", "primer.layers": False, "primer.rolling": 12}},
        {"settings": {"lr": 0.0001, "epochs": 10.0, "d_ff": None, "schedule": "halving", "loss": "mse"}},
        {"settings": {"device": "cpu", "precision": "float32", "lr_factor.primer": 1}},
        {"preset": "paper", "settings": {"batch_size": 32}},
    ],
)  # fmt: skip
def test_two_spellings_of_one_run_have_one_key(spelling: dict[str, Any]) -> None:
    assert key_with(**spelling) == key_with()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"attention": "standard"}, {"attention": "dot"}),
        ({"attention": "standard-zero-output"}, {"attention": "standard", "settings": {"zero_output": True}}),
        ({"attention": "prime-shuffled-pairs", "settings": PRIME_SELF}, {"settings": {"primer.pairing": "permuted"}}),
        ({"attention": "prime"}, {"settings": {"primer.prime_self": False}}),
        ({"attention": "prime-table"}, {"settings": {"primer.kind": "table"}}),
        ({"settings": {"loss": "fredf"}}, {"settings": {"loss": "fredf", "loss.alpha": 0.8}}),
        ({"model": "timer_xl"}, {"model": "timer_xl", "settings": {"primer.hidden": 16}}),
        ({"probes": ("maps", "cost")}, {"probes": ("cost", "maps", "cost")}),
    ],
)
def test_other_names_for_one_run_have_one_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key_with(**one) == key_with(**other) != key_with()


def test_everything_that_influences_a_run_changes_its_key() -> None:
    specs: list[dict[str, Any]] = [
        {}, {"dataset": "ETTh2"}, {"model": "gat"}, {"attention": "standard"}, {"horizon": 192}, {"lookback": 48},
        {"seed": 1}, {"attention": "gated"}, {"attention": "standard-zero-output"}, {"probes": ("maps",)},
    ]  # fmt: skip
    settings = [
        {"lr": 2e-4}, {"batch_size": 33}, {"epochs": 9}, {"patience": 4}, {"schedule": "cosine"}, {"drop_last": False},
        {"precision": "bf16"}, {"lr_factor.primer": 10}, {"lr_factor.head": 10}, {"loss": "mae"}, {"loss": "huber"},
        {"loss": "huber", "loss.delta": 2}, {"d_model": 128}, {"d_ff": 128}, {"dropout": 0.2}, {"norm": "none"},
        {"modulate": "k"}, {"primer.base": "identity"}, {"primer.hidden": 32}, {"primer.grouped": False},
        {"primer.kind": "lead_lag"}, {"primer.sparsity": 0.2}, {"primer.pairing": "shared"}, {"primer.gain": 0.1},
        {"primer.layers": True}, {"primer.rolling": 6}, {"primer.seed": 1},
    ]  # fmt: skip
    keys = [key_with(**spec) for spec in specs] + [key_with(settings=each) for each in settings]
    keys.append(key(Spec(dataset="ETTh1"), "of other data"))
    assert len(set(keys)) == len(keys)


def test_the_variant_is_a_label_and_no_part_of_the_key() -> None:
    assert key_with(variant="prime, self-pair primed") == key_with()


def test_an_argument_that_is_added_later_does_not_change_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_with()
    build = MODELS["itransformer"].build

    class Grown(build):  # type: ignore[misc, valid-type]
        def __init__(
            self, *, lookback: int, horizon: int, channels: int, n_time_features: int = 0, d_model: int = 128,
            n_heads: int = 8, n_layers: int = 2, d_ff: int | None = None, dropout: float = 0.1,
            activation: str = "gelu", norm: str = "instance", mechanism: str = "dot", modulate: str = "kv",
            zero_output: bool = False, primer: Any = None, new: str = "neutral",
        ) -> None:  # fmt: skip
            raise NotImplementedError

    monkeypatch.setattr(
        "primecast.experiments.spec.MODELS", {"itransformer": replace(MODELS["itransformer"], build=Grown)}
    )
    assert key_with() == before != key_with(settings={"new": "other"})


@pytest.mark.parametrize("name", MODELS)
def test_settings_written_out_are_those_the_model_is_built_with(name: str) -> None:
    spec = Spec(dataset="ETTh1", model=name)
    settings = identity(spec, resolve(spec), "of the data")["settings"]
    assert json.loads(json.dumps(settings)) == settings
    sizes: dict[str, Any] = {"lookback": 96, "horizon": 24, "channels": 3, "seed": 0}
    written, resolved = (
        create_model(name, **sizes, **options)
        for options in (_without_defaults(settings["model"]), resolve(spec).model)
    )
    assert {n: p.shape for n, p in written.named_parameters()} == {n: p.shape for n, p in resolved.named_parameters()}
    for (part, ours), (_, theirs) in zip(written.named_parameters(), resolved.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), part


def _without_defaults(model: dict[str, Any]) -> dict[str, Any]:
    if model.get("primer") is None:
        return model
    return model | {"primer": {n: v for n, v in model["primer"].items() if n not in ("features",)}}


def test_the_fingerprint_is_of_the_values_however_they_are_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PRIMECAST_DATA", raising=False)
    assert fingerprint("nyc-weather") == load_dataset("nyc-weather").fingerprint
    dataset = load_dataset("nyc-weather")
    values = dataset.values.copy()
    values[5, 3] += 1e-9
    assert replace(dataset, values=values).fingerprint != dataset.fingerprint
    assert replace(dataset, values=np.asfortranarray(dataset.values)).fingerprint == dataset.fingerprint
    with pytest.raises(InputError, match="unknown data set"):
        Spec(dataset="ETTh3").key()
    with pytest.raises(InputError, match=r"ETTh1.csv"):
        Spec(dataset="ETTh1").key(tmp_path)


# ---------------------------------------------------------------- what is paired, what is probed, what is passed on


@pytest.mark.parametrize("model", ["itransformer", "timer_xl", "gat"])
@pytest.mark.parametrize("primed", ["prime", "prime-table"])
def test_standard_and_prime_with_one_seed_start_from_the_same_weights(model: str, primed: str) -> None:
    sizes: dict[str, Any] = {"lookback": 96, "horizon": 7, "channels": 3, "d_model": 16, "seed": 5}
    standard, prime = (
        dict(create_model(model, **sizes, **attention_options(model, attention)).named_parameters())
        for attention in ("standard", primed)
    )
    assert standard.keys() < prime.keys() and all(name.startswith("primer.") for name in prime.keys() - standard.keys())
    for name, value in standard.items():
        assert torch.equal(value, prime[name]), name


def test_standard_and_prime_with_one_seed_see_the_windows_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[torch.Tensor]] = {"standard": [], "prime": []}
    gather = type(split(load_dataset("nyc-weather"), lookback=24, horizon=7).train).batch

    def watched(self: Any, index: torch.Tensor) -> Any:
        seen[attention].append(index.clone())
        return gather(self, index)

    monkeypatch.setattr("primecast.data.windows.Windows.batch", watched)
    for attention in seen:
        settings = {**QUICK, "epochs": 2, "batch_size": 2048, "d_model": 8, "n_heads": 1}
        run(Spec(dataset="nyc-weather", lookback=13, horizon=7, attention=attention, settings=settings), progress="off")
    assert len(seen["standard"]) == len(seen["prime"]) > 4
    for one, other in zip(*seen.values(), strict=True):
        assert torch.equal(one, other)


def test_probes_are_asked_of_the_trained_model_and_their_arrays_lie_beside_the_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def probe(model: nn.Module, splits: Any, dataset: Any) -> dict[str, Any]:
        assert not model.training
        return {"channels": splits.test.channels, "set": dataset.name, "map": np.eye(3, dtype=np.float32)}

    monkeypatch.setitem(PROBES, "mine", probe)
    spec = Spec(dataset="nyc-weather", horizon=24, attention="standard", settings=QUICK, probes=("mine",))
    row = run(spec, progress="off")
    assert row.fields["probes"] == {"mine": {"channels": 24, "set": "nyc-weather"}}
    np.testing.assert_array_equal(row.arrays["mine.map"], np.eye(3))
    assert row.fields["key"] == key_of(row.fields) == spec.key() != replace(spec, probes=()).key()

    store = Store(tmp_path)
    store.add(row)  # it is the run without probes, too, which need not be run again
    plain, again = replace(spec, probes=()), run(replace(spec, probes=()), progress="off")
    assert store.keys() == sorted([spec.key(), plain.key()]) and again.also is None
    told = store.fields(plain.key())
    assert told["probes"] == {} and [told[name] for name in ("mse", "val_mse")] == [
        again.fields[name] for name in ("mse", "val_mse")
    ]
    assert set(store.arrays(plain.key())) == {"window_mse", "window_mae"}


def test_a_rolling_model_is_trained_once_and_scored_at_several_horizons() -> None:
    small = {"d_model": 8, "d_ff": 8, "n_heads": 2, "n_layers": 1, "epochs": 1, "batch_size": 2048, "patch": 12}
    sizes: dict[str, Any] = {
        "dataset": "nyc-weather",
        "model": "timer_xl",
        "attention": "standard",
        "lookback": 12,
        "horizon": 12,
    }
    spec = Spec(**sizes, settings=small)
    first = run(spec, horizons=[24, 36], progress="off")
    assert first.also is not None and first.also.also is not None
    rows = {row.fields["horizon"]: row for row in (first, first.also, first.also.also)}
    assert sorted(rows) == [12, 24, 36] and first.key == spec.key()
    for horizon in (24, 36):
        longer = replace(spec, horizon=horizon, settings={**small, "train_horizon": 12})
        assert rows[horizon].key == longer.key() != replace(spec, horizon=horizon).key()
        alone = run(longer, progress="off")
        assert alone.fields["mse"] == rows[horizon].fields["mse"] != first.fields["mse"]
        assert len(alone.fields["step_mse"]) == horizon
    assert first.fields["mse"] == run(spec, progress="off").fields["mse"]


@pytest.mark.parametrize("change", [{"model": "itransformer"}, {"settings": {"head": "direct"}}, {"probes": ("cost",)}])
def test_what_cannot_roll_is_trained_at_the_horizon_it_is_scored_at(change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"dataset": "ETTh1", "model": "timer_xl", "horizon": 192, **change}
    fields["settings"] = {**fields.get("settings", {}), "train_horizon": 96}
    with pytest.raises(
        InputError, match="train_horizon 96 is not the horizon 192: only timer_xl with its rolling head"
    ):
        resolve(Spec(**fields))


def test_lr_factors_device_and_precision_go_to_training() -> None:
    plan = resolve(Spec(dataset="ETTh1", settings={"lr_factor.primer": 10, "lr_factor.head": 2, "precision": "bf16"}))
    assert plan.training["lr_factors"] == {"primer": 10, "head": 2} and plan.training["precision"] == "bf16"
    assert "device" not in plan.training
    quick = {**QUICK, "d_model": 8, "n_heads": 1, "batch_size": 2048}
    sizes: dict[str, Any] = {"dataset": "nyc-weather", "lookback": 13, "horizon": 7}
    slow, fast = (
        run(Spec(**sizes, settings=quick | lr_factors), progress="off")
        for lr_factors in ({}, {"lr_factor.primer": 10.0})
    )
    assert slow.fields["mse"] != fast.fields["mse"]
    assert fast.fields["settings"]["training"]["lr_factors"] == {"primer": 10.0}
    with pytest.raises(InputError, match="backbone"):
        run(Spec(**sizes, settings={**quick, "lr_factor.backbone": 2}), progress="off")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("lr=0.001", ("lr", 0.001)), ("grouped=false", ("grouped", False)), ("norm=revin", ("norm", "revin"))],
)
def test_settings_are_read_from_text(text: str, expected: tuple[str, object]) -> None:
    assert parse_setting(text) == expected


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(InputError, match="setting 'lr' must be written name=value"):
        parse_setting("lr")


@pytest.mark.parametrize("attention", ["standard", "prime"])
def test_a_changed_future_never_changes_a_past_score(attention: str) -> None:
    """Rows from the middle of the test part on are changed: the windows that end before them score as before."""
    dataset = load_dataset("nyc-weather")
    options = attention_options("itransformer", attention)
    sizes: dict[str, Any] = {"lookback": 24, "horizon": 12, "channels": 24, "n_time_features": 4, "d_model": 16}
    model = create_model("itransformer", **sizes, seed=0, **options)
    before = split(dataset, lookback=24, horizon=12).test
    border = before.start + len(before) // 2
    values = dataset.values.copy()
    values[border:] = 3 * values[border:] + 1
    after = split(replace(dataset, values=values), lookback=24, horizon=12).test

    first, second = evaluate(model, before).window_mse, evaluate(model, after).window_mse
    untouched = border - before.start - 36 + 1
    np.testing.assert_array_equal(first[:untouched], second[:untouched])
    assert (first[untouched:] != second[untouched:]).all()


def test_a_misspelt_argument_of_the_primer_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="unknown argument of the primer 'hiden'.*hidden"):
        resolve(Spec(dataset="ETTh1", attention="prime", settings={"primer.hiden": 32}))
