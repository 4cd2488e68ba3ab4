"""Arguments of the wrong kind, size or name: one sentence each, whoever is given them."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import signature
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from primecast import (
    Forecaster,
    MultiHeadAttention,
    Primer,
    Spec,
    create_loss,
    create_model,
    evaluate,
    fetch,
    fit,
    load_dataset,
    run,
    split,
    swap_attention,
)
from primecast.data.synthetic import lagged_system
from primecast.data.windows import Windows
from primecast.errors import InputError
from primecast.forecasting.arguments import RULES, Arguments
from primecast.schema import Bounds, Rule, rules_of
from primecast.training.settings import TRAINING_RULES, TrainingSettings


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no checks of annotations


def test_every_argument_has_a_rule() -> None:
    assert set(RULES) == {one.name for one in fields(Arguments)}
    assert set(TRAINING_RULES) == {one.name for one in fields(TrainingSettings)} - {"state", "lr_factors"}


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ({"lr": 10**400}, r"lr is 1000*\.\.\.; it must be a finite number above 0"),
        ({"lr": "fast"}, "lr is 'fast'; it must be a finite number above 0"),
        ({"seed": 2**64}, "seed is 18446744073709551616; it must be a whole number of at least 0"),
        ({"epochs": 10**5000}, "epochs is a number of 16610 bits; it must be a whole number"),
        ({"horizon": 10**6}, "horizon is 1000000; it must be a whole number of at least 1 and of at most 65536"),
        ({"model": ["itransformer"]}, r"model is \['itransformer'\]; it must be a name"),
        ({"missing": {}}, r"missing is {}; it must be a name"),
        ({"quality": 3}, "quality is 3; it must be a name or None"),
        ({"past": 5}, "past is 5; it must be a list of names or None"),
        ({"past": "flow"}, "past is 'flow'; it must be a list of names or None"),
        ({"future": [1, 2]}, r"future is \[1, 2\]; it must be a list of names"),
        ({"model_args": 5}, "model_args is 5; it must be a mapping from names to values or None"),
        ({"model_args": {5: 5}}, "model_args is {5: 5}; it must be a mapping"),
        ({"refit": "no"}, "refit is 'no'; it must be true or false"),
        ({"time_limit": 3, "model": "dlinear"}, "time_limit is 3; it is for an ensemble, not one model"),
        ({"time_limit": -3.0, "quality": "good"}, r"time_limit is -3.0; it must be a finite number above 0"),
        ({"model_args": {"d_model": 0}}, "d_model is 0; it must be a whole number of at least 1 and of at most 65536"),
        ({"model_args": {"d_model": 8.5}}, "d_model is 8.5; it must be a whole number"),
        ({"model_args": {"dropout": "x"}}, "dropout is 'x'; it must be a finite number of at least 0 and below 1"),
        ({"model_args": {"dropout": 1}}, "dropout is 1; it must be a finite number of at least 0 and below 1"),
        ({"model_args": {"norm": 3}}, "norm is 3; it must be a name"),
        ({"model_args": {"zero_output": "yes"}}, "zero_output is 'yes'; it must be true or false"),
        (
            {"model_args": {"primer": 5}},
            "primer is 5; it must be a name, a mapping from names to values, a function, a Primer or",
        ),
        ({"model_args": {"primer": {"width": 0}}}, "width is 0; it must be a whole number of at least 1"),
        ({"model": "gat", "model_args": {"density": "x"}}, "density is 'x'; it must be a finite number"),
        ({"model": "lift", "model_args": {"backbone_args": 5}}, "backbone_args is 5; it must be a mapping"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_in_one_sentence(argument: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        Forecaster(**{"horizon": 3, "lookback": 7} | argument)
    assert "\n" not in str(refused.value)


def test_the_sizes_of_a_model_are_checked_as_its_other_arguments_are() -> None:
    with pytest.raises(InputError, match=r"channels is 2.5; it must be a whole number of at least 1"):
        create_model("dlinear", lookback=7, horizon=3, channels=2.5)  # type: ignore[arg-type]


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([2**64, 10**400, -1, 0, 1e308, np.int64(3), np.float32(0.5), np.array([1, 2]), object()]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(RULES)), value=JUNK)
def test_a_forecaster_takes_an_argument_or_refuses_it_in_a_sentence(name: str, value: Any) -> None:
    with contextlib.suppress(InputError):
        Forecaster(**{"horizon": 3, "lookback": 7, "model": "dlinear", name: value})


ARGUMENTS = (
    "d_model",
    "n_heads",
    "n_layers",
    "d_ff",
    "dropout",
    "activation",
    "norm",
    "mechanism",
    "modulate",
    "primer",
)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(ARGUMENTS), value=JUNK.filter(lambda one: not isinstance(one, int) or abs(one) < 100))
def test_a_model_takes_an_argument_or_refuses_it_in_a_sentence(name: str, value: Any) -> None:
    with contextlib.suppress(InputError):
        Forecaster(horizon=3, lookback=7, model_args={"d_model": 16, "n_heads": 2, name: value})


SMALL = {"d_model": 8, "n_heads": 2}
WINDOWS = Windows(torch.zeros(13, 2), None, 0, 7, 3)
FIT = {"model": nn.Linear(2, 2), "train": WINDOWS, "val": WINDOWS, "loss": create_loss("mse")}
FIT |= {"lr": 1e-3, "batch_size": 5, "epochs": 1, "patience": 1, "seed": 0}
PUBLIC: dict[str, tuple[Callable[..., Any], dict[str, Any], set[str]]] = {
    "MultiHeadAttention": (MultiHeadAttention, SMALL, set()),
    "Primer": (Primer, SMALL | {"length": 7}, set()),
    "swap_attention": (swap_attention, {"model": nn.MultiheadAttention(8, 2, batch_first=True), "length": 7}, set()),
    "create_loss": (create_loss, {"name": "huber"}, set()),
    "create_model": (create_model, {"name": "dlinear", "lookback": 7, "horizon": 3, "channels": 2}, set()),
    "Spec": (Spec, {"dataset": "nyc-weather"}, set()),
    "run": (run, {"spec": Spec(dataset="nyc-weather")}, set()),
    "fit": (fit, FIT, set()),
    "evaluate": (evaluate, {"model": nn.Linear(2, 2), "windows": WINDOWS}, set()),
    "split": (split, {"dataset": lagged_system(rows=101, seed=0).dataset, "lookback": 7, "horizon": 3}, set()),
    "load_dataset": (load_dataset, {"name": "nyc-weather"}, set()),
    "fetch": (fetch, {"name": "nyc-weather"}, set()),
    "fit of a Forecaster": (Forecaster(horizon=3).fit, {"data": None}, {"data"}),
    "predict": (Forecaster(horizon=3).predict, {}, {"data", "future"}),
    "plot": (Forecaster(horizon=3).plot, {}, {"data", "truth", "future"}),
    "backtest": (Forecaster(horizon=3).backtest, {}, {"data"}),
    "relations": (Forecaster(horizon=3).relations, {}, {"data"}),
    "sensor_ablation": (Forecaster(horizon=3).sensor_ablation, {}, {"data"}),
    "save": (Forecaster(horizon=3).save, {"path": ""}, set()),
    "load": (Forecaster.load, {"path": ""}, set()),
    "from_pretrained": (Forecaster.from_pretrained, {"name": "nowhere"}, set()),
    "export": (Forecaster(horizon=3).export, {"path": ""}, set()),
}
"""The public functions, arguments to call them with, and the names of those that may be any object: tables."""


@pytest.mark.parametrize("name", PUBLIC)
def test_no_argument_of_a_public_function_is_taken_unseen(name: str) -> None:
    function, given, tables = PUBLIC[name]
    ordered = [one for one in signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    assert {one.name for one in ordered} - rules_of(function).keys() == tables
    for one in ordered:
        if one.name not in tables:
            with pytest.raises(InputError, match=rf"^{one.name} is <object object at \w*>; it must be "):
                function(**{**given, one.name: object()})


def test_what_is_shown_of_an_array_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^horizon is tensor\(\[\[0., 0.\], \[0., 0.\]\]\); it must be") as refused:
        Forecaster(horizon=torch.zeros(2, 2))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_numbers_come_as_those_that_were_declared() -> None:
    model = create_model("lift", lookback=7, horizon=3, channels=2, temperature=1)
    assert isinstance(model, nn.Module)
    create_model("gat", lookback=7, horizon=3, channels=2, d_model=8, n_heads=2, graph_seed=np.int64(3))


@pytest.mark.parametrize("path", ["\0", "\ud800", 5, b"x", None])
def test_what_cannot_be_a_path_is_refused(path: Any) -> None:
    with pytest.raises(InputError, match="^path is .*; it must be a path$"):
        Forecaster.load(path)


def test_rules_follow_from_annotations() -> None:
    def example(
        size: int, seed: int = 0, width: int | None = None, name: str = "a", parts: Mapping[str, int] | None = None,
        flag: bool = True, dropout: float = 0.1, any_of: str | int = 3,
    ) -> None: ...  # fmt: skip

    assert rules_of(example) == {
        "size": Rule("count", Bounds(least=1, most=65536)),
        "seed": Rule("count", Bounds(least=0, most=2**63 - 1)),
        "width": Rule("count", Bounds(least=0, most=65536), optional=True),
        "name": Rule("name"),
        "parts": Rule("mapping", optional=True),
        "flag": Rule("flag"),
        "dropout": Rule("number", Bounds(least=0, below=1)),
    }
