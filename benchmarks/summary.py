"""Summarize the rows: one value for each bar, as summary.json, a table and plots.

    python benchmarks/summary.py            # from benchmarks/results
    python benchmarks/summary.py --quick    # from the rows of the reduced grid; missing values are null

Nothing is measured here. A value without its rows is null and not met; one from provisional rows is provisional.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import measure
from attention import BAR_SHAPES, WIDTHS
from measure import QUICK, RESULTS, read_rows
from primecast.storage.atomic import write_bytes_atomically, write_json

Row = dict[str, Any]
Table = dict[str, dict[str, Row]]
"""part -> id -> row"""
Found = tuple[float, list[Row]]
"""A value and the rows it comes from."""

PRIME = "prime, 2 units per head"
ALLOCATORS = ("keep_blocks=False ", "keep_blocks=True ")


class Missing(Exception):
    """The rows of a value have not been measured."""


@dataclass(frozen=True)
class Bar:
    """A bound on a value, and the function that computes the value from the rows."""

    what: str
    bar: float
    find: Callable[[Table], Found]
    at_least: bool = False


# ---------------------------------------------------------------- from rows to values


def row_of(rows: Table, part: str, name: str) -> Row:
    if name not in rows.get(part, {}):
        raise Missing(f"{part}: {name}")
    return rows[part][name]


def worst_core(what: str) -> Callable[[Table], Found]:
    def find(rows: Table) -> Found:
        found = [row for row in rows.get("core", {}).values() if row["what"] == what and 25 <= row["n"] <= 862]
        if not found:
            raise Missing(f"core: {what}")
        worst = max(found, key=lambda row: row["ratio"])
        return worst["ratio"], [worst]

    return find


def smaller_gain(part: str, measured: str, variants: tuple[str, ...] = ("",)) -> Callable[[Table], Found]:
    """Return the ratio of materialised to dense, the smallest over the two shapes and all variants."""

    def find(rows: Table) -> Found:
        found = []
        for (b, n, d), variant in product(BAR_SHAPES, variants):
            case = f"b={b} n={n} d={d} {variant}"
            slow, fast = (row_of(rows, part, f"{case}{what}") for what in ("materialised", "dense 16"))
            found.append((slow[measured] / fast[measured], [slow, fast]))
        return min(found, key=lambda pair: pair[0])

    return find


def value_of(part: str, name: str, measured: str, scale: float = 1.0) -> Callable[[Table], Found]:
    def find(rows: Table) -> Found:
        row = row_of(rows, part, name)
        return row[measured] * scale, [row]

    return find


def exponent(measured: str, middle: str = "") -> Callable[[Table], Found]:
    """Return the slope of a straight line through the logarithms."""

    def find(rows: Table) -> Found:
        found = growth_rows(rows, f"{middle}{PRIME}")
        if len(found) < 3:
            raise Missing(f"growth: {middle}{PRIME}")
        sizes, values = ([row[name] for row in found] for name in ("channels", measured))
        return float(np.polyfit(np.log(sizes), np.log(values), 1)[0]), found

    return find


def growth_rows(rows: Table, ending: str) -> list[Row]:
    found = [row for name, row in rows.get("growth", {}).items() if name == f"channels={row['channels']} {ending}"]
    return sorted(found, key=lambda row: row["channels"])


def _features(n: int) -> Callable[[Table], Found]:
    (name,) = (f"b={b} n={n} d={d} features" for b, tokens, d in BAR_SHAPES if tokens == n)
    return value_of("features", name, "ratio")


def _step(dataset: str) -> Callable[[Table], Found]:
    return value_of("steps", f"dataset={dataset} preset=paper {PRIME}", "ratio")


CORE = "attention core, {} per head, against SDPA: worst over tokens 25 to 862 and all widths"
DENSE = "attention core, dense with 16 units: materialised over factored, {}, the smaller of two shapes"
FEATURES = "pair features and first layer against the SDPA core, {}"
STEP = "training step of iTransformer, prime with two units per head over standard, {} shape of the paper"
LOOP = "windows per second of fit over {}"

BARS: dict[str, Bar] = {
    "core_rank1_vs_sdpa": Bar(CORE.format("one unit"), 1.6, worst_core("rho 1")),
    "core_rank2_vs_sdpa": Bar(CORE.format("two units"), 3, worst_core("rho 2")),
    "dense_vs_materialized_time": Bar(DENSE.format("time"), 6, smaller_gain("core", "seconds"), at_least=True),
    "dense_vs_materialized_memory": Bar(
        DENSE.format("memory"), 10, smaller_gain("memory", "bytes", ALLOCATORS), at_least=True
    ),
    "features_vs_sdpa_321": Bar(FEATURES.format("321 tokens, width 512"), 2, _features(321)),
    "features_vs_sdpa_862": Bar(FEATURES.format("862 tokens, width 128"), 4, _features(862)),
    "step_etth1": Bar(STEP.format("ETTh1"), 1.5, _step("ETTh1")),
    "step_weather": Bar(STEP.format("Weather"), 1.5, _step("Weather")),
    "step_ecl": Bar(STEP.format("ECL"), 2, _step("ECL")),
    "step_pems03": Bar(STEP.format("PEMS03"), 2, _step("PEMS03")),
    "step_traffic": Bar(STEP.format("Traffic"), 2, _step("Traffic")),
    "traffic_original_gib": Bar(
        "GiB of a process that makes one prime step at 862 channels, width 512, batch 16",
        20,
        value_of("original", f"dataset=Traffic preset=official what={PRIME}", "bytes", 2**-30),
    ),
    "growth_time": Bar("exponent of the time of a prime step in the number of channels", 2.1, exponent("seconds")),
    "growth_memory": Bar("exponent of its memory", 2.1, exponent("bytes", "memory ")),
    "loop_vs_dataloader": Bar(
        LOOP.format("a loop with a DataLoader"), 1.1, value_of("loop", "dataloader", "ratio"), at_least=True
    ),
    "loop_vs_darts": Bar(LOOP.format("darts"), 1.3, value_of("loop", "darts", "ratio"), at_least=True),
    "loop_vs_neuralforecast": Bar(
        LOOP.format("neuralforecast"), 1.6, value_of("loop", "neuralforecast", "ratio"), at_least=True
    ),
    "import_seconds": Bar("seconds of import primecast", 0.3, value_of("import", "primecast", "seconds")),
    "install_packages": Bar("packages of primecast besides torch", 45, value_of("install", "primecast", "packages")),
    "install_mb": Bar("megabytes of their wheels", 75, value_of("install", "primecast", "megabytes")),
    "demo_seconds": Bar("seconds from `primecast demo` to its first forecast", 20, value_of("demo", "demo", "seconds")),
}


def summarize(rows: Table) -> dict[str, Row]:
    part_of = {id(row): part for part, by_id in rows.items() for row in by_id.values()}
    return {name: _entry(bar, rows, part_of) for name, bar in BARS.items()}


def _entry(bar: Bar, rows: Table, part_of: dict[int, str]) -> Row:
    try:
        value, found = bar.find(rows)
    except Missing:
        value, found = None, []
    met = value is not None and (value >= bar.bar if bar.at_least else value <= bar.bar)
    return {
        "what": bar.what,
        "value": None if value is None else round(value, 4),
        "bar": bar.bar,
        "is": "at least" if bar.at_least else "at most",
        "met": met,
        "provisional": any(row["provisional"] for row in found),
        "from": [f"{part_of[id(row)]}.jsonl: {row['id']}" for row in found],
    }


# ---------------------------------------------------------------- plots

COLOURS = {"sdpa": "#4a4a4a", "rho 1": "#2a9d8f", "rho 2": "#1d6fa5", "rho 4": "#6a4c93", "dense 4": "#f4a261",
           "dense 16": "#e07a1f", "materialised": "#d1495b"}  # fmt: skip


def core_figure(rows: Table) -> Figure:
    """Draw the cost relative to SDPA by number of tokens, one panel per width."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes: list[Axes] = list(figure.subplots(1, len(WIDTHS), sharey=True))
    paper = {
        row["n"]: row["b"] for row in rows.get("core", {}).values() if (row["b"], row["n"], row["d"]) not in BAR_SHAPES
    }
    for axis, width in zip(axes, WIDTHS, strict=True):
        for what, colour in COLOURS.items():
            found = [row for row in rows.get("core", {}).values() if row["what"] == what and row["d"] == width]
            line = sorted((row["n"], row["ratio"]) for row in found if paper.get(row["n"]) == row["b"])
            if line:
                axis.loglog(*zip(*line, strict=True), marker="o", markersize=3, color=colour, label=what)
        axis.set_title(f"width {width}", fontsize=10)
        axis.set_xlabel("tokens")
        _plain(axis)
    axes[0].set_ylabel("forward + backward, SDPA = 1")
    if axes[0].lines:
        axes[0].legend(frameon=False, fontsize=8)
    return figure


