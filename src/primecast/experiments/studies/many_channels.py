"""Data sets with more than a hundred channels: standard and primed attention, with their cost.

Horizon 96, look-back 96, settings of our own (nothing is published for these data sets), three epochs: simbench has 177
channels, eia-demand 117, beijing-multisite 132, aarhus-traffic 449. Cost at 32 windows on one thread: processor time of
a training step, in multiples of standard attention's (each measured beside a reference workload, in turns) and as
measured; memory that autograd keeps for the backward pass; floating-point operations of a step as torch counts them,
products of matrices alone. Mean ± standard deviation over seeds.
"""

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.grid import CHANNEL_EMBEDDINGS, Variants, grid
from primecast.experiments.studies.probed import cost_columns, measurements, need_two
from primecast.experiments.studies.tables import READING, comparison_table, groups, legend, ordered, table
from primecast.plotting.figures import bar_figure

TITLE = "Many channels: standard and primed attention, with their cost"

EMBEDDED = "standard, channel embeddings"
CHOSEN: Variants = {
    "standard": {"attention": "standard"},
    EMBEDDED: {"attention": "standard", "settings": CHANNEL_EMBEDDINGS},
    "prime": {"attention": "prime"},
    "prime-learned": {"attention": "prime-learned"},
}
"""Standard attention, the best control (a model that knows its channels without a primer), and two primers."""
TABLE: Variants = {"prime-table": {"attention": "prime-table"}}
"""On simbench alone: a vector for each pair, of which 449 channels have 200,000."""
VARIANTS: Variants = {**CHOSEN, **TABLE}
STAND_INS = ["eia-demand", "beijing-multisite", "aarhus-traffic"]
"""Public sets where the paper has ECL, Traffic and PEMS, which are not among our data."""


SPECS = [
    *grid(CHOSEN, STAND_INS, seeds=[0], probes=("cost",), settings={"epochs": 3}),
    *grid(VARIANTS, ["simbench"], seeds=[0], probes=("cost",), settings={"epochs": 3}),
    *grid(CHOSEN, STAND_INS, seeds=[1], probes=("cost",), settings={"epochs": 3}),
    *grid(VARIANTS, ["simbench"], seeds=[1], probes=("cost",), settings={"epochs": 3}),
]
"""Three epochs, because one epoch of simbench takes 8 to 14 minutes of a core."""
QUICK = grid(VARIANTS, ["nyc-weather"], horizons=[24], probes=("cost",))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    named = ordered(frame, VARIANTS)
    lines = []
    for dataset, part in groups(measurements(named, "cost"), "dataset"):
        usual = part[part["variant"] == "standard"]["step_ratio"].mean()  # NaN, shown as none, where it is missing
        for variant, runs in groups(part.assign(times=part["step_ratio"] / usual), "variant"):
            line = {"data set": dataset, "variant": variant, "seeds": len(runs), **cost_columns(runs)}
            lines.append({**line, "parameters": f"{int(runs['parameters'].iloc[0]):,}"})
    against = {name: EMBEDDED for name in VARIANTS if name.startswith("prime")}
    beside = comparison_table(named[named["variant"] != "standard"], blocks, baseline=against)
    return (
        f"{comparison_table(named, blocks, baseline='standard')}\nPrimed attention against standard attention with "
        f"channel embeddings:\n\n{beside}\n{READING}\n\n{table(lines)}\n{legend(__doc__)}\n"
    )


def figure(frame: pd.DataFrame) -> Figure:
    """Draw error, time and memory of each variant, relative to standard."""
    measured = measurements(ordered(frame, VARIANTS), "cost")
    need_two(measured)
    panels = {}
    for dataset, part in groups(measured, "dataset"):
        runs = part.groupby("variant", sort=False)[["mse", "step_ratio", "kept_mib"]].mean()
        if "standard" in runs.index:
            relative = (runs / runs.loc["standard"]).T
            relative.index = pd.Index(["error", "training step", "memory kept"])
            panels[dataset] = relative
    return bar_figure(panels, label="relative to standard")
