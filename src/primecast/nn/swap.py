"""Prime attention in somebody else's model: the attention is swapped in place, the projections stay.

    report = swap_attention(model, length=96)       # finds the attention modules, adds a primer, says what it did
    with priming(model, series):                    # series (b, n, l): what is known of each of the n tokens
        y = model(x)

A swapped module keeps its weights, its name and its place: its class becomes a subclass of what it was, with another
`forward`. So all keys of the `state_dict` are as before; hooks and optimisers that hold its parameters go on holding
them. New are the keys of the primer, which lives in the first attention that reads it, as its part `primer`. By default
it starts at F = 1, so that a trained model forecasts what it did until it is trained on.

What is fed reaches only the calls inside the `with`, in its own thread. A call without a feed is an error, and so is a
feed that no attention asks for: both would be standard attention, unnoticed. `priming(model, None)` asks for that.

nn.MultiheadAttention, alone or inside nn.TransformerEncoder and its like, is known here. For any other class an
`Adapter` says where its attention is; `of_heads` and `of_tokens` write its `forward` for the two common designs.

Letters: b batch, h heads, i asking token, j answering token, n tokens, k head size, d = h k, l length of a series.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from primecast.errors import InputError, unknown
from primecast.nn.attention import (
    MODULATE,
    Prime,
    attend,
    attention_weights,
    check_prime,
    join_heads,
    pair_mix,
    split_heads,
)
from primecast.nn.dropout import drop
from primecast.nn.primer import PairFeatures, Primer, build_primer

UNIT: Mapping[str, object] = {"kind": "full", "base": "identity", "gain": 0.0}
"""A primer that starts at F = 1: the swapped model starts as what it was."""

# ---------------------------------------------------------------- adapters: where a class keeps its attention

Forward = Callable[..., Any]


@dataclass(frozen=True)
class Adapter:
    """Where a class of modules keeps its attention.

    target:   the class, or the end of its dotted name, so that its package need not be imported.
    shape:    the module -> width of all heads together, number of heads.
    forward:  (module, attend, ...) -> what the module's own `forward` returns for the arguments after these two.
              `attend(q, k, v, mask=, bias=, dropout=, need_weights=)` takes (b, h, n, k), as `primecast.attend` does,
              and returns the mixed values and the weights (None unless they were asked for).
    at:       name of the part whose `forward` it replaces: the function between the projections. Empty: the module's.
    switches: attributes of that part to be set while it is swapped, for instance to turn off a shortcut around it.
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
        """What of the module is swapped."""
        return module.get_submodule(self.at) if self.at else module


LAYOUTS = ("b h n k", "b n h k")


def of_heads(
    *,
    layout: str = "b h n k",
    names: tuple[str, str, str] = ("q", "k", "v"),
    dropout: str | None = None,
    scale: Callable[[Any], float | None] = lambda module: None,
    returns: Callable[[Tensor, Tensor | None], Any] = lambda out, weights: out,
) -> Forward:
    """A forward for attention that is handed projected queries, keys and values, split into heads, as first arguments.

    layout:  of the three and of what is returned. names: of the three, for callers that use them.
    dropout: name of the attribute with the rate or the nn.Dropout.
    scale:   the module -> what it multiplies scores with; None is 1 / sqrt(k).
    returns: mixed values and None -> what the module returns.
    """
    if layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS)

    def turn(x: Tensor) -> Tensor:
        return x if layout == LAYOUTS[0] else x.transpose(1, 2)

    def forward(module: nn.Module, attend: "Attend", *args: Any, **named: Any) -> Any:
        _refuse_terms(module, args[3:], {name: value for name, value in named.items() if name not in names})
        q, k, v = (turn(x) for x in (*args[:3], *(named[name] for name in names[len(args) : 3])))
        own = scale(module)
        if own is not None:
            q = q * (own * math.sqrt(q.shape[-1]))
        mixed, _ = attend(q, k, v, dropout=_rate(module, dropout))
        return returns(turn(mixed), None)

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
    """A forward for self-attention that is handed tokens (b, n, d) as its first argument and projects them itself.

    query, key, value, out, heads: names of the attributes with the projections and the number of heads.
    tokens: name of the first argument, for callers that use it. dropout, returns: as in `of_heads`.
    """

    def forward(module: nn.Module, attend: "Attend", *args: Any, **named: Any) -> Any:
        x, *rest = args or (named.pop(tokens),)
        _refuse_terms(module, rest, named)
        count = getattr(module, heads)
        q, k, v = (split_heads(getattr(module, name)(x), count) for name in (query, key, value))
        mixed, _ = attend(q, k, v, dropout=_rate(module, dropout))
        return returns(getattr(module, out)(join_heads(mixed)), None)

    return forward


