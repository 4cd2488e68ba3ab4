"""Cost and error against the density of a random graph, and the density at which prime reaches standard at full.

A graph attention network whose attention runs over listed pairs of channels alone; *density* is the fraction of
the ordered pairs that are joined, drawn for each seed, the same graph for all attentions. Cost at 32 windows on one
thread: processor time of a training step, in multiples of that of standard attention at full density (each measured
beside a reference workload, in turns) and as measured; memory that autograd keeps for the backward pass;
floating-point operations of a step as torch counts them, products of matrices alone. Mean ± standard deviation over
seeds. Two layers of width 64, four epochs: the paper does not state the size of its network, and thirty of them are
trained.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.grid import Variants, grid
from primecast.experiments.studies.probed import ATTENTIONS, cost_columns, measurements, need_two
from primecast.experiments.studies.tables import READING, comparison_table, groups, legend, ordered, table
from primecast.plotting.figures import curve_figure

TITLE = "Time, memory and error of a graph attention network by density, on Weather"

SMALL = {"d_model": 64, "d_ff": 64, "n_layers": 2, "epochs": 4}
DENSITIES = (1.0, 0.8, 0.6, 0.4, 0.2)
PAPERS_DENSITY = 0.6
"""The density at which the paper finds prime attention as good as standard attention at full."""


def _variants(densities: Sequence[float]) -> Variants:
    return {
        f"{attention}, {density:.0%}": {"attention": attention, "settings": {"density": density}}
        for density in densities
        for attention in ATTENTIONS
    }


VARIANTS = _variants(DENSITIES)
COMMON: dict[str, Any] = {"model": "gat", "probes": ("cost",)}
SPECS = [
    *grid(VARIANTS, ["Weather"], seeds=[0], settings={**SMALL, "graph_seed": 0}, **COMMON),
    *grid(VARIANTS, ["Weather"], seeds=[1], settings={**SMALL, "graph_seed": 1}, **COMMON),
]
QUICK = grid(_variants((1.0, 0.2)), ["nyc-weather"], horizons=[24], settings={**SMALL, "graph_seed": 0}, **COMMON)


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    frame = frame[frame["model"] == "gat"]  # files of before have the runs of many_channels, too
    runs = _costs(frame)
    lines = [
        {"density": f"{density:.0%}", "attention": attention, "seeds": len(part), **cost_columns(part)}
        for (density, attention), part in runs.groupby(["density", "attention"])
    ]
    errors = comparison_table(ordered(frame, VARIANTS), blocks, baseline="standard, 100%")
    return "\n\n".join([*reached(runs), f"{errors}\n{READING}", f"{table(lines)}\n{legend(__doc__)}"]) + "\n"


def reached(runs: pd.DataFrame) -> list[str]:
    """Return the density from which on each is as good as standard at full, by the mean, and its cost there."""
    seeds = runs[(runs["attention"] == "standard") & (runs["density"] == 1)]["seed"]
    by_attention = groups(runs[runs["seed"].isin(seeds)], "attention")
    means = {name: part.groupby("density")[["mse", "step_ratio", "kept_mib"]].mean() for name, part in by_attention}
    if "standard" not in means or len(means) == 1:
        return ["Standard attention at full density and primed attention are not both there yet."]
    standard = means.pop("standard")
    full, lowest = standard.to_dict("index")[1.0], standard.iloc[0]
    own = (
        f"The effect of density itself: standard attention has {lowest['mse']:.4f} at {lowest.name:.0%} "
        f"({lowest['mse'] / full['mse'] - 1:+.1%})."
    )
    return [*(_reached(name, means[name], full) for name in ATTENTIONS if name in means), own]


def _lowest_density(prime: pd.DataFrame, mse: float) -> float | None:
    """Return the density from which on the mean error is at most this; None if it is not at the highest."""
    missed = prime[prime["mse"] > mse].index.max()  # NaN where there is none
    enough = prime if math.isnan(missed) else prime[prime.index > missed]
    return float(enough.index.min()) if len(enough) else None


def _reached(name: str, prime: pd.DataFrame, full: Mapping[Any, float]) -> str:
    target = f"standard at 100% (MSE {full['mse']:.4f})"
    there = _lowest_density(prime, full["mse"])
    if there is None:
        best, at = prime["mse"].min(), prime["mse"].idxmin()
        missed = f"Attention {name} is not as good as {target} at its highest density"
        return f"{missed}; its best mean is {best:.4f} at {at:.0%}."
    papers = f": {_at(PAPERS_DENSITY, prime, full)} here" if there < PAPERS_DENSITY in prime.index else ""
    return (
        f"By the mean, attention {name} is as good as {target} from density {there:.0%} on: "
        f"{_at(there, prime, full)}. The paper: {PAPERS_DENSITY:.0%}, with less time and memory{papers}."
    )


def _at(density: float, prime: pd.DataFrame, full: Mapping[Any, float]) -> str:
    """Return error and cost at a density, beside those of standard attention at full."""
    its = prime.to_dict("index")[density]
    mse, step, memory = (its[name] / full[name] for name in ("mse", "step_ratio", "kept_mib"))
    return f"MSE {its['mse']:.4f} ({mse - 1:+.1%}), training step x {step:.2f}, memory x {memory:.2f}"


def figure(frame: pd.DataFrame) -> Figure:
    """Draw error, time and memory against density; the dotted line is the error of standard attention at full density.

    As in the paper, red stars mark equal error: standard attention at full density and the lowest density at which
    prime attention reaches it; a green triangle points from the cost of the first to that of the second.
    """
    need_two(frame)
    runs = _costs(frame)
    panels = {"mse": "MSE", "times": "training step (relative to standard)", "kept_mib": "kept for backward (MiB)"}
    standard, prime = (
        runs[runs["attention"] == name].groupby("density")[list(panels)].mean() for name in ("standard", "prime")
    )
    densest = standard.index.max()
    full = standard.loc[densest]
    levels = {"mse": ("standard attention, full density", float(full["mse"]))}
    drawing = curve_figure(runs, x="density", panels=panels, hue="attention", levels=levels)
    there = _lowest_density(prime, float(full["mse"])) if len(prime) else None
    if there is not None:
        for axis, column in zip(drawing.axes, panels, strict=False):
            cost, own = float(full[column]), float(prime[column][there])
            axis.plot([densest, there], [cost, own], "*", color="#d00000", markersize=13, zorder=5)
            if column != "mse":
                axis.plot([there, there], [cost, own], "-", color="#2d9d47", linewidth=1)
                axis.plot(there, (cost + own) / 2, "v" if own < cost else "^", color="#2d9d47", markersize=9, zorder=5)
    return drawing


def _costs(graphs: pd.DataFrame) -> pd.DataFrame:
    """Return the measured cost of each run, with its density and its step as a multiple of standard's at full."""
    runs = measurements(graphs, "cost")
    runs["density"] = [settings["model"]["density"] for settings in runs["settings"]]
    full = runs[(runs["attention"] == "standard") & (runs["density"] == 1)]
    return runs.assign(times=runs["step_ratio"] / full["step_ratio"].mean())
