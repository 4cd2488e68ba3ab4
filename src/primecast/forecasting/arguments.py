"""The arguments of a Forecaster: all checks of their values, and the model they describe."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import nn

from primecast.errors import InputError, format_list, unknown
from primecast.frames.validate import POLICIES
from primecast.models import MODELS, attention_options, create_model, default_attention, reads_time_features
from primecast.nn.losses import create_loss
from primecast.nn.primer import seeded
from primecast.storage.tensors import bounded_model, describe_tensors
from primecast.training.device import PRECISIONS
from primecast.training.optimizer import SCHEDULES
from primecast.training.progress import PROGRESS

CHOICES: dict[str, Mapping[str, object] | Sequence[str]] = {
    "schedule": SCHEDULES,
    "precision": PRECISIONS,
    "progress": PROGRESS,
    "missing": POLICIES,
}


DESIGNS: dict[str, dict[str, Any]] = {
    "prime-learned, shrink": {"attention": "prime-learned", "model_args": {"norm": "shrink"}},
    "prime-learned": {"attention": "prime-learned"},
    "standard, shrink": {"attention": "standard", "model_args": {"norm": "shrink"}},
    "dlinear": {"model": "dlinear", "lr": 1e-3},
    "prime": {"attention": "prime"},
    "prime-learned, shrink, seed + 1": {"attention": "prime-learned", "model_args": {"norm": "shrink"}, "seed": 1},
    "prime-learned, shrink, half the look-back": {
        "attention": "prime-learned", "model_args": {"norm": "shrink"}, "lookback": 0.5,
    },
}  # fmt: skip
"""The members of an ensemble by name: arguments that replace those of the Forecaster. seed is added to its seed,
lookback multiplied with its look-back."""
QUALITIES = {"fast": 1, "good": 4, "best": len(DESIGNS)}
"""How many of the designs, from the first on, each quality trains."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of a Forecaster at one time; their meaning and their defaults are documented there."""

    horizon: int
    lookback: int
    model: str
    attention: str | None
    model_args: Mapping[str, Any] | None
    past: Sequence[str] | None
    future: Sequence[str] | None
    loss: str
    lr: float
    batch_size: int
    epochs: int
    patience: int
    schedule: str
    seed: int
    device: str
    precision: str
    missing: str
    season: int | None
    refit: bool
    progress: str
    quality: str | None
    time_limit: float | None

    def check(self) -> None:
        """Refuse every value that cannot be used, now and not after an hour of training."""
        for name in ("horizon", "lookback", "batch_size", "epochs", "patience"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
        if self.season is not None:
            check_count("season", self.season)
        if not (_is_number(self.lr) and self.lr > 0 and math.isfinite(self.lr)):
            raise InputError(f"lr is {self.lr!r}; it must be a finite number above 0")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown("policy for missing values" if name == "missing" else name, getattr(self, name), allowed)
        if self.quality is not None and self.quality not in QUALITIES:
            raise unknown("quality", self.quality, QUALITIES)
        if self.time_limit is not None and not (self.quality and _is_number(self.time_limit) and self.time_limit > 0):
            raise InputError(f"time_limit is {self.time_limit!r}; it must be seconds above 0, and goes with quality")
        self._check_covariates()
        try:
            json.dumps(asdict(self), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"the arguments of a Forecaster must be such as JSON can hold: {error}") from error
        create_loss(self.loss)
        for one in self.members().values() if self.quality else (self,):
            tensor_kinds(partial(one.build_model, channels=2, n_time_features=2))
        if self.future and not reads_time_features(self.model, self.model_args):
            raise InputError(f"model {self.model!r} reads no time features, so it cannot use future covariates")

    def _check_covariates(self) -> None:
        for name in ("past", "future"):
            names = getattr(self, name)
            if names is not None and (isinstance(names, str) or not all(isinstance(one, str) for one in names)):
                raise InputError(f"{name} is {names!r}; it must be a list of names of columns")
        twice = set(self.past or ()) & set(self.future or ())
        if twice:
            raise InputError(f"these covariates are given as past and as future: {format_list(sorted(twice))}")

    def members(self) -> dict[str, "Arguments"]:
        """Return the members of the ensemble by name, each as the arguments of one model; none without a quality.

        Where a model, an attention or arguments of the model are given, the members are built on them: with both ways
        to normalize, if the model has a choice, and with another seed.
        """
        if self.quality is None:
            return {}
        designs = DESIGNS
        if self.model != "itransformer" or self.attention is not None or self.model_args:
            designs = {"as given": {}}
            if self.model in MODELS and "norm" in signature(MODELS[self.model].build).parameters:
                designs["shrink"] = {"model_args": {**(self.model_args or {}), "norm": "shrink"}}
            designs |= {f"seed + {step}": {"seed": step} for step in (1, 2)}
        chosen = list(designs.items())[: QUALITIES[self.quality]]
        members = {name: self._member(**design) for name, design in chosen}
        if not self.future:
            return members
        return {name: one for name, one in members.items() if reads_time_features(one.model, one.model_args)}

    def _member(self, *, seed: int = 0, lookback: float = 1, **others: Any) -> "Arguments":
        steps = max(1, int(self.lookback * lookback))
        return replace(self, quality=None, time_limit=None, seed=self.seed + seed, lookback=steps, **others)

    @property
    def attention_name(self) -> str:
        return self.attention or default_attention(self.model)

    def build_model(self, *, channels: int, n_time_features: int) -> nn.Module:
        """Return the model with its initial weights, which depend on the seed alone."""
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        options = {
            **attention_options(self.model, self.attention_name),
            "n_time_features": n_time_features,
            **dict(self.model_args or {}),
        }
        if isinstance(options.get("primer"), Mapping):
            options["primer"] = seeded(options["primer"], self.seed)
        return create_model(
            self.model, lookback=self.lookback, horizon=self.horizon, channels=channels, seed=self.seed, **options
        )


def tensor_kinds(build: Callable[[], nn.Module]) -> dict[str, str]:
    """Return name, type and shape of the tensors of a model, without allocating them; refuse more than can be saved."""
    with bounded_model(), torch.device("meta"):
        return describe_tensors(build().state_dict())


def check_count(name: str, value: object, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
