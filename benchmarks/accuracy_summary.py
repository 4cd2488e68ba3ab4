"""Summarize the rows of the accuracy benchmark: the bars, a table and a figure for each half. Nothing is measured here.

A value whose rows are missing is null. A cell (data set x horizon) counts in ranks if every method that has any row in
its half was measured in it; scores of a cell are means over its seeds. A slow peer is compared apart, on the origins
that it forecast from.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from statistics import fmean, median
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from accuracy import NAIVE, OWN, PEERS, SLOW, is_measured
from accuracy_cells import HALVES, STRIDED, coverage_gap
from measure import Rows
from primecast.storage.atomic import write_bytes_atomically, write_json

Row = dict[str, Any]
Cell = tuple[str, int]
Scores = dict[Cell, dict[str, Row]]
"""Cell -> method -> the mean over seeds of each number, with the number of seeds."""

NUMBERS = ("mse", "mae", "wql", "coverage", "gap", "width", "seconds")
SMALL = ("ETTh1", "ETTm1", "ETTm2")
"""Sets of the size of ETTh1: 7 channels."""
DRAWS = 2000


def gather(rows: Iterable[Row], sets: Sequence[str]) -> Scores:
    """Return the mean over seeds of the rows of these sets."""
    found: dict[Cell, dict[str, list[Row]]] = {}
    for row in rows:
        if row["set"] in sets:
            found.setdefault((row["set"], row["horizon"]), {}).setdefault(row["method"], []).append(row)
    return {cell: {name: _mean(each) for name, each in methods.items()} for cell, methods in found.items()}


def _mean(rows: Sequence[Row]) -> Row:
    rows = [row | {"gap": coverage_gap(row)} for row in rows]
    means = {
        name: fmean(row[name] for row in rows) for name in NUMBERS if all(row.get(name) is not None for row in rows)
    }
    return means | {"seeds": len(rows)}


def complete(scores: Scores) -> Scores:
    """Return the cells in which every method of these scores was measured."""
    methods = {name for each in scores.values() for name in each}
    return {cell: each for cell, each in scores.items() if set(each) == methods}


def beside_slow_peer(rows: Iterable[Row], sets: Sequence[str], peer: str) -> Scores:
    """Return the scores on the origins of a slow peer: its cells, and the methods scored so in each of them."""
    few = [row if row["method"] == peer else row | row["strided"] for row in rows if _has_strided(row, peer)]
    scores = {cell: each for cell, each in gather(few, sets).items() if peer in each}
    everywhere = set.intersection(*map(set, scores.values())) if scores else set()
    return {cell: {name: each[name] for name in each if name in everywhere} for cell, each in scores.items()}


def _has_strided(row: Row, peer: str) -> bool:
    return row["method"] == peer or (row["method"] not in SLOW and "strided" in row)


# ---------------------------------------------------------------- the numbers


def mean_ranks(scores: Scores, methods: Sequence[str], number: str) -> dict[str, float]:
    """Return method -> mean over cells of its rank among these methods; equal scores share their mean rank."""
    ranks: dict[str, list[float]] = {name: [] for name in methods}
    for each in scores.values():
        values = {name: each[name][number] for name in methods}
        for name, value in values.items():
            less, equal = (
                sum(test) for test in ([v < value for v in values.values()], [v == value for v in values.values()])
            )
            ranks[name].append(less + (equal + 1) / 2)
    return {name: fmean(each) for name, each in ranks.items() if each}


def place(ranks: Mapping[str, float], method: str) -> int | None:
    return 1 + sum(rank < ranks[method] for rank in ranks.values()) if method in ranks else None


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(fmean(map(math.log, values)))


def best_peer(scores: Scores, name: str, peers: Sequence[str]) -> str:
    """Return the peer of the lowest geometric mean of the MSE over the horizons of a set."""
    cells = [each for cell, each in scores.items() if cell[0] == name]
    return min(peers, key=lambda peer: geometric_mean(each[peer]["mse"] for each in cells))


def against_best_peer(scores: Scores, method: str, peers: Sequence[str], number: str) -> list[float]:
    """Return, for each set, the method's number over that of its best peer by MSE: geometric mean over horizons."""
    ratios = []
    for name in dict.fromkeys(cell[0] for cell in scores):
        peer = best_peer(scores, name, peers)
        cells = [each for cell, each in scores.items() if cell[0] == name]
        ratios.append(geometric_mean(max(each[method][number], 1e-3) / max(each[peer][number], 1e-3) for each in cells))
    return ratios


