"""One cell of a benchmark, from the name of a data set, or a table of one's own, to its test score.

    spec ─> load ─> split ─> create_model ─> fit ─> evaluate ─> row

The test windows are used once, at the end. `sweep.run_all` runs many specs into a store.
"""

import os
import platform
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from primecast.analysis.probes import PROBES
from primecast.data.windows import Dataset, Splits, split
from primecast.experiments.spec import ROLLING, Spec, identity, key_of, load, resolve
from primecast.experiments.store import Row
from primecast.models import MODELS, create_model
from primecast.nn.losses import create_loss
from primecast.nn.primer import parameter_overhead
from primecast.schema import checked
from primecast.training.loop import History, evaluate, fit

PROFILES = ("channel_mse", "channel_mae", "step_mse", "step_mae")
"""Errors along channels and steps."""


@checked()
def run(
    spec: Spec,
    *,
    horizons: Sequence[int] = (),
    root: Path | str | None = None,
    state: Path | None = None,
    progress: str = "auto",
) -> Row:
    """Train and score one cell; the row says what was run, and with what result.

    horizons: others at which the trained model is scored, too, by rolling; their rows are `also` of the first.
    root:     folder of the data files, see `load_dataset`. state, progress: see `fit`.
    """
    resolved = resolve(spec)
    dataset = load(spec.dataset, root)
    splits = split(dataset, lookback=spec.lookback, horizon=resolved.train_horizon)
    sizes = {"lookback": spec.lookback, "horizon": resolved.train_horizon, "channels": splits.train.channels}
    if "n_time_features" in signature(MODELS[spec.model].build).parameters:
        sizes["n_time_features"] = splits.train.n_time_features
    model = create_model(spec.model, seed=spec.seed, **{**sizes, **resolved.model})
    loss = create_loss(resolved.loss, **resolved.loss_options)
    history = fit(
        model, splits.train, splits.val, loss=loss, seed=spec.seed, state=state, progress=progress, **resolved.training
    )
    row = None
    for horizon in (*horizons, spec.horizon):
        one = replace(spec, horizon=horizon, settings={**spec.settings, "train_horizon": resolved.train_horizon})
        row = replace(_score(one, model, history, dataset), also=row)
    assert row is not None
    if not resolved.probes:
        return row
    measured, arrays = _probe(resolved.probes, model, splits, dataset)
    fields = {**row.fields, "probes": measured}
    return Row({**fields, "key": key_of(fields)}, {**row.arrays, **arrays}, also=row)


def _score(spec: Spec, model: nn.Module, history: History, dataset: Dataset) -> Row:
    """Score a trained model at the horizon of a spec; the row is that of the run without probes."""
    resolved = resolve(replace(spec, probes=()))
    test = split(dataset, lookback=spec.lookback, horizon=spec.horizon).test
    if spec.model in ROLLING:
        model.horizon = spec.horizon  # type: ignore[assignment]
    start = time.perf_counter()
    scores = evaluate(
        model,
        test,
        batch_size=resolved.training["batch_size"],  # a size that fits in memory
        **{name: resolved.training[name] for name in ("device", "precision") if name in resolved.training},
    )
    seconds = history.seconds + time.perf_counter() - start
    overhead = parameter_overhead(model)
    run_fields = identity(spec, resolved, dataset.fingerprint)
    fields = {
        "key": key_of(run_fields),
        **{name: value for name, value in run_fields.items() if name not in ("settings", "probes")},
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
        "versions": {name: version(name) for name in ("primecast", "torch", "numpy", "pandas")}
        | {"python": platform.python_version()},
        **{name: _to_six_digits(getattr(scores, name)) for name in PROFILES},
        "settings": run_fields["settings"],
        "probes": {},
    }
    windows = {name: getattr(scores, name).astype(np.float32) for name in ("window_mse", "window_mae")}
    return Row(fields, windows)


def _to_six_digits(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _probe(
    names: tuple[str, ...], model: nn.Module, splits: Splits, dataset: Dataset
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what the probes measure: values by probe, and arrays under "<probe>.<name>"."""
    values: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for probe in names:
        model.eval()
        found = PROBES[probe](model, splits, dataset)
        values[probe] = {name: value for name, value in found.items() if not isinstance(value, np.ndarray)}
        arrays |= {f"{probe}.{name}": value for name, value in found.items() if isinstance(value, np.ndarray)}
    return values, arrays


def peak_mib() -> float:
    """Return the peak resident memory of this process so far, as the operating system counts it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def hardware() -> str:
    """Describe the machine in a line: seconds compare only where it is the same."""
    threads = torch.get_num_threads()
    return f"{_processor()}, {os.cpu_count()} cores, {threads} thread{'s' if threads > 1 else ''}"


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
