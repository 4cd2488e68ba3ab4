"""GAT on a list of edges is masked attention on all pairs, and costs what its edges cost."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.models import create_model
from primecast.models.gat import GAT, SCORINGS, EdgeAttention, draw_graph, edge_softmax, prime_edges
from primecast.models.itransformer import ITransformer
from primecast.nn.attention import Prime, join_heads, split_heads
from primecast.nn.multi_head import MultiHeadAttention
from primecast.nn.primer import Primer
from primecast.nn.primer_layers import TABLES
from tests.reference import edge_attention_by_loops

B, L, S, N, M = 3, 19, 11, 5, 2
D, H = 12, 3
T = N + M


def mask_of(edges: Tensor, nodes: int = T) -> Tensor:
    mask = torch.zeros(nodes, nodes, dtype=torch.bool)
    mask[edges[0], edges[1]] = True
    return mask


def small(**options: Any) -> GAT:
    torch.manual_seed(0)
    sizes = {"d_model": D, "n_heads": H, "n_time_features": M, "density": 0.5}
    model = create_model("gat", lookback=L, horizon=S, channels=N, attention="standard", **{**sizes, **options})
    assert isinstance(model, GAT)
    return model.double().eval()


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(B, L, N, dtype=torch.float64).cumsum(1)
    return x, torch.rand(B, L + S, M, dtype=torch.float64) - 0.5


def windows(tokens: int = T) -> Tensor:
    return torch.randn(B, tokens, L, dtype=torch.float64).cumsum(-1)


PRIMERS: dict[str, dict[str, Any]] = {
    "full": {"kind": "full"},
    "full, dense": {"kind": "full", "grouped": False, "hidden": 5},
    "full, base identity": {"kind": "full", "base": "identity"},
    "full, learned base": {"kind": "full", "learn_base": True, "base": "identity"},
    "full, per layer": {"kind": "full", "layers": 2, "learn_base": True},
    "full, sparse": {"kind": "full", "sparsity": 0.4, "tokens": T},
    "full, no self, no time features": {"kind": "full", "prime_self": False, "prime_covariates": False},
    "full, not normalised": {"kind": "full", "normalize": False},
    "full, by products": {"kind": "full", "form": "matrix"},
    "permuted": {"kind": "full", "pairing": "permuted", "tokens": T},
    "shared": {"kind": "full", "pairing": "shared"},
    "key": {"kind": "full", "pairing": "key"},
    "lead_lag": {"kind": "lead_lag"},
    "lead_lag, smooth": {"kind": "lead_lag", "smooth": True},
    "instantaneous": {"kind": "instantaneous", "activation": "tanh"},
    "random": {"kind": "random", "tokens": T},
    "table": {"kind": "table", "tokens": T},
    "own": {"kind": lambda series: series[:, :, None, :4] * series[:, None, :, 4:8], "features": 4},
}


# ---------------------------------------------------------------- the graph


@given(nodes=st.integers(1, 12), density=st.floats(0, 1), seed=st.integers(0, 5))
def test_a_graph_has_all_self_loops_and_the_exact_share_of_other_pairs(nodes: int, density: float, seed: int) -> None:
    edges = draw_graph(nodes, density, seed=seed)
    mask = mask_of(edges, nodes)
    assert mask.diagonal().all()
    assert edges.shape[1] == mask.sum() == nodes + round(density * nodes * (nodes - 1))
    assert torch.equal(mask, mask | mask_of(draw_graph(nodes, density / 2, seed=seed), nodes))


def test_a_graph_is_a_function_of_its_seed() -> None:
    assert torch.equal(draw_graph(9, 0.5, seed=1), draw_graph(9, 0.5, seed=1))
    assert not torch.equal(draw_graph(9, 0.5, seed=1), draw_graph(9, 0.5, seed=2))
    with pytest.raises(InputError, match=r"density 1\.5 is not a fraction of pairs"):
        draw_graph(9, 1.5, seed=0)


def test_the_softmax_of_edges_is_the_masked_softmax_and_survives_large_scores() -> None:
    edges = draw_graph(T, 0.5, seed=0)
    scores = 1e3 * torch.randn(edges.shape[1], B, H, dtype=torch.float64)
    grid = torch.full((T, T, B, H), -torch.inf, dtype=torch.float64)
    grid[edges[0], edges[1]] = scores
    assert_close(edge_softmax(scores, edges[0], T), grid.softmax(1)[edges[0], edges[1]])


# ---------------------------------------------------------------- attention on edges


@pytest.mark.parametrize("scoring", list(SCORINGS))
@pytest.mark.parametrize("modulate", [None, "k", "v", "kv"])
def test_attention_on_edges_equals_loops_in_forward_and_gradients(scoring: str, modulate: str | None) -> None:
    attention = EdgeAttention(D, H, scoring=scoring, modulate=modulate or "kv").double()
    edges = draw_graph(T, 0.4, seed=0)
    z = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(B, T, T, D, dtype=torch.float64, requires_grad=True) if modulate else None
    listed = None if filters is None else filters[:, edges[0], edges[1]].transpose(0, 1)
    fast = attention(z.transpose(0, 1), edges, listed).transpose(0, 1)

    key = attention.key(z)
    query = key if attention.query is None else attention.query(z)
    value = key if attention.value is None else attention.value(z)
    slow = attention.out(
        join_heads(
            edge_attention_by_loops(
                split_heads(query, H),
                split_heads(key, H),
                split_heads(value, H),
                [(int(i), int(j)) for i, j in edges.mT],
                scoring=scoring,
                vectors=None if scoring == "dot" else attention.score,
                filters=filters,
                modulate=modulate or "kv",
            )
        )
    )
    assert_close(fast, slow)
    leaves = [z, *attention.parameters(), *([] if filters is None else [filters])]
    up = torch.randn(B, T, D, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((fast * up).sum(), leaves),
        torch.autograd.grad((slow * up).sum(), leaves),
        strict=True,
    ):
        assert_close(one, other)


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("modulate", [None, "k", "v", "kv"])
def test_dot_scoring_on_edges_is_masked_attention(density: float, modulate: str | None) -> None:
    edges = draw_graph(T, density, seed=0)
    dense = MultiHeadAttention(D, H, modulate=modulate or "kv").double()
    sparse = EdgeAttention(D, H, scoring="dot", modulate=modulate or "kv").double()
    sparse.load_state_dict(dense.state_dict())
    z = torch.randn(B, T, D, dtype=torch.float64)
    filters = torch.randn(B, T, T, D, dtype=torch.float64) if modulate else None
    listed = None if filters is None else filters[:, edges[0], edges[1]].transpose(0, 1)
    expected = dense(z, prime=filters, mask=mask_of(edges)[None, None])
    assert_close(sparse(z.transpose(0, 1), edges, listed).transpose(0, 1), expected)


# ---------------------------------------------------------------- primers on edges


@pytest.mark.parametrize("options", PRIMERS.values(), ids=list(PRIMERS))
@pytest.mark.parametrize("density", [0.4, 1.0])
def test_primers_on_edges_are_those_of_the_grid_in_forward_and_gradients(
    options: dict[str, Any], density: float
) -> None:
    primer = Primer(length=L, d_model=D, n_heads=H, **options).double()
    with torch.no_grad():
        primer.offset.normal_()
    series = windows()
    edges = draw_graph(T, density, seed=0)
    listed = prime_edges(primer, series, edges, covariates=M)
    grid: Prime = primer(series, covariates=M)
    leaves = list(primer.parameters())
    for layer in range(2):
        fast = listed.filters(layer)
        slow = grid.layer(layer).materialize()[:, edges[0], edges[1]].transpose(0, 1)
        assert fast.shape[1] == (1 if options["kind"] in TABLES else B)  # what reads no windows is computed once
        fast = fast.expand_as(slow)
        assert_close(fast, slow)
        up = torch.randn_like(fast)
        for one, other in zip(
            torch.autograd.grad((fast * up).sum(), leaves, retain_graph=True),
            torch.autograd.grad((slow * up).sum(), leaves, retain_graph=True),
            strict=True,
        ):
            assert_close(one, other)


@pytest.mark.parametrize("length", [4, 5, 18])
def test_lags_are_projected_alike_at_even_and_odd_lengths(length: int) -> None:
    primer = Primer("lead_lag", length=length, d_model=D, n_heads=H).double()
    series = torch.randn(B, T, length, dtype=torch.float64)
    edges = draw_graph(T, 0.5, seed=0)
    expected = primer(series).materialize()[:, edges[0], edges[1]].transpose(0, 1)
    assert_close(prime_edges(primer, series, edges).filters(0), expected)


def test_primers_made_for_something_else_are_refused() -> None:
    edges = draw_graph(T, 0.5, seed=0)
    with pytest.raises(InputError, match="the primer was made for a look-back of 20 steps, the windows have 19"):
        prime_edges(Primer("full", length=L + 1, d_model=D, n_heads=H), windows(), edges)
    with pytest.raises(InputError, match="the primer was made for 9 tokens, the windows have 7"):
        prime_edges(Primer("random", length=L, d_model=D, n_heads=H, tokens=9), windows(), edges)
    with pytest.raises(InputError, match="the primer has width 24, the model 12"):
        small(primer=Primer("full", length=L, d_model=24, n_heads=H))


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize("primer", [None, "full", {"kind": "full", "layers": True, "base": "identity"}])
@pytest.mark.parametrize("density", [0.5, 1.0])
def test_with_dot_scoring_it_is_itransformer_masked_by_its_graph(primer: Any, density: float) -> None:
    """The same weights, forward and all gradients; at density 1 no pair is masked and it is iTransformer itself."""
    sparse = small(scoring="dot", primer=primer, density=density)
    dense = create_model(
        "itransformer", lookback=L, horizon=S, channels=N, n_time_features=M, d_model=D, n_heads=H, primer=primer
    )
    dense.load_state_dict({name: value for name, value in sparse.state_dict().items() if name != "edges"})
    assert isinstance(dense, ITransformer)
    dense = dense.double().eval()
    x, time_features = inputs()
    up = torch.randn(B, S, N, dtype=torch.float64)
    if density < 1:
        for block in dense.blocks:
            block.get_submodule("attention").register_forward_pre_hook(
                lambda module, args, kwargs: (args, kwargs | {"mask": mask_of(sparse.edges)[None, None]}),
                with_kwargs=True,
            )
    fast, slow = sparse(x, time_features), dense(x, time_features)
    assert_close(fast, slow)
    (fast * up).sum().backward()
    (slow * up).sum().backward()
    gradients = {name: p.grad for name, p in dense.named_parameters()}
    for name, parameter in sparse.named_parameters():
        assert_close(parameter.grad, gradients[name], msg=f"{name}: {{}}".format)


@pytest.mark.parametrize("scoring", list(SCORINGS))
@pytest.mark.parametrize("primer", [None, "full"])
def test_a_drawn_graph_ties_the_model_to_the_order_of_its_channels_and_a_full_one_does_not(
    scoring: str, primer: str | None
) -> None:
    x, time_features = inputs()
    order = torch.tensor([3, 0, 4, 1, 2])
    full, drawn = (small(scoring=scoring, primer=primer, density=density) for density in (1.0, 0.5))
    assert_close(full(x[..., order], time_features), full(x, time_features)[..., order])
    assert not torch.allclose(drawn(x[..., order], time_features), drawn(x, time_features)[..., order])


@pytest.mark.parametrize("scoring", list(SCORINGS))
@pytest.mark.parametrize("primer", [None, "full"])
def test_a_node_hears_itself_and_its_neighbours_only(scoring: str, primer: str | None) -> None:
    model = small(scoring=scoring, primer=primer, density=0.3, n_layers=1)
    x, time_features = inputs()
    before = model(x, time_features)
    for channel in range(N):
        other = x.clone()
        other[..., channel] = torch.randn(B, L, dtype=x.dtype)
        changed = (model(other, time_features) - before).abs().amax((0, 1)) > 1e-12
        assert torch.equal(changed, mask_of(model.edges)[:N, channel])


@pytest.mark.parametrize("primer", [None, "full"])
def test_without_neighbours_every_channel_is_forecast_alone(primer: str | None) -> None:
    model = small(density=0.0, primer=primer, n_time_features=0)
    alone = small(density=0.0, primer=primer, n_time_features=0)
    x, _ = inputs()
    assert model.edges.shape[1] == N
    parts = []
    for channel in range(N):
        only = torch.zeros_like(x)
        only[..., channel] = x[..., channel]
        parts.append(alone(only)[..., channel])
    assert_close(model(x), torch.stack(parts, -1))


def test_without_calendar_its_nodes_fall_away() -> None:
    model = small(primer="full")
    x, _ = inputs()
    bare = small(primer="full", n_time_features=0)
    state = {name: value for name, value in model.state_dict().items() if name != "edges"}
    bare.load_state_dict(state, strict=False)
    bare.edges = model.edges[:, (model.edges < N).all(0)]
    assert_close(model(x), bare(x))


@pytest.mark.parametrize(
    ("scoring", "attention"),
    [("dot", 4 * (D * D + D)), ("gatv2", 3 * (D * D + D) + D), ("gat", 2 * (D * D + D) + 2 * D)],
)
def test_gat_parameters_follow_the_formula(scoring: str, attention: int) -> None:
    model = small(scoring=scoring, d_ff=17)
    block = attention + 2 * D * 17 + 17 + D + 4 * D
    expected = (L + 1) * D + 2 * block + 2 * D + (D + 1) * S
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize("scoring", list(SCORINGS))
@pytest.mark.parametrize("primer", [None, "full"])
def test_what_is_kept_for_the_gradient_falls_with_density(scoring: str, primer: str | None) -> None:
    """Counted in numbers, not in seconds: of tensors that have an edge axis, a tenth of the edges is a tenth."""

    def kept(density: float) -> int:
        model = GAT(lookback=L, horizon=S, channels=60, d_model=D, n_heads=H, scoring=scoring, density=density,
                    primer=primer)  # fmt: skip
        seen: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            seen[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(torch.randn(B, L, 60)).sum().backward()
        return sum(seen.values())

    nodes = kept(0.0)  # everything, with one edge per node
    assert kept(0.1) - nodes < 0.12 * (kept(1.0) - nodes)


def test_the_same_graph_is_drawn_for_the_same_seed_and_saved_with_the_weights() -> None:
    model, other = small(), small(graph_seed=1)
    assert torch.equal(model.edges, small().edges) and not torch.equal(model.edges, other.edges)
    other.load_state_dict(model.state_dict())
    x, time_features = inputs()
    assert torch.equal(other(x, time_features), model(x, time_features))


def test_unknown_names_are_listed() -> None:
    with pytest.raises(InputError, match="unknown scoring 'gatv3' .*; allowed: dot, gat, gatv2"):
        small(scoring="gatv3")
    with pytest.raises(InputError, match="unknown modulate 'q'; allowed: k, kv, v"):
        small(modulate="q")
    with pytest.raises(InputError, match="unknown activation 'swish'; allowed: gelu, relu"):
        small(activation="swish")
    with pytest.raises(InputError, match="cannot be divided into n_heads 5"):
        small(n_heads=5)
