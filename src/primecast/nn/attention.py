"""Prime attention: attention in which key token j shows query token i a version of itself made for that pair.

In standard attention token j shows every query token the same key and value. Prime attention modulates both,
element by element, with a primer F_ij in R^d that belongs to the pair:

    k~_ij = k_j * F_ij        v~_ij = v_j * F_ij        x'_i = sum_j softmax_j(q_i . k~_ij / sqrt(k)) v~_ij

The printed formula sums over all j with F_ij, the self-pair j = i included, and the paper's appendix speaks of
modulation "including self-attention"; only its proofs have an unmodulated self term. `Prime.pairs` expresses both.

Written like this, F is a tensor of n x n x d numbers per sample. It need not be built. A primer network whose last
layer is linear gives F_ij = beta + sum_m phi_m(i, j) u_m with few hidden units m, and then, exactly,

    q_i . k~_ij          = q_i . (beta * k_j)  +  sum_m phi_m(i, j)  q_i . (u_m * k_j)
    sum_j a_ij v~_ij     = beta * (a v)_i      +  sum_m u_m * ((a o phi_m) v)_i

This file holds, in this order: `Prime`, which carries phi, u and beta; the two formulas, factored and as the paper
prints them; `attend`, which is standard attention when there is no primer. The other mechanisms it is compared with are
in mechanisms.py, the module `MultiHeadAttention` in multi_head.py, where F_ij comes from in primer.py.

Letters: b batch, h heads, g 1 or h, i query token, j key token, n tokens, k head size, d = h k, m hidden units.
"""

import math
from dataclasses import dataclass, replace
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from primecast.errors import InputError, check_known, show
from primecast.nn.checks import PositionFn, check_inputs, check_mask, check_tensor, checked_position
from primecast.nn.dropout import drop, is_traced
from primecast.nn.prime_kernel import blocked_attention

MODULATE = ("k", "v", "kv")


@dataclass(frozen=True)
class Prime:
    """A primer in factored form: F_ij = beta + sum_m phi_m(i, j) u_m, and F_ij = 1 for pairs that have none.

    phi:   pair activations of query token i and key token j. g = h: each head has m units of its own (grouped); g = 1:
           all heads read the same m units (dense).
    gains: u, split into heads. A leading axis of layers is allowed; `layer` picks from it.
    base:  beta, split into heads; None is zero, which saves its product.
    pairs: which pairs have a primer; None is all of them.
    """

    phi: Float[Tensor, "#b g m i j"]
    gains: Float[Tensor, "*layers h m k"]
    base: Float[Tensor, "*layers h k"] | None = None
    pairs: Bool[Tensor, "i j"] | None = None

    def layer(self, index: int) -> "Prime":
        """Return the primer of one layer: itself, or the same pair activations with that layer's own gains."""
        if self.gains.ndim == 3:
            return self
        return replace(self, gains=self.gains[index], base=None if self.base is None else self.base[index])

    def for_batch(self, size: int | torch.SymInt) -> "Prime":
        """Return the same primer with an entry for each sample, also where all samples share one."""
        return replace(self, phi=self.phi.expand(size, -1, -1, -1, -1))

    def complete(self) -> "Prime":
        """Return the same primer with `pairs` None: the pairs with F = 1 become a hidden unit of their own."""
        if self.pairs is None:
            return self
        others = (~self.pairs).to(self.phi.dtype).expand(*self.phi.shape[:2], 1, -1, -1)
        rest = torch.ones_like(self.gains[:, :1]) - (0 if self.base is None else self.base[:, None])
        phi = torch.cat([self.phi * self.pairs, others], dim=2)
        return Prime(phi, torch.cat([self.gains, rest], dim=1), self.base)

    def materialize(self) -> Float[Tensor, "#b i j d"]:
        """Return the paper's F, all n x n x d of it: the reference in tests and the baseline in benchmarks."""
        filters = torch.einsum("bhmij,hmk->bijhk", self.phi.expand(-1, self.gains.shape[0], -1, -1, -1), self.gains)
        if self.base is not None:
            filters = filters + self.base
        if self.pairs is not None:
            filters = torch.where(self.pairs[:, :, None, None], filters, torch.ones_like(filters))
        return filters.flatten(-2)


# ---------------------------------------------------------------- the two formulas, factored


