"""The registry: models and attentions by name. A model in MODELS is tested by every test of tests/test_models.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import nn

from primecast.errors import InputError, check_known
from primecast.models.autoformer import Autoformer
from primecast.models.dlinear import DLinear
from primecast.models.gat import GAT
from primecast.models.itransformer import ITransformer
from primecast.models.lagts import LagTSReconstruction
from primecast.models.lift import LIFT
from primecast.models.naive import SeasonalNaive
from primecast.models.patchtst import PatchTST
from primecast.models.ridge import Ridge
from primecast.models.timer_xl import TIME_MECHANISMS, TimerXL
from primecast.nn.mechanisms import MECHANISMS
from primecast.nn.primer import Primer
from primecast.schema import check, checked, rules_of


@dataclass(frozen=True)
class ModelEntry:
    """A model of the registry: its class, its tokens, the attentions it supports, its reference.

    reads_time_features: the forecast depends on the time features; for LIFT see the function below.
    permutes:            permuting the channels permutes the forecast, at the model's default arguments.
    equivariant:         scale and level of a window carry over to its forecast, at the model's default arguments.
    has_parameters:      there is something to train.
    map_size:            entries of the attention maps of one window and head, by the sizes and arguments of the model.
    """

    build: type[nn.Module]
    tokens: str
    reference: str
    mechanisms: tuple[str, ...] = ()
    supports_primer: bool = False
    reads_time_features: bool = False
    permutes: bool = True
    equivariant: bool = True
    has_parameters: bool = True
    map_size: Callable[[Mapping[str, Any]], int] = lambda sizes: 0


def _pairs_of_channels(sizes: Mapping[str, Any]) -> int:
    return int((sizes["channels"] + sizes["n_time_features"]) ** 2)


MODELS: Mapping[str, ModelEntry] = {
    "autoformer": ModelEntry(
        Autoformer,
        tokens="time steps",
        reference="Wu et al., NeurIPS 2021",
        reads_time_features=True,
        permutes=False,  # a convolution mixes the channels of a step
        equivariant=False,  # unless norm="instance"
    ),
    "dlinear": ModelEntry(
        DLinear,
        tokens="none: two linear maps",
        reference="Zeng et al., AAAI 2023",
        equivariant=False,  # unless norm="instance"
    ),
    "gat": ModelEntry(
        GAT,
        tokens="channels, joined by a drawn graph",
        reference="Velickovic et al., ICLR 2018; Brody et al., ICLR 2022",
        supports_primer=True,  # a graph of density < 1 ties it to its channels; by default all are joined
        reads_time_features=True,
        map_size=_pairs_of_channels,
    ),
    "itransformer": ModelEntry(
        ITransformer,
        tokens="channels",
        reference="Liu et al., ICLR 2024",
        mechanisms=tuple(MECHANISMS),
        supports_primer=True,
        reads_time_features=True,
        map_size=_pairs_of_channels,
    ),
    "timer_xl": ModelEntry(
        TimerXL,
        tokens="patches of all channels",
        reference="Liu et al., ICLR 2025",
        mechanisms=TIME_MECHANISMS,
        supports_primer=True,
        map_size=lambda sizes: (sizes["channels"] * sizes["lookback"] // sizes["patch"]) ** 2,
    ),
    "patchtst": ModelEntry(
        PatchTST,
        tokens="patches of one channel",
        reference="Nie et al., ICLR 2023",
        map_size=lambda sizes: sizes["channels"] * ((sizes["lookback"] - sizes["patch"]) // sizes["stride"] + 2) ** 2,
    ),
    "ridge": ModelEntry(
        Ridge,
        tokens="none: a linear map per channel, in closed form",
        reference="Hoerl & Kennard, Technometrics 1970",
        reads_time_features=True,
        permutes=False,  # a map for each channel
        equivariant=False,
    ),
    "seasonal-naive": ModelEntry(
        SeasonalNaive,
        tokens="none: the last season, repeated",
        reference="the forecast to beat",
        has_parameters=False,
    ),
    "lift": ModelEntry(
        LIFT,
        tokens="those of its backbone",
        reference="Zhao & Shen, ICLR 2024",
        permutes=False,  # its state router has parameters per channel
        equivariant=False,  # its router reads the window without normalization, unless router="normal"
    ),
    "lagts-reconstruction": ModelEntry(
        LagTSReconstruction,
        tokens="channels",
        reference="our reconstruction after the public description of LagTS, Liu et al., ICASSP 2025",
    ),
}


def list_models() -> list[str]:
    """Return the names that `create_model` takes."""
    return sorted(MODELS)


def reads_time_features(name: str, model_args: Mapping[str, Any] | None = None) -> bool:
    """Return whether the forecast of a model with these arguments depends on its time features.

    >>> reads_time_features("lift"), reads_time_features("lift", {"backbone": "itransformer"})
    (False, True)
    """
    check_known("model", name, MODELS)
    backbone = (model_args or {}).get("backbone")
    if name == "lift" and isinstance(backbone, str):
        return reads_time_features(backbone, (model_args or {}).get("backbone_args"))
    return MODELS[name].reads_time_features


def attention_size(name: str, **sizes: Any) -> tuple[int, int]:
    """Return the entries of all attention maps of one window in a layer, and the number of layers."""
    entry = MODELS[name]
    known = {one.name: one.default for one in signature(entry.build).parameters.values()} | sizes
    return entry.map_size(known) * known.get("n_heads", 1), known.get("n_layers", 1)


@checked()
def create_model(
    name: str,
    *,
    lookback: int,
    horizon: int,
    channels: int,
    attention: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """Return a model by name; every name and option is checked before the model is built.

    attention: a name in `attentions(name)`; a mechanism or a primer among the options replaces its own. None: as the
               options specify; where they name neither, `default_attention(name)`.
    seed:      of the initial weights. None: torch's global generator, which a seed leaves untouched.

    Example: `create_model("itransformer", lookback=96, horizon=96, channels=7, d_model=256, attention="standard")`.
    """
    check_known("model", name, MODELS)
    options = _check_options(name, options)
    if attention is None and not options.keys() & {"mechanism", "primer"}:
        attention = default_attention(name)
    if attention is not None:
        options = {**attention_options(name, attention), **options}
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        sizes = {"lookback": lookback, "horizon": horizon, "channels": channels}
        if name == "lift":
            options = _with_backbone(sizes, **options)
        return MODELS[name].build(**sizes, **options)


def _check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as plain values; refuse those that the model, or its primer, does not have or cannot have."""
    build = MODELS[name].build
    for option in options:
        check_known(f"argument of model {name}", option, signature(build).parameters)
    primer = options.get("primer")
    if isinstance(primer, Mapping):
        check({name: rule for name, rule in rules_of(Primer).items() if name != "layers"}, primer)  # also true or false
    return check(rules_of(build), options)


