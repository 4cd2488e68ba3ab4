"""Probes: what a trained model is asked once its test score is known.

    maps              who looks at whom, how strongly each pair is primed, and how much hangs on one channel
    loss_of_channel   what the error of the others grows to when a channel falls silent
    example_forecasts forecast, truth and look-back of some test windows
    relations         do maps and primers find the pairs that are truly related; synthetic systems only
    cost              time of a training step and of a forecast, and memory kept for the backward pass

A probe gets the model, the splits and the data set, and returns a flat dict: numbers, texts and lists, which go into
the row of the run (what a table or figure is made of must be there), and float32 arrays, which lie beside it. It
changes neither the model nor anybody's random state. Windows that follow each other share all but one row, so where not
all are needed evenly spaced ones are taken.

Letters: b windows, l look-back, h heads (horizon in forecasts), n channels, t tokens (channels, then calendar features);
i asking and j answering token, m hidden units of a primer, k head size, e layers.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor, nn

from primecast.analysis.hooks import Evenness, errors_without, evenness, filter_strength, layers_of, trace_attention
from primecast.data.synthetic import system
from primecast.data.windows import Batch, Dataset, Splits, Windows
from primecast.errors import InputError
from primecast.nn.attention import Prime
from primecast.nn.mechanisms import AttentionMap
from primecast.nn.pair_features import lead_lag, standardize
from primecast.nn.primer import ACTIVATIONS, LeadLag, PairOffsets, Primer

CALENDAR = ("hour of day", "day of week", "day of month", "day of year")
"""The calendar tokens, in the order of `calendar_features`."""

BATCH = 32
"""Windows that go through the model together: the batch size of the presets, known to fit into memory."""


def _evenly(windows: Windows, most: int) -> Int64[Tensor, "w"]:
    """Numbers of at most so many windows, evenly spaced from the first on."""
    count = min(most, len(windows))
    return torch.arange(count) * len(windows) // count


def _listed(values: Float[np.ndarray, "..."]) -> Any:
    """An array as lists of numbers with five digits, to be written as JSON."""
    return np.vectorize(lambda value: float(f"{value:.5g}"), otypes=[float])(values).tolist()


def _batches(windows: Windows, index: Int64[Tensor, "w"]) -> Iterator[Batch]:
    for part in index.split(BATCH):
        yield windows.batch(part)


# ---------------------------------------------------------------- maps

MAP_WINDOWS = 1024
WIDEST = 64


@dataclass(frozen=True, eq=False)
class Look:
    """What passed through a model's attention and primers, averaged over windows."""

    attention: Float64[Tensor, "e t t"]  # mean over heads, too
    strength: Float64[Tensor, "p t t"] | None  # p: layers whose gains differ, else 1
    distinct: Float64[Tensor, "p t t"] | None


def look(model: nn.Module, windows: Windows, *, most: int) -> Look:
    """Watch the attention maps and the primer of a model while it forecasts at most so many windows, evenly spaced."""
    if not any(isinstance(module, AttentionMap) for module in model.modules()):
        raise InputError(f"{type(model).__name__} has no attention map to look at; itransformer has")
    index = _evenly(windows, most)
    maps: list[Tensor] = []
    sums: list[Tensor] = []
    for seen in trace_attention(model, _batches(windows, index)):
        maps.append(torch.stack([one.sum(0) for one in seen.maps]))
        if seen.primes:
            parts = [_strengths(seen.primes[0]), _strengths(seen.primes[0], centred=True)]
            sums = [total + part for total, part in zip(sums, parts, strict=True)] if sums else parts
    attention = torch.stack(maps).sum(0) / len(index)
    tokens = windows.channels + windows.n_time_features
    if attention.shape[1:] != (tokens, tokens):
        raise InputError(
            f"{type(model).__name__} attends over {attention.shape[2]} tokens, but there are {windows.channels} "
            f"channels and {windows.n_time_features} calendar features: its maps are not maps of channels"
        )
    strengths, distinct = (total / len(index) for total in sums) if sums else (None, None)
    return Look(attention, strengths, distinct)


