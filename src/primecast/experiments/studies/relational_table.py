"""Prime attention beside other ways to use relations between channels.

`paper`: printed in the prime attention paper, which has no standard attention in this table. Every model has its own
published settings where there are some: LIFT those of its authors for DLinear, which are for a look-back of 336; LagTS,
of which there is no code, has settings of ours.
"""

import pandas as pd

from primecast.experiments.studies.grid import HORIZONS, Variants, grid, only, quick_grid
from primecast.experiments.studies.published import printed
from primecast.experiments.studies.tables import legend, ordered, page

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
NARROW = ["ETTh1", "ETTh2", "Exchange", "Weather"]
SPECS = [
    *grid(only(VARIANTS, list(VARIANTS)[:-1]), NARROW, seeds=range(3)),
    *grid(only(VARIANTS, ["Autoformer"]), NARROW, seeds=range(3)),
    *grid(VARIANTS, NARROW, seeds=range(3), horizons=HORIZONS[1:]),
    *grid(VARIANTS, ["ECL", "Traffic"], seeds=range(3), horizons=HORIZONS),
]
"""All but Autoformer at horizon 96 first: it takes longer than the rest together."""
QUICK = quick_grid(only(VARIANTS, list(VARIANTS)[:2]), seeds=range(2))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Each against prime attention."""
    beside = {"paper": printed("relational", PRINTED)}
    named = ordered(frame, VARIANTS)
    return page(named, blocks, baseline="prime (iTransformer)", note=legend(__doc__), beside=beside)
