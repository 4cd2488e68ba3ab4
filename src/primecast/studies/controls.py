"""What priming itself adds: prime attention beside variants that share all but the knowledge of pairs."""

import pandas as pd

from primecast.experiment import Spec
from primecast.studies.grid import Variants, grid
from primecast.studies.tables import READING, comparison_table, summary_table, with_variants

TITLE = "What priming itself adds: prime attention and its controls"

VARIANTS: Variants = {
    "standard": {"attention": "standard"},
    "standard, output starts at zero": {"attention": "standard-zero-output"},
    "prime": {"attention": "prime"},
    "prime, base identity": {"attention": "prime", "settings": {"primer.base": "identity"}},
    "prime, features of other pairs": {"attention": "prime-shuffled-pairs"},
    "prime, one primer for all pairs": {"attention": "prime-one-for-all-pairs"},
    "standard, a vector for each channel": {"attention": "standard", "settings": {"channel_vectors": True}},
    "prime, a vector for each channel": {"attention": "prime", "settings": {"channel_vectors": True}},
}


def specs(quick: bool = False) -> list[Spec]:
    """Three seeds of the quick sets, then the wide and the long one, then two more seeds."""
    if quick:
        return grid(VARIANTS, ["nyc-weather"], seeds=range(2), horizons=[24])
    few = ["ETTh1", "ETTh2", "Exchange"]
    return [
        *grid(VARIANTS, few, seeds=range(3)),
        *grid(VARIANTS, ["Weather", "ETTm1"], seeds=range(2)),
        *grid(VARIANTS, few, seeds=[3, 4]),
    ]


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Everything against standard attention, then prime attention against each control."""
    named = with_variants(frame, VARIANTS)
    others = {variant: "prime" for variant in VARIANTS if variant != "prime"}
    return "\n".join(
        [
            READING,
            "\n## Against standard attention\n",
            comparison_table(named, blocks, baseline="standard"),
            "Over all cells:\n",
            summary_table(named, blocks, baseline="standard"),
            "## Against prime attention: does a control do as well?\n",
            comparison_table(named, blocks, baseline=others),
            "Over all cells:\n",
            summary_table(named, blocks, baseline=others),
        ]
    )
