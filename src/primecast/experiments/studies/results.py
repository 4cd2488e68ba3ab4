"""From a store to files in `results/`, and back: what tables and figures are made from.

    <study>.csv          one line per run: its key, its variant, its spec, and all fields of its row
    <study>_blocks.csv   one line per run: sums of its errors over cells of test windows, see analysis.statistics
    <study>.md           the table that these two give

What a probe measured is in the files of the studies that read it: `READS` of a study names them, if not all.
In the CSV, errors along the steps of the horizon are means over at most 12 stretches of it, and lists have five digits:
a horizon of 720 would be most of the file. The store keeps them all.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from primecast.analysis.probes import PROBES
from primecast.analysis.statistics import block_record, read_blocks, write_blocks
from primecast.errors import InputError
from primecast.experiments.spec import Spec, has_data, key, key_of
from primecast.experiments.store import Store, must_agree
from primecast.experiments.studies import STUDIES, load_study
from primecast.storage.atomic import write_bytes_atomically

Fields = Mapping[str, Any]

STRETCHES = 12
PARSED = ("settings", "versions", "probes", "channel_mse", "channel_mae", "step_mse", "step_mae")
"""Columns that are JSON in the CSV."""


@dataclass(frozen=True)
class Committed:
    """All runs of a folder of results by their keys: rows, block sums, and the file of each; fingerprints by data."""

    rows: dict[str, dict[str, Any]]
    blocks: dict[str, Fields]
    files: dict[str, Path]
    fingerprints: dict[str, str]

    def key(self, spec: Spec, root: Path | str | None) -> str:
        """Return the key of a spec; of data that are not on this machine, with their committed fingerprint."""
        if has_data(spec.dataset, root):
            return spec.key(root)
        return key(spec, self.fingerprints[spec.dataset]) if spec.dataset in self.fingerprints else ""


def read_committed(out: Path) -> Committed:
    """Return the runs that the studies have in `out`; a run with probes counts as the same run without them, too."""
    found = Committed({}, {}, {}, {})
    for name in STUDIES:
        if not (out / f"{name}.csv").exists():
            continue
        frame, blocks = read_results(name, out)
        for fields, sums in zip(_records(frame), _records(blocks), strict=True):
            for row in (fields, {**fields, "probes": {}}):
                own = key_of(row)
                there = found.rows.setdefault(own, {**row, "key": own})
                there["probes"] |= {name: value for name, value in row["probes"].items() if value}
                found.blocks.setdefault(own, {**sums, "key": own})
                found.files.setdefault(own, out / f"{name}.csv")
            found.fingerprints.setdefault(fields["dataset"], fields["fingerprint"])
    return found


def collect(
    specs: Iterable[Spec], store: Store, out: Path, root: Path | str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs of these specs that are in the store or in `out`, in their order, and their block sums.

    A run that another study committed is taken, with the variant of this study's spec, so that a lost store costs no
    run, and a run that two studies need is run once. What both have must agree.
    """
    committed = read_committed(out)
    lines: dict[str, Fields] = {}
    sums: dict[str, Fields] = {}
    for spec in specs:
        own = committed.key(spec, root)
        if own in lines:
            continue
        if store.has(own):
            fields = store.fields(own)
            if own in committed.rows:
                must_agree(committed.rows[own], fields, where=committed.files[own])
            lines[own] = _line(spec, shortened(fields))
            sums[own] = block_record(own, store.arrays(own))
        elif own in committed.rows:
            lines[own] = _line(spec, committed.rows[own])
            sums[own] = committed.blocks[own]
    return pd.DataFrame(list(lines.values())), pd.DataFrame(list(sums.values()))


def uncommitted(specs: Iterable[Spec], out: Path, root: Path | str | None = None) -> list[Spec]:
    """Return those of the specs whose runs are not among the results in `out`."""
    committed = read_committed(out)
    return [spec for spec in specs if committed.key(spec, root) not in committed.rows]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _line(spec: Spec, fields: Fields) -> dict[str, Any]:
    """Return the line of a run in the CSV of the study whose spec this is."""
    first = {"key": fields["key"], "variant": spec.variant, "spec": replace(spec, variant="").to_json()}
    return {**first, **{name: value for name, value in fields.items() if name not in first}}


def shortened(fields: Fields) -> dict[str, Any]:
    lists = {name: [float(f"{value:.5g}") for value in fields[name]] for name in ("channel_mse", "channel_mae")}
    lists |= {name: _stretches(fields[name]) for name in ("step_mse", "step_mae")}
    return {**fields, **lists}


def _stretches(steps: Sequence[float]) -> list[float]:
    parts = np.array_split(np.array(steps), min(STRETCHES, len(steps)))
    return [float(f"{part.mean():.5g}") for part in parts]


# ---------------------------------------------------------------- files


def write_results(name: str, out: Path, frame: pd.DataFrame, blocks: pd.DataFrame) -> None:
    """Write the two CSV files of a study and its table; of several probes the file holds those that the study reads."""
    out.mkdir(parents=True, exist_ok=True)
    reads = getattr(load_study(name), "READS", PROBES)
    probes = [{probe: row[probe] if probe in reads else {} for probe in row} for row in frame["probes"]]
    texts = frame.assign(probes=pd.Series(probes, index=frame.index, dtype=object))
    for column in PARSED:
        texts[column] = [json.dumps(value, separators=(",", ":"), sort_keys=True) for value in texts[column]]
    write_bytes_atomically(out / f"{name}.csv", texts.to_csv(index=False, lineterminator="\n").encode())
    write_blocks(out / f"{name}_blocks.csv", blocks)
    write_bytes_atomically(out / f"{name}.md", markdown(name, *read_results(name, out)).encode())


def read_results(name: str, out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return runs and block sums of a study, as committed."""
    path = out / f"{name}.csv"
    if not path.exists():
        raise InputError(f"there are no results of study {name!r} in {out}: `primecast study {name} --run --table`")
    frame = pd.read_csv(path, dtype={"key": str, "fingerprint": str}, keep_default_na=False)
    for column in PARSED:
        frame[column] = pd.Series([json.loads(text) for text in frame[column]], dtype=object)
    return frame, read_blocks(out / f"{name}_blocks.csv")


def markdown(name: str, frame: pd.DataFrame, blocks: pd.DataFrame) -> str:
    """Return the page of a study: its title, how many of its runs are there, and its table."""
    study = load_study(name)
    wanted = {replace(spec, variant="").to_json() for spec in study.SPECS}
    there = sum(text in wanted for text in frame["spec"])
    other = f", and {len(frame) - there} of a quick or earlier version" if there < len(frame) else ""
    return (
        f"# {study.TITLE}\n\nMade by `primecast study {name} --table` from `{name}.csv` and `{name}_blocks.csv`: "
        f"{there} of {len(wanted)} runs are there{other}.\n\n{study.render(frame, blocks).rstrip()}\n"
    )
