"""Dropout by sixteen bits an entry: right share, right mean, fresh draws, and nothing where nothing is asked for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primecast.errors import InputError
from primecast.nn.dropout import Dropout, drop, keep_factor, random_bits

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.8])
def test_the_share_that_is_dropped_is_the_rate_within_four_standard_errors(rate: float) -> None:
    torch.manual_seed(3)
    kept = drop(torch.ones(1009, 997), rate) > 0
    assert abs(float(kept.double().mean()) - (1 - rate)) < 4 * math.sqrt(rate * (1 - rate) / kept.numel()) + 2**-17


@given(rate=st.floats(0, 0.999))
def test_what_is_kept_is_scaled_so_that_the_mean_stays(rate: float) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16)  # each value of the bits once
    assert math.isclose(float(keep_factor(every, rate, torch.float64).mean()), 1, rel_tol=1e-12)


def test_all_four_numbers_of_a_draw_are_uniform_and_unrelated() -> None:
    torch.manual_seed(5)
    numbers = random_bits(40009, 4, device=CPU).double()
    assert (numbers.mean(0).abs() < 5 * 2**16 / math.sqrt(12 * 40009)).all()
    assert ((numbers.std(0) * math.sqrt(12) / 2**16 - 1).abs() < 0.02).all()
    assert ((torch.corrcoef(numbers.T) - torch.eye(4)).abs() < 0.03).all()


def test_draws_follow_the_seed_and_differ_from_one_another() -> None:
    torch.manual_seed(7)
    first, second = random_bits(5, 3, device=CPU), random_bits(5, 3, device=CPU)
    torch.manual_seed(7)
    assert torch.equal(first, random_bits(5, 3, device=CPU))
    assert not torch.equal(first, second)


def test_without_a_rate_nothing_is_drawn() -> None:
    x = torch.randn(3, 5)
    state = torch.random.get_rng_state()
    assert drop(x, 0.0) is x
    assert torch.equal(state, torch.random.get_rng_state())


def test_everything_can_be_dropped() -> None:
    assert torch.equal(drop(torch.ones(7), 1.0), torch.zeros(7))


def test_the_module_drops_in_training_only_and_gradients_pass_where_it_keeps() -> None:
    module, x = Dropout(0.5), torch.ones(1009, requires_grad=True)
    y = module(x)
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, y.detach())
    module.eval()
    assert module(x) is x


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_a_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match=f"dropout is {rate}; it must be between 0 and 1"):
        Dropout(rate)
