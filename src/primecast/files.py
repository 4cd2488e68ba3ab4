"""Files that are never half written and never run code: tensors as safetensors, everything else as JSON.

A file appears under its name only when all its bytes are on the disk: they go to a temporary name in the same folder,
are flushed, and are then renamed. Whoever is killed on the way leaves the old file as it was. Nothing is ever
unpickled; a file that cannot be read is refused with one sentence that names it.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

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


# ---------------------------------------------------------------- tensors


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file with the metadata in its header, so that both are always of the same moment."""
    # Copies, because the format refuses tensors that share memory, as tied weights do.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    write_bytes_atomically(path, save(copies, metadata=dict(metadata)))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; sizes and header are checked before anything is read."""
    try:
        with safe_open(path, framework="pt") as file:
            # Copies, so that nothing stays mapped to a file that may be replaced.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file: {error}") from error


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy the tensors into the model, once it is certain that they are this model's; `source` is for the message."""
    own = model.state_dict()
    differences = [
        f"{name} is {_kind(tensors.get(name))} there and {_kind(own.get(name))} in the model"
        for name in [*own, *sorted(tensors.keys() - own.keys())]
        if _kind(tensors.get(name)) != _kind(own.get(name))
    ]
    if differences:
        shown = "; ".join(differences[:3])
        rest = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{source} holds the weights of another model: {shown}{rest}; create the model with the settings it was "
            "trained with"
        )
    model.load_state_dict(dict(tensors))


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