def _refuse_terms(module: nn.Module, rest: Sequence[Any], named: Mapping[str, Any]) -> None:
    """A mask that is not understood must not be ignored."""
    given = [f"argument {place}" for place, value in enumerate(rest, start=1) if _says(value)]
    given += [name for name, value in named.items() if _says(value)]
    if given:
        raise InputError(
            f"{type(module).__name__} was called with {', '.join(given)} beside its tokens, which the adapter does not "
            "understand: write the adapter's forward by hand"
        )


def _says(value: object) -> bool:
    return isinstance(value, Tensor) or bool(value)


def _rate(module: nn.Module, name: str | None) -> float:
    if name is None or not module.training:
        return 0.0
    rate = getattr(module, name)
    return rate.p if isinstance(rate, nn.Dropout) else float(rate)


# ---------------------------------------------------------------- the adapter of nn.MultiheadAttention


def _multihead(
    module: nn.MultiheadAttention,
    attend: "Attend",
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What nn.MultiheadAttention promises, with prime attention inside."""
    if is_causal and attn_mask is None:
        raise InputError("is_causal says that attn_mask is causal: give attn_mask")
    batched = query.ndim == 3
    tokens = [z if batched else z[None] for z in (query, key, value)]
    if batched and not module.batch_first:
        tokens = [z.transpose(0, 1) for z in tokens]
    q, k, v = (split_heads(z, module.num_heads) for z in _project(module, *tokens))

    bias = None
    if attn_mask is not None:
        whole = _additive(attn_mask, q.dtype)  # (i, j) or (b h, i, j)
        bias = whole.expand(1, 1, -1, -1) if whole.ndim == 2 else whole.unflatten(0, (-1, module.num_heads))
    if key_padding_mask is not None:
        padding = _additive(key_padding_mask, q.dtype).view(q.shape[0], 1, 1, -1).expand(-1, -1, q.shape[2], -1)
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
    """Queries, keys and values by the packed weights, or by three apart where keys or values have another width."""
    weights = (
        (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        if module.in_proj_weight is None
        else module.in_proj_weight.chunk(3)
    )
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return (F.linear(z, weight, bias) for z, weight, bias in zip(tokens, weights, biases, strict=True))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """torch's masks say True where i may NOT look at j; floats are added to the scores."""
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
    # nn.TransformerEncoderLayer goes around its attention in eval mode, with the weights alone, unless this is False.
    switches={"_qkv_same_embed_dim": False},
    refuse=_refuse_multihead,
)


# ---------------------------------------------------------------- feeding


@dataclass(eq=False)
class Feed:
    """What the attention modules of one swap share: their primers, and how the series they are fed cover the tokens.

    read: whether any of them has asked for what it was fed, ever.
    """

    primers: nn.ModuleList = field(repr=False)
    bare: tuple[int, int]
    read: bool = field(default=False, repr=False)


class Fed:
    """What a feed has been given for the calls inside one `priming`; primers run once, when first needed.

    own: given by the model itself, by its `series=`; what somebody feeds by `priming` comes before it.
    """

    def __init__(self, feed: Feed, given: Callable[[], "Tensor | Prime | None"], *, own: bool) -> None:
        self.feed = feed
        self.given = given
        self.own = own
        self.known: dict[tuple[int, bool], Prime] = {}
        self.read = False

    @staticmethod
    def latest(feed: Feed) -> "Fed | None":
        return next((fed for fed in reversed(_FED.get()) if fed.feed is feed), None)

    def check_read(self, *, training: bool) -> None:
        """Refuse that nobody asked for it. While training a model may drop layers, so there once is enough."""
        if self.read or (training and self.feed.read):
            return
        raise InputError(
            "no swapped attention asked for what was fed: the model was not called, or it goes around the modules that "
            "were swapped, for instance with their weights alone; give an adapter for the class that does the attention"
        )

    def prime(self, number: int) -> "Prime | Tensor | None":
        self.read = self.feed.read = True
        key = number, torch.is_grad_enabled()
        if key in self.known:
            return self.known[key]
        given = self.given()
        if not isinstance(given, Tensor) or given.ndim == 4:
            return given
        if given.ndim != 3:
            raise InputError(
                "series have shape (batch, tokens, length), F has (batch, tokens, tokens, width); got "
                f"{tuple(given.shape)}"
            )
        if not self.feed.primers:
            raise InputError("this model was swapped without a primer: feed it a Prime, not series")
        primer = self.feed.primers[number]
        assert isinstance(primer, Primer)
        self.known[key] = _surround(primer(given.to(primer.gains.device)), *self.feed.bare)
        return self.known[key]


