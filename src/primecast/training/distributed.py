"""Processes that train one model together, each on its part of every batch.

    torchrun --nproc-per-node 2 -m primecast run ETTh1

Every process holds the whole model and all windows and makes every step; of each batch it computes its part. Losses
and gradients of the parts are averaged with the sizes of the parts as weights, so each step is the one that a single
process makes with the whole batch, up to rounding. They travel as one flat vector, one exchange per step.

torch's DistributedDataParallel is not used: it wraps `forward`, which a model with a `training_loss` of its own
bypasses; it weights unequal parts equally; it waits for gradients that never come where only a part is trained.

Two things differ from one process: dropout, which every process draws for itself, and batch normalization, whose
statistics are those of a part (the running ones are averaged like gradients).

gloo connects CPUs, nccl GPUs. Nothing here has been run on GPUs.
"""

import atexit
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from jaxtyping import Int64, Shaped
from torch import Tensor, nn

from primecast.errors import InputError


def launched() -> bool:
    """Return whether the environment, as torchrun sets it, makes this process one of several."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main() -> bool:
    """Return whether this process is the one that writes and prints: the first, or the only one."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return not launched() or os.environ["RANK"] == "0"


def local_device(device: torch.device) -> torch.device:
    """Return this process's own GPU for "cuda" without a number; any other device as it is."""
    if device == torch.device("cuda") and launched():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


def join(device: torch.device) -> "ProcessGroup":
    """Connect with the processes that train together; all of them must call it. They stay connected until they end."""
    if not dist.is_available() or not (launched() or dist.is_initialized()):
        return ProcessGroup()
    if device.type == "mps":
        raise InputError("the device mps is one device, which cannot be shared: train in one process, or on cpu")
    if not dist.is_initialized():
        dist.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl")
        atexit.register(dist.destroy_process_group)
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that call the same methods in the same order; in a group of one, each method costs nothing."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def own_seed(self, seed: int) -> int:
        """Return a seed for this process; the main process has the seed itself, so one process is no special case."""
        return seed if self.is_main else _number(f"{seed} of process {self.rank}")

    def own_part(self, index: Int64[Tensor, "b"]) -> Int64[Tensor, "c"]:
        """Return this process's part; parts differ by at most one, and the last are empty where there are too few."""
        return index.tensor_split(self.size)[self.rank]

    def sum(self, values: Shaped[Tensor, "*any"]) -> Shaped[Tensor, "*any"]:
        """Sum over processes, in place: the same bits for all of them."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, own: Shaped[Tensor, "*any"]) -> list[Shaped[Tensor, "*any"]]:
        """Return the tensors of all processes, to each of them."""
        if self.size == 1:
            return [own]
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(gathered, own)
        return gathered

    def broadcast_weights(self, model: nn.Module) -> None:
        """Give every process the weights of the main process."""
        if self.size > 1:
            with torch.no_grad():
                for tensor in [*model.parameters(), *model.buffers()]:
                    dist.broadcast(tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor, src=0)

    def average(
        self, loss: Tensor | None, parameters: Sequence[nn.Parameter], model: nn.Module, *, fraction: float
    ) -> float:
        """Return the loss of the whole batch; gradients and running statistics become those of the whole batch, too.

        loss:     None where this process's part is empty.
        fraction: how much of the batch is this process's part.

        A parameter without a gradient in all processes stays without.
        """
        if self.size == 1:
            assert loss is not None
            return loss.item()
        statistics = _running_statistics(model)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        present = [float(p.grad is not None) for p in parameters]
        head = torch.tensor([0.0 if loss is None else loss.item(), *present], device=gradients[0].device)
        parts = [head, *gradients, *statistics]
        flat = torch.cat([part.flatten() for part in parts])
        # Zero times an infinite statistic would be NaN.
        flat = flat.mul_(fraction) if fraction else flat.zero_()
        head, *averages = self.sum(flat).split([part.numel() for part in parts])
        value, *present = head.tolist()
        for parameter, average, found in zip(parameters, averages, present, strict=False):
            parameter.grad = average.view_as(parameter) if found else None
        for statistic, average in zip(statistics, averages[len(parameters) :], strict=True):
            statistic.copy_(average.view_as(statistic))
        return value

    def check_equal(self, arguments: Mapping[str, object]) -> None:
        """Refuse arguments that differ between processes: they would wait for each other for ever."""
        hashes = self.gather(torch.tensor([_number(json.dumps(value)) for value in arguments.values()]))
        for name, column in zip(arguments, zip(*(own.tolist() for own in hashes), strict=True), strict=True):
            if len(set(column)) > 1:
                raise InputError(
                    f"the {self.size} processes that train together must be given the same, but their {name} differs"
                )


def _running_statistics(model: nn.Module) -> list[Tensor]:
    modules = [module for module in model.modules() if getattr(module, "track_running_stats", False)]
    return [buffer for module in modules for buffer in module.buffers(recurse=False) if buffer.is_floating_point()]


def _number(text: str) -> int:
    """Return 60 bits of a hash: equal for equal texts, and small enough for a seed or an int64."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)
