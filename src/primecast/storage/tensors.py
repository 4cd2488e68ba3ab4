"""Tensors in files, as safetensors: nothing is ever unpickled, and sizes are checked before anything is read.

A model's folder holds two files that belong together, config.json and model.safetensors, and no system renames two
files at once. So the configuration holds the sha256 of its weights, and between the two renames it holds the previous
configuration, too: whichever weights are there, the configuration that belongs to them is beside them.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.storage.atomic import read_json, refuse_os_errors, write_bytes_atomically, write_json

# ---------------------------------------------------------------- tensors


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata as one safetensors file, so that both are always of the same moment."""
    write_bytes_atomically(path, save(_copies(tensors), metadata=dict(metadata)))


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies, because the format refuses tensors that share memory, as tied weights do."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the sha256 of names, dtypes, shapes and bytes of the tensors, and of the metadata."""
    header = json.dumps([describe_tensors(tensors), dict(metadata)], sort_keys=True)
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        digest.update(tensors[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_tensors(path: Path, expected: Mapping[str, str] | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file; sizes are checked before anything is read.

    expected: the tensors it must hold, no more and no less, as {"name": "float32[5, 3]"}; they must also be finite.
    """
    try:
        with refuse_os_errors(f"read {path}"), safe_open(path, framework="pt") as file:
            mapped = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if expected is not None:
                _check_tensors(describe_tensors(mapped), expected, source=str(path))
            # Copies, so that nothing stays mapped to a file that may be replaced.
            tensors = {name: tensor.clone() for name, tensor in mapped.items()}
            metadata = dict(file.metadata() or {})
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file: {error}") from error
    for name, tensor in tensors.items() if expected is not None else ():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{path} cannot be used: {name} holds values that are not finite numbers")
    return tensors, metadata


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy the tensors into the model if they are this model's; `source` names them in the error message."""
    _check_tensors(describe_tensors(tensors), describe_tensors(model.state_dict()), source=source)
    model.load_state_dict(dict(tensors))


def describe_tensor(tensor: Tensor) -> str:
    """Return dtype and shape of a tensor as text: "float32[5, 3]"."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def describe_tensors(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return `describe_tensor` of each."""
    return {name: describe_tensor(tensor) for name, tensor in tensors.items()}


def _check_tensors(found: Mapping[str, str], expected: Mapping[str, str], *, source: str) -> None:
    differences = [
        f"{name} is {found.get(name, 'missing')} there and {expected.get(name, 'missing')} in the model"
        for name in [*expected, *sorted(found.keys() - expected.keys())]
        if found.get(name) != expected.get(name)
    ]
    if differences:
        rest = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{source} holds the weights of another model: {'; '.join(differences[:3])}{rest}; create the model with "
            "the settings it was trained with"
        )


# ---------------------------------------------------------------- the folder of a model

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
LARGEST_CONFIG = 16 << 20
"""Bytes: what is larger was not written by `save_folder`."""


def save_folder(
    folder: Path, *, form: str, config: Mapping[str, object], tensors: Mapping[str, Tensor], card: str
) -> None:
    """Write config.json, model.safetensors and README.md; a process killed on the way leaves the old ones or the new.

    form: the kind of object the folder holds, such as "primecast.Forecaster"; no other folder is overwritten.
    """
    blob = save(_copies(tensors))
    new = {"form": form, "sha256": hashlib.sha256(blob).hexdigest(), **config}
    old = _present(folder, form)
    write_json(folder / CONFIG, new if old is None else {**new, "previous": old})
    write_bytes_atomically(folder / WEIGHTS, blob)
    if old is not None:
        write_json(folder / CONFIG, new)
    write_bytes_atomically(folder / CARD, card.encode())


def open_folder(folder: Path, *, form: str) -> dict[str, Any]:
    """Return the configuration in the folder, once it is certain that it belongs to the weights there."""
    path = folder / CONFIG
    if path.is_file() and path.stat().st_size > LARGEST_CONFIG:
        raise InputError(f"{path} has {path.stat().st_size} bytes: that is no configuration")
    config = read_json(path)
    if not isinstance(config, dict) or config.get("form") != form:
        given = config.get("form") if isinstance(config, dict) else type(config).__name__
        raise InputError(f"{path} is not of a {form} but of {given!r}")
    digest = _digest(folder / WEIGHTS)
    previous = config.pop("previous", None)
    for one in (config, previous):
        if isinstance(one, dict) and one.get("sha256") == digest:
            return {name: value for name, value in one.items() if name not in ("form", "sha256")}
    raise InputError(
        f"{folder / WEIGHTS} is not what {path} was saved with: it is truncated, damaged or of another model"
    )


def _present(folder: Path, form: str) -> dict[str, Any] | None:
    """Return the whole configuration of what is in the folder now; None if nothing readable is."""
    path = folder / CONFIG
    if not path.exists():
        return None
    config = read_json(path)
    if not isinstance(config, dict) or config.get("form") != form:
        raise InputError(f"{path} was not written by primecast for a {form}: save into a folder of its own")
    with suppress(InputError):
        return {"form": form, "sha256": _digest(folder / WEIGHTS), **open_folder(folder, form=form)}
    return None


def _digest(path: Path) -> str:
    with refuse_os_errors(f"read {path}"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
