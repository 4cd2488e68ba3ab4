"""Files that are never half written: a file appears under its name only when all its bytes are on the disk.

They go to a temporary name in the same folder, are flushed, and are then renamed. Whoever is killed on the way leaves
the old file as it was; a file that cannot be read is refused with one sentence that names it.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any

from primecast.errors import InputError

# ---------------------------------------------------------------- bytes and JSON


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """The file holds either what it held before or all of `data`, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _flush_folder(path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _flush_folder(folder: Path) -> None:
    """The rename itself is on the disk only once its folder is; Windows does not let a folder be opened."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: object) -> None:
    """Readable by people and by every JSON reader: indented, UTF-8, no NaN."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes_atomically(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
