"""Primers: what is known of a pair of channels, turned into the F_ij that prime attention multiplies with.

A primer is a two-layer network over the features s_ij of a pair, with a linear last layer:

    phi_ij = act(W s_ij + c)          F_ij = beta + sum_m phi_m(i, j) u_m

The features come from the look-back windows themselves. How does one channel lead the other: the circular
cross-correlation at every lag. How do they move together: Pearson's correlation, the correlation of their rolling
deviations, Spearman's. They are data: no gradient flows into them. Or nothing is read from the windows, and s_ij is a
learned vector of the pair (kind "table").

Neither F (b, n, n, d) nor the lag features (b, n, n, l) are needed. `Primer` returns a `Prime`, which carries phi, u
and beta; and a linear map of the lag features is a bilinear form of the two windows,

    sum_t w(t) R_ij(t)  =  (1/l) x_i . y_j ,      y_j = x_j correlated with w,

so each channel is filtered once per hidden unit and one matrix product does the rest (`project_lags`).

Direction: phi[..., i, j]: i asks, j answers. R_ij peaks at lag t when channel i leads channel j by t steps.
Letters: b batch, n tokens (channels, then calendar features), l look-back, f features, r hidden units, h heads, d width.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from primecast.errors import InputError, unknown
from primecast.nn.attention import Prime
from primecast.nn.pair_features import Start, instantaneous, lead_lag, project_features, project_lags, standardize

# ---------------------------------------------------------------- the first layer: W s_ij, by kind of feature


class LeadLag(nn.Module):
    """W R_ij: l lags of each pair to r hidden units; weights start at N(0, 1/l)."""

    def __init__(self, hidden: int, *, length: int, smooth: bool, form: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, length) / length**0.5)
        self.smooth = smooth
        self.form = form

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "b r n n"]:
        if self.smooth:  # tanh of R is not linear: here R has to be built
            lags = lead_lag(series.detach(), form="matrix" if self.form == "matrix" else "fft").tanh()
            return project_features(lags, self.weight.to(series.dtype), start)
        form = _lag_form(self.form, series.shape[1])
        return project_lags(series, self.weight.to(series.dtype), start, form=form)


def _lag_form(form: str, tokens: int) -> str:
    """At few tokens R is small and building it is cheapest; measured in docs/decisions.md."""
    return ("pairs" if tokens <= 32 else "matrix") if form == "auto" else form


class Instantaneous(nn.Module):
    """W s_ij for the three instantaneous features; weights start at N(0, 1/3)."""

    def __init__(self, hidden: int, *, rolling: int | None, form: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, 3) / 3**0.5)
        self.rolling = rolling
        self.form = form

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "b r n n"]:
        form = "matrix" if self.form == "matrix" else "sort"
        features = instantaneous(series.detach(), rolling=self.rolling, form=form)
        return project_features(features, self.weight.to(series.dtype), start)


class PairTable(nn.Module):
    """W s_ij for vectors drawn once for each pair, around 1 with Glorot's deviation: the windows are not looked at.

    They stay as drawn and only W learns, unless they are `learned`, which makes them parameters of their pair.
    """

    def __init__(self, hidden: int, *, tokens: int, width: int, learned: bool, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, width) / width**0.5)
        generator = torch.Generator().manual_seed(seed)
        deviation = (2 / (width + hidden)) ** 0.5
        table = 1 + deviation * torch.randn(tokens, tokens, width, generator=generator)
        self.table: Tensor
        if learned:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table)

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "#b r n n"]:
        return project_features(self.table[None].to(series.dtype), self.weight.to(series.dtype), start)


class PairOffsets(nn.Module):
    """A number of its own for each pair and hidden unit, whatever the windows hold; they start at 0."""

    def __init__(self, hidden: int, *, tokens: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(hidden, tokens, tokens))

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "#b r n n"]:
        table = self.table.to(series.dtype)
        return (table if start is None else table + start).expand(1, -1, -1, -1)


PairFeatures = Callable[[Tensor], Tensor]
"""Features of the user's own: windows (b, n, l) to pair features (b, n, n, f)."""


class OwnFeatures(nn.Module):
    """W s_ij for features that a callable of the user's own computes from the windows; weights start at N(0, 1/f)."""

    def __init__(self, hidden: int, *, function: PairFeatures, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, features) / features**0.5)
        self.function = function

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "b r n n"]:
        features = self.function(series)
        expected = (series.shape[0], series.shape[1], series.shape[1], self.weight.shape[1])
        if tuple(features.shape) != expected:
            raise InputError(f"pair features must have shape (b, n, n, f) = {expected}, got {tuple(features.shape)}")
        return project_features(features, self.weight.to(series.dtype), start)


