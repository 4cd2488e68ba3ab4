"""What is no tensor of an attention is refused in one sentence that names the argument, what it is and what it must be.

Letters: b batch, h heads, i query token, j key token, k head size, m hidden units, d = h k, l look-back.
"""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from primecast import MultiHeadAttention, Primer, attend
from primecast.errors import InputError
from primecast.nn.attention import Prime, attention_weights
from primecast.nn.mechanisms import MECHANISMS

B, H, Q, J, K, M, LENGTH = 2, 3, 5, 7, 4, 6, 11
D = H * K
MASK, FLOATS = torch.ones(1, 1, Q, J, dtype=torch.bool), torch.zeros(1, 1, Q, J)


@pytest.fixture(autouse=True)
def _no_checks_of_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have none


def given(**others: Any) -> dict[str, Any]:
    return {"q": torch.randn(B, H, Q, K), "k": torch.randn(B, H, J, K), "v": torch.randn(B, H, J, K)} | others


def prime(**others: Any) -> Prime:
    phi, gains, base = torch.randn(B, H, M, Q, J), torch.randn(H, M, K), torch.randn(H, K)
    return replace(Prime(phi, gains, base), **others)


REFUSED = [
    ({"q": 3}, r"q is 3; it must be a tensor of shape \(b, h, i, k\)"),
    ({"q": torch.zeros(B, Q, D)}, r"q has shape \(2, 5, 12\); it must be \(b, h, i, k\)"),
    ({"q": torch.zeros(B, H, Q, K, dtype=torch.int64)}, "q is of torch.int64; it must be of a floating-point type"),
    ({"q": torch.zeros(B, H, Q, K).to_sparse()}, "q is of layout torch.sparse_coo; it must be a dense tensor"),
    ({"q": torch.zeros(B, H, Q, 0)}, r"q has shape \(2, 3, 5, 0\); it must have at least one head"),
    (
        {"k": torch.zeros(B, H, J, 8)},
        r"k has shape \(2, 3, 7, 8\); with q of shape \(2, 3, 5, 4\) it must be \(b, h, j",
    ),
    ({"k": torch.zeros(1, H, J, K)}, r"k has shape \(1, 3, 7, 4\); with q of shape"),
    ({"k": torch.zeros(B, H, J, K).double()}, "k is of torch.float64; it must be of torch.float32, as what it meets"),
    ({"k": torch.zeros(B, H, J, K, device="meta")}, "k is on meta; it must be on cpu"),
    ({"v": [1, 2]}, r"v is \[1, 2\]; it must be a tensor of shape \(b, h, j, k\)"),
    ({"v": torch.zeros(B, H, 2, K)}, r"v has shape \(2, 3, 2, 4\); it must be that of k, \(2, 3, 7, 4\)"),
    ({"mask": MASK[..., :6]}, r"mask has shape \(1, 1, 5, 6\); it must be \(b, h, i, j\) = \(2, 3, 5, 7\)"),
    ({"mask": MASK.to("meta")}, "mask is on meta; it must be on cpu, as q is"),
    ({"bias": "x"}, "bias is 'x'; it must be a tensor"),
    ({"bias": FLOATS[None]}, r"bias has shape \(1, 1, 1, 5, 7\); it must be \(b, h, i, j\)"),
    ({"bias": MASK}, "bias is of torch.bool; it must be of a floating-point type"),
    ({"position": 3}, "position is 3; it must be a function of queries and of keys, or None"),
    ({"position": lambda x: None}, "what position returned is None; it must be a tensor"),
    ({"position": lambda x: x[..., :1]}, r"position returned shape \(2, 3, 5, 1\); it must keep \(2, 3, 5, 4\)"),
    ({"position": lambda x: x.double()}, "what position returned is of torch.float64; it must be of torch.float32"),
]


