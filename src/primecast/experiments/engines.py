"""Many runs at once: who does them, and how far they are.

    jobs ─> claim ─> engine: a process of its own, or a Ray task ─> row in the store ─> next

`sweep` hands out what is missing in the store, in order, and never more at a time than the engine has room for. It
holds no result itself: whoever kills it loses what the runs under way did since they last wrote their state, and the
same call goes on from there. An engine only has to start jobs and to say which have ended, and how.

A worker process belongs to the process that started it: it hangs on its end of a pipe and ends when that closes, be it
because the sweep was interrupted or because it was killed.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from primecast.errors import InputError, TrainingError, unknown
from primecast.experiments.store import Row, Store
from primecast.training.progress import PROGRESS

ENGINES = ("local", "ray")
ATTEMPTS = 3
"""How often a job whose worker was lost is given to another one, the first included."""
HEARTBEAT = 10.0
POLL = 0.2

Task = Callable[[str, str | None, str | None], Row]
"""Does a job: (its text, folder of the data, folder of its state) -> row. A function of a module, to be found again."""


@dataclass(frozen=True)
class Job:
    """A run as an engine sees it: the name of its row, a text that its task understands, and a text for people."""

    key: str
    text: str
    shown: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with its row in the store (no error), with a sentence, or with its worker lost."""

    job: Job
    error: str | None = None
    lost: bool = False


@dataclass
class Report:
    """What a sweep did; `failed` has a sentence for each job that could not be done."""

    there: int = 0  # before it began
    done: int = 0
    elsewhere: int = 0  # done meanwhile by somebody else
    failed: dict[str, str] = field(default_factory=dict)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: workers have ended; the message says what is left."""


@runtime_checkable
class Engine(Protocol):
    room: int  # jobs at a time

    def start(self, job: Job) -> None: ...
    def ended(self) -> list[Outcome]: ...
    def close(self) -> None: ...


# ---------------------------------------------------------------- the sweep


def sweep(
    jobs: Iterable[Job],
    store: Store,
    *,
    task: Task,
    engine: str = "local",
    workers: int | None = None,
    root: Path | str | None = None,
    progress: str = "auto",
    address: str | None = None,
) -> Report:
    """Do the jobs whose rows the store lacks; one at a time for each place the engine has. See experiments.run.run_all."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1")
    wanted = list({job.key: job for job in jobs}.values())
    waiting = [job for job in wanted if not store.has(job.key)]
    report = Report(there=len(wanted) - len(waiting))
    for job in wanted:
        if store.has(job.key):
            store.clear_state(job.key)  # of a process killed between writing its row and clearing up
    if not waiting:
        return report

    store.folder.mkdir(parents=True, exist_ok=True)
    where = None if root is None else str(Path(root).absolute())
    with SweepDisplay(progress, total=len(wanted), there=report.there) as display:
        hands = create_engine(engine, task, store, workers=workers, root=where, address=address)
        try:
            _loop(waiting, store, hands, report, display)
        except KeyboardInterrupt:
            left = sum(not store.has(job.key) for job in wanted)
            raise Interrupted(
                f"interrupted: {len(wanted) - left} of {len(wanted)} runs are there, {left} are left; the same command "
                "continues"
            ) from None
        finally:
            hands.close()
            for job in wanted:
                store.release(job.key)
    return report


def _loop(waiting: list[Job], store: Store, engine: Engine, report: Report, display: "SweepDisplay") -> None:
    running: dict[str, Job] = {}
    attempts: dict[str, int] = {}
    beat = time.monotonic()
    while waiting or running:
        for job in list(waiting):
            if len(running) >= engine.room:
                break
            if store.has(job.key):
                waiting.remove(job)
                report.elsewhere += 1
                display.done(job, store)
            elif store.claim(job.key):
                if store.has(job.key):  # its row came between the two questions
                    store.release(job.key)
                    continue
                waiting.remove(job)
                running[job.key] = job
                attempts[job.key] = attempts.get(job.key, 0) + 1
                engine.start(job)
                display.started(job)
        for outcome in engine.ended():
            job = running.pop(outcome.job.key)
            store.release(job.key)
            if outcome.lost and attempts[job.key] < ATTEMPTS:
                waiting.insert(0, job)
                display.say(f"worker lost, running again: {job.shown}")
            elif outcome.error is not None:
                report.failed[job.shown] = outcome.error
                display.failed(job, outcome.error)
            else:
                report.done += 1
                display.done(job, store)
        if time.monotonic() - beat > HEARTBEAT:
            beat = time.monotonic()
            for key in running:
                store.beat(key)
        display.show(running.values(), len(waiting), store, engine.room)
        if waiting or running:
            time.sleep(POLL)


