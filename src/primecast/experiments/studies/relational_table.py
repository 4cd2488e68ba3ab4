"""Prime attention beside other ways to use relations between channels."""

import pandas as pd

from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.published import PAPER_RELATIONAL, printed
from primecast.experiments.studies.tables import ordered, page

TITLE = "Prime attention beside other relational models"

VARIANTS: Variants = {
    "prime (iTransformer)": {"attention": "prime"},
    "standard (iTransformer)": {"model": "itransformer", "attention": "standard"},
    "DIFF": {"attention": "differential"},
    "LagTS, our reconstruction": {"model": "lagts-reconstruction", "attention": "standard"},
    "LIFT": {"model": "lift", "attention": "standard"},
    "Autoformer": {"model": "autoformer", "attention": "standard"},
}
PRINTED = dict(zip(("prime", "iTransformer", "DIFF", "LagTS", "LIFT", "Autoformer"), VARIANTS, strict=True))
LONG = [96, 192, 336, 720]
SEEDS = range(3)


def specs(quick: bool = False) -> list[Spec]:
    """All but Autoformer at horizon 96 first: it takes longer than the rest together."""
    if quick:
        quick_ones = {name: VARIANTS[name] for name in list(VARIANTS)[:2]}
        return quick_grid(quick_ones, seeds=range(2))
    narrow, most = ["ETTh1", "ETTh2", "Exchange", "Weather"], {**VARIANTS}
    slow = {"Autoformer": most.pop("Autoformer")}
    return [
        *grid(most, narrow, seeds=SEEDS),
        *grid(slow, narrow, seeds=SEEDS),
        *grid(VARIANTS, narrow, seeds=SEEDS, horizons=LONG[1:]),
        *grid(VARIANTS, ["ECL", "Traffic"], seeds=SEEDS, horizons=LONG),
    ]


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Each against prime attention."""
    named = ordered(frame, VARIANTS)
    beside = {"paper": printed(PAPER_RELATIONAL, PRINTED)}
    note = (
        "`paper`: printed in the prime attention paper, which has no standard attention in this table. Every model has "
        "its own published settings where there are some: LIFT those of its authors for DLinear, which are for a "
        "look-back of 336; LagTS, of which there is no code, has settings of ours."
    )
    return page(named, blocks, baseline=next(iter(VARIANTS)), note=note, beside=beside)
