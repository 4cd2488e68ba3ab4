"""Markdown tables of a study: errors over seeds, and differences with intervals and a verdict.

A frame here has one line per run and a column `variant`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from primecast.analysis.statistics import Comparison, Summary, cell_counts, compare, summarize
from primecast.data.catalog import CATALOG
from primecast.experiments.studies.grid import Variants
from primecast.plotting.style import readable

Place = tuple[str, int]
"""A data set and a horizon."""
Cell = tuple[str, int, str]
"""A data set, a horizon and a variant."""
Baseline = str | Mapping[str, str]
"""A variant, or for each variant the one it is compared with."""
Columns = Mapping[str, Mapping[Cell, str]]
"""More columns of a table: title -> cell -> text, such as published values."""
CELL = ["dataset", "horizon", "variant"]
METRICS = ("mse", "mae")

READING = (
    "MSE and MAE are of scaled data over all test windows: mean ± standard deviation over seeds. The change is "
    "relative to the baseline run with the same seeds, with its 95 % interval (moving blocks of windows, seeds "
    "resampled; see `primecast.analysis.statistics`); *better* and *worse*: the interval of the difference excludes "
    "zero."
)


# ---------------------------------------------------------------- runs of a frame


def ordered(frame: pd.DataFrame, variants: Variants) -> pd.DataFrame:
    """Return the frame in the order of its data sets, then of horizons, variants and seeds."""
    ranks = frame.assign(
        dataset=frame["dataset"].map({name: rank for rank, name in enumerate(dict.fromkeys(frame["dataset"]))}),
        variant=frame["variant"].map({name: rank for rank, name in enumerate(variants)}),
    )
    return frame.loc[ranks.sort_values([*CELL, "seed"]).index].reset_index(drop=True)


def groups(frame: pd.DataFrame, by: str | list[str]) -> Iterable[tuple[Any, pd.DataFrame]]:
    """Return the groups of a frame, in the order of their first lines."""
    return list(frame.groupby(by, sort=False))


def paired(
    frame: pd.DataFrame, blocks: pd.DataFrame, candidate: str, baseline: str | None, place: Place, metric: str = "mse"
) -> Comparison | None:
    """Compare two variants at one data set and horizon, over the seeds that both have; None if both have none."""
    dataset, horizon = place
    here = frame[(frame["dataset"] == dataset) & (frame["horizon"] == horizon)]
    keys = [here[here["variant"] == name].set_index("seed")["key"] for name in (candidate, baseline)]
    seeds = sorted(set(keys[0].index) & set(keys[1].index))
    if not seeds:
        return None
    by_key = blocks.set_index("key")
    sums = [[by_key.loc[side[seed], metric] for seed in seeds] for side in keys]
    windows, cell = map(int, by_key.loc[keys[0][seeds[0]], ["windows", "cell"]])
    if len({len(run) for side in sums for run in side}) > 1:  # of a run from before there were cells: one sum of all
        sums, cell = [[run.sum(keepdims=True) for run in side] for side in sums], windows
    lookback = int(here["lookback"].max())  # runs that look back less have the same targets, window by window
    ours, theirs = map(np.stack, sums)
    counts = cell_counts(windows, cell)
    return compare(ours, theirs, counts, block=lookback + horizon, overlap=horizon, series=dataset)


def changes(named: pd.DataFrame, column: str, over: Sequence[str]) -> pd.DataFrame:
    """Change of an error against variant "standard" with the same seed: a line per variant, a column per data set.

    mean: over these data sets, where a variant has been run on all of them.
    """
    table = named.pivot_table(index=["dataset", "seed"], columns="variant", values=column, sort=False)
    if "standard" not in table:
        return pd.DataFrame()
    change = table.div(table["standard"], axis=0) - 1
    by_set = change.groupby("dataset", sort=False).mean().T
    return by_set.assign(mean=by_set[[name for name in over if name in by_set]].mean(axis=1, skipna=False))


def places(frame: pd.DataFrame) -> list[Place]:
    """Return the data sets and horizons of a frame, in its order."""
    return list(dict.fromkeys(zip(frame["dataset"], frame["horizon"], strict=True)))


def per_cell(frame: pd.DataFrame, column: str) -> dict[Cell, float]:
    """Return the mean of a column over the seeds of each cell."""
    means: dict[Any, float] = frame.groupby(CELL, sort=False)[column].mean().to_dict()
    return means


# ---------------------------------------------------------------- tables


def page(
    named: pd.DataFrame, blocks: pd.DataFrame, *, baseline: Baseline, note: str = "", beside: Columns | None = None
) -> str:
    """Return how to read it, every cell against its baseline, and all cells together: what most studies show."""
    tables = compare_all(named, blocks, baseline=baseline, beside=beside)
    return "\n".join([READING, f"\n{note}\n" if note else "", tables])


def compare_all(named: pd.DataFrame, blocks: pd.DataFrame, *, baseline: Baseline, beside: Columns | None = None) -> str:
    """Return every cell against its baseline, and all cells together."""
    cells = comparison_table(named, blocks, baseline=baseline, beside=beside)
    return f"{cells}\nOver all cells:\n\n{summary_table(named, blocks, baseline=baseline)}"


def comparison_table(
    frame: pd.DataFrame, blocks: pd.DataFrame, *, baseline: Baseline, beside: Columns | None = None
) -> str:
    """Return one line per cell: MSE, MAE, the change of MSE against the baseline, and the columns `beside`."""
    beside = beside or {}
    lines = []
    for (dataset, horizon, variant), runs in groups(frame, CELL):
        found = paired(frame, blocks, variant, _against(baseline, variant), (dataset, horizon))
        lines.append(
            [
                dataset,
                str(horizon),
                variant,
                *(over_seeds(runs[metric], 4) for metric in METRICS),
                *_comparison_cells(found, len(runs)),
                *(column.get((dataset, horizon, variant), "") for column in beside.values()),
            ]
        )
    head = ["data set", "horizon", "variant", "MSE", "MAE", "seeds", "change of MSE", "verdict", *beside]
    return markdown_table(head, lines)


def _against(baseline: Baseline, variant: str) -> str | None:
    against = baseline if isinstance(baseline, str) else baseline.get(variant)
    return None if against == variant else against


def _comparison_cells(found: Comparison | None, runs: int) -> list[str]:
    """Return seeds, also of the comparison where the other side has fewer, change and verdict."""
    if found is None:
        return [str(runs), "", ""]
    seeds = str(runs) if found.seeds == runs else f"{runs}, {found.seeds} compared"
    if not math.isfinite(found.low):
        return [seeds, f"{percent(found.relative)} [no interval]", ""]
    return [seeds, _with_interval(found.relative, found.relative_low, found.relative_high), found.verdict]


def summary_table(frame: pd.DataFrame, blocks: pd.DataFrame, *, baseline: Baseline) -> str:
    """Return one line per variant: how often it is better than its baseline, and the mean relative change."""
    lines = []
    for variant in dict.fromkeys(frame["variant"]):
        against = _against(baseline, variant)
        if against is None:
            continue
        line = [variant, against]
        for metric in METRICS:
            found = [paired(frame, blocks, variant, against, place, metric) for place in places(frame)]
            line += _summary_cells(summarize(one for one in found if one is not None))
        lines.append(line)
    head = ["variant", "against"]
    for name in map(str.upper, METRICS):
        head += [f"{name}: better / no significant difference / worse", f"mean change of {name}"]
    return markdown_table(head, lines)


def _summary_cells(found: Summary) -> list[str]:
    counts = f"{found.wins} / {found.ties} / {found.losses}"
    if found.unknown:
        counts += f" ({found.unknown} without interval)"
    return [counts, "" if math.isnan(found.relative) else _with_interval(found.relative, found.low, found.high)]


def average_table(
    frame: pd.DataFrame, blocks: pd.DataFrame, *, baseline: Baseline, published: Mapping[Cell, str]
) -> str:
    """Return one line per data set and variant that has all horizons of the data set; "" if none has.

    published: cell -> "MSE/MAE", averaged for the column `paper` where all horizons have one.
    """
    lines = []
    for (dataset, variant), runs in groups(frame, ["dataset", "variant"]):
        horizons = CATALOG[dataset].horizons
        errors = runs[runs["horizon"].isin(horizons)].pivot(index="seed", columns="horizon", values=list(METRICS))
        complete = errors.dropna() if errors.shape[1] == len(METRICS) * len(horizons) else errors[:0]
        if complete.empty:
            continue
        against = _against(baseline, variant)
        found = [paired(frame, blocks, variant, against, (dataset, horizon)) for horizon in horizons]
        known = [one for one in found if one is not None]
        change = _summary_cells(summarize(known))[1] if len(known) == len(found) else ""
        printed = [published.get((dataset, horizon, variant), "").split("/") for horizon in horizons]
        paper = np.array(printed, dtype=float).mean(axis=0) if [""] not in printed else []
        lines.append(
            {
                "data set": dataset,
                "variant": variant,
                **{metric.upper(): over_seeds(pd.DataFrame(complete[metric]).mean(axis=1), 4) for metric in METRICS},
                "seeds": len(complete),
                "mean change of MSE": change,
                "paper": "/".join(f"{value:.3f}".lstrip("0") for value in paper),
            }
        )
    return table(lines) if lines else ""


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table; all lines have the columns of the first."""
    return markdown_table(list(lines[0]), ([readable(str(cell)) for cell in line.values()] for line in lines))


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, as wide as its cells are."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


# ---------------------------------------------------------------- numbers and text


def legend(docstring: str | None) -> str:
    """Return how to read the table of a study: the docstring of its module after the first line."""
    return (docstring or "").partition("\n\n")[2].strip()


def over_seeds(values: "pd.Series[Any]", digits: int = 3, *, percent: bool = False) -> str:
    """Return mean and standard deviation over seeds; the mean alone of one seed, "none" where nothing is."""
    numbers = pd.to_numeric(values).dropna().to_numpy(dtype=float)
    if not len(numbers):
        return "none"
    scale, unit = (100, " %") if percent else (1, "")
    mean = f"{scale * numbers.mean():.{digits}f}"
    return f"{mean} ± {scale * numbers.std(ddof=1):.{digits}f}{unit}" if len(numbers) > 1 else mean + unit


def percent(change: float, digits: int = 1) -> str:
    """Return a change in percent, and nothing for one that is not known."""
    return "" if math.isnan(change) else f"{100 * change:+.{digits}f} %"


def _with_interval(change: float, low: float, high: float) -> str:
    return f"{percent(change)} [{percent(low)}, {percent(high)}]"
