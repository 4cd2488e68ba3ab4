"""From one long series to training windows: borders, scaler, calendar features, windows gathered by index.

    Dataset ──borders──> three row ranges ──scaler of the train rows──> one float32 tensor ──> three Windows

A window is `lookback` rows to look at and the `horizon` rows after them to forecast; windows start at every row.
The series is kept once. A batch is one gather from a strided view of it, so there is no DataLoader, no worker
process and no copy of the series.

Letters: t rows of the series, n channels, m time features, b windows in a batch, l look-back, h horizon.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from primecast.errors import InputError
from primecast.schema import checked

TINY = 1e-150
"""Deviations below are scaled before they are squared."""


class Ranges(NamedTuple):
    """The rows each split may see, half-open; val and test may reach back into the split before them."""

    train: range
    val: range
    test: range


@dataclass(frozen=True)
class Fixed:
    """So many rows each, from the first on; what follows is never used. ETT: 12, 4 and 4 months of 30 days."""

    train: int
    val: int
    test: int

    def ranges(self, *, rows: int, lookback: int) -> Ranges:
        val, test = self.train, self.train + self.val
        return Ranges(range(val), range(val - lookback, test), range(test - lookback, test + self.test))


@dataclass(frozen=True)
class Ratio:
    """Fractions of the rows for train and test; val takes the remainder, and with it all rounding.

    Val and test reach `lookback` rows back, so that their first *target* is the first row of their split.
    """

    train: float = 0.7
    test: float = 0.2

    def ranges(self, *, rows: int, lookback: int) -> Ranges:
        val, test = int(self.train * rows), rows - int(self.test * rows)
        return Ranges(range(val), range(val - lookback, test), range(test - lookback, rows))


@dataclass(frozen=True)
class Cuts:
    """Cut at these two fractions of the rows; every window lies wholly inside its split (PEMS: 6:2:2)."""

    first: float = 0.6
    second: float = 0.8

    def ranges(self, *, rows: int, lookback: int) -> Ranges:
        val, test = int(self.first * rows), int(self.second * rows)
        return Ranges(range(val), range(val, test), range(test, rows))


Borders = Fixed | Ratio | Cuts


@dataclass(frozen=True, eq=False)
class Dataset:
    """A multivariate series and what is needed to split it.

    season:    steps of the seasonal-naive period, such as 24 for hourly data.
    time_features: whether `split` computes calendar features from the dates, if there are dates.
    fill_gaps: whether `split` fills missing values, forward then backward within each split, as for PEMS.
    """

    name: str
    values: Float64[np.ndarray, "t n"]
    index: pd.DatetimeIndex | None
    names: tuple[str, ...]
    borders: Borders
    season: int
    time_features: bool = True
    fill_gaps: bool = False

    @property
    def called(self) -> str:
        """The name that messages use; a user's frame has none."""
        return f"data set {self.name!r}" if self.name else "the frame"

    def __post_init__(self) -> None:
        rows, channels = self.values.shape
        if len(self.names) != channels:
            raise InputError(f"{self.called} has {channels} channels but {len(self.names)} names")
        if self.index is not None and len(self.index) != rows:
            raise InputError(f"{self.called} has {rows} rows but {len(self.index)} time stamps")

    @property
    def fingerprint(self) -> str:
        """sha256 of values, stamps and names: equal for equal data, whatever it is called and however it is split."""
        digest = hashlib.sha256(json.dumps(self.names).encode())
        if self.index is not None:
            digest.update(str(self.index.tz).encode())
            in_range = self.index[0].timestamp() * 1e9 > -(2.0**63) and self.index[-1].timestamp() * 1e9 < 2.0**63
            digest.update(self.index.as_unit("ns" if in_range else "us").asi8.astype("<i8").tobytes())
        digest.update(self.values.astype("<f8").tobytes())  # row by row, whatever the order in memory
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Scaler:
    """(x - mean) / std per channel, with the population's standard deviation.

    A channel that never changes is only shifted (std 1), to exactly zero: its forecast stays its constant.
    """

    mean: Float64[np.ndarray, "n"]
    std: Float64[np.ndarray, "n"]

    @classmethod
    def fit(cls, values: Float64[np.ndarray, "t n"]) -> "Scaler":
        """Return the scaler of these rows; missing values are left out of both moments."""
        constant = np.nanmax(values, axis=0) == np.nanmin(values, axis=0)
        mean = np.where(constant, np.nanmax(values, axis=0), np.nanmean(values, axis=0))
        std = np.nanstd(values, axis=0)
        tiny = (std < TINY) & ~constant  # the squares of its deviations underflow
        if tiny.any():
            farthest = np.nanmax(np.abs(values - mean), axis=0)[tiny]
            scaled = farthest * np.nanstd((values - mean)[:, tiny] / farthest, axis=0)
            std[tiny] = np.where(scaled > 0, scaled, farthest)  # half of the smallest number is 0
        return cls(mean=mean, std=np.where(constant, 1.0, std))

    def transform(self, values: Float[np.ndarray, "*shape n"]) -> Float[np.ndarray, "*shape n"]:
        return (values - self.mean) / self.std

    def inverse(self, values: Float[np.ndarray, "*shape n"]) -> Float[np.ndarray, "*shape n"]:
        return values * self.std + self.mean