def factored_scores(
    q: Float[Tensor, "b h i k"], k: Float[Tensor, "b h j k"], prime: Prime, position: PositionFn | None = None
) -> Float[Tensor, "b h i j"]:
    """Return q_i . k~_ij for all pairs, without scale; nothing of size i x j x k is built."""
    rotate = checked_position(position)
    q = rotate(q)
    products = q[:, :, None] @ rotate(k[:, :, None] * prime.gains[:, :, None]).mT  # b h m i j
    scores = (prime.phi * products).sum(2)
    if prime.base is not None:
        scores = scores + q @ rotate(k * prime.base[:, None]).mT
    if prime.pairs is not None:
        scores = torch.where(prime.pairs, scores, q @ rotate(k).mT)
    return scores


def factored_mix(
    weights: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j k"], prime: Prime
) -> Float[Tensor, "b h i k"]:
    """Return sum_j a_ij v~_ij for all i; nothing of size i x j x k is built."""
    primed = weights if prime.pairs is None else weights * prime.pairs
    mixed = ((primed[:, :, None] * prime.phi) @ v[:, :, None] * prime.gains[:, :, None]).sum(2)
    if prime.base is not None:
        mixed = mixed + prime.base[:, None] * (primed @ v)
    if prime.pairs is not None:
        mixed = mixed + (weights * ~prime.pairs) @ v
    return mixed


# ---------------------------------------------------------------- the two formulas, as printed in the paper


def materialized_scores(
    q: Float[Tensor, "b h i k"],
    k: Float[Tensor, "b h j k"],
    filters: Float[Tensor, "#b i j d"],
    position: PositionFn | None = None,
) -> Float[Tensor, "b h i j"]:
    """Return q_i . (k_j * F_ij), with k~ built for every pair."""
    rotate = checked_position(position)
    keys = k[:, :, None] * _per_head(filters, q.shape[1])
    return (rotate(q)[:, :, :, None] * rotate(keys)).sum(-1)


def materialized_mix(
    weights: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j k"], filters: Float[Tensor, "#b i j d"]
) -> Float[Tensor, "b h i k"]:
    """Return sum_j a_ij (v_j * F_ij), with v~ built for every pair."""
    values = v[:, :, None] * _per_head(filters, v.shape[1])
    return (weights[..., None] * values).sum(3)


def _per_head(filters: Float[Tensor, "#b i j d"], heads: int) -> Float[Tensor, "#b h i j k"]:
    return filters.unflatten(-1, (heads, -1)).permute(0, 3, 1, 2, 4)


# ---------------------------------------------------------------- attention


def pair_scores(
    q: Float[Tensor, "b h i k"],
    k: Float[Tensor, "b h j k"],
    *,
    prime: Prime | Float[Tensor, "#b i j d"] | None = None,
    modulate: str = "kv",
    position: PositionFn | None = None,
) -> Float[Tensor, "b h i j"]:
    """Return what softmax is taken of: scaled products of queries with the primed keys of each pair."""
    scale = 1 / math.sqrt(q.shape[-1])
    if prime is None or "k" not in modulate:
        rotate = checked_position(position)
        return (rotate(q) * scale) @ rotate(k).mT
    q, k = _promote(prime, q, k)
    if isinstance(prime, Prime):
        return factored_scores(q * scale, k, prime, position)
    return materialized_scores(q * scale, k, prime, position)


def pair_mix(
    weights: Float[Tensor, "b h i j"],
    v: Float[Tensor, "b h j k"],
    *,
    prime: Prime | Float[Tensor, "#b i j d"] | None = None,
    modulate: str = "kv",
) -> Float[Tensor, "b h i k"]:
    """Return the weighted sum of the primed values of each pair; it has the type of v."""
    if prime is None or "v" not in modulate:
        return weights.to(v.dtype) @ v
    promoted_weights, promoted_v = _promote(prime, weights, v)
    if isinstance(prime, Prime):
        return factored_mix(promoted_weights, promoted_v, prime).to(v.dtype)
    return materialized_mix(promoted_weights, promoted_v, prime).to(v.dtype)


def _promote(prime: Prime | Tensor, *tensors: Tensor) -> list[Tensor]:
    """Return the tensors in the widest type of them and the primer: a matrix product does not mix types."""
    others = (prime.phi, prime.gains, prime.base) if isinstance(prime, Prime) else (prime,)
    widest = reduce(torch.promote_types, [x.dtype for x in (*tensors, *others) if x is not None])
    return [x.to(widest) for x in tensors]