def growth_figure(rows: Table) -> Figure:
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    panels = list(figure.subplots(1, 2))
    for axis, measured, middle, unit, scale in (
        (panels[0], "seconds", "", "seconds per training step", 1.0),
        (panels[1], "bytes", "memory ", "MiB per training step", 2.0**-20),
    ):
        for what, colour in (("standard", "#4a4a4a"), (PRIME, "#1d6fa5")):
            found = growth_rows(rows, f"{middle}{what}")
            if len(found) < 2:
                continue
            sizes, values = np.array([row["channels"] for row in found]), np.array([row[measured] for row in found])
            slope, start = np.polyfit(np.log(sizes), np.log(values), 1)
            axis.loglog(sizes, values * scale, "o", markersize=4, color=colour, label=f"{what}: exponent {slope:.2f}")
            axis.loglog(sizes, np.exp(start) * sizes**slope * scale, linewidth=1, color=colour)
        axis.set_xlabel("channels")
        axis.set_ylabel(unit)
        if axis.lines:
            axis.legend(frameon=False, fontsize=8)
        _plain(axis)
    return figure


def training_figure(rows: Table) -> Figure:
    """Draw a prime step relative to a standard one (left) and the training loops (right)."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    found = [row for row in rows.get("steps", {}).values() if row["what"] == PRIME]
    _bars(left, [(f"{row['dataset']} ({row['preset']})", row["ratio"], "#1d6fa5") for row in found])
    left.axvline(1, color="#4a4a4a", linewidth=0.8)
    left.set_xlabel("training step, standard attention = 1")
    loops = rows.get("loop", {}).values()
    _bars(right, [(row["what"], row["windows_per_second"], "#2a9d8f") for row in loops])
    right.set_xlabel("training loop, windows per second")
    return figure


def _bars(axis: Axes, bars: Iterable[tuple[str, float, str]]) -> None:
    for place, (name, value, colour) in enumerate(bars):
        axis.barh(place, value, color=colour, height=0.65)
        axis.annotate(
            f"{value:.3g}", (value, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8
        )
        axis.annotate(name, (0, place), xytext=(-4, 0), textcoords="offset points", va="center", ha="right", fontsize=8)
    axis.invert_yaxis()
    axis.set_yticks([])
    axis.margins(x=0.12)
    _plain(axis)


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)


FIGURES = {"core": core_figure, "growth": growth_figure, "training": training_figure}


def draw(rows: Table, folder: Path) -> None:
    for name, make in FIGURES.items():
        image = BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": name}):  # the same rows give the same file
            make(rows).savefig(image, format="svg", metadata={"Date": None})
        write_bytes_atomically(folder / f"{name}.svg", image.getvalue())


# ---------------------------------------------------------------- the command


def verdict(entry: Row) -> str:
    if entry["value"] is None:
        return "not measured"
    return ("yes" if entry["met"] else "no") + (", provisional" if entry["provisional"] else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true")
    folder = QUICK if parser.parse_args().quick else RESULTS
    rows = read_rows(folder)
    entries = summarize(rows)
    write_json(folder / "summary.json", entries)
    draw(rows, folder)
    table = [
        (name, entry["value"], f"{entry['is']} {entry['bar']:g}", verdict(entry)) for name, entry in entries.items()
    ]
    measure.show(f"{folder.name}/summary.json", ("figure", "value", "bar", "met"), table)
    versions = {json.dumps(row["versions"]) for by_id in rows.values() for row in by_id.values()}
    print("\n".join(sorted(versions)))


if __name__ == "__main__":
    main()
