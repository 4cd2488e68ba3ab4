"""Autoformer: time steps are tokens, and attention looks for the delays at which a series resembles itself.

    series    = trend + season, where the trend is a moving average; every layer splits again what it has made
    embedding = circular convolution over three steps of the values + Linear of their calendar features; no position
    encoder   = auto-correlation and feed-forward over the seasons of the look-back; trends are thrown away
    decoder   = starts from the last steps of the look-back, continued by zeros (season) and by the mean (trend);
                each layer hands the trends it splits off, mapped d -> n, to the running trend
    forecast  = Linear(d -> n) of the season + the running trend, last h steps

Auto-correlation replaces pairs of steps by delays. With all features of all heads taken together,

    c(tau) = mean over features of sum_t q(t) k(t - tau)        (circular, by FFT)
    out(t) = sum over the chosen tau of p(tau) v(t + tau),      p = softmax of c at the k = int(factor ln t) largest

In training the delays are chosen once for the whole batch, from its mean c; in inference for each sample alone. Only
the choice differs: a batch seen in training mode influences its members, in eval mode it does not.

The public scripts give ETTm1 and ETTm2 a fifth time feature, the minute of the hour; here all models read the same four
on the benchmarks. On users' data with steps below an hour there are five.

Wu et al., "Autoformer: Decomposition Transformers with Auto-Correlation for Long-Term Series Forecasting", NeurIPS
2021.

Parameters: 2 (3 n d + m d) + E [4 (d^2+d) + 2 d f] + D [8 (d^2+d) + 2 d f + 3 d n] + 4 d + d n + n.
Letters: b batch, t steps, l look-back, h horizon, n channels, m time features, d model width, f feed-forward width,
E and D layers of encoder and decoder, k delays.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from primecast.errors import InputError, check_known
from primecast.nn.dropout import Dropout
from primecast.nn.layers import FEED_FORWARD_ACTIVATIONS, WindowNorm, moving_average
from primecast.nn.mechanisms import AttentionArgs
from primecast.nn.multi_head import MultiHeadAttention

# ---------------------------------------------------------------- auto-correlation


def delay_scores(q: Float[Tensor, "b t d"], k: Float[Tensor, "b t d"]) -> Float[Tensor, "b t"]:
    """c(tau) = mean over d of sum_t q(t) k(t - tau), indices modulo t: how well q resembles k, tau steps later.

    The mean is taken of the spectra, which leaves one inverse transform for all features instead of d.
    """
    spectrum = torch.fft.rfft(q, dim=1) * torch.fft.rfft(k, dim=1).conj()
    return torch.fft.irfft(spectrum.mean(-1), n=q.shape[1])


def delay_weights(scores: Float[Tensor, "b t"], count: int, *, shared: bool) -> Float[Tensor, "b t"]:
    """Softmax over the `count` best delays, zero elsewhere; shared: the batch chooses its delays together."""
    chosen = (scores.mean(0, keepdim=True) if shared else scores).topk(count).indices.expand(scores.shape[0], -1)
    weights = scores.gather(1, chosen).softmax(-1)
    return torch.zeros_like(scores).scatter(1, chosen, weights)


def aggregate_delays(v: Float[Tensor, "b t d"], weights: Float[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
    """out(t) = sum_tau p(tau) v(t + tau), indices modulo t.

    The published code rolls v once per delay in training and gathers it in inference. Both are this circular
    correlation, which by FFT is as cheap for many delays as for one.
    """
    spectrum = torch.fft.rfft(v, dim=1) * torch.fft.rfft(weights).conj()[..., None]
    return torch.fft.irfft(spectrum, n=v.shape[1], dim=1)


class AutoCorrelation(nn.Module):
    """Auto-correlation with the interface of the mechanisms of `MultiHeadAttention`; tokens must be time steps.

    It is not among MECHANISMS, whose tokens may be anything: delays between channels mean nothing. Heads change
    nothing, since every delay is scored by all features together. Keys and values are cut, or continued by zeros, to
    the length of the queries.
    """

    supports_primer = False

    def __init__(self, factor: float = 3.0) -> None:
        super().__init__()
        if not factor > 0:
            raise InputError(f"factor {factor} must be positive: it sets the number of delays, int(factor ln t)")
        self.factor = factor

    def forward(
        self,
        q: Float[Tensor, "b i d"],
        k: Float[Tensor, "b j d"],
        v: Float[Tensor, "b j d"],
        x: Float[Tensor, "b i d"],
        terms: AttentionArgs,
    ) -> Float[Tensor, "b i d"]:
        for name, value in {**vars(terms), "modulate": None, "dropout": terms.dropout or None}.items():
            if value is not None:
                raise InputError(f"auto-correlation aggregates delays, not pairs: it takes no {name}")
        steps = q.shape[1]
        k, v = (_fit_length(z, steps) for z in (k, v))
        weights = delay_weights(delay_scores(q, k), delay_count(self.factor, steps), shared=self.training)
        return aggregate_delays(v, weights)


def delay_count(factor: float, steps: int) -> int:
    """int(factor ln t), but at least one delay and at most all."""
    return min(max(int(factor * math.log(steps)), 1), steps)


def _fit_length(z: Float[Tensor, "b j d"], steps: int) -> Float[Tensor, "b i d"]:
    missing = steps - z.shape[1]
    return z[:, :steps] if missing <= 0 else nn.functional.pad(z, (0, 0, 0, missing))


# ---------------------------------------------------------------- the parts around it


def decompose(x: Float[Tensor, "b t n"], kernel: int) -> tuple[Float[Tensor, "b t n"], Float[Tensor, "b t n"]]:
    """Season and trend; their sum is x."""
    trend = moving_average(x, kernel)
    return x - trend, trend


def _circular(inputs: int, outputs: int) -> nn.Conv1d:
    return nn.Conv1d(inputs, outputs, 3, padding=1, padding_mode="circular", bias=False)


class StepEmbedding(nn.Module):
    """A token for each step: a circular convolution of the values, plus Linear of the time features, if any."""

    def __init__(self, channels: int, n_time_features: int, d_model: int, *, dropout: float) -> None:
        super().__init__()
        self.values = _circular(channels, d_model)
        nn.init.kaiming_normal_(self.values.weight, mode="fan_in", nonlinearity="leaky_relu")
        # Named as in the files of trained models.
        self.marks = nn.Linear(n_time_features, d_model, bias=False) if n_time_features else None
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "b t n"], time_features: Float[Tensor, "b t m"] | None
    ) -> Float[Tensor, "b t d"]:
        z = self.values(x.mT).mT
        if self.marks is not None and time_features is not None:
            z = z + self.marks(time_features)
        return self.dropout(z)


class SeasonNorm(nn.Module):
    """LayerNorm of each step, minus its mean over the steps: a season has no level.

    The shift of the LayerNorm cancels and never learns; it is kept for the published number of parameters.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, z: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        normal = self.norm(z)
        return normal - normal.mean(1, keepdim=True)


