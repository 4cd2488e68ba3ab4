"""Synthetic recovery: do attention maps and primers find the pairs that are truly related in a synthetic system?

Letters: b windows, l look-back, h heads, n channels, m and r hidden units of a primer, t lags; i query, j key token.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn

from primecast.analysis.hooks import filter_strength, layers_of
from primecast.analysis.maps import BATCH, five_digits, mean_maps
from primecast.data.synthetic import system
from primecast.data.windows import Batch, Dataset, Splits, Windows, evenly_spaced
from primecast.nn.pair_features import lead_lag, standardize
from primecast.nn.primer import ACTIVATIONS, Primer
from primecast.nn.primer_layers import LeadLag, PairOffsets

RELATION_WINDOWS = 512
OUTLYING = 3.0
"""A pair is reported as related when its score is so many robust standard deviations above the median of all pairs."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What one source estimates for all pairs: a score of being related, and a lead; lead[i, j] > 0: i leads j.

    steps: whether the lead is in steps; else it is only a sign.
    """

    score: Float64[np.ndarray, "n n"]
    lead: Float64[np.ndarray, "n n"] | None
    steps: bool


def synthetic_recovery(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Probe: compare what attention, primer and plain cross-correlation find with the truth of a synthetic system.

    Every source is averaged over the same windows first:

        correlation   score: largest |R_ij(t)| over lags t; lead: the lag of that maximum
        attention     score: a_ij + a_ji, mean over layers and heads; lead: only its sign, towards the more attended
        primer        score: |F_ij - mean F| in both directions; lead: the lag with the largest part in F_ij,
                      R_ij(t) dF_ij/dR_ij(t)
        untrained     the same for that primer with new random weights: it sees the correlations but learned nothing

    All are scored alike, see `score_estimate`. `related_share`, the fraction of related pairs, is the average precision
    of a random ranking.
    """
    truth = system(dataset.name).truth
    windows = splits.test
    channels = windows.channels
    attention = mean_maps(model, windows, most=RELATION_WINDOWS).attention.mean(0).numpy()[:channels, :channels]
    estimates = {
        "correlation": _from_correlation(windows),
        "attention": Estimate(attention + attention.T, np.sign(attention.T - attention), steps=False),
    }
    primer = next((module for module in model.modules() if isinstance(module, Primer)), None)
    if primer is not None:
        estimates["primer"] = _from_primer(primer, windows)
        estimates["untrained"] = _from_primer(untrained(primer), windows)

    related = np.array([[kind != "none" for kind in row] for row in truth.kind])
    pairs = np.triu_indices(channels, 1)
    row: dict[str, Any] = {"related_share": float(related[pairs].mean()), "related_pairs": int(related[pairs].sum())}
    for source, estimate in estimates.items():
        scores = score_estimate(estimate, related, truth.lead)
        row |= {f"{source}_{name}": value for name, value in scores.items()}
        row[f"{source}_score"] = five_digits(estimate.score)
    row["channels"] = list(dataset.names)
    row["related"] = related.astype(int).tolist()
    return row


def _batches(windows: Windows) -> Iterator[Batch]:
    for index in evenly_spaced(len(windows), RELATION_WINDOWS).split(BATCH):
        yield windows.batch(index)


def _from_correlation(windows: Windows) -> Estimate:
    total = reduce(torch.add, (lead_lag(standardize(batch.x.mT)).double().sum(0) for batch in _batches(windows)))
    profile = (total / min(RELATION_WINDOWS, len(windows))).abs().numpy()
    return Estimate(profile.max(-1), _signed(profile.argmax(-1), windows.lookback), steps=True)


@torch.no_grad()
def _from_primer(primer: Primer, windows: Windows) -> Estimate:
    primes = [primer(standardize(batch.x.mT)) for batch in _batches(windows)]
    mean = replace(primes[0], phi=torch.cat([prime.phi for prime in primes]).mean(0, keepdim=True))
    score = torch.stack([filter_strength(layer, centered=True)[0] for layer in layers_of(mean)]).sum(0).double().numpy()
    lags = next((layer for layer in primer.first if isinstance(layer, LeadLag)), None)
    if lags is None or primer.pairing != "own":  # it has no lag features, or not those of its own pairs
        return Estimate(score + score.T, None, steps=True)
    profile = lag_profile(primer, lags, (batch.x.mT for batch in _batches(windows))).numpy()
    both = profile + profile[..., -np.arange(windows.lookback)].swapaxes(0, 1)  # R_ji(t) = R_ij(-t)
    return Estimate(score + score.T, _signed(both.argmax(-1), windows.lookback), steps=True)


