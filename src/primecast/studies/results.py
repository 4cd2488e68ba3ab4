"""From a store to files in `results/`, and back: what tables and figures are made from.

    <study>.csv          one line per run: its key, the spec as the study writes it, and all fields of its row
    <study>_blocks.csv   one line per run: sums of its errors over cells of test windows, see primecast.statistics
    <study>.md           the table that these two give

In the CSV, errors along the steps of the horizon are means over at most 12 stretches of it, and lists have five digits:
a horizon of 720 would be most of the file. The store keeps them all.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import InputError
from primecast.experiment import Spec
from primecast.files import write_bytes_atomically
from primecast.statistics import blocks_frame, read_blocks, write_blocks
from primecast.store import Store, estimate_seconds, must_agree
from primecast.studies import load_study

STRETCHES = 12
PARSED = ("settings", "versions", "probes", "channel_mse", "channel_mae", "step_mse", "step_mae")
"""Columns that are JSON in the CSV."""


def collect(specs: Iterable[Spec], store: Store, root: Path | str | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs of these specs that are there, in their order, and the sums of their errors over cells of windows."""
    there: dict[str, Spec] = {}
    for spec in specs:
        key = _key(spec, root)
        if key is not None and store.has(key):
            there.setdefault(key, spec)
    lines = [_line(spec, store.fields(key)) for key, spec in there.items()]
    return pd.DataFrame(lines), blocks_frame({key: store.arrays(key) for key in there})


def join_committed(
    name: str,
    out: Path,
    specs: Iterable[Spec],
    frame: pd.DataFrame,
    blocks: pd.DataFrame,
    root: Path | str | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs of a store and those that `out` has besides, in the order of the specs.

    So a store that was lost, or is another machine's, costs a table no run. What both have must agree; runs that the
    study no longer asks for are left out.
    """
    if not (out / f"{name}.csv").exists():
        return frame, blocks
    wanted = {spec.to_json(): _key(spec, root) for spec in specs}
    new = {fields["key"]: fields for fields in _records(frame)}
    committed, sums = read_results(name, out)
    kept = []
    for fields in _records(committed):
        if fields["key"] in new:
            must_agree(fields, new[fields["key"]], where=out / f"{name}.csv")
        elif fields["spec"] in wanted and wanted[fields["spec"]] in (None, fields["key"]):
            kept.append(fields)
    order = {text: number for number, text in enumerate(wanted)}
    lines = sorted([*new.values(), *kept], key=lambda fields: order[fields["spec"]])
    both = pd.concat([blocks, sums], ignore_index=True).drop_duplicates("key").set_index("key", drop=False)
    return pd.DataFrame(lines), both.loc[[fields["key"] for fields in lines]].reset_index(drop=True)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _key(spec: Spec, root: Path | str | None) -> str | None:
    """None where the data set is not on this machine: then its runs cannot be told by name."""
    try:
        return spec.key(root)
    except InputError:
        return None


def _line(spec: Spec, fields: dict[str, Any]) -> dict[str, Any]:
    lists = {name: [float(f"{value:.5g}") for value in fields[name]] for name in ("channel_mse", "channel_mae")}
    lists |= {name: _stretches(fields[name]) for name in ("step_mse", "step_mae")}
    return {"key": fields["key"], "spec": spec.to_json(), **fields, **lists}


def _stretches(steps: Sequence[float]) -> list[float]:
    parts = np.array_split(np.array(steps), min(STRETCHES, len(steps)))
    return [float(f"{part.mean():.5g}") for part in parts]


def write_results(name: str, out: Path, frame: pd.DataFrame, blocks: pd.DataFrame) -> None:
    """The two CSV files of a study and its table."""
    out.mkdir(parents=True, exist_ok=True)
    texts = frame.copy()
    for column in PARSED:
        texts[column] = [json.dumps(value, separators=(",", ":"), sort_keys=True) for value in frame[column]]
    write_bytes_atomically(out / f"{name}.csv", texts.to_csv(index=False, lineterminator="\n").encode())
    write_blocks(out / f"{name}_blocks.csv", blocks)
    write_bytes_atomically(out / f"{name}.md", markdown(name, *read_results(name, out)).encode())


def read_results(name: str, out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and block sums of a study, as committed."""
    path = out / f"{name}.csv"
    if not path.exists():
        raise InputError(f"there are no results of study {name!r} in {out}: `primecast study {name} --run --table`")
    frame = pd.read_csv(path, dtype={"key": str, "fingerprint": str}, keep_default_na=False)
    for column in PARSED:
        frame[column] = pd.Series([json.loads(text) for text in frame[column]], dtype=object)
    return frame, read_blocks(out / f"{name}_blocks.csv")


def markdown(name: str, frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """The page of a study: its title, how much of it is there, and its table."""
    study = load_study(name)
    wanted = {spec.to_json() for spec in study.specs()}
    there = sum(text in wanted for text in frame["spec"])
    other = len(frame) - there
    share = f"{there} of {len(wanted)} runs are there" + (
        f", and {other} of a quick or earlier version" if other else ""
    )
    return (
        f"# {study.TITLE}\n\nMade by `primecast study {name} --table` from `{name}.csv` and `{name}_blocks.csv`: "
        f"{share}.\n\n{study.render(frame, blocks).rstrip()}\n"
    )


# ---------------------------------------------------------------- what is left to do


@dataclass(frozen=True)
class Plan:
    """Runs of a study: there, missing, without data on this machine; and how long the missing ones take on one core.

    committed: of the missing, those whose rows are in the CSV file of the study: a table has them, a sweep runs them.
    """

    there: int
    missing: int
    committed: int
    without_data: tuple[str, ...]
    hours: float
    unknown: int  # missing runs like which none has been measured

    def __str__(self) -> str:
        lines = [f"{self.there} runs are in the store, {self.missing} are missing"]
        if self.committed:
            lines.append(f"of the missing, {self.committed} are among the committed results, and in the table")
        lines.append(f"about {self.hours:.1f} core-hours are left, by the seconds of like runs")
        if self.unknown:
            lines[-1] += f"; {self.unknown} runs are not in it: none like them has been measured yet"
        if self.without_data:
            lines.append(f"data sets that are not on this machine: {', '.join(self.without_data)}")
        return "\n".join(lines)


def plan(name: str, specs: Iterable[Spec], store: Store, *, out: Path, root: Path | str | None = None) -> Plan:
    """What is left of a study; seconds come from the store and from the CSV files in `out`."""
    measured = [store.fields(key) for key in store.keys()]  # noqa: SIM118  a store is no dict
    for path in sorted(out.glob("*.csv")):
        head = pd.read_csv(path, nrows=0).columns
        if {"dataset", "model", "attention", "lookback", "horizon", "seconds"} <= set(head):
            measured += _records(pd.read_csv(path))
    rows = set(read_results(name, out)[0]["key"]) if (out / f"{name}.csv").exists() else set()
    there = missing = committed = unknown = 0
    seconds, absent = 0.0, []
    for spec in specs:
        key = _key(spec, root)
        if key is None:
            absent.append(spec.dataset)
        if key is not None and store.has(key):
            there += 1
            continue
        missing += 1
        committed += key in rows
        each = estimate_seconds(measured, _as_row(spec))
        unknown += each is None
        seconds += each or 0.0
    return Plan(there, missing, committed, tuple(dict.fromkeys(absent)), seconds / 3600, unknown)


def _as_row(spec: Spec) -> dict[str, Any]:
    return {
        "dataset": spec.dataset,
        "model": spec.model,
        "attention": spec.attention,
        "lookback": spec.lookback,
        "horizon": spec.horizon,
    }
