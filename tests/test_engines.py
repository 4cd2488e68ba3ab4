"""Sweeps: real processes, killed and interrupted in the middle, lose nothing that was written."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primecast.errors import InputError
from primecast.experiments.display import SweepDisplay as Display
from primecast.experiments.display import describe_progress
from primecast.experiments.engines import ENGINES, Job, Outcome
from primecast.experiments.run import run
from primecast.experiments.spec import Spec
from primecast.experiments.store import Row, Store
from primecast.experiments.sweep import Interrupted, Report, _loop, run_all

TINY = {"epochs": 2, "d_model": 8, "d_ff": 8, "n_heads": 2, "n_layers": 1, "batch_size": 2048}
LONG = {**TINY, "epochs": 15, "patience": 15}


def tiny(seed: int = 0, **settings: object) -> Spec:
    """Two seconds on an idle core, most of them for starting Python."""
    sizes: dict[str, Any] = {"horizon": 7, "lookback": 13}
    return Spec(dataset="nyc-weather", attention="standard", **sizes, seed=seed, settings={**TINY, **settings})


SWEEP = """
import sys
from primecast.experiments.spec import Spec
from primecast.experiments.store import Store
from primecast.experiments.sweep import Interrupted, run_all
try:
    report = run_all(map(Spec.from_json, sys.argv[3:]), Store(sys.argv[1]), workers=2, engine=sys.argv[2])
except Interrupted as error:
    sys.exit(str(error))
