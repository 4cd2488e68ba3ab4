"""Many runs at once: `run_all` does what the store lacks.

    specs ─> jobs ─> claim ─> engine ─> row in the store ─> next

A sweep holds no result itself: killing it loses what the runs under way did since they last wrote their state, and the
same call continues from there.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from primecast.errors import InputError, check_known
from primecast.experiments.display import SweepDisplay
from primecast.experiments.engines import ATTEMPTS, ENGINES, Engine, Job
from primecast.experiments.spec import Spec
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


def run_all(
    specs: Iterable[Spec],
    store: Store,
    *,
    engine: str = "local",
    workers: int | None = None,
    root: Path | str | None = None,
    progress: str = "auto",
    address: str | None = None,
) -> Report:
    """Run what is not in the store yet, in the order given; the same call continues a sweep that was interrupted.

    engine:  "local": a process with one thread for each run, `workers` at a time, as many as there are cores when
             None. "ray": a task for each run on the Ray cluster at `address`, or on one started here.
    Specs that differ in the horizon they are scored at alone are trained once. A spec that fails does not stop the
    others: its message is in the report.
    """
    check_known("engine", engine, ENGINES)
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1")
    report = Report()
    jobs = _jobs(specs, store, root, report.failed)
    waiting = [job for job in jobs if not store.has(job.key)]
    report.there = len(jobs) - len(waiting)
    for job in jobs:
        if store.has(job.key):
            store.clear_state(job.key)  # of a process killed between writing its row and clearing up
            store.clear_claim(job.key)
    if not waiting:
        return report

    store.folder.mkdir(parents=True, exist_ok=True)
    where = None if root is None else str(Path(root).absolute())
    with SweepDisplay(progress, total=len(jobs), there=report.there) as display:
        crew = ENGINES[engine](store, workers=workers, root=where, address=address)
        try:
            _loop(waiting, store, crew, report, display)
        except KeyboardInterrupt:
            left = sum(not store.has(job.key) for job in jobs)
            raise Interrupted(
                f"interrupted: {len(jobs) - left} of {len(jobs)} runs are there, {left} are left; the same command "
                "continues"
            ) from None
        finally:
            crew.close()
            for job in jobs:
                store.release(job.key)
    return report


def _jobs(specs: Iterable[Spec], store: Store, root: Path | str | None, refused: dict[str, str]) -> list[Job]:
    """Return a job for each training that the specs need; the message of a spec that is no run goes into `refused`."""
    groups: dict[str, dict[str, Spec]] = {}  # by what specs of one training have in common
    for spec in specs:
        try:
            groups.setdefault(spec.training, {})[spec.key(root)] = spec
        except InputError as error:
            refused[str(spec)] = str(error)
    return [_job(group, store) for group in groups.values() if group]


def _job(group: Mapping[str, Spec], store: Store) -> Job:
    """Return the job of specs that need one training: those that are missing; its first row is written last."""
    missing = {key: spec for key, spec in group.items() if not store.has(key)} or group
    (key, spec), *others = missing.items()
    return Job(key, json.dumps([spec.to_json(), [other.horizon for _, other in others]]), str(spec))


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
                engine.start(replace(job, token=store.tokens[job.key]))
                display.started(job)
        for outcome in engine.ended():
            job = running.pop(outcome.job.key)
            store.release(job.key)
            if outcome.taken_over:
                waiting.append(job)  # until its row is there, or its new owner is gone
            elif outcome.lost and attempts[job.key] < ATTEMPTS:
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
                store.beat(key)  # a run that was taken over ends by itself: its worker looks at the token, too
        display.show(running.values(), len(waiting), store)
        if waiting or running:
            time.sleep(POLL)
