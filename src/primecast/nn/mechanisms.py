"""What the heads of an attention compute from projected queries, keys and values: the dot product, and its rivals.

`MultiHeadAttention` calls a mechanism with q, k and v (projected, not yet split into heads), the query tokens x
themselves, and `AttentionArgs`. All of them take a primer; without one, token j shows every query token the same key
and value. To add a mechanism: write the class, name it in MECHANISMS.

Letters: b batch, h heads, i query token, j key token, n tokens, k head size, d = h k.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.nn.attention import (
    Prime,
    attend,
    check_prime,
    join_heads,
    masked_softmax,
    pair_mix,
    pair_scores,
    split_heads,
)
from primecast.nn.checks import PositionFn, check_inputs
from primecast.nn.dropout import drop


class AttentionMap(nn.Identity):
    """The place where attention weights can be observed: register a forward hook or pre-hook here.

    Weights pass through it only while a hook is registered; without one, standard attention never forms them.
    """

    @property
    def watched(self) -> bool:
        return len(self._forward_hooks) + len(self._forward_pre_hooks) > 0


@dataclass(frozen=True)
class AttentionArgs:
    """The keyword arguments of `attend`, and the three steps of attention under them."""

    prime: Prime | Float[Tensor, "#b i j d"] | None = None
    modulate: str = "kv"
    mask: Bool[Tensor, "#b #h i j"] | None = None
    bias: Float[Tensor, "#b #h i j"] | None = None
    dropout: float = 0.0
    position: PositionFn | None = None

    def scores(self, q: Float[Tensor, "b h i k"], k: Float[Tensor, "b h j k"]) -> Float[Tensor, "b h i j"]:
        check_inputs(q, k, mask=self.mask, bias=self.bias, position=self.position)
        check_prime(q, k, self.prime, self.modulate)
        return pair_scores(q, k, prime=self.prime, modulate=self.modulate, position=self.position)

    def weights(self, scores: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
        return masked_softmax(scores, self.mask, self.bias)

    def mix(self, weights: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j k"]) -> Float[Tensor, "b h i k"]:
        return pair_mix(drop(weights, self.dropout), v, prime=self.prime, modulate=self.modulate)


class Mechanism(nn.Module):
    """Weights of queries and keys, then the weighted sum of values. A mechanism replaces `weights`, or all of it.

    depth: number of the layer, from 0, for mechanisms that change with it.
    normalized: whether the weights of a query token sum to 1.
    """

    supports_primer = True
    normalized = True

    def __init__(self, d_model: int, n_heads: int, *, depth: int = 0) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.map = AttentionMap()

    def weights(
        self, q: Float[Tensor, "b h i k"], k: Float[Tensor, "b h j k"], args: AttentionArgs
    ) -> Float[Tensor, "b h i j"]:
        return args.weights(args.scores(q, k))

    def forward(
        self,
        q: Float[Tensor, "b i d"],
        k: Float[Tensor, "b j d"],
        v: Float[Tensor, "b j d"],
        x: Float[Tensor, "b i d"],
        args: AttentionArgs,
    ) -> Float[Tensor, "b i d"]:
        """q, k, v are projected and not yet split into heads; x are the query tokens themselves."""
        q, k, v = (split_heads(z, self.n_heads) for z in (q, k, v))
        return join_heads(args.mix(self.map(self.weights(q, k, args)), v))


class DotProduct(Mechanism):
    """softmax(q k^T / sqrt(k)) v: the attention of the paper; called standard without a primer, prime with one."""

    def forward(
        self,
        q: Float[Tensor, "b i d"],
        k: Float[Tensor, "b j d"],
        v: Float[Tensor, "b j d"],
        x: Float[Tensor, "b i d"],
        args: AttentionArgs,
    ) -> Float[Tensor, "b i d"]:
        if self.map.watched:
            return super().forward(q, k, v, x, args)
        return join_heads(attend(*(split_heads(z, self.n_heads) for z in (q, k, v)), **vars(args)))


class Gated(DotProduct):
    """sigmoid(x W) * (attention of x): each query token gates its own output (Qiu et al. 2025)."""

    def __init__(self, d_model: int, n_heads: int, *, depth: int = 0) -> None:
        super().__init__(d_model, n_heads)
        self.gate = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self,
        q: Float[Tensor, "b i d"],
        k: Float[Tensor, "b j d"],
        v: Float[Tensor, "b j d"],
        x: Float[Tensor, "b i d"],
        args: AttentionArgs,
    ) -> Float[Tensor, "b i d"]:
        return self.gate(x).sigmoid() * super().forward(q, k, v, x, args)


class Differential(Mechanism):
    """(softmax(q1 k1^T) - lambda softmax(q2 k2^T)) v: one map less another, to cancel noise (Ye et al., ICLR 2025).

    Neighboring heads make a pair, so h heads are h/2 differential ones with values twice as wide.

        lambda = exp(a . b) - exp(c . d) + lambda_0,     lambda_0 = 0.8 - 0.6 exp(-0.3 depth)

    with learned vectors that the heads share; a pair's output goes through an RMS norm, scaled by 1 - lambda_0. A
    primer's d entries are read as h slices for the keys and, two by two, as h/2 slices for the values.
    """

    normalized = False

    def __init__(self, d_model: int, n_heads: int, *, depth: int = 0) -> None:
        super().__init__(d_model, n_heads)
        if n_heads % 2:
            raise InputError(f"differential attention pairs its heads: n_heads {n_heads} must be even")
        size = d_model // n_heads
        self.start = 0.8 - 0.6 * math.exp(-0.3 * depth)
        self.vectors = nn.Parameter(torch.randn(4, size).mul_(0.1))
        self.norm = nn.RMSNorm(2 * size, eps=1e-5)

    def forward(
        self,
        q: Float[Tensor, "b i d"],
        k: Float[Tensor, "b j d"],
        v: Float[Tensor, "b j d"],
        x: Float[Tensor, "b i d"],
        args: AttentionArgs,
    ) -> Float[Tensor, "b i d"]:
        q, k, v = (split_heads(z, self.n_heads) for z in (q, k, v))
        a, b, c, d = self.vectors
        strength = (a @ b).exp() - (c @ d).exp() + self.start
        weights = self.weights(q, k, args)
        difference = self.map(weights[:, 0::2] - strength * weights[:, 1::2])
        mixed = join_heads(args.mix(difference.repeat_interleave(2, dim=1), v))
        pairs = mixed.unflatten(-1, (self.n_heads // 2, -1))
        return (self.norm(pairs) * (1 - self.start)).flatten(-2)


class Selective(Mechanism):
    """softmax(s - M): key tokens that other queries attend to get lower scores (Leviathan et al., ICLR 2025).

    The original counts, in a causal sequence, what earlier queries took from token j. Channels have no order, so here
    M_ij is the mean over all other queries of relu of the first head's scores, self-pairs left out. No parameters.
    """

    def weights(
        self, q: Float[Tensor, "b h i k"], k: Float[Tensor, "b h j k"], args: AttentionArgs
    ) -> Float[Tensor, "b h i j"]:
        if args.mask is not None:
            raise InputError("selective attention is here defined for sets of tokens: it takes no mask")
        scores = args.scores(q, k)
        selected = scores[:, :1].relu()
        selected = selected * ~torch.eye(*selected.shape[-2:], dtype=torch.bool, device=selected.device)
        by_others = (selected.sum(-2, keepdim=True) - selected) / max(1, selected.shape[-2] - 1)
        return args.weights(scores - by_others)


class Directional(Mechanism):
    """softmax(c s / tau), s = phi(q) phi(k)^T: a kernel that sharpens directions (SDformer, IJCAI 2024).

        phi(x) = gamma tanh(w x / (std(x) + 1e-6)^2),     tau_i = sqrt(var_j(s_ij) + 1e-6)

    as in SDformer's public code: w and gamma are learned scalars that start at 1 and N(0, 1); the standard deviation is
    over heads; it and the variance are those of a sample (divided by count - 1); c is 3, because its constructor passes
    the factor 3 as the scale. SDformer's filter on its input is not a part of this.
    """

    SHARPNESS = 3.0

    def __init__(self, d_model: int, n_heads: int, *, depth: int = 0) -> None:
        super().__init__(d_model, n_heads)
        if n_heads < 2:
            raise InputError(
                f"directional attention takes a standard deviation over heads: n_heads {n_heads} must be at least 2"
            )
        self.w = nn.Parameter(torch.ones(()))
        self.gamma = nn.Parameter(torch.randn(()))

    def kernel(self, x: Float[Tensor, "b h n k"]) -> Float[Tensor, "b h n k"]:
        return self.gamma * torch.tanh(self.w * x / (x.std(1, keepdim=True) + 1e-6).square())

    def weights(
        self, q: Float[Tensor, "b h i k"], k: Float[Tensor, "b h j k"], args: AttentionArgs
    ) -> Float[Tensor, "b h i j"]:
        if args.mask is not None:
            raise InputError("directional attention takes a variance over all key tokens: it takes no mask")
        scores = math.sqrt(q.shape[-1]) * args.scores(self.kernel(q), self.kernel(k))  # without their 1 / sqrt(k)
        correction = min(1, scores.shape[-1] - 1)  # a single token has weight 1, whatever its tau
        tau = (scores.var(-1, keepdim=True, correction=correction) + 1e-6).sqrt()
        return args.weights(self.SHARPNESS * scores / tau)


MECHANISMS: dict[str, type[Mechanism]] = {
    "dot": DotProduct,
    "differential": Differential,
    "gated": Gated,
    "selective": Selective,
    "directional": Directional,
}
"""What heads do with projected queries, keys and values; `MultiHeadAttention(mechanism=...)` takes these names."""
