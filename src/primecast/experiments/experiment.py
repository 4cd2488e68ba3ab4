"""One cell of a benchmark: from the name of a data set to its test score; and many of them.

    spec ─> load_dataset ─> split ─> create_model ─> fit ─> evaluate ─> row ─> store

A `Spec` says what to run; `resolve` turns it into every number that will be used, before anything long starts; `run`
runs it; `run_all` runs many into a store, in processes of their own. The test windows are touched once, at the end.

A run's identity is its `key`: the hash of all that influences the result, with defaults filled in, and of the data. Two
spellings of one run have one key. So that a key outlives the growth of the package, an argument at its default is left
out of the hash; a default that is changed later must be entered with its former value in FORMER_DEFAULTS.
"""

import hashlib
import json
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np
import torch

from primecast.data.catalog import CATALOG, load_dataset
from primecast.data.windows import Dataset, Splits, split
from primecast.errors import InputError, unknown
from primecast.experiments.engines import Job, Report, sweep
from primecast.experiments.store import Row, Store
from primecast.models import MODELS, attention_options, create_model, default_attention
from primecast.models.presets import loss_options as published_loss_options
from primecast.models.presets import published
from primecast.nn.losses import LOSSES, create_loss
from primecast.nn.primer import Primer, parameter_overhead, seeded
from primecast.training.loop import SCHEDULES, Scores, evaluate, fit


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to run. `settings` replaces what the preset says: "lr", "d_model", "primer.hidden", "loss", "loss.delta".

    preset:    a name in PRESETS. They are those of the paper's backbone, iTransformer; of a model that has settings of
               its own (see ModelEntry) only the preset's loss is used.
    attention: standard, prime-free, prime, MECHANISM or MECHANISM+prime; None is prime-free where it can be primed.
    settings:  besides the arguments of model, primer, loss and training, "rate.<part>" is a factor on the learning rate
               of that part of the model: {"rate.primer": 10}.
    probes:    names in PROBES: what else to measure of the trained model.
    """

    dataset: str
    model: str = "itransformer"
    attention: str | None = None
    horizon: int = 96
    lookback: int = 96
    seed: int = 0
    preset: str = "official"
    settings: Mapping[str, Any] = field(default_factory=dict)
    probes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One line; fields in one order, so that equal specs give equal text."""
        return json.dumps(asdict(self) | {"settings": dict(sorted(self.settings.items()))})

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        fields = json.loads(text)
        return cls(**fields | {"probes": tuple(fields.get("probes", ()))})

    def key(self, root: Path | str | None = None) -> str:
        """The name of the run; the data set is read (once in a process), because it is part of it."""
        return key(self, fingerprint(self.dataset, root))


@dataclass(frozen=True)
class Plan:
    """Everything a spec comes to, defaults resolved."""

    attention: str
    model: dict[str, Any]
    training: dict[str, Any]
    loss: str
    loss_options: dict[str, Any]
    probes: tuple[str, ...] = ()


TRAINING = ("lr", "batch_size", "epochs", "patience", "schedule", "drop_last", "device", "precision")
"""Settings that belong to `fit`; the others belong to the model or, with a dot, to its primer, the loss or rates."""

PRIMER_ARGUMENTS = tuple(sorted(set(signature(Primer).parameters) - {"length", "d_model", "n_heads", "tokens"}))
"""Settings of a primer; the others follow from the model."""