_FED: ContextVar[tuple[Fed, ...]] = ContextVar("fed", default=())
"""What is being fed, the innermost last. Not an attribute of the model, so that threads do not feed one another."""


def _surround(prime: Prime, before: int, after: int) -> Prime:
    """The same primer for more tokens: pairs with one of those added have F = 1."""
    if not before and not after:
        return prime
    pad = (before, after, before, after)
    pairs = torch.ones_like(prime.phi[0, 0, 0], dtype=torch.bool) if prime.pairs is None else prime.pairs
    return Prime(F.pad(prime.phi, pad), prime.gains, prime.base, F.pad(pairs, pad))


@contextmanager
def priming(
    swapped: "nn.Module | SwapReport",
    given: Tensor | Prime | None,
) -> Iterator[None]:
    """Feed the swapped attention of a model (or of one swap alone, by its report) for the calls inside the `with`.

    given: series (b, n, l), one for each token, of which the model's own primer makes F; or a `Prime`, or F itself;
           None asks for standard attention. One `with` per training step: the primers run once in each.

    Example:

        with priming(model, x.mT):
            loss = (model(x) - y).square().mean()
    """
    feeds = [swapped.feed] if isinstance(swapped, SwapReport) else _feeds(swapped)
    if not feeds:
        raise InputError(f"{type(swapped).__name__} has no swapped attention: call swap_attention(model) first")
    fed = [Fed(feed, lambda: given, own=False) for feed in feeds]
    token = _FED.set((*_FED.get(), *fed))
    try:
        yield
    finally:
        _FED.reset(token)
    for one in fed if given is not None else ():
        one.check_read(training=isinstance(swapped, nn.Module) and swapped.training)


def _feeds(model: nn.Module) -> list[Feed]:
    places = (vars(module).get("prime_place") for module in model.modules())
    return list({id(place.feed): place.feed for place in places if isinstance(place, Place)}.values())


@dataclass(eq=False)
class _Feeder:
    """Feeds a model from its own inputs. An object, not a closure, so that a copied model feeds itself."""

    feed: Feed
    series: Callable[..., Tensor]

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        fed = Fed.latest(self.feed)
        if fed is None or fed.own:  # a model that calls itself feeds each call by its own arguments
            fed = Fed(self.feed, lambda: self.series(*args, **kwargs), own=True)
        _FED.set((*_FED.get(), fed))

    def after(self, module: nn.Module, args: Any, out: Any) -> None:
        fed = _FED.get()
        if not fed or fed[-1].feed is not self.feed:  # another hook failed before ours
            return
        _FED.set(fed[:-1])
        if fed[-1].own and out is not None:  # None: the model failed
            fed[-1].check_read(training=module.training)


# ---------------------------------------------------------------- the swap


@dataclass(frozen=True)
class Place:
    """One attention that was swapped: its path in the model, its class, width and heads, and the path of its primer.

    number: of the primer among those of the swap. layer: of this attention among those that read it.
    """

    path: str
    kind: str
    d_model: int
    heads: int
    primer: str | None
    number: int
    layer: int
    modulate: str
    forward: Forward = field(repr=False)
    feed: Feed


@dataclass(frozen=True, eq=False)
class Attend:
    """`attend` with the primer of one place filled in: what an adapter's `forward` is handed."""

    place: Place
    prime: Prime | Tensor | None

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
        prime, modulate = self.prime, self.place.modulate
        if isinstance(prime, Prime):
            prime = prime.layer(self.place.layer)
        try:
            check_prime(q, k, prime, modulate)
        except InputError as error:
            raise InputError(f"{self.place.path or self.place.kind}: {error}") from error
        if not need_weights:
            return attend(q, k, v, prime=prime, modulate=modulate, mask=mask, bias=bias, dropout=dropout), None
        weights = drop(attention_weights(q, k, prime=prime, modulate=modulate, mask=mask, bias=bias), dropout)
        return pair_mix(weights, v, prime=prime, modulate=modulate), weights.to(v.dtype)


