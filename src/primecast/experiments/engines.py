"""Who does the runs of a sweep: a process of its own for each job, or a Ray task.

    job ─> engine.start ─> worker: run ─> row in the store ─> engine.ended ─> outcome

An engine starts jobs and reports which have ended, and how. A worker process belongs to the process that started it: it
waits on its end of a pipe, and exits when that closes, because the sweep was interrupted or because it was killed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import torch

from primecast.errors import InputError, TrainingError
from primecast.experiments.run import run
from primecast.experiments.spec import Spec
from primecast.experiments.store import Row, Store
from primecast.training.checkpoint import FolderInUseError

ATTEMPTS = 3
"""How often a job whose worker was lost is tried, the first time included."""


@dataclass(frozen=True)
class Job:
    """A run as an engine sees it: the key of its row, a text for `do`, a label for people, the token of its claim."""

    key: str
    text: str
    label: str = ""
    token: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with its row in the store (no error), with a message, with its worker lost, or taken over."""

    job: Job
    error: str | None = None
    lost: bool = False
    taken_over: bool = False  # by another process, whose row will come


@runtime_checkable
class Engine(Protocol):
    capacity: int  # jobs at a time

    def start(self, job: Job) -> None: ...
    def ended(self) -> list[Outcome]: ...
    def close(self) -> None: ...


def do(text: str, root: str | None, state: Path | None) -> Row:
    """Do a job in a process of its own: train and score its spec at its horizons, print nothing, use one thread."""
    torch.set_num_threads(1)
    spec, horizons = json.loads(text)
    return run(Spec.from_json(spec), horizons=horizons, root=root, state=state, progress="off")


# ---------------------------------------------------------------- local: a process for each job

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
MESSAGE, TAKEN_OVER = 3, 4
"""Exit codes of a worker whose stderr ends with a message for the user, and of one whose run another process has;
other codes are defects or a lost worker."""
SECONDS_TO_END = 5.0
"""More than most steps of training take, and less than `LocalEngine.close` waits."""


class LocalEngine:
    """Run each job in a process of its own, with one thread: nothing is left for the next, not even memory."""

    def __init__(self, store: Store, *, workers: int | None, root: str | None, address: str | None) -> None:
        self.capacity = workers or os.cpu_count() or 1
        self.store = store
        self.root = root
        self.running: list[tuple[Job, subprocess.Popen[bytes], IO[bytes]]] = []

    def start(self, job: Job) -> None:
        order = [job.text, self.root, str(self.store.folder.absolute()), job.key, job.token]
        log = tempfile.TemporaryFile()  # noqa: SIM115  closed when the job has ended
        process = subprocess.Popen(
            [sys.executable, "-c", "from primecast.experiments.engines import work; work()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | ONE_THREAD,
            start_new_session=True,  # Ctrl-C is for the sweep, which then ends its workers
        )
        self.running.append((job, process, log))
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended before it could read; `ended` reports it
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()

    def ended(self) -> list[Outcome]:
        ended = [entry for entry in self.running if entry[1].poll() is not None]
        self.running = [entry for entry in self.running if entry not in ended]
        return [_outcome(*entry) for entry in ended]

    def close(self) -> None:
        """Close the pipes, which ends the workers after the rows they may be writing; kill one that hangs."""
        for _, process, log in self.running:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
            log.close()
        for _, process, _ in self.running:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()


def _outcome(job: Job, process: subprocess.Popen[bytes], log: IO[bytes]) -> Outcome:
    with log, process:  # which closes its pipe
        log.seek(0)
        text = log.read().decode(errors="replace").strip()
    code = process.returncode
    if code == 0:
        return Outcome(job)
    if code == TAKEN_OVER:
        return Outcome(job, taken_over=True)
    if code == MESSAGE:
        return Outcome(job, error=text.rpartition("\0")[2])
    if code < 0:
        return Outcome(job, error=f"its worker was ended by signal {-code}, {ATTEMPTS} times", lost=True)
    return Outcome(job, error=f"its worker failed with exit code {code}: {text or 'it printed nothing'}")


def work() -> None:
    """Run a worker process: read the order, do it, store the row. It exits when its stdin closes."""
    text, root, folder, key, token = json.loads(sys.stdin.buffer.readline())
    writing = threading.Lock()
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(), writing), daemon=True).start()
    store = Store(folder)
    try:
        row = do(text, root, store.state(key))
        with writing:
            if not store.owns(key, token):
                os._exit(TAKEN_OVER)
            store.add(row)
    except FolderInUseError:  # the owner before was only asleep, and is at it again
        os._exit(TAKEN_OVER)
    except (InputError, TrainingError) as error:
        sys.stderr.write(f"\0{error}")
        sys.stderr.flush()
        os._exit(MESSAGE)


def _end_with(pipe: int, writing: threading.Lock) -> None:
    """End when the other end is gone, which is when a read returns; finish a row that is being written first.

    A training that is under way has SECONDS_TO_END to write its state and unlock its folder, see `hold_signals`.
    """
    os.read(pipe, 1)
    with writing:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_END)
        os._exit(1)


# ---------------------------------------------------------------- ray: a task for each job


class RayEngine:
    """Run each job as a task with one core on a Ray cluster; Ray gives the job of a lost worker to another.

    Rows come back to this process, which stores them. A worker that sees the folder of the store writes the state of
    its run there, and a job that is run again resumes from it; elsewhere it starts from the beginning.
    """

    def __init__(self, store: Store, *, workers: int | None, root: str | None, address: str | None) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise InputError("the engine 'ray' needs Ray: pip install 'primecast[cluster]'") from error
        self.ray = ray
        self.owned = not ray.is_initialized()
        if self.owned:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                include_dashboard=False if address is None else None,
                num_cpus=workers if address is None else None,
                configure_logging=False,
            )
        self.capacity = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.store = store
        self.root = root
        self.remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(do_on_ray)
        self.running: dict[Any, Job] = {}

    def start(self, job: Job) -> None:
        folder = str(self.store.folder.absolute())
        self.running[self.remote.remote(job.text, self.root, folder, str(self.store.state(job.key).absolute()))] = job

    def ended(self) -> list[Outcome]:
        if not self.running:
            return []
        ready, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
        return [self._outcome(reference, self.running.pop(reference)) for reference in ready]

    def _outcome(self, reference: Any, job: Job) -> Outcome:
        try:
            row = self.ray.get(reference)
            if isinstance(row, str):
                return Outcome(job, error=row)
            if not self.store.owns(job.key, job.token):
                return Outcome(job, taken_over=True)
            self.store.add(row)
        except InputError as error:  # a row that disagrees, or a folder that cannot be written
            return Outcome(job, error=str(error))
        except self.ray.exceptions.RayError as error:
            return Outcome(job, error=f"its task failed: {error}")
        return Outcome(job)

    def close(self) -> None:
        for reference in self.running:
            self.ray.cancel(reference, force=True)
        self.running.clear()
        if self.owned:
            self.ray.shutdown()


def do_on_ray(text: str, root: str | None, folder: str, state: str) -> Row | str:
    """Return the row of a job, or the message of why it could not be done."""
    try:
        return do(text, root, Path(state) if Path(folder).is_dir() else None)
    except (InputError, TrainingError) as error:
        return str(error)


ENGINES: dict[str, Callable[..., Engine]] = {"local": LocalEngine, "ray": RayEngine}