def resolve(spec: Spec) -> Plan:
    """Every argument that model, loss and training will get; an unknown name is refused here."""
    if spec.dataset not in CATALOG:
        raise unknown("data set", spec.dataset, CATALOG)
    if spec.model not in MODELS:
        raise unknown("model", spec.model, MODELS)
    accepted = set(signature(MODELS[spec.model].build).parameters) - {
        "lookback",
        "horizon",
        "channels",
        "n_time_features",
    }

    attention = spec.attention or default_attention(spec.model)
    model = attention_options(spec.model, attention)
    chosen = published(spec.model, spec.dataset, spec.horizon, spec.preset)
    model |= {name: value for name, value in chosen.model.items() if name in accepted}
    training: dict[str, Any] = {"schedule": "halving", "drop_last": True, **chosen.training}
    loss, loss_options, primer_options = chosen.loss, {}, {}

    for name, value in spec.settings.items():
        if name in TRAINING:
            training[name] = value
        elif name == "loss":
            loss = str(value)
        elif name.startswith("loss."):
            loss_options[name.removeprefix("loss.")] = value
        elif name.startswith("rate."):
            training.setdefault("rates", {})[name.removeprefix("rate.")] = value
        elif name.startswith("primer.") and model.get("primer") is not None:
            argument = name.removeprefix("primer.")
            if argument not in PRIMER_ARGUMENTS:
                raise unknown("argument of the primer", argument, PRIMER_ARGUMENTS)
            primer_options[argument] = value
        elif name in accepted:
            model[name] = value
        else:
            primed = ["primer.<argument of Primer>"] if model.get("primer") is not None else []
            allowed = [*TRAINING, "rate.<part of the model>", "loss", "loss.<argument>", *primed, *accepted]
            raise unknown("setting", name, allowed)
    loss_options = published_loss_options(loss, spec.dataset) | loss_options
    if primer_options:
        primer = model["primer"] if isinstance(model["primer"], Mapping) else {"kind": model["primer"]}
        model["primer"] = {**primer, **primer_options}
    if isinstance(model.get("primer"), Mapping):
        model["primer"] = seeded(model["primer"], spec.seed)
    if training["schedule"] not in SCHEDULES:
        raise unknown("schedule", training["schedule"], SCHEDULES)
    create_loss(loss, **loss_options)
    _check_probes(spec.probes)
    return Plan(
        attention=attention,
        model=model,
        training=training,
        loss=loss,
        loss_options=loss_options,
        probes=tuple(sorted(set(spec.probes))),
    )


def _check_probes(names: tuple[str, ...]) -> None:
    if names:
        from primecast.analysis.probes import PROBES

        for name in names:
            if name not in PROBES:
                raise unknown("probe", name, PROBES)


# ---------------------------------------------------------------- the identity of a run

FORMER_DEFAULTS: dict[str, Any] = {"primer.free": False}
"""Defaults that were changed since there are keys, with their value before, and arguments that are no more.

Names are those of settings; the loss's are written "loss.<argument>", those of fit as they are.
"""

FIT_DEFAULTS: dict[str, Any] = {
    "schedule": "halving",
    "drop_last": True,
    "device": "cpu",
    "precision": "float32",
    "rates": {},
}


def settings_of(plan: Plan, spec: Spec) -> dict[str, Any]:
    """Every setting of a run with all defaults written out: what a row keeps, and what its key is made of."""
    model = _filled(
        plan.model, MODELS[spec.model].build, without={"lookback", "horizon", "channels", "n_time_features"}
    )
    if "d_ff" in model and model["d_ff"] is None:
        model["d_ff"] = _default_d_ff_ratio(spec.model) * model["d_model"]
    if model.get("primer") is not None:
        given = model["primer"] if isinstance(model["primer"], Mapping) else {"kind": model["primer"]}
        primer = _filled(given, Primer, without={"length", "d_model", "n_heads", "tokens"})
        primer["hidden"] = 2 * model["n_heads"] if primer["hidden"] is None else primer["hidden"]
        primer["rolling"] = max(2, spec.lookback // 8) if primer["rolling"] is None else primer["rolling"]
        primer["layers"] = bool(primer["layers"])
        model["primer"] = primer
    training = {**FIT_DEFAULTS, **plan.training}
    training["rates"] = {part: factor for part, factor in training["rates"].items() if factor != 1}
    loss_options = _filled(plan.loss_options, LOSSES[plan.loss], without={"forecast", "truth"})
    return {"model": model, "training": training, "loss": plan.loss, "loss_options": loss_options}


def _default_d_ff_ratio(model: str) -> float:
    """The feed-forward width as a multiple of the model's, where the model's default is to follow it; else nothing."""
    follows = _defaults(MODELS[model].build).get("d_ff", 0) is None
    return {"autoformer": 4, "timer_xl": 4}.get(model, 1) if follows else math.nan


def _filled(given: Mapping[str, Any], function: Any, *, without: set[str]) -> dict[str, Any]:
    return _defaults(function, without) | dict(given)


def _defaults(function: Any, without: set[str] | frozenset[str] = frozenset()) -> dict[str, Any]:
    parameters = signature(function).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in without and parameter.default is not Parameter.empty
    }


