"""Rows given later: in the zone and the step of the first ones where they fit them, and refused where not."""

import numpy as np
import pandas as pd
import pytest
from dateutil.tz import gettz, tzoffset, tzutc

from primecast.errors import InputError
from primecast.frames.dates import Index, align_rows, check_step, describe_step, row_number, zone_name
from primecast.frames.validate import check_frame


def rows(index: pd.Index) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(float(len(index)))}, index=index)


def later(index: pd.Index, own: Index) -> pd.DataFrame:
    """The way of a table that `predict` is given."""
    frame = check_frame(align_rows(rows(index), own), missing="error").frame
    check_step(frame.index, own)
    return frame


FITTING: dict[str, tuple[pd.DatetimeIndex, pd.DatetimeIndex]] = {
    "another name of the step": (
        pd.date_range("2024-01-01", periods=29, freq="h"),
        pd.date_range("2024-01-01", periods=7, freq="60min"),
    ),
    "a week of business days": (
        pd.date_range("2024-01-01", periods=29, freq="B"),
        pd.DatetimeIndex(pd.date_range("2024-01-08", periods=5, freq="B").to_numpy()),
    ),
    "business days over a week-end": (
        pd.date_range("2024-01-01", periods=29, freq="B"),
        pd.DatetimeIndex(["2024-01-11", "2024-01-12", "2024-01-15"]),
    ),
    "a holiday": (
        pd.date_range("2024-01-01", periods=29, freq=pd.offsets.CustomBusinessDay(holidays=["2024-01-10"])),
        pd.DatetimeIndex(["2024-01-08", "2024-01-09", "2024-01-11"]),
    ),
    "summer time after a file of both": (
        pd.date_range("2024-03-30", periods=53, freq="h", tz="UTC"),
        pd.DatetimeIndex(
            pd.to_datetime(["2024-04-01 01:00+02:00", "2024-04-01 02:00+02:00", "2024-04-01 03:00+02:00"])
        ),
    ),
    "days of a zone in another": (
        pd.date_range("2024-03-25", periods=29, freq="D", tz="Europe/Berlin"),
        pd.date_range("2024-03-29", periods=5, freq="D", tz="Europe/Berlin").tz_convert("UTC"),
    ),
    "another kind of zone": (
        pd.date_range("2024-03-25", periods=29, freq="D", tz="Europe/Berlin"),
        pd.date_range("2024-03-29", periods=5, freq="D", tz=gettz("Europe/Berlin")),
    ),
}


@pytest.mark.parametrize(("own", "given"), FITTING.values(), ids=FITTING.keys())
def test_rows_that_fit_the_step_have_it(own: pd.DatetimeIndex, given: pd.DatetimeIndex) -> None:
    for stamps in (given, given[::-1]):
        frame = later(stamps, own)
        index = frame.index
        assert isinstance(index, pd.DatetimeIndex)
        assert index.freq == own.freq and index.tz == own.tz
        assert list(index) == list(given)
        assert frame["a"].tolist() == sorted(frame["a"], reverse=stamps is not given)


HOURS = pd.date_range("2024-01-01", periods=29, freq="h")


@pytest.mark.parametrize(
    ("own", "given", "message"),
    [
        (HOURS, HOURS[::2], "fitted on rows of 'h', the frame has rows of '2h'"),
        (HOURS, HOURS.tz_localize("UTC"), "fitted on rows of 'h', the frame has rows of 'h' in UTC"),
        (HOURS.tz_localize("UTC"), HOURS, "fitted on rows of 'h' in UTC, the frame has rows of 'h'"),
        (HOURS, pd.RangeIndex(7), "fitted on rows of 'h', the frame has rows of numbers 1 apart"),
        (pd.RangeIndex(7), HOURS, "fitted on rows of numbers 1 apart, the frame has rows of 'h'"),
        (pd.RangeIndex(0, 21, 3), pd.RangeIndex(21, 31, 2), "numbers 3 apart, the frame has rows of numbers 2 apart"),
        (HOURS, HOURS[[0, 1, 5, 6]], "time stamps are irregular"),
        (HOURS, HOURS[[1, 0, 2]], "time stamps are not in order"),
        (HOURS, HOURS[:0], "has 0 rows"),
        (HOURS, HOURS[:3].insert(1, pd.NaT), r"missing time stamps \(NaT\) in 1 rows"),
        (HOURS, HOURS[:5].to_period("h"), "has a PeriodIndex"),
        (HOURS, pd.Index(["x", "y", "z"]), "neither dates nor whole numbers"),
    ],
)
def test_rows_that_do_not_fit_are_refused(own: Index, given: pd.Index, message: str) -> None:
    with pytest.raises(InputError, match=message):
        later(given, own)


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        (gettz("Europe/Berlin"), "Europe/Berlin"),
        (gettz("America/Argentina/Buenos_Aires"), "America/Argentina/Buenos_Aires"),
        (tzutc(), "UTC"),
        (tzoffset(None, 7200), "UTC+02:00"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("UTC", "UTC"),
        ("-03:30", "UTC-03:30"),
    ],
)
def test_a_zone_has_a_name_that_pandas_reads(zone: object, name: str) -> None:
    index = pd.date_range("2024-03-25", periods=11, freq="D", tz=zone)  # type: ignore[call-overload]
    assert index.tz is not None and zone_name(index.tz) == name
    assert describe_step(index) == f"'D' in {name}"
    assert list(index.tz_convert(name).hour) == [0] * 11


CALENDARS = ("MS", "ME", "QE-DEC", "YS", "B", "2B", "W-SUN", "SME", "bh", "3MS", "WOM-2TUE")


@pytest.mark.parametrize("freq", CALENDARS)
def test_rows_of_a_calendar_are_numbered_one_by_one_in_every_century(freq: str) -> None:
    for start in ("0301-02-02", "1749-01-05", "1969-10-03", "2024-01-03", "9970-01-03"):
        index = pd.date_range(start, periods=11, freq=freq, unit="s")
        numbers = [row_number(pd.DatetimeIndex(index[: rows + 1], freq=freq)) for rows in range(11)]
        assert np.diff(numbers).tolist() == [1] * 10
    listed = pd.date_range("1970-01-01", "1975-05-05", freq=freq)
    assert row_number(listed) == len(listed)
