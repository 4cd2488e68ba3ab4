"""Prime attention is what its formula says, whichever way it is computed."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.nn.attention import Prime, attend, attention_weights, check_prime, join_heads, split_heads
from primecast.nn.mechanisms import MECHANISMS, AttentionArgs, Differential, Directional
from primecast.nn.multi_head import MultiHeadAttention
from tests.reference import DEFINED, attention_by_loops, directional_by_loops, mechanism_by_loops, mix_by_loops

B, H, Q, J, K, M = 2, 3, 5, 7, 11, 13


def tensors(
    *, batch: int = B, heads: int = H, queries: int = Q, keys: int = J, size: int = K
) -> tuple[Tensor, Tensor, Tensor]:
    def draw(tokens: int) -> Tensor:
        return torch.randn(batch, heads, tokens, size, dtype=torch.float64, requires_grad=True)

    return draw(queries), draw(keys), draw(keys)


def prime(
    *,
    grouped: bool = True,
    base: bool = True,
    pairs: bool = False,
    batch: int = B,
    heads: int = H,
    queries: int = Q,
    keys: int = J,
    size: int = K,
    units: int = M,
) -> Prime:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    return Prime(
        phi=draw(batch, heads if grouped else 1, units, queries, keys),
        gains=draw(heads, units, size),
        base=draw(heads, size) if base else None,
        pairs=torch.rand(queries, keys) < 0.5 if pairs else None,
    )


VARIANTS = [
    pytest.param(grouped, base, pairs, id=f"{'grouped' if grouped else 'dense'}-base{base:d}-sparse{pairs:d}")
    for grouped in (True, False)
    for base in (True, False)
    for pairs in (True, False)
]


@pytest.mark.parametrize(("grouped", "base", "pairs"), VARIANTS)
@pytest.mark.parametrize("modulate", ["k", "v", "kv"])
def test_factored_equals_materialized_in_forward_and_all_gradients(
    grouped: bool, base: bool, pairs: bool, modulate: str
) -> None:
    q, k, v = tensors()
    p = prime(grouped=grouped, base=base, pairs=pairs)
    leaves = [q, k, v, p.phi, p.gains, *([p.base] if p.base is not None else [])]
    up = torch.randn(B, H, Q, K, dtype=torch.float64)

    fast = attend(q, k, v, prime=p, modulate=modulate)
    slow = attend(q, k, v, prime=p.materialize(), modulate=modulate)
    assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    grads = torch.autograd.grad(fast, leaves, up, allow_unused=True, materialize_grads=True)
    twins = torch.autograd.grad(slow, leaves, up, allow_unused=True, materialize_grads=True)
    for grad, twin in zip(grads, twins, strict=True):
        assert_close(grad, twin, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("modulate", ["k", "v", "kv"])
def test_materialized_equals_one_pair_at_a_time(modulate: str) -> None:
    q, k, v = tensors()
    filters = prime(pairs=True).materialize()
    assert_close(
        attend(q, k, v, prime=filters, modulate=modulate),
        attention_by_loops(q, k, v, filters, modulate),
        rtol=1e-10,
        atol=1e-12,
    )


def test_no_primer_is_standard_attention_one_pair_at_a_time() -> None:
    q, k, v = tensors()
    assert_close(attend(q, k, v), attention_by_loops(q, k, v), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("build", [lambda p: p, lambda p: p.materialize()], ids=["factored", "materialized"])
def test_a_primer_of_ones_is_standard_attention(build: Callable[[Prime], Prime | Tensor]) -> None:
    q, k, v = tensors()
    p = prime()
    ones = replace(p, phi=torch.zeros_like(p.phi), base=torch.ones(H, K, dtype=torch.float64))
    assert_close(attend(q, k, v, prime=build(ones)), attend(q, k, v), rtol=1e-10, atol=1e-12)


def test_a_base_zero_primer_can_express_ones() -> None:
    q, k, v = tensors()
    phi = torch.full((B, H, 2, Q, J), 0.7, dtype=torch.float64)
    ones = Prime(phi=phi, gains=torch.full((H, 2, K), 0.5 / 0.7, dtype=torch.float64))
    assert_close(attend(q, k, v, prime=ones), attend(q, k, v), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("base", [True, False])
def test_pairs_without_a_primer_are_treated_as_in_standard_attention(base: bool) -> None:
    q, k, v = tensors()
    nobody = replace(prime(base=base), pairs=torch.zeros(Q, J, dtype=torch.bool))
    assert_close(attend(q, k, v, prime=nobody), attend(q, k, v), rtol=1e-10, atol=1e-12)
    one_query = torch.zeros(Q, J, dtype=torch.bool)
    one_query[2] = True
    some = attend(q, k, v, prime=replace(prime(base=base), pairs=one_query))
    others = [i for i in range(Q) if i != 2]
    assert_close(some[:, :, others], attend(q, k, v)[:, :, others], rtol=1e-10, atol=1e-12)
    assert not torch.allclose(some[:, :, 2], attend(q, k, v)[:, :, 2])


@pytest.mark.parametrize(("grouped", "base", "pairs"), VARIANTS)
def test_gradcheck_passes(grouped: bool, base: bool, pairs: bool) -> None:
    sizes = {"batch": 1, "heads": 2, "queries": 3, "keys": 2, "size": 2}
    q, k, v = tensors(**sizes)
    p = prime(grouped=grouped, base=base, pairs=pairs, units=2, **sizes)

    def function(q: Tensor, k: Tensor, v: Tensor, phi: Tensor, gains: Tensor) -> Tensor:
        return attend(q, k, v, prime=replace(p, phi=phi, gains=gains))

    assert torch.autograd.gradcheck(function, (q, k, v, p.phi, p.gains))


def test_autograd_gives_the_closed_form_gradients() -> None:
    """One head; the gradients of the projections and of F, written out by hand."""
    n, d = 5, 7
    x, wq, wk, wv = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in [(n, d), (d, d), (d, d), (d, d)])
    f = torch.randn(n, n, d, dtype=torch.float64, requires_grad=True)
    g = torch.randn(n, d, dtype=torch.float64)
    q, k, v = x @ wq, x @ wk, x @ wv
    out = attend(q[None, None], k[None, None], v[None, None], prime=f[None])[0, 0]
    by_autograd = torch.autograd.grad(out, [wq, wk, wv, f], g)

    keys, values = k * f, v * f  # (i, j, d)
    a = ((q[:, None] * keys).sum(-1) / math.sqrt(d)).softmax(-1)
    p = (g[:, None] * values).sum(-1)
    dscore = a * (p - (a * p).sum(-1, keepdim=True))
    by_hand = [
        x.T @ (dscore[..., None] * keys).sum(1) / math.sqrt(d),
        x.T @ (dscore[..., None] * q[:, None] * f).sum(0) / math.sqrt(d),
        x.T @ (a[..., None] * g[:, None] * f).sum(0),
        dscore[..., None] * q[:, None] * k / math.sqrt(d) + a[..., None] * g[:, None] * v,
    ]
    for grad, formula in zip(by_autograd, by_hand, strict=True):
        assert_close(grad, formula, rtol=1e-9, atol=1e-11)


@given(
    batch=st.integers(1, 3), heads=st.integers(1, 3), queries=st.integers(1, 5), keys=st.integers(1, 5),
    size=st.integers(1, 4), units=st.integers(1, 3), grouped=st.booleans(), base=st.booleans(), pairs=st.booleans(),
)  # fmt: skip
def test_factored_equals_materialized_at_any_shape(
    batch: int, heads: int, queries: int, keys: int, size: int, units: int, grouped: bool, base: bool, pairs: bool
) -> None:
    sizes = {"batch": batch, "heads": heads, "queries": queries, "keys": keys, "size": size}
    q, k, v = tensors(**sizes)
    p = prime(grouped=grouped, base=base, pairs=pairs, units=units, **sizes)
    assert_close(attend(q, k, v, prime=p), attend(q, k, v, prime=p.materialize()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("primed", [False, True])
def test_mask_and_bias_mean_the_same_with_and_without_a_primer(primed: bool) -> None:
    q, k, v = tensors()
    mask = torch.rand(Q, J) < 0.6
    mask[:, 0] = True
    bias = torch.randn(1, H, Q, J, dtype=torch.float64)
    p = replace(prime(), phi=torch.zeros(B, H, M, Q, J, dtype=torch.float64)) if primed else None
    ones = replace(p, base=torch.ones(H, K, dtype=torch.float64)) if p is not None else None
    scores = (q @ k.mT / math.sqrt(K) + bias).masked_fill(~mask, -math.inf)
    expected = scores.softmax(-1) @ v
    assert_close(attend(q, k, v, prime=ones, mask=mask[None, None], bias=bias), expected, rtol=1e-10, atol=1e-12)
    assert_close(attend(q, k, v, prime=ones, bias=bias), (q @ k.mT / math.sqrt(K) + bias).softmax(-1) @ v)


def test_a_masked_token_changes_nothing() -> None:
    q, k, v = tensors()
    mask = torch.ones(1, 1, Q, J, dtype=torch.bool)
    mask[..., 3] = False
    p = prime()
    before = attend(q, k, v, prime=p, mask=mask)
    phi = p.phi.clone()
    phi[..., 3] += 1
    k2, v2 = k.clone(), v.clone()
    k2[:, :, 3] += 1
    v2[:, :, 3] -= 1
    assert_close(attend(q, k2, v2, prime=replace(p, phi=phi), mask=mask), before)


def test_position_is_applied_to_keys_after_priming() -> None:
    """A rotation of pairs of dimensions by the token's number: scores of q and k depend on F * k rotated."""
    q, k, v = tensors(size=2)
    p = prime(size=2)

    def rotate(x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[-2], dtype=x.dtype)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        return torch.cat([x[..., :1] * cos - x[..., 1:] * sin, x[..., :1] * sin + x[..., 1:] * cos], dim=-1)

    fast = attend(q, k, v, prime=p, position=rotate)
    filters = p.materialize().unflatten(-1, (H, 2)).permute(0, 3, 1, 2, 4)
    scores = (rotate(q)[:, :, :, None] * rotate(k[:, :, None] * filters)).sum(-1) / math.sqrt(2)
    expected = (scores.softmax(-1)[..., None] * v[:, :, None] * filters).sum(3)
    assert_close(fast, expected, rtol=1e-10, atol=1e-12)
    assert_close(attend(q, k, v, prime=p.materialize(), position=rotate), expected, rtol=1e-10, atol=1e-12)


