"""Slow, obvious versions of what the package computes fast: loops, in float64."""

import math

import numpy as np
import torch
from torch import Tensor, nn


def attention_by_loops(q: Tensor, k: Tensor, v: Tensor, filters: Tensor | None = None, modulate: str = "kv") -> Tensor:
    """(b, h, n, k) tensors and F (b, i, j, h * k) or None; one pair at a time."""
    batch, heads, query_token, size = q.shape
    out = torch.zeros_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(query_token):
                scores, values = [], []
                for j in range(k.shape[2]):
                    factor = torch.ones_like(q[b, h, i])
                    if filters is not None:
                        factor = filters[b, i, j, h * size : (h + 1) * size]
                    key = k[b, h, j] * factor if "k" in modulate else k[b, h, j]
                    values.append(v[b, h, j] * factor if "v" in modulate else v[b, h, j])
                    scores.append((q[b, h, i] * key).sum() / math.sqrt(size))
                weights = torch.stack(scores).softmax(0)
                out[b, h, i] = (weights[:, None] * torch.stack(values)).sum(0)
    return out


def mix_by_loops(weights: Tensor, v: Tensor, filters: Tensor) -> Tensor:
    """(b, h, i, j) weights, (b, h, j, k) values, F (b, i, j, h * k) -> (b, h, i, k): sum_j w_ij v_j F_ij."""
    batch, heads, queries, keys = weights.shape
    size = v.shape[-1]
    out = v.new_zeros(batch, heads, queries, size)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                for j in range(keys):
                    out[b, h, i] += weights[b, h, i, j] * v[b, h, j] * filters[b, i, j, h * size : (h + 1) * size]
    return out


def lead_lag_by_sums(series: np.ndarray) -> np.ndarray:
    """(n, l) -> (n, n, l): (1/l) sum_s x_i(s) x_j((s + t) mod l), summed term by term."""
    channels, length = series.shape
    out = np.zeros((channels, channels, length))
    for i in range(channels):
        for j in range(channels):
            for lag in range(length):
                for step in range(length):
                    out[i, j, lag] += series[i, step] * series[j, (step + lag) % length] / length
    return out


# ---------------------------------------------------------------- Timer-XL


def rotate_by_pairs(vector: list[float], index: int, base: float = 10000.0) -> list[float]:
    """The first half of a head's vector turned, two neighbours at a time, as points of the plane."""
    width = len(vector) // 2
    turned = list(vector)
    for first in range(0, width, 2):
        angle = index * base ** (-first / width)
        point = complex(vector[first], vector[first + 1]) * complex(math.cos(angle), math.sin(angle))
        turned[first], turned[first + 1] = point.real, point.imag
    return turned


def time_attention_by_loops(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    patches: int,
    same: Tensor,
    other: Tensor,
    filters: Tensor | None = None,
    flattened: bool = False,
) -> Tensor:
    """(b, h, n t, k) tensors, F (b, n t, n t, h * k) or None; patch i of channel m asks, patch j of channel n answers.

    Tokens are numbered channel by channel: c t + i.
    """
    batch, heads, tokens, size = q.shape
    channels = tokens // patches
    out = torch.zeros_like(q)
    for b in range(batch):
        for h in range(heads):
            for m in range(channels):
                for i in range(patches):
                    query_token = m * patches + i
                    scores, values = [], []
                    for n in range(channels):
                        for j in range(i + 1):
                            key_token = n * patches + j
                            factor = torch.ones_like(q[b, h, query_token])
                            if filters is not None:
                                factor = filters[b, query_token, key_token, h * size : (h + 1) * size]
                            key = (k[b, h, key_token] * factor).tolist()
                            query = q[b, h, query_token].tolist()
                            query = rotate_by_pairs(query, query_token if flattened else i)
                            key = rotate_by_pairs(key, key_token if flattened else j)
                            score = sum(a * c for a, c in zip(query, key, strict=True))
                            score += (same if m == n else other)[h].item()
                            scores.append(score / math.sqrt(size))
                            values.append(v[b, h, key_token] * factor)
                    weights = torch.tensor(scores, dtype=q.dtype).softmax(0)
                    out[b, h, query_token] = (weights[:, None] * torch.stack(values)).sum(0)
    return out


# ---------------------------------------------------------------- Autoformer


