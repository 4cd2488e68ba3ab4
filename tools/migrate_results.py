"""Rewrite results and stores that were written under former names: rename, compute keys anew, prove scores unchanged.

    python tools/migrate_results.py results                     # the committed CSV files, in place
    python tools/migrate_results.py STORE --out NEW_STORE       # a store, which is only read; also while a sweep writes

It may be run again: what is new already stays as it is.
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from primecast.experiments.spec import Spec, key, key_of
from primecast.experiments.store import Row, Store
from primecast.experiments.studies import STUDIES, load_study
from primecast.experiments.studies.results import PARSED, read_results, shortened, write_results

RENAMED_STUDIES = {
    "rank": "primer_design",
    "wide": "many_channels",
    "known_truth": "synthetic_recovery",
    "single_point_of_failure": "sensor_ablation",
}
NAMES = {
    "prime-free": "prime-table",
    "free": "table",
    "channel_vectors": "channel_embeddings",
    "rates": "lr_factors",
    "loss_of_channel": "sensor_ablation",
    "answering": "key",
}
SYSTEMS = {
    "DIFF (differential attention)": "differential attention",
    "DIFF + prime": "differential attention + prime",
    "gated + prime": "gated attention + prime",
    "selective attention, for sets": "selective attention",
    "selective + prime": "selective attention + prime",
    "directional + prime": "directional attention + prime",
    "LIFT on DLinear with instance norm": "LIFT on DLinear",
    "GATv2, all channels joined": "GATv2",
    "GAT, all channels joined": "GAT",
    "control: standard, output projection starts at zero": "standard, zero-initialized output projection",
    "control: prime, features of other pairs": "prime, features permuted among pairs",
    "control: prime, one primer for all pairs": "prime, one primer for all pairs",
}
"""Names of before in results/systems.csv, where the variant was called system."""
SCORES = ("mse", "mae", "val_mse", "val_mae", "windows", "epochs", "best_epoch", "steps", "parameters")

Fields = dict[str, Any]


@dataclass
class Counts:
    """What was read and compared; `print` is the proof."""

    read: int = 0
    migrated: int = 0
    already_new: int = 0
    compared: int = 0
    unequal: int = 0

    def add(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count a row, and compare its scores before and after."""
        self.read += 1
        self.already_new += before == after
        self.migrated += before != after
        self.compared += len(SCORES)
        self.unequal += sum(before[name] != after[name] for name in SCORES)

    def __str__(self) -> str:
        verdict = "all equal" if not self.unequal else f"{self.unequal} DIFFER"
        return (
            f"{self.read} rows read, {self.migrated} migrated, {self.already_new} already new, {self.compared} scores "
            f"compared: {verdict}"
        )


# ---------------------------------------------------------------- fields of a row


def renamed(name: str) -> str:
    """Return the name of today of an attention, a kind, an argument, a probe or a setting."""
    return f"lr_factor.{name.removeprefix('rate.')}" if name.startswith("rate.") else NAMES.get(name, name)


def migrated_settings(settings: Mapping[str, Any]) -> Fields:
    """Return the settings of a row under today's names."""
    model = {renamed(name): value for name, value in settings["model"].items()}
    if isinstance(model.get("primer"), Mapping):
        primer = dict(model["primer"])
        if primer.pop("free", False):  # an argument of before there was the kind
            primer["kind"] = "table"
        model["primer"] = {**primer, "kind": renamed(primer["kind"]), "pairing": renamed(primer["pairing"])}
    training = {renamed(name): value for name, value in settings["training"].items()}
    return {**settings, "model": model, "training": training}


def migrated_spec(text: str) -> Spec:
    """Return a spec of before under today's names."""
    fields = json.loads(text)
    settings = {
        renamed(name): renamed(value) if name in ("primer.kind", "primer.pairing") else value
        for name, value in fields["settings"].items()
    }
    attention = fields["attention"] and renamed(fields["attention"])
    return Spec.from_json(
        json.dumps(
            {**fields, "settings": settings, "attention": attention, "probes": [*map(renamed, fields["probes"])]}
        )
    )


def migrated_fields(fields: Mapping[str, Any]) -> Fields:
    """Return the fields of a row under today's names, with its key of today."""
    changed = {
        "attention": renamed(fields["attention"]),
        "settings": migrated_settings(fields["settings"]),
        "probes": {renamed(name): value for name, value in fields["probes"].items()},
    }
    row = {**fields, **changed, "variant": fields.get("variant", "")}
    return {**row, "key": key_of(row)}


# ---------------------------------------------------------------- a folder of results


