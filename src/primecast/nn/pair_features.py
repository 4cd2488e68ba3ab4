"""Features of pairs of channels: how one leads the other, and how they move together. The home of lagged correlation.

Lead-lag is the circular cross-correlation, with indices taken modulo l:

    R_ij(t) = (1/l) sum_s x_i(s) x_j(s + t)      = (1/l) IFFT( conj(X_i) X_j )(t) ,      X = FFT(x)

R_ij peaks at lag t when channel i leads channel j by t steps. The functions differ in the pairs and lags they cover:

    lead_lag(series)                          R of all pairs of every window: (b, n, n, l)
    mean_lead_lag(series)                     its mean over the windows, without R of each window
    correlate(leader, follower, length)       l R of any pairs, from spectra that broadcast or were gathered; with
                                              spectra of zero-padded windows, rfft(x, n=2 l), it is not circular
    correlate_shifted(series, shifted)        R from copies of the windows that the caller has shifted, circular or not
    project_lags(series, weight)              sum_t w(t) R_ij(t) of all pairs, R is not built
    cross_spectrum, frequency_weight          their product is the same sum of any pairs, R is not built

The instantaneous features are Pearson's correlation, the correlation of rolling standard deviations, and Spearman's.
Letters: b batch, n tokens (channels, then time features), l look-back, t lag or step, f frequencies or features,
r hidden units, p and q axes that broadcast to pairs.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float, Int64
from torch import Tensor

from primecast.errors import InputError, check_known
from primecast.nn.dropout import is_traced

LAG_FORMS, PROJECT_FORMS, RANK_FORMS = ("fft", "matrix"), ("pairs", "matrix"), ("sort", "matrix")
"""Algorithms with the same result: of `lead_lag`, of `project_lags`, and of `ranks` and `instantaneous`."""


def _form(series: Float[Tensor, "b n l"], form: str, allowed: Sequence[str]) -> str:
    """Return the form, or "matrix" where nothing is to be transformed: MKL has no FFT of an empty batch."""
    check_known("form", form, allowed)
    return form if form == "matrix" or series.numel() else "matrix"


# ---------------------------------------------------------------- lagged correlation


def correlate(
    leader: Complex[Tensor, "*p f"], follower: Complex[Tensor, "*q f"], length: int
) -> Float[Tensor, "*pairs t"]:
    """Return sum_s x_leader(s) x_follower(s + t) for t = 0 .. length - 1, circular, from the two spectra.

    The spectra are `torch.fft.rfft(series, n=length)`; their axes before the last broadcast, so that all pairs, a block
    of them or a list of them are computed alike. Divide by the look-back for R, or both spectra by its square root.
    """
    return torch.fft.irfft(follower * leader.conj(), n=length)


def correlate_shifted(series: Float[Tensor, "b i s"], shifted: Float[Tensor, "b j t s"]) -> Float[Tensor, "b i j t"]:
    """Return (1/l) sum_s x_i(s) y_j(t, s), where y_j(t) is x_j shifted by t steps in the way the caller chooses."""
    return torch.einsum("bis,bjts->bijt", series, shifted) / series.shape[-1]


def lead_lag(series: Float[Tensor, "b n l"], *, form: str = "fft") -> Float[Tensor, "b n n l"]:
    """Return R_ij(t) = (1/l) sum_s x_i(s) x_j(s + t) for t = 0 .. l-1, indices taken modulo l.

    The paper's (1/l) IFFT(FFT(x_j) conj FFT(x_i)). Large at t when i leads j by t steps; R_ji(t) = R_ij(l - t), so
    the l lags hold both directions. form "matrix" uses products alone, since ONNX has no FFT.
    """
    length = series.shape[-1]
    if _form(series, form, LAG_FORMS) == "matrix":
        steps = torch.arange(length, device=series.device)
        return correlate_shifted(series, series[..., (steps[:, None] + steps) % length])  # b n t s: x_j(s + t)
    spectrum = torch.fft.rfft(series)
    return correlate(spectrum[:, :, None], spectrum[:, None], length) / length


def mean_lead_lag(series: Float[Tensor, "b n l"]) -> Float[Tensor, "n n l"]:
    """Return the mean of `lead_lag(series)` over the windows, from averaged spectra: R of a window is not built."""
    by_frequency = torch.fft.rfft(series).permute(2, 1, 0)  # f n b
    cross = (by_frequency.conj() @ by_frequency.mT).permute(1, 2, 0) / len(series)
    return torch.fft.irfft(cross, n=series.shape[-1]) / series.shape[-1]


# ---------------------------------------------------------------- linear maps of the lags

Start = Float[Tensor, "r 1 1"] | Float[Tensor, "#b r n n"]
"""What a linear map is added to: the offsets of the units, or the sum of the maps before it."""


def cross_spectrum(leader: Complex[Tensor, "*p f"], follower: Complex[Tensor, "*q f"]) -> Float[Tensor, "*pairs f2"]:
    """Return the spectrum of l R of the pairs, real and imaginary parts in turn; see `frequency_weight`."""
    return torch.view_as_real(follower * leader.conj()).flatten(-2)


def frequency_weight(weight: Float[Tensor, "r l"]) -> Float[Tensor, "r f2"]:
    """Return V such that V . `cross_spectrum` is sum_t w(t) R(t), by Parseval's theorem."""
    length = weight.shape[-1]
    filters = torch.view_as_real(torch.fft.rfft(weight))
    mirrored = torch.full((filters.shape[1], 1), 2.0, dtype=weight.dtype, device=weight.device)
    mirrored[0] = 1  # all but the constant, and the last of an even length, stand for two conjugate terms
    if length % 2 == 0:
        mirrored[-1] = 1
    return (filters * mirrored).flatten(-2) / length**2