def test_weights_sum_to_one_and_are_those_that_attend_uses() -> None:
    q, k, v = tensors()
    p = prime()
    weights = attention_weights(q, k, prime=p)
    assert_close(weights.sum(-1), torch.ones(B, H, Q, dtype=torch.float64))
    values = (v[:, :, None] * p.materialize().unflatten(-1, (H, K)).permute(0, 3, 1, 2, 4)) * weights[..., None]
    assert_close(values.sum(3), attend(q, k, v, prime=p), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("build", [lambda p: None, lambda p: p, lambda p: p.materialize()], ids=["none", "prime", "F"])
def test_a_token_that_may_look_at_nobody_gets_zero_and_a_finite_gradient(
    build: Callable[[Prime], Prime | Tensor | None], biased: bool
) -> None:
    q, k, v = tensors()
    p = prime()
    mask = torch.ones(1, 1, Q, J, dtype=torch.bool)
    mask[..., 2, :] = False
    bias = torch.randn(1, H, Q, J, dtype=torch.float64) if biased else None
    out = attend(q, k, v, prime=build(p), mask=mask, bias=bias)
    others = [i for i in range(Q) if i != 2]
    assert (out[:, :, 2] == 0).all()
    assert_close(out[:, :, others], attend(q, k, v, prime=build(p), bias=bias)[:, :, others])
    for gradient in torch.autograd.grad(out.square().sum(), [q, k, v]):
        assert torch.isfinite(gradient).all() and gradient.any()
    weights = attention_weights(q, k, prime=build(p), mask=mask, bias=bias)
    assert (weights[:, :, 2] == 0).all()
    assert_close(weights[:, :, others].sum(-1), torch.ones(B, H, Q - 1, dtype=torch.float64))


def test_a_hook_changes_nothing_for_a_token_that_may_look_at_nobody() -> None:
    module, x = attention(), torch.randn(2, 5, 12, dtype=torch.float64)
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril(-1)  # the first one looks at nobody
    before = module(x, mask=mask)
    module.mechanism.map.register_forward_hook(lambda *_: None)  # type: ignore[union-attr]
    assert_close(module(x, mask=mask), before)


# ---------------------------------------------------------------- second derivatives, torch.func, half precision


def penalty(slope: Tensor) -> Tensor:
    return slope.square().sum()


@pytest.mark.parametrize(("grouped", "base", "pairs"), VARIANTS)
def test_a_penalty_on_the_gradient_has_the_gradient_of_the_papers_formula(
    grouped: bool, base: bool, pairs: bool
) -> None:
    q, k, v = tensors()
    p = prime(grouped=grouped, base=base, pairs=pairs)
    leaves = [q, k, v, p.phi, p.gains, *([p.base] if p.base is not None else [])]

    def second(filters: Prime | Tensor) -> tuple[Tensor, ...]:
        slopes = torch.autograd.grad(attend(q, k, v, prime=filters).sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(map(penalty, slopes), torch.zeros(())), leaves)

    for one, other in zip(second(p), second(p.materialize()), strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-9)
        assert one.any()


def test_the_second_derivative_is_that_of_the_dropout_that_was_drawn() -> None:
    q, k, v = tensors(batch=1, heads=2, queries=3, keys=5, size=2)
    p = prime(batch=1, heads=2, queries=3, keys=5, size=2, units=3)

    def function(q: Tensor, k: Tensor, v: Tensor, phi: Tensor, gains: Tensor) -> Tensor:
        torch.manual_seed(7)
        return attend(q, k, v, prime=replace(p, phi=phi, gains=gains), dropout=0.4)

    assert torch.autograd.gradgradcheck(function, (q, k, v, p.phi, p.gains))


def test_keys_that_are_the_values_are_not_counted_twice_in_a_second_derivative() -> None:
    q, k, _ = tensors()
    p = prime()
    slopes = [
        torch.autograd.grad(attend(q, k, k, prime=filters).sum(), k, create_graph=True)[0]
        for filters in (p, p.materialize())
    ]
    assert_close(slopes[0], slopes[1], rtol=1e-10, atol=1e-10)
    seconds = [torch.autograd.grad(penalty(slope), k)[0] for slope in slopes]
    assert_close(seconds[0], seconds[1], rtol=1e-9, atol=1e-9)


def test_hessians_of_both_kinds_are_those_of_the_papers_formula() -> None:
    q, k, v = (t.detach() for t in tensors(batch=1, heads=2, queries=3, keys=5, size=2))
    p = prime(batch=1, heads=2, queries=3, keys=5, size=2, units=3)

    def of(filters: Prime | Tensor) -> Callable[[Tensor], Tensor]:
        return lambda q: attend(q, k, v, prime=filters).sum()

    expected = torch.autograd.functional.hessian(of(p.materialize().detach()), q)
    assert expected.abs().max() > 0.01
    assert_close(torch.autograd.functional.hessian(of(p), q), expected)
    assert_close(torch.func.jacrev(torch.func.jacrev(of(p)))(q), expected)


def test_torch_func_transforms_what_is_otherwise_computed_in_blocks() -> None:
    q, k, v = (t.detach() for t in tensors())
    many = torch.randn(13, *q.shape, dtype=torch.float64)
    p = prime()

    def of(filters: Prime | Tensor) -> Callable[[Tensor], Tensor]:
        return lambda q: attend(q, k, v, prime=filters)

    fast, slow = of(p), of(p.materialize())
    assert_close(torch.func.vmap(fast)(many), torch.stack([fast(one) for one in many]))
    slopes = [torch.func.grad(lambda q, of=one: of(q).sum())(q) for one in (fast, slow)]
    assert_close(slopes[0], slopes[1], rtol=1e-10, atol=1e-10)
    dropped = torch.func.vmap(lambda q: attend(q, k, v, prime=p, dropout=0.5), randomness="different")(many)
    assert not torch.allclose(dropped, torch.stack([fast(one) for one in many]))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, on its first forward derivative
def test_a_forward_derivative_is_the_product_with_the_gradient() -> None:
    q, k, v = (t.detach() for t in tensors())
    p, along = prime(), torch.randn_like(q)
    change: Tensor = torch.func.jvp(lambda q: attend(q, k, v, prime=p).sum(), (q,), (along,))[1]
    slope = torch.func.grad(lambda q: attend(q, k, v, prime=p).sum())(q)
    assert_close(change, (slope * along).sum())


@pytest.mark.parametrize("modulate", ["k", "v", "kv"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("low", ["tokens", "primer", "both"])
def test_the_result_has_the_type_of_the_values_whatever_the_type_of_the_primer(
    low: str, masked: bool, modulate: str
) -> None:
    q, k, v = (t.detach() for t in tensors())
    p = prime()
    mask = torch.ones(1, 1, Q, J, dtype=torch.bool) if masked else None
    half, single = torch.bfloat16, torch.float32
    own, others = {"tokens": (half, single), "primer": (single, half), "both": (half, half)}[low]
    given = [z.to(own) for z in (q, k, v)]
    primer = Prime(p.phi.to(others), p.gains.to(others), None if p.base is None else p.base.to(others))
    exact = [z.double() for z in given]
    wide = Prime(primer.phi.double(), primer.gains.double(), None if primer.base is None else primer.base.double())
    for own_primer, wide_primer in ((primer, wide), (primer.materialize(), wide.materialize())):
        out = attend(*given, prime=own_primer, modulate=modulate, mask=mask)
        assert out.dtype == own
        assert_close(out.double(), attend(*exact, prime=wide_primer, modulate=modulate), rtol=0.1, atol=0.3)


def test_dropout_keeps_the_expectation_of_primed_attention() -> None:
    q, k, v = (t.detach() for t in tensors())
    p = prime()
    with torch.no_grad():
        mean = torch.stack([attend(q, k, v, prime=p, dropout=0.3) for _ in range(3000)]).mean(0)
        assert_close(mean, attend(q, k, v, prime=p), rtol=0.2, atol=0.6)


# ---------------------------------------------------------------- mechanisms


def mechanism_case(name: str, depth: int = 0) -> tuple[nn.Module, list[Tensor], Prime]:
    """A mechanism with 7 tokens, 4 heads of size 6, its inputs (q, k, v, x), and a primer for it."""
    n, heads, size = 7, 4, 6
    module = MECHANISMS[name](heads * size, heads, depth=depth).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.5, 0.3)
    inputs = [torch.randn(2, n, heads * size, dtype=torch.float64) for _ in range(4)]
    return module, inputs, prime(batch=2, heads=heads, queries=n, keys=n, size=size, units=3)


@pytest.mark.parametrize("primed", [False, True])
@pytest.mark.parametrize("name", DEFINED)
def test_a_mechanism_equals_its_definition_one_sample_and_head_at_a_time(name: str, primed: bool) -> None:
    module, (q, k, v, x), p = mechanism_case(name, depth=2)
    filters = p.materialize() if primed else torch.ones(2, 7, 7, 24, dtype=torch.float64)
    expected = mechanism_by_loops(name, module, q, k, v, x, filters, heads=4, depth=2)
    assert_close(module(q, k, v, x, AttentionArgs(prime=p if primed else None)), expected, rtol=1e-9, atol=1e-10)
    if primed:
        assert_close(module(q, k, v, x, AttentionArgs(prime=filters)), expected, rtol=1e-9, atol=1e-10)


def test_the_reference_refuses_a_mechanism_that_it_does_not_define() -> None:
    module, (q, k, v, x), p = mechanism_case("dot")
    with pytest.raises(ValueError, match="no definition of the mechanism 'dott' here, only of dot, selective"):
        mechanism_by_loops("dott", module, q, k, v, x, p.materialize(), heads=4, depth=0)


@pytest.mark.parametrize("primed", [False, True])
def test_directional_attention_is_that_of_sdformers_public_code(primed: bool) -> None:
    module, (q, k, v, x), p = mechanism_case("directional")
    assert isinstance(module, Directional)
    filters = p.materialize() if primed else torch.ones(2, 7, 7, 24, dtype=torch.float64)
    arrays = [z.detach().numpy() for z in (q, k, v, filters)]
    expected = directional_by_loops(*arrays, heads=4, w=module.w.item(), gamma=module.gamma.item())
    found = module(q, k, v, x, AttentionArgs(prime=p if primed else None))
    assert_close(found, torch.from_numpy(expected), rtol=1e-9, atol=1e-10)


def test_the_scale_of_directional_attention_is_drawn_and_a_single_token_attends_to_itself() -> None:
    torch.manual_seed(0)
    scales = torch.stack([Directional(24, 4).gamma.detach() for _ in range(400)])
    assert abs(float(scales.mean())) < 0.2 and 0.9 < float(scales.std()) < 1.1
    token = torch.randn(2, 1, 24)
    assert_close(Directional(24, 4)(token, token, token, token, AttentionArgs()), token)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_primer_of_ones_leaves_every_mechanism_as_it_is(name: str) -> None:
    module, inputs, p = mechanism_case(name)
    ones = replace(p, phi=torch.zeros_like(p.phi), base=torch.ones(4, 6, dtype=torch.float64))
    assert_close(module(*inputs, AttentionArgs(prime=ones)), module(*inputs, AttentionArgs()), rtol=1e-9, atol=1e-10)


def passed_on(module: nn.Module, inputs: list[Tensor], args: AttentionArgs) -> list[Tensor]:
    """The weights that a mechanism mixes values with, the values, and their mix, before a gate or norm changes it."""
    seen: list[Tensor] = []

    class Spy(AttentionArgs):
        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            seen.extend([weights, v, super().mix(weights, v)])
            return seen[-1]

    hook = module.map.register_forward_hook(lambda *_: None)  # type: ignore[union-attr]
    module(*inputs, Spy(**vars(args)))  # watched, so that the weights are formed
    hook.remove()
    return seen


@pytest.mark.parametrize("primed", [False, True])
@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_passes_on_a_weighted_sum_of_values_each_times_the_filter_of_its_pair(
    name: str, primed: bool
) -> None:
    module, inputs, p = mechanism_case(name)
    weights, v, mixed = passed_on(module, inputs, AttentionArgs(prime=p if primed else None))
    filters = p.materialize() if primed else torch.ones(2, 7, 7, 24, dtype=torch.float64)
    assert_close(mixed, mix_by_loops(weights, v, filters), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("primed", [False, True])
@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_is_static_until_it_is_primed(name: str, primed: bool) -> None:
    """Static: a token shows all others one vector, re-weighted; so what it adds to them, head by head, spans a line.

    What one token adds is seen by giving only it a value. What a mechanism does to the sum afterwards (a gate, a norm)
    is no message between tokens.
    """
    module, (q, k, v, x), p = mechanism_case(name)
    only = torch.zeros_like(v)
    only[:, 3] = v[:, 3]
    args = AttentionArgs(prime=p if primed else None, modulate="v")
    *_, message = passed_on(module, [q, k, only, x], args)
    ranks = [int(torch.linalg.matrix_rank(head, rtol=1e-8)) for head in message[0]]
    assert all(rank > 1 for rank in ranks) if primed else all(rank == 1 for rank in ranks)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_hook_sees_the_weights_of_every_mechanism_and_changes_nothing(name: str) -> None:
    module, inputs, p = mechanism_case(name)
    before, seen = module(*inputs, AttentionArgs(prime=p)), []
    module.map.register_forward_hook(lambda _, __, weights: seen.append(weights))  # type: ignore[union-attr]
    assert_close(module(*inputs, AttentionArgs(prime=p)), before)
    batch, maps, *pairs = seen[0].shape
    assert (batch, 4 % maps, pairs) == (2, 0, [7, 7])  # a map may be shared by heads
    sums = seen[0].sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums)) == module.normalized


def test_differential_rows_sum_to_one_minus_lambda() -> None:
    module, inputs, _ = mechanism_case("differential", depth=3)
    seen: list[Tensor] = []
    module.map.register_forward_hook(lambda _, __, weights: seen.append(weights))  # type: ignore[union-attr]
    module(*inputs, AttentionArgs())
    a, b, c, d = module.vectors  # type: ignore[misc]
    strength = (a @ b).exp() - (c @ d).exp() + 0.8 - 0.6 * math.exp(-0.9)
    assert_close(seen[0].sum(-1), (1 - strength).expand(2, 2, 7))


@pytest.mark.parametrize(("depth", "expected"), [(0, 0.2), (1, 0.3555), (2, 0.4707), (5, 0.6661)])
def test_differential_attention_starts_at_the_published_lambda(depth: int, expected: float) -> None:
    assert Differential(24, 4, depth=depth).start == pytest.approx(expected, abs=1e-4)


def test_mechanisms_refuse_heads_and_masks_they_cannot_use() -> None:
    with pytest.raises(InputError, match="n_heads 3 must be even"):
        MultiHeadAttention(12, 3, mechanism="differential")
    with pytest.raises(InputError, match="n_heads 1 must be at least 2"):
        MultiHeadAttention(12, 1, mechanism="directional")
    for name in ("selective", "directional"):
        module = MultiHeadAttention(12, 2, mechanism=name)
        with pytest.raises(InputError, match="takes no mask"):
            module(torch.randn(2, 5, 12), mask=torch.ones(1, 1, 5, 5, dtype=torch.bool))


def test_a_zero_output_projection_adds_nothing_at_first_and_learns() -> None:
    module = MultiHeadAttention(12, 3, zero_output=True)
    x = torch.randn(2, 5, 12)
    assert not module(x).any()
    (module(x) - x).square().mean().backward()
    assert module.out.weight.grad is not None and module.out.weight.grad.any()


# ---------------------------------------------------------------- the module


def attention(**options: object) -> MultiHeadAttention:
    return MultiHeadAttention(12, 3, **options).double()  # type: ignore[arg-type]


def test_the_module_equals_torchs_own_multihead_attention() -> None:
    ours, theirs = attention(), nn.MultiheadAttention(12, 3, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(ours.out.bias)
    x, memory = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    assert_close(ours(x), theirs(x, x, x)[0])
    assert_close(ours(x, memory), theirs(x, memory, memory)[0])


@pytest.mark.parametrize("primed", [False, True])
def test_a_forward_hook_sees_the_weights_and_changes_nothing(primed: bool) -> None:
    module, seen = attention(), []
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    p = prime(heads=3, queries=5, keys=5, size=4) if primed else None
    before = module(x, prime=p)
    handle = module.mechanism.map.register_forward_hook(lambda _, __, weights: seen.append(weights))  # type: ignore[union-attr]
    assert_close(module(x, prime=p), before)
    handle.remove()
    q, k = (split_heads(layer(x), 3) for layer in (module.query, module.key))
    assert_close(seen[0], attention_weights(q, k, prime=p))
    module(x, prime=p)
    assert len(seen) == 1


def test_a_hook_before_the_map_is_called_too() -> None:
    module, seen = attention(), []
    module.mechanism.map.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))  # type: ignore[union-attr]
    module(torch.randn(2, 5, 12, dtype=torch.float64))
    assert seen[0].shape == (2, 3, 5, 5)


