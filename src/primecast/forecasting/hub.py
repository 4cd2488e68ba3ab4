"""The face a saved model shows: its model card, and the way to and from the Hugging Face Hub.

A saved folder has the Hub's own layout, config.json, model.safetensors and README.md, so publishing is uploading it and
nothing else. huggingface_hub is an extra; what comes down goes through the same checks as any other folder.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from primecast.errors import InputError
from primecast.storage.tensors import CARD, CONFIG, WEIGHTS

FILES = [CONFIG, WEIGHTS, CARD]


def model_card(facts: Mapping[str, Any]) -> str:
    """README.md of a saved Forecaster, written for the model at hand; `facts` are those of `Forecaster.facts_`."""
    data, model, scores = facts["data"], facts["model"], facts["scores"]
    periods = "\n".join(f"| {name} | {first} | {last} |" for name, (first, last) in data["periods"].items())
    covariates = [f"{role}: {', '.join(data[role])}" for role in ("past", "future") if data[role]]
    intervals = [
        f"| {level} % | {100 * share:.1f} % |" for level, share in facts["coverage"].items() if share is not None
    ]
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return f"""---
library_name: primecast
tags: [time-series-forecasting, primecast, {model["name"]}]
---

# Forecasts of {len(data["targets"])} channels, {model["horizon"]} steps ahead

Model: {model["name"]} with {model["attention"]} attention, {model["parameters"]} parameters, made by primecast.
It looks at {model["lookback"]} steps and forecasts {model["horizon"]}, one step being {data["step"]}.

## Data

Channels: {", ".join(data["targets"])}.
{"Covariates: " + "; ".join(covariates) + "." if covariates else "No covariates."}
Missing values: {data["missing"]}.

| rows | first | last |
|---|---|---|
{periods}

## Scores

Of {scores["windows"]} forecasts of the test rows, which training had not seen, in scaled units (each channel by its
mean and deviation in the training rows):

| forecast | MSE | MAE |
|---|---|---|
| this model | {scores["mse"]:.4f} | {scores["mae"]:.4f} |
| last season repeated ({data["season"]} steps) | {scores["naive_mse"]:.4f} | {scores["naive_mae"]:.4f} |

## Intervals

Split-conformal, per channel and step, from the errors of {facts["calibration"]} held-out windows. Measured on the test
rows with the errors of the validation rows alone:

| asked for | truths inside |
|---|---|
{chr(10).join(intervals) if intervals else "| - | too few held-out windows to say |"}

## Use

    from primecast import Forecaster
    f = Forecaster.load("this folder")
    f.predict(recent, level=[80])      # recent: at least {model["lookback"]} rows of the same channels

Meant for these channels at this step, as long as they behave as in the rows above. It was not tested on other plants,
places or years, nor for decisions in which a single wrong forecast does harm; its intervals say how often it was wrong
before, not how often it will be.

Made with {versions}.
"""


def push(folder: Path, repo_id: str, *, private: bool) -> str:
    """Upload a saved folder; returns the address of the commit."""
    hub = _hub()
    api = hub.HfApi()
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id, folder_path=str(folder), allow_patterns=FILES, commit_message="Upload a primecast model"
        )
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise InputError(f"cannot upload to {repo_id!r}: {_first_line(error)}") from error
    return str(commit)


def pull(repo_id: str, *, revision: str | None) -> Path:
    """The three files of a model of the Hub, in the local cache; nothing else is downloaded."""
    hub = _hub()
    try:
        return Path(hub.snapshot_download(repo_id, revision=revision, allow_patterns=FILES))
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError, ValueError) as error:
        raise InputError(
            f"there is no folder {repo_id!r}, and it cannot be had from the Hub: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _hub() -> Any:
    try:
        import_module("huggingface_hub.errors")  # not loaded by the package itself
        return import_module("huggingface_hub")
    except ImportError as error:
        raise InputError("the Hugging Face Hub needs huggingface_hub: pip install 'primecast[hub]'") from error
