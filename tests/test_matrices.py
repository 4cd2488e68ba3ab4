"""Matrices: years by months and days by hours are one series; tables of 12 or 24 channels stay what they are."""

from calendar import month_name
from datetime import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from primecast import Forecaster, InputError
from primecast.frames.read import open_table

YEARS, DAYS = 31, 53
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHLY = pd.Series(
    np.random.default_rng(0).normal(size=12 * YEARS).round(2),
    index=pd.date_range("1987-01-01", periods=12 * YEARS, freq="MS"),
)
HOURLY = pd.Series(
    np.random.default_rng(1).normal(size=24 * DAYS).round(2),
    index=pd.date_range("2024-02-13", periods=24 * DAYS, freq="h"),
)


def years_by_months(names: list[Any] | None = None) -> pd.DataFrame:
    years = pd.Index(range(1987, 1987 + YEARS), name="Year")
    return pd.DataFrame(MONTHLY.to_numpy().reshape(YEARS, 12), index=years, columns=names or [*MONTHS])


def days_by_hours(names: list[Any]) -> pd.DataFrame:
    days = pd.Index(pd.date_range("2024-02-13", periods=DAYS).strftime("%d.%m.%Y"), name="Date")
    return pd.DataFrame(HOURLY.to_numpy().reshape(DAYS, 24), index=days, columns=names)


def written(frame: pd.DataFrame, folder: Path, *, above: str = "") -> Path:
    path = folder / "table.csv"
    path.write_text(above + frame.to_csv(), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "names",
    [
        [*MONTHS],
        [name.upper() for name in MONTHS],
        [*month_name][1:],
        ["Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez"],
        ["janv.", "févr.", "mars", "avr.", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."],
    ],
)
def test_years_by_months_are_one_monthly_series_and_that_is_said(names: list[Any], tmp_path: Path) -> None:
    table = open_table(written(years_by_months(names), tmp_path))
    pd.testing.assert_series_equal(table.frame["value"], MONTHLY, check_names=False, check_freq=False)
    assert list(table.frame.columns) == ["value"]
    assert f"{12 * YEARS} rows, monthly, from 1987-01-01" in table.describe()
    assert f"months of {YEARS} years as one series" in table.describe()


def test_a_climate_series_has_means_of_seasons_stars_for_missing_and_an_unfinished_year(tmp_path: Path) -> None:
    frame = years_by_months().assign(**dict.fromkeys(["J-D", "D-N", "DJF"], 0.17)).astype(object)
    frame.iloc[0, 13:] = "***"
    frame.iloc[-1, 3:] = "***"
    frame.iloc[7, 5] = "****"
    table = open_table(written(frame, tmp_path, above="Land-Ocean: Global Means\n"))
    expected = MONTHLY.iloc[:-9].where(np.arange(12 * YEARS - 9) != 7 * 12 + 5)
    pd.testing.assert_series_equal(table.frame["value"], expected, check_names=False, check_freq=False)
    assert "left out: J-D, D-N, DJF (beside the months)" in table.describe()


def test_years_may_be_the_index_of_a_frame_and_months_in_any_order() -> None:
    for frame in (years_by_months(), years_by_months()[sorted(MONTHS)], years_by_months().iloc[::-1]):
        table = open_table(frame)
        pd.testing.assert_series_equal(table.frame["value"], MONTHLY, check_names=False, check_freq=False)


def test_years_that_do_not_begin_in_january_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="begin with Oct, and whether they are named after their first or their last"):
        open_table(written(years_by_months()[[*MONTHS[9:], *MONTHS[:9]]], tmp_path))


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ([f"{hour:02d}:00" for hour in range(24)], "2024-02-13 00:00"),
        ([f"{hour}:00:00" for hour in range(24)], "2024-02-13 00:00"),
        ([f"{hour:02d}:00 - {hour + 1:02d}:00" for hour in range(24)], "2024-02-13 00:00"),
        ([f"{hour:02d}:00" for hour in range(1, 25)], "2024-02-13 01:00"),
    ],
)
def test_days_by_times_of_day_are_one_hourly_series(names: list[Any], first: str, tmp_path: Path) -> None:
    table = open_table(written(days_by_hours(names).assign(Mean=0.5), tmp_path))
    assert list(table.frame.index) == list(HOURLY.index + (pd.Timestamp(first) - HOURLY.index[0]))
    np.testing.assert_array_equal(table.frame["value"], HOURLY)
    said = table.describe()
    assert f"hours of {DAYS} days as one series" in said and "left out: Mean (beside the hours)" in said
    assert ("by their ends" in said) == ("01:00" in first)


