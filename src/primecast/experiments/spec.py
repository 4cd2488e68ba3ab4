"""What a run is: a spec, every argument it resolves to, and the key that names it.

A run's identity is its `key`: the hash of data, model, sizes, seed, loss, probes and of all arguments that are not at
their default. Two spellings of one run have one key. A changed default, or a renamed argument, changes keys:
`tools/migrate_results.py` then rewrites the committed rows.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from primecast.analysis.probes import PROBES
from primecast.data.catalog import CATALOG, load_dataset
from primecast.data.windows import Dataset
from primecast.errors import InputError, check_known, unknown
from primecast.frames.read import read_table
from primecast.frames.validate import dataset_from_frame
from primecast.models import MODELS, attention_options, default_attention
from primecast.models.presets import loss_options as published_loss_options
from primecast.models.presets import published
from primecast.nn.losses import LOSSES, create_loss
from primecast.nn.primer import Primer, default_hidden, seeded
from primecast.schema import check, rules_of
from primecast.training.loop import fit
from primecast.training.optimizer import SCHEDULES

TRAINING = ("lr", "batch_size", "epochs", "patience", "schedule", "drop_last", "device", "precision")
"""Settings that are arguments of `fit`."""
SIZES = frozenset({"lookback", "horizon", "channels", "n_time_features"})
"""Arguments of a model that follow from the data and the spec."""
PRIMER_SIZES = frozenset({"length", "d_model", "n_heads", "tokens"})
"""Arguments of a primer that follow from its model."""
PRIMER_ARGUMENTS = tuple(sorted(set(signature(Primer).parameters) - PRIMER_SIZES))
SETTINGS_OF_TABLES = "wth"
"""The data set whose published settings a table of one's own gets: hourly, 12 channels of different kinds."""
ROLLING = ("timer_xl",)
"""Models that forecast any horizon by rolling, and so can be scored at another horizon than they are trained at."""


def _defaults(function: Callable[..., Any], without: frozenset[str] = frozenset()) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in signature(function).parameters.items()
        if name not in without and parameter.default is not Parameter.empty
    }


FIT_DEFAULTS = {name: value for name, value in _defaults(fit).items() if name in TRAINING}
FIT_DEFAULTS |= {"lr_factors": {}, "train_horizon": None}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to run. `settings` replaces what the preset says: "lr", "d_model", "primer.hidden", "loss", "loss.delta".

    dataset:   a name in CATALOG, or the path of a table, which is read and split as by `Forecaster.fit`.
    preset:    a name in PRESETS. They are those of the paper's backbone, iTransformer; of a model that has settings of
               its own (see ModelEntry) only the preset's loss is used.
    attention: standard, prime-table, prime, MECHANISM or MECHANISM+prime; None is the default of the model.
    settings:  arguments of model and training; "primer.<argument>", "loss.<argument>"; "lr_factor.<part>", a factor on
               the learning rate of that part of the model; "train_horizon", the horizon at which a model of ROLLING is
               trained, if it is not the one it is scored at.
    probes:    names in PROBES: what else to measure of the trained model.
    variant:   what a study calls it; a label, which is not part of the key.
    """

    dataset: str
    model: str = "itransformer"
    attention: str | None = None
    horizon: int = 96
    lookback: int = 96
    seed: int = 0
    preset: str = "official"
    settings: Mapping[str, Any] = field(default_factory=dict)
    probes: tuple[str, ...] = ()
    variant: str = ""

    def __post_init__(self) -> None:
        vars(self).update(check(rules_of(Spec), vars(self)))

    def to_json(self) -> str:
        """Return one line; fields in one order, so that equal specs give equal text."""
        return json.dumps(asdict(self) | {"settings": dict(sorted(self.settings.items()))})

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        fields = json.loads(text)
        return cls(**fields | {"probes": tuple(fields.get("probes", ()))})

    def key(self, root: Path | str | None = None) -> str:
        """Return the name of the run; the data set is read (once per process), because it is part of it."""
        return key(self, fingerprint(self.dataset, root))

    @property
    def training(self) -> str:
        """Return what is trained: specs that differ in the horizon they are scored at alone have it in common."""
        settings = {name: value for name, value in self.settings.items() if name != "train_horizon"}
        horizon = self.settings.get("train_horizon") or self.horizon
        return replace(self, horizon=horizon, settings=settings, variant="").to_json()

    def __str__(self) -> str:
        settings = "".join(f" {name}={value}" for name, value in self.settings.items())
        attention = self.attention or "default attention"
        return f"{self.dataset} {self.lookback}->{self.horizon} {self.model} {attention}{settings} seed {self.seed}"


def parse_setting(text: str) -> tuple[str, Any]:
    """Read `name=value` from the command line; the value is read as JSON where it is JSON, else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"setting {text!r} must be written name=value, for example lr=0.001")
    try:
        return name.strip(), json.loads(value)
    except (ValueError, RecursionError):  # no JSON, or a number of 5,000 digits, or lists in lists without end
        return name.strip(), value


