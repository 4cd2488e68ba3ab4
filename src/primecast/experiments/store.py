"""Where results are kept: one JSON per run, named by the run's key, with its arrays beside it.

    folder/<key>.json          the fields of a row: the run is there if and only if this file is whole
    folder/<key>.npz           its arrays, written before the JSON
    folder/claims/<key>.json   somebody is at it: host, process, a token, and a heartbeat, which is the file's own time
    folder/state/<key>/        where its training stands; gone once the row is there

Several processes and machines may write into one folder: every file appears whole under its name or not at all, a claim
can be made by one alone, and a row that comes a second time must say the same as the first. A row that cannot be read
counts as missing.

Clocks do not decide who owns a run: a computer that sleeps loses no claim to its own processes, which are known to be
alive. A claim of another machine is taken over when whoever wants it has watched it for a while, awake, without a
heartbeat. Should its owner be alive after all, its token tells it that the run is no longer its own, and it stops.
"""

import io
import json
import math
import os
import secrets
import shutil
import socket
import time
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from primecast.errors import InputError
from primecast.storage.atomic import (
    clear_lock,
    clear_temporaries,
    open_bounded,
    read_json,
    refuse_os_errors,
    write_bytes_atomically,
    write_json,
)

SCORES = ("mse", "mae")
AGREE = 1e-5
"""Two runs of one key agree if their scores do, relative to their size: other processors round differently."""
STALE = 120.0
"""Seconds of watching without a heartbeat after which a claim of another machine may be taken over."""
LARGEST_ARRAYS = 1 << 30
LARGEST_HEADER = 1 << 26
"""Bytes: no file of arrays, and no header of a state, is larger."""
LOOK = 1.0
"""Seconds that one look at a claim can count for, at most."""


class StoreError(InputError):
    """Two rows of one key disagree: something that influences a run is not in its key, or a file was changed."""


@dataclass(frozen=True)
class Row:
    """What a run leaves: flat fields that can be written as JSON, and arrays by name.

    also: the row of another run that this one was, too: the same without its probes, or scored at another horizon.
    """

    fields: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    also: "Row | None" = None

    @property
    def key(self) -> str:
        return str(self.fields["key"])


