"""Every system of the package under one protocol: seed 0, look-back and horizon 96, beside the published values.

MSE and MAE of scaled data over all test windows, **one seed**: between seeds MSE moves by 0.001 to 0.002, and smaller
differences are no finding. The change is against the same system without a primer; most of these runs were made
before errors were kept window by window, and have no interval. Prime: the paper's features and its printed formula,
F_ii primed (`--set primer.prime_self=true`). *Published*: by the authors of the system; *paper*: in the prime
attention paper. Directional attention, LIFT and PatchTST were corrected after their first runs, which are not shown.
Seconds are of one thread on a 2-core machine that had other work: they show orders of magnitude.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from primecast.experiments.studies.grid import PRIME_SELF, Variants, grid, only, quick_grid
from primecast.experiments.studies.published import printed
from primecast.experiments.studies.tables import comparison_table, legend, ordered, per_cell

TITLE = "Every system under one protocol"

BACKBONES: Variants = {
    "iTransformer": {"attention": "standard"},
    "FreDF": {"attention": "standard", "preset": "fredf"},
    "Timer-XL": {"model": "timer_xl", "attention": "standard"},
    "differential attention": {"attention": "differential"},
    "gated attention": {"attention": "gated"},
    "selective attention": {"attention": "selective"},
    "directional attention": {"attention": "directional"},
    "GATv2": {"model": "gat", "attention": "standard"},
}
"""Those that can be primed: each has a second line, with a primer."""
OTHERS: Variants = {
    "GAT": {"model": "gat", "attention": "standard", "settings": {"scoring": "gat"}},
    "LIFT on DLinear": {"model": "lift"},
    "LagTS, our reconstruction": {"model": "lagts-reconstruction"},
    "DLinear": {"model": "dlinear"},
    "PatchTST": {"model": "patchtst"},
    "standard, zero-initialized output projection": {"attention": "standard-zero-output"},
    "prime, features permuted among pairs": {"attention": "prime-shuffled-pairs", "settings": PRIME_SELF},
    "prime, one primer for all pairs": {"attention": "prime-one-for-all-pairs", "settings": PRIME_SELF},
}


def primed(backbones: Variants) -> Variants:
    """Return each backbone and, after it, the same with prime attention by its printed formula."""
    variants: dict[str, Mapping[str, Any]] = {}
    for name, fields in backbones.items():
        attention = "prime" if fields["attention"] == "standard" else f"{fields['attention']}+prime"
        variants |= {name: fields, f"{name} + prime": {**fields, "attention": attention, "settings": PRIME_SELF}}
    return variants


ALL_BUT_AUTOFORMER: Variants = {**primed(BACKBONES), **OTHERS}
VARIANTS: Variants = {**ALL_BUT_AUTOFORMER, "Autoformer, 1 epoch": {"model": "autoformer", "settings": {"epochs": 1}}}
SPECS = [*grid(VARIANTS, ["ETTh1"]), *grid(ALL_BUT_AUTOFORMER, ["ETTh2"])]
"""Autoformer, which takes longest, on ETTh1 alone."""
QUICK = quick_grid(only(VARIANTS, ["iTransformer", "iTransformer + prime", "DLinear"]))
IN_PAPER = {
    **{f"{name}+prime": f"{name} + prime" for name in ("iTransformer", "FreDF", "Timer-XL")},
    "DIFF": "differential attention",
    "LagTS": "LagTS, our reconstruction",
    "LIFT": "LIFT on DLinear",
    "Autoformer": "Autoformer, 1 epoch",
}
"""What the prime attention paper calls a system -> what it is called here."""


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Each system beside what is published of it, and its primed version against itself."""
    named = ordered(frame, VARIANTS)
    beside = {
        "published": {**printed("backbone"), **printed("others", IN_PAPER)},
        "paper": {**printed("main", IN_PAPER), **printed("relational", IN_PAPER)},
        "parameters": {cell: f"{count:.0f}" for cell, count in per_cell(named, "parameters").items()},
        "s / epoch": {cell: f"{seconds:.1f}" for cell, seconds in per_cell(named, "seconds_per_epoch").items()},
    }
    baseline = {name: name.removesuffix(" + prime") for name in VARIANTS if name.endswith(" + prime")}
    return f"{legend(__doc__)}\n\n{comparison_table(named, blocks, baseline=baseline, beside=beside)}"
