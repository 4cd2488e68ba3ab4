"""Rows at equal steps: an index with its step, or what is wrong with it and the line that mends it."""

import numpy as np
import pandas as pd

from primecast.errors import InputError
from primecast.frames.dates import SHORTEST, Index, frequency, without_freq

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
        return pd.DatetimeIndex(index, freq=freq)
    index = without_freq(index)
    steps = index[1:] - index[:-1]
    usual = steps.to_series().mode().iloc[0]
    breaks = np.flatnonzero(steps != usual)
    calendar = _calendar(index, usual)
    alias = calendar or pd.tseries.frequencies.to_offset(usual).freqstr
    if at_clock_change(index[breaks + 1]):
        remedy = f"clocks seem to have changed there: {GIVE_ZONE}"
    elif calendar or ((index - index[0]) % usual == pd.Timedelta(0)).all():
        remedy = f"rows are missing: df.asfreq({alias!r}) makes them gaps, which missing='interpolate' fills"
    else:
        remedy = f"bring them to one step, for example with df.resample({alias!r}).mean()"
    raise InputError(f"time stamps are irregular: {_describe_breaks(usual, breaks, index)}; {remedy}")


GIVE_ZONE = (
    "give the zone of these local times, tz='Europe/Berlin', or df.tz_localize('Europe/Berlin', ambiguous='infer')"
)


def at_clock_change(times: pd.Index) -> bool:
    """Return whether all times are without a zone and early on a Sunday of a month in which clocks change somewhere."""
    if not isinstance(times, pd.DatetimeIndex) or times.tz is not None or not len(times):
        return False
    return bool(((times.day_of_week == 6) & (times.hour <= 3) & times.month.isin([3, 4, 9, 10, 11])).all())


def on_one_grid(index: pd.Index) -> pd.Index:
    """Return the dates of a long table with those that no series has, where all lie multiples of one step apart."""
    if (
        not isinstance(index, pd.DatetimeIndex)
        or index.hasnans
        or len(index) < SHORTEST
        or frequency(index) is not None
    ):
        return index
    usual = (index[1:] - index[:-1]).to_series().mode().iloc[0]
    if (index[-1] - index[0]) / usual > MOST_GAPS * len(index):
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
