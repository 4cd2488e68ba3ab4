"""Every system of the paper on the one trunk: seed 0, 96 -> 96, ETTh1 and ETTh2, beside the published values.

    PRIMECAST_DATA=... python tools/systems.py run rows/      # one JSON per run; runs that are there are not run again
    python tools/systems.py table rows/                       # results/systems.csv and docs/systems.md

Two processes may run into one folder: each claims a run by creating its file.
"""

import csv
import json
import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from primecast.experiments.experiment import Spec, run
from primecast.experiments.studies.grid import OWN_PAIR_TOO
from primecast.storage.atomic import write_json

ROOT = Path(__file__).parents[1]
RESULTS, TABLE = ROOT / "results" / "systems.csv", ROOT / "docs" / "systems.md"
DATASETS = ("ETTh1", "ETTh2")


@dataclass(frozen=True)
class System:
    """A row of the table: what to run, what was published (MSE, MAE on ETTh1 and ETTh2), and the band on ETTh1."""

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    backbone: str = ""  # published by the authors of the system
    paper: str = ""  # printed in the prime attention paper
    band: float | None = None
    datasets: tuple[str, ...] = DATASETS


AS_FIRST_RUN = {"settings": OWN_PAIR_TOO}
SYSTEMS = [
    System("iTransformer", {"attention": "standard"}, ".386/.405 .297/.349", ".387/.403 .315/.361", 0.393),
    System("iTransformer + prime", {"attention": "prime", **AS_FIRST_RUN}, "", ".379/.398 .296/.348"),
    System(
        "FreDF", {"attention": "standard", "preset": "fredf"}, ".382/.400 .289/.337", ".380/.394 .289/.340", 0.392
    ),
    System("FreDF + prime", {"attention": "prime", "preset": "fredf", **AS_FIRST_RUN}, "", ".376/.392 .286/.337"),
    System("Timer-XL", {"model": "timer_xl", "attention": "standard"}, ".381/.399", ".380/.398 .298/.348", 0.395),
    System("Timer-XL + prime", {"model": "timer_xl", "attention": "prime", **AS_FIRST_RUN}, "", ".377/.394 .293/.345"),
    System("DIFF (differential attention)", {"attention": "differential"}, "", ".385/.400 .309/.360", 0.397),
    System("DIFF + prime", {"attention": "differential+prime", **AS_FIRST_RUN}),
    System("gated attention", {"attention": "gated"}),
    System("gated + prime", {"attention": "gated+prime", **AS_FIRST_RUN}),
    System("selective attention, for sets", {"attention": "selective"}),
    System("selective + prime", {"attention": "selective+prime", **AS_FIRST_RUN}),
    System("directional attention", {"attention": "directional"}),
    System("directional + prime", {"attention": "directional+prime", **AS_FIRST_RUN}),
    System("LIFT on DLinear with instance norm", {"model": "lift"}, "", ".385/.404 .306/.351", 0.405),
    System("LagTS, our reconstruction", {"model": "lagts-reconstruction"}, "", ".384/.402 .305/.351"),
    System(
        "Autoformer, 1 epoch", {"model": "autoformer", "settings": {"epochs": 1}}, ".449/.459", ".449/.459", 0.52,
        ("ETTh1",),
    ),
    System("GATv2, all channels joined", {"model": "gat", "attention": "standard"}),
    System("GATv2 + prime", {"model": "gat", "attention": "prime", **AS_FIRST_RUN}),
    System("GAT, all channels joined", {"model": "gat", "attention": "standard", "settings": {"scoring": "gat"}}),
    System("DLinear", {"model": "dlinear"}, band=0.41),
    System("PatchTST", {"model": "patchtst"}, band=0.42),
    System("control: standard, output projection starts at zero", {"attention": "standard-zero-output"}),
    System("control: prime, features of other pairs", {"attention": "prime-shuffled-pairs", **AS_FIRST_RUN}),
    System("control: prime, one primer for all pairs", {"attention": "prime-one-for-all-pairs", **AS_FIRST_RUN}),
]  # fmt: skip


def run_all(folder: Path) -> None:
    """Run what is missing, data set by data set, and keep each row."""
    folder.mkdir(parents=True, exist_ok=True)
    for dataset in DATASETS:
        for system in SYSTEMS:
            path = folder / f"{dataset}-{_slug(system.name)}.json"
            if dataset not in system.datasets:
                continue
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            print(dataset, system.name, flush=True)
            try:
                row = run(Spec(dataset=dataset, **system.spec), progress="off")
                write_json(path, {"system": system.name, **row.fields})
            except BaseException:
                path.unlink()  # not claimed any more
                raise


def make_table(folder: Path) -> None:
    """Collect the rows into results/systems.csv, and write docs/systems.md from there."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json") if path.stat().st_size]
    order = {(system.name, dataset): number for number, (dataset, system) in enumerate(product(DATASETS, SYSTEMS))}
    rows.sort(key=lambda row: order[row["system"], row["dataset"]])
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            texts = {k: json.dumps(v, sort_keys=True) if isinstance(v, dict | list) else v for k, v in row.items()}
            writer.writerow(texts)
    TABLE.write_text(markdown(), encoding="utf-8")


def markdown() -> str:
    """The table that the committed rows give."""
    with RESULTS.open(newline="", encoding="utf-8") as file:
        rows = {(row["system"], row["dataset"]): row for row in csv.DictReader(file)}
    lines = [
        "# Every system on the one trunk",
        "",
        "Made by `tools/systems.py` from `results/systems.csv`: look-back 96, horizon 96, **one seed (0)**, MSE / MAE",
        "on scaled data over all test windows. Between seeds MSE moves by 0.001 to 0.002: smaller differences are no",
        "finding. Published: by the authors of the system; paper: printed in the prime attention paper; where known.",
        "Prime: with the paper's features, and F_ii primed like any other (`--set primer.prime_self=true`).",
        "Seconds per epoch are of one thread on a 2-core machine that had other work: they tell orders of magnitude.",
        "",
        "| system | ETTh1 | published | paper | band (MSE) | ETTh2 | published | paper | parameters | s / epoch |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system in SYSTEMS:
        first, second = (rows.get((system.name, dataset)) for dataset in DATASETS)
        known = [[*column.split(), "", ""][:2] for column in (system.backbone, system.paper)]
        cells = [
            system.name,
            _score(first),
            known[0][0],
            known[1][0],
            "" if system.band is None else f"<= {system.band}",
            _score(second) if "ETTh2" in system.datasets else "not run",
            known[0][1],
            known[1][1],
            "" if first is None else first["parameters"],
            "" if first is None else f"{float(first['seconds_per_epoch']):.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _score(row: dict[str, str] | None) -> str:
    return "not run yet" if row is None else f"{float(row['mse']):.4f} / {float(row['mae']):.4f}"


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


if __name__ == "__main__":
    {"run": run_all, "table": make_table}[sys.argv[1]](Path(sys.argv[2]))