def delay_scores_by_sums(q: Tensor, k: Tensor) -> Tensor:
    """(b, t, d) twice -> (b, t): mean over features of sum_t q(t) k(t - tau), summed term by term."""
    batch, steps, _ = q.shape
    rows = []
    for b in range(batch):
        row = []
        for delay in range(steps):
            terms = [q[b, t] * k[b, (t - delay) % steps] for t in range(steps)]
            row.append(torch.stack(terms).sum(0).mean())
        rows.append(torch.stack(row))
    return torch.stack(rows)


def auto_correlation_by_loops(q: Tensor, k: Tensor, v: Tensor, *, count: int, training: bool) -> Tensor:
    """As published: in training roll all samples by the delays of the batch, else gather each sample by its own."""
    batch, steps, _ = q.shape
    keys, values = (z[:, :steps] for z in (k, v))
    missing = steps - keys.shape[1]
    keys, values = (torch.cat([z, z.new_zeros(batch, missing, z.shape[2])], 1) for z in (keys, values))
    scores = delay_scores_by_sums(q, keys)
    if training:
        order = scores.mean(0).argsort(descending=True)[:count]
        weights = torch.stack([scores[:, delay] for delay in order], dim=1).softmax(1)
        out = torch.zeros_like(values)
        for place, delay in enumerate(order.tolist()):
            out = out + weights[:, place, None, None] * torch.roll(values, -delay, dims=1)
        return out
    samples = []
    for b in range(batch):
        order = scores[b].argsort(descending=True)[:count]
        weights = scores[b, order].softmax(0)
        row = []
        for t in range(steps):
            row.append(
                sum(w * values[b, (t + delay) % steps] for w, delay in zip(weights, order.tolist(), strict=True))
            )
        samples.append(torch.stack(row))
    return torch.stack(samples)


def decompose_by_loops(x: Tensor, kernel: int) -> tuple[Tensor, Tensor]:
    """(b, t, n) -> season and trend: the mean of the steps around each, the ends standing for what lies beyond them."""
    steps = x.shape[1]
    half = kernel // 2
    rows = []
    for t in range(steps):
        around = [x[:, min(max(t + shift, 0), steps - 1)] for shift in range(-half, half + 1)]
        rows.append(torch.stack(around).mean(0))
    trend = torch.stack(rows, dim=1)
    return x - trend, trend


DEFINED = ("dot", "selective", "differential", "gated")
"""The mechanisms that `mechanism_by_loops` defines."""


def mechanism_by_loops(
    name: str, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, x: Tensor, filters: Tensor, *, heads: int, depth: int
) -> Tensor:
    """Each attention mechanism from its definition, one sample and head at a time; F = 1 where nothing is primed."""
    if name not in DEFINED:
        raise ValueError(f"there is no definition of the mechanism {name!r} here, only of {', '.join(DEFINED)}")
    w = dict(module.named_parameters())
    size = q.shape[-1] // heads
    out = torch.zeros_like(q)

    def cut(z: Tensor, b: int, h: int) -> Tensor:
        return z[b, ..., h * size : (h + 1) * size]

    for b in range(q.shape[0]):
        scores = []
        for h in range(heads):
            scores.append(
                torch.einsum("ie,je,ije->ij", cut(q, b, h), cut(k, b, h), cut(filters, b, h)) / math.sqrt(size)
            )
        for h in range(heads):
            s = scores[h]
            if name == "selective":
                first = scores[0].relu()
                for i in range(len(s)):
                    for j in range(len(s)):
                        others = [first[o, j] for o in range(len(s)) if o != i and o != j]
                        s = s.clone()
                        s[i, j] = scores[h][i, j] - sum(others) / (len(s) - 1)
            weights = s.softmax(-1)
            if name == "differential":
                start = 0.8 - 0.6 * math.exp(-0.3 * depth)
                a1, b1, a2, b2 = w["vectors"]
                strength = (a1 * b1).sum().exp() - (a2 * b2).sum().exp() + start
                pair = h - h % 2
                weights = scores[pair].softmax(-1) - strength * scores[pair + 1].softmax(-1)
            out[b, :, h * size : (h + 1) * size] = torch.einsum(
                "ij,je,ije->ie", weights, cut(v, b, h), cut(filters, b, h)
            )
        if name == "differential":
            for h in range(0, heads, 2):
                both = slice(h * size, (h + 2) * size)
                scale = (out[b, :, both].square().mean(-1, keepdim=True) + 1e-5).rsqrt()
                out[b, :, both] = out[b, :, both] * scale * w["norm.weight"] * (1 - start)
    return torch.sigmoid(x @ w["gate.weight"].T) * out if name == "gated" else out


