"""Tensors on the disk, as safetensors: nothing is ever unpickled, and sizes are checked before anything is read.

A model's folder holds two files that belong together, config.json and model.safetensors, and no system renames two
files at once. So the configuration names its weights by their sha256, and for the moment between the two renames it
holds the old configuration, too: whichever weights lie there, the configuration that is theirs lies beside them.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.storage.atomic import read_json, write_bytes_atomically, write_json

# ---------------------------------------------------------------- tensors


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file with the metadata in its header, so that both are always of the same moment."""
    write_bytes_atomically(path, save(_copies(tensors), metadata=dict(metadata)))


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies, because the format refuses tensors that share memory, as tied weights do."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


KINDS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip
"""Types as safetensors writes them and as torch does."""


def load_tensors(path: Path, expected: Mapping[str, str] | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; sizes and header are checked before anything is read.

    expected: what there must be, no more and no less, as {"name": "float32[5, 3]"}; numbers must then be finite, too.
    """
    try:
        with safe_open(path, framework="pt") as file:
            if expected is not None:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                there = {
                    name: f"{KINDS.get(part.get_dtype(), part.get_dtype())}{list(part.get_shape())}"
                    for name, part in slices.items()
                }
                _check_kinds(there, expected, source=str(path))
            # Copies, so that nothing stays mapped to a file that may be replaced.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file: {error}") from error
    for name, tensor in tensors.items() if expected is not None else ():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{path} cannot be used: {name} holds values that are not finite numbers")
    return tensors, metadata


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """Copy the tensors into the model, once it is certain that they are this model's; `source` is for the message."""
    there = {name: kind_of(tensor) for name, tensor in tensors.items()}
    _check_kinds(there, {name: kind_of(tensor) for name, tensor in model.state_dict().items()}, source=source)
    model.load_state_dict(dict(tensors))


def kind_of(tensor: Tensor) -> str:
    """Type and shape of a tensor in words: "float32[5, 3]"."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _check_kinds(there: Mapping[str, str], expected: Mapping[str, str], *, source: str) -> None:
    differences = [
        f"{name} is {there.get(name, 'missing')} there and {expected.get(name, 'missing')} in the model"
        for name in [*expected, *sorted(there.keys() - expected.keys())]
        if there.get(name) != expected.get(name)
    ]
    if differences:
        shown = "; ".join(differences[:3])
        rest = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{source} holds the weights of another model: {shown}{rest}; create the model with the settings it was "
            "trained with"
        )


# ---------------------------------------------------------------- the folder of a model

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
LARGEST_CONFIG = 16 << 20
"""Bytes: what is larger was not written by `save_folder`."""


def save_folder(
    folder: Path, *, form: str, config: Mapping[str, object], tensors: Mapping[str, Tensor], card: str
) -> None:
    """Write config.json, model.safetensors and README.md; whoever is killed on the way leaves the old ones or the new.

    form: what kind of thing the folder holds, such as "primecast.Forecaster"; no other folder is overwritten.
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
    """The configuration that belongs to the weights in the folder, once it is certain that it does."""
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
    """The whole configuration of what lies in the folder now; None where nothing readable does."""
    path = folder / CONFIG
    if not path.exists():
        return None
    config = read_json(path)
    if not isinstance(config, dict) or config.get("form") != form:
        raise InputError(f"{path} was not written by primecast for a {form}: save into a folder of its own")
    try:
        own = open_folder(folder, form=form)
        return {"form": form, "sha256": _digest(folder / WEIGHTS), **own}
    except InputError:
        return None


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
