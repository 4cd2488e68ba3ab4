"""From a store to files in `results/`, and back: what tables and figures are made from.

    <study>.csv          one line per run: its key, the spec as the study writes it, and all fields of its row
    <study>_blocks.csv   one line per run: sums of its errors over cells of test windows, see primecast.analysis.statistics
    <study>.md           the table that these two give

In the CSV, errors along the steps of the horizon are means over at most 12 stretches of it, and lists have five digits:
a horizon of 720 would be most of the file. The store keeps them all.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from primecast.analysis.statistics import blocks_frame, read_blocks, write_blocks
from primecast.errors import InputError
from primecast.experiments.experiment import Spec, key_of
from primecast.experiments.store import Store, estimate_seconds, must_agree
from primecast.experiments.studies import STUDIES, load_study
from primecast.storage.atomic import write_bytes_atomically

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
    out: Path, specs: Iterable[Spec], frame: pd.DataFrame, blocks: pd.DataFrame, root: Path | str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs of a store and those that `out` has besides, whichever study wrote them, in the order of the specs.

    So a store that was lost, or is another machine's, costs a table no run, and a run that two studies ask for is run
    for one of them. What both have must agree; runs that the specs no longer ask for are left out.
    """
    new = {fields["key"]: fields for fields in _records(frame)}
    there = committed(out)
    lines: dict[str, dict[str, Any]] = {}
    for spec in specs:
        key = there.key(spec, root)
        if key in new:
            if key in there.rows:
                must_agree(there.rows[key], new[key], where=there.files[key])
            lines.setdefault(key, new[key])
        elif key in there.rows:
            lines.setdefault(key, {**there.rows[key], "spec": spec.to_json()})
    sums = {line["key"]: line for line in _records(blocks)}
    found = [sums.get(key, there.blocks.get(key)) for key in lines]
    return pd.DataFrame(list(lines.values())), pd.DataFrame(found, columns=blocks.columns)


@dataclass(frozen=True)
class Committed:
    """All runs of a folder of results by their keys: rows, block sums, the file of each; and keys by specs."""

    rows: dict[str, dict[str, Any]]
    blocks: dict[str, dict[str, Any]]
    files: dict[str, Path]
    named: dict[str, str]

    def key(self, spec: Spec, root: Path | str | None) -> str:
        """Of a spec whose data are not on this machine, the key that its text has here; "" if it has none."""
        return _key(spec, root) or self.named.get(spec.to_json(), "")


def committed(out: Path) -> Committed:
    """What the studies have in `out`; a run that was probed is there as the same run without its probes, too."""
    found = Committed({}, {}, {}, {})
    for name in STUDIES:
        if not (out / f"{name}.csv").exists():
            continue
        frame, blocks = read_results(name, out)
        sums = {line["key"]: line for line in _records(blocks)}
        for fields in _records(frame):
            unprobed = replace(Spec.from_json(fields["spec"]), probes=())
            for spec, row in (fields["spec"], fields), (unprobed.to_json(), {**fields, "probes": {}}):
                key = key_of(row)
                found.rows.setdefault(key, {**row, "key": key, "spec": spec})
                found.blocks.setdefault(key, {**sums[fields["key"]], "key": key})
                found.files.setdefault(key, out / f"{name}.csv")
                found.named.setdefault(spec, key)
    return found


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

    committed:   of the missing, those that a table has all the same, because their rows are among the results.
    hours:       of all that are missing, which is what a sweep runs; new_hours: of those that are not committed.
    """

    there: int
    missing: int
    committed: int
    without_data: tuple[str, ...]
    hours: float
    new_hours: float
    unknown: int  # missing runs like which none has been measured

    def __str__(self) -> str:
        lines = [
            f"{self.there} runs are in the store, {self.missing} are missing",
            f"about {self.hours:.1f} core-hours are left, by the seconds of like runs",
        ]
        if self.unknown:
            lines[-1] += f"; {self.unknown} runs are not in it: none like them has been measured yet"
        if self.committed:
            lines.append(
                f"of the missing, {self.committed} are among the committed results, and in the table; --new leaves "
                f"them out: {self.missing - self.committed} runs, about {self.new_hours:.1f} core-hours, are left then"
            )
        if self.without_data:
            lines.append(f"data sets that are not on this machine: {', '.join(self.without_data)}")
        return "\n".join(lines)


def plan(specs: Iterable[Spec], store: Store, *, out: Path, root: Path | str | None = None) -> Plan:
    """What is left of a study; seconds come from the store and from the CSV files in `out`."""
    measured = [store.fields(key) for key in store.keys()]  # noqa: SIM118  a store is no dict
    for path in sorted(out.glob("*.csv")):
        head = pd.read_csv(path, nrows=0).columns
        if {"dataset", "model", "attention", "lookback", "horizon", "seconds"} <= set(head):
            measured += _records(pd.read_csv(path))
    specs, absent = list(specs), []
    fresh = set(uncommitted(specs, out, root))
    there = missing = unknown = 0
    seconds = new_seconds = 0.0
    for spec in specs:
        key = _key(spec, root)
        if key is None:
            absent.append(spec.dataset)
        if key is not None and store.has(key):
            there += 1
            fresh.discard(spec.to_json())
            continue
        missing += 1
        each = estimate_seconds(measured, _as_row(spec))
        unknown += each is None
        seconds += each or 0.0
        new_seconds += (each or 0.0) * (spec.to_json() in fresh)
    hours, new_hours = seconds / 3600, new_seconds / 3600
    return Plan(there, missing, missing - len(fresh), tuple(dict.fromkeys(absent)), hours, new_hours, unknown)


def uncommitted(specs: Iterable[Spec], out: Path, root: Path | str | None = None) -> dict[str, Spec]:
    """Of these specs, by their text, those whose runs are not among the results in `out`."""
    there = committed(out)
    return {spec.to_json(): spec for spec in specs if there.key(spec, root) not in there.rows}


def _as_row(spec: Spec) -> dict[str, Any]:
    return {
        "dataset": spec.dataset,
        "model": spec.model,
        "attention": spec.attention,
        "lookback": spec.lookback,
        "horizon": spec.horizon,
    }