def _strengths(prime: Prime, *, centred: bool = False) -> Float64[Tensor, "p t t"]:
    """Summed over windows, for each layer that has gains of its own."""
    return torch.stack([filter_strength(layer, centred=centred).double().sum(0) for layer in layers_of(prime)])


def maps(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Mean attention maps of every layer, strength of the primer for every pair, and the concentration indices.

    The indices are means over layers; those of each layer follow as lists. `strength` is |F_ij| / sqrt(d), `distinct`
    the same of F_ij minus the mean F of the window: the row has their means over pairs of channels. The mean map of all
    layers is in the row, too, except for data so wide that nobody could read the picture (more than WIDEST tokens).
    """
    seen = look(model, splits.test, most=MAP_WINDOWS)
    attention = seen.attention.numpy()
    channels = splits.test.channels
    layers = [_told(evenness(layer[:channels])) for layer in attention]
    row: dict[str, Any] = {name: float(np.mean([layer[name] for layer in layers])) for name in layers[0]}
    row |= {f"{name}_by_layer": [layer[name] for layer in layers] for name in layers[0]}
    received = attention[:, :channels, :channels].mean(0).sum(0)
    row["top_channel"] = dataset.names[int(received.argmax())]
    row["tokens"] = [*dataset.names, *CALENDAR[: splits.test.n_time_features]]
    row["channel_count"] = channels
    row["map_windows"] = len(_evenly(splits.test, MAP_WINDOWS))
    if attention.shape[-1] <= WIDEST:
        row["map"] = _listed(attention.mean(0))
    row["map_layers"] = attention.astype(np.float32)
    for name, values in (("strength", seen.strength), ("distinct", seen.distinct)):
        if values is not None:
            row[f"{name}_mean"] = float(values[:, :channels, :channels].mean())
            row[f"{name}_layers"] = values.numpy().astype(np.float32)
    return row


def _told(found: Evenness) -> dict[str, float]:
    return {
        "top_share": found.share,
        "entropy": found.entropy,
        "diagonal": found.diagonal,
        "calendar": found.calendar,
    }


# ---------------------------------------------------------------- a channel falls silent

LOSS_WINDOWS, LOSS_FORECASTS = 256, 2**13
"""At most so many windows, and for wide data so few that about so many windows go through the model in all."""


def loss_of_channel(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Hold each channel at its training mean in the look-back; how much does the error of the others grow?

    growth[c, j]: relative growth of the MSE of channel j when c is held; the diagonal is c's own forecast, and counts
    in none of the numbers below. The harm of c is the growth of the mean MSE of all others.
    """
    windows, channels = splits.test, splits.test.channels
    index = _evenly(windows, min(LOSS_WINDOWS, max(BATCH, LOSS_FORECASTS // channels)))
    errors = errors_without(model, _batches(windows, index), channels=channels, targets=channels)
    errors = errors / (len(index) * windows.horizon)
    growth = (errors[:-1] / errors[-1] - 1).numpy()
    others = ~torch.eye(channels, dtype=torch.bool)
    harm = ((errors[:-1] * others).sum(1) / (errors[-1] * others).sum(1) - 1).numpy()
    felt = harm.clip(min=0)
    pairs = np.where(others.numpy(), growth, -np.inf)
    silent, hurt = divmod(int(pairs.argmax()), channels)
    return {
        "harm_max": float(harm.max()),
        "harm_mean": float(harm.mean()),
        "harm_share": float(felt.max() / felt.sum()) if felt.sum() > 0 else 0.0,
        "harm_channel": dataset.names[int(harm.argmax())],
        "pair_growth_max": float(pairs.max()),
        "pair_growth_of": [dataset.names[silent], dataset.names[hurt]],
        "loss_windows": len(index),
        "loss_mse": float(errors[-1].mean()),
        "channels": list(dataset.names),
        "harm": _listed(harm),
        **({"growth": _listed(growth)} if channels <= WIDEST else {}),
        "growth_of_pairs": growth.astype(np.float32),
    }


# ---------------------------------------------------------------- forecasts to look at

EXAMPLES = 3


def example_forecasts(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Look-back, truth and forecast, in the data's own units, of three test windows and up to three channels.

    Windows are drawn with a fixed seed. Channels: the first, and those that repeating the last value forecasts worst
    and best, so that two models show the same ones. example_mse is in scaled units, as all scores.
    """
    windows = splits.test
    generator = torch.Generator().manual_seed(0)
    index = torch.randperm(len(windows), generator=generator)[:EXAMPLES].sort().values
    naive = sum(
        (batch.y - batch.x[:, -1:]).double().square().sum((0, 1))
        for batch in _batches(windows, _evenly(windows, MAP_WINDOWS))
    )
    assert isinstance(naive, Tensor)
    chosen = list(dict.fromkeys([0, int(naive.argmax()), int(naive.argmin())]))
    x, y, time_features = windows.batch(index)
    with torch.inference_mode():
        forecast = model(x, time_features)

    def original(values: Float32[Tensor, "b s n"]) -> Any:
        return _listed(splits.scaler.inverse(values.double().numpy())[:, :, chosen])

    starts = (index + windows.start + windows.lookback).tolist()
    return {
        "example_rows": starts,
        "example_stamps": [] if dataset.index is None else [str(dataset.index[row]) for row in starts],
        "example_channels": [dataset.names[channel] for channel in chosen],
        "example_mse": (forecast - y).double().square().mean(1)[:, chosen].tolist(),
        "past": original(x),
        "truth": original(y),
        "forecast": original(forecast),
    }


# ---------------------------------------------------------------- relations that are known

RELATION_WINDOWS = 512
SPREADS = 3.0
"""A pair is said to be related when its score lies so many robust standard deviations above the median of all pairs."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What one source says of all pairs; lead[i, j] > 0: i leads j. `steps`: whether lead is in steps, or a sign."""

    score: Float64[np.ndarray, "n n"]
    lead: Float64[np.ndarray, "n n"] | None
    steps: bool


def relations(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """What maps and primer say of the pairs of a synthetic system, beside plain cross-correlation, against the truth.

    Every source is averaged over the same windows first, and then read:

        correlation   largest |R_ij(t)| over lags; the lag where it lies
        attention     a_ij + a_ji, mean over layers and heads; whoever is asked more leads. No lags
        primer        |F_ij - mean F| both ways; the lag whose part in F_ij is largest, R_ij(t) dF_ij/dR_ij(t)
        untrained     the same of that primer with its weights drawn anew: it sees the correlations, and learned nothing

    All are scored alike, see `score_reading`. `related_share` is the average precision of a ranking by chance.
    """
    truth = system(dataset.name).truth
    windows = splits.test
    seen = look(model, windows, most=RELATION_WINDOWS)
    channels = windows.channels
    readings = {
        "correlation": _read_correlation(windows),
        "attention": _read_attention(seen.attention.mean(0).numpy()[:channels, :channels]),
    }
    primer = next((module for module in model.modules() if isinstance(module, Primer)), None)
    if primer is not None:
        readings["primer"] = _read_primer(primer, windows)
        readings["untrained"] = _read_primer(untrained(primer), windows)

    related = np.array([[kind != "none" for kind in row] for row in truth.kind])
    pairs = np.triu_indices(channels, 1)
    row: dict[str, Any] = {"related_share": float(related[pairs].mean()), "related_pairs": int(related[pairs].sum())}
    for source, reading in readings.items():
        scores = score_reading(reading, related, truth.lead)
        row |= {f"{source}_{name}": value for name, value in scores.items()}
        row[f"{source}_score"] = _listed(reading.score)
    row["channels"] = list(dataset.names)
    row["related"] = related.astype(int).tolist()
    return row


def _read_correlation(windows: Windows) -> Reading:
    total = sum(lead_lag(standardize(batch.x.mT)).double().sum(0) for batch in _chosen(windows))
    assert isinstance(total, Tensor)
    profile = (total / len(_evenly(windows, RELATION_WINDOWS))).abs().numpy()
    return Reading(profile.max(-1), _signed(profile.argmax(-1), windows.lookback), steps=True)


def _read_attention(weights: Float64[np.ndarray, "n n"]) -> Reading:
    return Reading(weights + weights.T, np.sign(weights.T - weights), steps=False)


@torch.no_grad()
def _read_primer(primer: Primer, windows: Windows) -> Reading:
    primes = [primer(standardize(batch.x.mT)) for batch in _chosen(windows)]
    mean = replace(primes[0], phi=torch.cat([prime.phi for prime in primes]).mean(0, keepdim=True))
    score = torch.stack([filter_strength(layer, centred=True)[0] for layer in layers_of(mean)]).sum(0).double().numpy()
    lags = next((layer for layer in primer.first if isinstance(layer, LeadLag)), None)
    if lags is None or primer.pairing != "own":  # it knows of no lags, or not those of its own pairs
        return Reading(score + score.T, None, steps=True)
    profile = lag_profile(primer, lags, (batch.x.mT for batch in _chosen(windows))).numpy()
    both = profile + profile[..., -np.arange(windows.lookback)].swapaxes(0, 1)  # R_ji(t) = R_ij(-t)
    return Reading(score + score.T, _signed(both.argmax(-1), windows.lookback), steps=True)


def untrained(primer: Primer) -> Primer:
    """The same primer with its weights drawn anew, as a primer starts (see Primer); always the same draw."""
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


def _chosen(windows: Windows) -> Iterator[Batch]:
    return _batches(windows, _evenly(windows, RELATION_WINDOWS))


def _signed(lag: Int64[np.ndarray, "n n"], length: int) -> Float64[np.ndarray, "n n"]:
    """Lags are circular: those beyond half the look-back are steps backwards."""
    return np.where(lag <= length // 2, lag, lag - length).astype(np.float64)


def lag_profile(primer: Primer, lags: LeadLag, series: Iterator[Float[Tensor, "b n l"]]) -> Float64[Tensor, "n n l"]:
    """How much of F_ij comes from each lag t: |mean over windows of R_ij(t) dF_ij/dR_ij(t)|, to first order.

    dF_ij/dR_ij(t) = sum_m act'(h_m) w_m(t) u_m; its norm over the d entries again needs only the products u_m . u_m'.
    """
    total, count = torch.zeros(()), 0
    for window in series:
        normal = standardize(window) if primer.normalize else window
        with torch.enable_grad():
            hidden = sum((layer(normal) for layer in primer.first), start=primer.offset[:, None, None])
            hidden = hidden.detach().expand(len(normal), -1, -1, -1).requires_grad_()
            (slope,) = torch.autograd.grad(ACTIVATIONS[primer.activation](hidden).sum(), hidden)
        correlation = lead_lag(normal)
        if lags.smooth:  # what the first layer sees is tanh of R
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


def score_reading(
    reading: Reading, related: Bool[np.ndarray, "n n"], lead: Int64[np.ndarray, "n n"]
) -> dict[str, float | None]:
    """How well a reading finds related pairs, and who leads.

    average_precision: of the ranking of unordered pairs by score.
    precision, recall: of the pairs whose score stands out (SPREADS), none of which is told how many there are.
    top_precision:     share of true ones among as many top pairs as are truly related.
    direction:         share of the truly lagged pairs whose leader is named rightly.
    lag_error, lag_exact: of those pairs, mean error in steps, and share without error; None for what has no lags.
    """
    pairs = np.triu_indices(len(related), 1)
    score, true = reading.score[pairs], related[pairs]
    median = np.median(score)
    found = score > median + SPREADS * 1.4826 * np.median(np.abs(score - median))
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
    if reading.lead is not None:
        said, right = reading.lead[pairs], lead[pairs]
        lagged = right != 0
        row["direction"] = float((np.sign(said) == np.sign(right))[lagged].mean())
        if reading.steps:
            row["lag_error"] = float(np.abs(said - right)[lagged].mean())
            row["lag_exact"] = float((said == right)[lagged].mean())
    return row


def average_precision(score: Float64[np.ndarray, "p"], true: Bool[np.ndarray, "p"]) -> float:
    """Mean, over the true ones, of the share of true ones among all that score at least as high.

    Equal scores come together, so that no order among them is invented.
    """
    at_least = score[None, :] >= score[:, None]
    precision = (at_least & true).sum(1) / at_least.sum(1)
    return float(precision[true].mean())


# ---------------------------------------------------------------- cost

WARM, TIMED = 2, 9


def cost(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Time and memory at 32 training windows, on a copy of the model.

    step_ms:     forward, MSE, backward and Adam, in training mode; forward_ms: a forecast. Processor time of this
                 process, the fastest of nine after two for warming up, because sweeps share a machine: what other
                 processes take is not in it, and how they disturb caches and clock can only add to it.
    step_ratio:  a step as a multiple of `ReferenceWorkload`, both in turns, the median. Where runs are compared that were
                 measured at other hours, this is what to compare.
    kept_mib:    storage that autograd keeps from forward to backward, each block counted once, weights left out, by
                 torch's saved-tensor hooks. Temporaries within an operation are not in it.
    weights_mib: of the parameters; gradients and Adam's moments take three times as much again.
    """
    batch = splits.train.batch(_evenly(splits.train, BATCH))
    twin = copy.deepcopy(model)
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-4)

    def step() -> None:
        F.mse_loss(twin(batch.x, batch.time_features), batch.y).backward()
        optimizer.step()
        optimizer.zero_grad()

    def forward() -> None:
        with torch.inference_mode():
            twin(batch.x, batch.time_features)

    with torch.random.fork_rng(devices=[]):
        twin.eval()
        [forward_seconds] = time_interleaved(forward)
        twin.train()
        steps, beside = time_interleaved(step, ReferenceWorkload())
        kept = kept_bytes(twin, lambda: F.mse_loss(twin(batch.x, batch.time_features), batch.y))
    return {
        "step_ms": 1e3 * steps.min(),
        "step_ratio": float(np.median(steps / beside)),
        "forward_ms": 1e3 * forward_seconds.min(),
        "kept_mib": kept / 2**20,
        "weights_mib": sum(p.numel() * p.element_size() for p in twin.parameters()) / 2**20,
        "cost_batch": len(batch.x),
        "threads": torch.get_num_threads(),
    }


class ReferenceWorkload:
    """Forward and backward of two layers of width 256 with GELU, on 352 tokens: what transformers are made of."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randn(352, 256, generator=generator)
        self.weights = [(torch.randn(256, 256, generator=generator) / 16).requires_grad_() for _ in range(2)]

    def __call__(self) -> None:
        first, second = self.weights
        torch.autograd.grad((F.gelu(self.tokens @ first) @ second).square().mean(), self.weights)


def time_interleaved(*calls: Callable[[], None]) -> list[Float64[np.ndarray, "k"]]:
    """Seconds of processor time, summed over threads, of several rounds in which each call has its turn."""
    for _ in range(WARM):
        for call in calls:
            call()
    seconds = np.empty((len(calls), TIMED))
    for turn in range(TIMED):
        for number, call in enumerate(calls):
            start = time.process_time()
            call()
            seconds[number, turn] = time.process_time() - start
    return list(seconds)


def kept_bytes(model: nn.Module, loss: Callable[[], Tensor]) -> int:
    """Bytes of storage that the graph of this loss holds on to, beside the model's own parameters and buffers."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss()
    del value  # only here: while the graph lives, no storage is handed out twice
    return sum(kept.values())


Probe = Callable[[nn.Module, Splits, Dataset], dict[str, Any]]

PROBES: dict[str, Probe] = {
    "maps": maps,
    "loss_of_channel": loss_of_channel,
    "example_forecasts": example_forecasts,
    "relations": relations,
    "cost": cost,
}
"""By name, as `experiment.run` calls them: a trained model in eval mode, its splits, its data set."""
