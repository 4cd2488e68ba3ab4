"""Adapters: where a class of modules keeps its attention, and its `forward` with `attend` in the place of that.

nn.MultiheadAttention, alone or inside nn.TransformerEncoder and its like, has an adapter here. For any other class
write an `Adapter`; `of_heads` and `of_tokens` write its `forward` for the two common designs. swap.py uses them.

Letters: b batch, h heads, i query token, j key token, n tokens, k head size, d = h k.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from primecast.errors import InputError, unknown
from primecast.nn.attention import Prime, attend, attention_weights, check_prime, join_heads, pair_mix, split_heads
from primecast.nn.dropout import drop


@dataclass(frozen=True, eq=False)
class Attend:
    """`attend` with the primer of one module filled in: what the `forward` of an adapter is given."""

    name: str
    prime: Prime | Tensor | None
    modulate: str

    def __call__(
        self,
        q: Float[Tensor, "b h i k"],
        k: Float[Tensor, "b h j k"],
        v: Float[Tensor, "b h j k"],
        *,
        mask: Bool[Tensor, "#b #h i j"] | None = None,
        bias: Float[Tensor, "#b #h i j"] | None = None,
        dropout: float = 0.0,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "b h i k"], Float[Tensor, "b h i j"] | None]:
        primed: dict[str, Any] = {"prime": self.prime, "modulate": self.modulate}
        try:
            check_prime(q, k, **primed)
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error
        if not need_weights:
            return attend(q, k, v, **primed, mask=mask, bias=bias, dropout=dropout), None
        weights = drop(attention_weights(q, k, **primed, mask=mask, bias=bias), dropout)
        return pair_mix(weights, v, **primed), weights.to(v.dtype)


Forward = Callable[..., Any]


@dataclass(frozen=True)
class Adapter:
    """Where a class of modules keeps its attention.

    target:   the class, or the end of its dotted name, so that its package need not be imported.
    shape:    the module -> width of all heads together, number of heads.
    forward:  (module, attend, ...) -> what the module's own `forward` returns for the arguments after these two.
              `attend(q, k, v, mask=, bias=, dropout=, need_weights=)` takes (b, h, n, k), as `primecast.attend` does,
              and returns the mixed values and the weights (None without need_weights).
    at:       name of the submodule whose `forward` it replaces: the function between the projections. Empty: itself.
    switches: attributes of that submodule to be set while it is swapped, for instance to turn off a shortcut around it.
    refuse:   the module -> why it cannot be swapped, or None.
    """

    target: type[nn.Module] | str
    shape: Callable[[Any], tuple[int, int]]
    forward: Forward
    at: str = ""
    switches: Mapping[str, object] = field(default_factory=dict)
    refuse: Callable[[Any], str | None] = lambda module: None

    def fits(self, module: nn.Module) -> bool:
        if not isinstance(self.target, str):
            return isinstance(module, self.target)
        names = (f".{kind.__module__}.{kind.__qualname__}" for kind in type(module).__mro__)
        return any(name.endswith(f".{self.target}") for name in names)

    def part(self, module: nn.Module) -> nn.Module:
        """Return what of the module is swapped."""
        return module.get_submodule(self.at) if self.at else module


# ---------------------------------------------------------------- the two common designs

LAYOUTS = ("b h n k", "b n h k")


def of_heads(
    *,
    layout: str = "b h n k",
    names: tuple[str, str, str] = ("q", "k", "v"),
    dropout: str | None = None,
    scale: Callable[[Any], float | None] = lambda module: None,
    returns: Callable[[Tensor, Tensor | None], Any] = lambda out, weights: out,
) -> Forward:
    """Return a forward for attention whose first arguments are projected queries, keys and values, split into heads.

    layout:  of the three and of the result. names: of the three, for callers that use them.
    dropout: name of the attribute with the dropout rate or the nn.Dropout.
    scale:   the module -> the factor of its scores; None is 1 / sqrt(k).
    returns: mixed values and None -> what the module returns.
    """
    if layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS)

    def transpose(x: Tensor) -> Tensor:
        return x if layout == LAYOUTS[0] else x.transpose(1, 2)

    def forward(module: nn.Module, attend: Attend, *args: Any, **named: Any) -> Any:
        _refuse_others(module, args[3:], {name: value for name, value in named.items() if name not in names})
        q, k, v = (transpose(x) for x in (*args[:3], *(named[name] for name in names[len(args) : 3])))
        factor = scale(module)
        if factor is not None:
            q = q * (factor * math.sqrt(q.shape[-1]))
        mixed, _ = attend(q, k, v, dropout=_dropout_rate(module, dropout))
        return returns(transpose(mixed), None)

    return forward


def of_tokens(
    *,
    query: str,
    key: str,
    value: str,
    out: str,
    heads: str,
    tokens: str = "x",
    dropout: str | None = None,
    returns: Callable[[Tensor, Tensor | None], Any] = lambda out, weights: out,
) -> Forward:
    """Return a forward for self-attention whose first argument is tokens (b, n, d), which it projects itself.

    query, key, value, out, heads: names of the attributes with the projections and the number of heads.
    tokens: name of the first argument, for callers that use it. dropout, returns: as in `of_heads`.
    """

    def forward(module: nn.Module, attend: Attend, *args: Any, **named: Any) -> Any:
        x, *rest = args or (named.pop(tokens),)
        _refuse_others(module, rest, named)
        q, k, v = (split_heads(getattr(module, name)(x), getattr(module, heads)) for name in (query, key, value))
        mixed, _ = attend(q, k, v, dropout=_dropout_rate(module, dropout))
        return returns(getattr(module, out)(join_heads(mixed)), None)

    return forward


def _refuse_others(module: nn.Module, rest: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Refuse further arguments: a mask that the adapter does not understand must not be ignored."""
    others = {f"argument {place}": value for place, value in enumerate(rest, start=1)} | dict(named)
    given = [name for name, value in others.items() if isinstance(value, Tensor) or bool(value)]
    if given:
        raise InputError(
            f"{type(module).__name__} was called with {', '.join(given)} beside its tokens, which the adapter does not "
            "understand: write the adapter's forward by hand"
        )


