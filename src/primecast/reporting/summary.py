"""What a decision needs of a forecast: the next values, what to worry about, and coverage by the hour of the day."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import stamp
from primecast.reporting.describe import number, percent, stamps

LEAST_ORIGINS = 10
"""Origins that a comparison of earlier and later errors needs."""
GROWTH = 1.25
"""Errors drift where the later half exceeds the earlier one by this factor, and the ranks of the origins confirm it."""
SHORTFALL = 20
"""An interval is too narrow where it covers so many points less than its level."""
FAILURE = 0.1
"""A sensor whose ablation raises another channel's squared error by more than this is a single point of failure."""

Suspects = Mapping[str, Mapping[str, int]]
"""Channel -> number that may mean missing -> rows that hold it."""
Bounds = Mapping[float, tuple[pd.DataFrame, pd.DataFrame]]


# ---------------------------------------------------------------- the next values


def next_steps(horizon: int) -> list[int]:
    """Return the steps of the table of next values, from 0: all of a few, or the first, a quarter, half and the last.

    >>> next_steps(3), next_steps(24)
    ([0, 1, 2], [0, 5, 11, 23])
    """
    if horizon <= 6:
        return list(range(horizon))
    return [0, round(horizon / 4) - 1, round(horizon / 2) - 1, horizon - 1]


def next_values(
    frame: pd.DataFrame, forecast: pd.DataFrame, bounds: Bounds, suspects: Suspects | None = None
) -> dict[str, Any]:
    """Return the table of next values: its level (the lowest, or None), its times, and a row per target.

    biased: whether a forecast that is shown lies outside its interval. A row has the name, for each time the forecast
    and its interval, and the last value observed with its time.
    """
    steps = next_steps(len(forecast))
    level = min(bounds, default=None)
    rows, biased = [], False
    for name in forecast.columns:
        measured = without_suspects(frame[name], (suspects or {}).get(str(name), {}))
        last, form = frame[name].last_valid_index(), _number_form(measured)
        cells = []
        for step in steps:
            value = float(forecast[name].iloc[step])
            ends = [] if level is None else [float(side[name].iloc[step]) for side in bounds[level]]
            biased |= bool(ends) and (value < ends[0] or value > ends[-1])
            cells.append((form(value), " … ".join(map(form, ends))))
        seen = ("-", "") if last is None else (form(float(frame[name][last])), stamp(last))
        rows.append({"name": name, "seen": seen, "cells": cells})
    times = stamps(forecast.index)
    return {
        "level": level,
        "biased": biased,
        "times": [times[step] for step in steps],
        "until": (times[0], times[-1]),
        "rows": rows,
    }


def _number_form(column: "pd.Series[float]") -> Callable[[float], str]:
    """Return how to write the values of a channel: all with as many decimal places as a thousandth of its range has."""
    span = float(column.max() - column.min())
    if not 1e-3 <= span < 1e6:  # NaN, too
        return number
    places = max(0, 2 - math.floor(math.log10(span)) + 1)
    return lambda value: "-" if math.isnan(value) else f"{round(value, places) + 0.0:,.{places}f}"  # + 0.0: no -0


def without_suspects(column: "pd.Series[float]", suspects: Collection[str]) -> "pd.Series[float]":
    """Return the values of a channel that are none of the numbers that may mean missing."""
    numbers = np.array([float(one) for one in suspects])  # written with six digits
    odd = np.isclose(column.to_numpy()[:, None], numbers, rtol=1e-5, atol=0).any(axis=1)
    return column[~odd]


# ---------------------------------------------------------------- what to worry about


@dataclass(frozen=True, eq=False)
class Concern:
    """Something to look at before the forecast is used. channels: names and what was found there, the worst first."""

    title: str
    text: str
    channels: Sequence[tuple[str, str]]