@dataclass(frozen=True, eq=False)
class SwapReport:
    """What was swapped. `print(report)` shows a table; `undo()` puts everything back.

    places:  the attention modules, in the order of the model.
    primers: what reads the series. They are parts of the model, so its parameters() and state_dict() have them; an
             optimiser made before the swap needs `add_param_group({"params": report.primers.parameters()})`.
    """

    places: tuple[Place, ...]
    primers: nn.ModuleList
    feed: Feed = field(repr=False)
    undo: Callable[[], None] = field(repr=False)

    def __str__(self) -> str:
        head = ("path", "class", "d_model", "heads", "primer")
        rows = [
            (place.path or "(itself)", place.kind, str(place.d_model), str(place.heads), place.primer or "fed")
            for place in self.places
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)
        )


_NOT_GIVEN: Any = object()


def swap_attention(
    model: nn.Module,
    *,
    primer: "str | Mapping[str, object] | PairFeatures | Primer | None" = UNIT,
    length: int | None = None,
    tokens: int | None = None,
    share: bool = True,
    bare: tuple[int, int] = (0, 0),
    modulate: str = "kv",
    series: Callable[..., Tensor] | None = None,
    adapters: Sequence[Adapter] = (),
    where: Callable[[str, nn.Module], bool] = lambda path, module: True,
) -> SwapReport:
    """Replace the attention of `model` by prime attention, in place and with the projections kept; say what was done.

    primer:   a kind, a mapping of `Primer` arguments, a callable or a Primer (see there); F = 1 at first by default. In
              a mapping, `layers: True` gives each attention gains of its own on shared pair activations. None: there is
              no primer, a ready `Prime` is fed. Width and heads are those of the attention.
    length:   steps of the series of a token, unless the primer is a ready one. tokens: for primers tied to their pairs.
    share:    one primer for all attentions of equal width and heads; False: one each.
    bare:     tokens before and after those with a series, such as class or memory tokens; pairs with them have F = 1.
    modulate: what a primer touches: "k", "v" or "kv".
    series:   the arguments of the model's `forward` -> series (b, n, l); the model then feeds itself. Without it, feed
              by `priming`, which also comes before what the model would feed itself, or pass `prime=` where you call
              a swapped module yourself.
    adapters: for classes that are not known here; they come before nn.MultiheadAttention's.
    where:    (path, module) -> whether to swap it.

    Example, for a model of windows (b, l, n) whose tokens are channels:

        print(swap_attention(model, length=96, series=lambda x: x.mT))
    """
    if modulate not in MODULATE:
        raise unknown("modulate", modulate, MODULATE)
    found = list(_find(model, (*adapters, MULTIHEAD), where))
    if not found:
        raise InputError(f"no attention to swap in {type(model).__name__}: {_why_none(model, (*adapters, MULTIHEAD))}")
    shapes = [adapter.shape(module) for _, module, adapter in found]
    primers, numbers = _make_primers(primer, shapes, length=length, tokens=tokens, share=share)
    anchor = next(model.parameters(), None)
    if anchor is not None and anchor.is_floating_point():
        primers.to(device=anchor.device, dtype=anchor.dtype)
    feed = Feed(primers, bare)
    places: list[Place] = []
    with ExitStack() as undo:  # whatever fails on the way leaves the model as it was
        for (path, module, adapter), (d_model, heads), number in zip(found, shapes, numbers, strict=True):
            part = adapter.part(module)
            own_path = ".".join(name for name in (path, adapter.at) if name)
            readers = [place for place in places if place.number == number]
            home = None
            if len(primers):
                home = readers[0].primer if readers else ".".join(name for name in (own_path, "primer") if name)
                if not readers:
                    _check_free(part, "primer", path=own_path)
                    _set(part, {"primer": primers[number]}, undo)
            kind = type(part).__name__
            place = Place(own_path, kind, d_model, heads, home, number, len(readers), modulate, adapter.forward, feed)
            _set(part, {**adapter.switches, "prime_place": place}, undo)
            undo.callback(setattr, part, "__class__", type(part))
            part.__class__ = _primed(type(part))
            places.append(place)
        for encoder in _nesting(model):
            _set(encoder, {"use_nested_tensor": False}, undo)
        if series is not None:
            feeder = _Feeder(feed, series)
            undo.callback(model.register_forward_pre_hook(feeder.before, with_kwargs=True).remove)
            undo.callback(model.register_forward_hook(feeder.after, always_call=True).remove)
        return SwapReport(tuple(places), primers, feed, undo.pop_all().close)


