"""First layers of a primer, W s_ij, one class for each kind of pair features; `Primer` adds them up.

Letters: b batch, n tokens (channels, then time features), l look-back, f features, r hidden units.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError, check_known
from primecast.nn.pair_features import Start, instantaneous, lead_lag, project_features, project_lags


class LeadLag(nn.Module):
    """W R_ij: l lags of each pair to r hidden units; weights start at N(0, 1/l)."""

    def __init__(self, hidden: int, *, length: int, smooth: bool, form: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(_draw_weights(hidden, length))
        self.smooth = smooth
        self.form = form

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "b r n n"]:
        weight = self.weight.to(series.dtype)
        if self.smooth:  # tanh of R is not linear: here R has to be built
            lags = lead_lag(series.detach(), form="matrix" if self.form == "matrix" else "fft").tanh()
            return project_features(lags, weight, start)
        fastest = "pairs" if series.shape[1] <= 32 else "matrix"  # measured in docs/decisions.md
        return project_lags(series, weight, start, form=fastest if self.form == "auto" else self.form)


class Instantaneous(nn.Module):
    """W s_ij for the three instantaneous features; weights start at N(0, 1/3)."""

    def __init__(self, hidden: int, *, rolling: int | None, form: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(_draw_weights(hidden, 3))
        self.rolling = rolling
        self.form = form

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "b r n n"]:
        form = "matrix" if self.form == "matrix" else "sort"
        features = instantaneous(series.detach(), rolling=self.rolling, form=form)
        return project_features(features, self.weight.to(series.dtype), start)


class PairTable(nn.Module):
    """W s_ij for vectors drawn once for each pair, around 1 with Glorot's standard deviation; no window is read.

    The vectors are parameters if they are `learned`; otherwise they stay as drawn and only W learns.
    """

    def __init__(self, hidden: int, *, tokens: int, width: int, learned: bool, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_draw_weights(hidden, width))
        generator = torch.Generator().manual_seed(seed)
        std = (2 / (width + hidden)) ** 0.5
        table = torch.empty(tokens, tokens, width)
        if not table.is_meta:  # for the same reason as in _draw_weights
            table = 1 + std * torch.randn(tokens, tokens, width, generator=generator)
        self.table: Tensor
        if learned:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table)

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "#b r n n"]:
        return project_features(self.table[None].to(series.dtype), self.weight.to(series.dtype), start)


class ChannelEmbeddings(nn.Module):
    """W s_ij for s_ij = [a_i, b_j, a_i * b_j], with learned embeddings a of query tokens and b of key tokens.

    Two vectors and one matrix product for each hidden unit: nothing of size n x n x f is built, and n x f parameters
    stand for the n x n x f of a table. No window is read, so all samples share the result.
    """

    def __init__(self, hidden: int, *, tokens: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_draw_weights(hidden, 3 * width))
        self.query = nn.Parameter(torch.randn(tokens, width))
        self.key = nn.Parameter(torch.randn(tokens, width))

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "#b r n n"]:
        query, key, weight = (x.to(series.dtype) for x in (self.query, self.key, self.weight))
        of_query, of_key, of_both = weight.chunk(3, dim=1)
        hidden = (query * of_both[:, None]) @ key.T  # r n n
        hidden = hidden + (of_query @ query.T)[:, :, None] + (of_key @ key.T)[:, None, :]
        return (hidden if start is None else hidden + start).expand(
            1 if start is None or start.ndim == 3 else -1, -1, -1, -1
        )


class PairOffsets(nn.Module):
    """A learned offset for each pair and hidden unit, whatever the windows hold; they start at 0."""

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

    def __init__(self, hidden: int, *, function: PairFeatures, features: int | None) -> None:
        super().__init__()
        if features is None:
            raise InputError("a callable kind needs features, the number of features it yields for a pair")
        self.weight = nn.Parameter(_draw_weights(hidden, features))
        self.function = function

    def forward(self, series: Float[Tensor, "b n l"], start: Start | None = None) -> Float[Tensor, "b r n n"]:
        features = self.function(series)
        expected = (series.shape[0], series.shape[1], series.shape[1], self.weight.shape[1])
        if tuple(features.shape) != expected:
            raise InputError(f"pair features must have shape (b, n, n, f) = {expected}, got {tuple(features.shape)}")
        return project_features(features, self.weight.to(series.dtype), start)


KINDS = {
    "full": "lead-lag at all lags and the three instantaneous features",
    "lead_lag": "circular cross-correlation at all lags of the look-back",
    "instantaneous": "Pearson, correlation of rolling standard deviations, Spearman",
    "learned": "learned embeddings of the two channels and their product; ties a model to its channels",
    "full+learned": "both: the features of the windows and the learned embeddings",
    "table": "a learned vector for each pair, whatever the windows hold; ties a model to its channels",
    "random": "control: a vector drawn for each pair, which is not learned: nothing is known of the pairs",
}
TABLES = ("table", "random")
"""Kinds that keep a vector for each pair and read nothing from the windows."""
EMBEDDED = ("learned", "full+learned")
"""Kinds that have embeddings of the channels."""


def first_layers(
    kind: str | PairFeatures,
    hidden: int,
    *,
    length: int,
    smooth: bool,
    rolling: int | None,
    form: str,
    tokens: int | None,
    width: int,
    features: int | None,
    seed: int,
) -> nn.ModuleList:
    """Return the first layers of a primer of this kind; see `Primer` for the arguments."""
    if callable(kind):
        return nn.ModuleList([OwnFeatures(hidden, function=kind, features=features)])
    check_known("primer", kind, KINDS)
    layers: list[nn.Module] = []
    if kind in ("full", "full+learned", "lead_lag"):
        layers.append(LeadLag(hidden, length=length, smooth=smooth, form=form))
    if kind in ("full", "full+learned", "instantaneous"):
        layers.append(Instantaneous(hidden, rolling=rolling, form=form))
    if kind in TABLES and tokens is not None:
        layers.append(PairTable(hidden, tokens=tokens, width=width, learned=kind == "table", seed=seed))
    if kind in EMBEDDED and tokens is not None:
        layers.append(ChannelEmbeddings(hidden, tokens=tokens, width=width))
    return nn.ModuleList(layers)


def _draw_weights(hidden: int, width: int) -> Float[Tensor, "r f"]:
    """Draw weights over `width` inputs with a standard deviation of 1 / sqrt(width)."""
    # In place: on the meta device, where settings are tried out, a plain division imports torch's compiler, for 2 s.
    return torch.randn(hidden, width).div_(width**0.5)
