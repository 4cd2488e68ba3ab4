"""The design of the primer, one thing at a time, beside its cost; the best are chosen on validation."""

import pandas as pd

from primecast.experiment import Spec
from primecast.statistics import cells
from primecast.studies.grid import Variants, grid, quick_grid
from primecast.studies.tables import READING, comparison_table, markdown_table, per_cell, summary_table, with_variants

TITLE = "The design of the primer: accuracy against cost"

DESIGNS = {
    "2 units per head (default)": {},
    "1 unit per head": {"primer.hidden": 8},
    "4 units per head": {"primer.hidden": 32},
    "8 units per head": {"primer.hidden": 64},
    "dense, 8 units": {"primer.hidden": 8, "primer.grouped": False},
    "dense, 16 units": {"primer.hidden": 16, "primer.grouped": False},
    "dense, 32 units": {"primer.hidden": 32, "primer.grouped": False},
    "base identity": {"primer.base": "identity"},
    "base identity, gain 0": {"primer.base": "identity", "primer.gain": 0.0},
    "base zero, learned": {"primer.learn_base": True},
    "relu": {"primer.activation": "relu"},
    "silu": {"primer.activation": "silu"},
    "tanh": {"primer.activation": "tanh"},
    "gain 0.1": {"primer.gain": 0.1},
    "gain 1": {"primer.gain": 1.0},
    "tanh of the lags": {"primer.smooth": True},
    "windows as they are": {"primer.normalize": False},
    "gains of each layer's own": {"primer.layers": True},
    "a channel's own pair unprimed": {"primer.prime_self": False},
    "calendar unprimed": {"primer.prime_covariates": False},
    "first layer x 0.3": {"primer.scale": 0.3},
    "first layer x 3": {"primer.scale": 3.0},
    "free pair parameters beside the features": {"primer.pair_offsets": True},
    "free pair parameters instead of features": {"primer.kind": "random", "primer.free": True},
    "primer's rate x 3": {"rate.primer": 3.0},
    "primer's rate x 10": {"rate.primer": 10.0},
}
VARIANTS: Variants = {
    "standard": {"attention": "standard"},
    **{name: {"attention": "prime", "settings": settings} for name, settings in DESIGNS.items()},
}
FINALISTS: tuple[str, ...] = ()
"""The two designs that were best on validation on ETTh1 and ETTh2: they are run on Weather, too."""


def specs(quick: bool = False) -> list[Spec]:
    """ETTh1 and ETTh2 with two seeds; then the finalists on Weather, beside standard attention and the default."""
    if quick:
        few = {name: VARIANTS[name] for name in list(VARIANTS)[:3]}
        return quick_grid(few)
    usual = ("standard", "2 units per head (default)")
    finals = {name: VARIANTS[name] for name in (*usual, *FINALISTS)}
    return [*grid(VARIANTS, ["ETTh1", "ETTh2"], seeds=range(2)), *grid(finals, ["Weather"], seeds=range(2))]


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Validation first, since that is what is chosen by; then the test errors and the cost."""
    named = with_variants(frame, VARIANTS)
    return "\n".join(
        [
            "## Chosen by: validation MSE, relative to standard attention\n",
            _validation(named),
            "## Test\n",
            READING,
            "",
            comparison_table(named, blocks, baseline="standard", beside={"seconds per epoch": _cost(named)}),
            "Over all cells:\n",
            summary_table(named, blocks, baseline="standard"),
        ]
    )


def _validation(named: pd.DataFrame) -> str:
    """Designs by their mean change of validation MSE over the data sets they were run on, best first."""
    means = cells(named, ["variant", "dataset"], "val_mse").pivot(index="variant", columns="dataset", values="mean")
    means = means[list(dict.fromkeys(named["dataset"]))]
    if "standard" not in means.index:
        return "Standard attention has not been run yet.\n"
    change = means / means.loc["standard"] - 1
    change["mean"] = change.mean(axis=1)
    change["overhead"] = named.groupby("variant")["overhead"].mean()
    complete = change.drop(columns=["overhead"]).notna().sum(axis=1)
    ordered = change.assign(sets=complete).sort_values(["sets", "mean"], ascending=[False, True]).drop(columns="sets")
    lines = [
        [
            str(name),
            *("" if pd.isna(value) else f"{100 * value:+.2f} %" for value in row[:-1]),
            f"{100 * row.iloc[-1]:.2f} %",
        ]
        for name, row in ordered.iterrows()
    ]
    return markdown_table(["design", *map(str, change.columns[:-1]), "parameters added"], lines)


def _cost(named: pd.DataFrame) -> dict[tuple[str, int, str], str]:
    return {where: f"{seconds:.1f}" for where, seconds in per_cell(named, "seconds_per_epoch").items()}
