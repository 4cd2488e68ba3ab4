"""Cost and error against the density of a random graph, and the density at which prime reaches standard at full."""

import math
from collections.abc import Iterable, Sequence

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid
from primecast.experiments.studies.probed import ATTENTIONS, cost_columns, measurements, need_two, table
from primecast.experiments.studies.tables import READING, comparison_table, ordered
from primecast.plotting.figures import curve_figure

TITLE = "Time, memory and error of a graph attention network by density, on Weather"

SMALL = {"d_model": 64, "d_ff": 64, "n_layers": 2, "epochs": 4}
DENSITIES = (1.0, 0.8, 0.6, 0.4, 0.2)
PAPERS_DENSITY = 0.6
"""The density at which the paper finds prime attention as good as standard attention at full."""

LEGEND = """\
A graph attention network whose attention runs over listed pairs of channels alone; *density* is the fraction of
the ordered pairs that are joined, drawn for each seed, the same graph for all attentions. Cost at 32 windows on one
thread: processor time of a training step, in multiples of that of standard attention at full density (each measured
beside a reference workload, in turns) and as measured; memory that autograd keeps for the backward pass;
floating-point operations of a step as torch counts them, products of matrices alone. Mean ± standard deviation over
seeds. Two layers of width 64, four epochs: the paper does not state the size of its network, and thirty of them are
trained."""


def specs(quick: bool = False) -> list[Spec]:
    """Two seeds on Weather, from full graphs downwards."""
    if quick:
        return _runs("nyc-weather", (1.0, 0.2), seed=0, horizon=24)
    return [spec for seed in range(2) for spec in _runs("Weather", DENSITIES, seed=seed, horizon=96)]


def _runs(dataset: str, densities: Sequence[float], *, seed: int, horizon: int) -> list[Spec]:
    return grid(
        variants(densities),
        [dataset],
        seeds=[seed],
        horizons=[horizon],
        model="gat",
        probes=("cost",),
        settings={**SMALL, "graph_seed": seed},
    )


def variants(densities: Iterable[float]) -> Variants:
    return {
        f"{attention}, {density:.0%}": {"attention": attention, "settings": {"density": density}}
        for density in densities
        for attention in ATTENTIONS
    }


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    frame = frame[frame["model"] == "gat"]  # files of before have the runs of many_channels, too
    runs = _costs(frame)
    lines = [
        {"density": f"{density:.0%}", "attention": attention, "seeds": len(part), **cost_columns(part)}
        for (density, attention), part in runs.groupby(["density", "attention"])
    ]
    errors = comparison_table(ordered(frame, variants(DENSITIES)), blocks, baseline="standard, 100%")
    return "\n\n".join([*reached(runs), f"{errors}\n{READING}", f"{table(lines)}\n{LEGEND}"]) + "\n"


def reached(runs: pd.DataFrame) -> list[str]:
    """Return the density from which on each is as good as standard at full, by the mean, and its cost there."""
    full_seeds = set(runs[(runs["attention"] == "standard") & (runs["density"] == 1)]["seed"])
    standard, *primed = (
        runs[(runs["attention"] == attention) & runs["seed"].isin(full_seeds)]
        .groupby("density")[["mse", "step_ratio", "kept_mib"]]
        .mean()
        for attention in ATTENTIONS
    )
    if standard.empty or all(runs.empty for runs in primed):
        return ["Standard attention at full density and primed attention are not both there yet."]
    full = standard.loc[1.0]
    lowest = standard.loc[standard.index.min()]
    own = (
        f"The effect of density itself: standard attention has {lowest['mse']:.4f} at {lowest.name:.0%} "
        f"({lowest['mse'] / full['mse'] - 1:+.1%})."
    )
    _, *names = ATTENTIONS
    return [*(_reached(name, runs, standard) for name, runs in zip(names, primed, strict=True) if len(runs)), own]


def _lowest_density(prime: pd.DataFrame, mse: float) -> float | None:
    """Return the density from which on the mean error is at most this; None if it is not at the highest."""
    missed = prime[prime["mse"] > mse].index.max()  # NaN where there is none
    enough = prime if math.isnan(missed) else prime[prime.index > missed]
    return float(enough.index.min()) if len(enough) else None


def _reached(name: str, prime: pd.DataFrame, standard: pd.DataFrame) -> str:
    full = float(standard["mse"][1.0])
    target = f"standard at 100% (MSE {full:.4f})"
    there = _lowest_density(prime, full)
    if there is None:
        best = prime.sort_values("mse").iloc[0]
        return (
            f"Attention {name} is not as good as {target} at its highest density; its best mean is {best['mse']:.4f} "
            f"at {best.name:.0%}."
        )
    papers = f": {_at(PAPERS_DENSITY, prime, standard)} here" if there < PAPERS_DENSITY in prime.index else ""
    return (
        f"By the mean, attention {name} is as good as {target} from density {there:.0%} on: "
        f"{_at(there, prime, standard)}. The paper: {PAPERS_DENSITY:.0%}, with less time and memory{papers}."
    )


def _at(density: float, prime: pd.DataFrame, standard: pd.DataFrame) -> str:
    """Error and cost at a density, beside those of standard attention at full."""
    its, full = prime.to_dict("index")[density], standard.to_dict("index")[1.0]
    change, step, memory = (its[name] / full[name] for name in ("mse", "step_ratio", "kept_mib"))
    return f"MSE {its['mse']:.4f} ({change - 1:+.1%}), training step x {step:.2f}, memory x {memory:.2f}"


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
