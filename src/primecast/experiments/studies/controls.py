"""Ablations: prime attention beside variants that lack pair-specific features."""

import pandas as pd

from primecast.experiments.studies.grid import CHANNEL_EMBEDDINGS, PRIME_SELF, Variants, grid
from primecast.experiments.studies.tables import READING, changes, compare_all, markdown_table, ordered, percent

TITLE = "What priming itself adds: prime attention and its controls"

VARIANTS: Variants = {
    "standard": {"attention": "standard"},
    "standard, zero-initialized output projection": {"attention": "standard-zero-output"},
    "standard, channel embeddings": {"attention": "standard", "settings": CHANNEL_EMBEDDINGS},
    "prime": {"attention": "prime"},
    "prime, features permuted among pairs": {"attention": "prime-shuffled-pairs"},
    "prime, one primer for all pairs": {"attention": "prime-one-for-all-pairs"},
    "prime, channel embeddings": {"attention": "prime", "settings": CHANNEL_EMBEDDINGS},
    "prime-table": {"attention": "prime-table"},
    "prime-table, self-pair unprimed": {"attention": "prime-table", "settings": {"primer.prime_self": False}},
    "prime-table, channel embeddings": {"attention": "prime-table", "settings": CHANNEL_EMBEDDINGS},
    "prime-learned": {"attention": "prime-learned"},
    "prime-learned, two units per head": {"attention": "prime-learned", "settings": {"primer.hidden": 16}},
    "prime, self-pair primed": {"attention": "prime", "settings": PRIME_SELF},
    "prime, self-pair primed, base identity": {
        "attention": "prime",
        "settings": {**PRIME_SELF, "primer.base": "identity"},
    },
    "prime, self-pair primed, features permuted among pairs": {
        "attention": "prime-shuffled-pairs",
        "settings": PRIME_SELF,
    },
    "prime, self-pair primed, one primer for all pairs": {
        "attention": "prime-one-for-all-pairs",
        "settings": PRIME_SELF,
    },
}
SPECS = [
    *grid(VARIANTS, ["ETTh1", "ETTh2", "Exchange"], seeds=range(3)),
    *grid(VARIANTS, ["Weather", "ETTm1"], seeds=range(2)),
    *grid(VARIANTS, ["ETTh1", "ETTh2", "Exchange"], seeds=[3, 4]),
]
QUICK = grid(VARIANTS, ["nyc-weather"], seeds=range(2), horizons=[24])

LEGEND = (
    "\n*prime*: the paper's features, self-pair unprimed (F_ii = 1), as in its proofs. *Self-pair primed*: F_ii is "
    "primed like any other pair, as in its printed formula. *prime-table*: learned vectors of pairs instead of "
    "features, self-pair primed: the default. *prime-learned*: these vectors made of learned channel embeddings, "
    "self-pair unprimed, channel embeddings in the tokens; one hidden unit per head unless said."
)
SETS = ("ETTh1", "ETTh2", "Exchange", "Weather", "ETTm1")
CANDIDATES = ("prime", "prime-table", "prime, channel embeddings", "prime-table, channel embeddings")
"""Among which the default was chosen, on validation; docs/decisions.md has the rule."""
RUN_LATER = ("prime-table, self-pair unprimed", "prime-learned", "prime-learned, two units per head")
"""Run after the choice; docs/decisions.md has what they mean for it."""


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Everything against standard attention, everything against prime, and the candidates against the best control."""
    named = ordered(frame, VARIANTS)
    others = {variant: "prime" for variant in VARIANTS if variant != "prime"}
    vectors = dict.fromkeys((*CANDIDATES, *RUN_LATER), "standard, channel embeddings")
    compared = named[named["variant"].isin([*vectors, *vectors.values()])]
    return "\n".join(
        [
            READING,
            LEGEND,
            "\n## Validation MSE, relative to standard attention\n",
            _validation(named),
            "\n## Against standard attention\n",
            compare_all(named, blocks, baseline="standard"),
            "## Against prime attention: is a control as good?\n",
            compare_all(named, blocks, baseline=others),
            "## Against standard attention with channel embeddings: what do pairs add?\n",
            compare_all(compared, blocks, baseline=vectors),
        ]
    )


def _validation(named: pd.DataFrame) -> str:
    """What the default is chosen by: seeds 0 and 1, with which everything is run; the chosen one's mean is marked."""
    both = named[named["seed"] < 2]
    both = both[both.groupby(["dataset", "variant"])["seed"].transform("nunique") == 2]
    change = changes(both, "val_mse", SETS)
    if change.empty:
        return "Standard attention has not been run yet.\n"
    means = change["mean"].reindex(CANDIDATES)
    best = None if means.isna().any() else means.idxmin()
    texts = change.map(percent, digits=2)
    lines = []
    for name in [name for name in VARIANTS if name in change.index]:
        *cells, mean = texts.loc[name]
        lines.append([name, *cells, f"**{mean}**" if name == best else mean])
    return markdown_table(["variant", *map(str, change.columns)], lines)
