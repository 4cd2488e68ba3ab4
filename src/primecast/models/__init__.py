"""The models, by name. A registry is a dict one can read, and to be in it is to be tested.

Every model is made by `create_model(name, lookback=, horizon=, channels=, ...)` and called as
`model(x: (b, l, n), marks: (b, l + h, m) or None) -> (b, h, n)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from torch import nn

from primecast.attention import MECHANISMS
from primecast.errors import InputError, unknown
from primecast.models.itransformer import ITransformer


@dataclass(frozen=True)
class ModelEntry:
    """A model of the registry: its class, what its tokens are, what it can take, and where it comes from."""

    build: type[nn.Module]
    tokens: str
    reference: str
    mechanisms: tuple[str, ...] = ()
    primable: bool = False


MODELS: Mapping[str, ModelEntry] = {
    "itransformer": ModelEntry(
        ITransformer,
        tokens="channels",
        reference="Liu et al., ICLR 2024",
        mechanisms=tuple(MECHANISMS),
        primable=True,
    ),
}


def list_models() -> list[str]:
    """Names that `create_model` takes."""
    return sorted(MODELS)


def create_model(name: str, *, lookback: int, horizon: int, channels: int, **options: Any) -> nn.Module:
    """A model by name; every name and option is checked before anything is built.

    Example: `create_model("itransformer", lookback=96, horizon=96, channels=7, d_model=256, primer="full")`.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    for what, size in (("lookback", lookback), ("horizon", horizon), ("channels", channels)):
        if size < 1:
            raise InputError(f"{what} {size} must be at least 1")
    allowed = set(signature(MODELS[name].build).parameters)
    for option in options:
        if option not in allowed:
            raise unknown(f"argument of model {name}", option, allowed)
    return MODELS[name].build(lookback=lookback, horizon=horizon, channels=channels, **options)
