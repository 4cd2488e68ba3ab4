"""GAT: channels are the nodes of a graph, and a channel attends to its neighbors only. The graph is drawn at random.

    nodes    = Linear(l -> d) of each normalized series; time features are nodes, too
    graph    = a fraction `density` of the ordered pairs of different nodes, drawn once, and all self-loops
    layers   = iTransformer's post-norm blocks, with attention over the edges in place of attention over all pairs
    forecast = Linear(d -> h) of each channel's node, brought back to the level of the window

Three ways to score an edge with query node i and key node j, with g = LeakyReLU of slope 0.2 and a vector a per head:

    dot      q_i . k_j / sqrt(k)            values W x_j       at density 1 this model is iTransformer
    gatv2    a . g(W x_i + W' x_j)          values W' x_j      Brody et al., ICLR 2022
    gat      g(a . W x_i + a' . W x_j)      values W x_j       Velickovic et al., ICLR 2018

Primed, the edge has the key k_j * F_e and the value v_j * F_e: F is computed for the listed edges alone, as all else.

Attention is computed on the list of edges, never on a masked n x n matrix, so that time and memory fall with density:
that is what the prime attention paper measures. An edge holds d numbers for its query, its key and its value (and F,
when primed), because a sum over neighbors needs them; nothing of the size of all pairs times d exists at density < 1.
A processor with fast matrix products may still be faster on the full matrix (docs/decisions.md): the list shows how
cost scales.

Inside, the node axis comes first, (n, b, d): an edge then gathers and adds whole contiguous rows.

Parameters of an attention: dot 4 (d^2+d), gatv2 3 (d^2+d) + d, gat 2 (d^2+d) + 2 d; the rest as iTransformer.
Letters: b batch, l look-back, h heads (horizon in the model's signature), n nodes (channels, then time features),
e edges, d model width, k head size, r hidden units of a primer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from primecast.errors import InputError, check_known
from primecast.nn.attention import MODULATE
from primecast.nn.dropout import Dropout, drop
from primecast.nn.layers import Block, WindowNorm
from primecast.nn.pair_features import correlate, cross_spectrum, frequency_weight, instantaneous, standardize
from primecast.nn.primer import ACTIVATIONS, POOLED, Primer, build_primer
from primecast.nn.primer_layers import Instantaneous, LeadLag, PairFeatures, PairTable

SCORINGS = {
    "dot": "scaled product of query and key, as in transformers",
    "gatv2": "a vector times the non-linear sum of both nodes (Brody et al., ICLR 2022)",
    "gat": "the non-linear sum of a number of each node (Velickovic et al., ICLR 2018)",
}
SLOPE = 0.2  # of the LeakyReLU, in both papers
LARGEST_GRAPH = 1 << 13
"""Nodes: the pairs of so many are drawn in half a gigabyte."""

# ---------------------------------------------------------------- the graph


def draw_graph(nodes: int, density: float, *, seed: int) -> Int64[Tensor, "2 e"]:
    """Return edges (query, key), sorted: all self-loops, and an exact fraction of the other ordered pairs.

    A denser graph of the same seed holds the edges of a sparser one. On the meta device nothing is drawn.
    """
    if not 0 <= density <= 1:
        raise InputError(f"density {density} is not a fraction of pairs: it must be between 0 and 1")
    if nodes > LARGEST_GRAPH:
        raise InputError(f"a graph of {nodes} channels and time features is too large; it may have {LARGEST_GRAPH}")
    pairs = nodes * (nodes - 1)
    if torch.get_default_device().type == "meta":
        return torch.empty(2, nodes + round(density * pairs), dtype=torch.int64)
    rank = torch.randperm(pairs, generator=torch.Generator().manual_seed(seed), device="cpu")
    joined = torch.eye(nodes, dtype=torch.bool)
    joined[~joined] = rank < round(density * pairs)
    return joined.nonzero().mT.contiguous()


def edge_softmax(scores: Float[Tensor, "e b h"], query: Int64[Tensor, "e"], nodes: int) -> Float[Tensor, "e b h"]:
    """Return the softmax over the edges of the same query node; every node must have one."""
    fixed = scores.detach()
    empty = fixed.new_zeros(nodes, *fixed.shape[1:])
    peaks = empty.scatter_reduce(0, query[:, None, None].expand_as(fixed), fixed, "amax", include_self=False)
    grown = (scores - peaks.index_select(0, query)).exp()
    return grown / empty.index_add(0, query, grown).index_select(0, query)


# ---------------------------------------------------------------- primers on edges


@dataclass(frozen=True)
class EdgePrime:
    """A `Prime` on a list of pairs: F_e = beta + sum_m phi_m(e) u_m, and F_e = 1 for edges that have none.

    The batch of phi, and of F, is 1 where the primer reads nothing from the windows: all of them share it.
    """

    phi: Float[Tensor, "e #b r"]
    gains: Float[Tensor, "*layers h m k"]
    base: Float[Tensor, "*layers h k"] | None
    pairs: Bool[Tensor, "e"] | None

    @property
    def layered(self) -> bool:
        """Whether each layer has gains of its own, and hence an F of its own."""
        return self.gains.ndim == 4

    def filters(self, layer: int) -> Float[Tensor, "e #b d"]:
        """Return F of all edges. They are as large as the values on those edges, which are needed anyway."""
        gains = self.gains[layer] if self.layered else self.gains
        base = self.base[layer] if self.base is not None and self.layered else self.base
        grouped = self.phi.shape[-1] == gains.shape[0] * gains.shape[1]
        # A head reads its own hidden units (grouped) or all: one product, with zeros for the units of other heads.
        table = torch.block_diag(*gains) if grouped else gains.transpose(0, 1).flatten(1)
        filters = self.phi @ table.to(self.phi.dtype)
        if base is not None:
            filters = filters + base.flatten()
        if self.pairs is not None:
            filters = torch.where(self.pairs[:, None, None], filters, torch.ones_like(filters))
        return filters


def prime_edges(
    primer: Primer, series: Float[Tensor, "b n l"], edges: Int64[Tensor, "2 e"], *, covariates: int = 0
) -> EdgePrime:
    """Return `primer(series, covariates=covariates)` of the listed pairs, without computing it for the others.

    The lags of a pair, by far the most expensive, are projected for the listed pairs only, from one transform of each
    channel (pair_features.frequency_weight). The three instantaneous features are read from the grid of all pairs:
    three matrix products of the windows are cheaper than gathering the windows of each edge. Features of the user's
    own, and the controls whose pairs share a mean, are defined on the grid and read from there.
    """
    tokens = series.shape[1]
    query, key = edges
    on_edges = all(type(layer) in (LeadLag, Instantaneous, PairTable) for layer in primer.first)
    if primer.pairing in POOLED or not on_edges or series.shape[0] == 0:  # MKL has no FFT of an empty batch
        prime = primer(series, covariates=covariates)
        phi = prime.phi.flatten(1, 2)[:, :, query, key].permute(2, 0, 1)
        return EdgePrime(phi, prime.gains, prime.base, None if prime.pairs is None else prime.pairs[query, key])
    primer.check_windows(series, covariates)
    series = primer.in_precision(series.detach())
    if primer.normalize:
        series = standardize(series)
    looked_up = edges
    others = primer.other_pairs(tokens, covariates)
    if others is not None:  # the control: a pair has another pair's activations
        other = others[query * tokens + key]
        looked_up = torch.stack([other // tokens, other % tokens])
    hidden: Tensor = primer.offset.to(series.dtype)
    for layer in primer.first:
        hidden = hidden + _first_layer(layer, series, looked_up)
    pairs = primer.primed_pairs(tokens, covariates, series.device)
    phi = ACTIVATIONS[primer.activation](hidden)
    return EdgePrime(phi, primer.gains, primer.beta(), None if pairs is None else pairs[query, key])


def _first_layer(
    layer: nn.Module, series: Float[Tensor, "b n l"], edges: Int64[Tensor, "2 e"]
) -> Float[Tensor, "e #b r"]:
    """Return what a layer of `primer.first` computes, for the listed pairs only."""
    query, key = edges
    assert isinstance(layer, LeadLag | Instantaneous | PairTable)
    weight = layer.weight.to(series.dtype)
    if isinstance(layer, PairTable):
        return (layer.table[query, key].to(series.dtype) @ weight.mT)[:, None]
    if isinstance(layer, Instantaneous):
        grid = instantaneous(series, rolling=layer.rolling, form="matrix" if layer.form == "matrix" else "sort")
        return grid.permute(1, 2, 0, 3)[query, key] @ weight.mT
    spectrum, length = torch.fft.rfft(series.transpose(0, 1)), series.shape[-1]
    leader, follower = spectrum.index_select(0, query), spectrum.index_select(0, key)
    if layer.smooth:  # tanh of R is not linear: here R has to be built
        return (correlate(leader, follower, length) / length).tanh() @ weight.mT
    return cross_spectrum(leader, follower) @ frequency_weight(weight).mT


# ---------------------------------------------------------------- attention on edges


class EdgeAttention(nn.Module):
    """Attention over listed pairs: project, gather per edge, score, softmax per query node, sum, project.

    scoring:  a name in SCORINGS. It decides the weights: all have `key` and `out`; dot has `query` and `value`; gatv2
              has `query` and `score`; gat has `score`. With gat and gatv2 the keys are the values, as published.
    modulate: what a primer touches: "k", "v" or "kv". dropout: on the attention weights, in training only.
    """

    attends = True  # what `parameter_overhead` counts as attention

    def __init__(
        self, d_model: int, n_heads: int, *, scoring: str = "gatv2", dropout: float = 0.0, modulate: str = "kv"
    ) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise InputError(f"d_model {d_model} cannot be divided into n_heads {n_heads} heads of equal size")
        check_known("scoring", scoring, SCORINGS)
        check_known("modulate", modulate, MODULATE)
        size = d_model // n_heads
        self.n_heads = n_heads
        self.scoring = scoring
        self.dropout = dropout
        self.modulate = modulate
        self.query = nn.Linear(d_model, d_model) if scoring != "gat" else None
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model) if scoring == "dot" else None
        self.out = nn.Linear(d_model, d_model)
        if scoring != "dot":
            bound = math.sqrt(6 / (size + 1))  # Glorot's for a map of k numbers to one
            vectors = torch.empty(2 if scoring == "gat" else 1, n_heads, size)
            self.score = nn.Parameter(nn.init.uniform_(vectors, -bound, bound))

    def forward(
        self, z: Float[Tensor, "n b d"], edges: Int64[Tensor, "2 e"], filters: Float[Tensor, "e #b d"] | None = None
    ) -> Float[Tensor, "n b d"]:
        query, key = edges
        nodes = self.key(z)
        keys = nodes.index_select(0, key)
        values = keys if self.value is None else self.value(z).index_select(0, key)
        primed_keys, primed_values = self._prime(keys, values, filters)
        if self.query is not None:
            scores = self._pair_scores(self.query(z).index_select(0, query), primed_keys)
        else:
            of_query, of_key = self.score
            # What does not depend on the edge is projected once per node.
            key_score = (
                self._project(nodes, of_key).index_select(0, key)
                if primed_keys is keys
                else self._project(primed_keys, of_key)
            )
            scores = F.leaky_relu(self._project(nodes, of_query).index_select(0, query) + key_score, SLOPE)
        weights = drop(edge_softmax(scores, query, z.shape[0]), self.dropout if self.training else 0.0)
        messages = (weights[..., None] * self._heads(primed_values)).flatten(-2)
        return self.out(torch.zeros_like(z).index_add(0, query, messages))

    def _prime(
        self, keys: Float[Tensor, "e b d"], values: Float[Tensor, "e b d"], filters: Float[Tensor, "e #b d"] | None
    ) -> tuple[Float[Tensor, "e b d"], Float[Tensor, "e b d"]]:
        if filters is None:
            return keys, values
        filters = filters.to(keys.dtype)
        primed_keys = keys * filters if "k" in self.modulate else keys
        if values is keys and self.modulate == "kv":
            return primed_keys, primed_keys
        return primed_keys, values * filters if "v" in self.modulate else values

    def _pair_scores(self, q: Float[Tensor, "e b d"], k: Float[Tensor, "e b d"]) -> Float[Tensor, "e b h"]:
        if self.scoring == "dot":
            return self._heads(q * k).sum(-1) / math.sqrt(q.shape[-1] // self.n_heads)
        return self._project(F.leaky_relu(q + k, SLOPE), self.score[0])

    def _project(self, x: Float[Tensor, "e b d"], vectors: Float[Tensor, "h k"]) -> Float[Tensor, "e b h"]:
        """Return the product of each head's part with that head's vector, as one product with zeros between heads."""
        return x @ torch.block_diag(*vectors[..., None])

    def _heads(self, x: Float[Tensor, "e b d"]) -> Float[Tensor, "e b h k"]:
        return x.unflatten(-1, (self.n_heads, -1))


# ---------------------------------------------------------------- the model


class GAT(nn.Module):
    """forward(x: (b, l, n), time_features: (b, l + h, m) or None) -> (b, h, n); it reads the past l time features.

    scoring:    a name in SCORINGS. density: fraction of the ordered pairs of different nodes that are joined.
    graph_seed: the graph is drawn from it and saved with the weights. A drawn graph ties the model to the order of its
                channels; at density 1 it is not tied.
    d_ff, norm, modulate, primer: as ITransformer.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        d_model: int = 128,
        n_heads: int = 8,
        n_layers: int = 2,
        d_ff: int | None = None,
        dropout: float = 0.1,
        activation: str = "gelu",
        norm: str = "instance",
        scoring: str = "gatv2",
        density: float = 1.0,
        graph_seed: int = 0,
        modulate: str = "kv",
        primer: str | Mapping[str, object] | PairFeatures | Primer | None = None,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.lookback = lookback
        self.n_time_features = n_time_features
        self.norm = WindowNorm(norm, channels)
        self.embed = nn.Linear(lookback, d_model)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(
                EdgeAttention(d_model, n_heads, scoring=scoring, dropout=dropout, modulate=modulate),
                d_model,
                d_ff=d_ff or d_model,
                dropout=dropout,
                activation=activation,
            )
            for _ in range(n_layers)
        )
        self.norm_out = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, horizon)
        self.edges: Tensor
        self.register_buffer("edges", draw_graph(channels + n_time_features, density, seed=graph_seed))
        # Built last, so that everything else starts from the same random numbers with and without a primer.
        tokens = channels + n_time_features
        self.primer = build_primer(
            primer, length=lookback, d_model=d_model, n_heads=n_heads, tokens=tokens, layers=n_layers
        )
        if self.primer is not None:
            heads, _, size = self.primer.gains.shape[-3:]
            if heads * size != d_model:
                raise InputError(f"the primer has width {heads * size}, the model {d_model}")

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        if x.shape[2] != self.channels:
            raise InputError(f"the model was made for {self.channels} channels, the windows have {x.shape[2]}")
        normal, restore = self.norm(x)
        series = normal.mT
        edges = self.edges
        if time_features is not None and self.n_time_features:
            series = torch.cat([series, time_features[:, : self.lookback].mT], dim=1)
        elif self.n_time_features:  # not given: their nodes and edges are left out
            edges = edges[:, (edges < self.channels).all(0)]
        prime = None
        if self.primer is not None:
            prime = prime_edges(self.primer, series, edges, covariates=series.shape[1] - self.channels)

        z = self.dropout(self.embed(series.transpose(0, 1)))
        filters = None
        for depth, block in enumerate(self.blocks):
            if prime is not None and (filters is None or prime.layered):
                filters = prime.filters(depth)
            z = block(z, edges=edges, filters=filters)
        forecast = self.head(self.norm_out(z[: self.channels]))
        return restore(forecast.permute(1, 2, 0))
