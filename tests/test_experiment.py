"""One benchmark cell: settings are resolved before anything starts, and the row says what was run."""

import json
from dataclasses import replace

import numpy as np
import pytest

from primecast.data.catalog import load_dataset
from primecast.data.windows import split
from primecast.errors import InputError
from primecast.experiment import Spec, parse_setting, resolve, run
from primecast.models import attention_options, create_model
from primecast.training import evaluate

QUICK = {"epochs": 1, "d_model": 16, "n_layers": 1, "batch_size": 256}


def test_a_preset_becomes_arguments_of_model_and_training() -> None:
    plan = resolve(Spec(dataset="ETTh1"))
    assert plan.attention == "prime"
    assert plan.model == {
        "mechanism": "dot", "primer": "full", "d_model": 256, "d_ff": 256, "n_layers": 2, "n_heads": 8, "dropout": 0.1,
        "norm": "instance",
    }  # fmt: skip
    assert plan.training == {
        "lr": 1e-4, "batch_size": 32, "epochs": 10, "patience": 3, "schedule": "halving", "drop_last": True,
    }  # fmt: skip
    assert resolve(Spec(dataset="Weather", preset="paper")).training["batch_size"] == 128
    assert resolve(Spec(dataset="PEMS08", horizon=96)).model["norm"] == "none"


def test_models_with_settings_of_their_own_are_trained_by_them() -> None:
    timer = resolve(Spec(dataset="ETTh1", model="timer_xl"))
    assert (timer.model["d_model"], timer.model["d_ff"], timer.training["schedule"]) == (1024, 2048, "tenth")
    linear = resolve(Spec(dataset="Weather", model="dlinear"))
    assert linear.attention == "standard" and linear.model == {}
    gat = resolve(Spec(dataset="ETTh1", model="gat"))
    assert gat.model["d_model"] == 256 and gat.model["primer"] == "full"


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
    plan = resolve(Spec(dataset="ETTh1", settings=settings))
    assert plan.training["lr"] == 1e-3 and plan.model["dropout"] == 0.3
    assert plan.model["primer"] == {"kind": "full", "hidden": 32, "grouped": False}
    assert (plan.loss, plan.loss_options) == ("huber", {"delta": 2})
    shuffled = resolve(Spec(dataset="ETTh1", attention="prime-shuffled-pairs", settings={"primer.hidden": 8}))
    assert shuffled.model["primer"] == {"kind": "full", "pairing": "shuffled", "hidden": 8}


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
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(spec: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(Spec(**{"dataset": "ETTh1", **spec}))  # type: ignore[arg-type]


def test_a_row_says_what_was_run_and_can_be_written_as_json() -> None:
    row = run(Spec(dataset="nyc-weather", horizon=24, settings=QUICK), progress="off")
    assert json.loads(json.dumps(row)) == row
    expected = (
        "dataset model attention horizon lookback seed preset mse mae val_mse epochs parameters overhead seconds "
        "peak_mib versions settings"
    )
    assert set(expected.split()) <= set(row)
    assert row["settings"]["model"]["d_model"] == 16 and row["settings"]["training"]["epochs"] == 1
    assert 0 < row["mse"] < 2 and row["overhead"] > 0 and row["peak_mib"] > 50


def test_the_same_spec_gives_the_same_score_and_another_seed_another() -> None:
    spec = {"dataset": "nyc-weather", "horizon": 24, "attention": "standard", "settings": QUICK}
    first, again, other = (run(Spec(**spec, seed=s), progress="off")["mse"] for s in (0, 0, 1))  # type: ignore[arg-type]
    assert first == again != other


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
    sizes = {"lookback": 24, "horizon": 12, "channels": 24, "marks": 4, "d_model": 16}
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
