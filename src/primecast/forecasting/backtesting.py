"""Backtests: forecasts from several origins in the past, compared with what happened, in the units of the data.

    RMSE, MAE   of the forecast, and of the seasonal naive forecast from the same origins
    MASE        MAE / (mean |y(t) - y(t - season)| over the training rows): below 1 it beats repeating the last season
    coverage, width   of each interval: the fraction of truths inside it, and its mean width

Everything is per channel and, in the first row, "overall", over all cells. Overall RMSE, MAE and width are meaningful
only if the channels share a unit; MASE and coverage have none. Truths that were missing in the data are not counted.

Letters: w origins, h steps, n channels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Float, Float64

from primecast.errors import InputError
from primecast.forecasting.fitting import fit_state
from primecast.forecasting.intervals import AbsoluteErrors, ErrorDistribution, known_at
from primecast.forecasting.prediction import earlier_errors, forecast_held_out, forecast_next, interval, known_errors
from primecast.forecasting.state import FittedState
from primecast.frames.dates import row_number, rows_until
from primecast.frames.point_in_time import PointInTimeValues
from primecast.frames.validate import CheckedFrame

OVERALL = "overall"


@dataclass(frozen=True, eq=False)
class Backtest:
    """forecasts: a row per origin (`cutoff`, the last row before it), time and channel, as neuralforecast lays it out.

    scores: "overall", then a row per channel; columns rmse, mae, mase, naive_rmse, naive_mae, coverage-80, width-80
            and so on. The naive scores are of the origins that have a season of rows before them.
    """

    forecasts: pd.DataFrame
    scores: pd.DataFrame

    @property
    def origins(self) -> list[object]:
        return list(self.forecasts["cutoff"].unique())

    def plot(self, *, channels: Sequence[object] | None = None, level: float | None = None) -> npt.NDArray[np.object_]:
        """Draw the truth and the forecast from each origin; return matplotlib axes, one for each channel.

        channels: those to draw, by default the first six. level: of the interval, by default the lowest one.
        """
        from primecast.plotting.plots import plot_backtest  # matplotlib only where something is drawn

        return plot_backtest(self.forecasts, channels=channels, level=level)

    def __repr__(self) -> str:
        return f"Backtest from {len(self.origins)} origins\n{self.scores.to_string(float_format='{:.4g}'.format)}"


def check_origins(state: FittedState, table: CheckedFrame, *, windows: int, step: int, refit: bool) -> list[int]:
    """Return the last `windows` origins, `step` rows apart; refuse origins without a look-back or in training rows."""
    last = len(table) - state.horizon
    first = last - step * (windows - 1)
    if first < state.lookback:  # before a list of them is made, which could take all memory
        raise InputError(
            f"{windows} windows {step} rows apart, with look-back {state.lookback} and horizon {state.horizon}, need "
            f"{state.lookback + step * (windows - 1) + state.horizon} rows; there are {len(table)}"
        )
    if not refit and first < state.first_held_out(table):
        raise InputError(
            f"the first of {windows} windows begins at {table.index[first]}, but {state.why_not_held_out(table)}; "
            "take fewer windows, or refit=True"
        )
    return list(range(first, last + 1, step))


def backtest(
    state: FittedState,
    table: CheckedFrame,
    origins: list[int],
    *,
    levels: list[float],
    adaptive: bool,
    refit: bool,
) -> Backtest:
    """Forecast from these rows. refit: train anew on the rows before each origin."""
    horizon, targets, values = state.horizon, state.builder.targets, PointInTimeValues.of(table)
    told = None if refit or not levels else _errors_at(state, table, origins, adaptive=adaptive)
    number = row_number(table.index) - len(table)
    forecasts, naives, bounds = [], [], {level: [] for level in levels}  # type: ignore[var-annotated]
    for origin in origins:
        own = _refitted(state, table, origin) if refit else state
        before = values.frame_as_of(table, origin)
        limits = own.limits(before)
        known = values.as_of(np.arange(origin, origin + horizon), origin)[:, len(state.roles.channels) :]
        forecasts.append(forecast_next(own, before, known, limits))
        naives.append(_seasonal_naive(values, origin, state.season, horizon)[:, :targets])
        if refit and levels:
            told = known_errors(own, own.recent, adaptive=adaptive)
        elif told is not None:
            told.move_to(number + origin)
        for level in levels:
            assert told is not None
            try:
                bounds[level].append(interval(own, told, forecasts[-1], number + origin, level, limits))
            except InputError as error:
                raise InputError(f"{error} at {table.index[origin]}; take fewer windows or a lower level") from error
    return tabulate(
        channels=state.roles.targets,
        cutoffs=[table.index[origin - 1] for origin in origins],
        times=[table.index[origin : origin + horizon] for origin in origins],
        truth=np.stack([table.truth[origin : origin + horizon, :targets] for origin in origins]),
        forecast=np.stack(forecasts),
        naive=np.stack(naives),
        naive_mae=state.naive_mae,
        bounds={level: np.stack(each, axis=1) for level, each in bounds.items()},
    )


def _refitted(state: FittedState, table: CheckedFrame, origin: int) -> FittedState:
    return fit_state(state.arguments, table.ordered(state.columns).as_given().iloc[:origin], state.layout)


def _errors_at(
    state: FittedState, table: CheckedFrame, origins: list[int], *, adaptive: bool
) -> AbsoluteErrors | ErrorDistribution:
    """Return the distribution of the errors that the state had made before the first origin; it can move to later ones.

    Errors of before the table count if they were known at its first held-out row. A missing truth has no error: what it
    is filled with may not have been known when its row was.
    """
    first = state.first_held_out(table)
    rows = range(first, origins[-1] + state.horizon)
    batch_size, number = state.arguments.batch_size, row_number(table.index) - len(table)
    held_out = forecast_held_out(state.bounded_model, state.builder, table, rows, batch_size=batch_size)
    errors = held_out.calibration(origins[-1], first=number, filled=False)
    if rows_until(table.index, str(state.recent.index[-1])) <= first:
        errors = earlier_errors(state, number + first).followed_by(errors)
    return known_at(errors, until=number + origins[0], season=state.season, adaptive=adaptive)


def _seasonal_naive(values: PointInTimeValues, origin: int, season: int, horizon: int) -> Float64[np.ndarray, "h n"]:
    """Return the last season before the origin, repeated; NaN where there is none."""
    rows = origin - season + np.arange(horizon) % season
    repeated = values.as_of(rows.clip(0), origin)
    return repeated if origin >= season else np.full_like(repeated, np.nan)


def tabulate(
    *,
    channels: tuple[str, ...],
    cutoffs: list[object],
    times: list[pd.Index],
    truth: Float[np.ndarray, "w h n"],
    forecast: Float[np.ndarray, "w h n"],
    naive: Float[np.ndarray, "w h n"],
    naive_mae: Float[np.ndarray, "n"],
    bounds: Mapping[float, Float[np.ndarray, "2 w h n"]],
) -> Backtest:
    """Return the two frames of a backtest; NaN is unknown. naive_mae: the divisor of MASE. bounds: lower and upper."""
    windows, horizon, width = truth.shape
    order = (0, 2, 1)  # origin, channel, step: channel after channel within an origin
    columns: dict[str, object] = {
        "unique_id": np.tile(np.repeat(np.array(channels, dtype=object), horizon), windows),
        "ds": _stamps(times, width),
        "cutoff": pd.Index(cutoffs).repeat(horizon * width),
        "y": truth.transpose(order).ravel(),
        "primecast": forecast.transpose(order).ravel(),
    }
    for level in sorted(bounds, reverse=True):
        columns[f"primecast-lo-{level:g}"] = bounds[level][0].transpose(order).ravel()
    for level in sorted(bounds):
        columns[f"primecast-hi-{level:g}"] = bounds[level][1].transpose(order).ravel()

    scores = [
        _scores_of(place, truth, forecast - truth, naive - truth, naive_mae, bounds)
        for place in [slice(None), *(slice(channel, channel + 1) for channel in range(width))]
    ]
    # A list, not a mapping: a channel may be called "overall", too.
    return Backtest(forecasts=pd.DataFrame(columns), scores=pd.DataFrame(scores, index=[OVERALL, *channels]))


def _scores_of(
    channels: slice,
    truth: Float[np.ndarray, "w h n"],
    error: Float[np.ndarray, "w h n"],
    naive_error: Float[np.ndarray, "w h n"],
    naive_mae: Float[np.ndarray, "n"],
    bounds: Mapping[float, Float[np.ndarray, "2 w h n"]],
) -> dict[str, float]:
    error, naive_error, naive_mae = error[..., channels], naive_error[..., channels], naive_mae[channels]
    scaled = np.abs(error).reshape(-1, error.shape[-1]) / np.where(naive_mae > 0, naive_mae, np.nan)
    scores = {
        "rmse": _root_mean_square(error),
        "mae": _mean(np.abs(error)),
        "mase": _mean(scaled),
        "naive_rmse": _root_mean_square(naive_error),
        "naive_mae": _mean(np.abs(naive_error)),
    }
    for level in sorted(bounds):
        low, high = bounds[level][..., channels]
        inside = (low <= truth[..., channels]) & (truth[..., channels] <= high)
        scores[f"coverage-{level:g}"] = _mean(np.where(np.isnan(error) | np.isnan(low), np.nan, inside))
        scores[f"width-{level:g}"] = _mean(high - low)
    return scores


def _stamps(times: list[pd.Index], width: int) -> pd.Index:
    first, *others = [index for index in times for _ in range(width)]
    return first.append(others)


def _root_mean_square(errors: Float[np.ndarray, "*cells"]) -> float:
    """Return the root of the mean square; the errors are first brought near 1, where squares do not underflow."""
    power = int(np.frexp(np.nanmax(np.abs(errors)))[1]) if not np.isnan(errors).all() else 0
    return math.ldexp(math.sqrt(_mean(np.ldexp(errors, -power) ** 2)), power)


def _mean(values: Float[np.ndarray, "*cells"]) -> float:
    """Return the mean of the values that are not NaN; NaN without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
