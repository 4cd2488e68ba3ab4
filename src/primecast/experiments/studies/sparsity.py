"""How many pairs need a primer: a fraction of them, drawn once and nested, is left without."""

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.spec import Spec
from primecast.experiments.studies.curves import error_curves
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.tables import ordered, page

TITLE = "Sparsity: pairs without a primer"

RED = "#d1495b"

VARIANTS: Variants = {
    "0 %": {"attention": "prime"},
    **{
        f"{percent} %": {"attention": "prime", "settings": {"primer.sparsity": percent / 100}}
        for percent in (20, 40, 60, 80)
    },
    "100 %": {"attention": "standard"},  # which remains when no pair has a primer
}


def specs(quick: bool = False) -> list[Spec]:
    """ETTh1 and ETTh2, then Weather; three seeds."""
    if quick:
        return quick_grid(VARIANTS)
    return grid(VARIANTS, ["ETTh1", "ETTh2", "Weather"], seeds=range(3))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """All against standard attention, which is 100 %."""
    named = ordered(frame, VARIANTS)
    note = "The variant is the percentage of ordered pairs without a primer; 100 % is standard attention."
    return page(named, blocks, baseline="100 %", note=note)


def figure(frame: pd.DataFrame) -> Figure:
    """Draw MSE against the fraction of pairs without a primer."""
    runs = frame.assign(pairs=frame["variant"].str.removesuffix(" %").astype(int))
    return error_curves(runs, x="pairs", label="pairs without a primer (%)", hue="model", colors={"itransformer": RED})
