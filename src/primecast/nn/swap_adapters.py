"""Adapters: where a class of modules keeps its attention, and its `forward` with `attend` in the place of that.

nn.MultiheadAttention, alone or inside nn.TransformerEncoder and its like, has an adapter here, classes of Hugging Face
in swap_huggingface.py. For any other class write an `Adapter`; `HeadsForward` and `TokensForward` are its `forward` for
the two common designs. swap.py uses them.

Letters: b batch, h heads, i query token, j key token, n tokens, k head size, d = h k.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from primecast.errors import InputError, unknown
from primecast.nn.attention import (
    Prime,
    attend,
    attention_weights,
    check_prime,
    join_heads,
    pair_mix,
    split_heads,
)
from primecast.nn.checks import PositionFn, check_inputs
from primecast.nn.dropout import drop


@dataclass(frozen=True, eq=False)
class Attend:
    """`primecast.attend` with the primer of one module filled in: what the `forward` of an adapter is given."""

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
        position: PositionFn | None = None,
    ) -> Float[Tensor, "b h i k"]:
        """Return what `primecast.attend` returns: the mixed values alone."""
        primed = self._primed(q, k)
        return attend(q, k, v, **primed, mask=mask, bias=bias, dropout=dropout, position=position)

    def with_weights(
        self,
        q: Float[Tensor, "b h i k"],
        k: Float[Tensor, "b h j k"],
        v: Float[Tensor, "b h j k"],
        *,
        mask: Bool[Tensor, "#b #h i j"] | None = None,
        bias: Float[Tensor, "#b #h i j"] | None = None,
        dropout: float = 0.0,
        position: PositionFn | None = None,
    ) -> tuple[Float[Tensor, "b h i k"], Float[Tensor, "b h i j"]]:
        """Return the mixed values and the weights, after dropout as in torch; slower, since the weights are formed."""
        primed = self._primed(q, k)
        weights = drop(attention_weights(q, k, **primed, mask=mask, bias=bias, position=position), dropout)
        return pair_mix(weights, v, **primed), weights.to(v.dtype)

    def _primed(self, q: Tensor, k: Tensor) -> dict[str, Any]:
        primed: dict[str, Any] = {"prime": self.prime, "modulate": self.modulate}
        try:
            check_inputs(q, k)  # before the primer reads their sizes
            check_prime(q, k, **primed)
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error
        return primed


Forward = Callable[..., Any]


# Functions with names, not lambdas: a swapped model is pickled with its adapter.
def _all(module: Any) -> bool:
    return True


def _never(module: Any, others: dict[str, Any]) -> bool:
    return False


def _no_objection(module: Any) -> str | None:
    return None


@dataclass(frozen=True)
class Adapter:
    """Where a class of modules keeps its attention.

    target:   the class, or the end of its dotted name, so that its package need not be imported.
    shape:    the module -> width of all heads together, number of heads.
    forward:  (module, attend, ...) -> what the module's own `forward` returns for the arguments after these two.
              `attend` takes and returns what `primecast.attend` does, with the primer filled in; `attend.with_weights`
              also returns the weights. The names in `forward.attributes`, if it has that, are looked up at the swap.
    at:       name of the submodule whose `forward` it replaces: the function between the projections. Empty: itself.
    switches: attributes of that submodule to be set while it is swapped, for instance to turn off a shortcut around it.
    when:     the module -> whether it is one of those meant; the others are passed over.
    refuse:   the module -> why it cannot be swapped, or None.
    """

    target: type[nn.Module] | str
    shape: Callable[[Any], tuple[int, int]]
    forward: Forward
    at: str = ""
    switches: Mapping[str, object] = field(default_factory=dict)
    when: Callable[[Any], bool] = _all
    refuse: Callable[[Any], str | None] = _no_objection

    def fits(self, module: nn.Module) -> bool:
        if not isinstance(self.target, str):
            return isinstance(module, self.target) and self.when(module)
        names = (f".{kind.__module__}.{kind.__qualname__}" for kind in type(module).__mro__)
        return any(name.endswith(f".{self.target}") for name in names) and self.when(module)

    def part(self, module: nn.Module) -> nn.Module:
        """Return what of the module is swapped."""
        try:
            return module.get_submodule(self.at)
        except AttributeError:
            raise _unknown_name("submodule", module, self.at) from None

    def objection(self, module: nn.Module) -> str | None:
        """Return why the module cannot be swapped, or None; names that it has not are found here, not in `forward`."""
        part = self.part(module)
        for name in (*getattr(self.forward, "attributes", ()), *self.switches):
            if not hasattr(part, name):
                return f"in its adapter, {_unknown_name('attribute', part, name)}"
        try:
            width, heads = self.shape(module)
        except AttributeError as error:
            return f"the shape of its adapter fails: {error}"
        if heads < 1 or width % heads:
            return f"the shape of its adapter gives width {width} and {heads} heads, which do not divide it"
        return self.refuse(module)


def _unknown_name(what: str, module: nn.Module, name: str) -> InputError:
    names = {**vars(module), **dict(module.named_children()), **dict(module.named_parameters(recurse=False))}
    return unknown(f"{what} of {type(module).__name__}", name, [own for own in names if not own.startswith("_")])


# ---------------------------------------------------------------- the two common designs

LAYOUTS = ("b h n k", "b n h k")


def output(out: Tensor, weights: Tensor | None) -> Tensor:
    """Return the output alone, as most modules do."""
    return out


def output_and_weights(out: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return both, as modules do that can be asked for their weights."""
    return out, weights


