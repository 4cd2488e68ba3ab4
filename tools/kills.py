"""Kill processes that train, save and sweep, and check that nothing is lost; counts are printed and kept.

    make kills                                    # 1,000 of training, 1,000 of save, 200 of a sweep
    python tools/kills.py --training 50 --save 50 --sweep 10

training  A process that trains with a state is killed at a random moment, and another continues, until one ends: its
          weights and its history must be those of a run that nobody killed.
save      A process that saves two Forecasters in turn into one folder is killed: the folder must load as one of them.
sweep     Of a sweep with two workers, a worker or the parent is killed: no row that was there may go or change, and
          when a sweep ends, every row must be there and equal to that of a sweep that nobody disturbed.

Every process is a fresh one, but is forked from this one, which has imported torch and computed nothing: to import it
anew would take 2 s for each of 2,200 processes, in which there is nothing to lose. Needs Linux. It can be stopped
and started again: counts and the folders that are worked on are in .kills.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from primecast import Forecaster
from primecast.data.windows import Windows
from primecast.experiments import engines
from primecast.experiments import sweep as sweeping
from primecast.experiments.spec import Spec
from primecast.experiments.store import Store
from primecast.experiments.sweep import run_all
from primecast.models import create_model
from primecast.nn.losses import create_loss
from primecast.storage.atomic import read_json, write_json
from primecast.training.loop import fit

FOLDER = Path(".kills")
TIMES = ("seconds", "seconds_per_epoch", "peak_mib")
"""The fields of a row that are not the same in two runs of a spec."""


class Counts:
    """Counts by kind of kill, in a file: kills, ends that were checked, and what was lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: dict[str, dict[str, int]] = read_json(path) if path.exists() else {}

    def add(self, kind: str, *names: str) -> None:
        counts = self.counts.setdefault(kind, {"kills": 0, "ends": 0, "lost": 0})
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        write_json(self.path, self.counts)

    def end(self, kind: str, wrong: object) -> None:
        """Count an end, and whether something is wrong with it."""
        self.add(kind, "ends", *(["lost"] if wrong else []))
        if wrong:
            print(f"{kind}: {wrong}", file=sys.stderr, flush=True)

    def kills(self, kind: str) -> int:
        return self.counts.get(kind, {}).get("kills", 0)

    def show(self, kind: str) -> None:
        self.add(kind)
        print(f"{kind}: " + ", ".join(f"{name} {count}" for name, count in self.counts[kind].items()), flush=True)