@pytest.mark.parametrize("primed", [False, True])
def test_permuting_tokens_permutes_the_output(primed: bool) -> None:
    module = attention()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    p = prime(heads=3, queries=5, keys=5, size=4) if primed else None
    turned = replace(p, phi=p.phi[..., order, :][..., order]) if p is not None else None
    assert_close(module(x[:, order], prime=turned), module(x, prime=p)[:, order])


def test_dropout_is_drawn_in_training_only() -> None:
    module = attention(dropout=0.5)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


def test_heads_split_and_join_without_loss() -> None:
    x = torch.randn(2, 5, 12)
    assert torch.equal(join_heads(split_heads(x, 3)), x)
    assert torch.equal(split_heads(x, 3)[:, 1], x[..., 4:8])


def test_torch_softmax_is_what_standard_attention_uses() -> None:
    q, k, v = (t.float() for t in tensors())
    assert_close(attend(q, k, v), F.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": 4}, "covers 4 x 7 token pairs, the attention has 5 x 7"),
        ({"heads": 2}, "made for 2 heads, the attention has 3"),
        ({"size": 2}, "width 6, the attention"),
        ({"batch": 3}, "batch 3"),
    ],
)
def test_a_primer_for_other_tokens_is_refused(change: dict[str, int], message: str) -> None:
    q, k, v = tensors()
    with pytest.raises(InputError, match=message):
        attend(q, k, v, prime=prime(**change))  # type: ignore[arg-type]


