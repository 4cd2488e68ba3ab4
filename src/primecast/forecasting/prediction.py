"""Forecasts of a fitted state: after the last row with intervals, from held-out rows, and after newer rows.

Every forecast comes from `training.loop.predict`, the one inference function.

Letters: t rows, m forecasts, h horizon, n targets, c future covariates.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import nn

from primecast.data.formats import to_numbers
from primecast.errors import InputError, format_list
from primecast.forecasting.intervals import (
    AbsoluteErrors,
    Calibration,
    ErrorDistribution,
    check_levels,
    known_at,
    thinned,
)
from primecast.forecasting.state import FittedState, Limits
from primecast.frames.dates import align_rows, check_step, future_index, row_number, with_length
from primecast.frames.future_covariates import read_future_covariates
from primecast.frames.layouts import Layout
from primecast.frames.point_in_time import PointInTimeValues
from primecast.frames.read import reopen_table
from primecast.frames.validate import (
    CheckedFrame,
    check_frame,
    check_magnitude,
    check_overlap,
    revised,
    warn_revised_rows,
)
from primecast.frames.window_builder import WindowBuilder
from primecast.training.loop import predict

QUIET = np.errstate(over="ignore", invalid="ignore")  # what overflows is refused by name, see `_check_finite`

# ---------------------------------------------------------------- tables given later


def open_later(state: FittedState, data: object) -> tuple[pd.DataFrame, Layout]:
    """Open a table of the same channels and the same kind of rows as the one of `fit`; it is not checked yet."""
    wide, layout = reopen_table(data, state.layout)
    wide = wide.rename(columns=str)
    if sorted(wide.columns) != sorted(state.columns):
        raise InputError(
            f"the table has other channels than that of fit: {_differences(state.columns, list(wide.columns))}"
        )
    absent = state.arguments.missing != "error"
    return align_rows(wide[state.columns], state.recent.index, absent=absent), layout


def _differences(expected: Sequence[str], given: Sequence[str]) -> str:
    """Return which names are missing, new or given twice."""
    kinds = {
        "missing": [name for name in expected if name not in set(given)],
        "new": [name for name in given if name not in set(expected)],
        "twice": sorted(name for name, count in Counter(given).items() if count > 1),
    }
    return "; ".join(f"{kind}: {format_list(names)}" for kind, names in kinds.items() if names)


def read_later(state: FittedState, data: object) -> tuple[CheckedFrame, Layout]:
    """Open and check such a table."""
    wide, layout = open_later(state, data)
    table = check_frame(wide, missing=state.arguments.missing).ordered(state.roles.columns)
    check_step(table.index, state.recent.index)
    check_magnitude(table, state.scaler)
    return table, layout


# ---------------------------------------------------------------- forecasts


def predict_table(state: FittedState, data: object, *, level: Sequence[float], future: object, adaptive: bool) -> Any:
    """Return the forecast after the last row of `data`, or of the rows known so far, as the same kind of table."""
    table, layout = (state.recent, state.layout) if data is None else read_later(state, data)
    point, bounds = forecast_frames(state, table, level=level, future=future, adaptive=adaptive)
    lower = {f"lo-{one:g}": low for one, (low, _) in reversed(bounds.items())}
    upper = {f"hi-{one:g}": high for one, (_, high) in bounds.items()}
    return layout.render(point, {**lower, **upper})


@QUIET
def forecast_frames(
    state: FittedState, table: CheckedFrame, *, level: Sequence[float], future: object, adaptive: bool
) -> tuple[pd.DataFrame, dict[float, tuple[pd.DataFrame, pd.DataFrame]]]:
    """Return the forecast after the last row of the table, and the bounds of each level in rising order, as frames."""
    levels = check_levels(level)
    if len(table) < state.lookback:
        raise InputError(f"a forecast needs {state.lookback} rows, the frame has {len(table)}")
    seen, limits = table.last(state.lookback), state.limits(table)
    ahead = future_index(seen.index, state.horizon)
    known = read_future_covariates(future, state.roles.future, table=seen, ahead=ahead, layout=state.layout)
    point = forecast_next(state, seen, known, limits)
    told = known_errors(state, table, adaptive=adaptive) if levels else None

    def framed(values: Float64[np.ndarray, "h n"]) -> pd.DataFrame:
        _check_finite(values, state.roles.targets)
        return pd.DataFrame(values, index=ahead, columns=list(state.roles.targets))

    number = row_number(table.index)
    intervals = {one: interval(state, told, point, number, one, limits) for one in levels if told is not None}
    return framed(point), {one: (framed(low), framed(high)) for one, (low, high) in intervals.items()}


@QUIET
def forecast_next(
    state: FittedState, table: CheckedFrame, known: Float64[np.ndarray, "h c"], limits: Limits
) -> Float64[np.ndarray, "h n"]:
    """Return the forecast of the targets after the last row of the table, in original units.

    known: the future covariates. limits: see `FittedState.limits`.
    """
    scaled = predict(state.model_after(table), state.builder.next(table, known))[0].double().numpy()
    all_columns = np.zeros((state.horizon, len(state.roles.columns)))
    all_columns[:, : scaled.shape[1]] = scaled
    forecast = state.scaler.inverse(all_columns)[:, : state.builder.targets]
    forecast[:, limits.unchanged] = table.frame.to_numpy()[-1, : state.builder.targets][limits.unchanged]
    _check_finite(forecast, state.roles.targets)
    return np.where(limits.nonnegative, np.maximum(forecast, 0), forecast)


def _check_finite(forecasts: Float[np.ndarray, "*m h n"], targets: Sequence[str]) -> None:
    """Refuse forecasts and bounds that are NaN or infinite: no caller would look for them."""
    bad = ~np.isfinite(forecasts).reshape(-1, len(targets)).all(axis=0)
    if bad.any():
        raise InputError(
            f"the forecast of {format_list([name for name, one in zip(targets, bad, strict=True) if one])} is not a "
            "finite number: the weights of the model or the rows it reads are too large; train it anew"
        )


@dataclass(frozen=True, eq=False)
class HeldOutForecasts:
    """Scaled forecasts from several origins, each of what was known there; truths arrive row by row.

    values: all columns, scaled. gaps: truths that are missing. masked: these stay unknown, else they are filled.
    """

    forecasts: Float32[np.ndarray, "m h n"]
    origins: Int64[np.ndarray, "m"]
    values: PointInTimeValues
    gaps: Bool[np.ndarray, "t n"]
    masked: bool

    @property
    def ends(self) -> Int64[np.ndarray, "m"]:
        """Return the row after the last one that each forecasts."""
        return self.origins + self.forecasts.shape[1]

    @property
    def stride(self) -> int | None:
        """Return the fewest rows between two origins, so that no error counts as older than it is."""
        return int(np.diff(self.origins).min()) if len(self.origins) > 1 else None

    def errors(self, time: int, *, filled: bool = True) -> Float32[np.ndarray, "m h n"]:
        """Return truth - forecast as known before the row `time`, NaN where it was not.

        filled: whether truths that were missing count with the values they were filled with.
        """
        _, horizon, targets = self.forecasts.shape
        truth = self.values.as_of(np.arange(time), time)[:, :targets]
        if self.masked or not filled:
            truth = np.where(self.gaps[:time], np.float32(np.nan), truth)
        to_come = np.full((1, targets), np.nan, dtype=np.float32)
        steps = np.minimum(self.origins[:, None] + np.arange(horizon), time)
        return np.asarray(np.concatenate([truth, to_come])[steps] - self.forecasts)

    def calibration(self, time: int, *, first: int, filled: bool = True) -> Calibration:
        """Return errors as known before the row `time`, with forecasts and origins. first: the number of row 0."""
        return Calibration(self.errors(time, filled=filled), self.forecasts, self.origins + first)


def forecast_from(
    model: nn.Module, builder: WindowBuilder, table: CheckedFrame, origins: Int64[np.ndarray, "m"], *, batch_size: int
) -> HeldOutForecasts:
    """Return the forecasts from these rows on; each row has a look-back before it."""
    forecasts = np.zeros((0, builder.horizon, builder.targets), dtype=np.float32)
    if len(origins):
        windows = builder.from_origins(table, origins)
        forecasts = predict(model, windows, batch_size=batch_size)[..., : builder.targets].numpy()
        _check_finite(forecasts, builder.roles.targets)
    values, gaps = PointInTimeValues.of(table).scaled(builder.scaler), table.gaps[:, : builder.targets]
    return HeldOutForecasts(forecasts, origins, values, gaps, masked=builder.missing == "mask")


def forecast_held_out(
    model: nn.Module, builder: WindowBuilder, table: CheckedFrame, rows: range, *, batch_size: int
) -> HeldOutForecasts:
    """Return forecasts from origins among these rows whose truth is known or will be, as many as memory allows."""
    origins = builder.origins(table, rows)
    kept = origins[thinned(len(origins), cells=builder.horizon * builder.targets)]
    return forecast_from(model, builder, table, kept, batch_size=batch_size)


# ---------------------------------------------------------------- intervals


def known_errors(state: FittedState, table: CheckedFrame, *, adaptive: bool) -> AbsoluteErrors | ErrorDistribution:
    """Return the distribution of the errors known at the last of these rows; adaptive: with those of begun windows."""
    number = row_number(table.index)
    known, begun = earlier_errors(state, number), errors_so_far(state, table) if adaptive else None
    if begun is not None:
        known = known.followed_by(begun)
    return known_at(known, until=number, season=state.season, adaptive=adaptive)


def earlier_errors(state: FittedState, number: int) -> Calibration:
    """Return the calibration as if its rows ended before the one of this number, at most a season earlier.

    However long ago they became known, these are the errors to begin with; their time of day stays.
    """
    return state.calibration.shifted(number - (number - row_number(state.recent.index)) % state.season)


@QUIET
def interval(
    state: FittedState,
    told: AbsoluteErrors | ErrorDistribution,
    point: Float64[np.ndarray, "h n"],
    number: int,
    level: float,
    limits: Limits,
) -> Float64[np.ndarray, "2 h n"]:
    """Return the bounds of an interval around a forecast in original units. number: of the first row it forecasts."""
    mean, std = state.scaler.mean[: point.shape[1]], state.scaler.std[: point.shape[1]]
    scaled = ((point - mean) / std)[None]
    bounds = told.interval(scaled, np.array([number]), level)[:, 0]
    original = np.where(limits.unchanged, point, point + (bounds - scaled) * std)
    return np.where(limits.nonnegative, np.maximum(original, 0), original)


def errors_so_far(state: FittedState, table: CheckedFrame) -> Calibration | None:
    """Return the errors of the windows that have begun and not ended at the last of these rows; None without any."""
    time, stride = len(table), state.stride
    origins = np.arange(time - state.horizon + stride, time - stride + 1, stride)
    origins = origins[origins >= state.first_origin(table)]
    if not len(origins):
        return None
    batch_size = state.arguments.batch_size
    held_out = forecast_from(state.bounded_model, state.builder, table, origins, batch_size=batch_size)
    return held_out.calibration(time, first=row_number(table.index) - time)


# ---------------------------------------------------------------- newer rows


def update_state(state: FittedState, data: object) -> FittedState:
    """Return the state after newer rows: its forecasts start from them, and their errors join the calibration.

    The model stays as it is. Known rows take the values that are given for them again; errors already counted stay.
    """
    before, rows = state.recent, _later_rows(state, data)
    truth = revised(before, rows)
    if isinstance(before.index, pd.RangeIndex) and (rows.index <= before.index[-1]).any():
        check_overlap(rows, before, truth)
    new = _newer_rows(before, rows)
    if not len(new) and np.array_equal(truth, before.truth, equal_nan=True):
        return state
    joined = _join(state, truth, new)
    warn_revised_rows(before, truth)
    # One more window ends with every new row; those that keep to the stride of the others are kept.
    first = max(state.first_origin(joined), len(before) + 1 - state.horizon)
    origins = state.builder.origins(joined, range(first, len(joined)))
    held_out = forecast_from(state.bounded_model, state.builder, joined, origins, batch_size=state.arguments.batch_size)
    limits = state.limits(joined)
    kept = (state.rows + held_out.ends - len(before)) % state.stride == 0
    most = max(len(state.calibration), 1)
    newest = held_out.calibration(len(joined), first=-len(joined)).only(kept)
    return replace(
        state,
        calibration=state.calibration.shifted(-len(new)).followed_by(newest).only(slice(-most, None)),
        constant=limits.unchanged,
        nonnegative=limits.nonnegative,
        rows=state.rows + len(new),
        recent=joined.last(state.lookback + state.horizon),
    )


def _later_rows(state: FittedState, data: object) -> pd.DataFrame:
    """Return the rows of a table, with numbers that continue those known if it has none."""
    wide, _ = open_later(state, data)
    if wide.index.hasnans:
        raise InputError(f"{np.count_nonzero(wide.index.isna())} time stamps are missing (NaT); drop those rows")
    if isinstance(data, np.ndarray) and len(wide):
        wide = wide.set_axis(future_index(state.recent.index, len(wide)), axis="index")
    return wide[list(state.roles.columns)]


def _newer_rows(known: CheckedFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that come after those known; they must continue them."""
    new = rows[rows.index > known.index[-1]]
    if not len(new):
        return new
    expected = future_index(known.index, len(new))
    wrong = np.flatnonzero(new.index != expected)
    if len(wrong):
        raise InputError(
            f"the next row is that of {expected[wrong[0]]}, but the newer rows "
            f"{'go on with' if wrong[0] else 'begin at'} {new.index[wrong[0]]}"
        )
    return pd.DataFrame(to_numbers(new), index=new.index, columns=new.columns)


def _join(state: FittedState, truth: Float64[np.ndarray, "t n"], new: pd.DataFrame) -> CheckedFrame:
    """Return the rows known so far, of which this is the truth, followed by new ones, checked and filled together."""
    before, gaps = state.recent, np.isnan(truth[:1])
    # A gap that began before these rows has the value it was filled with.
    given = np.concatenate([np.where(gaps, before.frame.iloc[:1], truth[:1]), truth[1:]])
    values = np.concatenate([given, new.to_numpy()])
    index = with_length(before.index, len(values))
    frame = pd.DataFrame(values, index=index, columns=before.frame.columns)
    joined = check_frame(frame, missing=state.arguments.missing)
    check_magnitude(joined, state.scaler)
    return CheckedFrame(joined.frame, np.concatenate([gaps, joined.gaps[1:]]))
