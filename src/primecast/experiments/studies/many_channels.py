"""Data sets with more than a hundred channels: standard and primed attention, with their cost."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import CHANNEL_EMBEDDINGS, Variants, grid
from primecast.experiments.studies.probed import ATTENTIONS, cost_columns, measurements, need_two, table
from primecast.experiments.studies.tables import READING, comparison_table, ordered
from primecast.plotting.figures import bar_figure

TITLE = "Many channels: standard and primed attention, with their cost"

EMBEDDED = "standard, channel embeddings"
VARIANTS: Variants = {**ATTENTIONS, EMBEDDED: {"attention": "standard", "settings": CHANNEL_EMBEDDINGS}}
"""The attentions, and the best control: a model that knows its channels without a primer."""
STAND_INS = ["eia-demand", "beijing-multisite", "aarhus-traffic"]
"""Public sets where the paper has ECL, Traffic and PEMS, which are not among our data."""

LEGEND = """\
Horizon 96, look-back 96, settings of our own (nothing is published for these data sets), three epochs: simbench has 177
channels, eia-demand 117, beijing-multisite 132, aarhus-traffic 449. Cost at 32 windows on one thread: processor time of
a training step, in multiples of standard attention's (each measured beside a reference workload, in turns) and as
measured; memory that autograd keeps for the backward pass; floating-point operations of a step as torch counts them,
products of matrices alone. Mean ± standard deviation over seeds."""


def specs(quick: bool = False) -> list[Spec]:
    """One seed of each, then a second; three epochs, because one epoch of simbench takes 8 to 14 minutes of a core."""
    if quick:
        return grid(VARIANTS, ["nyc-weather"], seeds=[0], horizons=[24], probes=("cost",))
    short: dict[str, Any] = {"probes": ("cost",), "settings": {"epochs": 3}}
    return [
        *grid(VARIANTS, ["simbench"], seeds=range(2), **short),
        *(spec for seed in range(2) for spec in grid(VARIANTS, STAND_INS, seeds=[seed], **short)),
    ]


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    named = ordered(frame, VARIANTS)
    lines = []
    for dataset, part in measurements(named, "cost").groupby("dataset", sort=False):
        usual = part[part["variant"] == "standard"]["step_ratio"].mean()  # NaN, shown as none, where it is missing
        for variant, runs in part.assign(times=part["step_ratio"] / usual).groupby("variant", sort=False):
            parameters = f"{int(runs['parameters'].iloc[0]):,}"
            first = {"data set": dataset, "variant": variant, "seeds": len(runs)}
            lines.append({**first, **cost_columns(runs), "parameters": parameters})
    _, *primed = ATTENTIONS
    against = dict.fromkeys(primed, EMBEDDED)
    beside = comparison_table(named[named["variant"] != "standard"], blocks, baseline=against)
    return (
        f"{comparison_table(named, blocks, baseline='standard')}\nPrimed attention against standard attention with "
        f"channel embeddings:\n\n{beside}\n{READING}\n\n{table(lines)}\n{LEGEND}\n"
    )


def figure(frame: pd.DataFrame) -> Figure:
    """Draw error, time and memory of each variant, relative to standard."""
    measured = measurements(ordered(frame, VARIANTS), "cost")
    need_two(measured)
    panels = {}
    for dataset, part in measured.groupby("dataset", sort=False):
        runs = part.groupby("variant", sort=False)[["mse", "step_ratio", "kept_mib"]].mean()
        if "standard" in runs.index:
            relative = (runs / runs.loc["standard"]).T
            relative.index = pd.Index(["error", "training step", "memory kept"])
            panels[str(dataset)] = relative
    return bar_figure(panels, label="relative to standard")