# ---------------------------------------------------------------- the primer

TABLES = ("table", "random")
"""Kinds that keep a vector for each pair and read nothing from the windows."""
KINDS = {
    "full": "lead-lag at all lags and the three instantaneous features",
    "lead_lag": "circular cross-correlation at all lags of the look-back",
    "instantaneous": "Pearson, correlation of rolling deviations, Spearman",
    "table": "a learned vector for each pair, whatever the windows hold; ties a model to its channels",
    "random": "control: a vector drawn for each pair, which does not learn: nothing is known of the pairs",
}
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
    "answering": "control: a token has the mean activations of its pairs, so F_ij knows who answers and not who asks",
    "shared": "control: all pairs have the mean activations, so F is the same for all of them",
}
POOLED = {"answering": (-2,), "shared": (-2, -1)}
"""Pairings by a mean over pairs, and over which of the axes (asking, answering) it goes."""


class Primer(nn.Module):
    """Windows of n channels in, a `Prime` for all their pairs out; one serves all layers of a model.

    kind:       a name in KINDS, or a callable (b, n, l) -> (b, n, n, f) with features of your own.
    length:     look-back l. d_model, n_heads: of the attention it primes.
    hidden:     hidden units in all; 2 per head when None. grouped: each head reads its own share of them, at the cost
                of that share; otherwise (dense) every head reads all.
    activation: a name in ACTIVATIONS.
    base:       "zero": F = MLP(s), starts small. "identity": F = 1 + MLP(s), starts near standard attention. Kind
                "random" always has the identity, as in the paper: "centered around 1.0", to start at standard attention.
    learn_base: makes the base a parameter, the bias of the last layer.
    gain:       deviation of the gains u at the start; 0 with base "identity" starts exactly at standard attention.
    scale:      factor on the weights of the first layer at the start.
    pair_offsets: an offset of the hidden units for each pair, learned beside the features; ties the model to its
                channels.
    smooth:     tanh of the lag features; R is then built.
    normalize:  standardise each window before anything is computed from it.
    rolling:    steps of the rolling deviation; an eighth of the look-back when None.
    sparsity:   share of the ordered pairs left without a primer (F_ij = 1), drawn once from `seed`.
    prime_self, prime_covariates: whether F_ii, and pairs with a calendar token, are primed; else F = 1 there.
    layers:     gains (and learned base) of their own for that many layers; None shares one set.
    pairing:    a name in PAIRINGS: whose features a pair gets. The controls tell what pair-specific knowledge adds.
    tokens:     number of tokens, needed by kinds "table" and "random", sparsity, permuted pairing and pair_offsets,
                which tie a model to its channels. width: of the vectors of these two kinds.
    features:   f, with a callable kind.
    form:       how lags are projected, see `project_lags`; "auto" chooses by the number of tokens.

    Example:

        primer = Primer("full", length=96, d_model=128, n_heads=8)
        y = attention(tokens, prime=primer(series))        # tokens (b, n, 128), series (b, n, 96)
    """

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
        hidden = 2 * n_heads if hidden is None else hidden
        if n_heads < 1 or d_model % n_heads:
            raise InputError(f"d_model {d_model} cannot be divided into n_heads {n_heads} heads of equal size")
        if hidden < 1 or (grouped and hidden % n_heads):
            raise InputError(f"hidden {hidden} cannot be divided among n_heads {n_heads}; use grouped=False")
        for what, given, allowed in (
            ("activation", activation, ACTIVATIONS),
            ("base", base, BASES),
            ("form", form, FORMS),
            ("pairing", pairing, PAIRINGS),
        ):
            if given not in allowed:
                raise unknown(what, given, allowed)
        if not 0 <= sparsity <= 1:
            raise InputError(f"sparsity {sparsity} is not a share of pairs: it must lie between 0 and 1")
        if rolling is not None and not 2 <= rolling <= length:
            raise InputError(f"rolling {rolling} must be at least 2 and at most the look-back {length}")
        if tokens is None and (kind in TABLES or sparsity > 0 or pairing == "permuted" or pair_offsets):
            raise InputError(
                "kinds 'table' and 'random', sparsity, permuted pairing and pair_offsets are tied to their pairs: "
                "give tokens"
            )

        self.length = length
        self.tokens = tokens
        self.grouped = grouped
        self.groups = n_heads if grouped else 1
        self.activation = activation
        self.normalize = normalize
        self.prime_self = prime_self
        self.prime_covariates = prime_covariates
        self.pairing = pairing
        self.identity = base == "identity" or kind == "random"

        self.first = _first_layers(
            kind,
            hidden,
            length=length,
            smooth=smooth,
            form=form,
            rolling=rolling,
            tokens=tokens,
            width=width,
            features=features,
            seed=seed,
        )
        with torch.no_grad():
            for name, weight in self.first.named_parameters():
                if name.endswith("weight"):  # not the vectors of pairs, which are the features
                    weight.mul_(scale)
        if pair_offsets and tokens is not None:
            self.first.append(PairOffsets(hidden, tokens=tokens))
        self.offset = nn.Parameter(torch.zeros(hidden))
        stack = () if layers is None else (layers,)
        size = d_model // n_heads
        self.gains = nn.Parameter(gain * torch.randn(*stack, n_heads, hidden // self.groups, size))
        self.base = nn.Parameter(torch.full((*stack, n_heads, size), float(self.identity))) if learn_base else None

        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("unprimed", _draw_pairs(tokens, sparsity, generator))
        self.unprimed: Tensor | None
        permuted = torch.randperm(tokens**2, generator=generator) if pairing == "permuted" and tokens else None
        self.register_buffer("order", permuted)
        self.order: Tensor | None

    def extra_repr(self) -> str:
        heads, units, size = self.gains.shape[-3:]
        layout = f"{heads} heads x {units} units" if self.grouped else f"{units} units for all {heads} heads"
        return (
            f"look-back {self.length} -> {layout} -> {heads * size}, activation={self.activation!r}, "
            f"normalize={self.normalize}, pairing={self.pairing!r}, prime_self={self.prime_self}, "
            f"prime_covariates={self.prime_covariates}"
        )

    def beta(self) -> Float[Tensor, "*layers h k"] | None:
        """The base as a `Prime` takes it: what was learned, ones, or None, which is zero.

        The ones are made anew: a buffer of them that no file holds would be lost on the way from the meta device.
        """
        if self.base is not None or not self.identity:
            return self.base
        return torch.ones_like(self.gains[..., 0, :])

    def forward(self, series: Float[Tensor, "b n l"], *, covariates: int = 0) -> Prime:
        """Primers of all pairs of these windows; the last `covariates` tokens are calendar features."""
        batch, tokens, length = series.shape
        if length != self.length:
            raise InputError(f"the primer was made for a look-back of {self.length} steps, the windows have {length}")
        if self.tokens is not None and tokens != self.tokens:
            raise InputError(f"the primer was made for {self.tokens} tokens, the windows have {tokens}")
        series = self.in_precision(series)
        if self.normalize:
            series = standardize(series)
        hidden: Tensor = self.offset[:, None, None].to(series.dtype)
        for layer in reversed(self.first):  # the lags last: their product is large enough to take the others' sum along
            hidden = layer(series, hidden)
        phi = ACTIVATIONS[self.activation](hidden)
        order = self.other_pairs(tokens, covariates)
        if order is not None:
            phi = phi.flatten(-2)[..., order].unflatten(-1, (tokens, tokens))
        if self.pairing in POOLED:
            phi = phi.mean(POOLED[self.pairing], keepdim=True).expand_as(phi)
        phi = phi.expand(batch, -1, -1, -1).unflatten(1, (self.groups, -1))
        return Prime(phi, self.gains, self.beta(), self._pairs(tokens, covariates, series.device))

    def in_precision(self, series: Float[Tensor, "b n l"]) -> Float[Tensor, "b n l"]:
        """The windows in the type of the primer, but at least in float32: half precision has no ranks and no FFT."""
        return series.to(torch.promote_types(self.gains.dtype, torch.float32))

    def other_pairs(self, tokens: int, covariates: int) -> Int64[Tensor, "n2"] | None:
        """With pairing "permuted", whose activations each pair has, pairs counted row by row; else None.

        Pairs with a calendar token keep their own: only what is known of two channels changes hands.
        """
        if self.order is None:
            return None
        channel = torch.arange(tokens, device=self.order.device) < tokens - covariates
        between = (channel[:, None] & channel).flatten()
        others = torch.arange(tokens**2, device=self.order.device)
        others[between] = self.order[between[self.order]]
        return others

    def _pairs(self, tokens: int, covariates: int, device: torch.device) -> Bool[Tensor, "n n"] | None:
        """Which pairs have a primer; None when all do, which costs nothing."""
        pairs = None if self.unprimed is None else ~self.unprimed
        if not self.prime_self:
            others = ~torch.eye(tokens, dtype=torch.bool, device=device)
            pairs = others if pairs is None else pairs & others
        if covariates and not self.prime_covariates:
            channel = torch.arange(tokens, device=device) < tokens - covariates
            channels = channel[:, None] & channel
            pairs = channels if pairs is None else pairs & channels
        return pairs


def _draw_pairs(tokens: int | None, sparsity: float, generator: torch.Generator) -> Bool[Tensor, "n n"] | None:
    """The pairs left without a primer: an exact share, and those of a lower share are among those of a higher."""
    if tokens is None or sparsity == 0:
        return None
    rank = torch.randperm(tokens**2, generator=generator)
    return (rank < round(sparsity * tokens**2)).view(tokens, tokens)


def _first_layers(
    kind: str | PairFeatures,
    hidden: int,
    *,
    length: int,
    smooth: bool,
    form: str,
    rolling: int | None,
    tokens: int | None,
    width: int,
    features: int | None,
    seed: int,
) -> nn.ModuleList:
    if callable(kind):
        if features is None:
            raise InputError("a callable kind needs features, the number of features it yields for a pair")
        return nn.ModuleList([OwnFeatures(hidden, function=kind, features=features)])
    if kind not in KINDS:
        raise unknown("primer", kind, KINDS)
    layers: list[nn.Module] = []
    if kind in ("full", "lead_lag"):
        layers.append(LeadLag(hidden, length=length, smooth=smooth, form=form))
    if kind in ("full", "instantaneous"):
        layers.append(Instantaneous(hidden, rolling=rolling, form=form))
    if kind in TABLES and tokens is not None:
        layers.append(PairTable(hidden, tokens=tokens, width=width, learned=kind == "table", seed=seed))
    return nn.ModuleList(layers)


def seeded(options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Arguments of a primer with the seed of a run, where something is drawn beside its weights, unless they have one.

    Vectors of pairs, pairs without a primer, a permutation: else the spread over seeds would be that of one draw.
    """
    draws = options.get("kind") in TABLES or options.get("sparsity") or options.get("pairing") == "permuted"
    return {"seed": seed, **options} if draws else dict(options)


def build_primer(
    spec: "str | Mapping[str, object] | PairFeatures | Primer | None",
    *,
    length: int,
    d_model: int,
    n_heads: int,
    tokens: int | None,
    layers: int,
) -> Primer | None:
    """The primer a model asks for: none, a kind, a mapping of `Primer` arguments, a callable, or a ready one.

    In a mapping, `layers: True` asks for gains of each layer's own.
    """
    if spec is None or isinstance(spec, Primer):
        return spec
    options: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
    allowed = set(signature(Primer).parameters) - {"length", "d_model", "n_heads", "tokens"}
    for name in options:
        if name not in allowed:
            raise unknown("primer argument", name, allowed)
    if options.pop("layers", None):
        options["layers"] = layers
    tied = options.get("kind") in TABLES or options.get("pairing") == "permuted"
    if tied or options.get("sparsity") or options.get("pair_offsets"):
        options["tokens"] = tokens
    return Primer(length=length, d_model=d_model, n_heads=n_heads, **options)


# ---------------------------------------------------------------- what a primer costs in parameters


@dataclass(frozen=True)
class Overhead:
    """Parameters of the primers of a model, beside those of its attention and of all the rest."""

    primer: int
    attention: int
    model: int

    @property
    def of_model(self) -> float:
        """Primer parameters as a share of the model without them."""
        return self.primer / self.model

    @property
    def of_attention(self) -> float:
        """Primer parameters as a share of the attention without them."""
        return self.primer / self.attention if self.attention else 0.0


def parameter_overhead(model: nn.Module) -> Overhead:
    """Count what priming adds: `parameter_overhead(model).of_model` is the share on top of the unprimed model."""
    primers = _parameters(module for module in model.modules() if isinstance(module, Primer))
    attention = _parameters(module for module in model.modules() if getattr(module, "attends", False) is True)
    primer, others = _count(primers), _count(attention - primers)  # a swapped attention has its primer inside
    return Overhead(primer=primer, attention=others, model=_count(set(model.parameters())) - primer)


def _parameters(modules: Iterable[nn.Module]) -> set[nn.Parameter]:
    return {parameter for module in modules for parameter in module.parameters()}


def _count(parameters: set[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
