"""Cost of a model: time of a training step and of a forecast, and memory kept for the backward pass.

Letters: k timed rounds.
"""

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float64
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from primecast.analysis.maps import BATCH
from primecast.data.windows import Dataset, Splits, evenly_spaced

WARM_UP, TIMED = 2, 9


def cost(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Probe: time and memory of one batch of 32 training windows, on a copy of the model.

    step_ms:     forward, MSE, backward and Adam, in training mode. forward_ms: a forecast. CPU time of this process,
                 the fastest of nine rounds after two for warm-up: other processes on the machine can only add to it.
    step_ratio:  step_ms as a multiple of the time of `ReferenceWorkload`, timed in turns, the median. Compare this
                 between runs that were measured at different times.
    kept_mib:    storage that autograd keeps from forward to backward, each block counted once, without the weights,
                 by torch's saved-tensor hooks; without temporaries within an operation.
    step_gflop:  floating-point operations of a step in units of 1e9, as torch counts them: products of matrices alone.
    weights_mib: of the parameters; gradients and Adam's moments take three times as much again.
    """
    batch = splits.train.batch(evenly_spaced(len(splits.train), BATCH))
    twin = copy.deepcopy(model)
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-4)

    def step() -> None:
        F.mse_loss(twin(batch.x, batch.time_features), batch.y).backward()
        optimizer.step()
        optimizer.zero_grad()

    def forward() -> None:
        with torch.inference_mode():
            twin(batch.x, batch.time_features)

    with torch.random.fork_rng(devices=[]):
        twin.eval()
        [forward_seconds] = time_interleaved(forward)
        twin.train()
        steps, reference = time_interleaved(step, ReferenceWorkload())
        with FlopCounterMode(display=False) as operations:
            step()
        kept = kept_bytes(twin, lambda: F.mse_loss(twin(batch.x, batch.time_features), batch.y))
    return {
        "step_ms": 1e3 * steps.min(),
        "step_ratio": float(np.median(steps / reference)),
        "forward_ms": 1e3 * forward_seconds.min(),
        "kept_mib": kept / 2**20,
        "step_gflop": operations.get_total_flops() / 1e9,
        "weights_mib": sum(p.numel() * p.element_size() for p in twin.parameters()) / 2**20,
        "cost_batch": len(batch.x),
        "threads": torch.get_num_threads(),
    }


class ReferenceWorkload:
    """Forward and backward of two linear layers of width 256 with GELU on 352 tokens, as in a transformer."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randn(352, 256, generator=generator)
        self.weights = [(torch.randn(256, 256, generator=generator) / 16).requires_grad_() for _ in range(2)]

    def __call__(self) -> None:
        first, second = self.weights
        torch.autograd.grad((F.gelu(self.tokens @ first) @ second).square().mean(), self.weights)


def time_interleaved(*calls: Callable[[], None]) -> list[Float64[np.ndarray, "k"]]:
    """Return the CPU seconds, summed over threads, of each call in TIMED rounds; each round runs every call once."""
    seconds = np.empty((len(calls), WARM_UP + TIMED))
    for turn in range(WARM_UP + TIMED):
        for number, call in enumerate(calls):
            start = time.process_time()
            call()
            seconds[number, turn] = time.process_time() - start
    return list(seconds[:, WARM_UP:])


def kept_bytes(model: nn.Module, loss: Callable[[], Tensor]) -> int:
    """Return the bytes of storage that the graph of this loss keeps, without the model's parameters and buffers."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss()
    del value  # not before: while the graph exists, no storage is allocated twice
    return sum(kept.values())