# ---------------------------------------------------------------- from a spec to arguments


@dataclass(frozen=True)
class ResolvedSpec:
    """Every argument that model, loss and training will get."""

    attention: str
    train_horizon: int
    model: dict[str, Any]
    training: dict[str, Any]
    loss: str
    loss_options: dict[str, Any]
    probes: tuple[str, ...] = ()


def resolve(spec: Spec) -> ResolvedSpec:
    """Resolve a spec, before anything long starts; an unknown name is refused here."""
    own = is_table(spec.dataset)
    if not own:
        check_known("data set", spec.dataset, CATALOG)
    check_known("model", spec.model, MODELS)
    for probe in spec.probes:
        check_known("probe", probe, PROBES)
    attention = spec.attention or default_attention(spec.model)
    settings = dict(spec.settings)
    train_horizon = int(settings.pop("train_horizon", None) or spec.horizon)
    if train_horizon != spec.horizon and (spec.model not in ROLLING or settings.get("head") == "direct" or spec.probes):
        raise InputError(
            f"train_horizon {train_horizon} is not the horizon {spec.horizon}: only {', '.join(ROLLING)} with its "
            "rolling head, without probes, can be scored at another horizon than it is trained at"
        )
    accepted = signature(MODELS[spec.model].build).parameters.keys() - SIZES
    chosen = published(spec.model, SETTINGS_OF_TABLES if own else spec.dataset, train_horizon, spec.preset)
    training = dict(chosen.training)
    model: dict[str, Any] = {name: value for name, value in chosen.model.items() if name in accepted}
    model |= attention_options(spec.model, attention)
    if "primer" in settings and "primer" in accepted:
        model["primer"] = settings.pop("primer")
    loss = str(settings.pop("loss", chosen.loss))
    loss_options = published_loss_options(loss, spec.dataset) | _pop_prefixed(settings, "loss.")
    factors = _pop_prefixed(settings, "lr_factor.")
    primer_options = _pop_prefixed(settings, "primer.") if model.get("primer") is not None else {}
    for name in primer_options:
        check_known("argument of the primer", name, PRIMER_ARGUMENTS)
    for name, value in settings.items():
        if name not in accepted and name not in TRAINING:
            primed = ["primer.<argument of Primer>"] if model.get("primer") is not None else []
            names = [*TRAINING, "lr_factor.<part of the model>", "loss", "loss.<argument>", *primed, *accepted]
            raise unknown("setting", name, names)
        (training if name in TRAINING else model)[name] = value
    if factors:
        training["lr_factors"] = factors
    if primer_options:
        model["primer"] = _primer(model) | primer_options
    if isinstance(model.get("primer"), Mapping):
        model["primer"] = seeded(model["primer"], spec.seed)
    check_known("schedule", training["schedule"], SCHEDULES)
    create_loss(loss, **loss_options)
    return ResolvedSpec(
        attention, train_horizon, model, training, loss, loss_options, probes=tuple(sorted(set(spec.probes)))
    )


