"""Files that are never half written: a file appears under its name only when all its bytes are on the disk.

They are written to a temporary name in the same folder, flushed, and then renamed. A process killed on the way leaves
the old file as it was; a file that cannot be read is refused with one sentence that names it.
"""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from primecast.errors import InputError


@contextmanager
def refuse_os_errors(action: str) -> Iterator[None]:
    """Turn an error of the operating system into an InputError: "cannot `action`: No such file or directory"."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot {action}: {error.strerror or error}") from error


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """Write the file so that it holds either its old content or all of `data`, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with refuse_os_errors(f"write {path}"):
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


def write_json(path: Path, value: object) -> None:
    """Write JSON that people and every JSON reader can read: indented, UTF-8, no NaN."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes_atomically(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """Return the value in a JSON file."""
    with refuse_os_errors(f"read {path}"):
        text = path.read_bytes()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
