"""Prime attention in somebody else's model: the attention is swapped in place, the projections stay.

    report = swap_attention(model, length=96)       # finds the attention modules, adds a primer, reports what it did
    with priming(model, series):                    # series (b, n, l): one for each of the n tokens
        y = model(x)

A swapped module keeps its weights, its name and its place: its class becomes a subclass of what it was, with another
`forward`. So all keys of the `state_dict` are as before; hooks and optimizers that hold its parameters stay valid. New
are the keys of the primer, which is the submodule `primer` of the first attention that reads it. By default it starts
at F = 1, so that a trained model forecasts what it did until it is trained further.

A feed reaches only the calls inside the `with`, in its own thread. A call without a feed is an error, and so is a feed
that no attention reads: both would be standard attention, unnoticed. `priming(model, None)` asks for that explicitly.

Classes other than nn.MultiheadAttention and those of swap_huggingface.py need an adapter, see swap_adapters.py.

Letters: b batch, n tokens, d model width, l length of a series.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primecast.errors import InputError, check_known, show
from primecast.nn.attention import MODULATE, Prime
from primecast.nn.primer import Primer, build_primer
from primecast.nn.primer_layers import PairFeatures
from primecast.nn.swap_adapters import MULTIHEAD, Adapter, Attend, Forward
from primecast.nn.swap_huggingface import HUGGING_FACE
from primecast.schema import Rule, checked

IDENTITY: Mapping[str, object] = {"kind": "full", "base": "identity", "gain": 0.0}
"""A primer that starts at F = 1: the swapped model starts as what it was."""


@dataclass(eq=False)
class Feed:
    """What the attention modules of one swap share: their primers, and the tokens around those with a series."""

    primers: nn.ModuleList = field(repr=False)
    bare: tuple[int, int]
    read: bool = field(default=False, repr=False)  # whether any of them has ever read what it was fed


class ActiveFeed:
    """What a feed was given for the calls inside one `priming`; primers run once, when first needed.

    own: given by the model itself, by its `series=`; an enclosing `priming` takes precedence over it.
    """

    def __init__(self, feed: Feed, given: Callable[[], Tensor | Prime | None], *, own: bool) -> None:
        self.feed = feed
        self.given = given
        self.own = own
        self.primes: dict[tuple[int, bool], Prime] = {}
        self.read = False

    @staticmethod
    def latest(feed: Feed) -> "ActiveFeed | None":
        return next((active for active in reversed(_ACTIVE.get()) if active.feed is feed), None)

    def check_read(self, *, training: bool) -> None:
        """Refuse that no attention read it. While training a model may drop layers, so there once is enough."""
        if self.read or (training and self.feed.read):
            return
        raise InputError(
            "no swapped attention read what was fed: the model was not called, or it bypasses the modules that were "
            "swapped, for instance by using their weights alone; give an adapter for the class that does the attention"
        )

    def prime(self, number: int) -> Prime | Tensor | None:
        self.read = self.feed.read = True
        key = number, torch.is_grad_enabled()
        if key in self.primes:
            return self.primes[key]
        given = self.given()
        if not isinstance(given, Tensor) or given.ndim == 4:
            return given
        if given.ndim != 3:
            raise InputError(
                f"series have shape (batch, tokens, length), F (batch, tokens, tokens, width); got {tuple(given.shape)}"
            )
        if not self.feed.primers:
            raise InputError("this model was swapped without a primer: feed it a Prime, not series")
        primer = self.feed.primers[number]
        assert isinstance(primer, Primer)
        self.primes[key] = _surround(primer(given.to(primer.gains.device)), *self.feed.bare)
        return self.primes[key]


_ACTIVE: ContextVar[tuple[ActiveFeed, ...]] = ContextVar("active feeds", default=())
"""The innermost feed last. Not an attribute of the model, so that threads do not feed one another."""


def _surround(prime: Prime, before: int, after: int) -> Prime:
    """Return the same primer for more tokens: pairs with an added token have F = 1."""
    if not before and not after:
        return prime
    pad = (before, after, before, after)
    pairs = torch.ones_like(prime.phi[0, 0, 0], dtype=torch.bool) if prime.pairs is None else prime.pairs
    return Prime(F.pad(prime.phi, pad), prime.gains, prime.base, F.pad(pairs, pad))


@contextmanager
def priming(swapped: "nn.Module | SwapReport", given: Tensor | Prime | None) -> Iterator[None]:
    """Feed the swapped attention of a model (or of one swap alone, by its report) for the calls inside the `with`.

    given: series (b, n, l), one for each token, of which the model's own primer makes F; or a `Prime`, or F itself;
           None asks for standard attention. One `with` per training step: the primers run once in each.

    Example:

        with priming(model, x.mT):
            loss = (model(x) - y).square().mean()
    """
    Rule((nn.Module, SwapReport)).check("swapped", swapped)
    feeds = [swapped.feed] if isinstance(swapped, SwapReport) else _feeds(swapped)
    if not feeds:
        raise InputError(f"{type(swapped).__name__} has no swapped attention: call swap_attention(model) first")
    active = [ActiveFeed(feed, lambda: given, own=False) for feed in feeds]
    token = _ACTIVE.set((*_ACTIVE.get(), *active))
    try:
        yield
    finally:
        _ACTIVE.reset(token)
    for one in active if given is not None else ():
        one.check_read(training=isinstance(swapped, nn.Module) and swapped.training)


def _feeds(model: nn.Module) -> list[Feed]:
    places = (vars(module).get("prime_place") for module in model.modules())
    return list({id(place.feed): place.feed for place in places if isinstance(place, Place)}.values())


@dataclass(eq=False)
class _Feeder:
    """Hooks that feed a model from its own inputs. An object, not a closure, so that a copied model feeds itself."""

    feed: Feed
    series: Callable[..., Tensor]

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        active = ActiveFeed.latest(self.feed)
        if active is None or active.own:  # a model that calls itself feeds each call by its own arguments
            active = ActiveFeed(self.feed, lambda: self.series(*args, **kwargs), own=True)
        _ACTIVE.set((*_ACTIVE.get(), active))

    def after(self, module: nn.Module, args: Any, out: Any) -> None:
        active = _ACTIVE.get()
        if not active or active[-1].feed is not self.feed:  # another hook failed before ours
            return
        _ACTIVE.set(active[:-1])
        if active[-1].own and out is not None:  # None: the model failed
            active[-1].check_read(training=module.training)


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

    @property
    def name(self) -> str:
        return self.path or self.kind


@dataclass(frozen=True, eq=False)
class SwapReport:
    """What was swapped. `print(report)` shows a table; `undo()` restores the model.

    places:  the attention modules, in the order of the model.
    primers: what reads the series. They are submodules of the model, so its parameters() and state_dict() have them; an
             optimizer made before the swap needs `add_param_group({"params": report.primers.parameters()})`.
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


