"""Published settings of every model, by data set and horizon, and ours where none are published.

    published(model, dataset, horizon, preset) -> Settings

The presets name settings of the iTransformer backbone: `official` are those of the public iTransformer scripts; `paper`
those of the configuration table of the prime-attention paper, which re-tuned them; `fredf` those of FreDF's scripts,
which train the same backbone with their own loss. All assume look-back 96. Where the paper is silent the official
convention holds: d_ff = d_model, 8 heads, 10 epochs, patience 3, instance normalization on.

A model with published settings of its own uses those at every preset; only the loss is the preset's. The values are in
presets.toml.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from primecast.errors import check_known

PRESETS = ("official", "paper", "fredf")
TABLES: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    (files("primecast.models") / "presets.toml").read_text("utf-8")
)
"""Rows of settings by table (a preset or a model) and data set."""
FREDF_ALPHA = {"ETTh1": 0.8, "ETTh2": 0.9, "ETTm1": 0.8, "ETTm2": 0.9, "ECL": 0.9, "Traffic": 0.07, "Weather": 0.6}
"""FreDF's alpha per data set; elsewhere none is published, and the default of the loss, 0.8, is our choice."""


@dataclass(frozen=True)
class Settings:
    """How a model is built and trained on a data set; `note` says where the values come from."""

    model: Mapping[str, object]
    training: Mapping[str, object]
    loss: str
    note: str


def published(model: str, dataset: str, horizon: int, preset: str = "official") -> Settings:
    """Return the settings of a model for a data set and horizon; a horizon without a row of its own gets the base row.

    A model without settings of its own gets those of iTransformer.

    >>> published("itransformer", "ETTh1", 720).model["d_model"]
    512
    """
    check_known("preset", preset, PRESETS)
    check_known("data set", dataset, TABLES["official"].keys() - {"all"})
    row = {"epochs": 10, "patience": 3, "schedule": "halving"}
    row |= _row(model if model in TABLES else preset, dataset, horizon)
    training = {name: row.pop(name) for name in ("lr", "batch_size", "epochs", "patience", "schedule")}
    note = str(row.pop("note", ""))
    if "d_model" in row:
        row.setdefault("d_ff", row["d_model"])
    return Settings(row, training, loss="fredf" if preset == "fredf" else "mse", note=note)


def loss_options(loss: str, dataset: str) -> dict[str, float]:
    """Return the published options of a loss on a data set; where there are none, the defaults of the loss hold."""
    return {"alpha": FREDF_ALPHA[dataset]} if loss == "fredf" and dataset in FREDF_ALPHA else {}


def _row(table: str, dataset: str, horizon: int) -> dict[str, Any]:
    """Return a row of a table with all that it inherits; presets.toml explains the keys."""
    rows = TABLES[table]
    if "others" not in rows:
        check_known(f"data set of {table}", dataset, rows.keys() - {"all"})
    row = dict(rows.get(dataset, rows.get("others", {})))
    inherited = dict(rows.get("all", {}))
    if "like" in row or "table" in row:
        inherited |= _row(row.pop("table", table), row.pop("like", dataset), horizon)
    exact, near = row.pop("horizons", {}), row.pop("nearest", {})
    if near:
        row |= near[min(near, key=lambda known: abs(int(known) - horizon))]
    return inherited | row | exact.get(str(horizon), {})