def _pop_prefixed(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Take the settings whose name has this prefix out, and return them without it."""
    return {name.removeprefix(prefix): settings.pop(name) for name in list(settings) if name.startswith(prefix)}


def _primer(model: Mapping[str, Any]) -> dict[str, Any]:
    primer = model["primer"]
    return dict(primer) if isinstance(primer, Mapping) else {"kind": primer}


# ---------------------------------------------------------------- the identity of a run

REVISIONS = {"directional": 2, "random": 2, "lift": 2, "patchtst": 2}
"""Mechanisms, kinds of primers and models that were corrected after runs with them: a key holds the number of their
definition, so that rows of a former one do not count."""


def identity(spec: Spec, resolved: ResolvedSpec, fingerprint: str) -> dict[str, Any]:
    """Return the fields of a row that say what was run, with every setting and its defaults written out."""
    build = MODELS[spec.model].build
    model = {**_defaults(build, SIZES), **resolved.model}
    if model.get("d_ff", 0) is None:
        model["d_ff"] = _d_ff_ratio(spec.model) * model["d_model"]
    if model.get("primer") is not None:
        given = {name: value for name, value in _primer(model).items() if value is not None}
        model["primer"] = _primer_defaults(model, spec.lookback) | given
        model["primer"]["layers"] = bool(model["primer"]["layers"])
    training = {**FIT_DEFAULTS, **resolved.training}
    training["lr_factors"] = {part: factor for part, factor in training["lr_factors"].items() if factor != 1}
    if resolved.train_horizon != spec.horizon:
        training["train_horizon"] = resolved.train_horizon
    loss_options = _defaults(LOSSES[resolved.loss]) | resolved.loss_options
    named = {spec.model, str(model.get("mechanism")), str((model.get("primer") or {}).get("kind"))}
    revisions = {name: revision for name, revision in REVISIONS.items() if name in named}
    return {
        **{name: getattr(spec, name) for name in ("dataset", "model", "horizon", "lookback", "seed", "preset")},
        "variant": spec.variant,
        "attention": resolved.attention,
        "fingerprint": fingerprint,
        "settings": {
            "model": model,
            "training": training,
            "loss": resolved.loss,
            "loss_options": loss_options,
            **({"revisions": revisions} if revisions else {}),
        },
        "probes": {name: {} for name in resolved.probes},
    }


def key(spec: Spec, fingerprint: str) -> str:
    """Return the key of a spec on data of this fingerprint."""
    return key_of(identity(spec, resolve(spec), fingerprint))


def key_of(fields: Mapping[str, Any]) -> str:
    """Return the key that a row's own fields give: nothing else is needed, not even the data."""
    settings = fields["settings"]
    model, primer = dict(settings["model"]), settings["model"].get("primer")
    defaults = {**_defaults(MODELS[fields["model"]].build), "primer": primer}
    if defaults.get("d_ff", 0) is None:
        defaults["d_ff"] = _d_ff_ratio(fields["model"]) * model["d_model"]
    changed = {
        "primed": primer is not None,
        **_non_default_arguments(model, defaults),
        **_non_default_arguments(settings["training"], FIT_DEFAULTS),
        **_non_default_arguments(settings["loss_options"], _defaults(LOSSES[settings["loss"]]), "loss."),
    }
    if primer is not None:
        changed |= _non_default_arguments(primer, _primer_defaults(model, fields["lookback"]), "primer.")
    identity = {
        **{name: fields[name] for name in ("dataset", "fingerprint", "model", "lookback", "horizon", "seed")},
        "loss": settings["loss"],
        "probes": sorted(fields["probes"]),
        "settings": changed,
        **({"revisions": settings["revisions"]} if "revisions" in settings else {}),
    }
    text = json.dumps(_canonical(identity), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _non_default_arguments(given: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    return {prefix + name: value for name, value in given.items() if name not in defaults or value != defaults[name]}


def _d_ff_ratio(model: str) -> int:
    """Return the width of the feed-forward layer as a multiple of the model's, where it is not given."""
    return 4 if model in ("autoformer", "timer_xl") else 1


def _primer_defaults(model: Mapping[str, Any], lookback: int) -> dict[str, Any]:
    kind = _primer(model).get("kind", "full")
    derived = {"hidden": default_hidden(kind, model["n_heads"]), "rolling": max(2, lookback // 8), "layers": False}
    return _defaults(Primer, PRIMER_SIZES) | derived


def _canonical(value: Any) -> Any:
    """1 and 1.0 are one number, tuples are lists."""
    if isinstance(value, Mapping):
        return {str(name): _canonical(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def fingerprint(dataset: str, root: Path | str | None = None) -> str:
    """Return the fingerprint of a data set's values and dates, see Dataset; it is read once per process."""
    if not is_table(dataset):
        check_known("data set", dataset, CATALOG)
    return _fingerprint(dataset, None if root is None else str(root), os.environ.get("PRIMECAST_DATA"))


@cache
def _fingerprint(dataset: str, root: str | None, variable: str | None) -> str:
    return load(dataset, root).fingerprint


def is_table(dataset: str) -> bool:
    """Return whether this is the path of a table, not the name of a data set."""
    return dataset not in CATALOG and Path(dataset).suffix != ""


def load(dataset: str, root: Path | str | None = None) -> Dataset:
    """Return the data set of this name, see `load_dataset`, or the table of this path."""
    return dataset_from_frame(read_table(dataset), name=dataset) if is_table(dataset) else load_dataset(dataset, root)


def has_data(dataset: str, root: Path | str | None) -> bool:
    """Return whether a data set is on this machine."""
    try:
        fingerprint(dataset, root)
    except InputError:
        return False
    return True