def attention_weights(
    q: Float[Tensor, "b h i k"],
    k: Float[Tensor, "b h j k"],
    *,
    prime: Prime | Float[Tensor, "#b i j d"] | None = None,
    modulate: str = "kv",
    mask: Bool[Tensor, "#b #h i j"] | None = None,
    bias: Float[Tensor, "#b #h i j"] | None = None,
    position: PositionFn | None = None,
) -> Float[Tensor, "b h i j"]:
    """Return the softmax weights that `attend` uses."""
    check_inputs(q, k, mask=mask, bias=bias, position=position)
    check_prime(q, k, prime, modulate)
    return masked_softmax(pair_scores(q, k, prime=prime, modulate=modulate, position=position), mask, bias)


def attend(
    q: Float[Tensor, "b h i k"],
    k: Float[Tensor, "b h j k"],
    v: Float[Tensor, "b h j k"],
    *,
    prime: Prime | Float[Tensor, "#b i j d"] | None = None,
    modulate: str = "kv",
    mask: Bool[Tensor, "#b #h i j"] | None = None,
    bias: Float[Tensor, "#b #h i j"] | None = None,
    dropout: float = 0.0,
    position: PositionFn | None = None,
) -> Float[Tensor, "b h i k"]:
    """Return prime attention with a primer, standard attention without one.

    A `Prime` is computed in factored form, a plain tensor F of shape (b, i, j, d) by the paper's formula:
    `attend(..., prime=p)` and `attend(..., prime=p.materialize())` give the same result. Without mask, bias and
    position the factored form runs in blocks with a hand-written gradient (see prime_kernel.py), except under
    torch.compile and torch.func, which need the plain formulas.

    prime:    modulates keys and values of each pair; None: standard attention.
    modulate: "k", "v" or "kv": which of the two the primer modulates.
    mask:     True where i may attend to j, as in torch's scaled_dot_product_attention.
    bias:     added to the scaled scores.
    dropout:  fraction of the weights set to zero, in training or not: the caller decides when.
    position: applied to queries and to keys after priming (see `PositionFn`).

    The result has the type of v, whatever that of the primer. A query token whose row is fully masked gets 0.

    Example: `attend(q, k, v)`; `attend(q, k, v, prime=Primer("full", ...)(series))`.
    """
    check_inputs(q, k, v, mask=mask, bias=bias, position=position)
    check_prime(q, k, prime, modulate)
    if not (isinstance(dropout, int | float) and 0 <= dropout <= 1):
        raise InputError(f"dropout is {show(dropout)}; it must be between 0 and 1")
    if prime is None:
        rotate = checked_position(position)
        return F.scaled_dot_product_attention(
            rotate(q), rotate(k), v, attn_mask=_join(mask, bias, v.dtype), dropout_p=dropout
        )
    plain = mask is None and bias is None and position is None and modulate == "kv"
    if isinstance(prime, Prime) and plain and not is_traced() and prime.phi.numel():  # an empty batch has no blocks
        if _is_shared_but_for_self(prime, len(q)):
            phi = prime.phi.masked_fill(~prime.pairs, 0.0)  # type: ignore[operator]  # there are pairs
            return blocked_attention(q, k, v, phi, prime.gains, None, dropout, plain_self=True)
        p = prime.complete()
        return blocked_attention(q, k, v, p.phi, p.gains, p.base, dropout)
    scores = pair_scores(q, k, prime=prime, modulate=modulate, position=position)
    weights = drop(masked_softmax(scores, mask, bias), dropout)
    return pair_mix(weights, v, prime=prime, modulate=modulate)


def _is_shared_but_for_self(prime: Prime, batch: int) -> bool:
    """Return whether all samples share the primer, and every pair has one but the self-pairs: a fast case."""
    if prime.pairs is None or prime.base is not None or len(prime.phi) == batch:
        return False
    return torch.equal(prime.pairs, ~torch.eye(len(prime.pairs), dtype=torch.bool, device=prime.pairs.device))