def project_lags(
    series: Float[Tensor, "b n l"], weight: Float[Tensor, "r l"], start: Start | None = None, *, form: str = "matrix"
) -> Float[Tensor, "b r n n"]:
    """Return start + sum_t w_r(t) R_ij(t) for each hidden unit r; the gradient reaches `weight` and `start` only.

    Two forms with the same result. "pairs": the cross-spectrum of every pair, then one product; best at few channels.
    "matrix": filter each channel by a circulant product, then one product; best at many, and the one that exports.
    """
    batch, _, length = series.shape
    series = series.detach()
    if _form(series, form, PROJECT_FORMS) == "pairs":
        spectrum = torch.fft.rfft(series)
        features = cross_spectrum(spectrum[:, :, None], spectrum[:, None])
        return project_features(features, frequency_weight(weight), start)
    steps = torch.arange(length, device=series.device)
    circulants = weight[:, (steps[:, None] - steps) % length]  # r s t: w(s - t)
    filtered = torch.einsum("bjs,rst->brtj", series, circulants)
    query = (series / length)[:, None].expand(-1, len(weight), -1, -1)
    units = (_zeros(weight) if start is None else start).expand(batch, -1, -1, -1)
    # One product that adds to what is there: the maps of all units are too large to be read once more.
    return torch.baddbmm(units.flatten(0, 1), query.flatten(0, 1), filtered.flatten(0, 1)).unflatten(
        0, (batch, len(weight))
    )


def project_features(
    features: Float[Tensor, "b n n f"], weight: Float[Tensor, "r f"], start: Start | None = None
) -> Float[Tensor, "b r n n"]:
    """Return start + W s_ij, laid out unit by unit: attention reads one unit's map at a time."""
    start = _zeros(weight) if start is None else start
    units = weight.expand(features.shape[0], -1, -1)
    return torch.baddbmm(start.flatten(-2), units, features.flatten(1, 2).mT).unflatten(-1, features.shape[1:3])


def _zeros(weight: Float[Tensor, "r f"]) -> Float[Tensor, "r 1 1"]:
    return weight.new_zeros(len(weight), 1, 1)


# ---------------------------------------------------------------- instantaneous features