@pytest.mark.parametrize("primed", [False, True])
@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_is_no_argument_of_an_attention_is_refused(change: dict[str, Any], message: str, primed: bool) -> None:
    options = {"prime": prime() if primed else None}
    with pytest.raises(InputError, match=message):
        attend(**given(**options, **change))
    if "v" not in change:
        with pytest.raises(InputError, match=message):
            attention_weights(**{name: x for name, x in given(**options, **change).items() if name != "v"})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"phi": "x"}, "the primer's phi is 'x'; it must be a tensor"),
        ({"phi": torch.zeros(B, H, M, Q, J, device="meta")}, "the primer's phi is on meta; it must be on cpu"),
        ({"phi": torch.zeros(B, 2, M, Q, J)}, "the primer's phi has hidden units for 2 heads, it must be 1 or 3"),
        ({"gains": torch.zeros(H, M)}, r"the primer's gains has shape \(3, 6\), it must be \(h, m, k\)"),
        ({"gains": None}, "the primer's gains is None; it must be a tensor"),
        ({"base": 1.0}, "the primer's base is 1.0; it must be a tensor"),
        ({"pairs": torch.ones(Q, J)}, "the primer's pairs are of torch.float32; they must be of torch.bool"),
        ({"pairs": [True]}, r"the primer's pairs are of \[True\]; they must be of torch.bool"),
    ],
)
def test_what_is_no_part_of_a_primer_is_refused(part: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        attend(**given(), prime=prime(**part))


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (torch.zeros(B, Q, J, D, dtype=torch.complex64), "the primer F is of torch.complex64; it must be of a float"),
        (torch.zeros(B, Q, J, D, device="meta"), "the primer F is on meta; it must be on cpu, as q is"),
    ],
)
def test_what_is_no_materialized_primer_is_refused(filters: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        attend(**given(), prime=filters)


def test_a_base_and_a_bias_of_another_precision_are_used() -> None:
    exact = prime(base=prime().base.double())  # type: ignore[union-attr]
    for modulate in ("k", "v", "kv"):
        expected = attend(**(options := given()), prime=replace(exact, base=exact.base.float()), modulate=modulate)  # type: ignore[union-attr]
        torch.testing.assert_close(attend(**options, prime=exact, modulate=modulate), expected)
    bias = torch.randn(B, H, Q, J)
    for other in (torch.bfloat16, torch.float64):
        expected = attend(**(options := given()), bias=bias.to(other).float())
        torch.testing.assert_close(attend(**options, bias=bias.to(other)), expected)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_module_refuses_what_are_no_tokens(name: str) -> None:
    module, x = MultiHeadAttention(12, 4, mechanism=name), torch.randn(B, Q, 12)
    for wrong, message in (
        ("x", r"x is 'x'; it must be a tensor of shape \(b, n, d\)"),
        (x[0], r"x has shape \(5, 12\); it must be \(b, n, d\)"),
        (x[..., :8], r"x has shape \(2, 5, 8\); its width must be d_model, 12"),
        (x.double(), "x is of torch.float64; it must be of torch.float32"),
        (x.to("meta"), "x is on meta; it must be on cpu"),
    ):
        with pytest.raises(InputError, match=message):
            module(wrong)
        with pytest.raises(InputError, match=message.replace("x ", "memory ", 1)):
            module(x, wrong)
    with pytest.raises(InputError, match=r"memory has shape \(1, 5, 12\); it must have the batch of x, 2"):
        module(x, x[:1])
    with pytest.raises(InputError, match=r"bias has shape \(2, 2\); it must be \(b, h, i, j\) = \(2, 4, 5, 5\)"):
        module(x, bias=torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("series", "covariates", "message"),
    [
        (5, 0, r"series is 5; it must be a tensor of shape \(b, n, 11\)"),
        (torch.zeros(Q, LENGTH), 0, r"series has shape \(5, 11\); it must be a tensor of shape \(b, n, 11\)"),
        (
            torch.zeros(B, Q, LENGTH, dtype=torch.complex64),
            0,
            "series is of torch.complex64 on cpu; it must be real nu",
        ),
        (torch.zeros(B, Q, LENGTH).to_sparse(), 0, "series is of layout torch.sparse_coo; it must be a dense tensor"),
        (torch.zeros(B, Q, LENGTH, device="meta"), 0, "on meta; it must be real numbers on cpu"),
        (torch.zeros(B, Q, LENGTH), 6, "covariates is 6; it must be a number of tokens from 0 to 5"),
        (torch.zeros(B, Q, LENGTH), -1, "covariates is -1; it must be a number of tokens from 0 to 5"),
        (torch.zeros(B, Q, LENGTH), "one", "covariates is 'one'; it must be a number of tokens from 0 to 5"),
    ],
)
def test_a_primer_refuses_what_are_no_windows(series: Any, covariates: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Primer("full", length=LENGTH, d_model=D, n_heads=H)(series, covariates=covariates)


def test_a_forecaster_is_checked_without_torch_compiler() -> None:
    """Its import takes 2 s; arithmetic on the meta device, where settings are tried out, may need it."""
    code = "import sys; from primecast import Forecaster; Forecaster(horizon=3); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
