"""Primers: what is known of a pair of channels, turned into the F_ij that prime attention multiplies with.

A primer is a two-layer network over the features s_ij of a pair, with a linear last layer:

    phi_ij = act(W s_ij + c)          F_ij = beta + sum_m phi_m(i, j) u_m

The features (pair_features.py) are computed from the look-back windows: how one channel leads the other, at every lag,
and how they move together. They are data: no gradient flows into them. Or nothing is read from the windows, and s_ij is
a learned vector of the pair (kind "table").

Neither F (b, n, n, d) nor the lag features (b, n, n, l) are built. `Primer` returns a `Prime`, which carries phi, u and
beta; and a linear map of the lag features is a bilinear form of the two windows,

    sum_t w(t) R_ij(t)  =  (1/l) x_i . y_j ,      y_j = x_j correlated with w,

so each channel is filtered once per hidden unit and one matrix product does the rest (`project_lags`).

phi[..., i, j] belongs to query token i and key token j. R_ij peaks at lag t when channel i leads channel j by t steps.
Letters: b batch, n tokens (channels, then time features), l look-back, r hidden units, h heads, k head size.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from primecast.errors import InputError, check_known, show
from primecast.nn.attention import Prime
from primecast.nn.pair_features import standardize
from primecast.nn.primer_layers import EMBEDDED, TABLES, PairFeatures, PairOffsets, first_layers
from primecast.schema import checked

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
BASES = ("zero", "identity")
FORMS = ("auto", "pairs", "matrix")
PAIRINGS = {
    "own": "each pair has the activations of its own features",
    "permuted": "control: pairs of channels have each other's activations, by a permutation drawn once",
    "key": "control: all pairs of a key token have their mean activations: F_ij is the same for all query tokens",
    "shared": "control: all pairs have the mean activations, so F is the same for all of them",
}
POOLED = {"key": (-2,), "shared": (-2, -1)}
"""Pairings by a mean over pairs, and over which of the axes (query token, key token) it is taken."""


class Primer(nn.Module):
    """Windows of n channels in, a `Prime` for all their pairs out; one serves all layers of a model.

    kind:       a name in KINDS, or a callable (b, n, l) -> (b, n, n, f) with features of your own.
    length:     look-back l. d_model, n_heads: of the attention it primes.
    hidden:     hidden units in total; when None 2 per head, of kind "learned" 1.
    grouped:    each head has its own part of them, and the cost of that part; otherwise (dense) every head reads all.
    base:       "zero": F = MLP(s), starts small. "identity": F = 1 + MLP(s), starts near standard attention. Kind
                "random" always has the identity, as the paper's: "centered around 1.0", to start at standard attention.
    gain:       standard deviation of the gains u at the start; 0 with base "identity" starts at standard attention.
    rolling:    steps of the rolling standard deviation; an eighth of the look-back when None.
    sparsity:   fraction of the ordered pairs left without a primer (F_ij = 1), drawn once from `seed`.
    prime_self: True: F_ii is a primer like any other, the paper's printed formula, whose sum includes j = i. False:
                F_ii = 1, the reading of the paper's proofs, with which its numbers are met.
    prime_covariates: whether pairs with a time feature are primed; else F = 1 there.
    layers:     number of layers that have gains (and a learned base) of their own; None: all share one set.
    pairing:    a name in PAIRINGS: whose activations a pair has. The controls show what pair-specific features add.
    tokens:     number of tokens, needed by kinds "learned", "full+learned", "table" and "random", sparsity, permuted
                pairing and pair_offsets, which tie a model to its channels. width: of the vectors of these kinds.
    features:   f, with a callable kind.
    form:       algorithm of the lags, see `project_lags`; "auto" chooses by the number of tokens. Results are the same.

    Only the study primer_design varies the following. Its committed rows need them, so they stay:

    activation: a name in ACTIVATIONS. learn_base: makes the base a parameter, the bias of the last layer.
    scale:      factor on the weights of the first layer at the start.
    smooth:     tanh of the lag features; R is then built.
    normalize:  standardize each window before anything is computed from it.
    pair_offsets: a learned offset of the hidden units for each pair, beside the features.

    Example:

        primer = Primer("full", length=96, d_model=128, n_heads=8)
        y = attention(tokens, prime=primer(series))        # tokens (b, n, 128), series (b, n, 96)
    """

    @checked()
    def __init__(
        self,
        kind: str | PairFeatures = "full",
        *,
        length: int,
        d_model: int,
        n_heads: int,
        hidden: int | None = None,
        grouped: bool = True,
        activation: str = "gelu",
        base: str = "zero",
        learn_base: bool = False,
        gain: float = 0.3,
        scale: float = 1.0,
        pair_offsets: bool = False,
        smooth: bool = False,
        normalize: bool = True,
        rolling: int | None = None,
        sparsity: float = 0.0,
        prime_self: bool = True,
        prime_covariates: bool = True,
        layers: int | None = None,
        pairing: str = "own",
        tokens: int | None = None,
        width: int = 16,
        features: int | None = None,
        form: str = "auto",
        seed: int = 0,
    ) -> None:
        super().__init__()
        hidden = default_hidden(kind, n_heads) if hidden is None else hidden
        _check_sizes(d_model, n_heads, hidden if grouped else hidden * n_heads)
        _check_names(activation=activation, base=base, form=form, pairing=pairing)
        _check_pairs(tokens, kind=kind, sparsity=sparsity, pairing=pairing, pair_offsets=pair_offsets)
        if rolling is not None and not 2 <= rolling <= length:
            raise InputError(f"rolling {rolling} must be at least 2 and at most the look-back {length}")
        self.length, self.tokens = length, tokens
        self.grouped, self.groups = grouped, n_heads if grouped else 1
        self.activation, self.normalize, self.pairing = activation, normalize, pairing
        self.prime_self, self.prime_covariates = prime_self, prime_covariates
        self.identity = base == "identity" or kind == "random"
        self.shares_samples = kind == "learned"  # of a table each sample has a copy, as in the committed runs

        lags: dict[str, Any] = {"length": length, "smooth": smooth, "rolling": rolling, "form": form}
        self.first = first_layers(kind, hidden, **lags, tokens=tokens, width=width, features=features, seed=seed)
        with torch.no_grad():
            for name, weight in self.first.named_parameters():
                weight.mul_(scale if name.endswith("weight") else 1)  # not the vectors of pairs, which are the features
        if pair_offsets and tokens is not None:
            self.first.append(PairOffsets(hidden, tokens=tokens))
        self.offset = nn.Parameter(torch.zeros(hidden))
        gains = torch.randn(*(() if layers is None else (layers,)), n_heads, hidden // self.groups, d_model // n_heads)
        self.gains = nn.Parameter(gains.mul_(gain))  # in place, see primer_layers._draw_weights
        self.base = nn.Parameter(torch.full_like(gains[..., 0, :], float(self.identity))) if learn_base else None

        self.unprimed: Tensor | None
        self.order: Tensor | None
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("unprimed", _draw_unprimed(tokens, sparsity, generator))
        self.register_buffer("order", _draw_order(tokens if pairing == "permuted" else None, generator))

    def extra_repr(self) -> str:
        heads, units, size = self.gains.shape[-3:]
        layout = f"{heads} heads x {units} units" if self.grouped else f"{units} units for all {heads} heads"
        return (
            f"look-back {self.length} -> {layout} -> {heads * size}, activation={self.activation!r}, "
            f"normalize={self.normalize}, pairing={self.pairing!r}, prime_self={self.prime_self}, "
            f"prime_covariates={self.prime_covariates}"
        )

    def beta(self) -> Float[Tensor, "*layers h k"] | None:
        """Return the base as a `Prime` takes it: what was learned, ones, or None, which is zero.

        The ones are made anew: a buffer of them that no file holds would be lost on the way from the meta device.
        """
        if self.base is not None or not self.identity:
            return self.base
        return torch.ones_like(self.gains[..., 0, :])

    def forward(self, series: Float[Tensor, "b n l"], *, covariates: int = 0) -> Prime:
        """Return the primers of all pairs of these windows; the last `covariates` tokens are time features."""
        self.check_windows(series, covariates)
        batch, tokens, _ = series.shape
        series = self.in_precision(series)
        if self.normalize:
            series = standardize(series)
        hidden: Tensor = self.offset[:, None, None].to(series.dtype)
        for layer in reversed(self.first):  # the lags last: their product is large and adds the others' sum itself
            hidden = layer(series, hidden)
        phi = ACTIVATIONS[self.activation](hidden)
        order = self.other_pairs(tokens, covariates)
        if order is not None:
            phi = phi.flatten(-2)[..., order].unflatten(-1, (tokens, tokens))
        if self.pairing in POOLED:
            phi = phi.mean(POOLED[self.pairing], keepdim=True).expand_as(phi)
        phi = phi.expand(1 if self.shares_samples else batch, -1, -1, -1).unflatten(1, (self.groups, -1))
        return Prime(phi, self.gains, self.beta(), self.primed_pairs(tokens, covariates, series.device))

    def check_windows(self, series: Float[Tensor, "b n l"], covariates: int) -> None:
        """Refuse windows of another look-back, or of another number of tokens than the primer is tied to."""
        if not isinstance(series, Tensor) or series.ndim != 3:
            given = f"has shape {tuple(series.shape)}" if isinstance(series, Tensor) else f"is {show(series)}"
            raise InputError(f"series {given}; it must be a tensor of shape (b, n, {self.length})")
        if series.is_complex() or series.device != self.offset.device:
            raise InputError(
                f"series is of {series.dtype} on {series.device}; it must be real numbers on {self.offset.device}"
            )
        if series.layout != torch.strided:
            raise InputError(f"series is of layout {series.layout}; it must be a dense tensor, series.to_dense()")
        _, tokens, length = series.shape
        if length != self.length:
            raise InputError(f"the primer was made for a look-back of {self.length} steps, the windows have {length}")
        if self.tokens is not None and tokens != self.tokens:
            raise InputError(f"the primer was made for {self.tokens} tokens, the windows have {tokens}")
        if covariates and not (isinstance(covariates, int | torch.SymInt) and 0 <= covariates <= tokens):
            raise InputError(f"covariates is {show(covariates)}; it must be a number of tokens from 0 to {tokens}")

    def in_precision(self, series: Float[Tensor, "b n l"]) -> Float[Tensor, "b n l"]:
        """Return the windows in the type of the primer, at least float32: half precision has no ranks and no FFT."""
        return series.to(torch.promote_types(self.gains.dtype, torch.float32))

    def other_pairs(self, tokens: int, covariates: int) -> Int64[Tensor, "n2"] | None:
        """Return, with pairing "permuted", whose activations each pair has, pairs counted row by row; else None.

        Pairs with a time feature keep their own: only features of two channels are permuted.
        """
        if self.order is None:
            return None
        channel = torch.arange(tokens, device=self.order.device) < tokens - covariates
        between = (channel[:, None] & channel).flatten()
        others = torch.arange(tokens**2, device=self.order.device)
        others[between] = self.order[between[self.order]]
        return others

    def primed_pairs(self, tokens: int, covariates: int, device: torch.device) -> Bool[Tensor, "n n"] | None:
        """Return which pairs have a primer; None when all do, which costs nothing."""
        pairs = None if self.unprimed is None else ~self.unprimed
        if not self.prime_self:
            others = ~torch.eye(tokens, dtype=torch.bool, device=device)
            pairs = others if pairs is None else pairs & others
        if covariates and not self.prime_covariates:
            channel = torch.arange(tokens, device=device) < tokens - covariates
            channels = channel[:, None] & channel
            pairs = channels if pairs is None else pairs & channels
        return pairs


def default_hidden(kind: str | PairFeatures, n_heads: int) -> int:
    """Return the number of hidden units where none is given: with learned embeddings one per head is as accurate."""
    return n_heads if kind == "learned" else 2 * n_heads


def _check_sizes(d_model: int, n_heads: int, hidden: int) -> None:
    if d_model % n_heads:
        raise InputError(f"d_model {d_model} cannot be divided into n_heads {n_heads} heads of equal size")
    if hidden < 1 or hidden % n_heads:
        raise InputError(f"hidden {hidden} cannot be divided among n_heads {n_heads}; use grouped=False")


def _check_names(**given: str) -> None:
    allowed = {"activation": ACTIVATIONS, "base": BASES, "form": FORMS, "pairing": PAIRINGS}
    for argument, name in given.items():
        check_known(argument, name, allowed[argument])


def _check_pairs(tokens: int | None, **options: Any) -> None:
    if not 0 <= options["sparsity"] <= 1:
        raise InputError(f"sparsity is {options['sparsity']}; it must be between 0 and 1")
    if tokens is None and _is_tied(options):
        raise InputError(
            "kinds 'learned', 'full+learned', 'table' and 'random', sparsity, permuted pairing and pair_offsets are "
            "tied to their channels: give tokens"
        )


def _draws(options: Mapping[str, Any]) -> bool:
    """Return whether a primer of these arguments draws something beside its weights."""
    return options.get("kind") in TABLES or bool(options.get("sparsity")) or options.get("pairing") == "permuted"


def _is_tied(options: Mapping[str, Any]) -> bool:
    """Return whether a primer of these arguments needs to know its number of tokens."""
    return _draws(options) or options.get("kind") in EMBEDDED or bool(options.get("pair_offsets"))


def _draw_unprimed(tokens: int | None, sparsity: float, generator: torch.Generator) -> Bool[Tensor, "n n"] | None:
    """Draw the pairs left without a primer: an exact fraction; a higher sparsity includes the pairs of a lower one."""
    if tokens is None or sparsity == 0:
        return None
    rank = torch.randperm(tokens**2, generator=generator)
    return (rank < round(sparsity * tokens**2)).view(tokens, tokens)


def _draw_order(tokens: int | None, generator: torch.Generator) -> Int64[Tensor, "n2"] | None:
    return None if tokens is None else torch.randperm(tokens**2, generator=generator)


def seeded(options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return arguments of a primer with the seed of a run, where they draw something and have no seed of their own.

    Vectors of pairs, pairs without a primer, a permutation: with one seed for all runs they would be the same draw.
    """
    return {"seed": seed, **options} if _draws(options) else dict(options)


