"""The blocked form with its gradient by hand is the plain factored form, whatever the size of a block."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from primecast.nn import prime_kernel
from primecast.nn.attention import Prime, factored_mix, factored_scores
from primecast.nn.prime_kernel import blocked_attention

Case = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]


def case(
    *, grouped: bool, base: bool, batch: int = 3, heads: int = 2, queries: int = 7, keys: int = 5, size: int = 4,
    units: int = 3, dtype: torch.dtype = torch.float64,
) -> Case:  # fmt: skip
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, requires_grad=True)

    return (
        draw(batch, heads, queries, size),
        draw(batch, heads, keys, size),
        draw(batch, heads, keys, size),
        draw(batch, heads if grouped else 1, units, queries, keys),
        draw(heads, units, size),
        draw(heads, size) if base else None,
    )


def plainly(q: Tensor, k: Tensor, v: Tensor, phi: Tensor, gains: Tensor, base: Tensor | None) -> Tensor:
    prime = Prime(phi, gains, base)
    weights = factored_scores(q / math.sqrt(q.shape[-1]), k, prime).softmax(-1)
    return factored_mix(weights, v, prime)


def compare(given: Case, *, rtol: float = 1e-10, grad_rtol: float = 1e-10) -> None:
    leaves = [leaf for leaf in given if leaf is not None]
    fast, slow = blocked_attention(*given), plainly(*given)
    up = torch.randn_like(fast)
    assert_close(fast, slow, rtol=rtol, atol=rtol)
    for grad, twin in zip(torch.autograd.grad(fast, leaves, up), torch.autograd.grad(slow, leaves, up), strict=True):
        assert_close(grad, twin, rtol=grad_rtol, atol=grad_rtol)


@pytest.mark.parametrize("block", [1, 12, 40, 2**17])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("base", [True, False])
def test_blocked_equals_plain_in_forward_and_all_gradients(
    monkeypatch: pytest.MonkeyPatch, block: int, grouped: bool, base: bool
) -> None:
    monkeypatch.setattr(prime_kernel, "BLOCK", block)
    monkeypatch.setattr(prime_kernel, "FEWEST_ROWS", 2)
    compare(case(grouped=grouped, base=base))


@given(
    batch=st.integers(1, 3), heads=st.integers(1, 3), queries=st.integers(1, 6), keys=st.integers(1, 6),
    size=st.integers(1, 4), units=st.integers(1, 3), grouped=st.booleans(), base=st.booleans(),
)  # fmt: skip
def test_blocked_equals_plain_at_any_shape(
    batch: int, heads: int, queries: int, keys: int, size: int, units: int, grouped: bool, base: bool
) -> None:
    sizes: dict[str, Any] = {
        "batch": batch,
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "size": size,
        "units": units,
    }
    compare(case(grouped=grouped, base=base, **sizes), rtol=1e-9, grad_rtol=1e-9)


@pytest.mark.parametrize("tokens", [11, 137])
def test_single_precision_is_within_the_promised_error_of_double(tokens: int) -> None:
    double = case(grouped=True, base=False, queries=tokens, keys=tokens, size=16, units=2)
    single = tuple(None if t is None else t.detach().float().requires_grad_() for t in double)
    fast, exact = blocked_attention(*single), plainly(*double)  # type: ignore[arg-type]
    assert (fast - exact).norm() <= 1e-5 * exact.norm()
    up = torch.randn_like(exact)
    grads = torch.autograd.grad(fast, [t for t in single if t is not None], up.float())
    twins = torch.autograd.grad(exact, [t for t in double if t is not None], up)
    for grad, twin in zip(grads, twins, strict=True):
        assert (grad - twin).norm() <= 1e-4 * twin.norm()


def test_bfloat16_errs_at_most_twice_as_much_as_the_plain_formula_in_bfloat16() -> None:
    double = case(grouped=True, base=True, queries=31, keys=31, size=16, units=2)
    low = tuple(None if t is None else t.detach().bfloat16().requires_grad_() for t in double)
    high = tuple(None if t is None else t.detach().double().requires_grad_() for t in low)
    exact = plainly(*high)  # type: ignore[arg-type]
    fast, plain = blocked_attention(*low), plainly(*low)  # type: ignore[arg-type]
    assert (fast.double() - exact).abs().max() <= 2 * (plain.double() - exact).abs().max()
    up = torch.randn_like(exact)
    grads = torch.autograd.grad(fast, low, up.bfloat16())  # type: ignore[arg-type]
    plains = torch.autograd.grad(plain, low, up.bfloat16())  # type: ignore[arg-type]
    exacts = torch.autograd.grad(exact, high, up)  # type: ignore[arg-type]
    for grad, other, truth in zip(grads, plains, exacts, strict=True):
        assert (grad.double() - truth).norm() <= 2 * (other.double() - truth).norm()


@pytest.mark.parametrize("grouped", [True, False])
def test_gradcheck_passes_with_dropout_drawn_from_one_seed(grouped: bool) -> None:
    given_case = case(grouped=grouped, base=True, batch=2, heads=2, queries=3, keys=2, size=2, units=2)

    def function(*tensors: Any) -> Tensor:
        torch.manual_seed(7)
        q, k, v, phi, gains, base = tensors
        return blocked_attention(q, k, v, phi, gains, base, dropout=0.4)

    assert torch.autograd.gradcheck(function, given_case)  # type: ignore[arg-type]


def test_dropout_keeps_the_expectation_and_is_drawn() -> None:
    given_case = case(grouped=True, base=False)
    with torch.no_grad():
        draws = torch.stack([blocked_attention(*given_case, dropout=0.3) for _ in range(4000)])
        exact = blocked_attention(*given_case)
        error = (draws.mean(0) - exact).abs() / (draws.std(0) / 4000**0.5)
    assert error.max() < 5  # standard errors


def test_it_is_deterministic() -> None:
    given_case = case(grouped=True, base=True, queries=137, keys=137, dtype=torch.float32)
    leaves = [leaf for leaf in given_case if leaf is not None]
    up = torch.randn(3, 2, 137, 4)
    first, again = (torch.autograd.grad(blocked_attention(*given_case), leaves, up) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("block", [1, 12, 40, 90, 2**17])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("plain_self", [True, False])
def test_a_primer_that_samples_share_is_that_primer_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch, block: int, grouped: bool, plain_self: bool
) -> None:
    monkeypatch.setattr(prime_kernel, "BLOCK", block)
    monkeypatch.setattr(prime_kernel, "FEWEST_ROWS", 2)
    q, k, v, phi, gains, base = case(grouped=grouped, base=not plain_self, queries=7, keys=7)
    pairs = ~torch.eye(7, dtype=torch.bool) if plain_self else None
    shared = phi[:1].detach().requires_grad_()
    leaves = [leaf for leaf in (q, k, v, shared, gains, base) if leaf is not None]

    prime = Prime(shared, gains, base, pairs).for_batch(len(q))
    weights = factored_scores(q / math.sqrt(q.shape[-1]), k, prime).softmax(-1)
    slow = factored_mix(weights, v, prime)
    given = shared if pairs is None else shared.masked_fill(~pairs, 0.0)
    fast = blocked_attention(q, k, v, given, gains, base, plain_self=plain_self)
    assert_close(fast, slow)
    up = torch.randn_like(fast)
    for grad, twin in zip(torch.autograd.grad(fast, leaves, up), torch.autograd.grad(slow, leaves, up), strict=True):
        assert_close(grad, twin, rtol=1e-10, atol=1e-10)


def test_gradcheck_passes_for_a_shared_primer_with_an_unprimed_self_pair_and_dropout() -> None:
    q, k, v, phi, gains, _ = case(grouped=True, base=False, batch=2, queries=3, keys=3, size=2, units=2)
    shared, others = phi[:1].detach().requires_grad_(), ~torch.eye(3, dtype=torch.bool)

    def seeded_attention(*tensors: Tensor) -> Tensor:
        torch.manual_seed(0)
        q, k, v, phi, gains = tensors
        return blocked_attention(q, k, v, phi * others, gains, None, 0.4, plain_self=True)

    inputs = (q, k, v, shared, gains)
    assert torch.autograd.gradcheck(seeded_attention, inputs)
    assert torch.autograd.gradgradcheck(seeded_attention, inputs)
