"""The cells of the accuracy benchmark: which rows of which data set, which origins, and how forecasts are scored.

A cell is a data set and a horizon. Every method gets the same rows and is scored on the same test origins:

    last 10,000 rows ─> channels ─> gaps interpolated ─> split 7:1:2 ─> scaled by the training rows ─> origins

Letters: t rows, n channels, m origins, h horizon, q quantiles.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Float32, Float64, Int64

from primecast.data import load_dataset
from primecast.data.windows import Ratio, Scaler, row_ranges

CHOOSING = ("ETTh1", "Exchange", "ETTm1", "traffic-20", "nyc-weather", "Weather", "simbench")
JUDGING = (
    "aarhus-traffic",
    "ETTm2",
    "wth",
    "brightwind",
    "rts-gmlc-pv",
    "pems08-tail",
    "eia-demand",
    "beijing-multisite",
)
"""The two halves of docs/decisions.md, cheap sets first."""
HALVES = {"choosing": CHOOSING, "judging": JUDGING}
HORIZONS = (96, 24)
LOOKBACK = 96
ROWS, CHANNELS = 10_000, 32
"""At most: the last rows, and channels at equal distances. They bound the cost."""
ORIGINS = 200
"""Origins of the test rows and windows of the validation rows that calibrate intervals, at most."""
STRIDED = 20
"""Origins of the peers that are too slow for all of them; every method is scored on these as well."""
QUANTILES = tuple(round(0.1 * place, 1) for place in range(1, 10))
PROTOCOL = {"lookback": LOOKBACK, "rows": ROWS, "channels": CHANNELS, "origins": ORIGINS, "quantiles": QUANTILES}


def fingerprint(settings: Mapping[str, object]) -> str:
    """Return a short hash of the protocol and the settings of a method: rows of another one are not used."""
    text = json.dumps({"protocol": PROTOCOL, "settings": settings}, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class Cell:
    """The rows of a data set and the origins of a horizon.

    frame:    original units, no gaps. values: the same, scaled by the training rows.
    trained, tested: the first row after the training and after the validation rows.
    calibration, origins: first forecast rows of the validation windows and of the test windows.
    quarter:  of the day, 0 to 3, of each row; None without a daily season.
    """

    name: str
    horizon: int
    frame: pd.DataFrame
    values: Float32[np.ndarray, "t n"]
    season: int
    trained: int
    tested: int
    calibration: Int64[np.ndarray, "k"]
    origins: Int64[np.ndarray, "m"]
    quarter: Int64[np.ndarray, "t"] | None

    def dated_frame(self) -> pd.DataFrame:
        """Return the rows with regular dates without a time zone; without dates, such that a season is a day."""
        index = self.frame.index
        if isinstance(index, pd.DatetimeIndex):
            first, step = index[0].tz_localize(None), pd.Series(index).diff().median()
        else:
            first, step = pd.Timestamp("2000-01-03"), pd.Timedelta(days=1) / self.season
        return self.frame.set_axis(pd.date_range(first, periods=len(index), freq=step), axis="index")

    def truth(self, origins: Int64[np.ndarray, "m"]) -> Float32[np.ndarray, "m h n"]:
        return self.values[origins[:, None] + np.arange(self.horizon)]

    def seasonal_naive(self, origins: Int64[np.ndarray, "m"]) -> Float32[np.ndarray, "m h n"]:
        return self.values[origins[:, None] - self.season + np.arange(self.horizon) % self.season]


@cache
def _table(name: str) -> tuple[pd.DataFrame, int]:
    """Return the rows and channels of a data set that are used, and its season."""
    dataset = load_dataset(name)
    index = pd.RangeIndex(len(dataset.values)) if dataset.index is None else dataset.index
    frame = pd.DataFrame(dataset.values, index=index, columns=list(dataset.names)).iloc[-ROWS:]
    if dataset.index is None:
        frame = frame.reset_index(drop=True)
    frame = frame.interpolate(limit_direction="both")
    training = frame.iloc[: int(Ratio().train * len(frame))]
    frame = frame.loc[:, training.max() > training.min()]
    chosen = np.linspace(0, frame.shape[1] - 1, min(CHANNELS, frame.shape[1])).round().astype(int)
    return frame.iloc[:, chosen], dataset.season


def load_cell(name: str, horizon: int) -> Cell:
    frame, season = _table(name)
    ranges = row_ranges(Ratio(), rows=len(frame), lookback=LOOKBACK, horizon=horizon)
    trained, tested = ranges.train.stop, ranges.val.stop
    scaler = Scaler.fit(frame.to_numpy()[:trained])
    return Cell(
        name=name,
        horizon=horizon,
        frame=frame,
        values=scaler.transform(frame.to_numpy()).astype(np.float32),
        season=season,
        trained=trained,
        tested=tested,
        calibration=spaced(trained, tested - horizon + 1),
        origins=spaced(tested, len(frame) - horizon + 1),
        quarter=quarter_of_day(frame.index, season),
    )


def spaced(first: int, stop: int) -> Int64[np.ndarray, "m"]:
    """Return at most ORIGINS rows; their distance is coprime to 24, so that they meet all hours of the day."""
    stride = math.ceil((stop - first) / ORIGINS)
    while math.gcd(stride, 24) > 1:
        stride += 1
    return np.arange(first, stop, stride)


def strided(origins: Int64[np.ndarray, "m"]) -> Int64[np.ndarray, "s"]:
    """Return the places of STRIDED of these origins, from the first to the last at equal distances."""
    return np.linspace(0, len(origins) - 1, min(STRIDED, len(origins))).round().astype(np.int64)


def quarter_of_day(index: pd.Index, season: int) -> Int64[np.ndarray, "t"] | None:
    """Return the quarter of the day of each row; without dates the season counts as the day."""
    if isinstance(index, pd.DatetimeIndex):
        daily = index[1] - index[0] >= pd.Timedelta(days=1)
        return None if daily else (index.hour // 6).to_numpy().astype(np.int64)
    return None if season < 4 else np.arange(len(index)) % season * 4 // season


# ---------------------------------------------------------------- intervals and scores


def conformal_quantiles(
    forecast: Float[np.ndarray, "m h n"], errors: Float[np.ndarray, "k h n"]
) -> Float64[np.ndarray, "q m h n"]:
    """Return forecast + quantiles of the signed validation errors (truth - forecast) of the same step and channel.

    Split-conformal: quantile p is the (k + 1) p-th smallest of k errors, interpolated.
    """
    ranks = np.clip((len(errors) + 1) * np.array(QUANTILES) - 1, 0, len(errors) - 1) / max(len(errors) - 1, 1)
    return forecast[None] + np.quantile(errors.astype(np.float64), ranks, axis=0)[:, None]


def score(
    cell: Cell, forecast: Float[np.ndarray, "m h n"], quantiles: Float[np.ndarray, "q m h n"] | None
) -> dict[str, object]:
    """Return the scores of the forecasts from the test origins, all in scaled units."""
    truth = cell.truth(cell.origins).astype(np.float64)
    if forecast.shape != truth.shape or not np.isfinite(forecast).all():
        raise ValueError(f"{cell.name}: forecasts of shape {forecast.shape}, expected {truth.shape} finite numbers")
    error = forecast - truth
    scores: dict[str, object] = {"mse": float((error**2).mean()), "mae": float(np.abs(error).mean())}
    if quantiles is None:
        return scores
    inside = (quantiles[0] <= truth) & (truth <= quantiles[-1])
    quarter = None if cell.quarter is None else cell.quarter[cell.origins[:, None] + np.arange(cell.horizon)]
    return scores | {
        "wql": weighted_quantile_loss(truth, quantiles),
        "coverage": 100 * float(inside.mean()),
        "coverage_by_fifth": coverage_by_fifth(inside, forecast),
        "coverage_by_quarter": None
        if quarter is None
        else [100 * float(inside[quarter == q].mean()) for q in range(4)],
        "width": float((quantiles[-1] - quantiles[0]).mean()),
    }


def weighted_quantile_loss(truth: Float[np.ndarray, "m h n"], quantiles: Float[np.ndarray, "q m h n"]) -> float:
    """Return 2 sum of pinball losses / sum of |truth|, the mean over the quantiles."""
    losses = []
    for level, quantile in zip(QUANTILES, quantiles, strict=True):
        below = truth - quantile
        losses.append(2 * np.maximum(level * below, (level - 1) * below).sum() / np.abs(truth).sum())
    return float(np.mean(losses))


def coverage_by_fifth(inside: Bool[np.ndarray, "m h n"], forecast: Float[np.ndarray, "m h n"]) -> list[float]:
    """Return the coverage in per cent by the level of the forecast: fifths of each channel, lowest first."""
    cells, levels = inside.reshape(-1, inside.shape[-1]), forecast.reshape(-1, forecast.shape[-1])
    ranks = levels.argsort(axis=0, kind="stable").argsort(axis=0)
    fifth = ranks * 5 // len(ranks)
    return [100 * float(cells[fifth == place].mean()) for place in range(5)]


def coverage_gap(row: Mapping[str, object], nominal: float = 80) -> float | None:
    """Return the worst distance of the coverage from nominal over fifths of the level and quarters of the day."""
    parts = [*(row.get("coverage_by_fifth") or ()), *(row.get("coverage_by_quarter") or ())]  # type: ignore[misc]
    return max(abs(part - nominal) for part in parts) if parts else None