class Batch(NamedTuple):
    """Windows gathered for one step of training or inference."""

    x: Float[Tensor, "b l n"]
    y: Float[Tensor, "b h n"]
    time_features: Float[Tensor, "b l+h m"] | None  # of the past rows, then of the future ones


@runtime_checkable
class WindowSource(Protocol):
    """Windows numbered from 0 and gathered by number: `Windows`, or any class with these two methods."""

    def __len__(self) -> int: ...
    def batch(self, index: Int64[Tensor, "b"]) -> Batch: ...


@dataclass(frozen=True, eq=False)
class Windows:
    """All windows of one split: window i looks at rows start+i ... start+i+l-1 of the data set."""

    series: Float32[Tensor, "t n"]  # this split's rows, scaled: a view of the one tensor of all rows
    time_features: Float32[Tensor, "t m"] | None
    start: int  # the row of the data set at which window 0 begins
    lookback: int
    horizon: int

    def __len__(self) -> int:
        return len(self.series) - self.lookback - self.horizon + 1

    @property
    def channels(self) -> int:
        return self.series.shape[1]

    @property
    def n_time_features(self) -> int:
        return 0 if self.time_features is None else self.time_features.shape[1]

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        """Return the windows of these numbers, in this order; `index` lies on the device of the series."""
        past_and_future = self._gather(self.series, index)
        return Batch(
            x=past_and_future[:, : self.lookback],
            y=past_and_future[:, self.lookback :],
            time_features=None if self.time_features is None else self._gather(self.time_features, index),
        )

    def _gather(self, rows: Float32[Tensor, "t c"], index: Int64[Tensor, "b"]) -> Float32[Tensor, "b w c"]:
        # The view (window, time, channel) costs nothing; turned before it is indexed, it gives a contiguous batch.
        return rows.unfold(0, self.lookback + self.horizon, 1).transpose(1, 2)[index]


