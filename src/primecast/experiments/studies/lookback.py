"""The shortest look-back at which prime attention reaches standard attention at 96, and its cost there.

By the mean: the mean MSE is at most that of the full look-back. By the interval: not significantly worse. Time is the
processor time of a training step at 32 windows on one thread, memory what autograd keeps for its backward pass, both in
percent of `standard, 96`.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from primecast.analysis.statistics import WORSE
from primecast.experiments.studies.curves import error_curves
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.probed import measurements
from primecast.experiments.studies.tables import groups, legend, markdown_table, ordered, page, paired

TITLE = "Look-back: how much of the past is needed"

STEPS = (16, 32, 48, 64, 80, 96)
VARIANTS: Variants = {
    f"{attention}, {steps}": {"attention": attention, "lookback": steps}
    for steps in STEPS
    for attention in ("standard", "prime")
}
FULL = "standard, 96"
SPECS = grid(VARIANTS, ["ETTh1", "ETTh2", "Weather", "rts-gmlc-pv"], seeds=range(3), probes=("cost",))
"""The last is the stand-in for Solar-Energy."""
QUICK = quick_grid({name: VARIANTS[name] for name in VARIANTS if name.endswith((" 48", " 96"))}, probes=("cost",))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Every look-back against standard attention at 96; and the shortest at which prime attention reaches it."""
    named = ordered(frame, VARIANTS)
    return "\n".join(
        [
            page(named, blocks, baseline=FULL, note=f"All are compared with `{FULL}`."),
            f"## The shortest look-back that reaches `{FULL}`\n",
            f"{legend(__doc__)}\n",
            _thresholds(named, blocks),
        ]
    )


def _thresholds(named: pd.DataFrame, blocks: pd.DataFrame) -> str:
    lines = []
    for place, runs in groups(measurements(named, "cost"), ["dataset", "horizon"]):
        means = runs.groupby("variant")[["mse", "step_ratio", "kept_mib"]].mean().T.to_dict()
        for attention in ("standard", "prime") if FULL in means else ():
            there = [name for name in VARIANTS if name.startswith(f"{attention}, ") and name in means]
            by_mean = [name for name in there if means[name]["mse"] <= means[FULL]["mse"]]
            compared = {name: paired(named, blocks, name, FULL, place) for name in there}
            by_interval = [name for name, found in compared.items() if found is not None and found.verdict != WORSE]
            cells = [text for found in (by_mean, by_interval) for text in _shortest(found, means)]
            lines.append([place[0], attention, *cells])
    head = ["data set", "attention", "by the mean", "time, memory there", "by the interval", "time, memory there"]
    return markdown_table(head, lines)


def _shortest(found: list[str], means: Mapping[Any, Mapping[str, float]]) -> list[str]:
    """Return the first of them, and what it costs in percent of the full look-back."""
    if not found:
        return ["none", ""]
    time, memory = (100 * means[found[0]][cost] / means[FULL][cost] for cost in ("step_ratio", "kept_mib"))
    return [found[0].split(", ")[1], f"{time:.0f} %, {memory:.0f} %"]


def figure(frame: pd.DataFrame) -> Figure:
    """Draw MSE against the look-back; dotted: standard attention at 96."""
    full = frame[frame["variant"] == FULL].groupby("dataset")["mse"].mean()
    return error_curves(
        frame.rename(columns={"lookback": "look-back"}),
        x="look-back",
        hue="attention",
        levels={str(name): (FULL, float(mse)) for name, mse in full.items()},
    )
