"""Dropout, tuned on validation for standard and for primed attention over the same grid."""

import pandas as pd

from primecast.analysis.statistics import cells
from primecast.experiments.studies.grid import PRIME_SELF, Variants, grid
from primecast.experiments.studies.tables import CELL, READING, compare_all, comparison_table, markdown_table, ordered

TITLE = "Dropout, tuned on validation for each"

COLUMNS = ["dataset", "attention", "rate"]
RATES = (0.1, 0.2, 0.4, 0.8)
ATTENTIONS = ("standard", "prime", "prime-table")
SELF = "prime (self-pair primed)"
FEWER: Variants = {
    f"{name}, {rate}": {"attention": name, "settings": {"dropout": rate}} for name in ATTENTIONS for rate in RATES
}
VARIANTS: Variants = {
    **FEWER,
    **{f"{SELF}, {rate}": {"attention": "prime", "settings": {**PRIME_SELF, "dropout": rate}} for rate in RATES},
}
SPECS = [*grid(VARIANTS, ["ETTh1", "ETTh2", "Exchange"], seeds=range(2)), *grid(FEWER, ["Weather", "ETTm1"])]
"""Of Weather and ETTm1, where a run takes up to a quarter of an hour, one seed."""
QUICK = grid(VARIANTS, ["nyc-weather"], horizons=[24], settings={"epochs": 2})


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """The grid on validation, then each attention at its best dropout on test."""
    named = ordered(frame, VARIANTS)
    best = {(dataset, f"{attention}, {rate}") for (dataset, attention), rate in chosen(named).items()}
    picked = named[[run in best for run in zip(named["dataset"], named["variant"], strict=True)]]
    attentions, rates = (picked["variant"].str.split(", ").str[part] for part in (0, 1))
    picked = picked.assign(variant=attentions + ", its best")
    dropout = dict(zip(zip(*(picked[name] for name in CELL), strict=True), rates, strict=True))
    against = {f"{name}, {rate}": f"standard, {rate}" for name in (*ATTENTIONS[1:], SELF) for rate in RATES}
    return "\n".join(
        [
            "## Validation MSE\n",
            _grid(named),
            "## Test, each at its best dropout\n",
            READING,
            "",
            compare_all(picked, blocks, baseline="standard, its best", beside={"dropout": dropout}),
            "## Test, all of the grid\n",
            comparison_table(named, blocks, baseline=against),
        ]
    )


def chosen(named: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the dropout with the lowest mean validation MSE of each data set and attention."""
    means = _means(named)
    best = means.loc[means.groupby(["dataset", "attention"], sort=False)["mean"].idxmin()]
    return {(dataset, attention): float(rate) for dataset, attention, rate in best[COLUMNS].itertuples(index=False)}


def _means(named: pd.DataFrame) -> pd.DataFrame:
    table = cells(named, ["dataset", "variant"], "val_mse")
    table[["attention", "rate"]] = table["variant"].str.split(", ", expand=True)
    return table


def _grid(named: pd.DataFrame) -> str:
    means = _means(named).set_index(COLUMNS)["mean"]
    lines = []
    for (dataset, attention), best in chosen(named).items():
        texts = [f"{means[cell]:.4f}" if (cell := (dataset, attention, str(rate))) in means else "" for rate in RATES]
        marked = [f"**{text}**" if rate == best else text for rate, text in zip(RATES, texts, strict=True)]
        lines.append([dataset, attention, *marked])
    return markdown_table(["data set", "attention", *map(str, RATES)], lines)