def _dropout_rate(module: nn.Module, name: str | None) -> float:
    if name is None or not module.training:
        return 0.0
    rate = getattr(module, name)
    return rate.p if isinstance(rate, nn.Dropout) else float(rate)


# ---------------------------------------------------------------- nn.MultiheadAttention


def _multihead(
    module: nn.MultiheadAttention,
    attend: Attend,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute what nn.MultiheadAttention promises, with prime attention inside."""
    if is_causal and attn_mask is None:
        raise InputError("is_causal says that attn_mask is causal: give attn_mask")
    batched = query.ndim == 3
    tokens = [z if batched else z[None] for z in (query, key, value)]
    if batched and not module.batch_first:
        tokens = [z.transpose(0, 1) for z in tokens]
    q, k, v = (split_heads(z, module.num_heads) for z in _project(module, *tokens))

    bias = None
    if attn_mask is not None:
        whole = _additive_mask(attn_mask, q.dtype)  # (i, j) or (b h, i, j)
        bias = whole.expand(1, 1, -1, -1) if whole.ndim == 2 else whole.unflatten(0, (-1, module.num_heads))
    if key_padding_mask is not None:
        padding = _additive_mask(key_padding_mask, q.dtype).view(q.shape[0], 1, 1, -1).expand(-1, -1, q.shape[2], -1)
        bias = padding if bias is None else bias + padding

    rate = module.dropout if module.training else 0.0
    mixed, weights = attend(q, k, v, bias=bias, dropout=rate, need_weights=need_weights)
    out = module.out_proj(join_heads(mixed))
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if not batched:
        return out[0], None if weights is None else weights[0]
    return out if module.batch_first else out.transpose(0, 1), weights


def _project(module: nn.MultiheadAttention, *tokens: Tensor) -> Iterator[Tensor]:
    """Return queries, keys and values by the packed weights, or by three where keys or values have another width."""
    weights = (
        (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        if module.in_proj_weight is None
        else module.in_proj_weight.chunk(3)
    )
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return (F.linear(z, weight, bias) for z, weight, bias in zip(tokens, weights, biases, strict=True))


def _additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to the scores; a boolean mask of this module is True where i may NOT attend to j."""
    if mask.is_floating_point():
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask.bool(), -math.inf)


def _refuse_multihead(module: nn.MultiheadAttention) -> str | None:
    if getattr(module.forward, "__func__", None) is not nn.MultiheadAttention.forward:
        return (
            f"its class {type(module).__name__} has a forward of its own, which would be lost: give an adapter for it"
        )
    if module.bias_k is not None or module.bias_v is not None or module.add_zero_attn:
        return "add_bias_kv and add_zero_attn add keys that belong to no token, hence to no pair"
    return None


MULTIHEAD = Adapter(
    target=nn.MultiheadAttention,
    shape=lambda module: (module.embed_dim, module.num_heads),
    forward=_multihead,
    # In eval mode nn.TransformerEncoderLayer bypasses its attention and uses the weights alone, unless this is False.
    switches={"_qkv_same_embed_dim": False},
    refuse=_refuse_multihead,
)
