"""The paper's main table: three backbones with standard and with prime attention.

`paper`: printed in the prime attention paper; `published`: by the authors of the backbone. *+prime*: the paper's
features, F_ii = 1, as in its proofs; *self-pair primed*: its printed formula, in which F_ii is primed like any other
pair. Timer-XL is trained once per seed, at horizon 96, and scored at all four horizons by rolling.
"""

import pandas as pd
from matplotlib.figure import Figure

from primecast.errors import InputError
from primecast.experiments.studies.grid import HORIZONS, PRIME_SELF, Variants, grid, quick_grid
from primecast.experiments.studies.published import printed
from primecast.experiments.studies.tables import average_table, legend, ordered, page
from primecast.plotting.figures import agreement_figure

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
    "Timer-XL": {"model": "timer_xl", "attention": "standard", "settings": {"train_horizon": HORIZONS[0]}},
    "Timer-XL+prime": {"model": "timer_xl", "attention": "prime", "settings": {"train_horizon": HORIZONS[0]}},
}
VARIANTS: Variants = {**TIMER_XL, **FREDF, **ITRANSFORMER, **AT_96}
BASELINES = {name: name.partition("+")[0] for name in VARIANTS if "+" in name}
NARROW = ["ETTh1", "ETTh2", "Exchange", "ETTm1", "ETTm2", "Weather"]
WIDE = ["Solar-Energy", "ECL", "Traffic"]
SPECS = [
    *grid({**ITRANSFORMER, **AT_96}, NARROW, seeds=range(3)),
    *grid(ITRANSFORMER, NARROW, seeds=range(3), horizons=HORIZONS[1:]),
    *grid(FREDF, NARROW, seeds=range(3), horizons=HORIZONS),
    *grid(TIMER_XL, NARROW, seeds=range(3), horizons=HORIZONS),
    *grid({**ITRANSFORMER, **FREDF}, WIDE, seeds=range(3), horizons=HORIZONS),
    *grid(TIMER_XL, WIDE, seeds=range(3), horizons=HORIZONS),
    *grid({**ITRANSFORMER, **FREDF}, ["PEMS03", "PEMS08"], seeds=range(3), horizons=[12, 24, 48, 96]),
]
"""iTransformer at horizon 96 on the narrow sets first; the wide sets, large, last."""
QUICK = quick_grid(ITRANSFORMER, seeds=range(2))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Each backbone primed against itself, with the paper's values and the backbone's own."""
    named = ordered(frame, VARIANTS)
    paper = printed("main")
    beside = {"paper": paper, "published": printed("backbone")}
    averages = average_table(named, blocks, baseline=BASELINES, published=paper)
    return "\n".join(
        [
            page(named, blocks, baseline=BASELINES, note=legend(__doc__), beside=beside),
            "## Averages over the four horizons\n",
            "Of the seeds that all four horizons have; the change is the mean of the four relative changes.\n",
            averages or "No variant has all four horizons of a data set yet.\n",
        ]
    )


def figure(frame: pd.DataFrame) -> Figure:
    """All cells that the paper has, too: its MSE against ours, standard and prime."""
    paper = printed("main")
    cells = frame.groupby(["dataset", "horizon", "variant"], sort=False)["mse"].agg(["mean", "std"]).reset_index()
    rows = []
    for dataset, horizon, variant, mean, std in cells.itertuples(index=False):
        backbone, primed, _ = variant.partition("+")
        text = paper.get((dataset, horizon, variant))
        if text is not None:
            published = float(text.partition("/")[0])
            hue = "prime" if primed else "standard"
            rows.append({"published": published, "measured": mean, "std": std, "panel": backbone, "hue": hue})
    if not rows:
        raise InputError("the paper has none of these cells: the figure needs runs of its data sets")
    return agreement_figure(pd.DataFrame(rows), label="MSE")
