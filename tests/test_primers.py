"""Primers: the features are what they are called, every fast way equals the slow one, and F is what was asked for."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.errors import InputError
from primecast.models import create_model
from primecast.nn.attention import Prime, attend
from primecast.nn.pair_features import (
    correlate,
    correlate_shifted,
    cross_spectrum,
    frequency_weight,
    instantaneous,
    lead_lag,
    mean_lead_lag,
    project_lags,
    ranks,
    rolling_std,
    standardize,
)
from primecast.nn.primer import ACTIVATIONS, Overhead, Primer, build_primer, parameter_overhead
from primecast.nn.primer_layers import KINDS
from primecast.nn.swap import swap_attention
from tests.reference import lead_lag_by_sums, table_filters_by_loops

B, N, L, D, H, R = 2, 5, 17, 33, 3, 7


def windows(batch: int = B, tokens: int = N, length: int = L) -> Tensor:
    return torch.randn(batch, tokens, length, dtype=torch.float64)


def primer(kind: object = "full", **options: object) -> Primer:
    sizes: dict[str, Any] = {"length": L, "d_model": D, "n_heads": H, "tokens": N}
    return Primer(kind, **{**sizes, **options}).double()  # type: ignore[arg-type]


# ---------------------------------------------------------------- lags


@pytest.mark.parametrize("form", ["fft", "matrix"])
@pytest.mark.parametrize("length", [16, 17])
def test_lead_lag_agrees_with_the_sum_written_out(form: str, length: int) -> None:
    series = windows(length=length)
    for sample in range(B):
        expected = torch.from_numpy(lead_lag_by_sums(series[sample].numpy()))
        assert_close(lead_lag(series, form=form)[sample], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["fft", "matrix"])
@given(shift=st.integers(0, L - 1), seed=st.integers(0, 1000))
def test_lead_lag_peaks_at_the_lead_of_the_row_over_the_column(form: str, shift: int, seed: int) -> None:
    leader = standardize(torch.randn(1, 1, L, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    follower = leader.roll(shift, dims=-1)  # what the leader does now, the follower does `shift` steps later
    correlation = lead_lag(torch.cat([leader, follower], dim=1), form=form)
    assert int(correlation[0, 0, 1].argmax()) == shift
    assert int(correlation[0, 1, 0].argmax()) == -shift % L
    assert_close(correlation[0, 0, 1, shift], torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize("form", ["matrix", "pairs"])
@pytest.mark.parametrize("length", [1, 2, 3, 16, 17])
def test_projected_lags_equal_the_projection_of_all_lags_in_value_and_gradient(form: str, length: int) -> None:
    series = windows(length=length)
    weight = torch.randn(R, length, dtype=torch.float64, requires_grad=True)
    fast = project_lags(series, weight, form=form)
    slow = torch.einsum("bijt,rt->brij", lead_lag(series), weight)
    assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    up = torch.randn(B, R, N, N, dtype=torch.float64)
    (fast_grad,) = torch.autograd.grad(fast, weight, up)
    (slow_grad,) = torch.autograd.grad(slow, weight, up)
    assert_close(fast_grad, slow_grad, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- instantaneous features


def test_instantaneous_features_are_pearson_rolling_and_spearman() -> None:
    series = windows()
    series[0, 1, 3:9] = series[0, 1, 3]  # ties
    features = instantaneous(series, rolling=5).numpy()
    for sample in range(B):
        x = series[sample].numpy()
        rolled = np.stack([[x[c, t : t + 5].std() for t in range(L - 4)] for c in range(N)])
        assert_close(features[sample, :, :, 0], np.corrcoef(x), rtol=1e-9, atol=1e-9)
        assert_close(features[sample, :, :, 1], np.corrcoef(rolled), rtol=1e-7, atol=1e-7)
        assert_close(features[sample, :, :, 2], scipy.stats.spearmanr(x.T).statistic, rtol=1e-9, atol=1e-9)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=13))
def test_both_ways_to_rank_agree_with_scipy_also_for_ties(values: list[int]) -> None:
    series = torch.tensor([[values]], dtype=torch.float64)
    expected = torch.from_numpy(scipy.stats.rankdata(values))
    assert_close(ranks(series, form="sort")[0, 0], expected)
    assert_close(ranks(series, form="matrix")[0, 0], expected)


def test_rolling_std_is_the_deviation_of_each_run() -> None:
    series = windows() + 1000
    assert_close(rolling_std(series, 3), series.unfold(-1, 3, 1).std(-1, correction=0), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("level", [0.0, 0.1, -273.15, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_windows_give_zero_and_never_nan(level: float, dtype: torch.dtype) -> None:
    series = windows().to(dtype)
    series[:, 2] = level
    series[:, 3] = torch.linspace(0, 1, L)  # a ramp: its rolling deviation is constant up to rounding
    features = instantaneous(series, rolling=5)
    assert torch.isfinite(features).all()
    assert (features[:, 2] == 0).all() and (features[:, :, 2] == 0).all()
    assert (features[:, 3, :, 1] == 0).all()
    assert (lead_lag(standardize(series))[:, 2].abs() < 1e-6).all()


def test_a_rolling_window_longer_than_the_look_back_is_refused() -> None:
    for rolling in (0, 18):
        with pytest.raises(InputError, match=f"rolling {rolling} must be at least 2 and at most the look-back 17"):
            instantaneous(windows(), rolling=rolling)


def test_the_mean_over_windows_is_the_mean_of_their_lags() -> None:
    series = windows()
    assert_close(mean_lead_lag(series), lead_lag(series).mean(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [16, 17])
def test_listed_pairs_have_the_lags_and_projections_of_the_grid(length: int) -> None:
    series, weight = windows(length=length), torch.randn(R, length, dtype=torch.float64)
    leader, follower = [0, 1, 2, 2], [1, 1, 0, 1]
    spectrum = torch.fft.rfft(series)
    pairs = spectrum[:, leader], spectrum[:, follower]
    assert_close(correlate(*pairs, length) / length, lead_lag(series)[:, leader, follower], rtol=1e-10, atol=1e-12)
    projected = cross_spectrum(*pairs) @ frequency_weight(weight).mT
    expected = project_lags(series, weight)[:, :, leader, follower].mT
    assert_close(projected, expected, rtol=1e-10, atol=1e-12)


def test_padded_spectra_and_padded_shifts_give_the_same_correlation_that_is_not_circular() -> None:
    series = windows()
    spectrum = torch.fft.rfft(series, n=2 * L)
    padded = correlate(spectrum[:, :, None], spectrum[:, None], 2 * L)[..., :L] / L
    shifted = torch.nn.functional.pad(series, (0, L - 1)).unfold(-1, L, 1)  # b j t s: x_j(s + t), 0 beyond the window
    assert_close(padded, correlate_shifted(series, shifted), rtol=1e-10, atol=1e-12)


def test_an_unknown_form_is_refused_with_the_forms_allowed() -> None:
    series, weight = windows(), torch.randn(R, L, dtype=torch.float64)
    with pytest.raises(InputError, match="unknown form 'pairs'; allowed: fft, matrix"):
        lead_lag(series, form="pairs")
    with pytest.raises(InputError, match="unknown form 'auto'; allowed: matrix, pairs"):
        project_lags(series, weight, form="auto")
    for features in (ranks, instantaneous):
        with pytest.raises(InputError, match="unknown form 'fft'; allowed: matrix, sort"):
            features(series, form="fft")


# ---------------------------------------------------------------- the primer


def by_hand(module: Primer, series: Tensor) -> Tensor:
    """F for the kind `full`, pair by pair, straight from the definition."""
    normal = standardize(series)
    features = torch.cat([lead_lag(normal), instantaneous(normal)], dim=-1)  # b n n l+3
    weight = torch.cat([layer.weight for layer in module.first], dim=1)  # type: ignore[misc]
    phi = ACTIVATIONS[module.activation](features @ weight.T + module.offset)
    heads, units, size = module.gains.shape
    filters = torch.zeros(*phi.shape[:3], heads, size, dtype=phi.dtype)
    for head in range(heads):
        first = head * units if module.groups > 1 else 0
        for unit in range(units):
            filters[:, :, :, head] += phi[..., first + unit, None] * module.gains[head, unit]
    beta = module.beta()
    return filters.flatten(-2) + (0 if beta is None else beta.flatten())


@pytest.mark.parametrize("form", ["auto", "pairs", "matrix"])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("base", ["zero", "identity"])
def test_the_primer_is_the_two_layer_network_of_its_docstring(form: str, grouped: bool, base: str) -> None:
    module = primer(form=form, grouped=grouped, base=base, hidden=6)
    torch.nn.init.normal_(module.offset)
    series = windows()
    assert_close(module(series).materialize(), by_hand(module, series), rtol=1e-9, atol=1e-10)


def test_smoothing_takes_tanh_of_the_lags() -> None:
    module = primer("lead_lag", smooth=True)
    series = windows()
    pre = torch.einsum("bijt,rt->brij", lead_lag(standardize(series)).tanh(), module.first[0].weight)
    assert_close(module(series).phi.flatten(1, 2), ACTIVATIONS["gelu"](pre), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_yields_finite_primers_and_trains_all_its_parameters(kind: str) -> None:
    module = primer(kind, learn_base=True)
    q, k, v = (torch.randn(B, H, N, D // H, dtype=torch.float64) for _ in range(3))
    out = attend(q, k, v, prime=module(windows()))
    assert torch.isfinite(out).all()
    out.square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("kind", ["full", "lead_lag", "instantaneous"])
def test_primers_of_data_follow_a_permutation_of_channels(kind: str) -> None:
    module, series, order = primer(kind), windows(), torch.tensor([3, 0, 4, 1, 2])
    assert_close(module(series[:, order]).phi, module(series).phi[..., order, :][..., order])


@pytest.mark.parametrize("kind", ["full", "lead_lag", "instantaneous"])
@given(scale=st.floats(0.01, 100), shift=st.floats(-50, 50))
def test_scale_and_level_of_a_channel_do_not_matter(kind: str, scale: float, shift: float) -> None:
    module, series = primer(kind), windows()
    other = series.clone()
    other[:, 2] = other[:, 2] * scale + shift
    assert_close(module(other).phi, module(series).phi, rtol=1e-6, atol=1e-6)


def test_no_gradient_reaches_the_windows() -> None:
    series = windows().requires_grad_()
    prime = primer()(series)
    (grad,) = torch.autograd.grad(prime.phi.sum(), series, allow_unused=True)
    assert grad is None or not grad.any()


def test_identity_with_zero_gains_is_standard_attention() -> None:
    q, k, v = (torch.randn(B, H, N, D // H, dtype=torch.float64) for _ in range(3))
    prime = primer(base="identity", gain=0.0)(windows())
    assert_close(attend(q, k, v, prime=prime), attend(q, k, v), rtol=1e-12, atol=1e-12)


def test_the_scale_multiplies_the_first_layer_at_the_start() -> None:
    torch.manual_seed(5)
    plain = primer()
    torch.manual_seed(5)
    scaled = primer(scale=3.0)
    for one, other in zip(plain.first, scaled.first, strict=True):
        assert_close(3 * one.weight, other.weight)  # type: ignore[operator]
    assert_close(plain.gains, scaled.gains)


@pytest.mark.parametrize("form", ["pairs", "matrix"])
def test_pair_offsets_start_at_nothing_and_are_added_before_the_activation(form: str) -> None:
    torch.manual_seed(5)
    plain = primer(form=form)
    torch.manual_seed(5)
    free = primer(form=form, pair_offsets=True)
    series = windows()
    assert_close(free(series).phi, plain(series).phi)
    table = free.first[-1].table
    with torch.no_grad():
        table.normal_()  # type: ignore[operator]
        hidden = sum(layer(standardize(series)) for layer in plain.first)
        expected = torch.nn.functional.gelu(hidden + table).unflatten(1, (plain.groups, -1))
    assert_close(free(series).phi, expected)


@pytest.mark.parametrize("form", ["pairs", "matrix"])
def test_lags_are_added_to_what_is_there(form: str) -> None:
    series, weight = windows(), torch.randn(R, L, dtype=torch.float64)
    start = torch.randn(B, R, N, N, dtype=torch.float64)
    assert_close(project_lags(series, weight, start, form=form), start + project_lags(series, weight, form=form))


@pytest.mark.parametrize("base", ["zero", "identity"])
def test_full_sparsity_is_standard_attention(base: str) -> None:
    q, k, v = (torch.randn(B, H, N, D // H, dtype=torch.float64) for _ in range(3))
    prime = primer(sparsity=1.0, base=base)(windows())
    assert_close(attend(q, k, v, prime=prime), attend(q, k, v), rtol=1e-12, atol=1e-12)


@given(low=st.floats(0, 1), high=st.floats(0, 1), seed=st.integers(0, 99))
def test_sparsity_leaves_its_exact_share_unprimed_and_shares_are_nested(low: float, high: float, seed: int) -> None:
    low, high = sorted((low, high))
    unprimed = []
    for sparsity in (low, high):
        pairs = primer(sparsity=sparsity, seed=seed)(windows()).pairs
        unprimed.append(torch.zeros(N, N, dtype=torch.bool) if pairs is None else ~pairs)
        assert int(unprimed[-1].sum()) == round(sparsity * N * N)
    assert not (unprimed[0] & ~unprimed[1]).any()


def test_covariates_and_self_pairs_can_be_left_unprimed() -> None:
    module = primer(prime_covariates=False, prime_self=False)
    filters = module(windows(), covariates=2).materialize()
    ones = torch.ones(D, dtype=torch.float64)
    for i in range(N):
        for j in range(N):
            unprimed = i == j or i >= N - 2 or j >= N - 2
            assert torch.equal(filters[0, i, j], ones) == unprimed
    assert primer(prime_covariates=False)(windows()).pairs is None


def test_layers_share_pair_activations_and_have_their_own_gains() -> None:
    prime = primer(layers=2, base="identity", learn_base=True)(windows())
    first, second = prime.layer(0), prime.layer(1)
    assert first.phi is second.phi
    assert first.gains.shape == (H, 2, D // H) and not torch.equal(first.gains, second.gains)
    shared = primer()(windows())
    assert shared.layer(0) is shared.layer(1)


def test_permuted_pairing_permutes_activations_among_pairs() -> None:
    own, permuted = primer(pairing="own"), primer(pairing="permuted")
    permuted.load_state_dict({**own.state_dict(), "order": permuted.order})
    series = windows()
    a, b = own(series).phi, permuted(series).phi
    assert not torch.equal(a, b)
    assert_close(a.flatten(-2).sort().values, b.flatten(-2).sort().values)


def test_permuted_pairing_leaves_pairs_with_the_calendar_as_they_are() -> None:
    own, permuted = primer(pairing="own"), primer(pairing="permuted")
    permuted.load_state_dict({**own.state_dict(), "order": permuted.order})
    series, channels = windows(), N - 2
    a, b = own(series, covariates=2).phi, permuted(series, covariates=2).phi
    assert_close(a[..., channels:, :], b[..., channels:, :])
    assert_close(a[..., :, channels:], b[..., :, channels:])
    a, b = a[..., :channels, :channels].flatten(-2), b[..., :channels, :channels].flatten(-2)
    assert not torch.equal(a, b)
    assert_close(a.sort().values, b.sort().values)


def test_shared_pairing_has_one_primer_for_all_pairs() -> None:
    filters = primer(pairing="shared")(windows()).materialize()
    assert_close(filters, filters[:, :1, :1].expand_as(filters))
    assert not torch.allclose(filters[0, 0, 0], filters[1, 0, 0])


def test_key_pairing_has_one_primer_for_each_key_token() -> None:
    made, pooling = primer(), primer(pairing="key")
    pooling.load_state_dict(made.state_dict())
    series = windows()
    own, pooled = made(series), pooling(series)
    assert_close(pooled.phi, own.phi.mean(-2, keepdim=True).expand_as(own.phi))
    filters = pooled.materialize()
    assert_close(filters, filters[:, :1].expand_as(filters))
    assert not torch.allclose(filters[:, 0, 0], filters[:, 0, 1])


def test_vectors_of_pairs_are_drawn_from_the_seed_and_only_those_of_kind_table_are_learned() -> None:
    first, again, other = (primer("random", seed=s).first[0].get_buffer("table") for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert abs(float(first.mean()) - 1) < 0.1
    names = {name for name, _ in primer("random").named_parameters()}
    assert "first.0.table" not in names
    assert "first.0.table" in {name for name, _ in primer("table").named_parameters()}


@pytest.mark.parametrize(("kind", "start"), [("random", 1.0), ("table", 0.0)])
def test_the_vectors_of_pairs_pass_a_two_layer_network_around_its_base(kind: str, start: float) -> None:
    made = primer(kind)
    nn.init.normal_(made.offset)
    layer: Any
    (layer,) = made.first
    parts = (layer.table, layer.weight, made.offset, made.gains)
    expected = table_filters_by_loops(*(z.detach().numpy() for z in parts), start=start)
    filters = made(windows()).materialize()
    assert_close(filters, torch.from_numpy(expected).expand_as(filters), rtol=1e-10, atol=1e-12)


def test_a_random_primer_starts_around_standard_attention() -> None:
    torch.manual_seed(0)
    filters = Primer("random", length=L, d_model=64, n_heads=8, tokens=20)(torch.randn(1, 20, L)).materialize().detach()
    assert abs(float(filters.mean()) - 1) < 0.05 and float(filters.std()) < 0.5
    learned = primer("random", learn_base=True).base
    assert learned is not None and torch.equal(learned, torch.ones_like(learned))


def test_features_of_ones_own_make_a_primer() -> None:
    def difference_of_levels(series: Tensor) -> Tensor:
        level = series.mean(-1)
        return torch.stack([level[:, :, None] - level[:, None], level[:, :, None] * level[:, None]], dim=-1)

    module = primer(difference_of_levels, features=2, normalize=False, tokens=None)
    assert isinstance(module(windows()), Prime)
    with pytest.raises(InputError, match=r"pair features must have shape \(b, n, n, f\) = \(2, 5, 5, 3\), got"):
        primer(difference_of_levels, features=3, normalize=False)(windows())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("fulll", {}, r"unknown primer 'fulll' \(did you mean 'full'\?\); allowed: full, full\+learned, instantaneous"),
        ("full", {"activation": "swish"}, "unknown activation 'swish'"),
        ("full", {"base": "one"}, "unknown base 'one'; allowed: identity, zero"),
        ("full", {"form": "dft"}, "unknown form 'dft'"),
        ("full", {"pairing": "other"}, "unknown pairing 'other'"),
        ("full", {"hidden": 4}, "hidden 4 cannot be divided among n_heads 3"),
        ("full", {"d_model": 32}, "d_model 32 cannot be divided into n_heads 3"),
        ("full", {"n_heads": 0}, "n_heads is 0; it must be a whole number of at least 1"),
        ("full", {"rolling": 0}, "rolling 0 must be at least 2 and at most the look-back 17"),
        ("full", {"sparsity": 1.2}, "sparsity is 1.2; it must be between 0 and 1"),
        ("random", {"tokens": None}, "give tokens"),
        (lambda x: x, {}, "a callable kind needs features"),
    ],
)
def test_a_primer_that_cannot_be_made_says_why(kind: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        primer(kind, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_primer_in_half_precision_computes_its_features_in_single(kind: str, dtype: torch.dtype) -> None:
    half = primer(kind, base="identity", pair_offsets=True).to(dtype)
    exact = primer(kind, base="identity", pair_offsets=True)
    exact.load_state_dict(half.state_dict())
    series = windows().to(dtype)
    prime = half(series)
    assert_close(prime.phi.double(), exact(series.double()).phi, rtol=1e-4, atol=1e-4)
    q, k, v = (torch.randn(B, H, N, D // H, dtype=dtype) for _ in range(3))
    out = attend(q, k, v, prime=prime)
    assert out.dtype == dtype
    out.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in half.parameters())


@pytest.mark.parametrize("form", ["auto", "pairs", "matrix"])
def test_vmap_over_a_primer_is_one_call_for_each(form: str) -> None:
    module = primer(form=form)
    many = torch.randn(7, B, N, L, dtype=torch.float64)
    assert_close(torch.func.vmap(lambda series: module(series).phi)(many), torch.stack([module(s).phi for s in many]))


@pytest.mark.parametrize("options", [{}, {"form": "pairs"}, {"smooth": True}], ids=str)
def test_no_windows_have_no_primers(options: dict[str, object]) -> None:
    assert primer(**options)(windows(batch=0)).phi.shape == (0, H, 2, N, N)


def test_the_base_survives_the_way_from_the_meta_device() -> None:
    saved = primer(base="identity")
    with torch.device("meta"):
        fresh = primer(base="identity")
    fresh = fresh.to_empty(device="cpu")
    fresh.load_state_dict(saved.state_dict())
    series = windows()
    assert_close(fresh(series).materialize(), saved(series).materialize())
    assert "base" not in saved.state_dict()
    assert "base" in primer(learn_base=True).state_dict()


def test_windows_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="look-back of 17 steps, the windows have 13"):
        primer()(windows(length=13))
    with pytest.raises(InputError, match="made for 5 tokens, the windows have 7"):
        primer("random")(windows(tokens=7))


def test_build_primer_takes_a_kind_a_mapping_a_primer_or_nothing() -> None:
    sizes: dict[str, Any] = {"length": L, "d_model": D, "n_heads": H, "tokens": N, "layers": 2}
    ready = primer()
    assert build_primer(None, **sizes) is None
    assert build_primer(ready, **sizes) is ready
    made = build_primer({"kind": "random", "sparsity": 0.5, "layers": True}, **sizes)
    assert made is not None and made.tokens == N and made.gains.shape[0] == 2
    full = build_primer("full", **sizes)
    assert full is not None and full.tokens is None
    with pytest.raises(InputError, match=r"unknown primer argument 'hiden' \(did you mean 'hidden'\?\)"):
        build_primer({"hiden": 3}, **sizes)


def test_overhead_counts_the_primer_against_model_and_attention() -> None:
    sizes: dict[str, Any] = {"lookback": 96, "horizon": 96, "channels": 7, "d_model": 256}
    plain, primed = (create_model("itransformer", **sizes, primer=primer) for primer in (None, "full"))
    # 16 units: 96 lags + 3 features + offset in, and for each head 2 units x 32 gains out
    expected = 16 * (96 + 3 + 1) + 8 * 2 * 32
    assert parameter_overhead(primed) == Overhead(primer=expected, attention=526_336, model=841_568)
    assert parameter_overhead(primed).of_model == expected / 841_568
    assert parameter_overhead(primed).of_attention == expected / 526_336
    assert parameter_overhead(plain).primer == 0
    assert parameter_overhead(torch.nn.Linear(2, 3)).of_attention == 0


def test_overhead_counts_attention_on_edges_and_swapped_attention() -> None:
    gat = create_model("gat", lookback=17, horizon=13, channels=7, d_model=12, n_heads=3, primer="full")
    own = sum(p.numel() for block in gat.blocks for p in block.attention.parameters())  # type: ignore[union-attr]
    assert parameter_overhead(gat).attention == own > 0

    foreign = torch.nn.MultiheadAttention(12, 3)
    before = sum(p.numel() for p in foreign.parameters())
    swap_attention(foreign, length=17)
    added = sum(p.numel() for p in foreign.parameters()) - before
    assert parameter_overhead(foreign) == Overhead(primer=added, attention=before, model=before)


@pytest.mark.parametrize("kind", ["learned", "full+learned"])
def test_a_learned_primer_reads_both_embeddings_of_a_pair_and_their_product(kind: str) -> None:
    torch.manual_seed(0)
    made = primer(kind).double()
    embedded = made.first[-1]
    query, key, weight = (embedded.get_parameter(name) for name in ("query", "key", "weight"))
    series = windows().double()
    pairs = [[torch.cat([a, b, a * b]) for b in key] for a in query]
    features = torch.stack([torch.stack(row) for row in pairs])  # n n f, as the fast form never builds it
    hidden = (features @ weight.T).movedim(-1, 0) + made.offset[:, None, None]
    for layer in made.first[:-1]:
        hidden = hidden + layer(standardize(series))
    phi = torch.nn.functional.gelu(hidden).expand(len(series), -1, -1, -1).unflatten(1, (made.groups, -1))
    assert_close(made(series).for_batch(len(series)).phi, phi)
    assert len(made(series).phi) == (1 if kind == "learned" else len(series))


@pytest.mark.parametrize("prime_self", [True, False])
def test_attention_with_a_shared_primer_is_that_with_its_filters_built(prime_self: bool) -> None:
    torch.manual_seed(0)
    prime = primer("learned", prime_self=prime_self).double()(windows().double())
    heads, _, size = prime.gains.shape
    q, k, v = (torch.randn(len(windows()), heads, prime.phi.shape[-1], size, dtype=torch.float64) for _ in range(3))
    assert_close(attend(q, k, v, prime=prime), attend(q, k, v, prime=prime.for_batch(len(q)).materialize()))
    assert_close(attend(q, k, v, prime=prime), attend(q, k, v, prime=prime.materialize()))
