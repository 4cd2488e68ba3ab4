"""Prime attention in blocks that stay in cache, with its gradient written by hand.

The same numbers as `attention.attend` with a `Prime`, for training: autograd would keep every intermediate map of every
hidden unit and walk over memory once per operation. Here only the weights are kept; one block at a time, the products
of the units are formed, used and forgotten, and in the backward pass formed once more.

With k_m = u_m * k, v_m = u_m * v, G the gradient of the output, and the base a unit whose phi is 1:

    forward    s_m = q k_m^T        a = softmax(sum_m phi_m s_m)           out = sum_m (a phi_m) v_m
    backward   p_m = G v_m^T        t = sum_m phi_m p_m - G . out          (so that ds = a t)
               dphi_m = a (p_m + t s_m)
               dq = sum_m (a phi_m t) k_m        dk_m = (a phi_m t)^T q      dv_m = (a phi_m)^T G

where maps are multiplied entry by entry, and G . out, one number per query, is the row sum of a (sum_m phi_m p_m).

Letters: b batch, h heads, g 1 or h, i asking token, j answering token, k head size, m hidden units.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 2**18
"""Entries of a block's map (samples x heads x rows x columns): a megabyte of float32. Larger blocks leave the cache,
smaller ones pay for more calls; measured in docs/decisions.md."""

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
    """Slices of samples, heads and rows whose maps are about a block: whole samples, or some heads, or some rows."""
    (batch, heads, asking, _), answering = q.shape, k.shape[2]
    per_head = asking * answering
    if heads * per_head <= BLOCK:
        step = BLOCK // (heads * per_head)
        for sample in range(0, batch, step):
            yield slice(sample, sample + step), slice(None), slice(None)
        return
    some = max(1, BLOCK // per_head)
    rows = asking if per_head <= BLOCK else max(FEWEST_ROWS, BLOCK // answering)
    for sample in range(batch):
        for head in range(0, heads, some):
            for row in range(0, asking, rows):
                yield slice(sample, sample + 1), slice(head, head + some), slice(row, row + rows)


def _units(x: Tensor, gains: Tensor, base: Tensor | None) -> list[Tensor]:
    """u_m * x for each hidden unit, then beta * x when there is a base."""
    factors = [*gains.unbind(1), *([] if base is None else [base])]
    x = x.contiguous()  # heads that were split off lie apart, and every product would bring them together again
    return [x * factor[:, None] for factor in factors]


def _activations(phi: Tensor, based: bool, b: slice, h: slice, i: slice) -> list[Tensor | None]:
    """phi_m of a block for each hidden unit; None, which means 1, for the base."""
    own = h if phi.shape[1] > 1 else slice(None)
    return [*phi[b, own, :, i].unbind(2), *([None] if based else [])]


def _add_up(start: Tensor | None, units: list[Tensor | None], maps: Iterable[Tensor]) -> Tensor:
    """start + sum_m phi_m map_m; the maps are used up."""
    total = start
    for unit, part in zip(units, maps, strict=True):
        if total is None:
            total = part if unit is None else part.mul_(unit)
        else:
            total = total + part if unit is None else torch.addcmul(total, part, unit)
    assert total is not None
    return total


def _times(x: Tensor, unit: Tensor | None) -> Tensor:
    return x if unit is None else x * unit


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, phi: Tensor, gains: Tensor, base: Tensor | None, dropout: float
    ) -> Tensor:
        q = q.contiguous() * (1 / math.sqrt(q.shape[-1]))
        keys, values = _units(k, gains, base), _units(v, gains, base)
        weights = q.new_empty(*q.shape[:3], k.shape[2])
        kept = weights.new_empty(weights.shape, dtype=torch.bool).bernoulli_(1 - dropout) if dropout > 0 else None
        out = torch.empty_like(q)
        for b, h, i in _blocks(q, k):
            units = _activations(phi, base is not None, b, h, i)
            scores = _add_up(None, units, (q[b, h, i] @ key[b, h].mT for key in keys))
            a = torch.softmax(scores, -1, out=weights[b, h, i])
            if kept is not None:
                a = (a * kept[b, h, i]).div_(1 - dropout)
            out[b, h, i] = sum(_times(a, unit) @ value[b, h] for unit, value in zip(units, values, strict=True))
        ctx.save_for_backward(q, k, v, phi, gains, base, weights, kept, out)
        ctx.dropout = dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, phi, gains, base, weights, kept, out = ctx.saved_tensors
        up = up.contiguous()
        keys, values = _units(k, gains, base), _units(v, gains, base)
        dq, dphi = torch.empty_like(q), torch.zeros_like(phi, memory_format=torch.contiguous_format)
        dkeys, dvalues = [torch.zeros_like(k) for _ in keys], [torch.zeros_like(v) for _ in values]
        level = (up * out).sum(-1, keepdim=True).neg_()
        for b, h, i in _blocks(q, k):
            units = _activations(phi, base is not None, b, h, i)
            a, g, queries = weights[b, h, i], up[b, h, i], q[b, h, i]
            products = [g @ value[b, h].mT for value in values]
            if kept is None:
                dropped, t = a, _add_up(level[b, h, i], units, products)
            else:  # where a weight was dropped, only the level is felt
                share = kept[b, h, i] / (1 - ctx.dropout)
                products = [product.mul_(share) for product in products]
                dropped, t = a * share, _add_up(level[b, h, i], units, products)
            changes = []
            for m, unit in enumerate(units):
                mine = _times(a, unit) * t
                changes.append(mine @ keys[m][b, h])
                dkeys[m][b, h] += mine.mT @ queries
                dvalues[m][b, h] += _times(dropped, unit).mT @ g
                if unit is not None:
                    change = torch.addcmul(products[m], queries @ keys[m][b, h].mT, t).mul_(a)
                    if phi.shape[1] > 1:
                        dphi[b, h, m, i] = change
                    else:  # all heads read the same units
                        dphi[b, 0, m, i] += change.sum(1)
            dq[b, h, i] = sum(changes)
        dunits = torch.stack([(dkeys[m] * k + dvalues[m] * v).sum((0, 2)) for m in range(len(keys))], dim=1)
        factors = gains if base is None else torch.cat([gains, base[:, None]], dim=1)
        dk, dv = (
            torch.stack([part * factor[:, None] for part, factor in zip(parts, factors.unbind(1), strict=True)]).sum(0)
            for parts in (dkeys, dvalues)
        )
        dgains, dbase = (dunits, None) if base is None else (dunits[:, :-1], dunits[:, -1])
        return dq / math.sqrt(q.shape[-1]), dk, dv, dphi, dgains, dbase, None
