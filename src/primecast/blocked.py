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
Half-precision inputs are computed in single precision: a block's maps stay in cache either way.

Letters: b batch, h heads, g 1 or h, i asking token, j answering token, k head size, m hidden units.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from primecast.dropout import draw, share

BLOCK = 2**18
"""Entries of a block's map (samples x heads x rows x columns): a megabyte of float32. Larger blocks leave the cache,
smaller ones pay for more calls; measured in docs/decisions.md."""

FEWEST_ROWS = 16
"""Fewer rows at a time than this would waste the matrix products."""

DEVICE_BLOCK = 2**26
"""The same on other devices than a CPU, where calls cost more and caches are not ours; not measured."""


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
    inputs = [q, k, v, phi, gains, base]
    precision = torch.float64 if q.dtype == torch.float64 else torch.float32
    with torch.autocast(q.device.type, enabled=False):
        out = _Blocked.apply(*(None if t is None else t.to(precision) for t in inputs), dropout)  # type: ignore[no-untyped-call]
        return cast(Tensor, out).to(q.dtype)


def _blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of samples, heads and rows whose maps are about a block: whole samples, or some heads, or some rows."""
    (batch, heads, asking, _), answering = q.shape, k.shape[2]
    block = BLOCK if q.device.type == "cpu" else DEVICE_BLOCK
    per_head = asking * answering
    if heads * per_head <= block:
        step = block // (heads * per_head)
        for sample in range(0, batch, step):
            yield slice(sample, sample + step), slice(None), slice(None)
        return
    some = max(1, block // per_head)
    parts = 1 if per_head <= block else math.ceil(asking / max(FEWEST_ROWS, block // answering))
    rows = math.ceil(asking / parts)
    for sample in range(batch):
        for head in range(0, heads, some):
            for row in range(0, asking, rows):
                yield slice(sample, sample + 1), slice(head, head + some), slice(row, row + rows)


def _factors(gains: Tensor, base: Tensor | None) -> list[Tensor]:
    """u_m of each hidden unit, then beta when there is a base; ready to be multiplied with keys and values."""
    return [u[:, None] for u in (*gains.unbind(1), *([] if base is None else [base]))]


def _activations(phi: Tensor, based: bool, b: slice, h: slice, i: slice) -> list[Tensor | None]:
    """phi_m of a block for each hidden unit; None, which means 1, for the base."""
    own = h if phi.shape[1] > 1 else slice(None)
    return [*phi[b, own, :, i].unbind(2), *([None] if based else [])]


def _flat(x: Tensor) -> Tensor:
    """Samples and heads as one axis, as batched products want them; a view, since a block has one of the two whole."""
    return x.flatten(0, 1)


def _add_up(start: Tensor | None, units: list[Tensor | None], maps: Iterable[Tensor]) -> Tensor:
    """start + sum_m phi_m map_m. Without a start the first map is used up."""
    total = start
    for unit, part in zip(units, maps, strict=True):
        if total is None:
            total = part if unit is None else part.mul_(unit)
        elif total is start:
            total = total + part if unit is None else torch.addcmul(total, part, unit)
        else:
            total = total.add_(part) if unit is None else total.addcmul_(part, unit)
    assert total is not None
    return total


def _times(x: Tensor, unit: Tensor | None, out: Tensor) -> None:
    if unit is None:
        out.copy_(x)
    else:
        torch.mul(x, unit, out=out)


def _product(x: Tensor, y: Tensor, *, into: Tensor, add: bool) -> None:
    if add:
        into.baddbmm_(x, y)
    else:
        torch.bmm(x, y, out=into)


def _add_to_activations(dphi: Tensor, change: Tensor, a: Tensor, h: slice) -> None:
    """Into the gradient of one unit: change * a of each head (grouped), or their sum, which the first heads begin."""
    if dphi.shape[1] > 1:
        torch.mul(change, a, out=dphi[:, h])
    elif change.shape[1] > 1:
        total = change.mul_(a).sum(1, keepdim=True)
        dphi.copy_(total) if h.start in (None, 0) else dphi.add_(total)
    elif h.start in (None, 0):
        torch.mul(change, a, out=dphi)
    else:
        dphi.addcmul_(change, a)


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, phi: Tensor, gains: Tensor, base: Tensor | None, dropout: float
    ) -> Tensor:
        # Heads that were split off lie apart, and every product would bring them together again.
        q, k, v = q.contiguous() * (1 / math.sqrt(q.shape[-1])), k.contiguous(), v.contiguous()
        factors = _factors(gains, base)
        keys, values = [k * u for u in factors], [v * u for u in factors]
        weights = q.new_empty(*q.shape[:3], k.shape[2])
        bits = draw(*weights.shape, device=q.device) if dropout > 0 else None
        out = torch.empty_like(q)
        for b, h, i in _blocks(q, k):
            units, a, queries = _activations(phi, base is not None, b, h, i), weights[b, h, i], _flat(q[b, h, i])
            scores = _add_up(None, units, (torch.bmm(queries, _flat(key[b, h]).mT).view(a.shape) for key in keys))
            torch.softmax(scores, -1, out=a)
            if bits is not None:
                a = a * share(bits[b, h, i], dropout, a.dtype)
            mixed, seen = _flat(out[b, h, i]), scores  # not needed any more: it serves as scratch
            for m, (unit, value) in enumerate(zip(units, values, strict=True)):
                primed = a if unit is None else torch.mul(a, unit, out=seen)
                _product(_flat(primed), _flat(value[b, h]), into=mixed, add=m > 0)
        ctx.save_for_backward(q, k, v, phi, gains, base, weights, bits, out)
        ctx.dropout = dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(up.device.type, enabled=False):
            return _backward(ctx.dropout, up.contiguous(), *ctx.saved_tensors)


def _backward(
    dropout: float,
    up: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Tensor,
    gains: Tensor,
    base: Tensor | None,
    weights: Tensor,
    bits: Tensor | None,
    out: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of everything `_Blocked.forward` was given; q comes scaled."""
    factors = _factors(gains, base)
    keys, values = [k * u for u in factors], [v * u for u in factors]
    dkeys, dvalues = [torch.zeros_like(k) for _ in keys], [torch.zeros_like(v) for _ in values]
    dq = torch.empty_like(q)
    dphi = torch.empty_like(phi, memory_format=torch.contiguous_format)
    level = (up * out).sum(-1, keepdim=True).neg_()
    for b, h, i in _blocks(q, k):
        units, a = _activations(phi, base is not None, b, h, i), weights[b, h, i]
        g, queries, dqueries = _flat(up[b, h, i]), _flat(q[b, h, i]), _flat(dq[b, h, i])
        products = [torch.bmm(g, _flat(value[b, h]).mT).view(a.shape) for value in values]
        dropped = a
        if bits is not None:  # where a weight was dropped, only the level is felt
            factor = share(bits[b, h, i], dropout, a.dtype)
            dropped = a * factor
            for product in products:
                product.mul_(factor)
        t = _add_up(level[b, h, i], units, products)
        mine = torch.empty_like(t)  # one map that every unit writes anew stays in cache
        flat = _flat(mine)
        for m, unit in enumerate(units):
            _times(dropped, unit, out=mine)
            _flat(dvalues[m][b, h]).baddbmm_(flat.mT, g)
            if bits is not None:
                _times(a, unit, out=mine)
            mine.mul_(t)
            _product(flat, _flat(keys[m][b, h]), into=dqueries, add=m > 0)
            _flat(dkeys[m][b, h]).baddbmm_(flat.mT, queries)
            if unit is not None:
                torch.bmm(queries, _flat(keys[m][b, h]).mT, out=flat)
                _add_to_activations(dphi[b, :, m, i], products[m].addcmul_(mine, t), a, h)
    dunits = torch.stack([(dkeys[m] * k + dvalues[m] * v).sum((0, 2)) for m in range(len(keys))], dim=1)
    dk, dv = (_add_up(None, list(factors), parts) for parts in (dkeys, dvalues))
    dgains, dbase = (dunits, None) if base is None else (dunits[:, :-1], dunits[:, -1])
    return dq.mul_(1 / math.sqrt(q.shape[-1])), dk, dv, dphi, dgains, dbase, None