def create_engine(
    name: str, task: Task, store: Store, *, workers: int | None, root: str | None, address: str | None
) -> Engine:
    if name == "ray":
        return RayEngine(task, store, workers=workers, root=root, address=address)
    return LocalEngine(task, store, workers=workers or os.cpu_count() or 1, root=root)


# ---------------------------------------------------------------- local: a process for each job

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
SENTENCE = 3
"""Exit code of a worker that ends with a sentence for people on stderr; other codes are defects or a lost worker."""


class LocalEngine:
    """Each job in a process of its own, with one thread: nothing of one run is left for the next, not even memory."""

    def __init__(self, task: Task, store: Store, *, workers: int, root: str | None) -> None:
        self.room = workers
        self.task = task
        self.store = store
        self.root = root
        self.running: list[tuple[Job, subprocess.Popen[bytes], IO[bytes]]] = []

    def start(self, job: Job) -> None:
        order = {
            "task": f"{self.task.__module__}:{self.task.__name__}",
            "text": job.text,
            "root": self.root,
            "key": job.key,
            "store": str(self.store.folder.absolute()),
        }
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
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:  # it ended before it could read; `ended` will tell
            return

    def ended(self) -> list[Outcome]:
        outcomes = []
        for entry in list(self.running):
            job, process, log = entry
            code = process.poll()
            if code is None:
                continue
            self.running.remove(entry)
            if process.stdin is not None:
                process.stdin.close()
            log.seek(0)
            said = log.read().decode(errors="replace").strip()
            log.close()
            outcomes.append(_outcome(job, code, said))
        return outcomes

    def close(self) -> None:
        """Closing the pipe ends a worker, after the row it may be writing; one that hangs is killed."""
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


def _outcome(job: Job, code: int, said: str) -> Outcome:
    if code == 0:
        return Outcome(job)
    if code == SENTENCE:
        return Outcome(job, error=said.rpartition("\0")[2])
    if code < 0:
        return Outcome(job, error=f"its worker was ended by signal {-code}, {ATTEMPTS} times", lost=True)
    return Outcome(job, error=f"its worker failed with exit code {code}: {said or 'it said nothing'}")


def work() -> None:
    """The whole life of a worker process: read the order, do it, keep the row. It ends when its stdin does."""
    order = json.loads(sys.stdin.buffer.readline())
    keeping = threading.Lock()
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(), keeping), daemon=True).start()
    store = Store(order["store"])
    module, _, name = order["task"].partition(":")
    task: Task = getattr(import_module(module), name)
    try:
        row = task(order["text"], order["root"], str(store.state(order["key"])))
        with keeping:
            store.add(row)
    except (InputError, TrainingError) as error:
        sys.stderr.write(f"\0{error}")
        sys.stderr.flush()
        os._exit(SENTENCE)


def _end_with(pipe: int, keeping: threading.Lock) -> None:
    """A read that returns means that the other end is gone; a row that is being written is finished first."""
    os.read(pipe, 1)
    with keeping:
        os._exit(1)


# ---------------------------------------------------------------- ray: a task for each job


class RayEngine:
    """Each job a task with one core on a Ray cluster; Ray gives the job of a lost worker to another.

    Rows come back to this process, which keeps them. Where a worker sees the folder of the store, it writes the state
    of its run there, and a job that is run again goes on from it; elsewhere it begins anew.
    """

    def __init__(self, task: Task, store: Store, *, workers: int | None, root: str | None, address: str | None) -> None:
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
        self.room = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.store = store
        self.root = root
        self.remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_ray_task(task))
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


