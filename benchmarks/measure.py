"""Time and memory measurements, and the rows they are stored in.

Time:    contenders are interleaved, A B C, C B A, A B C ...; a sample repeats its call until it lasts 30 ms; a value is
         a median with its quartiles, a comparison the ratio of two medians of one run. One thread.
Memory:  the peak resident memory of a fresh process minus that of the same process after making its inputs only.
Rows:    one JSON object per line, written as soon as it is measured, with machine, versions, commit and the number of
         cores that other processes used meanwhile (`others`): a row of a busy machine is provisional.

The allocator keeps large blocks for all contenders, as in `primecast.training.loop.fit`; rows of memory measured
without that have `keep_blocks` false.
"""

import argparse
import gc
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from primecast.storage.atomic import write_bytes_atomically
from primecast.training.device import keep_large_blocks

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS, QUICK, ENVS = HERE / "results", HERE / ".quick", HERE / ".envs"

SAMPLE = 0.03
"""Minimum seconds of a sample: much longer than the resolution of the clock and a time slice of the scheduler."""

BUSY = 0.15
"""Cores used by other processes above which a row is provisional; an idle system uses a few hundredths."""


def prepare_process(*, keep_blocks: bool = True) -> None:
    """Set threads, seed and allocator; every process that measures calls this first."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if keep_blocks:
        keep_large_blocks()


# ---------------------------------------------------------------- time


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median and quartiles over samples, each of which is `inner` calls."""

    seconds: float
    low: float
    high: float
    samples: int
    inner: int


def time_interleaved(
    calls: Mapping[str, Callable[[], object]], *, seconds: float, fewest: int = 5, most: int = 31
) -> dict[str, Timing]:
    """Time calls in alternating order: `seconds` is divided among them, at least `fewest` samples (3 above 2 s)."""
    inner, rounds = {}, {}
    for name, call in calls.items():
        once = sample(call)
        if once < 1:  # the first call also loads, allocates and plans, which dominates a short one
            once = sample(call)
        inner[name] = max(1, math.ceil(SAMPLE / once))
        fits = int(seconds / len(calls) / (inner[name] * once))
        rounds[name] = min(most, max(fewest if once < 2 else 3, fits))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(max(rounds.values())):
            order = list(calls) if turn % 2 == 0 else list(calls)[::-1]
            for name in order:
                if turn < rounds[name]:
                    samples[name].append(sample(calls[name], inner[name]))
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return {name: summarize(values, inner[name]) for name, values in samples.items()}


def summarize(values: Sequence[float], inner: int = 1) -> Timing:
    low, median, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Timing(median, low, high, len(values), inner)


def sample(call: Callable[[], object], inner: int = 1) -> float:
    """Return the seconds per call over `inner` consecutive calls."""
    began = time.perf_counter()
    for _ in range(inner):
        call()
    return (time.perf_counter() - began) / inner


# ---------------------------------------------------------------- fresh processes


def peak_bytes() -> int:
    """Return the peak resident memory of this process; getrusage would include the parent's before exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM: peak memory is measured on Linux only")


def run_fresh(
    script: Path, job: Mapping[str, object], *, python: Path | str = sys.executable, timeout: float = 900
) -> dict[str, Any]:
    """Run `script --job JOB` in a new process and return the JSON of its last line of output."""
    command = [str(python), str(script), "--job", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment())
    if done.returncode:
        raise RuntimeError(
            f"{script.name} --job {json.dumps(job)} ended with {done.returncode}:\n{done.stderr[-2000:]}"
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def peer_python(name: str) -> Path:
    """Return the interpreter of an environment that `install.py --prepare` made."""
    python = ENVS / name / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing: run python benchmarks/install.py --prepare first")
    return python


def environment() -> dict[str, str]:
    """Return environment variables with one thread everywhere and without this process's Python paths."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return kept | threads | {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}


