"""Ablation of a sensor: how much the error of the other channels grows, with standard and with prime attention.

Each channel in turn is held at its training mean in the look-back of test windows; the growth is that of the mean
squared error of all *other* channels, relative to no ablation. *Worst* is the channel whose ablation costs most,
*mean* that of all channels, *fraction of the worst* its part of all growth (negative growth counts as none), *worst
pair* the largest growth of one channel by the ablation of another. Mean ± standard deviation over seeds.
"""

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.probed import PROBED_QUICK, PROBED_SPECS, mean_map, measurements, most_common
from primecast.experiments.studies.tables import groups, legend, over_seeds, table
from primecast.plotting.figures import bar_figure

TITLE = "Sensor ablation: how much the error of the other channels grows"
READS = ("sensor_ablation",)
SPECS, QUICK = PROBED_SPECS, PROBED_QUICK


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    lines = [
        {
            "data set": dataset,
            "attention": attention,
            "seeds": len(runs),
            "MSE": over_seeds(runs["mse"], 4),
            "mean growth": over_seeds(runs["harm_mean"], 2, percent=True),
            "worst": over_seeds(runs["harm_max"], 2, percent=True),
            "which": most_common(runs["harm_channel"]),
            "fraction of the worst": over_seeds(runs["harm_share"], 0, percent=True),
            "worst pair": over_seeds(runs["pair_growth_max"], 1, percent=True),
            "ablated -> affected": most_common(runs["pair_growth_of"].map(" -> ".join)),
        }
        for (dataset, attention), runs in groups(measurements(frame, "sensor_ablation"), ["dataset", "attention"])
    ]
    return f"{table(lines)}\n{legend(__doc__)}\n"


def figure(frame: pd.DataFrame) -> Figure:
    """Per data set and lost channel the growth of the others' error; means over seeds."""
    panels = {}
    for dataset, runs in groups(measurements(frame, "sensor_ablation"), "dataset"):
        columns = {name: 100 * mean_map(part, "harm") for name, part in groups(runs, "attention")}
        panels[dataset] = pd.DataFrame(columns, index=runs["channels"].iloc[0])
    return bar_figure(panels, label="error of the others grows by (%)")
