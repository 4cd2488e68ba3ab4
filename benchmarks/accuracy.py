"""Accuracy of primecast and its peers on real data sets: the same rows, windows and origins for all.

    python benchmarks/accuracy.py --prepare                   # environments of the peers, once; needs the package index
    python benchmarks/accuracy.py --half judging              # all methods; continues where it was stopped
    python benchmarks/accuracy.py --sets ETTm2 --horizons 96 --methods NHITS good --seeds 0 1
    python benchmarks/accuracy.py --forecast-seconds          # wall time of `primecast forecast`, on an idle machine
    python benchmarks/accuracy.py --summary                   # results/accuracy.json, the table and the figure

One row per data set, horizon, method and seed in results/accuracy.jsonl. A row of another protocol or of other settings
of its method is measured again and is not summarized. The data sets are found through PRIMECAST_DATA.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import accuracy_own
import accuracy_peers
import measure
from accuracy_cells import (
    HALVES,
    HORIZONS,
    LOOKBACK,
    STRIDED,
    Cell,
    conformal_quantiles,
    fingerprint,
    load_cell,
    score,
    strided,
)
from measure import ENVS, RESULTS, Others, Rows

NAIVE = "seasonal naive"
NEURAL = tuple(accuracy_peers.SIZES)
PEERS = (NAIVE, "LightGBM", *NEURAL)
SLOW = ("MSTL", "AutoGluon")
"""Peers that forecast from a few of the origins only; they have a table of their own."""
OWN = ("good", "fast")
ENVIRONMENTS = {
    "neural": ("torch==2.13.0", "neuralforecast==3.3.0"),
    "trees": ("lightgbm==4.7.0", "mlforecast==1.1.0"),
    "statistics": ("statsforecast==2.1.1",),
    "autogluon": ("torch==2.13.0", "autogluon.timeseries==1.6.3"),
}
"""Environment -> requirements, installed in this order."""
ENVIRONMENT_OF = {
    **dict.fromkeys(NEURAL, "neural"),
    "LightGBM": "trees",
    "MSTL": "statistics",
    "AutoGluon": "autogluon",
}


def settings(method: str) -> dict[str, object]:
    """Return everything that a method's forecasts depend on, besides the protocol."""
    peers = accuracy_peers
    if method in NEURAL:
        loop = (
            peers.FEWER_STEPS.get(method, peers.STEPS),
            peers.BATCH,
            peers.SERIES,
            peers.CHECK,
            peers.PATIENCE,
            peers.RATE,
        )
        return {"sizes": peers.SIZES[method], "loop": loop}
    if method == "LightGBM":
        return {"trees": peers.TREES, "lags": peers.LAGS}
    if method == "MSTL":
        return {"origins": STRIDED, "past": peers.PAST}
    if method == "AutoGluon":
        return {"origins": STRIDED, "models": peers.AUTOGLUON, "limit": (peers.TIME_LIMIT, peers.CONTEXT)}
    return accuracy_own.settings(method) if method in OWN else {}


# ---------------------------------------------------------------- running


def run(rows: Rows, cell: Cell, method: str, seed: int) -> None:
    """Measure one row."""
    with tempfile.TemporaryDirectory() as folder, Others() as others:
        if method == NAIVE:
            scores, facts = _run_naive(cell)
        elif method in OWN:
            scores, facts = _run_own(cell, method, seed, Path(folder))
        else:
            scores, facts = _run_peer(cell, method, seed, Path(folder))
    values = {"set": cell.name, "horizon": cell.horizon, "method": method, "seed": seed}
    origins = len(strided(cell.origins) if method in SLOW else cell.origins)
    shape = {"rows": len(cell.values), "channels": cell.values.shape[1], "origins": origins}
    key = {"protocol": fingerprint(settings(method))}
    rows.put(row_id(cell.name, cell.horizon, method, seed), others, **values, **key, **shape, **scores, **facts)
    print(
        f"{cell.name} {cell.horizon} {method} seed {seed}: MSE {scores['mse']:.4f}, {facts['seconds']:.1f} s",
        flush=True,
    )


Found = tuple[dict[str, Any], Mapping[str, Any]]
"""Scores of the forecasts, and facts of the run: its CPU seconds and others."""


def _run_naive(cell: Cell) -> Found:
    began = accuracy_peers.cpu_seconds()
    found = {name: cell.seasonal_naive(getattr(cell, name)) for name in ("calibration", "origins")}
    seconds = accuracy_peers.cpu_seconds() - began
    return _score_conformal(cell, found), {"seconds": seconds, "steps": None}


def _run_peer(cell: Cell, method: str, seed: int, folder: Path) -> Found:
    data, out = folder / "cell.npz", folder / "forecasts.npz"
    if method in SLOW:
        cell = at_strided(cell)
    np.savez(
        data,
        values=cell.values,
        dates=cell.dated_frame().index.to_numpy().astype("datetime64[ns]"),
        season=cell.season,
        horizon=cell.horizon,
        lookback=LOOKBACK,
        trained=cell.trained,
        tested=cell.tested,
        calibration=cell.calibration,
        origins=cell.origins,
    )
    job = {"method": method, "data": str(data), "out": str(out), "seed": seed}
    python = peer_python(ENVIRONMENT_OF[method])
    facts = measure.run_fresh(Path(accuracy_peers.__file__), job, python=python, timeout=3600)
    with np.load(out) as found:
        if method in SLOW:
            return score(cell, found["origins"], found["quantiles"]), facts
        return _score_conformal(cell, found), facts