def build_primer(
    spec: "str | Mapping[str, object] | PairFeatures | Primer | None",
    *,
    length: int,
    d_model: int,
    n_heads: int,
    tokens: int | None,
    layers: int,
) -> Primer | None:
    """Return the primer of a model: none, of a kind, of a mapping of `Primer` arguments, of a callable, or a ready one.

    In a mapping, `layers: True` gives each layer gains of its own.
    """
    if spec is None or isinstance(spec, Primer):
        return spec
    options: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
    allowed = set(signature(Primer).parameters) - {"length", "d_model", "n_heads", "tokens"}
    for name in options:
        check_known("primer argument", name, allowed)
    if options.pop("layers", None):
        options["layers"] = layers
    if _is_tied(options):
        options["tokens"] = tokens
    return Primer(length=length, d_model=d_model, n_heads=n_heads, **options)


# ---------------------------------------------------------------- what a primer costs in parameters


@dataclass(frozen=True)
class Overhead:
    """Parameters of the primers of a model, of its attention, and of the model without primers."""

    primer: int
    attention: int
    model: int

    @property
    def of_model(self) -> float:
        """Primer parameters as a fraction of those of the model without them."""
        return self.primer / self.model

    @property
    def of_attention(self) -> float:
        """Primer parameters as a fraction of those of the attention without them."""
        return self.primer / self.attention if self.attention else 0.0


@checked()
def parameter_overhead(model: nn.Module) -> Overhead:
    """Count the parameters that priming adds: `.of_model` is their number as a fraction of the unprimed model's."""
    primers = _parameters(module for module in model.modules() if isinstance(module, Primer))
    attention = _parameters(module for module in model.modules() if getattr(module, "attends", False) is True)
    primer, others = _count(primers), _count(attention - primers)  # a swapped attention has its primer inside
    return Overhead(primer=primer, attention=others, model=_count(set(model.parameters())) - primer)


def _parameters(modules: Iterable[nn.Module]) -> set[nn.Parameter]:
    return {parameter for module in modules for parameter in module.parameters()}


def _count(parameters: set[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
