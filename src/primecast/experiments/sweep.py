"""Many runs at once: `sweep` does what the store lacks.

    jobs ─> claim ─> engine ─> row in the store ─> next

A sweep holds no result itself: killing it loses what the runs under way did since they last wrote their state, and the
same call continues from there.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from primecast.errors import InputError, unknown
from primecast.experiments.display import SweepDisplay
from primecast.experiments.engines import ATTEMPTS, ENGINES, Engine, Job, Task, create_engine
from primecast.experiments.store import Store

HEARTBEAT = 10.0
POLL = 0.2


@dataclass
class Report:
    """What a sweep did; `failed` has a message for each job that could not be done."""

    there: int = 0  # before it began
    done: int = 0
    elsewhere: int = 0  # done meanwhile by another process
    failed: dict[str, str] = field(default_factory=dict)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: the workers have ended; the message says what is left."""


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
    """Do the jobs whose rows the store lacks, in order, as many at a time as the engine takes. See `run_all`."""
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
        crew = create_engine(engine, task, store, workers=workers, root=where, address=address)
        try:
            _loop(waiting, store, crew, report, display)
        except KeyboardInterrupt:
            left = sum(not store.has(job.key) for job in wanted)
            raise Interrupted(
                f"interrupted: {len(wanted) - left} of {len(wanted)} runs are there, {left} are left; the same command "
                "continues"
            ) from None
        finally:
            crew.close()
            for job in wanted:
                store.release(job.key)
    return report


def _loop(waiting: list[Job], store: Store, engine: Engine, report: Report, display: SweepDisplay) -> None:
    running: dict[str, Job] = {}
    attempts: dict[str, int] = {}
    beat = time.monotonic()
    while waiting or running:
        for job in list(waiting):
            if len(running) >= engine.capacity:
                break
            if store.has(job.key):
                waiting.remove(job)
                report.elsewhere += 1
                display.done(job, store)
            elif store.claim(job.key):
                if store.has(job.key):  # its row came between the two checks
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
                display.write(f"worker lost, running again: {job.label}")
            elif outcome.error is not None:
                report.failed[job.label] = outcome.error
                display.failed(job, outcome.error)
            else:
                report.done += 1
                display.done(job, store)
        if time.monotonic() - beat > HEARTBEAT:
            beat = time.monotonic()
            for key in running:
                store.beat(key)
        display.show(running.values(), len(waiting), store)
        if waiting or running:
            time.sleep(POLL)