def test_a_materialized_primer_for_other_tokens_is_refused() -> None:
    q, k, _ = tensors()
    with pytest.raises(InputError, match="covers 7 x 5 token pairs, the attention has 5 x 7"):
        check_prime(q, k, prime().materialize().transpose(1, 2), "kv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gains": torch.zeros(H, 1, K)}, "the primer's phi has 13 hidden units, its gains have 1"),
        ({"phi": torch.zeros(B, H, 1, Q, J)}, "the primer's phi has 1 hidden units, its gains have 13"),
        ({"phi": torch.zeros(B, H, Q, J)}, r"phi has shape \(2, 3, 5, 7\), it must be \(b, g, m, i, j\)"),
        ({"base": torch.zeros(1, K)}, r"the primer's base has shape \(1, 11\), the attention needs \(3, 11\)"),
        ({"pairs": torch.ones(1, J, dtype=torch.bool)}, r"pairs has shape \(1, 7\), the attention needs \(5, 7\)"),
    ],
)
@pytest.mark.parametrize("modulate", ["k", "kv"])
def test_parts_of_a_primer_that_would_be_broadcast_are_refused(
    change: dict[str, Tensor], message: str, modulate: str
) -> None:
    q, k, _ = tensors()
    broken = copy.copy(prime())
    for name, value in change.items():
        object.__setattr__(broken, name, value)  # the types of a Prime, checked in tests alone, would not let it be
    with pytest.raises(InputError, match=message):
        check_prime(q, k, broken, modulate)