def table_filters_by_loops(
    table: np.ndarray, weight: np.ndarray, offset: np.ndarray, gains: np.ndarray, *, start: float
) -> np.ndarray:
    """F_ij = start + sum_m GELU(w_m . s_ij + c_m) u_m: s (n, n, width), w (h m, width), u (h, m, k) -> (n, n, h k)."""
    tokens, (heads, units, size) = len(table), gains.shape
    out = np.full((tokens, tokens, heads * size), start)
    for i in range(tokens):
        for j in range(tokens):
            for h in range(heads):
                for m in range(units):
                    z = float(weight[h * units + m] @ table[i, j] + offset[h * units + m])
                    activation = z * 0.5 * (1 + math.erf(z / math.sqrt(2)))
                    out[i, j, h * size : (h + 1) * size] += activation * gains[h, m]
    return out


def directional_by_loops(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, filters: np.ndarray, *, heads: int, w: float, gamma: float
) -> np.ndarray:
    """SDformer's attention, one number at a time: tokens (b, n, d), F (b, n, n, d); sample variances."""
    batch, tokens, width = q.shape
    size = width // heads

    def sample_variance(values: list[float]) -> float:
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / (len(values) - 1)

    def kernel(z: np.ndarray, b: int, n: int, d: int) -> float:
        over_heads = math.sqrt(sample_variance([z[b, n, h * size + d % size] for h in range(heads)]))
        return gamma * math.tanh(w * z[b, n, d] * (1 / (over_heads + 1e-6)) ** 2)

    out = np.zeros_like(q)
    for b in range(batch):
        for i in range(tokens):
            for h in range(heads):
                entries = range(h * size, (h + 1) * size)
                scores = [
                    sum(kernel(q, b, i, d) * kernel(k, b, j, d) * filters[b, i, j, d] for d in entries)
                    for j in range(tokens)
                ]
                tau = math.sqrt(sample_variance(scores) + 1e-6)
                exponentials = [math.exp(3 * score / tau) for score in scores]
                for d in entries:
                    mixed = (e * v[b, j, d] * filters[b, i, j, d] for j, e in enumerate(exponentials))
                    out[b, i, d] = sum(mixed) / sum(exponentials)
    return out


