"""What a primer should touch: keys, values or both."""

import pandas as pd

from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.published import PAPER_KV, printed
from primecast.experiments.studies.tables import ordered, page

TITLE = "Primed keys, primed values, or both"

VARIANTS: Variants = {
    "standard": {"attention": "standard"},
    "keys only": {"attention": "prime", "settings": {"modulate": "k"}},
    "values only": {"attention": "prime", "settings": {"modulate": "v"}},
    "keys and values": {"attention": "prime"},
}
PRINTED = dict(zip(("standard", "k", "v", "kv"), VARIANTS, strict=True))


def specs(quick: bool = False) -> list[Spec]:
    """ETTh1 and ETTh2, then Weather; three seeds."""
    if quick:
        return quick_grid(VARIANTS)
    return grid(VARIANTS, ["ETTh1", "ETTh2", "Weather"], seeds=range(3))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """All against standard attention."""
    named = ordered(frame, VARIANTS)
    return page(named, blocks, baseline="standard", beside={"paper (MSE)": printed(PAPER_KV, PRINTED)})
