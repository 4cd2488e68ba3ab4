"""Where and how precisely a model computes: its device, its precision, and the memory of the process."""

import ctypes
import sys
from itertools import chain

import torch
from torch import nn

from primecast.errors import check_known
from primecast.training.distributed import local_device

PRECISIONS = {
    "float32": "everything in float32",
    "bf16": "products of forward and backward in bfloat16 (torch's autocast); weights, moments and sums in float32",
}


def select_device(name: str | None, model: nn.Module) -> torch.device:
    """Return the device of this name, this process's own GPU for "cuda"; for None the device the model is on."""
    if name is None:
        tensor = next(chain(model.parameters(), model.buffers()), None)
        return torch.device("cpu") if tensor is None else tensor.device
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    available = ["cpu", *(["cuda", *gpus] if gpus else []), *(["mps"] if torch.backends.mps.is_available() else [])]
    check_known("device", name, available)
    return local_device(torch.device(name))


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which a model computes with this precision, a name in PRECISIONS."""
    check_known("precision", precision, PRECISIONS)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def keep_large_blocks() -> bool:
    """Make the C library keep large blocks of memory for the next step instead of returning them to the system.

    By default glibc maps blocks above a threshold (128 KiB, growing to at most 32 MiB) afresh and unmaps them when
    they are freed, and shrinks its heap whenever the top of it is free. Each training step then pays a page fault for
    every 4 KiB of its temporaries. With this setting the process stays as large as its largest step. The setting holds
    for the whole process and cannot be undone. Return False where there is no glibc: nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h
    mapped = any(mallopt(mmap_threshold, size) for size in (1 << 30, 32 << 20))  # old glibc allows 32 MiB at most
    return bool(mallopt(trim_threshold, -1)) and mapped  # -1: never