class Others:
    """Cores used by processes other than this one and its children: `with Others() as others: ...; others.cores`."""

    cores: float | None = None

    def __enter__(self) -> "Others":
        self._began = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        began, now = self._began, self._now()
        if began is not None and now is not None:
            wall, busy, own = (b - a for a, b in zip(began, now, strict=True))
            self.cores = round(max(0.0, (busy - own) / max(wall, 1e-9)), 2)

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        try:
            ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except OSError:
            return None
        user, nice, system, _, _, interrupts, soft, stolen = ticks
        busy = (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, sum(os.times()[:4])


# ---------------------------------------------------------------- rows


@cache
def stamp() -> dict[str, object]:
    """Return the machine, versions and commit of a row."""
    packages = ("torch", "numpy", "pandas", "primecast")
    return {
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "commit": _commit(),
        "threads": torch.get_num_threads(),
    }


def _cpu() -> str:
    try:
        fields = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    except OSError:
        return platform.processor()
    found = {name.strip(): value.strip() for name, value in fields}
    return f"{found.get('model name', '?')} family {found.get('cpu family', '?')} model {found.get('model', '?')}"


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", "src") else "")


@dataclass
class Rows:
    """The rows of one part by id, in the order of their first measurement; a new measurement replaces a row."""

    path: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, part: str) -> "Rows":
        path = folder / f"{part}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return cls(path, {row["id"]: row for row in map(json.loads, lines)})

    def settled(self, *names: str) -> bool:
        """Return whether all these rows exist and are not provisional."""
        return all(name in self.rows and not self.rows[name]["provisional"] for name in names)

    def put(self, name: str, others: Others | None, **values: object) -> None:
        """Store a row; others is None for counts, which do not depend on how busy the machine is."""
        cores = None if others is None else others.cores
        provisional = others is not None and (cores is None or cores > BUSY)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"id": name, **values, "others": cores, "provisional": provisional, "at": now}
        # Read again: another process may have added rows since.
        self.rows = Rows.open(self.path.parent, self.path.stem).rows | {name: row | stamp()}
        text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in self.rows.values())
        write_bytes_atomically(self.path, text.encode())

    def put_timings(self, timings: Mapping[str, Timing], others: Others, *, against: str, **values: object) -> None:
        """Store one row per contender with its ratio to the contender `against`."""
        case = case_id(values)
        for what, timing in timings.items():
            ratio = round(timing.seconds / timings[against].seconds, 4)
            numbers = {name: round(getattr(timing, name), 9) for name in ("seconds", "low", "high")}
            rest = {"samples": timing.samples, "inner": timing.inner, "ratio": ratio, "against": against}
            self.put(f"{case} {what}", others, **values, what=what, **numbers, **rest)


def case_id(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def read_rows(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return part -> id -> row of all parts in the folder."""
    return {path.stem: Rows.open(folder, path.stem).rows for path in sorted(folder.glob("*.jsonl"))}


# ---------------------------------------------------------------- on the terminal


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(
            *("" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value) for value in row)
        )
    Console(width=110).print(table)


def show_timings(title: str, timings: Mapping[str, Timing], against: str) -> None:
    rows = [
        (
            what,
            1e3 * t.seconds,
            f"{1e3 * t.low:.3g} - {1e3 * t.high:.3g}",
            t.samples,
            t.seconds / timings[against].seconds,
        )
        for what, t in timings.items()
    ]
    show(title, ("what", "ms", "quartiles", "samples", f"/ {against}"), rows)


def parser(description: str | None, parts: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the options that all three benchmarks share."""
    found = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    found.add_argument("--part", "--only", dest="parts", nargs="+", choices=parts, default=list(parts))
    found.add_argument("--quick", action="store_true", help=f"a reduced grid, rows into {QUICK.relative_to(ROOT)}")
    found.add_argument("--resume", action="store_true", help="skip rows that exist and are not provisional")
    found.add_argument("--job", help=argparse.SUPPRESS)
    return found


def folder(arguments: argparse.Namespace) -> Path:
    return QUICK if arguments.quick else RESULTS