def _find(
    model: nn.Module, adapters: Sequence[Adapter], where: Callable[[str, nn.Module], bool]
) -> Iterator[tuple[str, nn.Module, Adapter]]:
    for path, module in model.named_modules():
        adapter = next((adapter for adapter in adapters if adapter.fits(module)), None)
        if adapter is None or not where(path, module):
            continue
        if "prime_place" in vars(adapter.part(module)):
            continue
        reason = adapter.refuse(module)
        if reason:
            raise InputError(f"{path or type(module).__name__} cannot be swapped: {reason}; leave it out by where=")
        yield path, module, adapter


def _why_none(model: nn.Module, adapters: Sequence[Adapter]) -> str:
    fits = [(path or "the model itself", a, m) for path, m in model.named_modules() for a in adapters if a.fits(m)]
    if not fits:
        names = sorted({type(module).__name__ for module in model.modules()})
        return "it has no nn.MultiheadAttention and nothing that an adapter fits; its modules are " + ", ".join(names)
    swapped = {path: "prime_place" in vars(adapter.part(module)) for path, adapter, module in fits}
    if all(swapped.values()):
        return f"{', '.join(swapped)} has been swapped already; undo() of its report puts it back"
    return f"where= leaves out {', '.join(path for path, done in swapped.items() if not done)}"


def _make_primers(
    spec: "str | Mapping[str, object] | PairFeatures | Primer | None",
    shapes: list[tuple[int, int]],
    *,
    length: int | None,
    tokens: int | None,
    share: bool,
) -> tuple[nn.ModuleList, list[int]]:
    """The primers, and which of them each attention reads."""
    distinct = list(dict.fromkeys(shapes)) if share else shapes
    numbers = [distinct.index(shape) for shape in shapes] if share else list(range(len(shapes)))
    if spec is None:
        return nn.ModuleList(), numbers
    if isinstance(spec, Primer):
        heads, _, size = spec.gains.shape[-3:]
        others = [shape for shape in distinct if shape != (heads * size, heads)]
        if others or len(distinct) > 1:
            raise InputError(
                f"one ready primer of width {heads * size} and {heads} heads cannot serve attentions of (width, heads) "
                f"{', '.join(map(str, distinct))}: name its kind and arguments instead"
            )
        return nn.ModuleList([spec]), numbers
    if length is None:
        raise InputError("length is needed to make a primer: the number of steps of the series of a token")
    made = [
        build_primer(spec, length=length, d_model=d_model, n_heads=heads, tokens=tokens, layers=numbers.count(number))
        for number, (d_model, heads) in enumerate(distinct)
    ]
    return nn.ModuleList(primer for primer in made if primer is not None), numbers


def _check_free(part: nn.Module, name: str, *, path: str) -> None:
    if hasattr(part, name):
        raise InputError(
            f"{path or type(part).__name__} has something named {name} already, where its primer would live; leave it "
            "out by where=, or give that another name"
        )


def _primed(kind: type[nn.Module]) -> type[nn.Module]:
    own = {"forward": _primed_forward, "attends": True, "__reduce__": _primed_reduce, "__module__": __name__}
    return type(f"Primed{kind.__name__}", (kind,), own)


def _primed_reduce(self: Any) -> tuple[object, ...]:
    """For pickles and copies: by the class it was, since its own is nowhere to be imported from."""
    return _primed_anew, (type(self).__base__,), self.__getstate__()


def _primed_anew(kind: type[nn.Module]) -> nn.Module:
    primed = _primed(kind)
    return primed.__new__(primed)


def _primed_forward(
    self: Any, *args: Any, prime: "Prime | Tensor | None" = _NOT_GIVEN, **kwargs: Any
) -> Any:  # the `forward` of every swapped module
    place: Place = self.prime_place
    if prime is _NOT_GIVEN:
        fed = Fed.latest(place.feed)
        if fed is None:
            raise InputError(
                f"{place.path or place.kind} has prime attention but was fed nothing: call the model inside "
                "`with priming(model, series):`, or swap with series=; priming(model, None) asks for standard attention"
            )
        prime = fed.prime(place.number)
    return place.forward(self, Attend(place, prime), *args, **kwargs)


def _set(module: nn.Module, values: Mapping[str, object], undo: ExitStack) -> None:
    """Set attributes; `undo` learns what puts them back."""
    for name, value in values.items():
        own = vars(module)
        put_back = partial(setattr, module, name, own[name]) if name in own else partial(delattr, module, name)
        setattr(module, name, value)
        undo.callback(put_back)


def _nesting(model: nn.Module) -> list[nn.TransformerEncoder]:
    """Encoders that would hand their layers nested tensors, which only torch's own attention takes."""
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.TransformerEncoder)
        and getattr(module, "use_nested_tensor", False)
        and any("prime_place" in vars(part) for part in module.modules())
    ]
