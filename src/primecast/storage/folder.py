"""The folder of a saved model: config.json, model.safetensors and README.md, always those of one model.

No system renames two files at once. So the configuration holds the sha256 of its weights, and between the two renames
it holds the previous configuration, too: whichever weights are there, the configuration that belongs to them is beside
them. A lock keeps two that save at once apart. Whoever loads verifies the bytes that are then used, and begins anew if
another process saved in between.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from primecast.errors import InputError
from primecast.storage.atomic import (
    check_regular,
    clear_temporaries,
    lock_folder,
    open_bounded,
    read_bytes,
    read_json,
    refuse_os_errors,
    write_bytes_atomically,
    write_json,
)
from primecast.storage.tensors import LARGEST, LARGEST_HEADER, as_bytes, count_bytes, parse_tensors

T = TypeVar("T")
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
ATTEMPTS = 1000
"""How often a folder is read that is saved into without pause."""


def save_folder(
    folder: Path, *, form: str, config: Mapping[str, object], tensors: Mapping[str, Tensor], card: str
) -> None:
    """Write config.json, model.safetensors and README.md; a process killed on the way leaves the old ones or the new.

    form: the kind of object the folder holds, such as "primecast.Forecaster"; no other folder is overwritten, see
    `check_replaceable`.
    """
    blob = as_bytes(tensors, {})
    new = with_checksum({"form": form, "sha256": hashlib.sha256(blob).hexdigest(), **config})
    check_replaceable(folder, form=form)  # before it is touched
    with lock_folder(folder, wait=True):
        for name in (CONFIG, WEIGHTS, CARD):  # or the first would be written when the last cannot be
            check_regular(folder / name)
        clear_temporaries(folder, CONFIG, WEIGHTS, CARD)
        old = _present(folder, form)
        # First, so that weights and a card that are alone are known to be somebody else's.
        write_json(folder / CONFIG, new if old is None else {**new, "previous": old})
        write_bytes_atomically(folder / WEIGHTS, blob)
        if old is not None:
            write_json(folder / CONFIG, new)
        write_bytes_atomically(folder / CARD, card.encode())


def check_replaceable(folder: Path, *, form: str) -> None:
    """Refuse a folder that holds a file of somebody else under one of our names."""
    with refuse_os_errors(f"write into {folder}"):
        alone = [] if (folder / CONFIG).exists() else [name for name in (WEIGHTS, CARD) if (folder / name).exists()]
        if alone:
            raise _not_ours(folder / alone[0], form)
        _present(folder, form)


def _not_ours(path: Path, form: str) -> InputError:
    return InputError(f"{path} was not written by primecast for a {form}: save into a folder of its own")


def with_checksum(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with a checksum of its other fields, by which damage to it is found."""
    fields = {name: value for name, value in config.items() if name not in ("previous", "checksum")}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return {**config, "checksum": digest}


def read_consistently(folder: Path, read: Callable[[], T]) -> T:
    """Return `read()` of the folder; read again where another process saved into it meanwhile."""
    for _ in range(ATTEMPTS):
        before = _identity(folder)
        try:
            return read()
        except InputError:
            if _identity(folder) == before:
                raise
    raise InputError(f"cannot read {folder}: other processes save into it without pause")


def _identity(folder: Path) -> list[tuple[int, int, int]]:
    """Return numbers that change with every rename in the folder."""
    found = []
    for name in (CONFIG, WEIGHTS):
        with suppress(OSError):
            status = (folder / name).stat()
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return found


def open_folder(folder: Path, *, form: str) -> tuple[dict[str, Any], str]:
    """Return the configuration of the weights that are in the folder, and the sha256 of these weights."""
    path = folder / CONFIG
    with refuse_os_errors(f"read {folder}"):
        if not folder.exists():
            raise InputError(f"there is no folder {str(folder)!r}")
    config = read_json(path)
    if not isinstance(config, dict) or config.get("form") != form:
        given = config.get("form") if isinstance(config, dict) else type(config).__name__
        raise InputError(f"{path} is not of a {form} but of {given!r}")
    with open_bounded(folder / WEIGHTS, largest=LARGEST) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    previous = config.pop("previous", None)
    for one in (config, previous):
        if isinstance(one, dict) and one.get("sha256") == digest:
            if not _fits_checksum(one):
                raise InputError(f"{path} was changed or is damaged: its checksum does not match its content")
            return {name: value for name, value in one.items() if name not in ("form", "sha256", "checksum")}, digest
    raise _mismatch(folder)


def read_weights(folder: Path, sha256: str, expected: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the tensors of the folder, if they are those of this sha256 and have these types and shapes."""
    path = folder / WEIGHTS
    blob = read_bytes(path, largest=min(LARGEST, count_bytes(expected.values()) + LARGEST_HEADER))
    if hashlib.sha256(blob).hexdigest() != sha256:
        raise _mismatch(folder)
    return parse_tensors(blob, expected, source=str(path))[0]


def _fits_checksum(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration has the checksum of its other fields; folders of before 0.2 have none."""
    try:
        return config.get("checksum") in (None, with_checksum(config)["checksum"])
    except RecursionError:  # nested deeper than any that is saved
        return False


def _mismatch(folder: Path) -> InputError:
    return InputError(
        f"{folder / WEIGHTS} is not what {folder / CONFIG} was saved with: it is truncated, damaged or of another model"
    )


def _present(folder: Path, form: str) -> dict[str, Any] | None:
    """Return the whole configuration of what is in the folder now; None if nothing readable is."""
    path = folder / CONFIG
    if not path.exists():
        return None
    config = read_json(path)
    if not isinstance(config, dict) or config.get("form") != form:
        raise _not_ours(path, form)
    with suppress(InputError):
        present, digest = open_folder(folder, form=form)
        return with_checksum({"form": form, "sha256": digest, **present})
    return None