def test_a_materialized_primer_of_other_axes_is_refused() -> None:
    q, k, _ = tensors()
    with pytest.raises(InputError, match=r"F has shape \(5, 7, 33\), it must be \(b, i, j, d\)"):
        check_prime(q, k, torch.zeros(Q, J, H * K), "kv")


@pytest.mark.parametrize("primed", [False, True])
def test_numbers_are_not_a_mask(monkeypatch: pytest.MonkeyPatch, primed: bool) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no such checks
    q, k, v = tensors()
    p, mask = prime() if primed else None, torch.zeros(1, 1, Q, J, dtype=torch.float64)
    calls: list[Callable[[], Tensor]] = [
        lambda: attend(q, k, v, prime=p, mask=mask),
        lambda: attention_weights(q, k, prime=p, mask=mask),
    ]
    for function in calls:
        with pytest.raises(InputError, match="the mask is of torch.float64; it must be of torch.bool, True where i"):
            function()


@pytest.mark.parametrize("rate", [-0.5, 1.5])
@pytest.mark.parametrize("primed", [False, True])
def test_a_dropout_that_is_no_share_is_refused(rate: float, primed: bool) -> None:
    q, k, v = tensors()
    with pytest.raises(InputError, match=f"dropout is {rate}; it must be between 0 and 1"):
        attend(q, k, v, prime=prime() if primed else None, dropout=rate)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"queries": 0}, {"keys": 0}], ids=str)
