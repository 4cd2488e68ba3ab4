"""Rows at equal steps: an index with its step, or what is wrong with it and the line that mends it."""

import numpy as np
import pandas as pd

from primecast.errors import InputError
from primecast.frames.date_columns import SHORTEST
from primecast.frames.dates import Index, frequency, without_freq

LARGEST_NUMBER = 2.0**62
"""Of a row number: sums and differences of two are whole numbers of 64 bits."""
MOST_GAPS = 100
"""Rows that a long table may lack for each it has."""


def regular_index(index: pd.Index) -> Index:
    """Return a sorted index with its step, or refuse it and name the rows at which the step changes."""
    return _regular_dates(index) if isinstance(index, pd.DatetimeIndex) else _regular_numbers(index)


def _regular_numbers(index: pd.Index) -> pd.RangeIndex:
    if (np.abs(index.to_numpy(dtype=np.float64)) > LARGEST_NUMBER).any():
        raise InputError(f"row numbers reach {index[-1]}; they must lie between -2^62 and 2^62")
    numbers = index.to_numpy(dtype=np.int64)
    steps = np.diff(numbers)
    usual = int(np.bincount(steps - steps.min()).argmax() + steps.min()) if np.ptp(steps) < 1e6 else int(steps[0])
    breaks = np.flatnonzero(steps != usual)
    if len(breaks):
        raise InputError(
            f"row numbers are irregular: {_describe_breaks(usual, breaks, pd.Index(numbers))}; "
            "rows are missing: df.reindex(range(...)) makes them gaps, which missing='interpolate' fills"
        )
    return pd.RangeIndex(numbers[0], numbers[-1] + usual, usual, name=index.name)


def _regular_dates(index: pd.DatetimeIndex) -> pd.DatetimeIndex:
    freq = frequency(index)
    if freq is not None:
        return pd.DatetimeIndex(without_freq(index), freq=freq)  # pandas 3.0 refuses h where the index has hours=1
    index = without_freq(index)
    steps = index[1:] - index[:-1]
    usual = steps.to_series().mode().iloc[0]
    breaks = np.flatnonzero(steps != usual)
    calendar = _calendar(index, usual)
    alias = calendar or pd.tseries.frequencies.to_offset(usual).freqstr
    if at_clock_change(index[breaks + 1]):
        remedy = f"clocks seem to have changed there: {GIVE_ZONE}"
    elif calendar or ((index - index[0]) % usual == pd.Timedelta(0)).all():
        remedy = (
            "rows are missing: missing='interpolate' makes gaps of them and fills these, if they are fewer than the "
            f"others; df.asfreq({alias!r}) makes gaps of any number"
        )
    else:
        remedy = f"bring them to one step by the means within each, freq={_usual_name(steps.to_series().median())!r}"
    raise InputError(f"time stamps are irregular: {_describe_breaks(usual, breaks, index)}; {remedy}")


def _usual_name(step: pd.Timedelta) -> str:
    """Return the usual step that is nearest to this one: 'h' for 3,603 seconds."""
    return min(USUAL_STEPS, key=lambda name: abs(np.log(USUAL_STEPS[name] / step.total_seconds())))


USUAL_STEPS = {
    **{f"{count}s": count for count in (1, 2, 5, 10, 15, 30)},
    **{f"{count}min": 60 * count for count in (1, 2, 5, 10, 15, 20, 30)},
    "h": 3600,
    "2h": 7200,
    "3h": 10800,
    "4h": 14400,
    "6h": 21600,
    "8h": 28800,
    "12h": 43200,
    "D": 86400,
    "W": 604800,
}
"""Name of a step -> its seconds."""
GIVE_ZONE = (
    "give the zone of these local times, tz='Europe/Berlin', or df.tz_localize('Europe/Berlin', ambiguous='infer')"
)


def at_clock_change(times: pd.Index) -> bool:
    """Return whether all times are without a zone and early on a Sunday of a month in which clocks change somewhere."""
    if not isinstance(times, pd.DatetimeIndex) or times.tz is not None or not len(times):
        return False
    return bool(((times.day_of_week == 6) & (times.hour <= 3) & times.month.isin([3, 4, 9, 10, 11])).all())


def with_absent_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame, oldest row first, with its absent rows as gaps, where its dates show which they are.

    A table that lacks more rows than it has, and hours that a change of clocks skips, are left to be refused.
    """
    index = frame.index
    if not isinstance(index, pd.DatetimeIndex) or index.hasnans or not index.is_unique:
        return frame
    if not (index.is_monotonic_increasing or index.is_monotonic_decreasing):
        return frame
    grid = on_one_grid(index.sort_values(), most=1)
    absent = grid.difference(index)
    return frame if not len(absent) or at_clock_change(absent) else frame.reindex(grid)


def on_one_grid(index: pd.Index, *, most: int = MOST_GAPS) -> pd.Index:
    """Return all dates from the first to the last at the usual step, or the index itself where it is irregular.

    most: how many absent dates there may be for each one that is present; with more, the index is returned as it is.
    """
    if (
        not isinstance(index, pd.DatetimeIndex)
        or index.hasnans
        or len(index) < SHORTEST
        or frequency(index) is not None
    ):
        return index
    usual = (index[1:] - index[:-1]).to_series().mode().iloc[0]
    if (index[-1] - index[0]) / usual > (most + 1) * len(index):
        return index
    freq = _calendar(index, usual) or pd.tseries.frequencies.to_offset(usual)
    grid = pd.date_range(index[0], index[-1], freq=freq, name=index.name).as_unit(index.unit)
    return grid if index.isin(grid).all() else index


def _describe_breaks(usual: object, breaks: np.ndarray, index: pd.Index) -> str:
    count = "1 step differs" if len(breaks) == 1 else f"{len(breaks)} steps differ"
    shown = ", ".join(f"{index[i]} to {index[i + 1]}" for i in breaks[:3])
    return f"the usual step is {usual}, but {count}, the first {shown}"


def _calendar(index: pd.DatetimeIndex, usual: pd.Timedelta) -> str | None:
    """Return the calendar that holds all dates, of dates whose steps differ in length."""
    if usual == pd.Timedelta(days=1) and (index.day_of_week < 5).all():
        return "B"
    if usual >= pd.Timedelta(days=28) and index.is_month_start.all():
        return "MS"
    if usual >= pd.Timedelta(days=28) and index.is_month_end.all():
        return "ME"
    return None