def concerns(
    frame: pd.DataFrame,
    *,
    lookback: int,
    scores: pd.DataFrame | None,
    earlier: pd.DataFrame | None,
    sensor_ablation: pd.DataFrame | None,
    forecast: pd.DataFrame | None = None,
    bounds: Bounds | None = None,
    suspects: Suspects | None = None,
) -> list[Concern]:
    """Return what was found, the gravest first; the arguments are those of `ReportData`."""
    found = [_silent(frame, lookback), _stuck(frame, lookback), _may_mean_missing(suspects or {})]
    if forecast is not None and bounds:
        found.append(_outside(forecast, bounds))
    if scores is not None:
        found.append(_worse_than_naive(scores))
    if earlier is not None:
        found.append(_drifting(earlier))
    if scores is not None:
        found.append(_too_narrow(scores))
    if sensor_ablation is not None and len(sensor_ablation):
        found.append(_single_points(sensor_ablation))
    return [one for one in found if one.channels]


def _silent(frame: pd.DataFrame, lookback: int) -> Concern:
    missing = frame.isna().to_numpy()
    trailing = np.where(missing.all(axis=0), len(frame), (~missing[::-1]).argmax(axis=0))
    least = max(2, math.ceil(lookback / 4))
    channels = []
    for place in np.argsort(-trailing, kind="stable"):
        count = int(trailing[place])
        if count >= least:
            since = f", since {stamp(frame.index[-count - 1])}" if count < len(frame) else ""
            beyond = "; the whole look-back is filled in" if count >= lookback else ""
            channels.append((str(frame.columns[place]), f"{count:,} rows{since}{beyond}"))
    return Concern("Silent sensors", "No value in the last rows: the forecast starts from filled-in values.", channels)


def _stuck(frame: pd.DataFrame, lookback: int) -> Concern:
    """Find channels that repeat one value for longer than the look-back and twice as long as ever before."""
    found = []
    for name in frame.columns:
        column = frame[name].dropna()
        starts = np.flatnonzero(np.diff(column.to_numpy(), prepend=math.nan) != 0)  # NaN differs from everything
        runs = np.diff(starts, append=len(column))
        if len(runs) > 1 and runs[-1] > max(lookback, 2 * runs[:-1].max()):
            since = stamp(column.index[starts[-1]])
            found.append((int(runs[-1]), str(name), f"at {number(float(column.iloc[-1]))} since {since}"))
    found.sort(key=lambda one: -one[0])
    return Concern(
        "Stuck sensors",
        "One value, for at least twice as long as ever before.",
        [(name, text) for _, name, text in found],
    )


def _may_mean_missing(suspects: Suspects) -> Concern:
    text = "A number far from all others of its channel. If it means missing, say so (na, --na) and train again."
    found = [
        (name, f"{value} in {count:,} row{'s' * (count > 1)}")
        for name, values in suspects.items()
        for value, count in values.items()
    ]
    return Concern("Numbers that may mean missing", text, found)


def _outside(forecast: pd.DataFrame, bounds: Bounds) -> Concern:
    """Find channels whose forecasts lie outside their narrowest intervals in most steps."""
    level = min(bounds)
    low, high = bounds[level]
    found = []
    for name in forecast.columns:
        below, above = int((forecast[name] < low[name]).sum()), int((forecast[name] > high[name]).sum())
        count, side = max((below, "below"), (above, "above"))
        if count > len(forecast) / 2:
            found.append((count, str(name), f"{side} it in {count} of {len(forecast)} steps"))
    found.sort(key=lambda one: -one[0])
    text = (
        f"Most steps of the forecast lie outside their own {level:g} % interval: forecasts of held-out rows missed "
        "in one direction, as they do of channels that keep rising or falling. Trust the interval more than the "
        "forecast."
    )
    return Concern("Forecast outside its interval", text, [(name, where) for _, name, where in found])


