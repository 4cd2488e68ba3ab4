"""How short a look-back prime attention can do with: at which does it reach standard attention at 96, at what cost?"""

import pandas as pd
from matplotlib.figure import Figure

from primecast.analysis.statistics import WORSE, cells
from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.probed import answers
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


def specs(quick: bool = False) -> list[Spec]:
    """ETTh1 and ETTh2, then Weather; three seeds."""
    if quick:
        few = {name: variant for name, variant in VARIANTS.items() if variant["lookback"] in (48, 96)}
        return quick_grid(few, probes=("cost",))
    return grid(VARIANTS, ["ETTh1", "ETTh2", "Weather"], seeds=range(3), probes=("cost",))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Every look-back against standard attention at 96; and the shortest at which prime attention reaches it."""
    named = ordered(frame, VARIANTS)
    return "\n".join(
        [
            READING,
            f"\nAll are compared with `{FULL}`.\n",
            comparison_table(named, blocks, baseline=FULL),
            f"## The shortest look-back that reaches `{FULL}`\n",
            "By the mean: the mean MSE is at most that of the full look-back. By the interval: not worse, as far as "
            "these runs can tell. Time is the processor time of a training step at 32 windows on one thread, memory "
            f"what autograd keeps for its backward pass, both as shares of `{FULL}`.\n",
            _thresholds(named, blocks),
        ]
    )


def _thresholds(named: pd.DataFrame, blocks: pd.DataFrame) -> str:
    errors = per_cell(named, "mse")
    asked = answers(named, "cost")
    costs = [per_cell(asked, column) for column in ("step_ratio", "kept_mib")]
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
    """The first of them, and what it costs as shares of the full look-back."""
    if not found:
        return ["none", ""]
    where = found[0]
    shares = [100 * cost[where] / cost[where[0], where[1], FULL] for cost in costs]
    return [where[2].split(", ")[1], ", ".join(f"{share:.0f} %" for share in shares)]


def figure(frame: pd.DataFrame) -> Figure:
    """MSE against the look-back, standard and prime; dotted: standard attention at 96."""
    named = ordered(frame, VARIANTS)
    named[["attention", "steps"]] = named["variant"].str.split(", ", expand=True)
    sets = list(dict.fromkeys(named["dataset"]))
    drawing = Figure(figsize=(3.6 * len(sets), 3), layout="constrained")
    for axis, dataset in zip(drawing.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        here = named[named["dataset"] == dataset]
        for attention, color in (("standard", "#3d6fb4"), ("prime", "#d1495b")):
            table = cells(here[here["attention"] == attention], ["steps"])
            x = table["steps"].astype(int)
            axis.errorbar(x, table["mean"], table["sd"], color=color, marker="o", capsize=2, label=attention)
        full = here[here["variant"] == FULL]["mse"].mean()
        axis.axhline(full, color="#4a4a4a", linestyle=":", linewidth=1)
        axis.set(title=dataset, xlabel="look-back", ylabel="MSE")
        axis.spines[["top", "right"]].set_visible(False)
    drawing.axes[0].legend(frameon=False)
    return drawing
