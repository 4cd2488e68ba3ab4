"""Where results are kept: one JSON per run, named by the run's key, with its arrays beside it.

    folder/<key>.json          the fields of a row: the run is there if and only if this file is
    folder/<key>.npz           its arrays, written before the JSON
    folder/claims/<key>.json   somebody is at it: host, process, and a heartbeat, which is the file's own time
    folder/state/<key>/        where its training stands; gone once the row is there

Several processes and machines may write into one folder: every file appears whole under its name or not at all, a claim
can be made by one alone, and a row that comes a second time must say the same as the first.
"""

import io
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from primecast.errors import InputError
from primecast.storage.atomic import read_json, write_bytes_atomically, write_json

SCORES = ("mse", "mae")
AGREE = 1e-5
"""Two runs of one key agree if their scores do, relative to their size: other processors round differently."""
STALE = 120.0
"""Seconds without a heartbeat after which a claim may be taken over."""


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

    # ---------------------------------------------------------------- rows

    def has(self, key: str) -> bool:
        return self._path(key).exists()

    def keys(self) -> list[str]:
        """Of all rows that are there, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def add(self, row: Row) -> None:
        """Keep a row, after the rows it is `also`, and clear away its state; of two that agree the first is kept."""
        if row.also is not None:
            self.add(row.also)
        if self.has(row.key):
            must_agree(self.fields(row.key), row.fields, where=self.folder)
        else:
            if row.arrays:
                buffer = io.BytesIO()
                np.savez_compressed(buffer, allow_pickle=False, **row.arrays)
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
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

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
            with safe_open(self.state(key) / "state.safetensors", framework="np") as file:
                position: dict[str, Any] = json.loads(file.metadata()["progress"])
        except (OSError, SafetensorError):
            return None
        return position

    # ---------------------------------------------------------------- claims

    def claim(self, key: str) -> bool:
        """Whether the run is now this process's to do; a claim whose owner is gone is taken over."""
        path = self._claim(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        there = self._owner(path)
        if there is not None:
            if not self._is_stale(path, there):
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
        mine = path.with_name(f".{key}.{secrets.token_hex(4)}.new")
        mine.write_text(json.dumps(_me()), encoding="utf-8")
        try:
            os.link(mine, path)  # whole or not at all, and refused if there is one
        except FileExistsError:
            return False
        finally:
            mine.unlink()
        return True

    def beat(self, key: str) -> None:
        """Say that this process is still at it."""
        with suppress(FileNotFoundError):  # taken over after a long silence; the rows will agree
            os.utime(self._claim(key))

    def release(self, key: str) -> None:
        if self._owner(self._claim(key)) == _me():
            self._claim(key).unlink(missing_ok=True)

    def _claim(self, key: str) -> Path:
        return self.folder / "claims" / f"{key}.json"

    def _owner(self, path: Path) -> dict[str, Any] | None:
        try:
            owner: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return owner

    def _is_stale(self, path: Path, owner: Mapping[str, Any]) -> bool:
        if owner.get("host") == socket.gethostname() and not _is_alive(owner.get("process")):
            return True
        clock = path.with_name(f".{secrets.token_hex(4)}.now")  # the folder's own clock: machines differ
        clock.touch()
        try:
            return clock.stat().st_mtime - path.stat().st_mtime > STALE
        except FileNotFoundError:
            return True
        finally:
            clock.unlink()


def _me() -> dict[str, Any]:
    return {"host": socket.gethostname(), "process": os.getpid()}


def must_agree(there: Mapping[str, Any], new: Mapping[str, Any], *, where: Path) -> None:
    """Refuse a second row of one key whose scores are not those of the first, and show both."""
    for score in SCORES:
        if not abs(there[score] - new[score]) <= AGREE * abs(there[score]):
            shown = ("mse", "mae", "val_mse", "epochs", "best_epoch", "hardware", "versions")
            both = "\n".join(
                f"  {name}: {json.dumps({column: row.get(column) for column in shown})}"
                for name, row in (("there", there), ("new", new))
            )
            raise StoreError(
                f"run {there['key']} is already in {where} with another score: {score} {there[score]:.8g} "
                f"there, {new[score]:.8g} now\n{both}\nboth are kept out of each other's way: the first stays"
            )


def _is_alive(process: object) -> bool:
    if not isinstance(process, int) or os.name == "nt":  # where signal 0 would end the process; wait for the heartbeat
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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