def fork(work: Callable[[], object]) -> int:
    """Run it in a child of this process; return the child's id. A child that fails says why and ends with 1."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def ended(child: int, *, wait: float) -> int | None:
    """Return how a child has ended, None if it has not within these seconds."""
    until = time.monotonic() + wait
    while True:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.001)


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


# ---------------------------------------------------------------- training


def train(state: Path | None, result: Path) -> None:
    """Train a small model, and write a digest of everything that it ends with."""
    series = torch.randn(113, 3, generator=torch.Generator().manual_seed(0)).cumsum(0) / 10
    train, val = (Windows(series[rows], None, rows.start, 13, 5) for rows in (slice(0, 83), slice(83, 113)))
    model = create_model(
        "itransformer",
        lookback=13,
        horizon=5,
        channels=3,
        d_model=16,
        n_heads=2,
        dropout=0.2,
        attention="prime",
        seed=0,
    )
    history = fit(
        model, train, val, loss=create_loss("mse"), lr=1e-3, batch_size=7, epochs=7, patience=7, seed=0,
        state=state, save_every=2, progress="off",
    )  # fmt: skip
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    rows = [[row.epoch, row.lr, row.train_loss, row.val_mse, row.val_mae] for row in history.epochs]
    write_json(result, {"weights": digest.hexdigest(), "rows": rows, "steps": history.steps})


def kill_training(folder: Path, counts: Counts, wanted: int) -> None:
    unbroken, result, state = folder / "unbroken.json", folder / "result.json", folder / "state"
    start = time.monotonic()
    assert ended(fork(lambda: train(None, unbroken)), wait=600) == 0
    seconds = time.monotonic() - start
    while counts.kills("training") < wanted:
        draw = random.Random(f"training {counts.kills('training')} {time.monotonic_ns()}")
        child = fork(lambda: train(state, result))
        code = ended(child, wait=draw.expovariate(2 / seconds))  # mostly short, and now and then long enough to end
        if code is None:
            kill(child)
            counts.add("training", "kills")
        else:
            same = code == 0 and read_json(result) == read_json(unbroken)
            counts.end("training", None if same else f"ended with code {code} and other weights")
            shutil.rmtree(state)
            result.unlink(missing_ok=True)


# ---------------------------------------------------------------- save


def kill_save(folder: Path, counts: Counts, wanted: int) -> None:
    values = np.random.default_rng(0).normal(size=(151, 2)).cumsum(0)
    frame = pd.DataFrame(values, index=pd.date_range("2024-01-01", periods=151, freq="h"), columns=["a", "b"])
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1}

    def fit_and_save(seed: int) -> None:
        Forecaster(horizon=5, lookback=13, epochs=1, seed=seed, model_args=sizes, progress="off").fit(frame).save(
            folder / str(seed)
        )

    for seed in (0, 1):
        assert ended(fork(lambda seed=seed: fit_and_save(seed)), wait=600) == 0  # type: ignore[misc]
    models = [Forecaster.load(folder / str(seed)) for seed in (0, 1)]
    forecasts = [model.predict(level=[80]) for model in models]
    target = folder / "target"
    models[0].save(target)

    def save_for_ever() -> None:
        while True:
            for model in draw.sample(models, 2):
                model.save(target)

    while counts.kills("save") < wanted:
        draw = random.Random(f"save {counts.kills('save')} {time.monotonic_ns()}")
        child = fork(save_for_ever)
        time.sleep(draw.uniform(0.002, 0.08))
        kill(child)
        counts.add("save", "kills")
        try:
            loaded = Forecaster.load(target).predict(level=[80])
            counts.end("save", None if any(loaded.equals(one) for one in forecasts) else "another model")
        except Exception as error:
            counts.end("save", f"{type(error).__name__}: {error}")
    models[1].save(target)
    assert sorted(path.name for path in target.iterdir()) == ["README.md", "config.json", "model.safetensors"]


# ---------------------------------------------------------------- sweep


class Forked:
    """A worker, forked; what `LocalEngine` needs of a Popen."""

    def __init__(self, siblings: list[Any]) -> None:
        reading, writing = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.close(reading)
            self.stdin = os.fdopen(writing, "wb")
            return
        for sibling in siblings:  # whose pipes must close when the parent ends
            sibling.stdin.close()
        os.close(writing)
        os.dup2(reading, 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        try:
            engines.work()
            os._exit(0)
        finally:
            os._exit(1)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = ended(self.pid, wait=0)
        return self.returncode

    def wait(self, timeout: float = 60) -> None:
        if self.returncode is None:
            self.returncode = ended(self.pid, wait=timeout)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        self.stdin.close()


def popen_by_fork(*_: object, **__: object) -> Forked:
    """Stand in for subprocess.Popen in the engine of a sweep."""
    worker = Forked(WORKERS)
    WORKERS.append(worker)
    return worker


WORKERS: list[Any] = []
"""Of the sweep that runs in this process."""


GIVEN_UP = 3
"""Exit code of a sweep of which a run has lost its worker too often: the next sweep does that run."""


def sweep(specs: list[Spec], store: Store) -> None:
    engines.subprocess.Popen = popen_by_fork  # type: ignore[attr-defined]
    sweeping.POLL = 0.02  # the runs are short, too
    report = run_all(specs, store, workers=2, progress="off")
    if report.failed:
        lost = all("was ended by signal 9" in message for message in report.failed.values())
        print("" if lost else report.failed, file=sys.stderr, end="" if lost else "\n", flush=True)
        os._exit(GIVEN_UP if lost else 1)


def rows_of(store: Store, keys: list[str]) -> list[object]:
    """Return what the rows say and hold, their times aside; None for one that is absent."""
    return [
        (
            {name: value for name, value in store.fields(key).items() if name not in TIMES},
            {name: array.tolist() for name, array in store.arrays(key).items()},
        )
        if store.has(key)
        else None
        for key in keys
    ]


def running(process: int) -> bool:
    """Return whether a process is there and has not ended: to kill what has ended is no kill."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_one(parent: int, draw: random.Random, counts: Counts) -> bool:
    """Kill the parent of a sweep or one of its workers; return whether the parent is still there."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    victims = [parent, *(worker for worker in map(int, children) if running(worker))]
    victim = draw.choice(victims)
    if victim == parent:
        kill(parent)
        counts.add("sweep", "kills", "kills of the parent")
        return False
    os.kill(victim, signal.SIGKILL)
    counts.add("sweep", "kills", "kills of a worker")
    return True


def kill_sweep(folder: Path, counts: Counts, wanted: int) -> None:
    table = folder / "table.csv"
    values = np.random.default_rng(0).normal(size=(307, 3)).cumsum(0).round(3)
    dates = pd.date_range("2024-01-01", periods=307, freq="h", name="time")
    pd.DataFrame(values, index=dates, columns=["a", "b", "c"]).to_csv(table)
    tiny = {"epochs": 9, "patience": 9, "batch_size": 31, "dropout": 0.2}
    tiny |= {"d_model": 16, "d_ff": 16, "n_heads": 2, "n_layers": 1}
    specs = [
        Spec(dataset=str(table), attention="prime", horizon=5, lookback=13, seed=seed, settings=tiny)
        for seed in range(3)
    ]
    keys = [spec.key() for spec in specs]
    unbroken, store = Store(folder / "unbroken"), Store(folder / "store")
    shutil.rmtree(unbroken.folder, ignore_errors=True)
    start = time.monotonic()
    assert ended(fork(lambda: sweep(specs, unbroken)), wait=600) == 0
    seconds = time.monotonic() - start
    expected = rows_of(unbroken, keys)
    there: list[object] = [None] * len(keys)  # the rows that were seen
    sweeps = 0
    while counts.kills("sweep") < wanted:
        draw = random.Random(f"sweep {counts.kills('sweep')} {time.monotonic_ns()}")
        parent, code, alive = fork(lambda: sweep(specs, store)), None, True
        sweeps += 1
        while alive and code is None:
            # Eight kills in the time of a sweep that nobody disturbs: what was done is kept, so that it ends.
            code = ended(parent, wait=draw.expovariate(8 / seconds))
            alive = code is None and kill_one(parent, draw, counts)
        now = rows_of(store, keys)
        gone = [place for place, row in enumerate(there) if row is not None and row != now[place]]
        wrong = [place for place, row in enumerate(now) if row is not None and row != expected[place]]
        there = now
        if gone or wrong or code not in (None, 0, GIVEN_UP):
            counts.end("sweep", f"code {code}, rows that were there and are not: {gone}, other rows: {wrong}")
        if code == 0:
            left = [path.name for name in ("state", "claims") for path in (store.folder / name).glob("*")]
            counts.end("sweep", left or [place for place, row in enumerate(now) if row is None])
            shutil.rmtree(store.folder)
            there = [None] * len(keys)
    print(f"  {sweeps} sweeps were started, of {seconds:.1f} s when nobody disturbs one")


# ---------------------------------------------------------------- all


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    for name, number in (("training", 1000), ("save", 1000), ("sweep", 200)):
        parser.add_argument(f"--{name}", type=int, default=number, help=f"kills; default {number}")
    parser.add_argument("--out", type=Path, help="write the counts into this file, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    counts = Counts(FOLDER / "counts.json")
    for kind, work in (("training", kill_training), ("save", kill_save), ("sweep", kill_sweep)):
        start = time.monotonic()
        (FOLDER / kind).mkdir(parents=True, exist_ok=True)
        work(FOLDER / kind, counts, getattr(arguments, kind))
        counts.show(kind)
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
    if arguments.out is not None:
        write_json(arguments.out, counts.counts)
    return 1 if any(one["lost"] for one in counts.counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