@checked()
def swap_attention(
    model: nn.Module,
    *,
    primer: str | Mapping[str, object] | PairFeatures | Primer | None = IDENTITY,
    length: int | None = None,
    tokens: int | None = None,
    share: bool = True,
    bare: tuple[int, int] = (0, 0),
    modulate: str = "kv",
    series: Callable[..., Tensor] | None = None,
    adapters: Sequence[Adapter] = (),
    where: Callable[[str, nn.Module], bool] = lambda path, module: True,
) -> SwapReport:
    """Replace the attention of `model` by prime attention, in place and with the projections kept; return a report.

    primer:   a kind, a mapping of `Primer` arguments, a callable or a Primer (see there); F = 1 at first by default. In
              a mapping, `layers: True` gives each attention gains of its own on shared pair activations. None: there is
              no primer, a ready `Prime` is fed. Width and heads are those of the attention.
    length:   steps of the series of a token, unless the primer is a ready one. tokens: for primers tied to their pairs.
    share:    one primer for all attentions of equal width and heads; False: one each.
    bare:     tokens before and after those with a series, such as class or memory tokens; pairs with them have F = 1.
    modulate: what a primer modulates: "k", "v" or "kv".
    series:   the arguments of the model's `forward` -> series (b, n, l); the model then feeds itself. Without it, feed
              by `priming`, which takes precedence over `series`, or pass `prime=` to a swapped module that you call.
    adapters: for classes that have none here; they come before those that are ready.
    where:    (path, module) -> whether to swap it.

    Example, channels of windows (b, l, n) as tokens: `swap_attention(model, length=96, series=lambda x: x.mT)`.
    """
    check_known("modulate", modulate, MODULATE)
    if len(bare) != 2 or not all(isinstance(count, int) and count >= 0 for count in bare):
        raise InputError(f"bare is {show(bare)}; it must be two whole numbers of at least 0")
    known = (*(Rule(Adapter).check("an adapter", one) for one in adapters), MULTIHEAD, *HUGGING_FACE)
    found = list(_find(model, known, where))
    if not found:
        raise InputError(f"no attention to swap in {type(model).__name__}: {_why_none(model, known)}")
    shapes = [adapter.shape(module) for _, module, adapter in found]
    primers, numbers = _make_primers(primer, shapes, length=length, tokens=tokens, share=share)
    anchor = next(model.parameters(), None)
    if anchor is not None and anchor.is_floating_point():
        primers.to(anchor)
    feed = Feed(primers, bare)
    places: list[Place] = []
    with ExitStack() as undo:  # a failure on the way leaves the model as it was
        for one, number in zip(found, numbers, strict=True):
            readers = [place for place in places if place.number == number]
            places.append(_swap_one(*one, number, modulate, feed, readers, undo))
        for part in model.modules():  # only torch's own attention takes nested tensors
            if isinstance(part, nn.TransformerEncoder) and getattr(part, "use_nested_tensor", False) and _feeds(part):
                _set(part, {"use_nested_tensor": False}, undo)
        if series is not None:
            feeder = _Feeder(feed, series)
            undo.callback(model.register_forward_pre_hook(feeder.before, with_kwargs=True).remove)
            undo.callback(model.register_forward_hook(feeder.after, always_call=True).remove)
        return SwapReport(tuple(places), primers, feed, undo.pop_all().close)