def moving_average_by_loops(series: np.ndarray, kernel: int) -> np.ndarray:
    """(t,) -> (t,): the mean of `kernel` values around each, the first and last value standing in for missing ones."""
    last = len(series) - 1
    around = range(-(kernel // 2), kernel // 2 + 1)
    return np.array([np.mean([series[min(max(t + s, 0), last)] for s in around]) for t in range(last + 1)])


def dlinear_by_loops(x: np.ndarray, season: np.ndarray, trend: np.ndarray, bias: np.ndarray, kernel: int) -> np.ndarray:
    """x (l, n), the two maps (h, l), the sum of their biases (h,) -> (h, n); one channel at a time."""
    out = np.zeros((len(bias), x.shape[1]))
    for channel in range(x.shape[1]):
        smooth = moving_average_by_loops(x[:, channel], kernel)
        out[:, channel] = season @ (x[:, channel] - smooth) + trend @ smooth + bias
    return out


def patches_by_slices(series: np.ndarray, patch: int, stride: int) -> np.ndarray:
    """(l,) -> (T, p): a patch every `stride` steps of the series and `stride` copies of its last value."""
    longer = [*series, *[series[-1]] * stride]
    return np.array([longer[start : start + patch] for start in range(0, len(longer) - patch + 1, stride)])


def leads_by_loops(series: np.ndarray, leaders: int, circular: bool) -> list[list[tuple[int, int, float]]]:
    """(n, l) -> for each channel its leaders as (channel, steps, correlation), strongest first."""
    channels, length = series.shape
    found = []
    for i in range(channels):
        candidates = []
        for j in range(channels):
            r = np.zeros(length)
            for lag in range(length):
                for s in range(length):
                    if circular or s + lag < length:
                        r[lag] += series[i, (s + lag) % length] * series[j, s] / length
            best, steps = 0.0, 1
            for lag in range(1, length - 1):
                # A peak, and more than rounding above the best so far: of two equal ones the shorter lead wins.
                if abs(r[lag]) >= max(abs(r[lag - 1]), abs(r[lag + 1])) and abs(r[lag]) > abs(best) + 1e-9:
                    best, steps = r[lag], lag
            candidates.append((j, steps, best))
        found.append(sorted(candidates, key=lambda candidate: -abs(candidate[2]))[:leaders])
    return found


def refine_by_loops(
    past: np.ndarray,
    future: np.ndarray,
    leads: list[list[tuple[int, int, float]]],
    seen: np.ndarray,
    weights: dict[str, np.ndarray],
) -> np.ndarray:
    """LIFT's refiner for one sample, past (n, l) and future (n, h), one channel and one leader at a time."""

    def softmax(z: np.ndarray) -> np.ndarray:
        return np.exp(z - z.max()) / np.exp(z - z.max()).sum()

    length, horizon = past.shape[1], future.shape[1]
    out = np.zeros_like(future)
    for i, own_leads in enumerate(leads):
        strengths = np.array([1.0, *(abs(r) for _, _, r in own_leads)])
        rbar = softmax(strengths / weights["temperature"])[1:]
        p = softmax(weights["state"] + weights["channel_state"][i] + weights["route.weight"] @ seen[i])
        own_map = sum(p[s] * weights["filters"][s] for s in range(len(p)))  # (K + 1, (2K + 1) F), the last row its bias
        filters = (rbar @ own_map[:-1] + own_map[-1]).reshape(2 * len(own_leads) + 1, -1)
        g_own, g, g_difference = filters[0], filters[1 : len(own_leads) + 1], filters[len(own_leads) + 1 :]
        own = np.fft.rfft(future[i])
        u, d = np.zeros_like(own), np.zeros_like(own)
        for k, (j, steps, r) in enumerate(own_leads):
            whole = np.concatenate([past[j], future[j]])
            lead = np.fft.rfft(np.sign(r) * whole[length - steps : length - steps + horizon])
            u += g[k] * lead
            d += g_difference[k] * (g[k] * lead - own)
        mix = weights["mix"][0] + 1j * weights["mix"][1]
        mixed = mix @ np.concatenate([u, d, g_own * own]) + weights["mix_bias"][0] + 1j * weights["mix_bias"][1]
        out[i] = future[i] + np.fft.irfft(mixed, n=horizon)
    return out


def align_by_loops(series: np.ndarray, weights: np.ndarray, lags: np.ndarray) -> np.ndarray:
    """(n, l), a (n, n), P (n, n, T + 1) -> (n, l + T): sum_j a_ij sum_t P_ij(t) x_j(s - t)."""
    channels, length = series.shape
    longest = lags.shape[2] - 1
    out = np.zeros((channels, length + longest))
    for i in range(channels):
        for j in range(channels):
            for t in range(longest + 1):
                for s in range(t, length + t):
                    out[i, s] += weights[i, j] * lags[i, j, t] * series[j, s - t]
    return out


# ---------------------------------------------------------------- GAT


def edge_attention_by_loops(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    edges: list[tuple[int, int]],
    *,
    scoring: str,
    vectors: Tensor | None = None,
    filters: Tensor | None = None,
    modulate: str = "kv",
) -> Tensor:
    """(b, h, n, k) tensors, F (b, i, j, h * k) or None, vectors (1 or 2, h, k); one query_token node at a time."""
    batch, heads, nodes, size = q.shape
    samples = []
    for b in range(batch):
        for h in range(heads):
            for i in range(nodes):
                scores, values = [], []
                for j in [key_token for query_token, key_token in edges if query_token == i]:
                    factor = torch.ones_like(q[b, h, i])
                    if filters is not None:
                        factor = filters[b, i, j, h * size : (h + 1) * size]
                    key = k[b, h, j] * factor if "k" in modulate else k[b, h, j]
                    values.append(v[b, h, j] * factor if "v" in modulate else v[b, h, j])
                    if scoring == "dot" or vectors is None:
                        score = (q[b, h, i] * key).sum() / math.sqrt(size)
                    elif scoring == "gatv2":
                        total = q[b, h, i] + key
                        score = (vectors[0, h] * torch.where(total > 0, total, 0.2 * total)).sum()
                    else:
                        total = (vectors[0, h] * q[b, h, i]).sum() + (vectors[1, h] * key).sum()
                        score = torch.where(total > 0, total, 0.2 * total)
                    scores.append(score)
                weights = torch.stack(scores).softmax(0)
                samples.append((weights[:, None] * torch.stack(values)).sum(0))
    return torch.stack(samples).view(batch, heads, nodes, size)
