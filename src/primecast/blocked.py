"""Prime attention in blocks that stay in cache, with its gradient written by hand.

The same numbers as `attention.attend` with a `Prime`, for training: autograd would keep every intermediate map of every
hidden unit and walk over memory once per operation. Here only the weights are kept; one block of queries at a time, the
products of the units are formed, used and forgotten, and in the backward pass formed once more.

With k_m = u_m * k, v_m = u_m * v, G the gradient of the output, and the base a unit whose phi is 1:

    forward    s_m = q k_m^T          a = softmax(sum_m phi_m o s_m)            out = sum_m (a o phi_m) v_m
    backward   p_m = G v_m^T          da = sum_m phi_m o p_m                    ds = a o (da - rowsum(a o da))
               dphi_m = a o p_m + ds o s_m
               dq  = sum_m (phi_m o ds) k_m        dk_m = (phi_m o ds)^T q      dv_m = (a o phi_m)^T G

Letters: b batch, h heads, g 1 or h, i asking token, j answering token, k head size, m hidden units.
"""

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 2**17
"""Entries of a block's map (samples x heads x rows x columns): half a megabyte of float32, which second-level caches
hold together with the few other maps a block needs. Measured in docs/decisions.md."""

FEWEST_ROWS = 16
"""Fewer rows at a time than this would waste the matrix products."""


def blocked_attention(
    q: Float[Tensor, "b h i k"],
    k: Float[Tensor, "b h j k"],
    v: Float[Tensor, "b h j k"],
    phi: Float[Tensor, "b g m i j"],
    gains: Float[Tensor, "h m k"],
    base: Float[Tensor, "h k"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h i k"]:
    """softmax and mix of prime attention; differentiable once, in everything but the dropout."""
    return cast(Tensor, _Blocked.apply(q, k, v, phi, gains, base, dropout))  # type: ignore[no-untyped-call]


def _blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of samples, heads and rows: many samples at once when maps are small, a few rows of one when large."""
    (batch, heads, asking, _), answering = q.shape, k.shape[2]
    per_sample = heads * asking * answering
    if per_sample <= BLOCK:
        step = max(1, BLOCK // per_sample)
        for start in range(0, batch, step):
            yield slice(start, start + step), slice(None), slice(None)
        return
    rows = max(FEWEST_ROWS, BLOCK // answering)
    for sample in range(batch):
        for head in range(heads):
            for start in range(0, asking, rows):
                yield slice(sample, sample + 1), slice(head, head + 1), slice(start, start + rows)


def _units(x: Tensor, gains: Tensor, base: Tensor | None) -> list[Tensor]:
    """u_m * x for each hidden unit, then beta * x when there is a base."""
    factors = [*gains.unbind(1), *([] if base is None else [base])]
    return [x * factor[:, None] for factor in factors]


def _activations(phi: Tensor, based: bool, b: slice, h: slice, i: slice) -> list[Tensor | None]:
    """phi_m of a block for each hidden unit; None, which means 1, for the base."""
    own = h if phi.shape[1] > 1 else slice(None)
    return [*phi[b, own, :, i].unbind(2), *([None] if based else [])]


def _times(x: Tensor, unit: Tensor | None) -> Tensor:
    return x if unit is None else x * unit


def _combine(units: list[Tensor | None], maps: Iterator[Tensor]) -> Tensor:
    """sum_m phi_m o map_m, in place in the first product."""
    total: Tensor | None = None
    for unit, part in zip(units, maps, strict=True):
        if total is None:
            total = part if unit is None else part * unit
        else:
            total = total.add_(part) if unit is None else total.addcmul_(part, unit)
    assert total is not None
    return total


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, phi: Tensor, gains: Tensor, base: Tensor | None, dropout: float
    ) -> Tensor:
        q = q * (1 / math.sqrt(q.shape[-1]))
        keys, values = _units(k, gains, base), _units(v, gains, base)
        weights = q.new_empty(*q.shape[:3], k.shape[2])
        kept = weights.new_empty(weights.shape, dtype=torch.bool).bernoulli_(1 - dropout) if dropout > 0 else None
        out = torch.empty_like(q)
        for b, h, i in _blocks(q, k):
            units = _activations(phi, base is not None, b, h, i)
            scores = _combine(units, (q[b, h, i] @ key[b, h].mT for key in keys))
            a = scores.softmax(-1)
            weights[b, h, i] = a
            if kept is not None:
                a = (a * kept[b, h, i]).div_(1 - dropout)
            out[b, h, i] = sum(_times(a, unit) @ value[b, h] for unit, value in zip(units, values, strict=True))
        ctx.save_for_backward(q, k, v, phi, gains, base, weights, kept)
        ctx.dropout = dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, phi, gains, base, weights, kept = ctx.saved_tensors
        keys, values = _units(k, gains, base), _units(v, gains, base)
        dq, dphi = torch.zeros_like(q), torch.zeros_like(phi, memory_format=torch.contiguous_format)
        dkeys, dvalues = [torch.zeros_like(k) for _ in keys], [torch.zeros_like(v) for _ in values]
        for b, h, i in _blocks(q, k):
            units = _activations(phi, base is not None, b, h, i)
            a, g, queries = weights[b, h, i], up[b, h, i], q[b, h, i]
            products = [g @ value[b, h].mT for value in values]
            da, dropped = _combine(units, iter(products)), a
            if kept is not None:
                dropped = (a * kept[b, h, i]).div_(1 - ctx.dropout)
                da = (da * kept[b, h, i]).div_(1 - ctx.dropout)
            ds = a * (da - (a * da).sum(-1, keepdim=True))
            for m, unit in enumerate(units):
                mine = _times(ds, unit)
                dq[b, h, i] += mine @ keys[m][b, h]
                dkeys[m][b, h] += mine.mT @ queries
                dvalues[m][b, h] += _times(dropped, unit).mT @ g
                if unit is not None:
                    change = (queries @ keys[m][b, h].mT).mul_(ds).addcmul_(dropped, products[m])
                    if phi.shape[1] > 1:
                        dphi[b, h, m, i] = change
                    else:  # all heads read the same units
                        dphi[b, 0, m, i] += change.sum(1)
        dunits = torch.stack([(dkeys[m] * k + dvalues[m] * v).sum((0, 2)) for m in range(len(keys))], dim=1)
        factors = gains if base is None else torch.cat([gains, base[:, None]], dim=1)
        dk, dv = (
            torch.stack([part * factor[:, None] for part, factor in zip(parts, factors.unbind(1), strict=True)]).sum(0)
            for parts in (dkeys, dvalues)
        )
        dgains, dbase = (dunits, None) if base is None else (dunits[:, :-1], dunits[:, -1])
        return dq / math.sqrt(q.shape[-1]), dk, dv, dphi, dgains, dbase, None
