"""LIFT: any model's forecast, refined by what the channels that lead a channel have already done.

A backbone forecasts. For each channel, the channels that lead it are found in the window; what a leader does now, the
follower will do later, so the leader's last steps and first forecast steps, shifted by the lead, predict the follower.
The refiner mixes them into the forecast, frequency by frequency:

    leads    = top K channels j by the largest peak of |R_ij|, R_ij(t) = correlation of x_i(s + t) with x_j(s)
    lead_k   = sign(r_k) [x_j, yhat_j] at steps l - t_k .. l - t_k + h - 1
    weights  = softmax([1, |r_1| .. |r_K|] / temperature) without its first entry
    states   = softmax(b + c_i + W x_i): how much channel i is in each of S states; without parameters at S = 1
    filters  = g_0, g_1 .. g_K, g'_1 .. g'_K in R^F: a linear map of the weights, of which each state has its own
    U        = sum_k g_k rfft(lead_k)        D = sum_k g'_k (g_k rfft(lead_k) - rfft(yhat))        V = g_0 rfft(yhat)
    refined  = yhat + irfft(complex Linear(3F -> F) of [U, D, V])

all on windows and forecasts normalized by the window's mean and std = sqrt(var + 1e-8), undone at the end. No gradient
flows through lead_k, as in the public code: a channel's forecast is not trained to serve its followers.
Zhao & Shen, "Rethinking Channel Dependence for Multivariate Time Series Forecasting: Learning from Leading Indicators",
ICLR 2024. Written from the paper and from facts about its method; its public code has no license and was not used.

Our choices: the complex map starts at 0, so an untrained LIFT forecasts what its backbone does; of
two equal peaks the shorter lead wins, for the circular correlation of a channel with itself always has two. The paper
caches leads found with rows from before the window ("accurate"); here a model reads its window only, see ESTIMATES.

Training: joint by default, by the loss of the refined forecast; the backbone's own `training_loss` is not used. In two
stages: `fit(model.backbone, ...)`, where it is, then `fit(model, ..., parameters="refiner")`. A backbone whose
parameters are all frozen stays in eval mode: no dropout, and its running statistics stay.

Refiner parameters, F = h // 2 + 1: 1 + 2 (3 F^2 + F) + S F (2K+1)(K+1), and l S + n S + S where S > 1.
Letters: b batch, l look-back, h horizon, n channels, m time features, i a channel, j its leader, K leaders, S states,
F frequencies.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from primecast.errors import InputError, check_known
from primecast.nn.pair_features import correlate

ESTIMATES = {
    "circular": "correlation around the ring of the window, by FFT: the paper's efficient variant",
    "overlap": "correlation of the steps that overlap, divided by l, no wrap-around: what the window alone allows of "
    "the paper's accurate variant; long leads have few steps and count less",
}
ROUTERS = {
    "raw": "the window as it is, as in LIFT: the forecast then depends on the window's level",
    "normal": "the normalized window, as in LightMTS",
}


class LIFT(nn.Module):
    """forward(x: (b, l, n), time_features: (b, l + h, m) or None) -> (b, h, n); time_features go to the backbone.

    backbone:      a module; `create_model` also takes the name of a model here, with its arguments in backbone_args.
    leaders:       K; 4, or all channels where there are fewer, when None. A channel can lead itself.
    states:        S. temperature: where the learned one starts.
    estimate:      a name in ESTIMATES. router: a name in ROUTERS.

    LightMTS is `backbone="dlinear", backbone_args={"kernel": None, "norm": "instance"}, router="normal"`.
    """

    def __init__(
        self,
        *,
        lookback: int,
        horizon: int,
        channels: int,
        n_time_features: int = 0,
        backbone: str | nn.Module = "dlinear",
        backbone_args: Mapping[str, Any] | None = None,
        leaders: int | None = None,
        states: int = 8,
        temperature: float = 1.0,
        estimate: str = "circular",
        router: str = "raw",
    ) -> None:
        super().__init__()
        leaders = min(4, channels) if leaders is None else leaders
        if not 1 <= leaders <= channels:
            raise InputError(f"leaders {leaders} must be at least 1 and at most the number of channels, {channels}")
        if states < 1:
            raise InputError(f"states {states} must be at least 1")
        if not temperature > 0:
            raise InputError(f"temperature {temperature} must be greater than 0")
        if isinstance(backbone, str) or backbone_args:
            raise InputError('a backbone given by name is built by create_model("lift", ...); LIFT takes a module')
        if lookback < 3:
            raise InputError(f"lookback {lookback} has no inner lag to find a peak at: LIFT needs at least 3 steps")
        check_known("estimate", estimate, ESTIMATES)
        check_known("router", router, ROUTERS)
        self.leaders = leaders
        self.estimate = estimate
        self.router = router
        self.backbone = backbone
        sizes = {"lookback": lookback, "horizon": horizon, "channels": channels}
        self.refiner = Refiner(**sizes, leaders=leaders, states=states, temperature=temperature)

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        mean = x.mean(1, keepdim=True)
        std = ((x - mean).square().mean(1, keepdim=True) + 1e-8).sqrt()
        past = ((x - mean) / std).mT
        future = ((self.backbone(x, time_features) - mean) / std).mT

        leads = find_leads(past, self.leaders, estimate=self.estimate)
        refined = self.refiner(past, future, leads, seen=past if self.router == "normal" else x.mT)
        return refined.mT * std + mean

    def train(self, mode: bool = True) -> "LIFT":
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.backbone.parameters()):
            self.backbone.eval()
        return self


# ---------------------------------------------------------------- leaders


class Leads(NamedTuple):
    """For each channel its K leaders, strongest first: which channel, by how many steps, with what correlation."""

    channel: Int64[Tensor, "b n K"]
    steps: Int64[Tensor, "b n K"]
    correlation: Float[Tensor, "b n K"]


AT_ONCE = 2**22
"""Correlations held at a time: 16 MiB of them in single precision."""


@torch.no_grad()
def find_leads(series: Float[Tensor, "b n l"], leaders: int, *, estimate: str = "circular") -> Leads:
    """Return the channels that lead each channel in these normalized windows; no gradient, no parameters.

    Of |R_ij| only peaks count: lags 1 .. l-2 that are not below either neighbour. A pair without a peak gets
    correlation 0. R is built for a few channels i at a time and never kept.
    """
    batch, channels, length = series.shape
    ring = length if estimate == "circular" else 2 * length  # zeros in between keep the ends apart
    spectrum = torch.fft.rfft(series, n=ring) / length**0.5
    shorter_first = torch.arange(length - 2, device=series.device) * (1e-4 / length)
    found = []
    # While a model is exported, the batch is a symbol and cannot say how many channels fit at once.
    step = channels if torch.compiler.is_compiling() else max(1, AT_ONCE // (batch * channels * ring))
    for some in spectrum.split(step, dim=1):
        correlation = correlate(spectrum[:, None], some[:, :, None], ring)[..., :length]  # b i j t: j leads i by t
        size = correlation.abs()
        peaks = size[..., 1:-1] - shorter_first
        peaks.masked_fill_(size[..., 1:-1] < torch.maximum(size[..., :-2], size[..., 2:]), -1)
        peak, best = peaks.max(-1)
        strongest = correlation.gather(-1, best[..., None] + 1).squeeze(-1) * (peak > -1)  # b i j
        channel = strongest.abs().topk(leaders, dim=-1).indices
        found.append((channel, best.gather(-1, channel) + 1, strongest.gather(-1, channel)))
    return Leads(*(torch.cat(parts, dim=1) for parts in zip(*found, strict=True)))


# ---------------------------------------------------------------- the refiner


class Refiner(nn.Module):
    """Forecasts, refined by their leaders; everything normalized. See the formulas at the top of this file."""

    def __init__(
        self, *, lookback: int, horizon: int, channels: int, leaders: int, states: int, temperature: float
    ) -> None:
        super().__init__()
        frequencies = horizon // 2 + 1
        self.temperature = nn.Parameter(torch.tensor(temperature))
        self.route = None
        if states > 1:
            self.route = nn.Linear(lookback, states, bias=False)
            self.channel_state = nn.Parameter(torch.zeros(channels, states))
            self.state = nn.Parameter(torch.zeros(states))
        # The last of the leaders + 1 rows is the bias of the map from weights to filters.
        bound = leaders**-0.5
        outputs = (2 * leaders + 1) * frequencies
        self.filters = nn.Parameter(torch.empty(states, leaders + 1, outputs).uniform_(-bound, bound))
        # Real and imaginary parts.
        self.mix = nn.Parameter(torch.zeros(2, frequencies, 3 * frequencies))
        self.mix_bias = nn.Parameter(torch.zeros(2, frequencies))

    def forward(
        self,
        past: Float[Tensor, "b n l"],
        future: Float[Tensor, "b n h"],
        leads: Leads,
        *,
        seen: Float[Tensor, "b n l"],
    ) -> Float[Tensor, "b n h"]:
        """Return the refined forecast `future` of channels with this past; `seen` is the input of the state router."""
        horizon = future.shape[-1]
        own = torch.fft.rfft(future)[:, :, None]  # b n 1 F
        leading = torch.fft.rfft(aligned(past, future.detach(), leads))  # b n K F

        filters = self._filters(leads.correlation, seen)
        g_own, g_leader, g_difference = filters.split((1, leading.shape[2], leading.shape[2]), dim=2)
        filtered = g_leader * leading
        parts = (filtered.sum(2), (g_difference * (filtered - own)).sum(2), (g_own * own).squeeze(2))
        mixed = torch.cat(parts, dim=-1) @ torch.complex(*self.mix).mT + torch.complex(*self.mix_bias)
        return future + torch.fft.irfft(mixed, n=horizon)

    def _filters(
        self, correlation: Float[Tensor, "b n K"], seen: Float[Tensor, "b n l"]
    ) -> Float[Tensor, "b n 2*K+1 F"]:
        """Return each state's map of the leaders' weights, mixed by the states of a channel: one product."""
        strengths = torch.cat([torch.ones_like(correlation[..., :1]), correlation.abs()], dim=-1)
        weights = (strengths / self.temperature).softmax(-1)[..., 1:]
        weights = torch.cat([weights, torch.ones_like(weights[..., :1])], dim=-1)
        pairs = weights
        if self.route is not None:
            states = (self.state + self.channel_state + self.route(seen)).softmax(-1)
            pairs = (states[..., :, None] * weights[..., None, :]).flatten(-2)
        return (pairs @ self.filters.flatten(0, 1)).unflatten(-1, (2 * correlation.shape[-1] + 1, -1))


def aligned(past: Float[Tensor, "b n l"], future: Float[Tensor, "b n h"], leads: Leads) -> Float[Tensor, "b n K h"]:
    """Return what each leader does, shifted by its lead, with the sign of the correlation."""
    whole = torch.cat([past, future], dim=-1)
    start = leads.channel * whole.shape[-1] + past.shape[-1] - leads.steps
    index = start[..., None] + torch.arange(future.shape[-1], device=past.device)
    taken = whole.flatten(1).gather(1, index.flatten(1)).view(index.shape)
    return taken * leads.correlation.sign()[..., None]