print(report)
"""


def start(store: Store, *specs: Spec, engine: str = "local") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SWEEP, str(store.folder), engine, *(spec.to_json() for spec in specs)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PRIMECAST_TEST_OF": str(store.folder)},
    )


def wait_for_epochs(store: Store, key: str, epochs: int, process: subprocess.Popen[str]) -> None:
    for _ in range(6000):
        position = store.position(key)
        if position is not None and len(position["rows"]) >= epochs:
            return
        assert process.poll() is None and not store.has(key), "it ended before it could be disturbed"
        time.sleep(0.05)
    raise AssertionError("no state was written")


def children(process: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    except FileNotFoundError:
        return False


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes through /proc")


@linux
def test_a_sweep_killed_in_the_middle_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), tiny(**LONG)
    key = spec.key()
    first = start(store, spec)
    wait_for_epochs(store, key, 3, first)
    (worker,) = children(first.pid)
    first.kill()
    first.communicate()
    for _ in range(100):
        if not alive(worker):
            break
        time.sleep(0.05)
    assert not alive(worker), "a worker outlived the sweep that started it"
    assert not store.has(key) and not (store.state(key) / ".lock").exists()
    stood = store.position(key)
    assert stood is not None and len(stood["rows"]) >= 3 and not stood["finished"]

    second = start(store, spec)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0 and "done=1" in out, err
    undisturbed = run(spec, progress="off")
    for name in ("mse", "mae", "val_mse", "best_epoch", "epochs", "steps", "channel_mse", "step_mae"):
        assert store.fields(key)[name] == undisturbed.fields[name]
    np.testing.assert_array_equal(store.arrays(key)["window_mse"], undisturbed.arrays["window_mse"])
    assert not store.state(key).exists() and not list((tmp_path / "claims").glob("*.json"))


@linux
def test_ctrl_c_ends_the_workers_leaves_no_half_row_and_says_what_is_left(tmp_path: Path) -> None:
    store, specs = Store(tmp_path), [tiny(seed, **LONG) for seed in range(3)]
    process = start(store, *specs)
    wait_for_epochs(store, specs[0].key(), 2, process)
    workers = children(process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1 and "of 3 runs are there" in err and "the same command continues" in err
    assert "Traceback" not in err
    assert workers and not any(alive(worker) for worker in workers)
    assert not list((tmp_path / "claims").glob("*.json")) and store.position(specs[0].key()) is not None
    assert not list(tmp_path.rglob(".lock"))


@linux
def test_a_lost_worker_is_run_again(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), tiny(**LONG)
    process = start(store, spec)
    wait_for_epochs(store, spec.key(), 2, process)
    (worker,) = children(process.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "worker lost, running again" in err and "done=1" in out
    assert store.fields(spec.key())["mse"] == run(spec, progress="off").fields["mse"]


def test_what_is_there_is_not_run_again_and_a_failing_spec_does_not_stop_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    bad = [tiny(lr=1e30), Spec(dataset="ETTh3"), tiny(n_heads=3)]
    report = run_all([*bad, tiny(), tiny()], store, workers=2, progress="off")
    assert (report.there, report.done, len(report.failed)) == (0, 1, 3)
    sentences = " | ".join(report.failed.values())
    assert "learning rate" in sentences and "unknown data set 'ETTh3'" in sentences and "n_heads 3" in sentences
    assert "Traceback" not in sentences
    assert store.keys() == [tiny().key()]
    written = (tmp_path / f"{tiny().key()}.json").stat().st_mtime_ns
    again = run_all([tiny()], store, workers=1, progress="off")
    assert (again.there, again.done) == (1, 0)
    assert (tmp_path / f"{tiny().key()}.json").stat().st_mtime_ns == written


# ---------------------------------------------------------------- the loop, without processes


class Pretend:
    """An engine that ends every job at once, some of them badly."""

    def __init__(self, store: Store, capacity: int = 2, lose: int = 0, interrupt: bool = False) -> None:
        self.capacity = capacity
        self.store = store
        self.lose = lose
        self.interrupt = interrupt
        self.started: list[str] = []
        self.pending: list[Job] = []

    def start(self, job: Job) -> None:
        assert len(self.pending) < self.capacity
        self.started.append(job.key)
        self.pending.append(job)

    def ended(self) -> list[Outcome]:
        if self.interrupt:
            raise KeyboardInterrupt
        jobs, self.pending = self.pending, []
        if self.lose:
            self.lose -= 1
            return [Outcome(job, error="lost for good", lost=True) for job in jobs]
        for job in jobs:
            self.store.add(small_row(job.key))
        return [Outcome(job) for job in jobs]

    def close(self) -> None:
        self.pending = []


def small_row(key: str, mse: float = 0.5) -> Row:
    return Row({"key": key, "mse": mse, "mae": 0.25, "epochs": 1, "seconds": 2.0})


def loop(store: Store, engine: Pretend, *keys: str) -> Report:
    report = Report()
    with Display("off", total=len(keys), there=0) as display:
        _loop([Job(key, "", key) for key in keys], store, engine, report, display)
    return report


def test_jobs_are_started_in_order_and_never_more_than_there_is_room_for(tmp_path: Path) -> None:
    engine = Pretend(Store(tmp_path), capacity=2)
    report = loop(engine.store, engine, *"abcde")
    assert engine.started == list("abcde") and report.done == 5


def test_a_job_that_loses_every_worker_is_given_up_with_a_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert loop(store, Pretend(store, lose=2), "a").done == 1
    report = loop(store, Pretend(store, lose=3), "b")
    assert report.failed == {"b": "lost for good"}


def test_a_run_that_was_taken_over_is_no_failure_and_waited_for(tmp_path: Path) -> None:
    store = Store(tmp_path)

    class Slept(Pretend):
        def ended(self) -> list[Outcome]:
            jobs, self.pending = self.pending, []
            for job in jobs:
                self.store.add(small_row(job.key))  # by the new owner
            return [Outcome(job, taken_over=True) for job in jobs]

    report = loop(store, Slept(store), "a")
    assert (report.done, report.elsewhere, report.failed) == (0, 1, {})


def test_a_worker_whose_token_is_not_that_of_the_claim_writes_no_row(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), tiny()
    assert store.claim(spec.key())
    engine = ENGINES["local"](store, workers=2, root=None, address=None)
    job = Job(spec.key(), json.dumps([spec.to_json(), []]), "", "the token of before")
    engine.start(job)
    outcomes: list[Outcome] = []
    while not outcomes:
        outcomes = engine.ended()
        time.sleep(0.05)
    assert outcomes == [Outcome(job, taken_over=True)] and not store.has(spec.key())


def test_a_run_that_somebody_else_is_at_is_waited_for_and_taken_over_if_they_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primecast.experiments.store.STALE", 0.3)
    store = Store(tmp_path)
    claims = tmp_path / "claims"
    claims.mkdir()
    (claims / "a.json").write_text(json.dumps({"host": "elsewhere", "process": 5}))

    engine = Pretend(store)  # the other machine is silent from the beginning
    report = loop(store, engine, "a", "b")
    assert engine.started == ["b", "a"] and report.done == 2

    (claims / "c.json").write_text(json.dumps({"host": "elsewhere", "process": 5}))

    class Finished(Pretend):
        def ended(self) -> list[Outcome]:
            if not self.store.has("c"):
                self.store.add(small_row("c"))
            return super().ended()

    report = loop(store, Finished(store), "c")
    assert (report.done, report.elsewhere) == (0, 1)


def test_an_interrupted_sweep_says_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.add(small_row(tiny(0).key()))
    monkeypatch.setitem(ENGINES, "local", lambda *_, **__: Pretend(store, interrupt=True))
    with pytest.raises(Interrupted, match="1 of 3 runs are there, 2 are left; the same command continues"):
        run_all([tiny(0), tiny(1), tiny(2)], store, progress="off")
    assert not list((tmp_path / "claims").glob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "rai"}, r"unknown engine 'rai' \(did you mean 'ray'\?\); allowed: local, ray"),
        ({"workers": 0}, "workers is 0; it must be at least 1"),
    ],
)
def test_what_no_engine_can_do_is_refused(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_all([tiny()], Store(tmp_path), **arguments)  # type: ignore[arg-type]


def test_lines_tell_runs_done_losses_and_time_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    with Display("lines", total=3, there=1) as display:
        store.add(small_row("a"))
        display.done(Job("a", "", "the first"), store)
        display.failed(Job("b", "", "the second"), "why")
    said = capsys.readouterr().err
    assert "1 of 3 runs are there already" in said
    assert "2/3  the first  mse 0.5000  mae 0.2500  1 epochs  2 s  about 1 min left" in said
    assert "FAILED  the second: why" in said


def test_where_a_run_stands_is_read_from_its_state() -> None:
    assert describe_progress(None) == (0, "starting")
    rows = [{"train_loss": 0.5, "val_mse": 0.25}, {"train_loss": 0.4, "val_mse": 0.3}]
    at = {"epoch": 3, "step": 4, "windows": 4, "loss_sum": 1.0, "rows": rows}
    assert describe_progress(at) == (
        2, "epoch 3 step 4  loss 0.2500  loss of epoch 0.4000  val mse 0.3000  best 0.2500",
    )  # fmt: skip


def test_ray_that_is_not_installed_is_asked_for_by_name(tmp_path: Path) -> None:
    if find_spec("ray") is not None:
        pytest.skip("Ray is installed here")
    with pytest.raises(InputError, match=r"pip install 'primecast\[cluster\]'"):
        run_all([tiny()], Store(tmp_path), engine="ray", progress="off")
