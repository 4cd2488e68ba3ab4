"""Arguments are checked by what is declared of them: a kind, bounds, allowed names. A violation is one sentence.

    RULES = {"epochs": Rule("count"), "missing": Rule("name", allowed=POLICIES), "season": Rule("count", optional=True)}

`rules_of` declares the same of a function's parameters by their annotations.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from operator import index
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

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
    "mapping": "a mapping from names to values",
}


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
    """What an argument may be. kind: a name in KINDS. allowed: the only names. what: they name, if not the argument."""

    kind: str
    bounds: Bounds = Bounds()
    allowed: Collection[str] | None = None
    optional: bool = False
    what: str | None = None

    def check(self, name: str, value: Any) -> Any:
        """Return the value, numpy's numbers as Python's own; refuse one that the argument cannot have."""
        if value is None and self.optional:
            return None
        plain = _PLAIN[self.kind](value)
        if plain is None or (self.kind in ("count", "number") and not self.bounds.hold(plain)):
            wanted = f"{KINDS[self.kind]}{self.bounds}"
            raise InputError(f"{name} is {show(value)}; it must be {wanted}{' or None' if self.optional else ''}")
        if self.allowed is not None and plain not in self.allowed:
            raise unknown(self.what or name, plain, self.allowed)
        return plain


COUNT = Rule("count", Bounds(least=1))
SIZE = Rule("count", Bounds(least=1, most=LARGEST_SIZE))


def check(rules: Mapping[str, Rule], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values as plain ones, each checked by the rule of its name; those without a rule as they are."""
    return {name: rules[name].check(name, value) if name in rules else value for name, value in given.items()}


def rules_of(function: Callable[..., Any]) -> dict[str, Rule]:
    """Return the rules that the annotations of a function's parameters imply, for those that imply one.

    A whole number is at least 1; 0 where that, or None, may stand for nothing.
    """
    rules = {one.name: _rule_of(one) for one in signature(function).parameters.values()}
    return {name: rule for name, rule in rules.items() if rule is not None}


def _rule_of(parameter: Parameter) -> Rule | None:
    annotation = parameter.annotation
    kinds = set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}
    optional = NoneType in kinds
    kinds -= {NoneType}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind is int:
        most = LARGEST_SEED if parameter.name.endswith("seed") else LARGEST_SIZE
        return Rule("count", Bounds(least=0 if optional or parameter.default == 0 else 1, most=most), optional=optional)
    if kind is float:
        fraction = Bounds(least=0, below=1) if parameter.name == "dropout" else Bounds()
        return Rule("number", fraction, optional=optional)
    name = {str: "name", bool: "flag"}.get(kind, "mapping" if get_origin(kind) is Mapping else None)
    return None if name is None else Rule(name, optional=optional)


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


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) and all(isinstance(name, str) for name in value) else None


_PLAIN: dict[str, Callable[[object], Any]] = {
    "count": _whole,
    "number": _number,
    "name": _name,
    "flag": _flag,
    "names": _names,
    "mapping": _mapping,
}
