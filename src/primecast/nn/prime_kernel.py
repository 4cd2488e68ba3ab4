"""Prime attention in blocks that stay in cache, with its gradient written by hand.

The result is that of `attention.attend` with a `Prime`. Autograd would keep every intermediate map of every hidden unit
and read memory once per operation. Here only the weights are kept: the products of the units are formed one block at a
time, used and dropped, and formed again in the backward pass.

With k_m = u_m * k, v_m = u_m * v, G the gradient of the output, and the base a unit whose phi is 1:

    forward    s_m = q k_m^T        a = softmax(sum_m phi_m s_m)           out = sum_m (a phi_m) v_m
    backward   p_m = G v_m^T        t = sum_m phi_m p_m - G . out          (so that ds = a t)
               dphi_m = a (p_m + t s_m)
               dq = sum_m (a phi_m t) k_m        dk_m = (a phi_m t)^T q      dv_m = (a phi_m)^T G

where maps are multiplied entry by entry, and G . out, one number per query, is the row sum of a (sum_m phi_m p_m).
For a second derivative, autograd differentiates the formula of the forward pass instead.
Half-precision inputs are computed in single precision: a block's maps stay in cache either way.

Letters: b batch, h heads, g 1 or h, i query token, j key token, k head size, m hidden units.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from primecast.nn.dropout import keep_factor, random_bits

BLOCK = 2**18
"""Entries of a block's map (samples x heads x rows x columns): a megabyte of float32. Larger blocks leave the cache,
smaller ones pay for more calls; measured in docs/decisions.md."""

FEWEST_ROWS = 16
"""Fewer rows at a time than this would waste the matrix products."""

DEVICE_BLOCK = 2**26
"""The same on other devices than a CPU, where calls cost more; not measured."""


def blocked_attention(
    q: Float[Tensor, "b h i k"],
    k: Float[Tensor, "b h j k"],
    v: Float[Tensor, "b h j k"],
    phi: Float[Tensor, "#b g m i j"],
    gains: Float[Tensor, "h m k"],
    base: Float[Tensor, "h k"] | None,
    dropout: float = 0.0,
    *,
    plain_self: bool = False,
) -> Float[Tensor, "b h i k"]:
    """Return prime attention; differentiable in everything but the dropout.

    phi:        with a batch of 1, all samples share it: it is read once, and its gradient summed over the samples.
    plain_self: F_ii = 1, at the cost of a vector product per token; phi must be 0 on the diagonal, base None.
    """
    inputs = [q, k, v, phi, gains, base]
    precision = torch.float64 if q.dtype == torch.float64 else torch.float32
    with torch.autocast(q.device.type, enabled=False):
        given = (None if t is None else t.to(precision) for t in inputs)
        out = _BlockedAttention.apply(*given, dropout, plain_self)  # type: ignore[no-untyped-call]
        return cast(Tensor, out).to(q.dtype)


class _Blocks:
    """Cuts maps into blocks of about BLOCK entries: whole samples, or some heads of one, or some rows of one head.

    A tensor is cut into all its blocks by one call: slices in Python, block by block, took a twentieth of the time.
    Samples and heads are one axis of a block, s, as batched products need it.
    """

    def __init__(self, q: Float[Tensor, "b h i k"], k: Float[Tensor, "b h j k"]) -> None:
        (batch, self.heads, self.queries, _), keys = q.shape, k.shape[2]
        block = BLOCK if q.device.type == "cpu" else DEVICE_BLOCK
        per_head = self.queries * keys
        self.rows = self.queries
        if self.heads * per_head <= block:
            step = self.heads * (block // (self.heads * per_head))
            self.lengths = [min(step, batch * self.heads - s) for s in range(0, batch * self.heads, step)]
            return
        some = max(1, block // per_head)
        self.lengths = [min(some, self.heads - head) for head in range(0, self.heads, some)] * batch
        if per_head > block:
            parts = math.ceil(self.queries / max(FEWEST_ROWS, block // keys))
            self.rows = math.ceil(self.queries / parts)

    def split_queries(self, x: Shaped[Tensor, "b h i x"]) -> list[Shaped[Tensor, "_s _i x"]]:
        whole = x.flatten(0, 1).split(self.lengths)
        return list(whole) if self.rows >= self.queries else [rows for s in whole for rows in s.split(self.rows, 1)]

    def split_units(self, tensors: list[Float[Tensor, "b h x y"]]) -> list[tuple[Float[Tensor, "_s x y"], ...]]:
        """Return for each block its part of every unit's tensor; blocks of rows read the same parts."""
        units = zip(*(x.flatten(0, 1).split(self.lengths) for x in tensors), strict=True)
        return [parts for parts in units for _ in range(0, self.queries, self.rows)]

    def __iter__(self) -> Iterator[tuple[slice, slice, slice]]:
        """Yield the samples, heads and rows of each block."""
        begin = 0
        for length in self.lengths:
            sample, head = divmod(begin, self.heads)
            begin += length
            samples = slice(sample, sample + max(1, length // self.heads))
            for row in range(0, self.queries, self.rows):
                yield samples, slice(head, head + length), slice(row, row + self.rows)


def _factors(gains: Tensor, base: Tensor | None) -> list[Tensor]:
    """Return u_m of each hidden unit, then beta if there is a base, in the shape of factors of keys and values."""
    return [u[:, None] for u in (*gains.unbind(1), *([] if base is None else [base]))]


def _scaled(x: Tensor, factor: Tensor | float) -> Tensor:
    """Return x * factor, contiguous: split heads are not, and every product would copy them again."""
    return torch.mul(x, factor, out=torch.empty_like(x, memory_format=torch.contiguous_format))


def _activations(phi: Tensor, batch: int, based: bool, b: slice, h: slice, i: slice) -> list[Tensor | None]:
    """Return phi_m of a block for each hidden unit; None for the base.

    (s, i, j), or, to be broadcast, (b, 1, i, j) if heads share it, (1, h, i, j) if samples do.
    """
    if len(phi) == batch and phi.shape[1] > 1:
        units = phi[b, h, :, i].flatten(0, 1).unbind(1)
    else:
        units = _part(phi, batch, b, h, i).unbind(2)
    return [*units, *([None] if based else [])]


def _part(phi: Tensor, batch: int, b: slice, h: slice, i: slice) -> Tensor:
    """Return phi, or its gradient, of the block, in the axes that samples or heads share once."""
    return phi[b if len(phi) == batch else slice(None), h if phi.shape[1] > 1 else slice(None), :, i]


def _widened(units: list[Tensor | None]) -> Callable[[Tensor], Tensor]:
    """Return the view of a map (s, i, j) that broadcasts with units that heads or samples share: (b, h, i, j)."""
    first = units[0]
    if first is None or first.dim() == 3:
        return lambda x: x
    if first.shape[1] > 1:
        return lambda x: x.view(-1, first.shape[1], *x.shape[1:])
    return lambda x: x.view(len(first), -1, *x.shape[1:])


def _add_up(start: Tensor | None, units: list[Tensor | None], maps: Iterable[Tensor]) -> Tensor:
    """Return start + sum_m phi_m map_m. Without a start the first map is overwritten."""
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


def _add_shared(dphi: Tensor, change: Tensor, a: Tensor) -> None:
    """Add change * a, summed over the heads or samples that share the unit, to the gradient of the unit."""
    shared = [axis for axis in (0, 1) if dphi.shape[axis] < change.shape[axis]]
    if shared:
        dphi.add_(change.mul_(a).sum(shared, keepdim=True))
    else:
        dphi.addcmul_(change, a)


def _diagonal(x: Tensor, rows: slice) -> Tensor:
    """Return the entries (s, i) of maps (s, i, j) at which a query token meets itself."""
    return x.diagonal(rows.start, 1, 2)


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        phi: Tensor,
        gains: Tensor,
        base: Tensor | None,
        dropout: float,
        plain_self: bool,
    ) -> Tensor:
        given, q = q, _scaled(q, 1 / math.sqrt(q.shape[-1]))
        factors = _factors(gains, base)
        blocks = _Blocks(q, k)
        keys = blocks.split_units([_scaled(k, u).mT for u in factors])
        values = blocks.split_units([_scaled(v, u) for u in factors])
        weights = q.new_empty(*q.shape[:3], k.shape[2])
        out = torch.empty_like(q)
        bits = random_bits(*weights.shape, device=q.device) if dropout > 0 else None
        drawn = [None] * len(keys) if bits is None else blocks.split_queries(bits)
        cut = (blocks.split_queries(x) for x in (q, weights, out))
        own = _split_own(blocks, [k, v] if plain_self else [])
        for (b, h, i), queries, a, mixed, block_keys, block_values, block_bits, block_own in zip(
            blocks, *cut, keys, values, drawn, own, strict=True
        ):
            units = _activations(phi, len(q), base is not None, b, h, i)
            wide = _widened(units)
            scores = _add_up(None, units, (wide(torch.bmm(queries, key)) for key in block_keys))
            if block_own:
                _diagonal(scores.view_as(a), i).copy_((queries * block_own[0]).sum(-1))
            torch.softmax(scores, -1, out=wide(a))
            if block_bits is not None:
                a = a * keep_factor(block_bits, dropout, a.dtype)
            spread, scratch = wide(a), scores.view_as(a)  # the scores are not needed any more
            for m, (unit, value) in enumerate(zip(units, block_values, strict=True)):
                if unit is not None:
                    torch.mul(spread, unit, out=scores)
                _product(a if unit is None else scratch, value, into=mixed, add=m > 0)
            if block_own:
                mixed.addcmul_(_diagonal(a, i)[..., None], block_own[1])
        ctx.save_for_backward(given, k, v, phi, gains, base, weights, bits, out)
        ctx.dropout, ctx.plain_self = dropout, plain_self
        return out

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(up.device.type, enabled=False):
            if torch.is_grad_enabled():  # the gradient is to be differentiated, too
                *inputs, _, bits, _ = ctx.saved_tensors
                return _plain_backward(ctx.dropout, ctx.plain_self, up, inputs, bits)
            return _backward(ctx.dropout, ctx.plain_self, up.contiguous(), ctx.saved_tensors)


def _split_own(blocks: _Blocks, tensors: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Return for each block the rows of these tensors that belong to its query tokens."""
    split = [blocks.split_queries(x) for x in tensors]
    return list(zip(*split, strict=True)) if split else [()] * len(list(blocks))


def _value_products(g: Tensor, values: Iterable[Tensor], factor: Tensor | None) -> list[Tensor]:
    """Return p_m = G v_m^T of each unit; of dropped weights it is 0, and only the level reaches them."""
    products = [torch.bmm(g, value) for value in values]
    return products if factor is None else [product.mul_(factor) for product in products]


def _add_own(
    dqueries: Tensor,
    queries: Tensor,
    g: Tensor,
    key: Tensor,
    dkey: Tensor,
    dvalue: Tensor,
    a: Tensor,
    t: Tensor,
    dropped: Tensor,
) -> None:
    """Add the gradients of the unprimed self-pairs; a, t and dropped are the diagonals of the maps of those names."""
    slope = (a * t)[..., None]
    dqueries.addcmul_(slope, key)
    torch.mul(slope, queries, out=dkey)
    torch.mul(dropped[..., None], g, out=dvalue)


def _plain_backward(
    dropout: float, plain_self: bool, up: Tensor, given: Sequence[Tensor | None], bits: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Return the same gradients by autograd over the plain formula, which torch can differentiate again."""
    # Views, because two of the inputs may be one tensor.
    inputs = [None if x is None else x.view_as(x) for x in given]  # q, k, v, phi, gains, base
    q, k, v, phi, gains = (x for x in inputs[:5] if x is not None)
    if inputs[5] is not None:
        phi = torch.cat([phi, torch.ones_like(phi[:, :, :1])], dim=2)
        gains = torch.cat([gains, inputs[5][:, None]], dim=1)
    if plain_self:  # the identity of the self-pair as one more hidden unit
        eye = torch.eye(phi.shape[-1], dtype=phi.dtype, device=phi.device).expand_as(phi[:, :, :1])
        phi, gains = torch.cat([phi, eye], dim=2), torch.cat([gains, torch.ones_like(gains[:, :1])], dim=1)
    keys, values = (x[:, :, None] * gains[:, :, None] for x in (k, v))  # b h m j k
    scores = (phi * (q[:, :, None] / math.sqrt(q.shape[-1]) @ keys.mT)).sum(2)
    a = scores.softmax(-1) if bits is None else scores.softmax(-1) * keep_factor(bits, dropout, q.dtype)
    mixed = ((a[:, :, None] * phi) @ values).sum(2)
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(mixed, wanted, up, create_graph=True))
    return *(next(found) if x is not None and x.requires_grad else None for x in inputs), None, None


def _backward(dropout: float, plain_self: bool, up: Tensor, saved: Sequence[Any]) -> tuple[Tensor | None, ...]:
    """Return the gradients of the arguments of `_BlockedAttention.forward` by the formulas at the top of this file."""
    q, k, v, phi, gains, base, weights, bits, out = saved
    q = _scaled(q, 1 / math.sqrt(q.shape[-1]))
    factors, blocks = _factors(gains, base), _Blocks(q, k)
    keys, values = [_scaled(k, u) for u in factors], [_scaled(v, u) for u in factors]
    dkeys, dvalues = [torch.empty_like(x) for x in keys], [torch.empty_like(x) for x in values]
    shared = phi.shape[1] == 1 or len(phi) < len(q)
    dphi = (torch.zeros_like if shared else torch.empty_like)(phi, memory_format=torch.contiguous_format)
    dq, level = torch.empty_like(q), (up * out).sum(-1, keepdim=True).neg_()
    of_keys, of_dkeys, of_dvalues = (blocks.split_units(x) for x in (keys, dkeys, dvalues))
    of_values = blocks.split_units([x.mT for x in values])
    drawn = [None] * len(of_keys) if bits is None else blocks.split_queries(bits)
    cut = (blocks.split_queries(x) for x in (up, q, dq, weights, level))
    of_self = [k, v, torch.empty_like(q), torch.empty_like(q)] if plain_self else []
    for (
        b,
        h,
        i,
    ), g, queries, dqueries, a, levels, block_keys, block_values, dkey, dvalue, block_bits, block_own in zip(
        blocks, *cut, of_keys, of_values, of_dkeys, of_dvalues, drawn, _split_own(blocks, of_self), strict=True
    ):
        units = _activations(phi, len(q), base is not None, b, h, i)
        wide = _widened(units)
        factor = None if block_bits is None else keep_factor(block_bits, dropout, a.dtype)
        dropped = a if factor is None else a * factor
        products = _value_products(g, block_values, factor)
        t = _add_up(wide(levels), units, map(wide, products))
        if block_own:
            own = (g * block_own[1]).sum(-1)
            _diagonal(t.view_as(a), i).add_(own if factor is None else own.mul_(_diagonal(factor, i)))
        scratch = torch.empty_like(a)  # one map that every unit overwrites stays in cache
        flat_t, spread, begun = t.view_as(scratch), wide(scratch), bool(i.start)
        for m, unit in enumerate(units):
            _times(wide(dropped), unit, out=spread)
            _product(scratch.mT, g, into=dvalue[m], add=begun)
            if block_bits is not None:
                _times(wide(a), unit, out=spread)
            scratch.mul_(flat_t)
            _product(scratch, block_keys[m], into=dqueries, add=m > 0)
            _product(scratch.mT, queries, into=dkey[m], add=begun)
            if unit is None:
                continue
            torch.bmm(queries, block_keys[m].mT, out=scratch)
            change = products[m].addcmul_(scratch, flat_t)
            if unit.dim() == 3:
                torch.mul(change, a, out=dphi[b, h, m, i].flatten(0, 1))
            else:
                _add_shared(_part(dphi, len(q), b, h, i)[:, :, m], wide(change), wide(a))
        if block_own:
            own_key, _, own_dkey, own_dvalue = block_own
            _add_own(
                dqueries, queries, g, own_key, own_dkey, own_dvalue, *(_diagonal(x, i) for x in (a, flat_t, dropped))
            )
    dunits = torch.stack([_per_unit(dkeys[m], k, dvalues[m], v) for m in range(len(keys))], dim=1)
    dk, dv = (_add_up(None, list(factors), parts) for parts in (dkeys, dvalues))
    if plain_self:
        dk, dv = dk.add_(of_self[2]), dv.add_(of_self[3])
    dgains, dbase = (dunits, None) if base is None else (dunits[:, :-1], dunits[:, -1])
    return dq.mul_(1 / math.sqrt(q.shape[-1])), dk, dv, dphi, dgains, dbase, None, None


def _per_unit(dkey: Tensor, k: Tensor, dvalue: Tensor, v: Tensor) -> Float[Tensor, "h k"]:
    """Return the gradient of u_m, or of the base, with k_m = u_m * k and v_m = u_m * v."""
    return _scaled(k, dkey).add_(_scaled(v, dvalue)).sum((0, 2))
