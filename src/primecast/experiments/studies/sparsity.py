"""How many pairs need a primer: a share of them is left without, drawn once and nested."""

import pandas as pd
from matplotlib.figure import Figure

from primecast.analysis.statistics import cells
from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.tables import ordered, page

TITLE = "Sparsity: pairs without a primer"

VARIANTS: Variants = {
    "0 %": {"attention": "prime"},
    **{
        f"{share} %": {"attention": "prime", "settings": {"primer.sparsity": share / 100}} for share in (20, 40, 60, 80)
    },
    "100 %": {"attention": "standard"},  # which is what remains when no pair has a primer
}


def specs(quick: bool = False) -> list[Spec]:
    """ETTh1 and ETTh2, then Weather; three seeds."""
    if quick:
        return quick_grid(VARIANTS)
    return grid(VARIANTS, ["ETTh1", "ETTh2", "Weather"], seeds=range(3))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """All against standard attention, which is 100 %."""
    named = ordered(frame, VARIANTS)
    note = "The variant is the share of ordered pairs without a primer; 100 % is standard attention."
    return page(named, blocks, baseline="100 %", note=note)


def figure(frame: pd.DataFrame) -> Figure:
    """MSE against the share of pairs without a primer."""
    named = ordered(frame, VARIANTS)
    sets = list(dict.fromkeys(named["dataset"]))
    drawing = Figure(figsize=(3.6 * len(sets), 3), layout="constrained")
    for axis, dataset in zip(drawing.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        table = cells(named[named["dataset"] == dataset], ["variant"])
        shares = table["variant"].str.removesuffix(" %").astype(int)
        axis.errorbar(shares, table["mean"], table["sd"], color="#d1495b", marker="o", capsize=2)
        axis.set(title=dataset, xlabel="pairs without a primer (%)", ylabel="MSE")
        axis.spines[["top", "right"]].set_visible(False)
    return drawing
