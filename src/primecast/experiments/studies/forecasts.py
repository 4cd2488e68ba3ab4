"""Forecast against truth in random test windows, standard and primed beside each other.

Windows are drawn with a fixed seed, the same for all runs; channels are the first of the data set and those that
repeating the last value forecasts worst and best. Mean squared error in scaled units, mean ± standard deviation over
seeds. Three windows show what forecasts look like; they decide nothing.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.probed import ATTENTIONS, PROBED_QUICK, PROBED_SPECS, measurements
from primecast.experiments.studies.tables import groups, legend, over_seeds, table
from primecast.plotting.figures import Example, example_figure

TITLE = "Forecasts of random test windows beside the truth"
READS = ("example_forecasts",)
SPECS, QUICK = PROBED_SPECS, PROBED_QUICK


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    lines = []
    for dataset, runs in groups(measurements(frame, "example_forecasts"), "dataset"):
        by = dict(groups(runs, "attention"))
        first = runs.iloc[0]
        for window, row in enumerate(first["example_rows"]):
            for channel, name in enumerate(first["example_channels"]):
                line = {"data set": dataset, "forecast from": _moment(first, window, row), "channel": name}
                for attention in ATTENTIONS:
                    errors = [run[window][channel] for run in by[attention]["example_mse"]] if attention in by else []
                    line[attention] = over_seeds(pd.Series(errors)) if errors else ""
                lines.append(line)
    return f"{table(lines)}\n{legend(__doc__)}\n"


def figure(frame: pd.DataFrame) -> Figure:
    """A row of windows per data set and channel, each model's forecast of the first seed."""
    grid = []
    for dataset, runs in groups(measurements(frame, "example_forecasts"), "dataset"):
        by = {str(part["attention"]): part for _, part in runs[runs["seed"] == runs["seed"].min()].iterrows()}
        first = next(iter(by.values()))
        past, truth = np.array(first["past"]), np.array(first["truth"])
        forecasts = {attention: np.array(part["forecast"]) for attention, part in by.items()}
        for channel, name in enumerate(first["example_channels"]):
            grid.append(
                [
                    Example(
                        title=f"{dataset}, {name}, {_moment(first, window, row)}",
                        past=past[window, :, channel],
                        truth=truth[window, :, channel],
                        forecasts={attention: values[window, :, channel] for attention, values in forecasts.items()},
                    )
                    for window, row in enumerate(first["example_rows"])
                ]
            )
    return example_figure(grid)


def _moment(run: "pd.Series[Any]", window: int, row: int) -> str:
    """When the forecast begins: a date where the data has dates, else a row."""
    stamps = run["example_stamps"]
    return str(stamps[window])[:16] if stamps else f"row {row}"  # to the minute