def skill(scores: Scores, method: str, number: str) -> tuple[float, float, float]:
    """Return 1 - geometric mean of score / seasonal naive's, with the 95 % bootstrap interval over cells."""
    logs = np.log([each[method][number] / each[NAIVE][number] for each in scores.values()])
    draws = np.random.default_rng(0).choice(logs, (DRAWS, len(logs))).mean(axis=1)
    low, high = np.quantile(1 - np.exp(draws), [0.025, 0.975])
    return float(1 - np.exp(logs.mean())), float(low), float(high)


def bars(rows: Sequence[Row], sets: Sequence[str], forecast: Row | None) -> dict[str, Any]:
    """Return the values of the bars on these sets; None where a value has no rows."""
    scores = complete(gather(rows, sets))
    methods = list(next(iter(scores.values()), {}))
    peers = [name for name in PEERS if name in methods]
    found: dict[str, Any] = dict.fromkeys(
        ("place_mse", "place_mae", "good_vs_best_peer", "fast_vs_best_peer", "fast_seconds_ratio", "coverage_gap")
    )
    if "good" in methods and peers:
        for number in ("mse", "mae"):
            found[f"place_{number}"] = place(mean_ranks(scores, ["good", *peers], number), "good")
        found["good_vs_best_peer"] = geometric_mean(against_best_peer(scores, "good", peers, "mse"))
    gaps = [each["good"]["gap"] for each in gather(rows, sets).values() if "good" in each]
    found["coverage_gap"] = fmean(gaps) if gaps else None
    if "fast" in methods and peers:
        found["fast_vs_best_peer"] = geometric_mean(against_best_peer(scores, "fast", peers, "mse"))
        found["fast_seconds_ratio"] = median(against_best_peer(scores, "fast", peers, "seconds"))
    small = [each for each in gather(rows, SMALL).values() if set(OWN) <= set(each)]
    times = [each["good"]["seconds"] / each["fast"]["seconds"] for each in small]
    found["good_over_fast_seconds"] = median(times) if times else None
    found["forecast_seconds"] = None if forecast is None else forecast["seconds"]
    found["forecast_seconds_provisional"] = None if forecast is None else forecast["provisional"]
    seeds = [each[name]["seeds"] for each in scores.values() for name in methods if name != NAIVE]
    counts = {"cells": len(scores), "sets": len({cell[0] for cell in scores}), "peers": peers}
    return found | counts | {"seeds": [min(seeds), max(seeds)] if seeds else None}


def slow_peers(rows: Sequence[Row], sets: Sequence[str]) -> dict[str, Any]:
    """Return slow peer -> the number of its cells and the skill by MSE of all methods on its origins."""
    found = {}
    for peer in SLOW:
        scores = beside_slow_peer(rows, sets, peer)
        if scores and NAIVE in next(iter(scores.values())):
            skills = {name: skill(scores, name, "mse")[0] for name in _ordered(scores)}
            found[peer] = {"cells": len(scores), "origins": STRIDED, "skill_mse": skills}
    return {"slow_peers": found}


# ---------------------------------------------------------------- table and figure


