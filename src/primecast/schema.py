"""Arguments are checked by what is declared of them: a kind, bounds, allowed names. A violation is one sentence.

    RULES = {"epochs": Rule("count"), "missing": Rule("name", allowed=POLICIES), "season": Rule("count", optional=True)}

`rules_of` declares the same of a function's parameters by their annotations; `checked` makes a function hold to them.
"""

import collections.abc
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from operator import index
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from primecast.errors import InputError, show, unknown

LARGEST_SIZE = 1 << 16
"""No size of a model is larger."""
LARGEST_SEED = 2**63 - 1
KINDS = {
    "count": "a whole number",
    "number": "a finite number",
    "name": "a name",
    "flag": "true or false",
    "names": "a list of names",
    "list": "a list",
    "mapping": "a mapping from names to values",
    "path": "a path",
    "function": "a function",
}
Kind = str | type
"""A name in KINDS, or a class whose objects are meant."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The least and the most a number may be; `above` and `below` are not allowed themselves."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def hold(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        parts = [
            f" {word} {bound}"
            for word, bound in (
                ("of at least", self.least),
                ("above", self.above),
                ("of at most", self.most),
                ("below", self.below),
            )
            if math.isfinite(bound)
        ]
        return " and".join(parts)


@dataclass(frozen=True)
class Rule:
    """What an argument may be. kind: one or several. allowed: the only names. what: they name, if not the argument."""

    kind: Kind | tuple[Kind, ...]
    bounds: Bounds = Bounds()
    allowed: Collection[str] | None = None
    optional: bool = False
    what: str | None = None

    def check(self, name: str, value: Any) -> Any:
        """Return the value, numpy's numbers as Python's own; refuse one that the argument cannot have."""
        if value is None and self.optional:
            return None
        kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
        plain = next((one for one in (_plain(kind, value) for kind in kinds) if one is not None), None)
        if plain is None or (kinds[0] in ("count", "number") and not self.bounds.hold(plain)):
            wanted = [KINDS[kind] if isinstance(kind, str) else f"a {kind.__name__}" for kind in kinds]
            wanted = [wanted[0] + str(self.bounds), *wanted[1:], *(["None"] if self.optional else [])]
            *first, last = wanted
            listed = f"{', '.join(first)} or {last}" if first else last
            raise InputError(f"{name} is {show(value)}; it must be {listed}")
        if self.allowed is not None and plain not in self.allowed:
            raise unknown(self.what or name, plain, self.allowed)
        return plain


COUNT = Rule("count", Bounds(least=1))
SIZE = Rule("count", Bounds(least=1, most=LARGEST_SIZE))


def check(rules: Mapping[str, Rule], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values as plain ones, each checked by the rule of its name; those without a rule as they are."""
    return {name: rules[name].check(name, value) if name in rules else value for name, value in given.items()}


def checked(**rules: Rule) -> Callable[[F], F]:
    """Return a decorator: a function's arguments are checked by its annotations, or by these rules in their place."""

    def decorate(function: F) -> F:
        parameters, known = signature(function), rules_of(function) | rules

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = parameters.bind(*args, **kwargs)
            given.arguments.update(check(known, given.arguments))
            return function(*given.args, **given.kwargs)

        return call  # type: ignore[return-value]

    return decorate


def rules_of(function: Callable[..., Any]) -> dict[str, Rule]:
    """Return the rules that the annotations of a function's parameters imply, for those that imply one.

    A whole number is at least 1; 0 where that, or None, may stand for nothing.
    """
    single = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    rules = {one.name: _rule_of(one) for one in signature(function).parameters.values() if one.kind in single}
    return {name: rule for name, rule in rules.items() if rule is not None}


def _rule_of(parameter: Parameter) -> Rule | None:
    annotation = parameter.annotation
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    optional = NoneType in kinds
    kinds = tuple(kind for kind in kinds if kind is not NoneType)
    if set(kinds) == {Path, str}:
        return Rule("path", optional=optional)
    if kinds == (int,):
        if parameter.name.endswith("seed"):
            return Rule("count", Bounds(least=0, most=LARGEST_SEED), optional=optional)
        least = 0 if optional or parameter.default == 0 else 1
        return Rule("count", Bounds(least=least, most=LARGEST_SIZE), optional=optional)
    if kinds == (float,):
        fraction = Bounds(least=0, below=1) if parameter.name == "dropout" else Bounds()
        return Rule("number", fraction, optional=optional)
    named = [_kind_of(kind) for kind in kinds]
    if not named or None in named:
        return None
    return Rule(named[0] if len(named) == 1 else tuple(named), optional=optional)  # type: ignore[arg-type]


def _kind_of(annotation: Any) -> Kind | None:
    """Return the kind of an annotation that needs no bounds; None where it implies none."""
    origin = get_origin(annotation)
    if annotation in _PLAIN_CLASSES or origin in _PLAIN_CLASSES:
        return _PLAIN_CLASSES[annotation if origin is None else origin]
    if origin in (Sequence, tuple):
        return "names" if get_args(annotation)[0] is str else "list"
    known = (
        isinstance(annotation, type) and origin is None and annotation not in (Parameter.empty, Any, object, int, float)
    )
    # Not a tensor with a shape, which is checked where shapes meet, nor a protocol that cannot be asked for.
    protocol = getattr(annotation, "_is_protocol", False) and not getattr(annotation, "_is_runtime_protocol", False)
    return annotation if known and not protocol and not hasattr(annotation, "array_type") else None


_PLAIN_CLASSES: dict[Any, str] = {str: "name", bool: "flag", Mapping: "mapping", collections.abc.Callable: "function"}


# ---------------------------------------------------------------- values as plain ones; None: of another kind


def _whole(value: object) -> int | None:
    try:
        return None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool | str) or not hasattr(type(value), "__float__"):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _name(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _names(value: object) -> Sequence[str] | None:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return value if listed and all(isinstance(one, str) for one in value) else None  # type: ignore[attr-defined,return-value]


def _path(value: object) -> object:
    try:
        encoded = os.fsencode(value)  # type: ignore[arg-type]
        return value if encoded and b"\0" not in encoded and not isinstance(value, bytes) else None
    except (TypeError, UnicodeEncodeError):  # no path, or one that no file can have
        return None


def _function(value: object) -> object:
    return value if callable(value) else None


def _list(value: object) -> object:
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError:  # also of arrays and tensors without an axis
        return None
    # Whoever read a generator first would leave nothing for the next.
    return list(value) if isinstance(value, collections.abc.Iterator) else value


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) and all(isinstance(name, str) for name in value) else None


_PLAIN: dict[str, Callable[[object], Any]] = {
    "count": _whole,
    "number": _number,
    "name": _name,
    "flag": _flag,
    "names": _names,
    "list": _list,
    "mapping": _mapping,
    "path": _path,
    "function": _function,
}


def _plain(kind: Kind, value: object) -> Any:
    """Return the value if it is of the kind, None otherwise."""
    if isinstance(kind, str):
        return _PLAIN[kind](value)
    return value if isinstance(value, kind) else None
