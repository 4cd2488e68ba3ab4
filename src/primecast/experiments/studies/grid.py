"""Specs by the grid: variants of a model on data sets, horizons and seeds.

A variant is a name for tables and what it means as fields of a Spec: {"attention": "prime", "settings": {...}}.
"""

from collections.abc import Iterable, Mapping
from itertools import product
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
    specs = []
    for dataset, seed, horizon, (name, variant) in product(datasets, seeds, horizons, variants.items()):
        own = "preset" in variant or variant.get("model", "itransformer") != "itransformer"
        parts = [WEATHER if dataset == "Weather" and not own else {}, common, variant]  # later ones win
        fields = {name: value for part in parts for name, value in part.items()}
        fields["settings"] = {name: value for part in parts for name, value in part.get("settings", {}).items()}
        specs.append(Spec(variant=name, dataset=dataset, seed=seed, horizon=horizon, **fields))
    return specs


def quick_grid(variants: Variants, *, seeds: Iterable[int] = (0,), **common: Any) -> list[Spec]:
    """Return the variants on the data that comes with the package, in minutes: shows that a study works, no more."""
    return grid(variants, ["nyc-weather"], seeds=seeds, horizons=[24], settings={"epochs": 3}, **common)


def only(variants: Variants, names: Iterable[str]) -> Variants:
    """Return the variants of these names."""
    return {name: variants[name] for name in names}
