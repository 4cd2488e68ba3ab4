"""Specs by the grid: variants of a model on data sets, horizons and seeds, and the way back from a spec to its variant.

A variant is a name for people and what it means as fields of a Spec: {"attention": "prime", "settings": {...}}.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from primecast.errors import InputError
from primecast.experiments.experiment import Spec

Variants = Mapping[str, Mapping[str, Any]]

OWN_PAIR_TOO = {"primer.prime_self": True}
"""Settings of prime attention as it was when most runs were made: F_ii is primed like any other."""

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
    """One spec for each data set, seed, horizon and variant; the last varies fastest, so that pairs come together."""
    seeds, horizons = list(seeds), list(horizons)
    return [
        Spec(**_merged({"dataset": dataset, "seed": seed, "horizon": horizon}, _of(dataset, variant), common, variant))
        for dataset in datasets
        for seed in seeds
        for horizon in horizons
        for variant in variants.values()
    ]


def quick_grid(variants: Variants, *, seeds: Iterable[int] = (0,), **common: Any) -> list[Spec]:
    """The variants on the data that comes with the package, in minutes: shows that a study works, no more."""
    return grid(variants, ["nyc-weather"], seeds=seeds, horizons=[24], settings={"epochs": 3}, **common)


def _of(dataset: str, variant: Mapping[str, Any]) -> Mapping[str, Any]:
    own = "preset" in variant or variant.get("model", "itransformer") != "itransformer"
    return WEATHER if dataset == "Weather" and not own else {}


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Later parts win; their settings are joined."""
    fields: dict[str, Any] = {}
    for part in parts:
        settings = {**fields.get("settings", {}), **part.get("settings", {})}
        fields |= {**part, "settings": settings}
    return fields


def variant_of(spec: Spec, variants: Variants) -> str:
    """The variant a spec was made from: all it asks for is there, and of several the one that asks for most."""

    def fits(variant: Mapping[str, Any]) -> bool:
        own = {name: value for name, value in variant.items() if name != "settings"}
        settings = variant.get("settings", {})
        return all(getattr(spec, name) == value for name, value in own.items()) and all(
            spec.settings.get(name) == value for name, value in settings.items()
        )

    fitting = [name for name, variant in variants.items() if fits(variant)]
    if not fitting:
        raise InputError(f"no variant of this study is {spec.to_json()}")
    return max(fitting, key=lambda name: len(variants[name].get("settings", {})))