class FeedForward(nn.Module):
    """Two linear layers on each step, without biases."""

    def __init__(self, d_model: int, d_ff: int, *, dropout: float, activation: str) -> None:
        super().__init__()
        check_known("activation", activation, FEED_FORWARD_ACTIVATIONS)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, z: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        wide = self.dropout(FEED_FORWARD_ACTIVATIONS[self.activation](self.up(z)))
        return self.dropout(self.down(wide))


class EncoderLayer(nn.Module):
    """Auto-correlation, then feed-forward; of each sum only the season goes on."""

    def __init__(self, attention: nn.Module, feed: nn.Module, *, kernel: int, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.feed = feed
        self.dropout = Dropout(dropout)
        self.kernel = kernel

    def forward(self, z: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        z, _ = decompose(z + self.dropout(self.attention(z)), self.kernel)
        z, _ = decompose(z + self.feed(z), self.kernel)
        return z


class DecoderLayer(nn.Module):
    """Auto-correlation with itself, then with the encoder, then feed-forward; returns season and trend."""

    def __init__(
        self, attention: nn.Module, cross: nn.Module, feed: nn.Module, trend: nn.Module, *, kernel: int, dropout: float
    ) -> None:
        super().__init__()
        self.attention = attention
        self.cross = cross
        self.feed = feed
        self.trend = trend
        self.dropout = Dropout(dropout)
        self.kernel = kernel

    def forward(
        self, z: Float[Tensor, "b t d"], memory: Float[Tensor, "b l d"]
    ) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "b t n"]]:
        z, first = decompose(z + self.dropout(self.attention(z)), self.kernel)
        z, second = decompose(z + self.dropout(self.cross(z, memory)), self.kernel)
        z, third = decompose(z + self.feed(z), self.kernel)
        return z, self.trend((first + second + third).mT).mT


