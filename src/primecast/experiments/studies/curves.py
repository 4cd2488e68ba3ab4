"""Error curves of a study: one panel per data set, one line per group."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from primecast.analysis.statistics import cells


def error_curves(frame: pd.DataFrame, *, x: str, label: str, hue: str, colors: Mapping[str, str]) -> Figure:
    """Draw MSE against the column x, mean and standard deviation over seeds, a line per value of `hue` in `colors`."""
    sets = list(dict.fromkeys(frame["dataset"]))
    figure = Figure(figsize=(3.6 * len(sets), 3.3), layout="constrained")
    axes = figure.subplots(1, len(sets), squeeze=False)[0]
    for axis, dataset in zip(axes, sets, strict=True):
        here = frame[frame["dataset"] == dataset]
        for name, color in colors.items():
            table = cells(here[here[hue] == name].sort_values(x), [x])
            if len(table):
                axis.errorbar(table[x], table["mean"], table["sd"], color=color, marker="o", capsize=2, label=name)
        axis.set(title=dataset, xlabel=label, ylabel="MSE")
        axis.spines[["top", "right"]].set_visible(False)
    handles, names = axes[0].get_legend_handles_labels()
    if len(names) > 1:
        figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False, fontsize=8)
    return figure
