"""Markdown tables of a study: errors over seeds, and differences with intervals and a verdict.

A frame here has one line per run and a column `variant`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from primecast.analysis.statistics import Comparison, Summary, cell_counts, cells, compare, summarize
from primecast.data.catalog import CATALOG
from primecast.experiments.studies.grid import Variants

Place = tuple[str, int]
"""A data set and a horizon."""


def ordered(frame: pd.DataFrame, variants: Variants) -> pd.DataFrame:
    """Return the frame in the order of its data sets, then of horizons, variants and seeds."""
    ranks = pd.DataFrame(
        {
            "dataset": frame["dataset"].map({name: rank for rank, name in enumerate(dict.fromkeys(frame["dataset"]))}),
            "horizon": frame["horizon"],
            "variant": frame["variant"].map({name: rank for rank, name in enumerate(variants)}),
            "seed": frame["seed"],
        }
    )
    return frame.loc[ranks.sort_values(list(ranks.columns)).index].reset_index(drop=True)


def paired(
    frame: pd.DataFrame, blocks: pd.DataFrame, candidate: str, baseline: str, place: Place, metric: str = "mse"
) -> Comparison | None:
    """Two variants at one data set and horizon, over the seeds that both have; None if they have none in common."""
    here = frame[(frame["dataset"] == place[0]) & (frame["horizon"] == place[1])]
    keys = [here[here["variant"] == name].set_index("seed")["key"] for name in (candidate, baseline)]
    seeds = sorted(set(keys[0].index) & set(keys[1].index))
    if not seeds:
        return None
    by_key = blocks.set_index("key")
    sums = [[by_key.loc[side[seed], metric] for seed in seeds] for side in keys]
    first = by_key.loc[keys[0][seeds[0]]]
    cell = int(first["cell"])
    if len({len(run) for side in sums for run in side}) > 1:  # of a run from before there were cells: one sum of all
        sums, cell = [[run.sum(keepdims=True) for run in side] for side in sums], int(first["windows"])
    lookback = int(here["lookback"].max())  # runs that look back less have the same targets, window by window
    ours, theirs = map(np.stack, sums)
    return compare(
        ours,
        theirs,
        cell_counts(int(first["windows"]), cell),
        block=lookback + place[1],
        overlap=place[1],
        series=place[0],
    )


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
    """Data sets and horizons of a frame, in its order."""
    return list(dict.fromkeys(zip(frame["dataset"], frame["horizon"], strict=True)))


def per_cell(frame: pd.DataFrame, column: str) -> dict[tuple[str, int, str], float]:
    """Mean of a column over the seeds of each data set, horizon and variant."""
    table = cells(frame, ["dataset", "horizon", "variant"], column)
    columns = (table[name].tolist() for name in ("dataset", "horizon", "variant", "mean"))
    return {(str(d), int(h), str(v)): float(mean) for d, h, v, mean in zip(*columns, strict=True)}


def comparison_table(
    frame: pd.DataFrame,
    blocks: pd.DataFrame,
    *,
    baseline: str | Mapping[str, str],
    beside: Mapping[str, Mapping[tuple[str, int, str], str]] | None = None,
) -> str:
    """One line per data set, horizon and variant: MSE, MAE, and the change of MSE against the baseline.

    baseline: a variant, or for each variant the one it is compared with.
    beside:   more columns: title -> (data set, horizon, variant) -> text, such as published values.
    """
    beside = beside or {}
    mse, mae = (cells(frame, ["dataset", "horizon", "variant"], name) for name in ("mse", "mae"))
    lines = []
    for (_, square), (_, absolute) in zip(mse.iterrows(), mae.iterrows(), strict=True):
        where = (str(square["dataset"]), int(square["horizon"]), str(square["variant"]))
        against = _against(baseline, where[2])
        found = None if against is None else paired(frame, blocks, where[2], against, where[:2])
        lines.append(
            [
                where[0],
                str(where[1]),
                where[2],
                spread(square["mean"], square["sd"]),
                spread(absolute["mean"], absolute["sd"]),
                str(square["n"]) if found is None else _seeds(int(square["n"]), found),
                "" if found is None else change(found),
                "" if found is None or not math.isfinite(found.low) else found.verdict,
                *(column.get(where, "") for column in beside.values()),
            ]
        )
    head = ["data set", "horizon", "variant", "MSE", "MAE", "seeds", "change of MSE", "verdict", *beside]
    return markdown_table(head, lines)


def _seeds(there: int, found: Comparison) -> str:
    """How many seeds a cell is the mean of, and how many the comparison, where the other side has fewer."""
    return str(there) if found.seeds == there else f"{there}, {found.seeds} compared"


def _against(baseline: str | Mapping[str, str], variant: str) -> str | None:
    against = baseline if isinstance(baseline, str) else baseline.get(variant)
    return None if against == variant else against


def summary_table(
    frame: pd.DataFrame,
    blocks: pd.DataFrame,
    *,
    baseline: str | Mapping[str, str],
    metrics: Sequence[str] = ("mse", "mae"),
) -> str:
    """One line per variant: how often it is better than its baseline, and the mean relative change over the cells."""
    lines = []
    for variant in dict.fromkeys(frame["variant"]):
        against = _against(baseline, variant)
        if against is None:
            continue
        line = [variant, against]
        for metric in metrics:
            found = [paired(frame, blocks, variant, against, place, metric) for place in places(frame)]
            line += summary_cells(summarize(one for one in found if one is not None))
        lines.append(line)
    head = ["variant", "against"]
    for metric in metrics:
        head += [f"{metric.upper()}: better / no significant difference / worse", f"mean change of {metric.upper()}"]
    return markdown_table(head, lines)


def average_table(
    frame: pd.DataFrame,
    blocks: pd.DataFrame,
    *,
    baseline: str | Mapping[str, str],
    published: Mapping[tuple[str, int, str], str],
) -> str:
    """Return one line per data set and variant that has all horizons of the data set; "" if none has.

    published: (data set, horizon, variant) -> "MSE/MAE", averaged for the column `paper` where all horizons have one.
    """
    lines = []
    for (dataset, variant), runs in frame.groupby(["dataset", "variant"], sort=False):
        horizons = CATALOG[str(dataset)].horizons
        seeds = set.intersection(*(set(runs[runs["horizon"] == horizon]["seed"]) for horizon in horizons))
        if not seeds:
            continue
        complete = runs[runs["horizon"].isin(horizons) & runs["seed"].isin(seeds)]
        means = complete.groupby("seed")[["mse", "mae"]].mean()
        against = _against(baseline, str(variant))
        found = [
            paired(frame, blocks, str(variant), against, (str(dataset), horizon)) for horizon in horizons if against
        ]
        known = [one for one in found if one is not None]
        change = summary_cells(summarize(known))[1] if known and len(known) == len(found) else ""
        cells_of = [published.get((str(dataset), horizon, str(variant)), "") for horizon in horizons]
        pairs = np.array([cell.split("/") for cell in cells_of], dtype=float) if all(cells_of) else None
        paper = "" if pairs is None else "/".join(f"{value:.3f}".lstrip("0") for value in pairs.mean(axis=0))
        spreads = [spread(float(means[name].mean()), float(means[name].std())) for name in ("mse", "mae")]
        lines.append([str(dataset), str(variant), *spreads, str(len(seeds)), change, paper])
    head = ["data set", "variant", "MSE", "MAE", "seeds", "mean change of MSE", "paper"]
    return markdown_table(head, lines) if lines else ""


def summary_cells(found: Summary) -> list[str]:
    counts = f"{found.wins} / {found.ties} / {found.losses}"
    if found.unknown:
        counts += f" ({found.unknown} without interval)"
    if math.isnan(found.relative):
        return [counts, ""]
    return [counts, f"{percent(found.relative)} [{percent(found.low)}, {percent(found.high)}]"]


def page(
    named: pd.DataFrame,
    blocks: pd.DataFrame,
    *,
    baseline: str | Mapping[str, str],
    note: str = "",
    beside: Mapping[str, Mapping[tuple[str, int, str], str]] | None = None,
) -> str:
    """How to read it, every cell against its baseline, and all cells together: what most studies show."""
    return "\n".join(
        [
            READING,
            f"\n{note}\n" if note else "",
            comparison_table(named, blocks, baseline=baseline, beside=beside),
            "Over all cells:\n",
            summary_table(named, blocks, baseline=baseline),
        ]
    )


READING = (
    "MSE and MAE are of scaled data over all test windows: mean ± standard deviation over seeds. The change is "
    "relative to the baseline run with the same seeds, with its 95 % interval (moving blocks of windows, seeds "
    "resampled; see `primecast.analysis.statistics`); *better* and *worse*: the interval of the difference excludes "
    "zero."
)


def format_percent(change: float) -> str:
    """A change to a hundredth of a per cent, and nothing for one that is not known."""
    return "" if math.isnan(change) else f"{100 * change:+.2f} %"


def spread(mean: float, sd: float) -> str:
    return f"{mean:.4f}" if math.isnan(sd) else f"{mean:.4f} ± {sd:.4f}"


def change(found: Comparison) -> str:
    if not math.isfinite(found.low):
        return f"{percent(found.relative)} [no interval]"
    return f"{percent(found.relative)} [{percent(found.relative_low)}, {percent(found.relative_high)}]"


def percent(change: float) -> str:
    return f"{100 * change:+.1f} %"


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, as wide as its cells are."""
    rows = [list(head), ["---"] * len(head), *map(list, lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
