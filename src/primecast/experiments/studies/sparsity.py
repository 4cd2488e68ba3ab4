"""How many pairs need a primer: a fraction of them, drawn once and nested, is left without."""

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.curves import error_curves
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.tables import ordered, page

TITLE = "Sparsity: pairs without a primer"

VARIANTS: Variants = {
    "0 %": {"attention": "prime"},
    "20 %": {"attention": "prime", "settings": {"primer.sparsity": 0.2}},
    "40 %": {"attention": "prime", "settings": {"primer.sparsity": 0.4}},
    "60 %": {"attention": "prime", "settings": {"primer.sparsity": 0.6}},
    "80 %": {"attention": "prime", "settings": {"primer.sparsity": 0.8}},
    "100 %": {"attention": "standard"},  # which remains when no pair has a primer
}
LABEL = "pairs without a primer (%)"
SPECS = grid(VARIANTS, ["ETTh1", "ETTh2", "Weather"], seeds=range(3))
QUICK = quick_grid(VARIANTS)


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """All against standard attention, which is 100 %."""
    note = "The variant is the percentage of ordered pairs without a primer; 100 % is standard attention."
    return page(ordered(frame, VARIANTS), blocks, baseline="100 %", note=note)


def figure(frame: pd.DataFrame) -> Figure:
    """Draw MSE against the fraction of pairs without a primer."""
    percent = frame["variant"].str.removesuffix(" %").astype(int)
    return error_curves(frame.assign(**{LABEL: percent}), x=LABEL, hue="model")