class Store:
    """A folder of rows; it is made when the first thing is written into it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.tokens: dict[str, str] = {}  # of the claims made here
        self._whole: dict[str, object] = {}  # rows that were found whole, by what tells that they changed
        self._watched: dict[str, Watch] = {}  # claims of others

    # ---------------------------------------------------------------- rows

    def has(self, key: str) -> bool:
        """Whether the row is there and can be read; a damaged one counts as missing."""
        files = (self._path(key), self._path(key).with_suffix(".npz"))
        status = [_identity(path) for path in files]
        if status[0] is None:
            return False
        if self._whole.get(key) != status:
            try:
                if not _is_row(read_json(self._path(key)), key):
                    return False
                self.arrays(key)
            except InputError:
                return False
            self._whole[key] = status
        return True

    def keys(self) -> list[str]:
        """Of all rows that are there, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.json") if self.has(path.stem))

    def add(self, row: Row) -> None:
        """Keep a row, after the rows it is `also`, and clear away its state; of two that agree the first is kept."""
        if row.also is not None:
            self.add(row.also)
        if self.has(row.key):
            must_agree(self.fields(row.key), row.fields, where=self.folder)
        else:
            if row.arrays:
                buffer = io.BytesIO()
                np.savez_compressed(buffer, **row.arrays)  # type: ignore[arg-type]  # numpy 2.0 knows no allow_pickle
                write_bytes_atomically(self._path(row.key).with_suffix(".npz"), buffer.getvalue())
            write_json(self._path(row.key), row.fields)
        self.clear_state(row.key)

    def fields(self, key: str) -> dict[str, Any]:
        fields: dict[str, Any] = read_json(self._path(key))
        return fields

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Empty where the run left none."""
        path = self._path(key).with_suffix(".npz")
        if not path.exists():
            return {}
        with open_bounded(path, largest=LARGEST_ARRAYS) as file:
            try:
                with np.load(file, allow_pickle=False) as arrays:
                    return {name: arrays[name] for name in arrays.files}
            except (
                AttributeError,
                EOFError,
                KeyError,
                NotImplementedError,
                ValueError,
                zipfile.BadZipFile,
                zlib.error,
            ) as error:
                raise InputError(f"{path} is damaged: {error}") from error

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    # ---------------------------------------------------------------- states of runs under way

    def state(self, key: str) -> Path:
        """The folder of a run's training state, for `fit`."""
        return self.folder / "state" / key

    def clear_state(self, key: str) -> None:
        shutil.rmtree(self.state(key), ignore_errors=True)

    def position(self, key: str) -> dict[str, Any] | None:
        """How far a run under way has come, as its state says (see TrainingProgress); None before the first write."""
        try:
            with open_bounded(self.state(key) / "state.safetensors", largest=1 << 40) as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(length, LARGEST_HEADER)))
            position: dict[str, Any] = json.loads(header["__metadata__"]["progress"])
        except (KeyError, RecursionError, TypeError, ValueError):  # ValueError: of JSON, and every InputError
            return None
        return position if isinstance(position, dict) else None

    # ---------------------------------------------------------------- claims

    def claim(self, key: str) -> bool:
        """Whether the run is now this process's to do; a claim whose owner is gone is taken over."""
        path = self._claim(key)
        with refuse_os_errors(f"write into {path.parent}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            there = self._owner(path)
            if there is not None:
                if not self._is_gone(key, there):
                    return False
                # Whoever renames it has it out of the way; a live claim moved by mistake is put back.
                aside = path.with_name(f".{key}.{secrets.token_hex(4)}.stale")
                try:
                    path.rename(aside)
                except FileNotFoundError:
                    return False
                if self._owner(aside) != there:
                    if not path.exists():
                        aside.rename(path)
                    return False
                aside.unlink(missing_ok=True)
            token = secrets.token_hex(8)
            mine = path.with_name(f".{key}.{token}.new")
            try:
                mine.write_text(json.dumps(_me() | {"token": token}), encoding="utf-8")
                os.link(mine, path)  # whole or not at all, and refused if there is one
            except (FileExistsError, FileNotFoundError):  # somebody else has it, or its row is there: see clear_claim
                return False
            finally:
                mine.unlink(missing_ok=True)
        self.tokens[key] = token
        clear_temporaries(self.folder, f"{key}.json", f"{key}.npz")
        return True

    def owns(self, key: str, token: str | None = None) -> bool:
        """Whether the run is still of this token, by default that of the claim made here."""
        owner, mine = self._owner(self._claim(key)) or {}, token or self.tokens.get(key)
        return mine is not None and owner.get("token") == mine

    def beat(self, key: str) -> bool:
        """Say that this process is still at it; False if the run is no longer its own."""
        if not self.owns(key):
            return False
        with suppress(FileNotFoundError):
            os.utime(self._claim(key))
        return True

    def release(self, key: str) -> None:
        """Give up the claim made here, and what the worker, if it was killed, has left of a lock."""
        if key in self.tokens and self.owns(key):
            clear_lock(self.state(key))
            self._claim(key).unlink(missing_ok=True)
        self.tokens.pop(key, None)

    def clear_claim(self, key: str) -> None:
        """Delete what is left of claims whose owners are gone, once the row is there."""
        path = self._claim(key)
        there = self._owner(path)
        for left in path.parent.glob(f".{key}.*"):
            left.unlink(missing_ok=True)
        if there is not None and self._is_gone(key, there):
            path.unlink(missing_ok=True)

    def _claim(self, key: str) -> Path:
        return self.folder / "claims" / f"{key}.json"

    def _owner(self, path: Path) -> dict[str, Any] | None:
        """Return who has a claim; None without one, nobody in particular if it cannot be read."""
        if not path.exists():
            return None
        try:
            owner = read_json(path)
        except InputError as error:
            return None if isinstance(error.__cause__, FileNotFoundError) else {}
        return owner if isinstance(owner, dict) else {}

    def _is_gone(self, key: str, owner: Mapping[str, Any]) -> bool:
        """Return whether the owner of a claim is known to be gone, or has been silent while it was watched."""
        me = _me()
        if owner.get("host") == me["host"]:
            return not _is_alive(owner.get("process"), owner.get("started"))
        watch = self._watched.setdefault(key, Watch())
        return watch.look(_identity(self._claim(key))) > STALE


@dataclass
class Watch:
    """How long a claim has been watched without a change, on the watcher's own clock and only while it was awake."""

    seen: object = None
    last: float = 0.0
    seconds: float = 0.0

    def look(self, now: object) -> float:
        time_now = time.monotonic()
        # A second at most between two looks: a computer that slept in between has not watched.
        self.seconds = 0.0 if now != self.seen else self.seconds + min(LOOK, time_now - self.last)
        self.seen, self.last = now, time_now
        return self.seconds


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return numbers that change whenever a file does; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_row(fields: object, key: str) -> bool:
    """Return whether these are the fields of a row of this key, with finite scores."""
    return (
        isinstance(fields, dict)
        and fields.get("key") == key
        and all(isinstance(fields.get(score), int | float) and abs(fields[score]) < math.inf for score in SCORES)
    )


def _me() -> dict[str, Any]:
    return {"host": socket.gethostname(), "process": os.getpid(), "started": _started(os.getpid())}


def _started(process: int) -> str | None:
    """Return when a process started, which tells it from a later one of the same number; None where it is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path(f'/proc/{process}/stat').read_text(encoding='utf-8').rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return None


def must_agree(there: Mapping[str, Any], new: Mapping[str, Any], *, where: Path) -> None:
    """Refuse a second row of one key whose scores are not those of the first, and show both."""
    for score in SCORES:
        if not abs(there[score] - new[score]) <= AGREE * abs(there[score]):
            shown = ("mse", "mae", "val_mse", "epochs", "best_epoch", "hardware", "versions")
            both = "\n".join(
                f"  {name}: {json.dumps({column: row.get(column) for column in shown})}"
                for name, row in (("there", there), ("new", new))
            )
            other = any(there.get(name) != new.get(name) for name in ("hardware", "versions"))
            reason = "; hardware, threads or versions differ, so that bits may, too" if other else ""
            raise StoreError(
                f"run {there['key']} is already in {where} with another score: {score} {there[score]:.8g} "
                f"there, {new[score]:.8g} now{reason}\n{both}\nboth are kept out of each other's way: the first stays"
            )


def _is_alive(process: object, started: object) -> bool:
    if not isinstance(process, int) or isinstance(process, bool) or not 0 < process < 1 << 31:
        return False
    if os.name == "nt":  # where signal 0 would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started is None or _started(process) in (None, started)


# ---------------------------------------------------------------- how long a run will take


LIKENESS = ("model", "dataset", "attention", "horizon", "lookback")
"""What makes runs alike, most important first."""


def estimate_seconds(done: Iterable[Mapping[str, Any]], wanted: Mapping[str, Any]) -> float | None:
    """Mean seconds of the runs most like the wanted one; None if none is of the same model."""
    rows = list(done)
    for count in range(len(LIKENESS), 0, -1):
        names = LIKENESS[:count]
        like = [float(row["seconds"]) for row in rows if all(row[name] == wanted[name] for name in names)]
        if like:
            return sum(like) / len(like)
    return None
