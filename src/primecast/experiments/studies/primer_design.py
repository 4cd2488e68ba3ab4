"""Designs of the primer, one change at a time, with their cost; the best are chosen on validation."""

import math
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from primecast.experiments.studies.grid import PRIME_SELF, Variants, grid, only, quick_grid
from primecast.experiments.studies.probed import measurements
from primecast.experiments.studies.tables import READING, changes, compare_all, ordered, percent, table
from primecast.plotting.figures import trade_figure

TITLE = "The design of the primer: accuracy against cost"

DESIGNS: dict[str, dict[str, Any]] = {
    "2 units per head, as designed": {},
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
    "windows not standardized": {"primer.normalize": False},
    "gains per layer": {"primer.layers": True},
    "self-pair unprimed": {"primer.prime_self": False},
    "calendar tokens unprimed": {"primer.prime_covariates": False},
    "first layer x 0.3": {"primer.scale": 0.3},
    "first layer x 3": {"primer.scale": 3.0},
    "learned pair vectors beside the features": {"primer.pair_offsets": True},
    "learned pair vectors instead of features": {"primer.kind": "table"},
    "learned pair vectors, self-pair unprimed": {"primer.kind": "table", "primer.prime_self": False},
    "learned vectors of the key channel": {"primer.kind": "table", "primer.pairing": "key"},
    "primer's learning rate x 3": {"lr_factor.primer": 3.0},
    "primer's learning rate x 10": {"lr_factor.primer": 10.0},
}
VARIANTS: Variants = {
    "standard": {"attention": "standard"},
    **{name: {"attention": "prime", "settings": {**PRIME_SELF, **settings}} for name, settings in DESIGNS.items()},
}
LEGEND = (
    "A change is the mean over seeds, each against standard attention with the same seed; *mean* is over the two sets "
    "that designs are chosen on. *Training step*: processor time on one thread at 32 windows, a multiple of standard "
    "attention's, mean of both sets, whose 7 channels and 4 calendar tokens are few. *Parameters added*: to the "
    "model of ETTh1."
)
LINES = {
    "grouped": ("1 unit per head", "2 units per head, as designed", "4 units per head", "8 units per head"),
    "dense": ("dense, 8 units", "dense, 16 units", "dense, 32 units"),
}
"""The widths that the figure joins."""
FINALISTS: tuple[str, ...] = ("learned pair vectors instead of features", "base identity, gain 0")
"""The two designs that were best on validation on ETTh1 and ETTh2: they are run on Weather, too."""
CONTROL = "learned vectors of the key channel"
"""The first of them without pairs: run on Weather, too. It was added after the others had been run."""
JOINED = "learned pair vectors, self-pair unprimed"
"""Both chosen changes in one: run on Weather after both had been, then wherever the second of them is."""
LEADS = ("self-pair unprimed",)
"""Designs with the lowest *test* errors there: does it hold on held-out data sets?"""

CHOSEN_ON = ("ETTh1", "ETTh2")
USUAL = ("standard", "2 units per head, as designed")
SPECS = [
    *grid(VARIANTS, CHOSEN_ON, seeds=range(2), probes=("cost",)),
    *grid(only(VARIANTS, [*USUAL, *FINALISTS, CONTROL, JOINED, *LEADS]), ["Weather"], seeds=range(2)),
    *grid(only(VARIANTS, [*USUAL, JOINED, *LEADS]), ["ETTm1", "Exchange"], seeds=range(2)),
]
QUICK = quick_grid(only(VARIANTS, list(VARIANTS)[:3]), probes=("cost",))


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Validation errors, by which designs are chosen; then test errors."""
    named = ordered(frame, VARIANTS)
    return "\n".join(
        [
            "## Validation MSE, relative to standard attention\n",
            _validation(named),
            LEGEND,
            _agreement(named),
            "\n## Test\n",
            READING,
            "",
            compare_all(named, blocks, baseline="standard"),
        ]
    )


def _validation(named: pd.DataFrame) -> str:
    """Designs by their mean change of validation MSE on the sets they are chosen on, best first."""
    change = changes(named, "val_mse", CHOSEN_ON)
    if change.empty:
        return "Standard attention has not been run yet.\n"
    cost = _cost(named).dropna().to_dict()
    small = named[named["dataset"].isin(CHOSEN_ON)]
    added = (small if len(small) else named).groupby("variant")["overhead"].first().to_dict()
    texts = change.sort_values("mean", kind="stable").map(percent, digits=2)
    lines = [
        {
            "design": name,
            **row,
            "training step": f"{cost[name]:.2f}" if name in cost else "",
            "parameters added": f"{100 * added[name]:.2f} %" if name in added else "",
        }
        for name, row in texts.T.to_dict().items()
    ]
    return table(lines)


def _agreement(named: pd.DataFrame) -> str:
    """Return the rank correlation of validation and test errors over designs, for each data set."""
    by_validation, by_test = changes(named, "val_mse", CHOSEN_ON), changes(named, "mse", CHOSEN_ON)
    found = []
    for dataset in [name for name in CHOSEN_ON if name in by_validation]:
        both = pd.DataFrame({"validation": by_validation[dataset], "test": by_test[dataset]}).drop("standard").dropna()
        if len(both) > 2:
            found.append(f"{dataset} {both['validation'].rank().corr(both['test'].rank()):+.2f}")
    return f"\nRank correlation of the two, validation and test, over designs: {', '.join(found)}.\n" if found else ""


def _cost(named: pd.DataFrame) -> "pd.Series[float]":
    """Return the processor time of a training step of each design, as a multiple of standard attention's."""
    measured = measurements(named, "cost")
    if measured.empty:
        return pd.Series(dtype=float)
    steps = measured.groupby("variant")["step_ratio"].mean()
    return steps / steps.get("standard", math.nan)


def figure(frame: pd.DataFrame) -> Figure:
    """Error against cost, on validation, which designs are chosen by, and on test: both sets, all seeds.

    The names of most designs are in the table.
    """
    named = ordered(frame, VARIANTS)
    errors = {column: 100 * changes(named, column, CHOSEN_ON).get("mean", pd.Series()) for column in ("val_mse", "mse")}
    return trade_figure(
        pd.DataFrame({"step": _cost(named), **errors}, dtype=float),
        x=("step", "training step, times standard attention's"),
        panels={"val_mse": "change of validation MSE (%)", "mse": "change of test MSE (%)"},
        lines=LINES,
        named=("standard", *FINALISTS),
    )