def masked_softmax(
    scores: Float[Tensor, "b h i j"],
    mask: Bool[Tensor, "#b #h i j"] | None,
    bias: Float[Tensor, "#b #h i j"] | None,
) -> Float[Tensor, "b h i j"]:
    """Return the softmax over key tokens of scores + bias where the mask is True, 0 elsewhere."""
    if mask is None:
        return (scores if bias is None else scores + bias).softmax(-1)
    check_mask(mask)
    fully_masked = ~mask.any(-1, keepdim=True)  # their weights are 0, as in torch's own attention
    # Mask and bias first: they are small beside the scores of all samples and heads.
    additive_mask = torch.where(mask | fully_masked, 0.0 if bias is None else bias, -math.inf)
    return (scores + additive_mask).softmax(-1).masked_fill(fully_masked, 0.0)


def _join(mask: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if bias is not None and bias.dtype != torch.float32:  # which torch's attention takes with every other
        bias = bias.to(dtype)
    return bias if mask is None else mask if bias is None else bias.masked_fill(~mask, -math.inf)


def check_prime(q: Tensor, k: Tensor, prime: Prime | Tensor | None, modulate: str) -> None:
    """Refuse a primer made for other tokens, heads or widths than those it meets; broadcasting would hide it."""
    check_known("modulate", modulate, MODULATE)
    if prime is None:
        return
    if not isinstance(prime, Prime | Tensor):
        raise InputError(f"prime is {show(prime)}; it must be a Prime, a tensor or None")
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    if isinstance(prime, Prime):
        _check_parts(prime, q)
        samples, groups, activations, *pairs = prime.phi.shape
        own_heads, units, own_size = prime.gains.shape
        width = own_heads * own_size
        if own_heads != heads:
            raise InputError(f"the primer was made for {own_heads} heads, the attention has {heads}")
        if groups not in (1, heads):
            raise InputError(f"the primer's phi has hidden units for {groups} heads, it must be 1 or {heads}")
        if activations != units:
            raise InputError(f"the primer's phi has {activations} hidden units, its gains have {units}")
    else:
        if prime.ndim != 4:
            raise InputError(f"the primer F has shape {tuple(prime.shape)}, it must be (b, i, j, d)")
        check_tensor("the primer F", prime, None)
        if prime.device != q.device:
            raise InputError(f"the primer F is on {prime.device}; it must be on {q.device}, as q is")
        samples, *pairs, width = prime.shape
    if pairs != [queries, keys]:
        raise InputError(f"the primer covers {pairs[0]} x {pairs[1]} token pairs, the attention has {queries} x {keys}")
    if width != heads * size or samples not in (1, batch):
        raise InputError(f"the primer has batch {samples} and width {width}, the attention {batch} and {heads * size}")
    if isinstance(prime, Prime):
        for name, part, shape in (("base", prime.base, (heads, size)), ("pairs", prime.pairs, (queries, keys))):
            if part is not None and part.shape != shape:
                raise InputError(f"the primer's {name} has shape {tuple(part.shape)}, the attention needs {shape}")


def _check_parts(prime: Prime, q: Tensor) -> None:
    """Refuse parts of a primer that are no tensors of their kind, or on another device than q."""
    for name, part in (("phi", prime.phi), ("gains", prime.gains), ("base", prime.base)):
        if name != "base" or part is not None:
            check_tensor(f"the primer's {name}", part, None)  # type: ignore[arg-type]
    if prime.pairs is not None and getattr(prime.pairs, "dtype", None) != torch.bool:
        given = getattr(prime.pairs, "dtype", show(prime.pairs))
        raise InputError(f"the primer's pairs are of {given}; they must be of torch.bool, True where a pair has one")
    for name, part in vars(prime).items():
        if part is not None and part.device != q.device:
            raise InputError(f"the primer's {name} is on {part.device}; it must be on {q.device}, as q is")
    if prime.gains.ndim == 4:
        raise InputError("this primer has gains for each layer: pass prime.layer(index)")
    for name, part, axes in (("gains", prime.gains, "(h, m, k)"), ("phi", prime.phi, "(b, g, m, i, j)")):
        if part.ndim != axes.count(",") + 1:
            raise InputError(f"the primer's {name} has shape {tuple(part.shape)}, it must be {axes}")


def split_heads(x: Float[Tensor, "b n d"], heads: int) -> Float[Tensor, "b h n k"]:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Float[Tensor, "b h n k"]) -> Float[Tensor, "b n d"]:
    return x.transpose(1, 2).flatten(-2)