def instantaneous(
    series: Float[Tensor, "b n l"], *, rolling: int | None = None, form: str = "sort"
) -> Float[Tensor, "b n n 3"]:
    """Return Pearson's correlation, the correlation of rolling standard deviations, and Spearman's correlation.

    A constant window gives 0. form: see `ranks`.
    rolling: steps in a rolling window; an eighth of the look-back when None.
    """
    steps = max(2, series.shape[-1] // 8) if rolling is None else rolling
    views = (
        standardize(series),
        # The standard deviation of a straight ramp is constant up to the rounding of a difference, which is coarse.
        standardize(rolling_std(series, steps), tolerance=1e-4),
        standardize(ranks(series, form=form)),
    )
    # Each feature's map in one piece: the first layer reads them one after the other.
    return torch.stack([view @ view.mT / view.shape[-1] for view in views], dim=1).movedim(1, -1)


def standardize(series: Float[Tensor, "b n t"], *, tolerance: float = 1e-6) -> Float[Tensor, "b n t"]:
    """Return the windows with mean 0 and standard deviation 1 along time; a constant window becomes 0, not NaN.

    tolerance: a window is constant if its range is below this fraction of its magnitude. What is left there is
               rounding, and the rounding of two channels can correlate perfectly.
    """
    centered = series - series.mean(-1, keepdim=True)
    magnitude = series.abs().amax(-1, keepdim=True)
    varies = series.amax(-1, keepdim=True) - series.amin(-1, keepdim=True) > tolerance * magnitude
    std = centered.square().mean(-1, keepdim=True).sqrt()
    return torch.where(varies & (std > 0), centered / std, torch.zeros_like(centered))


def rolling_std(series: Float[Tensor, "b n l"], steps: int) -> Float[Tensor, "b n t"]:
    """Return the standard deviation of each run of `steps` values: t = l - steps + 1 of them.

    By cumulative sums, in float64 because the difference of two sums cancels.
    """
    if not 2 <= steps <= series.shape[-1]:
        raise InputError(f"rolling {steps} must be at least 2 and at most the look-back {series.shape[-1]}")
    centered = (series - series.mean(-1, keepdim=True)).double()
    mean, square = _rolling_mean(centered, steps), _rolling_mean(centered.square(), steps)
    return (square - mean.square()).clamp(min=0).sqrt().to(series.dtype)


def _rolling_mean(values: Float[Tensor, "b n l"], steps: int) -> Float[Tensor, "b n t"]:
    sums = values.cumsum(-1)
    runs = sums[..., steps - 1 :].clone()
    runs[..., 1:] -= sums[..., :-steps]
    return runs / steps


def ranks(series: Float[Tensor, "b n l"], *, form: str = "sort") -> Float[Tensor, "b n l"]:
    """Return the rank of each value in its window, from 1; equal values have the mean of their ranks.

    form "sort" sorts once and scatters; "matrix" compares every pair of steps, which exports to ONNX.
    """
    check_known("form", form, RANK_FORMS)
    if form == "matrix":
        below = (series[..., None, :] < series[..., None]).sum(-1)
        level = (series[..., None, :] == series[..., None]).sum(-1)
        return (below + (level + 1) / 2).to(series.dtype)
    order = _argsort(series)
    ordered = series.gather(-1, order)
    place = torch.arange(series.shape[-1], device=series.device).expand_as(order)
    starts = F.pad(ordered[..., 1:] != ordered[..., :-1], (1, 0), value=True)
    first = torch.where(starts, place, 0).cummax(-1).values
    ends = F.pad(starts[..., 1:], (0, 1), value=True)
    last = torch.where(ends, place, series.shape[-1]).flip(-1).cummin(-1).values.flip(-1)
    mean = (first + last + 2).to(series.dtype) / 2
    return mean.scatter(-1, order, mean)


def _argsort(series: Float[Tensor, "b n l"]) -> Int64[Tensor, "b n l"]:
    """Sort by numpy where possible: for short rows on a CPU several times faster than torch (docs/decisions.md)."""
    if series.device.type != "cpu" or is_traced():
        return series.argsort(dim=-1)
    return torch.from_numpy(np.argsort(series.detach().numpy(), axis=-1))