def _run_own(cell: Cell, quality: str, seed: int, folder: Path) -> Found:
    job = {"set": cell.name, "horizon": cell.horizon, "quality": quality, "seed": seed, "folder": str(folder)}
    facts = measure.run_fresh(Path(accuracy_own.__file__), job, timeout=7200)
    with np.load(folder / "forecasts.npz") as file:
        return _score_all(cell, file["forecast"], file["quantiles"]), facts


def _score_conformal(cell: Cell, found: Mapping[str, np.ndarray]) -> dict[str, Any]:
    errors = cell.truth(cell.calibration) - found["calibration"]
    return _score_all(cell, found["origins"], conformal_quantiles(found["origins"], errors))


def _score_all(cell: Cell, forecast: np.ndarray, quantiles: np.ndarray) -> dict[str, Any]:
    """Return the scores on all origins and, under `strided`, those on the origins of the slow peers."""
    few = strided(cell.origins)
    return score(cell, forecast, quantiles) | {"strided": score(at_strided(cell), forecast[few], quantiles[:, few])}


def at_strided(cell: Cell) -> Cell:
    return replace(cell, origins=cell.origins[strided(cell.origins)])


def row_id(name: str, horizon: int, method: str, seed: int) -> str:
    return measure.case_id({"set": name, "horizon": horizon, "method": method, "seed": seed})


def is_measured(rows: Rows, name: str, horizon: int, method: str, seed: int) -> bool:
    """Return whether the row exists under the present protocol and settings."""
    row = rows.rows.get(row_id(name, horizon, method, seed))
    return row is not None and row["protocol"] == fingerprint(settings(method))


# ---------------------------------------------------------------- environments and the command line's seconds


def prepare() -> None:
    """Make the environments of the peers; those that have the requirements already are kept."""
    for name, requirements in ENVIRONMENTS.items():
        ready, wanted = ENVS / name / ".ready", "\n".join(requirements)
        if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
            continue
        print(f"making the environment {name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVS / name)], check=True)
        for requirement in requirements:
            subprocess.run([str(peer_python(name)), "-m", "pip", "--quiet", "install", requirement], check=True)
        ready.write_text(wanted, encoding="utf-8")


def peer_python(name: str) -> Path:
    python = ENVS / name / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing: run python benchmarks/accuracy.py --prepare first")
    return python


def forecast_seconds(rows: Rows) -> None:
    """Time `primecast forecast` with its defaults on a CSV of 17,000 rows and 26 channels; all cores."""
    from primecast.data import load_dataset

    dataset = load_dataset("brightwind")
    assert dataset.index is not None
    frame = pd.DataFrame(dataset.values, index=dataset.index.rename("date"), columns=list(dataset.names))
    command = [str(Path(sys.executable).with_name("primecast")), "forecast", "data.csv", "--horizon", "96"]
    with tempfile.TemporaryDirectory() as folder, Others() as others:
        frame.iloc[-17_000:, :26].to_csv(Path(folder) / "data.csv")
        began = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    rows.put("forecast", others, what="primecast forecast, 17,000 x 26", seconds=round(seconds, 1))
    print(f"primecast forecast: {seconds:.1f} s, other processes used {others.cores} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--half", choices=HALVES, help="the sets of one half; both without it")
    parser.add_argument("--sets", nargs="+", choices=[name for half in HALVES.values() for name in half])
    parser.add_argument("--horizons", nargs="+", type=int, default=list(HORIZONS))
    parser.add_argument("--methods", nargs="+", choices=(*PEERS, *SLOW, *OWN), default=[*PEERS, *SLOW, *OWN])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--prepare", action="store_true", help="make the environments of the peers and do nothing else")
    parser.add_argument("--forecast-seconds", action="store_true", help="time the command primecast forecast")
    parser.add_argument("--summary", action="store_true", help="summarize the rows; nothing is measured")
    arguments = parser.parse_args()
    if arguments.prepare:
        return prepare()
    if arguments.forecast_seconds:
        return forecast_seconds(Rows.open(RESULTS, "accuracy_forecast"))
    if arguments.summary:
        import accuracy_summary

        return accuracy_summary.write(RESULTS)
    measure.prepare_process()
    sets = arguments.sets or (HALVES[arguments.half] if arguments.half else [*HALVES["judging"], *HALVES["choosing"]])
    for seed in arguments.seeds:
        for name in sets:
            for horizon in arguments.horizons:
                for method in arguments.methods:
                    rows = Rows.open(RESULTS, "accuracy")  # again each time: others may have added rows
                    once = method in (NAIVE, "MSTL") and seed > 0  # nothing random in them
                    if not once and not is_measured(rows, name, horizon, method, seed):
                        run(rows, load_cell(name, horizon), method, seed)
    return None


if __name__ == "__main__":
    main()