def _ray_task(task: Task) -> Callable[[str, str | None, str, str], Row | str]:
    def do(text: str, root: str | None, folder: str, state: str) -> Row | str:
        try:
            return task(text, root, state if Path(folder).is_dir() else None)
        except (InputError, TrainingError) as error:
            return str(error)

    return do


# ---------------------------------------------------------------- how far the sweep is


class SweepDisplay:
    """Runs done of all, time left, and where the runs under way stand; a table on a terminal, else lines, on stderr."""

    def __init__(self, progress: str, *, total: int, there: int) -> None:
        if progress not in PROGRESS:
            raise unknown("progress", progress, PROGRESS)
        self.mode = progress if progress != "auto" else "bar" if sys.stderr.isatty() else "lines"
        self.total = total
        self.ready = there
        self.ended = 0
        self.began = time.monotonic()
        self.seen: dict[str, int] = {}
        self.looked = 0.0

    def __enter__(self) -> "SweepDisplay":
        if self.mode == "bar":
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), auto_refresh=False)
            self.live.start()
        if self.ready:
            self.say(f"{self.ready} of {self.total} runs are there already")
        return self

    def __exit__(self, *_: object) -> None:
        if self.mode == "bar":
            self.live.stop()

    def started(self, job: Job) -> None:
        if self.mode == "lines":
            self.say(f"started  {job.shown}")

    def done(self, job: Job, store: Store) -> None:
        self.ready += 1
        self.ended += 1
        fields = store.fields(job.key)
        self.say(
            f"{self.ready}/{self.total}  {job.shown}  mse {fields['mse']:.4f}  mae {fields['mae']:.4f}  "
            f"{fields['epochs']} epochs  {fields['seconds']:.0f} s{self._left()}"
        )

    def failed(self, job: Job, error: str) -> None:
        self.ended += 1
        self.say(f"FAILED  {job.shown}: {error}")

    def say(self, text: str) -> None:
        if self.mode == "lines":
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        elif self.mode == "bar":
            self.live.console.print(text, highlight=False)

    def show(self, running: Iterable[Job], waiting: int, store: Store, room: int) -> None:
        """Looks at the states of the runs under way, which are written a few times per minute, once per second."""
        if self.mode == "off" or time.monotonic() - self.looked < 1:
            return
        self.looked = time.monotonic()
        lines = [(job, _standing(store.position(job.key))) for job in running]
        if self.mode == "bar":
            self._draw(lines, waiting)
            return
        for job, (epoch, text) in lines:
            if epoch > self.seen.get(job.key, 0):
                self.seen[job.key] = epoch
                self.say(f"         {job.shown}  {text}")

    def _draw(self, lines: Sequence[tuple[Job, tuple[int, str]]], waiting: int) -> None:
        from rich.table import Table

        table = Table(title=f"{self.ready} of {self.total} runs, {waiting} waiting{self._left()}", title_justify="left")
        table.add_column("under way")
        table.add_column("where it stands")
        for job, (_, text) in lines:
            table.add_row(job.shown, text)
        self.live.update(table, refresh=True)

    def _left(self) -> str:
        """By the pace so far: runs are ordered by size only roughly, so this is no promise."""
        if not self.ended or self.ready >= self.total:
            return ""
        seconds = (time.monotonic() - self.began) / self.ended * (self.total - self.ready)
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"  about {hours} h {minutes:02d} min left" if hours else f"  about {max(1, minutes)} min left"


def _standing(position: dict[str, Any] | None) -> tuple[int, str]:
    """Epochs done, and a text: the running loss and the validation error of the last epoch and of the best."""
    if position is None:
        return 0, "starting"
    rows = position["rows"]
    loss = position["loss_sum"] / position["windows"] if position["step"] else None
    text = f"epoch {position['epoch']} step {position['step']}" if loss is not None else f"epoch {len(rows)} done"
    if loss is not None:
        text += f"  loss {loss:.4f}"
    if rows:
        best = min(row["val_mse"] for row in rows)
        text += f"  loss of epoch {rows[-1]['train_loss']:.4f}  val mse {rows[-1]['val_mse']:.4f}  best {best:.4f}"
    return len(rows), text