def test_a_workbook_of_days_by_times_of_day_and_half_hours_are_read_alike(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    days_by_hours([time(hour) for hour in range(24)]).to_excel(tmp_path / "table.xlsx")
    np.testing.assert_array_equal(open_table(tmp_path / "table.xlsx").frame["value"], HOURLY)
    names = [f"{hour:02d}:{minute}" for hour in range(24) for minute in ("00", "30")]
    halves = pd.DataFrame(np.arange(48.0 * DAYS).reshape(DAYS, 48), index=HOURLY.index[::24], columns=names)
    table = open_table(halves)
    assert "every 30 minutes" in table.describe() and list(table.frame["value"]) == list(range(48 * DAYS))


@pytest.mark.parametrize(
    "names",
    [[*range(24)], [*range(1, 25)], [f"H{hour}" for hour in range(1, 25)], [f"h{hour:02d}" for hour in range(24)]],
)
def test_columns_that_may_be_hours_or_channels_are_refused_until_it_is_said(names: list[Any], tmp_path: Path) -> None:
    path = written(days_by_hours(names), tmp_path)
    first, last = names[0], names[-1]
    with pytest.raises(
        InputError, match=f"columns {first} to {last} of .* may be the hours of each day, .*matrix=True"
    ):
        open_table(path)
    np.testing.assert_array_equal(open_table(path, matrix=True).frame["value"], HOURLY)
    channels = open_table(path, matrix=False).frame
    assert channels.shape == (DAYS, 24) and list(channels.columns) == [str(name) for name in names]


def test_columns_that_may_be_months_or_channels_are_refused_until_it_is_said(tmp_path: Path) -> None:
    path = written(years_by_months([*range(1, 13)]), tmp_path)
    with pytest.raises(InputError, match=r"columns 1 to 12 of .* months of each year, .* or 12 channels; choose with"):
        open_table(path)
    np.testing.assert_array_equal(open_table(path, matrix=True).frame["value"], MONTHLY)
    assert open_table(path, matrix=False).frame.shape == (YEARS, 12)
    assert open_table(written(years_by_months(), tmp_path), matrix=False).frame.shape == (YEARS, 12)


def test_years_by_months_without_names_are_refused_until_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "nino.txt"
    path.write_text(years_by_months().to_csv(sep=" ", header=False), encoding="utf-8")
    with pytest.raises(
        InputError, match="columns channel 1 to channel 12 of .* choose with matrix=True or matrix=False"
    ):
        open_table(path, header=None)
    np.testing.assert_array_equal(open_table(path, header=None, matrix=True).frame["value"], MONTHLY)


def channels(names: list[Any] | None, freq: str) -> pd.DataFrame:
    count = 24 if names is None else len(names)
    index = pd.date_range("2024-01-01", periods=DAYS, freq=freq)
    return pd.DataFrame(np.random.default_rng(2).normal(size=(DAYS, count)), index=index, columns=names)


@pytest.mark.parametrize(
    "frame",
    [
        channels([str(number) for number in range(24)], "h"),
        channels([str(number) for number in range(24)], "MS"),
        channels([str(number) for number in range(30)], "D"),
        channels([f"S{number}" for number in range(1, 25)], "D"),
        channels([str(number) for number in range(1, 13)], "D"),
        channels([*MONTHS], "D"),
        channels([*MONTHS[:11]], "YS"),
        channels(["hall 17:00", "hall 18:00"], "D"),
        channels(None, "D"),  # pandas itself counts columns without names
    ],
)
def test_a_table_of_channels_is_no_matrix(frame: pd.DataFrame, tmp_path: Path) -> None:
    table = open_table(frame)
    assert table.frame.shape == frame.shape and "one series" not in table.describe()
    if frame.columns.dtype != "int64":
        path = written(frame.rename_axis("time"), tmp_path)
        assert open_table(path).frame.shape == frame.shape


def test_what_is_called_a_matrix_and_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="matrix=True, but .* has neither years with 12 columns .* columns are time, a"
    ):
        open_table(written(channels(["a", "b"], "D").rename_axis("time"), tmp_path), matrix=True)


def test_matrices_of_several_stations_become_a_channel_for_each(tmp_path: Path) -> None:
    both = pd.concat([years_by_months().assign(station=name, height=70) for name in ("north", "south")])
    with pytest.raises(InputError, match="the years of .* repeat, the first 1987.*; give id='station'"):
        open_table(written(both, tmp_path))
    table = open_table(tmp_path / "table.csv", id="station")
    np.testing.assert_array_equal(table.frame[["north", "south"]], np.column_stack([MONTHLY, MONTHLY]))
    assert table.layout.left_out == {"height": "beside the months"}


@pytest.mark.parametrize("kind", ["file", "frame", "stations"])
def test_a_saved_model_reads_a_later_matrix_as_the_first_one(kind: str, tmp_path: Path) -> None:
    ridge: dict[str, Any] = {"horizon": 3, "lookback": 13, "model": "ridge", "progress": "off"}
    frame, options = years_by_months([*range(1, 13)]), dict[str, Any](matrix=True)
    data: Any = frame.reset_index()
    if kind == "file":
        data = written(frame, tmp_path)
    elif kind == "stations":
        data = pd.concat([frame.reset_index().assign(station=name) for name in ("north", "south")])
        options["id"] = "station"
    fitted = Forecaster(**ridge).fit(data, **options)
    fitted.save(tmp_path / "model")
    expected = fitted.predict()
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "model").predict(data), expected)
    if kind == "frame":
        assert list(expected.columns) == ["time", "value"] and expected["time"].iloc[0] == pd.Timestamp("2018-01-01")
