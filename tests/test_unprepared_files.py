"""Files as other programs write them: titles, comments, units, sheets, numbers for dates, rows that are not there."""

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from primecast import Forecaster, InputError
from primecast.cli.app import main
from primecast.frames import validate
from primecast.frames.columns import may_mean_missing
from primecast.frames.read import OpenTable, open_table

ROWS, HORIZON = 211, 3
START = pd.Timestamp("2024-02-27")
HOURS = pd.date_range(START, periods=ROWS, freq="h")
RIDGE: dict[str, Any] = {"horizon": HORIZON, "lookback": 13, "model": "ridge", "progress": "off"}
A, B = (
    (20 + 5 * np.sin(np.arange(ROWS) * np.pi / 12 + phase) + np.random.default_rng(phase).normal(size=ROWS)).round(2)
    for phase in (0, 2)
)


def lines(*above: str, names: str = "time,T,p", rows: list[str] | None = None) -> str:
    body = [f"{hour},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)] if rows is None else rows
    return "\n".join([*above, names, *body]) + "\n"


def opened(folder: Path, content: str | bytes, name: str = "plant.csv", **options: Any) -> OpenTable:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return open_table(path, **options)


def clock_rows(sep: str, day: str, clock: str) -> list[str]:
    return [f"{hour:{day}}{sep}{hour:{clock}}{sep}{a}{sep}{b}" for hour, a, b in zip(HOURS, A, B, strict=True)]


def numbered(numbers: pd.Index) -> list[str]:
    return [f"{number},{a},{b}" for number, a, b in zip(numbers, A, B, strict=True)]


ROWS_OF_DATA = list(zip(HOURS, A, B, strict=True))
UNIX = HOURS.astype("datetime64[s]").astype("int64")
FILES: dict[str, tuple[str, str]] = {
    "titles": (lines("Station: Potsdam", "Lat: 52.4", ""), "2 lines above the names left out"),
    "titles with commas": (lines("Station,Potsdam", "3 m, 52.4 N"), ""),
    "comments": (lines("# sensors of hall 3", "% second floor"), "2 lines above the names left out"),
    "names in a comment": (lines("# hall 3", names="# time,T,p"), "names from the comment above the rows"),
    "the separator that Excel writes": (lines("sep=,"), "1 line above the names left out"),
    "units under the names": (lines(names="time,T,p\n,degC,hPa"), "left out under the names: 'degC hPa'"),
    "a logger": (
        lines("TOA5,hall 3,CR1000,1234,CPU:hall.CR1", names="time,T,p\nTS,degC,hPa\n,Avg,Smp"),
        "left out under the names: 'TS degC hPa', 'Avg Smp'",
    ),
    "units in cells": (
        lines(rows=[f"{hour},{a} °C,{b:.2f}hPa" for hour, a, b in zip(HOURS, A, B, strict=True)]),
        "units: °C of T, hPa of p",
    ),
    "a clock of any name": (lines(names="Day,At,T,p", rows=clock_rows(",", "%d.%m.%Y", "%H:%M")), "time from Day, At"),
    "a clock of twelve hours": (
        lines(names="Day,At,T,p", rows=clock_rows(",", "%Y-%m-%d", "%I:%M %p")),
        "time from Day, At",
    ),
    "Unix seconds": (lines(names="timestamp,T,p", rows=numbered(UNIX)), "Unix seconds"),
    "Unix milliseconds": (lines(names="ts,T,p", rows=numbered(UNIX * 1000)), "Unix milliseconds"),
    "dates as numbers": (
        lines(names="date,T,p", rows=numbered(HOURS.strftime("%Y%m%d%H"))),
        "dates like 2024013123",
    ),
    "days that end at 24:00": (
        lines(
            rows=[
                f"{hour - pd.Timedelta('1h'):%Y-%m-%d} {hour.hour or 24:02d}:00,{a},{b}" for hour, a, b in ROWS_OF_DATA
            ]
        ),
        "hourly",
    ),
    "intervals": (
        lines(
            rows=[
                f"{hour:%d.%m.%Y %H:%M} - {hour + pd.Timedelta('1h'):%d.%m.%Y %H:%M},{a},{b}"
                for hour, a, b in ROWS_OF_DATA
            ]
        ),
        "hourly",
    ),
    "days of Excel": (
        lines(names="Date,T,p", rows=numbered((HOURS - pd.Timestamp("1899-12-30")) / pd.Timedelta("1D"))),
        "days as Excel numbers them",
    ),
    "hours by their ends": (
        lines(
            names="Date,Hour Ending,T,p",
            rows=[f"{hour - pd.Timedelta('1h'):%m/%d/%Y},{hour.hour or 24},{a},{b}" for hour, a, b in ROWS_OF_DATA],
        ),
        "time from Date, Hour Ending",
    ),
    "an annotated export of a database": (
        lines(
            "#datatype,string,dateTime:RFC3339,dateTime:RFC3339,double,double",
            names=",result,_start,_time,T,p",
            rows=[f",,2024-01-01T00:00:00,{hour:%Y-%m-%dT%H:%M:%S},{a},{b}" for hour, a, b in ROWS_OF_DATA],
        ),
        "time column '_time'",
    ),
    "days of the year": (
        lines(
            names="YEAR,DOY,HR,T,p",
            rows=[f"{hour.year},{hour.day_of_year},{hour.hour},{a},{b}" for hour, a, b in ROWS_OF_DATA],
        ),
        "time from YEAR, DOY, HR",
    ),
    "no name for the dates": (lines(names=",T,p"), "time column 'time'"),
}


@pytest.mark.parametrize(("content", "said"), FILES.values(), ids=FILES.keys())
def test_a_file_that_no_one_prepared_gives_its_rows_and_says_what_was_done(
    content: str, said: str, tmp_path: Path
) -> None:
    table = opened(tmp_path, content)
    assert list(table.frame.columns) == ["T", "p"]
    np.testing.assert_array_equal(table.frame, np.column_stack([A, B]))
    index = pd.DatetimeIndex(table.frame.index)
    assert list(index.tz_localize(None)) == list(HOURS) and (index.tz is not None) == ("Unix" in said)
    assert said in table.describe()


def test_units_of_a_file_are_those_of_its_pictures(tmp_path: Path) -> None:
    for name in ("units under the names", "units in cells"):
        units = opened(tmp_path, FILES[name][0]).frame.attrs["units"]
        assert (units["T"], units["p"]) == (("degC" if "under" in name else "°C"), "hPa")


def test_names_that_are_numbers_below_an_empty_corner_are_names(tmp_path: Path) -> None:
    assert list(opened(tmp_path, lines(names=",773869,767541")).frame.columns) == ["773869", "767541"]
    rows = "\n".join(f"{number},{number + 1},{number + 2}" for number in range(7))
    with pytest.raises(InputError, match="holds no names but 17, 19"):
        opened(tmp_path, f",17,19\n{rows}\n")


def test_a_row_of_data_is_not_taken_for_units(tmp_path: Path) -> None:
    rows = [f"{hour},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)]
    bad = f"{HOURS[17]},Bad Input,{B[17]}"
    for first in (f"{HOURS[0]},,{B[0]}", f"{HOURS[0]},Bad Input,{B[0]}", f"{HOURS[0]},Bad Input,"):
        table = opened(tmp_path, lines(rows=[first, *rows[1:17], bad, *rows[18:]]), na="Bad Input")
        assert len(table.frame) == ROWS and list(np.flatnonzero(table.frame["T"].isna())) == [0, 17]


def test_text_with_numbers_is_not_taken_for_a_unit(tmp_path: Path) -> None:
    for cells in (["7 am", "8 am", "9 am"], ["3 kW", "5 W", "7 kW"], ["A1", "A2", "A3"], ["1 Jan", "2 Jan", "3 Jan"]):
        rows = [f"2024-01-0{day},{cell},{day}" for day, cell in enumerate(cells, 1)]
        assert opened(tmp_path, lines(names="date,x,y", rows=rows)).layout.left_out.keys() == {"x"}


@pytest.mark.parametrize(
    ("names", "stamps", "first", "words"),
    [
        ("week", [f"{year}-W{week:02d}" for year in (2022, 2023) for week in range(1, 53)], "2022-01-03", "weekly"),
        ("year", list(range(1901, 1990)), "1901-01-01", "yearly"),
        ("month", [f"{year}{month:02d}" for year in (2022, 2023) for month in range(1, 13)], "2022-01-01", "monthly"),
    ],
)
def test_weeks_months_and_years_are_dates(
    names: str, stamps: list[object], first: str, words: str, tmp_path: Path
) -> None:
    table = opened(
        tmp_path, lines(names=f"{names},flu", rows=[f"{one},{a}" for one, a in zip(stamps, A, strict=False)])
    )
    assert list(table.frame.columns) == ["flu"] and table.frame.index[0] == pd.Timestamp(first)
    assert words in table.describe()


def test_columns_of_any_name_make_a_date_in_the_order_of_its_parts(tmp_path: Path) -> None:
    rows = [f"{hour.year} {hour.month} {hour.day} {hour.hour} {a} {b}" for hour, a, b in ROWS_OF_DATA]
    time = "channel 0,channel 1,channel 2,channel 3"
    table = opened(tmp_path, "\n".join(rows), header=None, time=time)
    assert list(table.frame.index) == list(HOURS) and list(table.frame.columns) == ["channel 4", "channel 5"]
    stamps = "\n".join(f"{hour:%Y%m%d%H} {a} {b}" for hour, a, b in ROWS_OF_DATA)
    with pytest.raises(InputError, match="'channel 0' may hold dates like 2024013123: if so, give time='channel 0'"):
        opened(tmp_path, stamps, header=None)
    assert list(open_table(tmp_path / "plant.csv", header=None, time="channel 0").frame.index) == list(HOURS)


def test_a_row_without_a_date_is_named(tmp_path: Path) -> None:
    for options in ({}, {"time": "time"}):
        with pytest.raises(InputError, match=rf"column 'time' of .* holds dates, but row {ROWS + 1} has 'Mean'"):
            opened(tmp_path, lines() + f"Mean,20,21\n{HOURS[-1] + pd.Timedelta('1h')},20,21\n", **options)


def test_newest_rows_first_have_the_step_of_any_others(tmp_path: Path) -> None:
    table = opened(tmp_path, lines(rows=[f"{hour},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)][::-1]))
    assert f"{ROWS} rows, hourly, from 2024-02-27 " in table.describe()


WEEKS = pd.date_range("2019-01-07", periods=ROWS, freq="W-MON")


def test_a_year_and_a_week_make_a_date(tmp_path: Path) -> None:
    weeks = [f"{week.isocalendar().year},{week.isocalendar().week},{a}" for week, a in zip(WEEKS, A, strict=True)]
    table = opened(tmp_path, lines(names="year,week,flu", rows=weeks))
    assert list(table.frame.index) == list(WEEKS) and list(table.frame.columns) == ["flu"]
    assert "weekly" in table.describe() and "time from year, week" in table.describe()
    with pytest.raises(InputError, match="'week': 60} in .* is no date"):
        opened(tmp_path, lines(names="year,week,flu", rows=[*weeks[:50], "2021,60,1.5"]))


@pytest.mark.parametrize("names", ["Year,Month", "Jahr,Monat"])
@pytest.mark.parametrize("form", ["%m", "%B", "%b"])
def test_a_year_and_a_month_of_any_spelling_make_a_date(names: str, form: str, tmp_path: Path) -> None:
    months = pd.date_range("2005-01-01", periods=ROWS, freq="MS")
    rows = [f"{month.year},{month.strftime(form)},{a}" for month, a in zip(months, A, strict=True)]
    assert list(opened(tmp_path, lines(names=f"{names},a", rows=rows)).frame.index) == list(months)


def test_a_table_whose_dates_are_names_is_refused_with_the_line_that_turns_it(tmp_path: Path) -> None:
    days = [f"{day:%Y-%m-%d}" for day in HOURS[::24]]
    for dates in (days, [str(year) for year in range(1960, 1990)]):
        row = ",".join(f"{value}" for value in A[: len(dates)])
        with pytest.raises(
            InputError, match="stand in its first row, with a row for each series below: turn .*T.to_csv"
        ):
            opened(tmp_path, lines(names=f"place,{','.join(dates)}", rows=[f"north,{row}", f"south,{row}"]))


@pytest.mark.parametrize(
    ("cell", "number"),
    [("---", np.nan), (".", np.nan), ("n.a.", np.nan), ("\u2013", np.nan), ("#NV", np.nan), ("\u22121.5", -1.5),
     ("(1.5)", -1.5)],
)  # fmt: skip
def test_cells_of_reports_and_spreadsheets_are_numbers_or_missing(cell: str, number: float, tmp_path: Path) -> None:
    rows = [f"{hour},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)]
    rows[7] = f"{HOURS[7]},{cell},{B[7]}"
    table = opened(tmp_path, lines(rows=rows))
    np.testing.assert_array_equal(table.frame["T"], np.where(np.arange(ROWS) == 7, number, A))


def test_names_of_two_rows_are_joined_where_those_of_one_repeat(tmp_path: Path) -> None:
    rows = [f"{hour},{a},{b},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)]
    joined = ["hall 1 T", "hall 1 p", "hall 2 T", "hall 2 p"]
    for names, units in (
        (",hall 1,,hall 2,\ntime,T,p,T,p", ""),
        ("hall,hall 1,hall 1,hall 2,hall 2\nwhat,T,p,T,p\ntime,,,,", ", left out under the names: 'time'"),
        (",hall 1,,hall 2,\ntime,T,p,T,p\n,degC,hPa,degC,hPa", ", left out under the names: 'degC hPa degC hPa'"),
    ):
        table = opened(tmp_path, lines(names=names, rows=rows))
        assert list(table.frame.columns) == joined and len(table.frame) == ROWS
        assert f"two rows of names{units})" in table.describe()
    repeated = opened(tmp_path, lines(names="time,T,T,T,T\n,degC,degC,degC,degC", rows=rows))
    assert list(repeated.frame.columns) == ["T", "T.1", "T.2", "T.3"]


def test_names_of_merged_cells_of_a_workbook_are_joined(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    head = pd.DataFrame([[None, "hall 1", None, None, "hall 2", None], ["time", "T", "p", "T.", "T", "p"]])
    for above, names in ((head, ["hall 1 T", "hall 1 p", "hall 1 T.", "hall 2 T", "hall 2 p"]),
                         (head.iloc[1:].replace("p", "T"), ["T", "T.1", "T.", "T.2", "T.3"])):  # fmt: skip
        body = pd.DataFrame([[hour, a, b, a, b, a] for hour, a, b in ROWS_OF_DATA], dtype=object)
        pd.concat([above, body]).to_excel(tmp_path / "plant.xlsx", header=False, index=False)
        assert list(open_table(tmp_path / "plant.xlsx").frame.columns) == names


def test_names_with_commas_are_told_apart_and_chosen(tmp_path: Path) -> None:
    table = opened(tmp_path, lines(names='time,"T, hall 1","p, hall 1"'))
    assert '2 channels: "T, hall 1", "p, hall 1"; ' in table.describe()
    chosen = open_table(tmp_path / "plant.csv", columns="p, hall 1,T, hall 1")
    assert set(chosen.frame.columns) == {"T, hall 1", "p, hall 1"}
    assert list(open_table(tmp_path / "plant.csv", columns="p, hall 1").frame.columns) == ["p, hall 1"]


def test_the_reading_of_a_meter_and_a_count_of_seconds_are_said(tmp_path: Path) -> None:
    rows = [f"{hour},{a:.2f},{0.5 * i}" for i, (hour, a) in enumerate(zip(HOURS, np.cumsum(A), strict=True))]
    described = opened(tmp_path, lines(names="time,meter,elapsed", rows=rows)).describe()
    assert "kept: meter never falls, like the reading of a meter: " in described
    assert "elapsed rises by 0.5 in each row" in described


@pytest.mark.parametrize("number", [np.inf, -np.inf, 1.7e308, -1.7e308])
def test_numbers_without_differences_are_no_meter_and_no_sentinel(number: float) -> None:
    column = pd.Series([*A, number, number, -number])
    assert may_mean_missing(column) == {}
    assert open_table(pd.DataFrame({"a": column})).kept == ()


def test_a_number_that_may_mean_missing_is_said_once_for_all_channels(tmp_path: Path) -> None:
    rows = [f"{hour},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)]
    rows[5] = f"{HOURS[5]},-999,-999"
    assert opened(tmp_path, lines(rows=rows)).describe().splitlines()[2:] == [
        "note: -999 stands in 1 row of T, 1 row of p, far from all other values; if it means missing, give na=-999"
    ]


# ---------------------------------------------------------------- other files


def test_the_table_of_a_workbook_is_found_below_its_titles_in_its_fullest_sheet(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "plant.xlsx"
    frame = pd.DataFrame({"Date": HOURS, "T": A, "p": [f"{b:.2f}".replace(".", ",") for b in B]})
    with pd.ExcelWriter(path) as book:
        pd.DataFrame({"read me": ["first"]}).to_excel(book, sheet_name="Notes", index=False)
        frame.to_excel(book, sheet_name="Data", index=False, startrow=3, startcol=1)
        book.sheets["Data"]["A1"] = "Report of hall 3"
    table = open_table(path)
    np.testing.assert_allclose(table.frame, np.column_stack([A, B]))
    assert list(table.frame.index) == list(HOURS)
    assert "sheet 'Data' of 2, 1 row above the names left out" in table.describe()


def test_a_packed_file_of_one_table_is_read_and_one_of_two_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plant.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("plant.csv", lines())
    np.testing.assert_array_equal(open_table(path).frame["T"], A)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other.csv", lines())
    with pytest.raises(InputError, match=r"holds 2 files, plant.csv, other.csv; unpack it"):
        open_table(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": [1, 2]}', "is no CSV but JSON; .*pandas.read_json"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an Excel file of before 2007; save it as .xlsx"),
        (b"PAR1 and more", "Parquet; give its name the ending .parquet"),
        (b"\x89HDF\r\n\x1a\n", "HDF5 or NetCDF"),
    ],
)
def test_files_of_other_programs_are_refused_with_what_to_do(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        opened(tmp_path, content)


def test_an_ending_in_capitals_is_the_same_ending(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": A, "b": B}, index=HOURS.rename("time")).to_parquet(tmp_path / "PLANT.PARQUET")
    np.testing.assert_array_equal(open_table(tmp_path / "PLANT.PARQUET").frame["a"], A)


# ---------------------------------------------------------------- what means missing


def test_cells_that_mean_missing_are_named(tmp_path: Path) -> None:
    rows = [f"{hour},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)]
    rows[5], rows[7], rows[11] = f"{HOURS[5]},-9999,1.5", f"{HOURS[7]}, Bad Input ,2.5", f"{HOURS[11]},-9999,3.5"
    with pytest.raises(InputError, match="holds 'Bad Input '; .* na='Bad Input'"):
        validate(opened(tmp_path, lines(rows=rows)).frame)
    doubtful = opened(tmp_path, lines(rows=rows), na="Bad Input")
    said = "note: -9999 stands in 2 rows of T, far from all other values; if it means missing, give na=-9999"
    assert doubtful.describe().splitlines()[2:] == [said]
    for given in (["Bad Input", -9999], ["Bad Input", "-9999"], ["Bad Input", -9999.0]):
        table = opened(tmp_path, lines(rows=rows), na=given)
        assert list(np.flatnonzero(table.frame["T"].isna())) == [5, 7, 11] and not table.frame["p"].isna().any()
    frame = pd.DataFrame({"T": A, 17: B}, index=HOURS)
    frame.iloc[13, 1] = -999
    assert open_table(frame, na=-999).frame[17].isna().sum() == 1


def test_what_means_missing_means_it_for_a_saved_model_too(tmp_path: Path) -> None:
    rows = [f"{hour},{a},{b}" for hour, a, b in zip(HOURS, A, B, strict=True)]
    rows[-1] = f"{HOURS[-1]},-9999,3.5"
    path = tmp_path / "plant.csv"
    path.write_text(lines(rows=rows))
    fitted = Forecaster(**RIDGE, missing="ffill").fit(path, na=[-9999])
    fitted.save(tmp_path / "model")
    forecast = Forecaster.load(tmp_path / "model").predict(path)
    pd.testing.assert_frame_equal(forecast, fitted.predict())
    assert forecast.to_numpy().min() > 0


TENS = [10.5, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20.5]


@pytest.mark.parametrize(
    ("values", "found"),
    [([5.0, 6, 7, -9999, -9999], ["-9999"]), ([5.0, 6, 7, 99], ["99"]), ([5.0, 6, 7, 700], []), ([97.0, 98, 99], []),
     ([1.0, 500, 999], []), ([99.0, 99], []), ([np.nan, np.nan], []), ([5.0, 6, 7, -999, 9999], ["-999", "9999"]),
     ([*TENS, -127, -127], ["-127"]), ([*TENS, 32767, 32767], ["32767"]), ([*TENS, 32767], []), ([*TENS, 0, 0], []),
     ([*TENS, *[-127] * 5], []), ([*TENS, 25, 25], [])],
)  # fmt: skip
def test_a_number_is_doubted_if_it_is_of_nines_or_repeats_and_is_far_from_all_others(
    values: list[float], found: list[str]
) -> None:
    assert list(may_mean_missing(pd.Series(values))) == found


# ---------------------------------------------------------------- rows that are not there


@pytest.mark.parametrize("freq", ["h", "B", "MS", "15min"])
def test_absent_rows_are_gaps_under_a_policy_for_gaps(freq: str) -> None:
    whole = pd.DataFrame({"a": A, "b": B}, index=pd.date_range("2020-01-01", periods=ROWS, freq=freq))
    lacking = whole.drop(index=whole.index[[17, 18, 101]])
    table = open_table(lacking)
    assert "; 3 rows that are not there are gaps; 3 of " in table.describe(missing="ffill")
    checked = validate(lacking, missing="mask")
    assert list(checked.index) == list(whole.index) and checked["a"].isna().sum() == 3
    with pytest.raises(InputError, match="rows are missing: missing='interpolate' makes gaps of them"):
        validate(lacking)


def test_a_table_that_lacks_most_rows_or_an_hour_of_summer_time_is_still_refused() -> None:
    whole = pd.DataFrame({"a": A, "b": B}, index=pd.date_range("2024-03-27", periods=ROWS, freq="h"))
    with pytest.raises(InputError, match="rows are missing"):
        validate(whole.iloc[[0, 1, 2, 3, 4, 5, ROWS - 2, ROWS - 1]], missing="ffill")
    with pytest.raises(InputError, match="clocks seem to have changed"):
        validate(whole.drop(index=[pd.Timestamp("2024-03-31 02:00")]), missing="ffill")


def test_a_later_table_may_lack_rows_as_the_first_one_did(tmp_path: Path) -> None:
    days = pd.DataFrame({"a": A, "b": B}, index=pd.bdate_range("2022-01-03", periods=ROWS))
    fitted = Forecaster(**RIDGE, missing="ffill").fit(days.drop(index=days.index[[19, 53]]))
    fitted.save(tmp_path / "model")
    later = days.iloc[-23:].drop(index=days.index[-7])  # three weeks of days: without the step of fit they look daily
    filled = days.iloc[-23:].copy()
    filled.iloc[-7] = filled.iloc[-8]
    forecast = Forecaster.load(tmp_path / "model").predict(later)
    np.testing.assert_allclose(forecast, fitted.predict(filled), rtol=0, atol=1e-9)
    assert list(forecast.index) == list(pd.bdate_range(days.index[-1], periods=HORIZON + 1)[1:])
    strict = Forecaster(**RIDGE).fit(days)
    with pytest.raises(InputError, match="irregular"):
        strict.predict(later)


def test_dated_rows_are_brought_to_a_step_by_their_means(tmp_path: Path) -> None:
    minutes = pd.date_range(START, periods=6 * ROWS, freq="10min")
    frame = pd.DataFrame({"T": np.repeat(A, 6) + np.tile([-5.0, 5, -3, 3, -1, 1], ROWS)}, index=minutes)
    table = open_table(frame.sample(frac=1, random_state=0), freq="h")
    np.testing.assert_allclose(table.frame["T"], A)
    assert "hourly" in table.describe() and "means of steps of 'h'" in table.describe()
    # Clocks that are a little early or late belong to the nearest step.
    jitter = HOURS + pd.to_timedelta(np.random.default_rng(3).integers(-29, 30, ROWS), unit="s")
    rows = [f"{hour},{a},{b}" for hour, a, b in zip(jitter, A, B, strict=True)]
    with pytest.raises(InputError, match="bring them to one step by the means within each, freq='h'"):
        validate(opened(tmp_path, lines(rows=rows)).frame)
    table = opened(tmp_path, lines(rows=rows), freq="h")
    np.testing.assert_array_equal(table.frame, np.column_stack([A, B]))
    with pytest.raises(InputError, match="211 rows from 2024-02-27 .* are too few for steps of '10ms'"):
        open_table(tmp_path / "plant.csv", freq="10ms")
    fitted = Forecaster(**RIDGE).fit(tmp_path / "plant.csv", freq="h")
    fitted.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model").predict(tmp_path / "plant.csv")
    pd.testing.assert_frame_equal(again, fitted.predict())


# ---------------------------------------------------------------- long tables


def long_rows() -> pd.DataFrame:
    parts = [
        pd.DataFrame({"store": name, "date": HOURS, "sales": values, "area": area, "promo": np.arange(ROWS) // 7 % 2})
        for name, values, area in (("north", A, 120), ("south", B, 80))
    ]
    return pd.concat(parts)


def test_a_table_that_looks_long_is_refused_with_the_names_that_read_it(tmp_path: Path) -> None:
    long_rows().to_csv(tmp_path / "sales.csv", index=False)
    message = "repeat, once for each store: if it is a long table, .* give id='store', value='sales'"
    with pytest.raises(InputError, match=message):
        open_table(tmp_path / "sales.csv")
    with pytest.raises(InputError, match="no column 'y' for the values: name one, such as value='sales'"):
        open_table(tmp_path / "sales.csv", id="store")
    table = open_table(tmp_path / "sales.csv", id="store", value="sales", covariates=["promo"])
    np.testing.assert_array_equal(table.frame[["north", "south"]], np.column_stack([A, B]))
    assert "long, 2 series by 'store'" in table.describe()
    assert "2 channels: north, south; covariates: promo; " in table.describe()
    assert "area (constant in each series, tells no more than the name of the series)" in table.describe()


def test_long_rows_whose_times_are_mixed_are_refused_with_the_names_that_read_them() -> None:
    late = pd.to_timedelta(np.random.default_rng(7).integers(0, 3000, 2 * ROWS), unit="s")
    long = long_rows().drop(columns=["area", "promo"]).reset_index(drop=True)
    mixed = long.assign(date=long["date"] + late, sales=long["sales"].astype(str)).sort_values(
        "date", ignore_index=True
    )
    order = mixed["store"].ne("north").argsort(kind="stable")
    mixed.loc[5, "sales"] = "unavailable"
    message = "only within each store: .* give id='store', value='sales' and a step for all series, such as freq='h'"
    with pytest.raises(InputError, match=message):
        open_table(mixed.loc[order], time="date")


def test_long_rows_at_irregular_times_are_brought_to_a_step() -> None:
    late = pd.to_timedelta(np.random.default_rng(7).integers(0, 3000, 2 * ROWS), unit="s")
    long = long_rows().reset_index(drop=True)
    table = open_table(long.assign(date=long["date"] + late), id="store", value="sales", freq="h")
    np.testing.assert_array_equal(table.frame[["north", "south"]], np.column_stack([A, B]))
    assert list(table.frame.index) == list(HOURS)


# ---------------------------------------------------------------- from the shell, with three options at most


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["primecast", *arguments, "--set", "model=ridge", "--horizon", str(HORIZON)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return f"{stop.value.code or 0}\n{out}{err}"

    return run


def test_the_shell_reads_long_tables_covariates_and_cells_that_mean_missing(
    shell: Callable[..., str], tmp_path: Path
) -> None:
    frame = long_rows()
    frame.loc[frame["date"] == HOURS[23], "sales"] = -9999
    frame.to_csv(tmp_path / "sales.csv", index=False)
    assert "give --id store, --value sales" in shell("forecast", "sales.csv")
    long = ["forecast", "sales.csv", "--id", "store", "--value", "sales"]
    said = shell(*long)
    assert said.startswith("0\ndate,north,") and "note: -9999 stands in 1 row of north" in said
    assert "if it means missing, give --na -9999\n" in said
    assert "2 values are missing" in shell(*long, "--na", "-9999")
    said = shell(*long, "--na", "-9999", "--missing", "ffill", "--future", "promo")
    assert said.startswith("0\n") and "3 of 3 future values of promo are not known" in said and "--future FILE" in said
    assert "covariate 'area' is constant in each series" in shell(*long, "--past", "area")
    assert "unknown covariate 'pro' (did you mean 'promo'?)" in shell(*long, "--past", "pro")


def test_the_shell_says_what_to_type_where_rows_are_not_there_or_are_off_their_step(
    shell: Callable[..., str], tmp_path: Path
) -> None:
    frame = pd.DataFrame({"time": HOURS, "a": A, "b": B})
    frame.drop(index=[29, 31]).to_csv(tmp_path / "lacking.csv", index=False)
    assert "rows are missing: --missing interpolate makes gaps of them" in shell("forecast", "lacking.csv")
    said = shell("forecast", "lacking.csv", "--missing", "interpolate")
    assert said.startswith("0\n") and "2 rows that are not there are gaps" in said
    frame.assign(time=HOURS + pd.to_timedelta(np.arange(ROWS) % 5, unit="s")).to_csv("off.csv", index=False)
    assert "means within each, --freq h\n" in shell("forecast", "off.csv")
    assert shell("forecast", "off.csv", "--freq", "h").startswith("0\n")
    assert "unknown time zone 'Berlin' (did you mean 'Europe/Berlin'?)" in shell(
        "forecast", "off.csv", "--tz", "Berlin"
    )


# ---------------------------------------------------------------- sentences


def test_errors_of_python_name_what_mends_them() -> None:
    frame = pd.DataFrame({"a": A, "b": B}, index=HOURS)
    with pytest.raises(InputError, match=r"unknown argument of fit 'tim' \(did you mean 'time'\?\)"):
        Forecaster(**RIDGE).fit(frame, tim="a")
    with pytest.raises(InputError, match=r"1 axes; a single channel is array\[:, None\]"):
        open_table(A)
    with pytest.raises(InputError, match=r"dates as text or objects: df.index = pd.to_datetime\(df.index\)"):
        validate(frame.set_axis(HOURS.astype(str)))
    with pytest.raises(InputError, match="has 17 rows, .* shorten them or give more rows; (\\d+) are enough") as stop:
        Forecaster(**{**RIDGE, "lookback": 23}).fit(frame.head(17))
    enough = int(str(stop.value).split("; ")[-1].split()[0])
    longer = pd.DataFrame({"a": np.resize(A, enough), "b": np.resize(B, enough)})
    Forecaster(**{**RIDGE, "lookback": 23}).fit(longer)
    with pytest.raises(InputError, match=f"{enough} are enough"):
        Forecaster(**{**RIDGE, "lookback": 23}).fit(longer.head(enough - 1))


def test_too_few_rows_are_refused_with_a_horizon_for_which_they_are_enough() -> None:
    months = pd.DataFrame({"a": A[:60]}, index=pd.date_range("2019-01-01", periods=60, freq="MS"))
    with pytest.raises(InputError, match="the validation split .*; 111 are enough, and for horizon=6 these are$"):
        Forecaster(**{**RIDGE, "horizon": 12, "lookback": 10}).fit(months)
    Forecaster(**{**RIDGE, "horizon": 6, "lookback": 10}).fit(months)
    with pytest.raises(InputError, match="are enough, and for horizon=6 these are$"):
        Forecaster(**{**RIDGE, "horizon": 7, "lookback": 10}).fit(months)
    with pytest.raises(InputError, match="are enough$"):
        Forecaster(**{**RIDGE, "horizon": 12, "lookback": 50}).fit(months)


def test_relations_are_shown_as_their_pairs() -> None:
    frame = pd.DataFrame({"a": A, "b": np.roll(A, 2)}, index=HOURS)
    found = Forecaster(**RIDGE).fit(frame).relations()
    assert repr(found).splitlines()[0] == f"Relations of 2 channels: {len(found.pairs())} significant lead-lag pairs"
    assert len(repr(found).splitlines()) == 1 + bool(len(found.pairs())) + len(found.pairs())