def _worse_than_naive(scores: pd.DataFrame) -> Concern:
    channels = scores.iloc[1:]  # the first row is "overall"
    ratio = (channels["mae"] / channels["naive_mae"].where(channels["naive_mae"] > 0)).sort_values(ascending=False)
    text = "In the backtest, repeating the last season had the smaller absolute error."
    worse = [(str(name), f"MAE {percent(float(one) - 1, '+.0f')}") for name, one in ratio.items() if one > 1]
    return Concern("Worse than naive", text, worse)


def _drifting(earlier: pd.DataFrame) -> Concern:
    """Compare the mean absolute errors of the later half of the origins with those of the earlier half, by ranks."""
    text = "The absolute error grew from the earlier to the later half of the backtest (rank-sum test, p < 0.01)."
    if earlier["cutoff"].nunique() < LEAST_ORIGINS:
        return Concern("Drifting errors", text, [])
    absolute = earlier.assign(error=(earlier["primecast"] - earlier["y"]).abs())
    errors = absolute.pivot_table(index="cutoff", columns="unique_id", values="error", aggfunc="mean", sort=True)
    errors = errors.dropna(axis="columns")
    half = len(errors) // 2
    late = len(errors) - half
    excess = errors.rank().iloc[half:].sum() - late * (len(errors) + 1) / 2
    significant = excess / math.sqrt(half * late * (len(errors) + 1) / 12) > 2.33  # rank-sum test, p < 0.01
    before, after = errors.iloc[:half].mean(), errors.iloc[half:].mean()
    table = pd.DataFrame({"before": before, "after": after, "growth": after / before.where(before > 0)})[significant]
    table = table[table["growth"] > GROWTH].sort_values("growth", ascending=False)
    channels = [
        (str(name), f"MAE from {number(float(one))} to {number(float(other))}")
        for name, one, other in zip(table.index, table["before"], table["after"], strict=True)
    ]
    return Concern("Drifting errors", text, channels)


def _too_narrow(scores: pd.DataFrame) -> Concern:
    levels = sorted(float(name.removeprefix("coverage-")) for name in scores.columns if name.startswith("coverage-"))
    if not levels:
        return Concern("Intervals too narrow", "", [])
    level = levels[0]
    coverage = scores[f"coverage-{level:g}"].iloc[1:].sort_values()
    channels = [
        (str(name), f"{100 * one:.0f} % covered") for name, one in coverage.items() if 100 * one < level - SHORTFALL
    ]
    text = f"In the backtest, intervals of {level:g} % covered fewer truths than they should by {SHORTFALL} points."
    return Concern("Intervals too narrow", text, channels)


def _single_points(sensor_ablation: pd.DataFrame) -> Concern:
    points = sensor_ablation[sensor_ablation["largest"] > FAILURE].sort_values("largest", ascending=False)
    channels = [
        (str(name), f"{percent(float(largest), '+.0f')} for {channel}")
        for name, largest, channel in zip(points.index, points["largest"], points["channel"], strict=True)
    ]
    text = f"Without the sensor, another channel's squared error grows by more than {percent(FAILURE, '.0f')}."
    return Concern("Single points of failure", text, channels)


# ---------------------------------------------------------------- coverage by the hour of the day


def coverage_by_hour(earlier: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return the fraction of truths inside each interval, a row per hour of the day and a column per level.

    None where there are no dates, no intervals, or fewer than three different hours.
    """
    if earlier is None or not isinstance(pd.Index(earlier["ds"]), pd.DatetimeIndex):
        return None
    levels = sorted(float(one.removeprefix("primecast-lo-")) for one in earlier.columns if "-lo-" in one)
    known = earlier[earlier["y"].notna()]
    inside = {
        level: known["y"].between(known[f"primecast-lo-{level:g}"], known[f"primecast-hi-{level:g}"])
        for level in levels
    }
    hours = pd.DataFrame(inside).groupby(known["ds"].dt.hour.rename("hour")).mean()
    return hours if levels and len(hours) >= 3 else None
