"""The paper's main table: three backbones with standard and with prime attention."""

import pandas as pd

from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid, quick_grid
from primecast.experiments.studies.published import PAPER_MAIN, backbone, printed
from primecast.experiments.studies.tables import ordered, page

TITLE = "Three backbones, standard and prime"

ITRANSFORMER: Variants = {
    "iTransformer": {"attention": "standard"},
    "iTransformer+prime": {"attention": "prime"},
}
DEFAULT: Variants = {"iTransformer+prime-table": {"attention": "prime-table"}}
OTHERS: Variants = {
    "FreDF": {"attention": "standard", "preset": "fredf"},
    "FreDF+prime": {"attention": "prime", "preset": "fredf"},
    "Timer-XL": {"model": "timer_xl", "attention": "standard"},
    "Timer-XL+prime": {"model": "timer_xl", "attention": "prime"},
}
PAPERS: Variants = {**OTHERS, **ITRANSFORMER}
VARIANTS: Variants = {**PAPERS, **DEFAULT}
BASELINES = {name: name.partition("+")[0] for name in VARIANTS if "+" in name}
NARROW = ["ETTh1", "ETTh2", "Exchange", "ETTm1", "ETTm2", "Weather"]
WIDE = ["Solar-Energy", "ECL", "Traffic"]
LONG = [96, 192, 336, 720]
SEEDS = range(3)


def specs(quick: bool = False) -> list[Spec]:
    """iTransformer at horizon 96 on the narrow sets first, with our default beside it; the wide sets, large, last."""
    if quick:
        return quick_grid(ITRANSFORMER, seeds=range(2))
    roads = {**ITRANSFORMER, **{name: OTHERS[name] for name in ("FreDF", "FreDF+prime")}}
    return [
        *grid({**ITRANSFORMER, **DEFAULT}, NARROW, seeds=SEEDS),
        *grid(ITRANSFORMER, NARROW, seeds=SEEDS, horizons=LONG[1:]),
        *grid(OTHERS, NARROW, seeds=SEEDS, horizons=LONG),
        *grid(PAPERS, WIDE, seeds=SEEDS, horizons=LONG),
        *grid(roads, ["PEMS03", "PEMS08"], seeds=SEEDS, horizons=[12, 24, 48, 96]),
    ]


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Each backbone primed against itself, with the paper's values and the backbone's own."""
    named = ordered(frame, VARIANTS)
    beside = {
        "paper": printed(PAPER_MAIN, {name: name for name in PAPERS}),
        "published": {(*place, "iTransformer"): text for place, text in backbone().items()},
    }
    note = "`paper`: printed in the prime attention paper; `published`: by the authors of the backbone."
    return page(named, blocks, baseline=BASELINES, note=note, beside=beside)
