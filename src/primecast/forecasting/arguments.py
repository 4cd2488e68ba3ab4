"""The arguments of a Forecaster: all checks of their values, and the model they describe."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from primecast.errors import InputError, format_list, show
from primecast.forecasting.bounds import BOUNDS
from primecast.forecasting.designs import DESIGNS, LAST_SEASON, LONG, QUALITIES, SHORT, designs_around, shorter_lookback
from primecast.frames.roles import shifts
from primecast.frames.validate import POLICIES
from primecast.models import MODELS, attention_options, create_model, default_attention, reads_time_features
from primecast.nn.losses import LOSSES
from primecast.nn.primer import seeded
from primecast.schema import COUNT, LARGEST_SEED, SIZE, Bounds, Rule, check
from primecast.storage.tensors import bounded_model, describe_tensors
from primecast.training.progress import PROGRESS
from primecast.training.settings import TRAINING_RULES

RULES = {
    "horizon": SIZE,
    "lookback": SIZE,
    "model": Rule("name", allowed=MODELS),
    "attention": Rule("name", optional=True),
    "model_args": Rule("mapping", optional=True),
    "past": Rule("names", optional=True),
    "future": Rule("names", optional=True),
    "loss": Rule("name", allowed=LOSSES),
    **{name: TRAINING_RULES[name] for name in ("lr", "batch_size", "epochs", "patience", "schedule", "precision")},
    "seed": Rule("count", Bounds(least=0, most=LARGEST_SEED - len(DESIGNS))),  # members add to it
    "device": Rule("name"),
    "missing": Rule("name", allowed=POLICIES, what="policy for missing values"),
    "bounds": Rule("name", allowed=[one for one in BOUNDS if one], optional=True),
    "season": replace(COUNT, optional=True),
    "refit": Rule("flag"),
    "progress": Rule("name", allowed=PROGRESS),
    "quality": Rule("name", allowed=QUALITIES, optional=True),
    "time_limit": Rule("number", Bounds(above=0), optional=True),
}
"""What each argument may be; `Arguments.check` has what they may be together."""


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
    bounds: str | None

    def check(self) -> None:
        """Refuse every value that cannot be used, now and not after an hour of training."""
        check(RULES, vars(self))
        if self.time_limit is not None and self.quality is None:
            raise InputError(f"time_limit is {self.time_limit!r}; it is for an ensemble, not one model")
        twice = set(self.past or ()) & set(self.future or ())
        if twice:
            raise InputError(f"these covariates are given as past and as future: {format_list(sorted(twice))}")
        for kind, names in (("past", self.past or ()), ("future", self.future or ())):
            if len(set(names)) < len(names):
                raise InputError(f"{kind} is {show(list(names))}; it must name each covariate once")
        try:
            json.dumps(asdict(self), allow_nan=False)
        except (RecursionError, TypeError, ValueError) as error:
            raise InputError(f"the arguments of a Forecaster must be such as JSON can hold: {error}") from error
        for one in self.members().values() if self.quality else (self,):
            try:
                tensor_kinds(partial(one.build_model, channels=2, n_time_features=4 + one.n_covariates))
            except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f"model {one.model!r} cannot be built with these arguments: {error}") from error
        if self.future and not reads_time_features(self.model, self.model_args):
            raise InputError(f"model {self.model!r} reads no time features, so it cannot use future covariates")

    def members(self, last_season: int | None = None) -> dict[str, "Arguments"]:
        """Return the members of the ensemble by name, each as the arguments of one model; none without a quality.

        last_season: steps of the season that the member LAST_SEASON repeats. None, or more than the look-back: it is
                     left out.

        Where a model, an attention or arguments of the model are given, the members are built on them: with both ways
        to normalize, if the model has a choice, and with another seed.
        """
        if self.quality is None:
            return {}
        designs = DESIGNS
        if self.model != "itransformer" or self.attention is not None or self.model_args:
            has_norm = self.model in MODELS and "norm" in signature(MODELS[self.model].build).parameters
            designs = designs_around(self.model_args, has_norm=has_norm)
        members = {}
        for name, design in list(designs.items())[: QUALITIES[self.quality]]:
            one = self._member(**design)
            if name == LAST_SEASON:
                if last_season is None or last_season > one.lookback:
                    continue
                one = replace(one, model_args={"season": last_season})
            members[name] = one
        if not self.future:
            return members
        return {name: one for name, one in members.items() if reads_time_features(one.model, one.model_args)}

    def _member(self, *, seed: int = 0, lookback: int = SHORT, epochs: float = 1, **others: Any) -> "Arguments":
        # With future covariates all have the same look-back: these are laid out in steps of it.
        steps = self.lookback if self.future else min(lookback, self.lookback)
        changed: dict[str, Any] = {
            "seed": self.seed + seed,
            "lookback": steps,
            "epochs": max(1, round(epochs * self.epochs)),
        }
        return replace(self, quality=None, time_limit=None, **changed, **others)

    def for_rows(self, rows: int) -> "Arguments":
        """Return the arguments for a table of so many rows: an ensemble with its default look-back shortens it."""
        if self.quality is None or self.lookback != LONG:
            return self
        return replace(self, lookback=shorter_lookback(self.lookback, rows=rows, horizon=self.horizon))

    @property
    def n_covariates(self) -> int:
        """Return how many time features the future covariates are."""
        return len(self.future or ()) * len(shifts(lookback=self.lookback, horizon=self.horizon))

    @property
    def attention_name(self) -> str:
        return self.attention or default_attention(self.model)

    def build_model(self, *, channels: int, n_time_features: int) -> nn.Module:
        """Return the model with its initial weights, which depend on the seed alone."""
        options = {
            **attention_options(self.model, self.attention_name),
            "n_time_features": n_time_features,
            **dict(self.model_args or {}),
        }
        if "n_covariates" in signature(MODELS[self.model].build).parameters:
            options["n_covariates"] = self.n_covariates
        if isinstance(options.get("primer"), Mapping):
            options["primer"] = seeded(options["primer"], self.seed)
        return create_model(
            self.model, lookback=self.lookback, horizon=self.horizon, channels=channels, seed=self.seed, **options
        )


def tensor_kinds(build: Callable[[], nn.Module]) -> dict[str, str]:
    """Return name, type and shape of the tensors of a model, without allocating them; refuse more than can be saved."""
    with bounded_model(), torch.device("meta"):
        return describe_tensors(build().state_dict())