def _swap_one(
    path: str,
    module: nn.Module,
    adapter: Adapter,
    number: int,
    modulate: str,
    feed: Feed,
    readers: list[Place],
    undo: ExitStack,
) -> Place:
    """Swap one attention; the first reader of a primer holds it as its submodule."""
    part, path = adapter.part(module), ".".join(name for name in (path, adapter.at) if name)
    kind, home = type(part).__name__, readers[0].primer if readers else None
    if len(feed.primers) and not readers:
        home = ".".join(name for name in (path, "primer") if name)
        if hasattr(part, "primer"):
            raise InputError(
                f"{path or kind} has something named primer already, where its primer would live; leave it out by "
                "where=, or give that another name"
            )
        _set(part, {"primer": feed.primers[number]}, undo)
    place = Place(path, kind, *adapter.shape(module), home, number, len(readers), modulate, adapter.forward, feed)
    _set(part, {**adapter.switches, "prime_place": place}, undo)
    undo.callback(setattr, part, "__class__", type(part))
    part.__class__ = _primed(type(part))
    return place


def _find(
    model: nn.Module, adapters: Sequence[Adapter], where: Callable[[str, nn.Module], bool]
) -> Iterator[tuple[str, nn.Module, Adapter]]:
    for path, module in model.named_modules():
        adapter = next((adapter for adapter in adapters if adapter.fits(module)), None)
        if adapter is None or not where(path, module) or "prime_place" in vars(adapter.part(module)):
            continue
        reason = adapter.objection(module)
        if reason:
            raise InputError(f"{path or type(module).__name__} cannot be swapped: {reason}; leave it out by where=")
        yield path, module, adapter


def _why_none(model: nn.Module, adapters: Sequence[Adapter]) -> str:
    fits = [(path or "the model itself", a, m) for path, m in model.named_modules() for a in adapters if a.fits(m)]
    if not fits:
        return f"no adapter fits any of its modules: {', '.join(sorted({type(m).__name__ for m in model.modules()}))}"
    swapped = {path: "prime_place" in vars(adapter.part(module)) for path, adapter, module in fits}
    if all(swapped.values()):
        return f"{', '.join(swapped)} has been swapped already; undo() of its report restores it"
    return f"where= leaves out {', '.join(path for path, done in swapped.items() if not done)}"


def _make_primers(
    spec: "str | Mapping[str, object] | PairFeatures | Primer | None",
    shapes: list[tuple[int, int]],
    *,
    length: int | None,
    tokens: int | None,
    share: bool,
) -> tuple[nn.ModuleList, list[int]]:
    """Return the primers, and which of them each attention reads."""
    distinct = list(dict.fromkeys(shapes)) if share else shapes
    numbers = [distinct.index(shape) for shape in shapes] if share else list(range(len(shapes)))
    if spec is None:
        return nn.ModuleList(), numbers
    if isinstance(spec, Primer):
        heads, _, size = spec.gains.shape[-3:]
        if distinct != [(heads * size, heads)]:
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


# ---------------------------------------------------------------- the class of a swapped module

_NOT_GIVEN: Any = object()


def _primed(kind: type[nn.Module]) -> type[nn.Module]:
    own = {"forward": _primed_forward, "attends": True, "__reduce__": _primed_reduce, "__module__": __name__}
    return type(f"Primed{kind.__name__}", (kind,), own)


def _primed_reduce(self: Any) -> tuple[object, ...]:
    """Pickle and copy by the class it was: its own cannot be imported from anywhere."""
    return _primed_anew, (type(self).__base__,), self.__getstate__()


def _primed_anew(kind: type[nn.Module]) -> nn.Module:
    primed = _primed(kind)
    return primed.__new__(primed)


def _primed_forward(self: Any, *args: Any, prime: "Prime | Tensor | None" = _NOT_GIVEN, **kwargs: Any) -> Any:
    """The `forward` of every swapped module."""
    place: Place = self.prime_place
    if prime is _NOT_GIVEN:
        active = ActiveFeed.latest(place.feed)
        if active is None:
            raise InputError(
                f"{place.name} has prime attention but was fed nothing: call the model inside "
                "`with priming(model, series):`, or swap with series=; priming(model, None) asks for standard attention"
            )
        prime = active.prime(place.number)
    if isinstance(prime, Prime):
        prime = prime.layer(place.layer)
    return place.forward(self, Attend(place.name, prime, place.modulate), *args, **kwargs)


def _set(module: nn.Module, values: Mapping[str, object], undo: ExitStack) -> None:
    """Set attributes, and have `undo` restore them."""
    for name, value in values.items():
        own = vars(module)
        restore = partial(setattr, module, name, own[name]) if name in own else partial(delattr, module, name)
        setattr(module, name, value)
        undo.callback(restore)