def test_no_samples_and_no_tokens_are_none_with_a_primer_too(sizes: dict[str, int]) -> None:
    q, k, v = tensors(**sizes)
    out = attend(q, k, v, prime=prime(**sizes))  # type: ignore[arg-type]
    assert_close(out, attend(q, k, v))


def test_unknown_names_list_the_allowed_ones() -> None:
    q, k, v = tensors()
    with pytest.raises(InputError, match=r"unknown modulate 'q'.*allowed: k, kv, v"):
        attend(q, k, v, modulate="q")
    with pytest.raises(InputError, match=r"unknown mechanism 'dott' \(did you mean 'dot'\?\)"):
        MultiHeadAttention(12, 3, mechanism="dott")
    with pytest.raises(InputError, match="unknown modulate"):
        MultiHeadAttention(12, 3, modulate="vk")


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(InputError, match="d_model 10 cannot be divided into n_heads 3"):
        MultiHeadAttention(10, 3)
    with pytest.raises(InputError, match="dropout is 1.0; it must be a finite number of at least 0 and below 1"):
        MultiHeadAttention(12, 3, dropout=1.0)


def test_gains_of_several_layers_must_be_picked_from() -> None:
    q, k, v = tensors()
    p = prime()
    stacked = Prime(p.phi, torch.stack([p.gains, -p.gains]), None)
    with pytest.raises(InputError, match=r"pass prime.layer\(index\)"):
        attend(q, k, v, prime=stacked)
    assert_close(attend(q, k, v, prime=stacked.layer(0)), attend(q, k, v, prime=replace(p, base=None)))
    assert torch.equal(stacked.layer(1).gains, -p.gains)