def untrained(primer: Primer) -> Primer:
    """Return a copy of the primer with its weights initialized anew (see Primer), always from the same seed."""
    fresh, generator = copy.deepcopy(primer), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in fresh.first:
            if isinstance(layer, PairOffsets):
                layer.table.zero_()
            elif isinstance(layer.weight, Tensor):
                layer.weight.normal_(0, layer.weight.shape[1] ** -0.5, generator=generator)
        fresh.offset.zero_()
        fresh.gains.normal_(generator=generator)
    return fresh


def _signed(lag: Int64[np.ndarray, "n n"], length: int) -> Float64[np.ndarray, "n n"]:
    """Convert circular lags: those beyond half the look-back are negative."""
    return np.where(lag <= length // 2, lag, lag - length).astype(np.float64)


def lag_profile(primer: Primer, lags: LeadLag, series: Iterator[Float[Tensor, "b n l"]]) -> Float64[Tensor, "n n l"]:
    """Return how much of F_ij is due to each lag t, to first order: |mean over windows of R_ij(t) dF_ij/dR_ij(t)|.

    dF_ij/dR_ij(t) = sum_m act'(h_m) w_m(t) u_m; its norm over the d entries needs only the products u_m . u_m'.
    """
    total, count = torch.zeros(()), 0
    for window in series:
        normal = standardize(window) if primer.normalize else window
        with torch.enable_grad():
            hidden = sum((layer(normal) for layer in primer.first), start=primer.offset[:, None, None])
            hidden = hidden.detach().expand(len(normal), -1, -1, -1).requires_grad_()
            (slope,) = torch.autograd.grad(ACTIVATIONS[primer.activation](hidden).sum(), hidden)
        correlation = lead_lag(normal)
        if lags.smooth:  # the first layer reads tanh of R
            correlation = correlation * (1 - correlation.tanh().square())
        total = total + torch.einsum("bijt,brij->rijt", correlation.double(), slope.double())
        count += len(normal)
    part = (total / count) * lags.weight.detach().double()[:, None, None]
    part = part.unflatten(0, (primer.groups, -1))  # g m i j t
    gains = primer.gains.detach().double()
    gram = gains @ gains.mT
    gram = gram if gram.ndim == 3 else gram.sum(0)
    if primer.groups == 1:
        gram = gram.sum(0, keepdim=True)
    square = (part * torch.einsum("hmo,hoijt->hmijt", gram, part)).sum((0, 1))
    return square.clamp(min=0).sqrt()


def score_estimate(
    estimate: Estimate, related: Bool[np.ndarray, "n n"], lead: Int64[np.ndarray, "n n"]
) -> dict[str, float | None]:
    """Score how well an estimate finds the related pairs and their leads.

    average_precision: of the ranking of unordered pairs by score.
    precision, recall: of the pairs whose score is outlying (see OUTLYING); their number is not given.
    top_precision:     precision of the k pairs with the highest scores, where k is the number of related pairs.
    direction:         fraction of the truly lagged pairs whose leader is right.
    lag_error, lag_exact: of those pairs, the mean error in steps and the fraction without error; None without lags.
    """
    pairs = np.triu_indices(len(related), 1)
    score, true = estimate.score[pairs], related[pairs]
    median = np.median(score)
    found = score > median + OUTLYING * 1.4826 * np.median(np.abs(score - median))
    hits = int((found & true).sum())
    top = np.argsort(-score, kind="stable")[: true.sum()]
    row: dict[str, float | None] = {
        "average_precision": average_precision(score, true),
        "precision": hits / int(found.sum()) if found.any() else 0.0,
        "recall": hits / int(true.sum()),
        "top_precision": float(true[top].mean()),
        "direction": None,
        "lag_error": None,
        "lag_exact": None,
    }
    if estimate.lead is not None:
        estimated, right = estimate.lead[pairs], lead[pairs]
        lagged = right != 0
        row["direction"] = float((np.sign(estimated) == np.sign(right))[lagged].mean())
        if estimate.steps:
            row["lag_error"] = float(np.abs(estimated - right)[lagged].mean())
            row["lag_exact"] = float((estimated == right)[lagged].mean())
    return row


def average_precision(score: Float64[np.ndarray, "p"], true: Bool[np.ndarray, "p"]) -> float:
    """Return the mean, over the true items, of the fraction of true ones among all that score at least as high.

    Items with equal scores count together, so their order does not matter.
    """
    at_least = score[None, :] >= score[:, None]
    precision = (at_least & true).sum(1) / at_least.sum(1)
    return float(precision[true].mean())