def _with_backbone(
    sizes: Mapping[str, int],
    *,
    backbone: str | nn.Module = "dlinear",
    backbone_args: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the options of LIFT with its backbone built, where it is given by name."""
    arguments = dict(backbone_args or {})
    if isinstance(backbone, nn.Module):
        if arguments:
            raise InputError("backbone_args are for a backbone given by name; this one is ready")
        return {**options, "backbone": backbone}
    sizes = {**sizes, "n_time_features": options.get("n_time_features", 0)}
    for given in arguments:
        if given in sizes:
            raise InputError(f"{given} of the backbone is that of LIFT: leave it out of backbone_args")
    return {**options, "backbone": create_model(backbone, attention="standard", **sizes, **arguments)}


class Attention(NamedTuple):
    """An attention by name: its description, and its meaning as arguments of a model."""

    what: str
    options: dict[str, Any]


PAPERS_PRIMER: dict[str, Any] = {"kind": "full", "prime_self": False}
"""The features of the paper with the self-pair unprimed (F_ii = 1), the reading of its proofs (docs/decisions.md)."""
ATTENTIONS = {
    "standard": Attention("no primer", {"mechanism": "dot", "primer": None}),
    "prime": Attention(
        "the paper's: a primer of features of each pair of channels, computed from the window",
        {"mechanism": "dot", "primer": PAPERS_PRIMER},
    ),
    "prime-learned": Attention(
        "a primer of learned channel embeddings, the self-pair unprimed, and channel embeddings in the tokens",
        {"mechanism": "dot", "primer": {"kind": "learned", "prime_self": False}, "channel_embeddings": True},
    ),
    "prime-table": Attention(
        "the default: a primer with a learned vector for each pair", {"mechanism": "dot", "primer": {"kind": "table"}}
    ),
}
CONTROLS = {
    "standard-zero-output": Attention(
        "no primer; zero-initialized output projection of attention",
        {"mechanism": "dot", "primer": None, "zero_output": True},
    ),
    "prime-shuffled-pairs": Attention(
        "a primer that gives each pair of channels the features of another pair",
        {"mechanism": "dot", "primer": {**PAPERS_PRIMER, "pairing": "permuted"}},
    ),
    "prime-one-for-all-pairs": Attention(
        "a primer that is the same for all pairs of two channels",
        {"mechanism": "dot", "primer": {**PAPERS_PRIMER, "pairing": "shared"}},
    ),
}
"""Controls: variants that isolate one part of priming."""


def attentions(name: str) -> dict[str, dict[str, Any]]:
    """Return the attentions of a model by name, each with its meaning as arguments of the model."""
    check_known("model", name, MODELS)
    entry = MODELS[name]
    table: dict[str, dict[str, Any]] = {"standard": ATTENTIONS["standard"].options}
    table |= {mechanism: {"mechanism": mechanism, "primer": None} for mechanism in entry.mechanisms}
    if entry.supports_primer:
        table |= {name: attention.options for name, attention in ATTENTIONS.items()}
        table |= {
            f"{mechanism}+prime": {"mechanism": mechanism, "primer": PAPERS_PRIMER} for mechanism in entry.mechanisms
        }
        table |= {name: control.options for name, control in CONTROLS.items()}
    accepted = set(signature(entry.build).parameters)
    return {
        attention: {argument: value for argument, value in options.items() if argument in accepted}
        for attention, options in table.items()
        if "zero_output" not in options or "zero_output" in accepted
    }


def default_attention(name: str) -> str:
    """Return the attention a model has unless another is given: primed where the model supports it."""
    return "prime-table" if MODELS[name].supports_primer else "standard"


def attention_options(name: str, attention: str) -> dict[str, Any]:
    """Return an attention (standard, prime-table, prime, MECHANISM or MECHANISM+prime) as arguments of the model.

    >>> attention_options("itransformer", "prime")
    {'mechanism': 'dot', 'primer': {'kind': 'full', 'prime_self': False}}
    """
    allowed = attentions(name)
    check_known(f"attention of model {name}", attention, allowed)
    return allowed[attention]
