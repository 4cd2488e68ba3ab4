"""Which features a primer needs: none, lead-lag, instantaneous, or all of them."""

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.curves import error_curves
from primecast.experiments.studies.grid import HORIZONS, Variants, grid, quick_grid
from primecast.experiments.studies.tables import READING, comparison_table, ordered, summary_table

TITLE = "Features of the primer"

VARIANTS: Variants = {
    "standard": {"attention": "standard"},
    "random": {"attention": "prime", "settings": {"primer.kind": "random"}},
    "lead-lag": {"attention": "prime", "settings": {"primer.kind": "lead_lag"}},
    "instantaneous": {"attention": "prime", "settings": {"primer.kind": "instantaneous"}},
    "full": {"attention": "prime"},
}
SPECS = [
    *grid(VARIANTS, ["ETTh1", "ETTh2"], seeds=range(3)),
    *grid(VARIANTS, ["ETTh1", "ETTh2"], seeds=range(3), horizons=HORIZONS[1:]),
    *grid(VARIANTS, ["Weather"], seeds=range(3), horizons=HORIZONS),
]
QUICK = quick_grid(VARIANTS)


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """All against standard attention, and each against the full primer."""
    named = ordered(frame, VARIANTS)
    against_full = {name: "full" for name in VARIANTS if name not in ("full", "standard")}
    return "\n".join(
        [
            READING,
            "",
            comparison_table(named, blocks, baseline="standard"),
            "Over all cells, against standard attention and against the full primer:\n",
            summary_table(named, blocks, baseline="standard"),
            summary_table(named, blocks, baseline=against_full),
        ]
    )


def figure(frame: pd.DataFrame) -> Figure:
    """Draw MSE against the horizon, a line per kind of features."""
    return error_curves(frame, x="horizon", hue="variant")
