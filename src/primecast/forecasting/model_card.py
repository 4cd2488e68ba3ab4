"""The model card of a saved Forecaster: the facts about it, and its README.md.

Letters: m held-out windows.
"""

from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from typing import Any

import numpy as np
from jaxtyping import Bool

from primecast.errors import format_list
from primecast.forecasting.intervals import ErrorDistribution, least_windows, thinned
from primecast.forecasting.state import FittedState, TrainingRecord
from primecast.frames.dates import describe_step

LEVELS = (80, 90)
"""Levels, in per cent, whose coverage the card reports."""
TESTED = 25
"""Test windows that measure it, at most."""


def collect_facts(state: FittedState, record: TrainingRecord, *, val_errors: Bool[np.ndarray, "m"]) -> dict[str, Any]:
    """Return the facts of the model card; all of them can be written as JSON.

    val_errors: which rows of the calibration are errors of validation rows; the others are of test rows.
    """
    coverage = _coverage(state, val_errors)
    roles, arguments = state.roles, state.arguments
    return {
        "data": {
            "targets": list(roles.targets),
            "past": list(roles.past),
            "future": list(roles.future),
            "step": describe_step(record.data.index),
            "missing": arguments.missing,
            "periods": {name: list(ends) for name, ends in state.periods.items()},
            "season": state.season,
        },
        "model": {
            "name": arguments.model,
            "attention": arguments.attention_name,
            "parameters": sum(p.numel() for p in state.model.parameters()),
            "lookback": state.lookback,
            "horizon": state.horizon,
        },
        "scores": {
            "windows": record.scores.windows,
            "mse": record.scores.mse,
            "mae": record.scores.mae,
            "naive_mse": record.naive_scores.mse,
            "naive_mae": record.naive_scores.mae,
        },
        "coverage": coverage,
        "calibration": len(state.calibration),
        "versions": {name: version(name) for name in ("primecast", "torch", "numpy", "pandas")},
    }


def _coverage(state: FittedState, val_errors: Bool[np.ndarray, "m"]) -> dict[str, float | None]:
    """Return the coverage of test rows by each level, as known at each origin; None with too few validation windows."""
    test = state.calibration.only(~val_errors)
    told = ErrorDistribution(
        state.calibration, until=int(test.origins.min(initial=0)), season=state.season, adaptive=True
    )
    inside: dict[float, list[float]] = {
        level: [] for level in LEVELS if np.count_nonzero(val_errors) >= least_windows(level) and told.windows
    }
    for window in thinned(len(test), cells=1, most=TESTED):
        one = test.only(slice(window, window + 1))
        told.move_to(int(one.origins[0]))
        for level, found in inside.items():
            middle = 0.5 - level / 200, 0.5 + level / 200
            low, high = told.quantiles(one.forecasts, one.origins, middle) - one.forecasts
            found.append(float(((low <= one.errors) & (one.errors <= high)).mean()))
    return {str(level): float(np.mean(inside[level])) if inside.get(level) else None for level in LEVELS}


def model_card(facts: Mapping[str, Any]) -> str:
    """Return the README.md of a saved Forecaster from its facts."""
    data, model, scores = facts["data"], facts["model"], facts["scores"]
    periods = "\n".join(f"| {name} | {first} | {last} |" for name, (first, last) in data["periods"].items())
    covariates = [f"{role}: {', '.join(data[role])}" for role in ("past", "future") if data[role]]
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return f"""---
library_name: primecast
tags: [time-series-forecasting, primecast, {"ensemble" if facts.get("members") else model["name"]}]
---

# Forecasts of {len(data["targets"])} channels, {model["horizon"]} steps ahead

Model: {describe_fitted(facts)}; {model["parameters"]} parameters, trained by primecast.
It reads {model["lookback"]} steps and forecasts {model["horizon"]}; one step is {data["step"]}.

## Data

Channels: {", ".join(data["targets"])}.
{"Covariates: " + "; ".join(covariates) + "." if covariates else "No covariates."}
Missing values: {data["missing"]}.

| rows | first | last |
|---|---|---|
{periods}

## Scores

Of {scores["windows"]} forecasts of the test rows, which were held out from training, in scaled units (each channel by
its mean and standard deviation in the training rows):

| forecast | MSE | MAE |
|---|---|---|
| this model | {scores["mse"]:.4f} | {scores["mae"]:.4f} |
| last season repeated ({data["season"]} steps) | {scores["naive_mse"]:.4f} | {scores["naive_mae"]:.4f} |

{_intervals(facts)}
## Use

    from primecast import Forecaster
    f = Forecaster.load("this folder")
    f.predict(recent, level=[80])      # recent: at least {model["lookback"]} rows of the same channels

Meant for these channels at this step, as long as they behave as in the rows above. It was not tested on other plants,
places or years, nor for decisions in which a single wrong forecast does harm; its intervals describe past errors, not
future ones.

Trained with {versions}.
"""


def describe_fitted(facts: Mapping[str, Any]) -> str:
    """Return the members of an ensemble with their weights, or the name and the attention of a single model."""
    members = [f"{one['weight']:.2f} {one['name']}" for one in facts.get("members", []) if one["weight"] > 0]
    single = "{name} with {attention} attention".format_map(facts["model"])
    return f"ensemble of {'; '.join(members)}" if members else single


def summarize(title: str, facts: Mapping[str, Any]) -> str:
    """Return a small HTML table of a Forecaster, as a notebook shows it. facts: of the card, none before `fit`."""
    rows = {"fitted": "no: call fit(df)"}
    if facts:
        data, model, scores = facts["data"], facts["model"], facts["scores"]
        train, test = data["periods"]["train"], data["periods"]["test"]
        rows = {
            "channels": format_list(data["targets"]),
            "forecast": f"{model['horizon']} steps of {data['step']} from {model['lookback']}",
            "model": describe_fitted(facts),
            "rows": f"trained on {train[0]} to {train[1]}, tested until {test[1]}",
            "test MSE": f"{scores['mse']:.4g} (seasonal naive {scores['naive_mse']:.4g})",
            "test MAE": f"{scores['mae']:.4g} (seasonal naive {scores['naive_mae']:.4g})",
        }
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table><caption><code>{escape(title)}</code></caption>{cells}</table>"


def _intervals(facts: Mapping[str, Any]) -> str:
    intervals = [
        f"| {level} % | {100 * fraction:.1f} % |"
        for level, fraction in facts["coverage"].items()
        if fraction is not None
    ]
    return f"""## Intervals

By channel, step, level of the forecast and time of the season, from the errors of {facts["calibration"]} held-out
windows. Coverage of test rows, with the errors known at each origin:

| level | truths inside |
|---|---|
{chr(10).join(intervals) if intervals else "| - | too few held-out windows |"}
"""