def key_of(fields: Mapping[str, Any]) -> str:
    """The key that a row's own fields give: nothing else is needed, not even the data."""
    settings = fields["settings"]
    model = dict(settings["model"])
    primer = model.pop("primer", None)
    if "d_ff" in model and model["d_ff"] == _default_d_ff_ratio(fields["model"]) * model["d_model"]:
        del model["d_ff"]
    told = {
        **_non_default_arguments(model, _defaults(MODELS[fields["model"]].build)),
        **_non_default_arguments(settings["training"], FIT_DEFAULTS),
        **_non_default_arguments(settings["loss_options"], _defaults(LOSSES[settings["loss"]]), "loss."),
    }
    if primer is not None:
        usual = _defaults(Primer) | {
            "hidden": 2 * settings["model"]["n_heads"],
            "rolling": max(2, fields["lookback"] // 8),
            "layers": False,
        }
        if primer["kind"] == "free":  # was written so when keys were first made
            primer = {**primer, "kind": "random", "free": True}
        told |= {"primed": True, **_non_default_arguments(primer, usual, "primer.")}
    identity = {
        **{name: fields[name] for name in ("dataset", "fingerprint", "model", "lookback", "horizon", "seed")},
        "loss": settings["loss"],
        "probes": sorted(fields["probes"]),
        "settings": told,
    }
    text = json.dumps(_canonical(identity), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _non_default_arguments(given: Mapping[str, Any], usual: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Arguments that are not at their default, or at the default they had when keys were first made."""
    defaults = {prefix + name: value for name, value in usual.items()} | FORMER_DEFAULTS
    named = {prefix + name: value for name, value in given.items()}
    return {name: value for name, value in named.items() if name not in defaults or value != defaults[name]}


def _canonical(value: Any) -> Any:
    """1 and 1.0 are one number, tuples are lists."""
    if isinstance(value, Mapping):
        return {str(name): _canonical(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def key(spec: Spec, fingerprint: str) -> str:
    """The key of a spec on data of this fingerprint."""
    return key_of(_identity(spec, resolve(spec), fingerprint))


def _identity(spec: Spec, plan: Plan, fingerprint: str) -> dict[str, Any]:
    return {
        "dataset": spec.dataset,
        "model": spec.model,
        "attention": plan.attention,
        "horizon": spec.horizon,
        "lookback": spec.lookback,
        "seed": spec.seed,
        "preset": spec.preset,
        "fingerprint": fingerprint,
        "settings": settings_of(plan, spec),
        "probes": {name: {} for name in plan.probes},
    }


def fingerprint(dataset: str, root: Path | str | None = None) -> str:
    """Of a data set's values and dates, see Dataset; read once in a process."""
    if dataset not in CATALOG:
        raise unknown("data set", dataset, CATALOG)
    return _fingerprint(dataset, None if root is None else str(root), os.environ.get("PRIMECAST_DATA"))


@cache
def _fingerprint(dataset: str, root: str | None, variable: str | None) -> str:
    return load_dataset(dataset, root).fingerprint


# ---------------------------------------------------------------- one run


def run(spec: Spec, *, root: Path | str | None = None, state: Path | None = None, progress: str = "auto") -> Row:
    """Train and score one cell; the row says what was run, and with what result.

    root: folder of the data files, see `load_dataset`. state, progress: see `fit`.
    """
    plan = resolve(spec)
    dataset = load_dataset(spec.dataset, root)
    identity = _identity(spec, plan, dataset.fingerprint)
    splits = split(dataset, lookback=spec.lookback, horizon=spec.horizon)
    model = create_model(
        spec.model,
        lookback=spec.lookback,
        horizon=spec.horizon,
        channels=splits.train.channels,
        seed=spec.seed,
        **{**_with_time_features(spec.model, splits.train.n_time_features), **plan.model},
    )
    loss = create_loss(plan.loss, **plan.loss_options)
    history = fit(
        model, splits.train, splits.val, loss=loss, seed=spec.seed, state=state, progress=progress, **plan.training
    )
    start = time.perf_counter()
    scores = evaluate(
        model,
        splits.test,
        batch_size=plan.training["batch_size"],  # a size that fits in memory
        **{name: plan.training[name] for name in ("device", "precision") if name in plan.training},
    )
    seconds = history.seconds + time.perf_counter() - start
    overhead = parameter_overhead(model)
    fields = {
        "key": "",
        **{name: value for name, value in identity.items() if name not in ("settings", "probes")},
        "mse": scores.mse,
        "mae": scores.mae,
        "val_mse": history.best.val_mse,
        "val_mae": history.best.val_mae,
        "windows": scores.windows,
        "epochs": len(history.epochs),
        "best_epoch": history.best_epoch,
        "steps": history.steps,
        "parameters": sum(p.numel() for p in model.parameters()),
        "overhead": overhead.of_model,
        "overhead_of_attention": overhead.of_attention,
        "seconds": seconds,
        "seconds_per_epoch": history.seconds / max(1, len(history.epochs)),
        "peak_mib": peak_mib(),
        "hardware": hardware(),
        "versions": versions(),
        **_profiles(scores),
        "settings": identity["settings"],
        "probes": {},
    }
    windows = {name: getattr(scores, name).astype(np.float32) for name in ("window_mse", "window_mae")}
    unprobed = Row({**fields, "key": key_of(fields)}, windows)
    if not plan.probes:
        return unprobed
    measured, arrays = _probe(plan.probes, model, splits, dataset)
    return Row({**fields, "key": key_of(identity), "probes": measured}, {**windows, **arrays}, also=unprobed)


def _profiles(scores: Scores) -> dict[str, list[float]]:
    """The errors along steps and channels, to six digits."""
    names = ("channel_mse", "channel_mae", "step_mse", "step_mae")
    return {name: [float(f"{value:.6g}") for value in getattr(scores, name)] for name in names}


def _probe(
    names: tuple[str, ...], model: torch.nn.Module, splits: Splits, dataset: Dataset
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the probes say: values by probe, and arrays under "<probe>.<name>"."""
    from primecast.analysis.probes import PROBES

    values: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for probe in names:
        model.eval()
        found = PROBES[probe](model, splits, dataset)
        values[probe] = {name: value for name, value in found.items() if not isinstance(value, np.ndarray)}
        arrays |= {f"{probe}.{name}": value for name, value in found.items() if isinstance(value, np.ndarray)}
    return values, arrays


def _with_time_features(model: str, count: int) -> dict[str, int]:
    return {"n_time_features": count} if "n_time_features" in signature(MODELS[model].build).parameters else {}


def peak_mib() -> float:
    """Peak resident memory of this process so far, as the operating system counts it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def hardware() -> str:
    """The machine in a line: seconds compare only where it is the same."""
    threads = torch.get_num_threads()
    return f"{_processor()}, {os.cpu_count()} cores, {threads} thread{'s' if threads > 1 else ''}"


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


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


# ---------------------------------------------------------------- many runs


def run_all(
    specs: Iterable[Spec],
    store: Store,
    *,
    engine: str = "local",
    workers: int | None = None,
    root: Path | str | None = None,
    progress: str = "auto",
    address: str | None = None,
) -> Report:
    """Run what is not in the store yet, in the order given; the same call continues a sweep that was cut off.

    engine:  "local": a process with one thread for each run, `workers` at a time, as many as there are cores when
             None. "ray": a task for each run on the Ray cluster at `address`, or on one started here.
    A spec that fails does not stop the others: its sentence is in the report.
    """
    jobs, refused = [], {}
    for spec in specs:
        try:
            jobs.append(Job(spec.key(root), spec.to_json(), _shown(spec)))
        except InputError as error:
            refused[_shown(spec)] = str(error)
    report = sweep(
        jobs, store, engine=engine, workers=workers, root=root, progress=progress, address=address, task=run_json
    )
    report.failed.update(refused)
    return report


def run_json(text: str, root: str | None, state: str | None) -> Row:
    """`run` for another process: it is given text, prints nothing and uses one thread."""
    torch.set_num_threads(1)
    return run(Spec.from_json(text), root=root, state=None if state is None else Path(state), progress="off")


def _shown(spec: Spec) -> str:
    settings = "".join(f" {name}={value}" for name, value in spec.settings.items())
    attention = spec.attention or "default attention"
    return f"{spec.dataset} {spec.lookback}->{spec.horizon} {spec.model} {attention}{settings} seed {spec.seed}"