def table(scores: Scores) -> str:
    """Return two Markdown tables: the methods over all cells, and the MSE of every cell."""
    whole = complete(scores)
    if not whole or NAIVE not in next(iter(whole.values())):
        return "No cell has all methods yet.\n"
    methods = _ordered(whole)
    ranks = {number: mean_ranks(whole, methods, number) for number in ("mse", "mae")}
    lines = [
        "| method | mean rank MSE | mean rank MAE | skill MSE, % | skill MAE, % | skill WQL, % | coverage of 80 % | "
        "worst distance, points | CPU s, median |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(methods, key=lambda one: ranks["mse"][one]):
        skills = [
            "{:.1f} ({:.1f} to {:.1f})".format(*(100 * x for x in skill(whole, name, n))) for n in ("mse", "mae", "wql")
        ]
        means = [fmean(each[name][number] for each in whole.values()) for number in ("coverage", "gap")]
        seconds = median(each[name]["seconds"] for each in whole.values())
        cells = [f"{ranks['mse'][name]:.2f}", f"{ranks['mae'][name]:.2f}", *skills, *(f"{m:.1f}" for m in means)]
        lines.append(f"| {_label(name)} | {' | '.join(cells)} | {seconds:.1f} |")
    lines += ["", f"| MSE (MAE) | {' | '.join(map(_label, methods))} |", "|---" * (len(methods) + 1) + "|"]
    for (name, horizon), each in scores.items():
        best = {number: min(row[number] for row in each.values()) for number in ("mse", "mae")}
        shown = [_pair(each.get(method), best) for method in methods]
        lines.append(f"| {name}, {horizon} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _ordered(scores: Scores) -> list[str]:
    present = next(iter(scores.values()))
    return [name for name in (*OWN, *PEERS, *SLOW) if name in present]


def _label(name: str) -> str:
    return f"primecast, `{name}`" if name in OWN else name


def _pair(row: Row | None, best: Mapping[str, float]) -> str:
    if row is None:
        return ""
    mse, mae = (f"{row[n]:.3f}" if row[n] > best[n] else f"**{row[n]:.3f}**" for n in ("mse", "mae"))
    return f"{mse} ({mae})"


def draw(halves: Mapping[str, Scores]) -> Figure:
    """Draw the skill against seasonal naive with its interval, one panel for each half that has cells."""
    shown = {half: scores for half, scores in halves.items() if scores and NAIVE in next(iter(scores.values()))}
    figure = Figure(figsize=(5 * max(len(shown), 1), 3.4), layout="constrained")
    for number, (half, scores) in enumerate(shown.items(), 1):
        axes = figure.add_subplot(1, len(shown), number)
        skills = {name: skill(scores, name, "mse") for name in _ordered(scores) if name != NAIVE}
        order = sorted(skills, key=lambda name: skills[name][0])
        for row, name in enumerate(order):
            value, low, high = (100 * x for x in skills[name])
            color = "C1" if name in OWN else "C0"
            axes.plot([low, high], [row, row], color=color, linewidth=1.5)
            axes.plot([value], [row], "o", color=color)
        axes.set_yticks(range(len(order)), [_label(name).replace("`", "") for name in order])
        axes.set_xlabel("MSE lower than seasonal naive's, %")
        axes.set_title(f"{half} half, {len(scores)} cells", fontsize="medium")
        axes.grid(axis="x", alpha=0.3)
    return figure


def write(folder: Path) -> None:
    """Write accuracy.json, accuracy.md, accuracy.svg and accuracy.png from the rows of the present protocol."""
    stored = Rows.open(folder, "accuracy")
    rows = [
        row
        for row in stored.rows.values()
        if is_measured(stored, row["set"], row["horizon"], row["method"], row["seed"])
    ]
    forecast = Rows.open(folder, "accuracy_forecast").rows.get("forecast")
    whole = [row for row in rows if row["method"] not in SLOW]
    summary = {half: bars(whole, sets, forecast) | slow_peers(rows, sets) for half, sets in HALVES.items()}
    write_json(folder / "accuracy.json", {**summary["judging"], "rows": len(rows), "choosing": summary["choosing"]})
    scores = {half: gather(whole, sets) for half, sets in HALVES.items()}
    parts = []
    for half in ("judging", "choosing"):
        if scores[half]:
            parts.append(f"## The {half} half\n\n{table(scores[half])}")
        for peer in SLOW:
            if beside := beside_slow_peer(rows, HALVES[half], peer):
                title = f"### {peer}, {half} half: {STRIDED} origins of each cell, the same for all methods here"
                parts.append(f"{title}\n\n{table(beside)}")
    write_bytes_atomically(folder / "accuracy.md", "\n".join(parts).encode())
    figure = draw({half: complete(scores[half]) for half in ("judging", "choosing")})
    for kind in ("svg", "png"):
        file = BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "primecast"}):
            figure.savefig(file, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
        write_bytes_atomically(folder / f"accuracy.{kind}", file.getvalue())
