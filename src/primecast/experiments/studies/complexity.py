"""Cost and error against the density of a drawn graph: at which density does prime attention reach standard at full?"""

import math
from collections.abc import Iterable, Sequence

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.spec import Spec
from primecast.experiments.studies import many_channels
from primecast.experiments.studies.grid import Variants, grid
from primecast.experiments.studies.probed import ATTENTIONS, answers, need_two, over_seeds, table
from primecast.experiments.studies.tables import READING, comparison_table, ordered
from primecast.plotting.figures import curve_figure

TITLE = "Time, memory and error of a graph attention network by density, on Weather"

SMALL = {"d_model": 64, "d_ff": 64, "n_layers": 2, "epochs": 4}
DENSITIES = (1.0, 0.8, 0.6, 0.4, 0.2)
PAPERS_DENSITY = 0.6
"""The density at which the paper finds prime attention as good as standard attention at full."""

LEGEND = """\
A graph attention network whose attention runs over listed pairs of channels alone; *density* is the share of the
ordered pairs that are joined, drawn anew for each seed, the same graph for all attentions. Cost at 32 windows on one
thread: processor time of a training step, in multiples of that of standard attention at full density (each measured
beside a yardstick, in turns) and as it was; memory that autograd keeps for the backward pass. Mean ± standard
deviation over seeds. Two layers of width 64, four epochs: the paper does not tell the size of its network, and thirty
of them are trained."""


def specs(quick: bool = False) -> list[Spec]:
    """From full graphs downwards; then the wide set, whose runs are those of `many_channels`."""
    if quick:
        return _runs("nyc-weather", (1.0, 0.2), seed=0, horizon=24)
    runs = [spec for seed in range(2) for spec in _runs("Weather", DENSITIES, seed=seed, horizon=96)]
    return [*runs, *many_channels.specs()]


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
    graphs, rest = frame[frame["model"] == "gat"], frame[frame["model"] != "gat"]
    parts = []
    if len(graphs):
        runs = _costs(graphs)
        lines = [
            {
                "density": f"{density:.0%}",
                "attention": attention,
                "seeds": len(part),
                "training step": over_seeds(part["times"], 2),
                "training step (ms)": over_seeds(part["step_ms"], 0),
                "forecast (ms)": over_seeds(part["forward_ms"], 0),
                "kept (MiB)": over_seeds(part["kept_mib"], 0),
            }
            for (density, attention), part in runs.groupby(["density", "attention"])
        ]
        errors = comparison_table(ordered(graphs, variants(DENSITIES)), blocks, baseline="standard, 100%")
        parts += [*reached(runs), f"{errors}\n{READING}", f"{table(lines)}\n{LEGEND}"]
    if len(rest):
        parts += ["## The same attentions over all pairs of a wide set", many_channels.render(rest, blocks).rstrip()]
    return "\n\n".join(parts) + "\n"


def reached(runs: pd.DataFrame) -> list[str]:
    """The density from which on each is as good as standard at full, by the mean, and what it costs there."""
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
        f"What density itself is worth: standard attention has {lowest['mse']:.4f} at {lowest.name:.0%} "
        f"({lowest['mse'] / full['mse'] - 1:+.1%})."
    )
    _, *names = ATTENTIONS
    return [*(_reached(name, runs, standard) for name, runs in zip(names, primed, strict=True) if len(runs)), own]


def _reached(name: str, prime: pd.DataFrame, standard: pd.DataFrame) -> str:
    full = standard.loc[1.0]
    target = f"standard at 100% (MSE {full['mse']:.4f})"
    missed = prime[prime["mse"] > full["mse"]].index.max()  # NaN where there is none
    enough = prime if math.isnan(missed) else prime[prime.index > missed]
    if enough.empty:
        best = prime.sort_values("mse").iloc[0]
        return (
            f"Attention {name} is not as good as {target} at its highest density; its best mean is {best['mse']:.4f} "
            f"at {best.name:.0%}."
        )
    there = float(enough.index.min())
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
    """Error, time and memory against density; the dotted line is the error of standard attention at full density."""
    graphs = frame[frame["model"] == "gat"]
    need_two(graphs)
    runs = _costs(graphs)
    full = runs[(runs["attention"] == "standard") & (runs["density"] == runs["density"].max())]
    panels = {"mse": "MSE", "times": "training step (times standard's)", "kept_mib": "kept for backward (MiB)"}
    levels = {"mse": ("standard at full density", float(full["mse"].mean()))}
    return curve_figure(runs, x="density", panels=panels, hue="attention", levels=levels)


def _costs(graphs: pd.DataFrame) -> pd.DataFrame:
    """What was measured of each run, with its density and its step as a multiple of standard attention's at full."""
    runs = answers(graphs, "cost")
    runs["density"] = [settings["model"]["density"] for settings in runs["settings"]]
    full = runs[(runs["attention"] == "standard") & (runs["density"] == 1)]
    return runs.assign(times=runs["step_ratio"] / full["step_ratio"].mean())
