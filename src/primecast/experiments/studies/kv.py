"""What a primer should touch: keys, values or both."""

import pandas as pd

from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.published import printed
from primecast.experiments.studies.tables import ordered, page

TITLE = "Primed keys, primed values, or both"

VARIANTS: Variants = {
    "standard": {"attention": "standard"},
    "keys only": {"attention": "prime", "settings": {"modulate": "k"}},
    "values only": {"attention": "prime", "settings": {"modulate": "v"}},
    "keys and values": {"attention": "prime"},
}
PRINTED = dict(zip(("standard", "k", "v", "kv"), VARIANTS, strict=True))
SPECS = grid(VARIANTS, ["ETTh1", "ETTh2", "Weather"], seeds=range(3))
QUICK = quick_grid(VARIANTS)


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """All against standard attention."""
    beside = {"paper (MSE)": printed("kv", PRINTED)}
    return page(ordered(frame, VARIANTS), blocks, baseline="standard", beside=beside)