def evenly_spaced(total: int, most: int) -> Int64[Tensor, "w"]:
    """Return at most `most` of the numbers 0 .. total - 1, evenly spaced, the first one included.

    Consecutive windows share all but one row, so a few evenly spaced ones say nearly as much as all.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(3, 4).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    count = min(most, total)
    return torch.arange(count) * total // count


@dataclass(frozen=True)
class Splits:
    train: Windows
    val: Windows
    test: Windows
    scaler: Scaler


@checked()
def split(dataset: Dataset, *, lookback: int, horizon: int, time_features: bool | None = None) -> Splits:
    """Return train, val and test windows, scaled by the train rows; time_features None: as the data set specifies."""
    if time_features is None:
        time_features = dataset.time_features and dataset.index is not None
    if time_features and dataset.index is None:
        raise InputError(f"{dataset.called} has no dates to compute calendar features from; give time_features=False")

    ranges = row_ranges(
        dataset.borders, rows=len(dataset.values), lookback=lookback, horizon=horizon, source=dataset.called
    )
    _check_gaps(dataset, ranges)
    scaler = Scaler.fit(dataset.values[: ranges.train.stop])
    scaled = _filled(scaler.transform(dataset.values), ranges)
    series = torch.from_numpy(scaled.astype(np.float32))
    calendar = calendar_features(dataset.index) if time_features and dataset.index is not None else None

    def windows(rows: range) -> Windows:
        return Windows(
            series=series[rows.start : rows.stop],
            time_features=None if calendar is None else calendar[rows.start : rows.stop],
            start=rows.start,
            lookback=lookback,
            horizon=horizon,
        )

    return Splits(windows(ranges.train), windows(ranges.val), windows(ranges.test), scaler)


def calendar_features(index: pd.DatetimeIndex, *, minute: bool = False) -> Float32[Tensor, "t m"]:
    """Return hour of day, day of week, day of month and day of year, each scaled to [-0.5, 0.5].

    minute: append the minute of the hour, for steps below an hour (`is_subhourly`). The benchmarks use the first four
            at every sampling step, also for 10-minute and daily data.
    """
    phases = [index.hour / 23, index.day_of_week / 6, (index.day - 1) / 30, (index.day_of_year - 1) / 365]
    if minute:
        phases.append(index.minute / 59)
    return torch.from_numpy((np.stack(phases, axis=1) - 0.5).astype(np.float32))


def is_subhourly(index: pd.Index) -> bool:
    """Return whether the usual step of these dates is below an hour; False for numbered rows."""
    if not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
        return False
    hour = pd.Timedelta(hours=1).as_unit(index.unit)
    return bool(np.median(np.diff(index.asi8)) < hour.asm8.astype(np.int64))


def row_ranges(borders: Borders, *, rows: int, lookback: int, horizon: int, source: str = "the frame") -> Ranges:
    """Return the rows of each split; refuse borders that leave a split without a single window."""
    for name, steps in (("lookback", lookback), ("horizon", horizon)):
        if steps < 1:
            raise InputError(f"{name} must be at least 1 step, but {steps} was given")

    needed = lookback + horizon
    way_out = f"look-back {lookback} + horizon {horizon} need {needed}: shorten them or give more rows"
    if rows < needed:
        raise InputError(f"{source} has {rows} rows, but {way_out}")
    ranges = borders.ranges(rows=rows, lookback=lookback)
    if ranges.test.stop > rows:
        raise InputError(f"{source} has {rows} rows, but its borders end at {ranges.test.stop}")
    for name, span in ranges._asdict().items():
        if len(span) < needed:
            reaches = name != "train" and not isinstance(borders, Cuts)
            reach = f" (the {lookback} before it included)" if reaches else ""
            split = {"val": "validation"}.get(name, name)
            raise InputError(f"the {split} split of {source} has {len(span)} rows{reach}, but {way_out}")
    return ranges


def _check_gaps(dataset: Dataset, ranges: Ranges) -> None:
    """Refuse infinite values, missing ones unless fill_gaps, and channels missing from a split."""
    bad = np.isinf(dataset.values) if dataset.fill_gaps else ~np.isfinite(dataset.values)
    if bad.any():
        row, channel = np.argwhere(bad)[0]
        raise InputError(
            f"{dataset.called} has {bad.sum()} values that are no finite number, the first in "
            f"channel {dataset.names[channel]!r} at row {row}; fill them first, for example with "
            "primecast.frames.validate(frame, missing='interpolate')"
        )
    for name, own in zip(Ranges._fields, _own_rows(ranges, len(dataset.values)), strict=True):
        lost = np.isnan(dataset.values[own]).all(axis=0)
        if lost.any():
            channels = ", ".join(np.array(dataset.names)[lost])
            raise InputError(f"{dataset.called} has no value in its {name} split for {channels}; drop them")


def _filled(scaled: Float64[np.ndarray, "t n"], ranges: Ranges) -> Float64[np.ndarray, "t n"]:
    """Fill missing values by the last one before them, or else the next after them, of the same split."""
    if not np.isnan(scaled).any():
        return scaled
    parts = (pd.DataFrame(scaled[own]).ffill().bfill() for own in _own_rows(ranges, len(scaled)))
    return np.concatenate([part.to_numpy() for part in parts])


def _own_rows(ranges: Ranges, rows: int) -> tuple[slice, slice, slice]:
    """Return all rows, each in the one split it belongs to: the ranges without their reach back."""
    return slice(ranges.train.stop), slice(ranges.train.stop, ranges.val.stop), slice(ranges.val.stop, rows)
