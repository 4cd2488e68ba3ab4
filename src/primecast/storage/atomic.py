"""Files that are never half written: a file appears under its name only when all its bytes are on the disk.

They are written to a temporary name in the same folder, flushed, and then renamed. A process killed on the way leaves
the old file as it was. Only regular files of a bounded size are read; what cannot be read is refused with one sentence
that names it.
"""

import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from primecast.errors import InputError

LARGEST_JSON = 16 << 20
"""Bytes: no JSON file that primecast writes is larger."""


@contextmanager
def refuse_os_errors(action: str) -> Iterator[None]:
    """Turn an error of the operating system into an InputError: "cannot `action`: No such file or directory"."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise InputError(f"cannot {action}: {getattr(error, 'strerror', None) or error}") from error


# ---------------------------------------------------------------- writing


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """Write the file so that it holds either its old content or all of `data`, whatever happens in between."""
    with refuse_os_errors(f"write {path}"):
        check_regular(path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        if os.name != "nt":  # flush the rename itself, an entry of the folder; Windows does not open folders
            handle = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def check_regular(path: Path) -> None:
    """Refuse to write in the place of a folder, or of a device such as /dev/null: a rename would replace it."""
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write {path}: it is {'a folder' if path.is_dir() else 'no regular file'}")


def write_json(path: Path, value: object) -> None:
    """Write JSON that people and every JSON reader can read: indented, UTF-8, no NaN."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with refuse_os_errors(f"write {path}"):
        data = (text + "\n").encode()
    write_bytes_atomically(path, data)


@contextmanager
def lock_folder(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Keep others who lock the folder out until the end, however it ends; yield False if somebody else has it.

    wait: until it is free. The system frees the locks of dead processes. Windows has no such lock: there nobody is
    kept out.
    """
    with refuse_os_errors(f"write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = None if sys.platform == "win32" else _lock(folder / ".lock", wait=wait)
    if lock is None:
        yield sys.platform == "win32"
        return
    with lock:
        try:
            yield True
        finally:
            (folder / ".lock").unlink(missing_ok=True)


def _lock(path: Path, *, wait: bool) -> IO[bytes] | None:
    """Return the file, locked; None if somebody else has locked it."""
    import fcntl

    while True:
        # A FIFO would make it wait, and a link would create a file elsewhere.
        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.close()
                raise InputError(f"cannot lock {path}: it is not a regular file")
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        file.close()  # the one who had it deleted it at the end: the lock of a file that nobody else can find


def clear_lock(folder: Path) -> None:
    """Delete the lock file that a killed process has left in the folder; one that somebody holds stays."""
    if (folder / ".lock").exists():
        with suppress(InputError), lock_folder(folder, wait=False):  # InputError: none of ours, or not ours to delete
            pass


def clear_temporaries(folder: Path, *names: str) -> None:
    """Delete what processes that were killed while they wrote these files have left; nobody may be writing them."""
    for name in names:
        for stale in folder.glob(f".{name}.*.tmp"):
            with suppress(OSError):  # none of ours, such as a folder
                stale.unlink()


# ---------------------------------------------------------------- reading


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading; anything else is refused: a device may never end, a FIFO never begin."""
    # O_NONBLOCK: to open a FIFO that nobody writes into would wait for ever.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"cannot read {path}: it is not a regular file")
    return os.fdopen(handle, "rb")


@contextmanager
def open_bounded(path: Path, *, largest: int) -> Iterator[IO[bytes]]:
    """Open a regular file of at most `largest` bytes for reading."""
    with refuse_os_errors(f"read {path}"), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise InputError(f"cannot read {path}: it has {size} bytes, and at most {largest} are expected")
        yield file


def read_bytes(path: Path, *, largest: int) -> bytes:
    """Return the content of a regular file of at most `largest` bytes."""
    with open_bounded(path, largest=largest) as file:
        return file.read(largest)


def read_json(path: Path) -> Any:
    """Return the value in a JSON file."""
    text = read_bytes(path, largest=LARGEST_JSON)
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if b"\\u" in text:  # half a character, a lone surrogate, could not be written again
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
