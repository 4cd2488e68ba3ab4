"""Tensors in files, as safetensors: nothing is ever unpickled, and sizes are checked before anything is read."""

import hashlib
import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from primecast.errors import InputError
from primecast.storage.atomic import read_bytes, write_bytes_atomically

LARGEST = 1 << 31
"""Bytes: a file of tensors, and a model, may have at most so many."""
LARGEST_HEADER = 1 << 24
"""Bytes: what a file of tensors may have besides them."""
MOST_TENSORS = 10_000
"""Weights and buffers of a model, at most."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata as one safetensors file, so that both are always of the same moment."""
    write_bytes_atomically(path, as_bytes(tensors, metadata))


def as_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return the content of a safetensors file."""
    # Copies, because the format refuses tensors that share memory, as tied weights do.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    return save(copies, metadata=dict(metadata) or None)


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the sha256 of names, dtypes, shapes and bytes of the tensors, and of the metadata."""
    header = json.dumps([describe_tensors(tensors), dict(metadata)], sort_keys=True)
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        digest.update(tensors[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_tensors(path: Path, *, largest: int = LARGEST) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file of at most `largest` bytes."""
    return parse_tensors(read_bytes(path, largest=largest), source=str(path))


def parse_tensors(
    blob: bytes, expected: Mapping[str, str] | None = None, *, source: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata in the bytes of a safetensors file; `source` names it in messages.

    expected: the tensors it must hold, no more and no less, as {"name": "float32[5, 3]"}; they must also be finite.
    """
    try:
        tensors = load(blob)
        header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
    except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a type of number that torch has not
        reason = f"unknown type {error}" if isinstance(error, KeyError) else error
        raise InputError(f"{source} is not a whole safetensors file: {reason}") from error
    if expected is not None:
        _check_tensors(describe_tensors(tensors), expected, source=source)
    for name, tensor in tensors.items():
        if expected is not None and tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{source} cannot be used: {name} holds values that are not finite numbers")
        if tensor.dtype == torch.bool and (tensor.view(torch.uint8) > 1).any():
            raise InputError(f"{source} cannot be used: {name} holds values that are neither true nor false")
    return tensors, dict(header.get("__metadata__") or {})


def count_bytes(kinds: Iterable[str]) -> int:
    """Return the bytes that tensors of these types and shapes take.

    >>> count_bytes(["float32[5, 3]", "bool[]"])
    61
    """
    parts = (kind[:-1].partition("[") for kind in kinds)
    sizes = ((dtype, [int(size) for size in shape.split(", ") if size]) for dtype, _, shape in parts)
    return sum(getattr(torch, dtype).itemsize * math.prod(shape) for dtype, shape in sizes)


@contextmanager
def bounded_model() -> Iterator[None]:
    """Refuse to go on with building a model of more than LARGEST bytes or MOST_TENSORS tensors; only in this thread."""
    thread, count, size = threading.get_ident(), 0, 0

    def add(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal count, size
        if tensor is None or threading.get_ident() != thread:
            return
        count, size = count + 1, size + tensor.nbytes
        if size > LARGEST or count > MOST_TENSORS:
            raise InputError(
                f"the model is too large: it has more than {LARGEST >> 20} MiB of weights"
                if size > LARGEST
                else f"the model is too large: it has more than {MOST_TENSORS} weights and buffers"
            )

    with register_module_parameter_registration_hook(add), register_module_buffer_registration_hook(add):
        yield


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