# ---------------------------------------------------------------- the model


class Autoformer(nn.Module):
    """forward(x: (b, l, n), time_features: (b, l + h, m) or None) -> (b, h, n); it reads past and future time features.

    label:    last steps of the look-back that the decoder starts from; half the look-back when None. No step of the
              future is ever shown to it but its calendar features.
    kernel:   steps of the moving average, an odd number. factor: int(factor ln t) delays are used.
    n_heads:  divides nothing in auto-correlation (see there); kept because the published settings name it.
    norm:     see layers.NORMS; the original has none.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        d_model: int = 512,
        n_heads: int = 8,
        n_layers: int = 2,
        n_decoders: int = 1,
        d_ff: int | None = None,
        label: int | None = None,
        kernel: int = 25,
        factor: float = 3.0,
        dropout: float = 0.05,
        activation: str = "gelu",
        norm: str = "none",
    ) -> None:
        super().__init__()
        label = lookback // 2 if label is None else label
        if not 0 <= label <= lookback:
            raise InputError(f"label {label} must lie between 0 and the look-back {lookback}: it is its last steps")
        self.lookback = lookback
        self.horizon = horizon
        self.label = label
        self.kernel = kernel

        def attention() -> MultiHeadAttention:
            return MultiHeadAttention(d_model, n_heads, mechanism=AutoCorrelation(factor))

        def feed() -> FeedForward:
            return FeedForward(d_model, d_ff or 4 * d_model, dropout=dropout, activation=activation)

        self.norm = WindowNorm(norm, channels)
        self.embed_past = StepEmbedding(channels, n_time_features, d_model, dropout=dropout)
        self.embed_future = StepEmbedding(channels, n_time_features, d_model, dropout=dropout)
        around: dict[str, Any] = {"kernel": kernel, "dropout": dropout}
        self.encoders = nn.ModuleList(EncoderLayer(attention(), feed(), **around) for _ in range(n_layers))
        self.norm_past = SeasonNorm(d_model)
        self.decoders = nn.ModuleList(
            DecoderLayer(attention(), attention(), feed(), _circular(d_model, channels), **around)
            for _ in range(n_decoders)
        )
        self.norm_future = SeasonNorm(d_model)
        self.head = nn.Linear(d_model, channels)

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        normal, restore = self.norm(x)
        season, trend = self._start(normal)

        memory = self.embed_past(normal, None if time_features is None else time_features[:, : self.lookback])
        for encoder in self.encoders:
            memory = encoder(memory)
        memory = self.norm_past(memory)

        z = self.embed_future(season, None if time_features is None else time_features[:, self.lookback - self.label :])
        for decoder in self.decoders:
            z, more = decoder(z, memory)
            trend = trend + more
        forecast = trend + self.head(self.norm_future(z))
        return restore(forecast[:, self.label :])

    def _start(self, x: Float[Tensor, "b l n"]) -> tuple[Float[Tensor, "b t n"], Float[Tensor, "b t n"]]:
        """What the decoder starts from, label + h steps: season continued by zeros, trend by the look-back's mean."""
        season, trend = decompose(x, self.kernel)
        past = self.lookback - self.label
        mean = x.mean(1, keepdim=True).expand(-1, self.horizon, -1)
        return torch.cat([season[:, past:], torch.zeros_like(mean)], 1), torch.cat([trend[:, past:], mean], 1)
