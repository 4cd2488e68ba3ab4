"""One cell of a benchmark: from the name of a data set to its test score.

    spec ─> load_dataset ─> split ─> create_model ─> fit ─> evaluate ─> row

A `Spec` says what to run; `resolve` turns it into every number that will be used, before anything long starts; `run`
runs it. The test windows are touched once, at the end.
"""

import json
import platform
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

from primecast.data.catalog import CATALOG, load_dataset
from primecast.data.presets import preset
from primecast.data.windows import split
from primecast.errors import InputError, unknown
from primecast.losses import FREDF_ALPHA, create_loss
from primecast.models import MODELS, attention_options, create_model
from primecast.primers import parameter_overhead
from primecast.training import SCHEDULES, evaluate, fit


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to run. `settings` replaces what the preset says: "lr", "d_model", "primer.hidden", "loss", "loss.delta".

    preset:    a name in PRESETS. They are those of the paper's backbone, iTransformer; of a model that has settings of
               its own (see ModelEntry) only the preset's loss is used.
    attention: standard, prime, MECHANISM or MECHANISM+prime; None is prime where the model can be primed.
    """

    dataset: str
    model: str = "itransformer"
    attention: str | None = None
    horizon: int = 96
    lookback: int = 96
    seed: int = 0
    preset: str = "official"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Everything a spec comes to, defaults resolved."""

    attention: str
    model: dict[str, Any]
    training: dict[str, Any]
    loss: str
    loss_options: dict[str, Any]


TRAINING = ("lr", "batch_size", "epochs", "patience", "schedule", "drop_last")
"""Settings that belong to `fit`; the others belong to the model or, with a dot, to its primer or the loss."""


def resolve(spec: Spec) -> Plan:
    """Every argument that model, loss and training will get; an unknown name is refused here."""
    if spec.dataset not in CATALOG:
        raise unknown("data set", spec.dataset, CATALOG)
    if spec.model not in MODELS:
        raise unknown("model", spec.model, MODELS)
    accepted = set(signature(MODELS[spec.model].build).parameters) - {"lookback", "horizon", "channels", "marks"}

    attention = spec.attention or ("prime" if MODELS[spec.model].primable else "standard")
    model = attention_options(spec.model, attention)
    training: dict[str, Any] = {"schedule": "halving", "drop_last": True}
    loss, loss_options, primer_options = "mse", {}, {}
    chosen = preset(spec.dataset, name=spec.preset, horizon=spec.horizon)
    own = MODELS[spec.model].settings
    if own is not None:
        chosen = {"loss": chosen["loss"], **own(spec.dataset)}
    for name, value in chosen.items():
        if name == "loss":
            loss = str(value)
        elif name in TRAINING:
            training[name] = value
        elif name == "norm" and isinstance(value, bool):
            model |= {"norm": "instance" if value else "none"} if "norm" in accepted else {}
        elif name in accepted:
            model[name] = value

    for name, value in spec.settings.items():
        if name in TRAINING:
            training[name] = value
        elif name == "loss":
            loss = str(value)
        elif name.startswith("loss."):
            loss_options[name.removeprefix("loss.")] = value
        elif name.startswith("primer.") and model.get("primer") is not None:
            primer_options[name.removeprefix("primer.")] = value
        elif name in accepted:
            model[name] = value
        else:
            primed = ["primer.<argument of Primer>"] if model.get("primer") is not None else []
            raise unknown("setting", name, [*TRAINING, "loss", "loss.<argument>", *primed, *accepted])
    if loss == "fredf" and spec.dataset in FREDF_ALPHA:
        loss_options.setdefault("alpha", FREDF_ALPHA[spec.dataset])
    if primer_options:
        primer = model["primer"] if isinstance(model["primer"], Mapping) else {"kind": model["primer"]}
        model["primer"] = {**primer, **primer_options}
    if training["schedule"] not in SCHEDULES:
        raise unknown("schedule", training["schedule"], SCHEDULES)
    create_loss(loss, **loss_options)
    return Plan(attention=attention, model=model, training=training, loss=loss, loss_options=loss_options)


def run(
    spec: Spec, *, root: Path | str | None = None, state: Path | None = None, progress: str = "auto"
) -> dict[str, Any]:
    """Train and score one cell; returns one flat row that can be written as JSON.

    root: folder of the data files, see `load_dataset`. state, progress: see `fit`.
    """
    plan = resolve(spec)
    dataset = load_dataset(spec.dataset, root)
    splits = split(dataset, lookback=spec.lookback, horizon=spec.horizon)
    model = create_model(
        spec.model,
        lookback=spec.lookback,
        horizon=spec.horizon,
        channels=splits.train.channels,
        seed=spec.seed,
        **_with_marks(spec.model, splits.train.mark_count),
        **plan.model,
    )
    start = time.perf_counter()
    loss = create_loss(plan.loss, **plan.loss_options)
    history = fit(
        model, splits.train, splits.val, loss=loss, seed=spec.seed, state=state, progress=progress, **plan.training
    )
    scores = evaluate(model, splits.test, batch_size=plan.training["batch_size"])  # a size that fits in memory
    overhead = parameter_overhead(model)
    return {
        "dataset": spec.dataset,
        "model": spec.model,
        "attention": plan.attention,
        "horizon": spec.horizon,
        "lookback": spec.lookback,
        "seed": spec.seed,
        "preset": spec.preset,
        "mse": scores.mse,
        "mae": scores.mae,
        "val_mse": history.best.val_mse,
        "epochs": len(history.epochs),
        "best_epoch": history.best_epoch,
        "parameters": sum(p.numel() for p in model.parameters()),
        "overhead": overhead.of_model,
        "overhead_of_attention": overhead.of_attention,
        "seconds": time.perf_counter() - start,
        "seconds_per_epoch": history.seconds / max(1, len(history.epochs)),
        "peak_mib": peak_mib(),
        "versions": versions(),
        "settings": {"model": plan.model, "training": plan.training, "loss": plan.loss, **plan.loss_options},
    }


def _with_marks(model: str, marks: int) -> dict[str, int]:
    return {"marks": marks} if "marks" in signature(MODELS[model].build).parameters else {}


def peak_mib() -> float:
    """Peak resident memory of this process so far, as the operating system counts it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = {name: version(name) for name in ("primecast", "torch", "numpy", "pandas")}
    return {**packages, "python": platform.python_version()}


def parse_setting(text: str) -> tuple[str, Any]:
    """`name=value` from the command line; the value is read as JSON where it is JSON, else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"setting {text!r} must be written name=value, for example lr=0.001")
    try:
        return name.strip(), json.loads(value)
    except json.JSONDecodeError:
        return name.strip(), value
