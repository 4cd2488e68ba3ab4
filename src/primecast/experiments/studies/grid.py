"""Specs by the grid: variants of a model on data sets, horizons and seeds.

A variant is a name for tables and what it means as fields of a Spec: {"attention": "prime", "settings": {...}}.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from primecast.experiments.spec import Spec

Variants = Mapping[str, Mapping[str, Any]]

HORIZONS = (96, 192, 336, 720)
"""The four horizons of the paper's tables."""
PRIME_SELF = {"primer.prime_self": True}
"""Settings of prime attention by its printed formula: F_ii is primed like any other pair."""
CHANNEL_EMBEDDINGS = {"channel_embeddings": True}

WEATHER = {"preset": "paper", "settings": {"dropout": 0.1}}
"""The official settings of Weather cost four times as much, and the paper's dropout of 0.4 is tuned: ours between."""


def grid(
    variants: Variants,
    datasets: Iterable[str],
    *,
    seeds: Iterable[int] = (0,),
    horizons: Iterable[int] = (96,),
    **common: Any,
) -> list[Spec]:
    """Return one spec for each data set, seed, horizon and variant; the last varies fastest, so pairs come together."""
    seeds, horizons = list(seeds), list(horizons)
    return [
        Spec(
            variant=name,
            **_merged({"dataset": dataset, "seed": seed, "horizon": horizon}, _of(dataset, variant), common, variant),
        )
        for dataset in datasets
        for seed in seeds
        for horizon in horizons
        for name, variant in variants.items()
    ]


def quick_grid(variants: Variants, *, seeds: Iterable[int] = (0,), **common: Any) -> list[Spec]:
    """Return the variants on the data that comes with the package, in minutes: shows that a study works, no more."""
    return grid(variants, ["nyc-weather"], seeds=seeds, horizons=[24], settings={"epochs": 3}, **common)


def _of(dataset: str, variant: Mapping[str, Any]) -> Mapping[str, Any]:
    own = "preset" in variant or variant.get("model", "itransformer") != "itransformer"
    return WEATHER if dataset == "Weather" and not own else {}


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Merge fields of a spec: later parts win, their settings are joined."""
    fields: dict[str, Any] = {}
    for part in parts:
        settings = {**fields.get("settings", {}), **part.get("settings", {})}
        fields |= {**part, "settings": settings}
    return fields
