"""A backtest: forecasts from several origins in the past, beside what then happened, in the units of the data.

    RMSE, MAE   of the forecast, and of the seasonal naive one from the same origins
    MASE        MAE / (mean |y(t) - y(t - season)| over the training rows): below 1 it beats repeating the last season
    coverage, width   of each interval: the share of truths inside it, and its mean width

Everything is per channel and, in the last row, "overall", over all cells; of RMSE, MAE and width that is a sensible
number only when the channels share a unit, MASE and coverage have none. Truths that were missing in the data count
nowhere.

Letters: w origins, h steps, n channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

OVERALL = "overall"


@dataclass(frozen=True, eq=False)
class Backtest:
    """forecasts: a row per origin (`cutoff`, the last row looked at), time and channel, as neuralforecast lays it out.

    scores: a row per channel and the last one, "overall"; columns rmse, mae, mase, naive_rmse, naive_mae, coverage-80,
            width-80 and so on. The naive ones are of the origins that have a season of rows before them.
    """

    forecasts: pd.DataFrame
    scores: pd.DataFrame

    @property
    def origins(self) -> list[object]:
        return list(self.forecasts["cutoff"].unique())

    def __repr__(self) -> str:
        return f"Backtest from {len(self.origins)} origins\n{self.scores.to_string(float_format='{:.4g}'.format)}"


def tabulate(
    *,
    channels: tuple[str, ...],
    cutoffs: list[object],
    times: list[pd.Index],
    truth: Float[np.ndarray, "w h n"],
    forecast: Float[np.ndarray, "w h n"],
    naive: Float[np.ndarray, "w h n"],
    naive_mae: Float[np.ndarray, "n"],
    radii: Mapping[float, Float[np.ndarray, "w h n"]],
) -> Backtest:
    """The two frames of a backtest from its arrays; what is NaN is not known. naive_mae: the divisor of MASE."""
    windows, horizon, width = truth.shape
    order = (0, 2, 1)  # origin, channel, step: channel after channel within an origin
    columns: dict[str, object] = {
        "unique_id": np.tile(np.repeat(np.array(channels, dtype=object), horizon), windows),
        "ds": _stamps(times, width),
        "cutoff": pd.Index(cutoffs).repeat(horizon * width),
        "y": truth.transpose(order).ravel(),
        "primecast": forecast.transpose(order).ravel(),
    }
    for level in sorted(radii, reverse=True):
        columns[f"primecast-lo-{level:g}"] = (forecast - radii[level]).transpose(order).ravel()
    for level in sorted(radii):
        columns[f"primecast-hi-{level:g}"] = (forecast + radii[level]).transpose(order).ravel()

    rows = []
    for of in [slice(place, place + 1) for place in range(width)] + [slice(None)]:
        error = (forecast - truth)[..., of]
        naive_error = (naive - truth)[..., of]
        scaled = np.abs(error).reshape(-1, error.shape[-1]) / np.where(naive_mae[of] > 0, naive_mae[of], np.nan)
        row = {
            "rmse": _mean(error**2) ** 0.5,
            "mae": _mean(np.abs(error)),
            "mase": _mean(scaled),
            "naive_rmse": _mean(naive_error**2) ** 0.5,
            "naive_mae": _mean(np.abs(naive_error)),
        }
        for level in sorted(radii):
            radius = radii[level][..., of]
            inside = np.where(np.isnan(error), np.nan, np.abs(error) <= radius)
            row[f"coverage-{level:g}"] = _mean(inside)
            row[f"width-{level:g}"] = _mean(2 * radius)
        rows.append(row)
    # A list, not a mapping: a channel may be called "overall", too.
    return Backtest(forecasts=pd.DataFrame(columns), scores=pd.DataFrame(rows, index=[*channels, OVERALL]))


def _stamps(times: list[pd.Index], width: int) -> pd.Index:
    first, *others = [index for index in times for _ in range(width)]
    return first.append(others)


def _mean(values: Float[np.ndarray, "*cells"]) -> float:
    """The mean of what is not missing; NaN when everything is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
