"""The paper's main table: three backbones with standard and with prime attention."""

import pandas as pd

from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import HORIZONS, PRIME_SELF, Variants, grid, quick_grid
from primecast.experiments.studies.published import PAPER_MAIN, backbone, printed
from primecast.experiments.studies.tables import average_table, ordered, page

TITLE = "Three backbones, standard and prime"

ITRANSFORMER: Variants = {
    "iTransformer": {"attention": "standard"},
    "iTransformer+prime": {"attention": "prime"},
}
AT_96: Variants = {
    "iTransformer+prime, self-pair primed": {"attention": "prime", "settings": PRIME_SELF},
    "iTransformer+prime-table": {"attention": "prime-table"},
}
"""Horizon 96 alone: the printed formula, F_ii primed, which the proofs do not prime; and our default."""
FREDF: Variants = {
    "FreDF": {"attention": "standard", "preset": "fredf"},
    "FreDF+prime": {"attention": "prime", "preset": "fredf"},
}
TIMER_XL: Variants = {
    "Timer-XL": {"model": "timer_xl", "attention": "standard"},
    "Timer-XL+prime": {"model": "timer_xl", "attention": "prime"},
}
PAPERS: Variants = {**TIMER_XL, **FREDF, **ITRANSFORMER}
VARIANTS: Variants = {**PAPERS, **AT_96}
BASELINES = {name: name.partition("+")[0] for name in VARIANTS if "+" in name}
NARROW = ["ETTh1", "ETTh2", "Exchange", "ETTm1", "ETTm2", "Weather"]
WIDE = ["Solar-Energy", "ECL", "Traffic"]
SEEDS = range(3)

NOTE = """\
`paper`: printed in the prime attention paper; `published`: by the authors of the backbone. *+prime*: the paper's
features, F_ii = 1, as in its proofs; *self-pair primed*: its printed formula, in which F_ii is primed like any other
pair. Timer-XL is trained once per seed, at horizon 96, and scored at all four horizons by rolling."""


def specs(quick: bool = False) -> list[Spec]:
    """iTransformer at horizon 96 on the narrow sets first; the wide sets, large, last."""
    if quick:
        return quick_grid(ITRANSFORMER, seeds=range(2))
    return [
        *grid({**ITRANSFORMER, **AT_96}, NARROW, seeds=SEEDS),
        *grid(ITRANSFORMER, NARROW, seeds=SEEDS, horizons=HORIZONS[1:]),
        *grid(FREDF, NARROW, seeds=SEEDS, horizons=HORIZONS),
        *_timer_xl(NARROW),
        *grid({**ITRANSFORMER, **FREDF}, WIDE, seeds=SEEDS, horizons=HORIZONS),
        *_timer_xl(WIDE),
        *grid({**ITRANSFORMER, **FREDF}, ["PEMS03", "PEMS08"], seeds=SEEDS, horizons=[12, 24, 48, 96]),
    ]


def _timer_xl(datasets: list[str]) -> list[Spec]:
    return grid(TIMER_XL, datasets, seeds=SEEDS, horizons=HORIZONS, settings={"train_horizon": HORIZONS[0]})


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Each backbone primed against itself, with the paper's values and the backbone's own."""
    named = ordered(frame, VARIANTS)
    in_paper = printed(PAPER_MAIN, {name: name for name in PAPERS})
    beside = {
        "paper": in_paper,
        "published": {(*place, "iTransformer"): text for place, text in backbone().items()},
    }
    averages = average_table(named, blocks, baseline=BASELINES, published=in_paper)
    return "\n".join(
        [
            page(named, blocks, baseline=BASELINES, note=NOTE, beside=beside),
            "## Averages over the four horizons\n",
            "Of the seeds that all four horizons have; the change is the mean of the four relative changes.\n",
            averages or "No variant has all four horizons of a data set yet.\n",
        ]
    )