def migrate_results(folder: Path) -> Counts:
    """Rewrite the CSV files and tables of a folder of results."""
    for old, new in RENAMED_STUDIES.items():
        for path in (*folder.glob(f"{old}.*"), folder / f"{old}_blocks.csv"):
            if path.exists():
                path.rename(path.with_name(path.name.replace(old, new, 1)))
    counts = Counts()
    for name in STUDIES:
        if (folder / f"{name}.csv").exists():
            _migrate_study(name, folder, counts)
    return counts


def _migrate_study(name: str, folder: Path, counts: Counts) -> None:
    before, blocks = _read(name, folder)
    specs = load_study(name).SPECS
    fingerprints = {row["dataset"]: row["fingerprint"] for row in before}
    known = {key(spec, fingerprints[spec.dataset]): spec for spec in specs if spec.dataset in fingerprints}
    after, kept = [], []
    for row in before:
        new = migrated_fields(row)
        spec = known.get(new["key"]) or migrated_spec(row["spec"])
        kept.append(key(spec, row["fingerprint"]) == new["key"])
        if not kept[-1]:
            print(f"{name}: left out, because its spec means another run today: {spec}, {row['key']}")
            continue
        first = {"key": new["key"], "variant": spec.variant, "spec": replace(spec, variant="").to_json()}
        after.append({**first, **{column: value for column, value in new.items() if column not in first}})
    before = [row for row, keep in zip(before, kept, strict=True) if keep]
    blocks = blocks[kept].reset_index(drop=True)
    sums = blocks.assign(key=[row["key"] for row in after])
    write_results(name, folder, pd.DataFrame(after), sums)
    read, read_sums = read_results(name, folder)
    for old, written in zip(before, read.to_dict("records"), strict=True):
        counts.add(old, {str(column): value for column, value in written.items()})
    for score in ("mse", "mae"):
        if not all(np.array_equal(a, b) for a, b in zip(blocks[score], read_sums[score], strict=True)):
            sys.exit(f"{name}: block sums of {score} differ")


def _read(name: str, folder: Path) -> tuple[list[Fields], pd.DataFrame]:
    """Return rows and block sums of a study as they are, with a spec, and sums where there were none."""
    if (folder / f"{name}_blocks.csv").exists():
        frame, blocks = read_results(name, folder)
        return [{str(column): value for column, value in row.items()} for row in frame.to_dict("records")], blocks
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        numbers: Callable[[str], Any] = lambda text: text if not _is_number(text) else json.loads(text)  # noqa: E731
        rows = [{column: numbers(text) for column, text in row.items()} for row in csv.DictReader(file)]
    by_name = {(spec.dataset, spec.variant): spec for spec in load_study(name).SPECS}
    for row in rows:
        system = row.pop("system")
        spec = by_name[row["dataset"], SYSTEMS.get(system, system)]
        row |= {column: json.loads(row[column]) for column in PARSED} | {"spec": spec.to_json()}
        row |= shortened(row)
    sums = [{"key": row["key"], "windows": row["windows"], "cell": row["windows"]} for row in rows]
    for score in ("mse", "mae"):
        for line, row in zip(sums, rows, strict=True):
            line[score] = np.array([float(f"{row[score] * row['windows']:.9g}")])
    return rows, pd.DataFrame(sums)


def _is_number(text: str) -> bool:
    try:
        return not isinstance(json.loads(text), list | dict)
    except ValueError:
        return False


# ---------------------------------------------------------------- a store


def migrate_store(folder: Path, out: Path) -> Counts:
    """Write the rows of a store into another under today's names; the first is only read."""
    counts, old, new = Counts(), Store(folder), Store(out)
    for name in old.keys():  # noqa: SIM118  a store is no dict
        before = old.fields(name)
        arrays = {}
        for array, values in old.arrays(name).items():
            probe, dot, rest = array.partition(".")
            arrays[renamed(probe) + dot + rest] = values
        row = Row(migrated_fields(before), arrays)
        new.add(row)
        counts.add(before, new.fields(row.key))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder of results, or a store")
    parser.add_argument("--out", type=Path, help="a new store; needed for a store")
    arguments = parser.parse_args()
    if list(arguments.folder.glob("*_blocks.csv")):
        counts = migrate_results(arguments.folder)
    elif arguments.out is None or arguments.out.resolve() == arguments.folder.resolve():
        parser.error(f"{arguments.folder} is a store: give --out, the folder of a new one")
    else:
        counts = migrate_store(arguments.folder, arguments.out)
    print(counts)
    sys.exit(bool(counts.unequal))


if __name__ == "__main__":
    main()
