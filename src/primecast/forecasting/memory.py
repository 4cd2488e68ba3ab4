"""How much memory a training will need, said before it starts."""

import os
from functools import partial
from pathlib import Path

from primecast.errors import InputError
from primecast.forecasting.arguments import Arguments, tensor_kinds
from primecast.models import attention_size
from primecast.storage.tensors import count_bytes

COPIES = 5
"""Of the parameters: themselves, gradients, Adam's two moments, the best ones so far."""
GIGABYTE = 10**9


class MemoryNeededError(InputError):
    """A training that needs more memory than the machine has."""


def check_memory(arguments: Arguments, *, channels: int, n_time_features: int) -> None:
    """Refuse the training of a model on the CPU that needs more memory than the machine has."""
    there = machine_memory()
    if arguments.device != "cpu" or there is None:
        return
    needed = needed_bytes(arguments, channels=channels, n_time_features=n_time_features)
    if needed > there:
        batch_size = max(1, int(arguments.batch_size * there / needed / 2))
        raise MemoryNeededError(
            f"to train {arguments.model} with {arguments.attention_name} attention on {channels} channels, batch_size "
            f"{arguments.batch_size}, takes about {needed / GIGABYTE:.0f} GB of memory, and this machine has "
            f"{there / GIGABYTE:.0f} GB: take fewer channels, batch_size={batch_size} or model='dlinear'"
        )


def check_forecast_memory(arguments: Arguments, *, channels: int, n_time_features: int) -> None:
    """Refuse a model whose attention map of one window alone takes more memory than the machine has."""
    there = machine_memory()
    sizes = {"lookback": arguments.lookback, "channels": channels, "n_time_features": n_time_features}
    entries, _ = attention_size(arguments.model, **sizes, **(arguments.model_args or {}))
    if there is not None and 4 * entries > there:
        raise MemoryNeededError(
            f"a forecast of {channels} channels by {arguments.model} takes {4 * entries / GIGABYTE:.0f} GB of memory, "
            f"and this machine has {there / GIGABYTE:.0f} GB"
        )


def needed_bytes(arguments: Arguments, *, channels: int, n_time_features: int) -> int:
    """Return about how many bytes a training step needs: parameters and attention maps, the rest is small.

    Of each map of 4-byte numbers three are kept per layer (scores, weights, dropout), and two more at the peak, as
    measured with 100 to 700 channels and 2 or 4 layers; primers of pair features take up to twice as much.
    """
    sizes = {"channels": channels, "n_time_features": n_time_features}
    parameters = count_bytes(tensor_kinds(partial(arguments.build_model, **sizes)).values())
    entries, layers = attention_size(
        arguments.model, lookback=arguments.lookback, **sizes, **(arguments.model_args or {})
    )
    return COPIES * parameters + 4 * arguments.batch_size * entries * (3 * layers + 2)


def machine_memory() -> int | None:
    """Return the bytes of memory this process may use; None where the system does not tell."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    try:
        return min(total, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return total
