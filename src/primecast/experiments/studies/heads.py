"""A ninth standard head, which has more parameters than a primer, against eight primed heads."""

import pandas as pd

from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.published import printed
from primecast.experiments.studies.tables import READING, comparison_table, ordered, per_cell, percent

TITLE = "A ninth head, or a primer"

WIDTHS = {"ETTh1": 256, "Weather": 128, "rts-gmlc-pv": 128}
"""Of the model with eight heads; the ninth is as wide as the others, and the feed-forward layer follows. The last set
is the stand-in for Solar-Energy."""
PRINTED = {"standard-8": "8 standard heads", "standard-9": "9 standard heads", "prime-8": "8 prime heads"}


def _variants(width: int) -> Variants:
    wider = width // 8 * 9
    return {
        "8 standard heads": {"attention": "standard"},
        "9 standard heads": {"attention": "standard", "settings": {"n_heads": 9, "d_model": wider, "d_ff": wider}},
        "8 prime heads": {"attention": "prime"},
    }


SPECS = [spec for name, width in WIDTHS.items() for spec in grid(_variants(width), [name], seeds=range(3))]
QUICK = quick_grid(_variants(64))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """All against eight standard heads, with their parameters."""
    named = ordered(frame, _variants(8))
    counts = per_cell(named, "parameters")
    parameters = {
        (dataset, horizon, variant): f"{count:.0f} ({percent(count / usual - 1)})"
        for (dataset, horizon, variant), count in counts.items()
        if (usual := counts.get((dataset, horizon, "8 standard heads")))
    }
    beside = {"parameters": parameters, "paper (MSE)": printed("heads", PRINTED)}
    return f"{READING}\n\n{comparison_table(named, blocks, baseline='8 standard heads', beside=beside)}"