@dataclass(frozen=True, kw_only=True)
class HeadsForward:
    """The forward of attention whose first arguments are projected queries, keys and values, split into heads.

    layout:  of the three and of the result.
    dropout: name of the attribute with the dropout rate or the nn.Dropout.
    scale:   name of the attribute with the factor of the scores; None is 1 / sqrt(k).
    returns: mixed values and None -> what the module returns.
    """

    layout: str = "b h n k"
    dropout: str | None = None
    scale: str | None = None
    returns: Callable[[Tensor, Tensor | None], Any] = output

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise unknown("layout", self.layout, LAYOUTS)

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(name for name in (self.dropout, self.scale) if name is not None)

    def __call__(self, module: nn.Module, attend: Attend, *args: Any, **named: Any) -> Any:
        (q, k, v), others = _first(3, module, args, named)
        refuse_others(module, others)
        q, k, v = (self._transpose(x) for x in (q, k, v))
        factor = None if self.scale is None else getattr(module, self.scale)
        if factor is not None:
            q = q * (factor * math.sqrt(q.shape[-1]))
        mixed = attend(q, k, v, dropout=_dropout_rate(module, self.dropout))
        return self.returns(self._transpose(mixed), None)

    def _transpose(self, x: Tensor) -> Tensor:
        return x if self.layout == LAYOUTS[0] else x.transpose(1, 2)


@dataclass(frozen=True, kw_only=True)
class TokensForward:
    """The forward of self-attention whose first argument is tokens (b, n, d), which it projects itself.

    query, key, value, heads: names of the attributes with the projections and the number of heads.
    out:     name of the output projection; None: there is none, the heads are joined and returned.
    dropout: name of the attribute with the dropout rate or the nn.Dropout.
    mask:    name of the argument with a mask that broadcasts to (b, h, i, j): True where i may attend to j, or numbers
             that are added to the scores. Without it a call with a mask is refused.
    ignored: names of arguments that do not change what is computed; any other one that is given is refused.
    weights: (the module, its other arguments) -> whether the weights are wanted; it takes out the arguments it reads.
    returns: output, weights or None -> what the module returns.
    """

    query: str
    key: str
    value: str
    heads: str
    out: str | None = None
    dropout: str | None = None
    mask: str | None = None
    ignored: tuple[str, ...] = ()
    weights: Callable[[Any, dict[str, Any]], bool] = _never
    returns: Callable[[Tensor, Tensor | None], Any] = output

    @property
    def attributes(self) -> tuple[str, ...]:
        names = (self.query, self.key, self.value, self.heads, self.out, self.dropout)
        return tuple(name for name in names if name is not None)

    def __call__(self, module: nn.Module, attend: Attend, *args: Any, **named: Any) -> Any:
        (x,), others = _first(1, module, args, named)
        masks = {} if self.mask is None else _masks(others.pop(self.mask, None))
        wanted = self.weights(module, others)
        refuse_others(module, others, self.ignored)
        heads = getattr(module, self.heads)
        q, k, v = (split_heads(getattr(module, name)(x), heads) for name in (self.query, self.key, self.value))
        rate = _dropout_rate(module, self.dropout)
        weights: Tensor | None = None
        if wanted:
            mixed, weights = attend.with_weights(q, k, v, dropout=rate, **masks)
        else:
            mixed = attend(q, k, v, dropout=rate, **masks)
        out = join_heads(mixed)
        return self.returns(out if self.out is None else getattr(module, self.out)(out), weights)


def _first(
    count: int, module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the first arguments of the module's own `forward`, and the others by name."""
    names = _parameters(type(module).__mro__[1])  # its class is a subclass of what it was
    extra = (f"argument {number}" for number in range(len(names), len(args)))
    given = {**dict(zip((*names, *extra), args, strict=False)), **named}
    missing = [name for name in names[:count] if name not in given]
    if missing:
        raise InputError(f"{type(module).__name__} was called without {', '.join(missing)}")
    return [given.pop(name) for name in names[:count]], given


@cache
def _parameters(kind: type[nn.Module]) -> tuple[str, ...]:
    _, *own = signature(kind.forward).parameters.values()
    return tuple(one.name for one in own if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))


def _masks(mask: Tensor | None) -> dict[str, Any]:
    if mask is None:
        return {}
    return {"mask" if mask.dtype == torch.bool else "bias": mask}


def refuse_others(module: nn.Module, others: Mapping[str, Any], ignored: tuple[str, ...] = ()) -> None:
    """Refuse further arguments: a mask that the adapter does not understand must not be ignored."""
    given = [name for name, value in others.items() if name not in ignored and (isinstance(value, Tensor) or value)]
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
    weights: Tensor | None = None
    if need_weights:
        mixed, weights = attend.with_weights(q, k, v, bias=bias, dropout=rate)
    else:
        mixed = attend(q, k, v, bias=bias, dropout=rate)
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
