"""The shortest look-back at which prime attention reaches standard attention at 96, and its cost there."""

import pandas as pd
from matplotlib.figure import Figure

from primecast.analysis.statistics import WORSE
from primecast.experiments.studies.curves import error_curves
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.probed import measurements
from primecast.experiments.studies.tables import (
    READING,
    comparison_table,
    markdown_table,
    ordered,
    paired,
    per_cell,
    places,
)

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
            READING,
            f"\nAll are compared with `{FULL}`.\n",
            comparison_table(named, blocks, baseline=FULL),
            f"## The shortest look-back that reaches `{FULL}`\n",
            "By the mean: the mean MSE is at most that of the full look-back. By the interval: not significantly "
            "worse. Time is the processor time of a training step at 32 windows on one thread, memory "
            f"what autograd keeps for its backward pass, both in percent of `{FULL}`.\n",
            _thresholds(named, blocks),
        ]
    )


def _thresholds(named: pd.DataFrame, blocks: pd.DataFrame) -> str:
    errors = per_cell(named, "mse")
    measured = measurements(named, "cost")
    costs = [per_cell(measured, column) for column in ("step_ratio", "kept_mib")]
    lines = []
    for place in places(named):
        if (*place, FULL) not in errors:
            continue
        for attention in ("standard", "prime"):
            there = [(*place, f"{attention}, {steps}") for steps in STEPS]
            there = [where for where in there if where in errors]
            by_mean = [where for where in there if errors[where] <= errors[*place, FULL]]
            by_interval = [where for where in there if _not_worse(named, blocks, where[2], place)]
            cells_of_line = [text for found in (by_mean, by_interval) for text in _shortest(found, costs)]
            lines.append([place[0], attention, *cells_of_line])
    head = ["data set", "attention", "by the mean", "time, memory there", "by the interval", "time, memory there"]
    return markdown_table(head, lines)


def _not_worse(named: pd.DataFrame, blocks: pd.DataFrame, variant: str, place: tuple[str, int]) -> bool:
    if variant == FULL:
        return True
    found = paired(named, blocks, variant, FULL, place)
    return found is not None and found.verdict != WORSE


def _shortest(found: list[tuple[str, int, str]], costs: list[dict[tuple[str, int, str], float]]) -> list[str]:
    """The first of them, and what it costs in percent of the full look-back."""
    if not found:
        return ["none", ""]
    where = found[0]
    percents = [100 * cost[where] / cost[where[0], where[1], FULL] for cost in costs]
    return [where[2].split(", ")[1], ", ".join(f"{percent:.0f} %" for percent in percents)]


def figure(frame: pd.DataFrame) -> Figure:
    """Draw MSE against the look-back; dotted: standard attention at 96."""
    drawing = error_curves(
        frame, x="lookback", label="look-back", hue="attention", colors={"standard": "#3d6fb4", "prime": "#d1495b"}
    )
    full = frame[frame["variant"] == FULL].groupby("dataset", sort=False)["mse"].mean()
    for axis in drawing.axes:
        if axis.get_title() in full:
            axis.axhline(full[axis.get_title()], color="#4a4a4a", linestyle=":", linewidth=1)
    return drawing
