"""Slow, obvious versions of what the package computes fast: loops, in float64."""

import math

import numpy as np
import torch
from torch import Tensor


def attention_by_loops(q: Tensor, k: Tensor, v: Tensor, filters: Tensor | None = None, modulate: str = "kv") -> Tensor:
    """(b, h, n, k) tensors and F (b, i, j, h * k) or None; one pair at a time."""
    batch, heads, asking, size = q.shape
    out = torch.zeros_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(asking):
                scores, values = [], []
                for j in range(k.shape[2]):
                    factor = torch.ones_like(q[b, h, i])
                    if filters is not None:
                        factor = filters[b, i, j, h * size : (h + 1) * size]
                    key = k[b, h, j] * factor if "k" in modulate else k[b, h, j]
                    values.append(v[b, h, j] * factor if "v" in modulate else v[b, h, j])
                    scores.append((q[b, h, i] * key).sum() / math.sqrt(size))
                weights = torch.stack(scores).softmax(0)
                out[b, h, i] = (weights[:, None] * torch.stack(values)).sum(0)
    return out


def lead_lag_by_sums(series: np.ndarray) -> np.ndarray:
    """(n, l) -> (n, n, l): (1/l) sum_s x_i(s) x_j((s + t) mod l), summed term by term."""
    channels, length = series.shape
    out = np.zeros((channels, channels, length))
    for i in range(channels):
        for j in range(channels):
            for lag in range(length):
                for step in range(length):
                    out[i, j, lag] += series[i, step] * series[j, (step + lag) % length] / length
    return out
