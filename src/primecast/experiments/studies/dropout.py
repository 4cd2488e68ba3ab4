"""Dropout, tuned on validation for standard and for primed attention over the same grid."""

import pandas as pd

from primecast.analysis.statistics import cells
from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import PRIME_SELF, Variants, grid
from primecast.experiments.studies.tables import READING, comparison_table, markdown_table, ordered, summary_table

TITLE = "Dropout, tuned on validation for each"

RATES = (0.1, 0.2, 0.4, 0.8)
SIDES: Variants = {
    "standard": {"attention": "standard"},
    "prime": {"attention": "prime"},
    "prime-table": {"attention": "prime-table"},
    "prime (self-pair primed)": {"attention": "prime", "settings": PRIME_SELF},
}


def at_each_rate(sides: Variants) -> Variants:
    return {
        f"{name}, {rate}": {**side, "settings": {**side.get("settings", {}), "dropout": rate}}
        for name, side in sides.items()
        for rate in RATES
    }


VARIANTS = at_each_rate(SIDES)


def specs(quick: bool = False) -> list[Spec]:
    """Two seeds of the quick sets; of Weather and ETTm1, where a run takes up to a quarter of an hour, one."""
    if quick:
        return grid(VARIANTS, ["nyc-weather"], horizons=[24], settings={"epochs": 2})
    fewer = at_each_rate({name: SIDES[name] for name in ("standard", "prime", "prime-table")})
    return [*grid(VARIANTS, ["ETTh1", "ETTh2", "Exchange"], seeds=range(2)), *grid(fewer, ["Weather", "ETTm1"])]


def render(frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """The grid on validation, then each attention at its best dropout on test."""
    named = ordered(frame, VARIANTS)
    best = chosen(named)
    picked = pd.concat(
        [
            named[(named["dataset"] == dataset) & (named["variant"] == f"{attention}, {rate}")].assign(
                variant=f"{attention}, its best"
            )
            for (dataset, attention), rate in best.items()
        ],
        ignore_index=True,
    )
    beside = {(dataset, int(horizon), f"{attention}, its best"): str(rate)
              for (dataset, attention), rate in best.items()
              for horizon in dict.fromkeys(named[named["dataset"] == dataset]["horizon"])}  # fmt: skip
    _, *primed = SIDES
    against = {f"{name}, {rate}": f"standard, {rate}" for name in primed for rate in RATES}
    return "\n".join(
        [
            "## Validation MSE\n",
            _grid(named),
            "## Test, each at its best dropout\n",
            READING,
            "",
            comparison_table(picked, blocks, baseline="standard, its best", beside={"dropout": beside}),
            "Over all cells:\n",
            summary_table(picked, blocks, baseline="standard, its best"),
            "## Test, all of the grid\n",
            comparison_table(named, blocks, baseline=against),
        ]
    )


def chosen(named: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Of each data set and attention, the dropout with the lowest mean validation MSE."""
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for _, cell in _means(named).iterrows():
        where = (str(cell["dataset"]), str(cell["attention"]))
        found = (float(cell["mean"]), float(cell["rate"]))
        best[where] = min(found, best.get(where, found))
    return {where: rate for where, (_, rate) in best.items()}


def _means(named: pd.DataFrame) -> pd.DataFrame:
    table = cells(named, ["dataset", "variant"], "val_mse")
    table[["attention", "rate"]] = table["variant"].str.split(", ", expand=True)
    return table


def _grid(named: pd.DataFrame) -> str:
    table, best = _means(named), chosen(named)
    lines = []
    for (dataset, attention), rate in best.items():
        part = table[(table["dataset"] == dataset) & (table["attention"] == attention)].set_index("rate")["mean"]
        shown = [f"{part[str(each)]:.4f}" if str(each) in part.index else "" for each in RATES]
        marked = [f"**{text}**" if each == rate else text for each, text in zip(RATES, shown, strict=True)]
        lines.append([dataset, attention, *marked])
    return markdown_table(["data set", "attention", *map(str, RATES)], lines)
