"""Steps that the caller gives: for rows without dates, from a first date on, or for dated rows, by means."""

import warnings

import pandas as pd

from primecast.errors import InputError
from primecast.frames.dates import FREQUENCIES

WORDS = {word: code for code, words in reversed(FREQUENCIES.items()) for word in words[:2]} | {
    "h": "h",
    "m": "MS",
    "t": "min",
}
"""Word of a step -> its code: hourly, hour -> h."""
MOST_STEPS = 100
"""Steps for each row, at most, to which dated rows are brought."""


def dated_from(
    frame: pd.DataFrame, *, start: str | None, freq: str | None, tz: str | None, source: str
) -> pd.DataFrame:
    """Return rows without dates as rows from `start` on in steps of `freq`."""
    if start is None or freq is None:
        raise InputError(
            f"freq={freq!r} and start={start!r} were given; rows without dates need both, such as freq='h' and "
            "start='2024-01-31'"
        )
    if isinstance(frame.index, pd.DatetimeIndex):
        raise InputError(f"{source} has dates already; leave out freq and start")
    step = _step(freq)
    try:
        index = pd.date_range(_first_date(start), periods=len(frame), freq=step, tz=tz, name="time")
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"rows cannot be dated with freq={freq!r} and start={start!r}: {error}") from error
    return frame.set_axis(index, axis="index")


def _first_date(text: str) -> pd.Timestamp:
    """Return the date of a text; raise a ValueError where its day and month could be taken for each other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of pandas: that a date does not fit its dayfirst
        one, other = (pd.to_datetime(text, dayfirst=dayfirst) for dayfirst in (False, True))
    if pd.isna(one):
        raise ValueError("it is no date")
    if one != other:
        raise ValueError(f"it may be {one.date()} or {other.date()}; write the one that is meant like this")
    return one


def at_step(frame: pd.DataFrame, freq: str) -> pd.DataFrame:
    """Return dated rows at steps of `freq`: the mean of the rows within each step, of text the first; none is a gap."""
    step = _step(freq)
    if frame.index.hasnans or not isinstance(frame.index, pd.DatetimeIndex):
        return frame  # `validate` refuses it
    if isinstance(step, pd.offsets.Tick):
        if (frame.index.max() - frame.index.min()) / pd.Timedelta(step) > MOST_STEPS * len(frame):
            raise InputError(
                f"{len(frame)} rows from {frame.index.min()} to {frame.index.max()} are too few for steps of {freq!r}"
            )
        nearest = frame.index.round(step)
        # Rows a little before or after their step belong to the nearest one, not to the one before.
        if (frame.index - nearest).to_series().abs().max() <= pd.Timedelta(step) / 4:
            frame = frame.set_axis(nearest, axis="index")
    numeric = {name: pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns}
    steps = frame.sort_index().resample(step)
    columns = {name: steps[name].mean() if numeric[name] else steps[name].first() for name in frame.columns}
    made = pd.DataFrame(columns)
    made.attrs = frame.attrs
    return made


def _step(freq: str) -> pd.offsets.BaseOffset:
    """Return the step of this name; it goes forward."""
    try:
        step = pd.tseries.frequencies.to_offset(freq)
    except (ValueError, OverflowError) as error:
        near = WORDS.get(freq.strip().casefold())
        hint = f" (did you mean {near!r}?)" if near else ""
        raise InputError(f"unknown step {freq!r}{hint}; steps are h, 15min, D, W, MS and the like") from error
    if step.n < 1:
        raise InputError(f"freq is {freq!r}; it must be a step forward, such as h, 15min, D, W or MS")
    return step
