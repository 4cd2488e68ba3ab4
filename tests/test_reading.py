"""Tables as people have them: separators, signs, encodings, dates in several columns; each is read right or refused."""

import datetime
import gzip
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primecast.cli.app import main
from primecast.data import formats
from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.intervals import check_levels
from primecast.frames import text_files
from primecast.frames.numbers import SPACES, WITH_UNIT, numbers_in_text
from primecast.frames.read import ColumnsLeftOutWarning, OpenTable, open_table, read_table
from primecast.frames.validate import SilentChannelWarning, validate

ROWS = 101
QUICK: dict[str, Any] = {"horizon": 3, "lookback": 11, "epochs": 1, "model": "dlinear", "progress": "off"}


def hourly(rows: int = ROWS, start: str = "2024-01-28", **options: Any) -> pd.DataFrame:
    values = np.random.default_rng(5).normal(size=(rows, 2)).round(3)
    return pd.DataFrame(values, index=pd.date_range(start, periods=rows, freq="h", **options), columns=["a", "b"])


def opened(folder: Path, content: str | bytes, name: str = "plant.csv", **options: Any) -> OpenTable:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return open_table(folder / name, **options)


# ---------------------------------------------------------------- separators, signs, encodings


@pytest.mark.parametrize("sep", [",", ";", "\t", "|", " ", "   "])
@pytest.mark.parametrize("decimal", [".", ","])
def test_separators_and_decimal_signs_are_found(sep: str, decimal: str, tmp_path: Path) -> None:
    if sep == decimal:
        return
    rows = [sep.join([f"{stamp:%Y-%m-%dT%H:%M}", *(f"{x}".replace(".", decimal) for x in row)])
            for stamp, row in zip(hourly().index, hourly().to_numpy(), strict=True)]  # fmt: skip
    table = opened(tmp_path, "\n".join([sep.join(["when", "a", "b"]), *rows]))
    pd.testing.assert_frame_equal(table.frame, hourly(), check_names=False, check_freq=False)
    assert table.layout.decimal == decimal


@pytest.mark.parametrize(
    ("cells", "numbers", "options"),
    [
        (['" 1,234.5 "', '"2,000.25"', '" 17"'], [1234.5, 2000.25, 17], {}),
        (['"1.234,5"', '"2.000,25"', '"17"'], [1234.5, 2000.25, 17], {}),
        (['"12,5"', '"1,25"', '"1"'], [12.5, 1.25, 1], {}),
        (['"0,125"', '"1,250"', '"1"'], [0.125, 1.25, 1], {}),
        (["1 234.5", "12 000", "1"], [1234.5, 12000, 1], {}),
        (["1'234.5", "12'000", "?"], [1234.5, 12000, np.nan], {}),
        (['"1,234"', '"2,345"', '"7,000"'], [1234, 2345, 7000], {"decimal": "."}),
        (['"1,234"', '"2,345"', '"7,000"'], [1.234, 2.345, 7], {"decimal": ","}),
    ],
)
def test_padded_and_grouped_numbers_are_numbers(
    cells: list[str], numbers: list[float], options: dict[str, Any], tmp_path: Path
) -> None:
    rows = [f"2024-01-0{day},{cell}" for day, cell in enumerate(cells, 1)]
    np.testing.assert_array_equal(opened(tmp_path, "\n".join(["date,a", *rows]), **options).frame["a"], numbers)


def test_a_comma_that_may_be_either_sign_is_refused(tmp_path: Path) -> None:
    rows = "\n".join(f'2024-01-0{day},"{day},234"' for day in range(1, 6))
    message = r"'1,234' in column 'a' of .* may be 1234 or 1.234, .*choose with decimal='.' or decimal=','"
    with pytest.raises(InputError, match=message):
        opened(tmp_path, f"date,a\n{rows}")
    fractions = "\n".join(f'2024-01-0{day},"{day},234",0.5' for day in range(1, 6))
    assert opened(tmp_path, f"date,a,b\n{fractions}").frame["a"].iloc[0] == 1234
    with pytest.raises(InputError, match="unknown decimal sign ';'"):
        read_table(tmp_path / "plant.csv", decimal=";")


@given(st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 3)) | st.none(), min_size=1, max_size=13), st.booleans())
def test_numbers_in_text_come_back_whatever_their_signs(values: list[float | None], commas: bool) -> None:
    def written(value: float | None) -> str:
        text = "NA" if value is None else f" {value:,.3f} "
        return text.translate(str.maketrans(",.", ".,")) if commas else text

    column = pd.Series([written(value) for value in values], dtype=object)
    found = numbers_in_text(column, decimal="," if commas else ".")
    if any(value is not None for value in values):
        np.testing.assert_allclose(found.to_numpy(float), np.array(values, dtype=float), rtol=0, atol=1e-6)


def test_the_spaces_between_digits_are_a_pattern_that_arrow_knows() -> None:
    """Pandas 3.0.0 hands it on as it is, and Arrow's engine has no escapes of code points."""
    found = pytest.importorskip("pyarrow.compute").match_substring_regex(["1\u202f234", "1\u2009234", "1234"], SPACES)
    assert found.to_pylist() == [True, True, False]
    assert "\\u" not in WITH_UNIT


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("utf-8", ""), ("utf-8-sig", ""), ("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("latin-1", "Latin-1")],
)
def test_encodings_are_found_and_said(encoding: str, said: str, tmp_path: Path) -> None:
    table = opened(tmp_path, "date,Größe °C\n2024-01-01,1.5\n2024-01-02,2.5\n2024-01-03,0.5\n".encode(encoding))
    assert list(table.frame.columns) == ["Größe °C"]
    assert (f"read as {said}" in table.describe()) is bool(said)


def test_trailing_separators_and_empty_rows_are_left_out_and_said(tmp_path: Path) -> None:
    table = opened(tmp_path, "date;a;;\n2024-01-01;1,5;;\n2024-01-02;2,5;;\n2024-01-03;0,5;;\n;;;\n;;;\n")
    assert list(table.frame.columns) == ["a"] and len(table.frame) == 3
    assert "2 empty rows left out" in table.describe() and "Unnamed: 2, Unnamed: 3 (empty)" in table.describe()
    assert opened(tmp_path, "date,a\n2024-01-01,1.5,\n2024-01-02,2.5,\n").frame["a"].tolist() == [1.5, 2.5]
    rows = "".join(f'"{row}" 2024-01-0{row} 0.{row}\n' for row in range(1, 6))  # as R writes it: a header one shorter
    assert opened(tmp_path, f'"date" "a"\n{rows}').frame["a"].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_what_a_packed_file_unpacks_to_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_BYTES", 1 << 16)
    with pytest.raises(InputError, match="plant.csv.gz unpacks to more than 65536 bytes, .*unpack it first"):
        opened(tmp_path, gzip.compress(b"date,a\n" + b"2024-01-01,1\n" * (1 << 20)), name="plant.csv.gz")


def test_a_few_bytes_that_stand_for_very_many_cells_are_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="plant.csv.gz has 1048577 columns, and at most 65536 are read"):
        opened(tmp_path, gzip.compress(b"date" + b"," * (1 << 20)), name="plant.csv.gz")
    monkeypatch.setattr(text_files, "MOST_CELLS", 1000)
    rows = b"date,a\n" + b"2024-01-01,1\n" * 1001
    with pytest.raises(InputError, match="plant.csv.gz has 2004 cells, and packed at most 1000 are read; unpack it"):
        opened(tmp_path, gzip.compress(rows), name="plant.csv.gz")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": np.zeros(100_003)}).to_parquet(tmp_path / "plant.parquet")
    with pytest.raises(InputError, match="says 100003 rows of 1 columns, more than are read at once"):
        open_table(tmp_path / "plant.parquet")


def test_a_file_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    path.touch()
    os.truncate(path, 1 << 43)  # it takes no room on the disk
    with pytest.raises(InputError, match="cannot read .*plant.csv: its 8796093022208 bytes are more than the memory"):
        open_table(path)


# ---------------------------------------------------------------- other files


@pytest.mark.parametrize(("ending", "package"), [("parquet", "pyarrow"), ("feather", "pyarrow"), ("xlsx", "openpyxl")])
def test_other_files_are_read_by_pandas(
    ending: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    path, frame = tmp_path / f"plant.{ending}", hourly().rename_axis("date").reset_index()
    getattr(frame, f"to_{'excel' if ending == 'xlsx' else ending}")(path)
    pd.testing.assert_frame_equal(read_table(path), hourly(), check_names=False, check_freq=False)
    path.write_bytes(b"neither")
    with pytest.raises(InputError, match=rf"plant.{ending} is not an? \w+ table"):
        read_table(path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}: pip install 'primecast\[\w+\]', or save it as CSV"):
        read_table(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("date,a\n2024-01-01,1\n", r"'date,a.n2024-01-01,1.n'... .20 characters. is no path but looks like the text"),
        ("x" * 5000, r"\(5000 characters\) is no path"),
        ("\ud800.csv", r"there is no file '\\ud800.csv'"),
        (".", "'.' is a folder; give the path of a table"),
        ("/dev/null", "'/dev/null' is no regular file"),
    ],
)
def test_what_is_no_path_of_a_file_is_refused(path: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_table(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"freq": "0D"}, "freq is '0D'; it must be a step forward, such as h"),
        ({"freq": "-1h"}, "freq is '-1h'; it must be a step forward"),
        ({"freq": "0ME"}, "freq is '0ME'; it must be a step forward"),
        ({"freq": "9" * 20 + "h"}, "unknown step '9+h'"),
        ({"freq": 5}, "freq is 5; it must be a name or None"),
        ({"tz": "US"}, "unknown time zone 'US'"),
        ({"tz": ""}, "unknown time zone ''"),
        ({"time": 5}, "time is 5; it must be a name, a list or None"),
        ({"columns": 5}, "columns is 5; it must be a name, a list or None"),
        ({"columns": [5]}, "unknown column '5'; allowed: "),
        ({"drop": 5}, "drop is 5; it must be a name, a list or None"),
        ({"dayfirst": "yes"}, "dayfirst is 'yes'; it must be true or false"),
    ],
    ids=str,
)
def test_what_is_no_option_of_reading_is_refused_in_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_table(hourly(), **options)


def test_names_of_columns_may_come_as_any_list() -> None:
    names = list(hourly().columns)
    for one in (names[:1], pd.Index(names[:1]), np.array(names[:1]), (name for name in names[:1])):
        assert list(open_table(hourly(), columns=one).frame.columns) == names[:1]
    assert open_table(hourly(), na=np.int64(-9999)).frame.equals(open_table(hourly()).frame)


def test_rows_of_several_indexes_are_refused() -> None:
    rows = hourly()
    with pytest.raises(InputError, match=r"the rows have 2 indexes \(a MultiIndex\); make columns of them"):
        validate(rows.set_axis(pd.MultiIndex.from_product([["a"], rows.index]), axis="index"))


# ---------------------------------------------------------------- header and dates


def test_a_file_without_names_is_refused_until_it_is_said(tmp_path: Path) -> None:
    rows = [f"{stamp:%Y-%m-%d %H:%M},{a},{b}" for stamp, a, b in hourly().itertuples()]
    with pytest.raises(InputError, match=r"first row of .* holds no names but 2024-01-28 00:00, -0.802, .*None"):
        opened(tmp_path, "\n".join(rows))
    table = opened(tmp_path, "\n".join(rows), header=None)
    assert list(table.frame.columns) == ["channel 1", "channel 2"] and list(table.frame.index) == list(hourly().index)
    assert list(opened(tmp_path, "2024,1\n1,2\n3,4\n", header=0, freq="D", start="2024-01-01").frame) == ["2024", "1"]
    with pytest.raises(InputError, match="header is 3; it must be 'infer', 0"):
        opened(tmp_path, "\n".join(rows), header=3)
    assert list(opened(tmp_path, "date,13,5\n2024-01-01,1,2.5\n2024-01-02,2,3.5\n").frame) == ["13", "5"]


FIRST_ROWS = {
    **{cell: f"2024-01-28 00:00,1.5,{cell}" for cell in ("NaN", "NA", "?", "-inf", "5%", "true", "OK")},
    "ISO with Z": "2024-01-28T00:00:00Z,1.5,2",
    "12 hours": "01/28/2024 12:00 AM,1.5,2",
    "month in words": "28 Jan 2024 00:00,1.5,2",
    "quoted": '"January 28, 2024 00:00",1.5,2',
    "day of the week": "Sun 28/01/2024 00:00,1.5,2",
    "zone": "2024-01-28 00:00 UTC,1.5,2",
    "no date": "1.5,NaN,2",
}


@pytest.mark.parametrize("row", FIRST_ROWS.values(), ids=FIRST_ROWS.keys())
def test_a_first_row_with_a_date_or_without_a_word_is_no_row_of_names(row: str, tmp_path: Path) -> None:
    rows = [row, *(f"2024-01-28 0{hour}:00,{hour / 7:.3f},{hour}" for hour in range(1, 8))]
    with pytest.raises(InputError, match="first row of .*plant.csv holds no names but .*header=None"):
        opened(tmp_path, "\n".join(rows))


def test_a_word_or_a_part_of_a_date_beside_numbers_is_a_name(tmp_path: Path) -> None:
    for names in ("date,PM2.5,13", "date,0.1,0.5", "date,may,10", "date,T1 2,2024"):
        table = opened(tmp_path, f"{names}\n2024-01-28,1.5,2\n2024-01-29,2.5,7\n")
        assert list(table.frame.columns) == names.split(",")[1:]


def test_names_like_a_row_of_numbers_are_refused_in_frames_too() -> None:
    with pytest.raises(InputError, match=r"named 0.5, 0.5.1, like a row of numbers: read the file with header=None"):
        open_table(hourly().set_axis(["0.5", "0.5.1"], axis=1))
    for names in (["1.5", "2"], ["2.5", "nan"], ["2024-01-28 00:00:00", "3.5"]):
        with pytest.raises(InputError, match="like a row of numbers"):
            open_table(hourly().set_axis(names, axis=1))
    assert list(open_table(hourly().set_axis(["17", "-3"], axis=1)).frame) == ["17", "-3"]


def test_rows_without_dates_are_dated_from_a_start(tmp_path: Path) -> None:
    text = "\n".join(f"{a} {b}" for _, a, b in hourly().itertuples())
    table = opened(tmp_path, text, "plain.txt", header=None, freq="h", start="2024-01-28")
    np.testing.assert_array_equal(table.frame, hourly())
    assert list(table.frame.index) == list(hourly().index)
    assert table.describe().endswith("(dated from 2024-01-28)\n2 channels: channel 0, channel 1; "
                                     "no value is missing in 101 hours")  # fmt: skip
    for options, message in (
        ({"header": None}, "has no time column: .* date the rows with freq='h', start="),
        ({"header": None, "freq": "h"}, "freq='h' and start=None were given; rows without dates need both"),
        ({"header": None, "freq": "parsec", "start": "2024"}, "unknown step 'parsec'; steps are h, 15min"),
        ({"header": None, "freq": "hourly", "start": "2024"}, r"unknown step 'hourly' \(did you mean 'h'\?\)"),
        ({"header": None, "freq": "h", "start": "soon"}, "cannot be dated with freq='h' and start='soon'"),
        ({"header": None, "freq": "h", "start": ""}, "cannot be dated with .* start='': it is no date"),
        ({"header": None, "freq": "h", "start": "05/02/2024"}, "it may be 2024-05-02 or 2024-02-05; write the one"),
        ({"header": None, "freq": "0h", "start": "2024"}, "freq is '0h'; it must be a step forward"),
        ({"header": None, "freq": "h", "start": 5}, "start is 5; it must be a name or None"),
    ):
        with pytest.raises(InputError, match=message):
            read_table(tmp_path / "plain.txt", **options)
    with pytest.raises(InputError, match="the frame has dates already; leave out freq and start"):
        open_table(hourly(), freq="h", start="2024")
    fitted = Forecaster(**QUICK).fit(tmp_path / "plain.txt", header=None, freq="h", start="2024-01-28")
    assert fitted.predict().index[0] == hourly(102).index[-1]
    with pytest.raises(InputError, match=r"plain.txt have no dates; give that of the first row, start='2025-01-31' "):
        fitted.predict(tmp_path / "plain.txt")


def parts(index: pd.DatetimeIndex, *names: str) -> pd.DataFrame:
    return pd.DataFrame({name: getattr(index, name.lower()) for name in names})


PARTS: dict[str, Callable[[pd.DatetimeIndex], pd.DataFrame]] = {
    "numbers": lambda index: parts(index, "Year", "Month", "Day", "Hour"),
    "day and hour": lambda index: pd.DataFrame({"date": index.strftime("%Y-%m-%d"), "hr": index.hour}),
    "day and clock": lambda index: pd.DataFrame(
        {"Date": index.strftime("%d/%m/%Y"), "Time": index.strftime("%H.%M.%S")}
    ),
}


@pytest.mark.parametrize("made", PARTS.values(), ids=PARTS.keys())
def test_several_columns_make_a_date(made: Callable[[pd.DatetimeIndex], pd.DataFrame], tmp_path: Path) -> None:
    index = pd.DatetimeIndex(hourly().index)
    frame = pd.concat([made(index), hourly().reset_index(drop=True)], axis=1)
    frame.to_csv(tmp_path / "plant.csv", index=False)
    names = list(made(index).columns)
    ways: list[dict[str, Any]] = [{}, {"time": names}, {"time": ",".join(names)}]
    for options in ways:
        table = open_table(tmp_path / "plant.csv", **options)
        pd.testing.assert_frame_equal(table.frame, hourly(), check_names=False, check_freq=False)
        assert f"(time from {', '.join(names)})" in table.describe()
    if names == ["Year", "Month", "Day", "Hour"]:
        forecast = Forecaster(**QUICK).fit(frame).predict()
        assert forecast.columns.tolist() == ["time", "a", "b"] and forecast["time"].iloc[0] == hourly(102).index[-1]


def test_columns_that_make_no_date_are_refused(tmp_path: Path) -> None:
    frame = pd.concat([parts(pd.DatetimeIndex(hourly().index), "year", "month", "day"), hourly().reset_index()], axis=1)
    with pytest.raises(InputError, match="columns month, day of the frame make no date: give one column of dates"):
        open_table(frame, time=["month", "day"])
    with pytest.raises(InputError, match="'month': 2, 'day': 30} in the frame is no date"):
        open_table(frame.assign(month=2, day=30), time="year,month,day")
    with pytest.raises(InputError, match="column 'day' of the frame must hold whole numbers to be part of a date"):
        open_table(frame.assign(day=1.5), time="year,month,day")


def test_a_time_before_its_date_is_as_ambiguous_as_after_it() -> None:
    frame = pd.DataFrame({"date": [f"00:00 0{day}-02-24" for day in (1, 2, 3)], "a": [1.5, 2.5, 0.5]})
    with pytest.raises(InputError, match="'00:00 01-02-24' in column 'date' may be 01 February 2024 or 02 Jan"):
        open_table(frame)
    days = pd.date_range("2024-02-01", periods=3)
    assert list(open_table(frame, dayfirst=True).frame.index) == list(days)
    assert open_table(frame, dayfirst=False).frame.index[2] == pd.Timestamp("2024-03-02")
    evening = frame.assign(date=[f"11:30 PM {day}.02.2024" for day in (12, 13, 14)])
    assert open_table(evening).frame.index[0] == pd.Timestamp("2024-02-12 23:30")


FORMS = {
    "clock with a letter": "%Hh%M %d/%m/%y",
    "12 hours without minutes": "%I%p %d/%m/%Y",
    "clock and a stroke": "%H:%M/%d/%m/%Y",
    "blanks around points": "%d. %m. %Y",
    "blanks around strokes": "%d / %m / %Y",
    "tab": "%H:%M\t%d-%m-%y",
    "hours in words": "%H hours %d-%m-%y",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_whatever_stands_around_a_date_the_day_or_the_month_may_come_first(form: str) -> None:
    days = pd.date_range("2024-02-01", periods=11)
    frame = pd.DataFrame({"date": days.strftime(form), "a": np.arange(11) / 7})
    with pytest.raises(InputError, match="may be 01 February 2024 or 02 January 2024, and no other row decides it"):
        open_table(frame)
    assert list(open_table(frame, dayfirst=True).frame.index) == list(days)


def test_dates_with_the_year_first_are_read_alike_whatever_is_said_of_days() -> None:
    days = pd.date_range("2024-02-01", periods=5)
    for form in ("%Y/%m/%d", "%Y-%m-%d %H:%M", "00:00 %Y-%m-%d", "%Y%m%dT%H%M%S", "%Y %m %d"):
        frame = pd.DataFrame({"date": days.strftime(form), "a": np.arange(5) / 7})
        for dayfirst in (None, True, False):
            assert list(open_table(frame, dayfirst=dayfirst).frame.index) == list(days)


def test_years_of_two_digits_that_may_come_first_are_refused_until_it_is_said() -> None:
    for rows, freq in ((11, "D"), (11, "MS"), (23, "h")):
        dates = pd.date_range("2024-02-01", periods=rows, freq=freq)
        frame = pd.DataFrame({"date": dates.strftime("%y-%m-%d %H:%M"), "a": np.arange(rows) / 7})
        with pytest.raises(InputError, match="'24-02-01 00:00' .* may be 24 February 2001 or 01 February 2024; choose"):
            open_table(frame)
        assert open_table(frame, dayfirst=True).frame.index[0] == pd.Timestamp("2001-02-24")
    german = pd.DataFrame(
        {"date": pd.date_range("2024-02-13", periods=11).strftime("%d.%m.%y"), "a": np.arange(11) / 7}
    )
    assert open_table(german).frame.index[0] == pd.Timestamp("2024-02-13")


@pytest.mark.parametrize(
    "cell", ["5 Jan", "Jan-24", "01/02", "13/02", "00:00:00", "00:00-01-02-2024", "01,02,2024", "22/09;0"]
)
def test_dates_without_a_year_get_none_from_today(cell: str) -> None:
    with pytest.raises(InputError, match="column 'date' of the frame does not hold dates in all rows"):
        open_table(pd.DataFrame({"date": [cell] * 5, "a": np.arange(5) / 7}), time="date")


def test_hours_that_a_change_of_clocks_repeats_or_skips_are_met_with_the_zone() -> None:
    for start in ("2024-10-26", "2024-03-30"):
        zoned = hourly(start=start, tz="Europe/Berlin")
        local = zoned.tz_localize(None)
        with pytest.raises(InputError, match=r"clocks seem to have changed .*tz='Europe/Berlin', or df.tz_localize"):
            validate(local)
        pd.testing.assert_frame_equal(open_table(local, tz="Europe/Berlin").frame, zoned, check_freq=False)
        pd.testing.assert_frame_equal(open_table(zoned.tz_convert("UTC"), tz="Europe/Berlin").frame, zoned)
    with pytest.raises(InputError, match=r"unknown time zone 'Berln' \(did you mean 'Europe/Berlin'\?\)"):
        open_table(hourly(), tz="Berln")
    with pytest.raises(InputError, match="tz='UTC' was given, but the rows of the frame have no dates"):
        open_table(hourly().reset_index(drop=True), tz="UTC")


# ---------------------------------------------------------------- which columns are channels


def air(rows: int = ROWS) -> pd.DataFrame:
    index = pd.DatetimeIndex(hourly(rows).index)
    wind = np.random.default_rng(2).choice(["N", "NE", "S"], rows)
    return pd.concat(
        [pd.Series(range(1, rows + 1), name="No"), parts(index, "year", "month", "day", "hour"),
         hourly(rows).reset_index(drop=True), pd.DataFrame({"wd": wind, "spare": np.nan})], axis=1,
    )  # fmt: skip


def test_columns_that_measure_nothing_are_left_out_and_said(tmp_path: Path) -> None:
    air().to_csv(tmp_path / "air.csv", index=False, na_rep="NA")
    with pytest.warns(ColumnsLeftOutWarning, match=r"left out: No \(numbers the rows\), wd \(text\), spare \(empty\);"):
        assert list(read_table(tmp_path / "air.csv")) == ["a", "b"]
    index = pd.DatetimeIndex(hourly().index)
    dated = hourly().assign(hour=index.hour, weekday=index.day_of_week, count=range(ROWS), month=7)
    table = open_table(dated)
    assert list(table.frame) == ["a", "b", "count", "month"]
    assert table.doubts() == [
        "left out: hour, weekday (part of the date)",
        "kept: count counts the rows by one, month is named like a part of the date",
    ]
    assert list(open_table(dated, columns="a,hour").frame) == ["a", "hour"]
    assert list(open_table(dated, covariates=["hour"], drop=["count", "month"]).frame) == ["a", "b", "hour"]
    with pytest.raises(InputError, match=r"unknown column 'hours' \(did you mean 'hour'\?\)"):
        open_table(dated, columns=["hours"])
    with pytest.raises(InputError, match=r"no column is left to forecast; left out: a \(as asked\), b \("):
        open_table(hourly(), drop=["a", "b"])


def test_what_was_understood_is_shown_before_training_or_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    air().to_csv(tmp_path / "air.csv", index=False)
    Forecaster(**{**QUICK, "progress": "lines"}).fit(tmp_path / "air.csv")
    first, second, third, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith("101 rows, hourly, from 2024-01-28 to 2024-02-01 04:00 (time from year, month, day, hour)")
    assert second == (
        "2 channels: a, b; no value is missing in 101 hours; left out: No (numbers the rows), wd (text), spare (empty)"
    )
    assert third.startswith("epoch 1/1")
    with pytest.warns(ColumnsLeftOutWarning):
        Forecaster(**QUICK).fit(tmp_path / "air.csv")
    assert capsys.readouterr().err == ""


def test_later_tables_lose_the_same_columns_also_after_loading(tmp_path: Path) -> None:
    air().to_csv(tmp_path / "air.csv", index=False)
    Forecaster(**QUICK).fit(tmp_path / "air.csv", drop="No,wd,spare").save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    newer = air(ROWS + 7).assign(wd=3.5, spare=7.0)  # what was left out stays out
    newer.to_csv(tmp_path / "newer.csv", index=False)
    assert loaded.predict(tmp_path / "newer.csv").index[0] == hourly(ROWS + 8).index[-1]
    newer.assign(more=1.5).to_csv(tmp_path / "newer.csv", index=False)
    with pytest.raises(InputError, match="other channels than that of fit: new: more"):
        loaded.predict(tmp_path / "newer.csv")


@pytest.mark.parametrize("role", ["past", "future"])
def test_text_named_as_a_covariate_becomes_columns_of_0_and_1(role: str, tmp_path: Path) -> None:
    frame = air().drop(columns=["No", "spare"])
    small = {"d_model": 8, "n_heads": 2, "n_layers": 1}
    forecaster = Forecaster(**{**QUICK, "model": "itransformer", "model_args": small, role: ["wd"]}).fit(frame)
    assert getattr(forecaster.roles_, role) == ("wd=N", "wd=NE", "wd=S")
    assert forecaster.roles_.targets == ("a", "b")
    forecaster.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    given: dict[str, Any] = {}
    if role == "future":
        given["future"] = air(ROWS + 3)[["year", "month", "day", "hour", "wd"]]
    pd.testing.assert_frame_equal(loaded.predict(frame, **given), forecaster.predict(frame, **given))
    with pytest.raises(InputError, match="unknown value of 'wd' 'W'.*; allowed: N, NE, S"):
        loaded.predict(frame.assign(wd="W"), **given)


def test_long_series_of_different_spans_are_put_on_one_grid() -> None:
    index = hourly().index
    long = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": stamps, "y": np.arange(len(stamps)) + 0.5, "place": "north"})
        for name, stamps in (("x", index[3:50]), ("y", index[:40:2]), ("z", index[60:90]))
    )
    table = open_table(long)
    assert table.frame.shape == (90, 3) and list(table.frame.index) == list(index[:90])
    assert "90 of 90 hours have missing values" in table.describe()
    assert "left out: place (constant in each series, tells no more than the name of the series)" in table.describe()
    assert validate(table.frame, missing="interpolate").notna().all(axis=None)


# ---------------------------------------------------------------- other containers


def test_a_series_is_a_table_of_one_channel() -> None:
    assert list(Forecaster(**QUICK).fit(hourly()["a"]).predict().columns) == ["a"]
    assert list(open_table(hourly()["a"].rename(None)).frame.columns) == ["value"]


def test_containers_that_are_no_tables_are_refused_with_the_line_that_converts_them() -> None:
    polars = pytest.importorskip("polars")
    of_xarray = {
        name: type(name, (), {"__module__": f"xarray.core.{name.lower()}"}) for name in ("DataArray", "Dataset")
    }
    for data, line in (
        (polars.LazyFrame({"a": [1.5]}), "data.collect()"),
        (of_xarray["DataArray"](), "data.to_pandas()"),
        (of_xarray["Dataset"](), "data.to_dataframe()"),
        ({"a": [1.5]}, "pandas.DataFrame(data)"),
        ([[1.5]], "numpy.asarray(data)"),
    ):
        with pytest.raises(InputError, match=f"cannot read a table from .*; convert it with {re.escape(line)}"):
            open_table(data)


# ---------------------------------------------------------------- values, names and dates at the edges


def at(index: pd.Index) -> pd.DataFrame:
    return hourly(len(index)).set_axis(index, axis="index")


EDGES: dict[str, tuple[Callable[[], object], str]] = {
    "complex": (lambda: hourly().assign(c=1j), "column 'c' of the frame is not numeric but complex128"),
    "complex objects": (
        lambda: hourly().assign(c=pd.Series([1j] * ROWS, dtype=object, index=hourly().index)),
        "column 'c' of the frame holds complex numbers",
    ),
    "unsigned": (lambda: at(pd.Index(np.arange(ROWS, dtype=np.uint64) + np.uint64(1 << 63))), "between -2.62 and 2.62"),
    "end of ns": (
        lambda: at(pd.date_range(end="2262-04-11 23:00", periods=ROWS, freq="h", unit="us").as_unit("ns")),
        r"3 steps after 2262-04-11 23:00:00 are beyond the dates that the unit 'ns' can hold; .*as_unit\('s'\)",
    ),
    "a fraction as name": (
        lambda: hourly().set_axis([1.5, "b"], axis=1),
        "column name 1.5 is neither text nor",
    ),
    "a date as name": (
        lambda: hourly().set_axis([pd.Timestamp("2024"), "b"], axis=1),
        r"column name Timestamp\(.*df.columns.map\(str\)",
    ),
    "1 and '1'": (lambda: hourly().set_axis([1, "1"], axis=1), "column names must differ, but these are repeated: 1"),
    "half a character in a name": (
        lambda: hourly().set_axis(pd.Index(["a\ud800", "b"], dtype=object), axis=1),
        r"the column name 'a\\ud800' holds half a character",
    ),
    "half a character in an id": (
        lambda: pd.DataFrame({"unique_id": pd.Series(["\ud800"] * 5, dtype=object), "ds": hourly(5).index, "y": 1.5}),
        "holds half a character",
    ),
    "nothing": (lambda: pd.DataFrame(), "the frame has 0 rows, but at least 3 are needed"),
    "no rows": (lambda: hourly().iloc[:0], "the frame has 0 rows"),
    "no long rows": (lambda: pd.DataFrame({"unique_id": [], "ds": [], "y": []}), "the long frame has 0 rows"),
    "no channels": (lambda: np.empty((ROWS, 0)), "has no columns"),
}


@pytest.mark.parametrize(("make", "message"), EDGES.values(), ids=EDGES.keys())
def test_tables_at_the_edge_are_refused_in_a_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Forecaster(**QUICK).fit(make()).predict()


def test_dates_beyond_those_of_ns_are_forecast() -> None:
    late = at(pd.date_range("9998-12-01", periods=ROWS, freq="h"))
    assert str(Forecaster(**QUICK).fit(late).predict().index[0]) == "9998-12-05 05:00:00"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Amsterdam"])
def test_a_loaded_model_keeps_the_unit_and_the_zone_of_its_dates(unit: Any, zone: str | None, tmp_path: Path) -> None:
    frame = at(pd.date_range("1890-01-01", periods=ROWS, freq="h", tz=zone, unit=unit))  # 19 min 32 s ahead of UTC
    fitted = Forecaster(**QUICK).fit(frame)
    fitted.save(tmp_path / "model")
    forecast = fitted.predict()
    assert forecast.index.dtype == frame.index.dtype
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "model").predict(), forecast)


def test_channels_of_any_size_are_forecast_alike() -> None:
    forecast = Forecaster(**QUICK).fit(hourly()).predict()
    tiny = Forecaster(**QUICK).fit(hourly() * 2.0**-700).predict()
    np.testing.assert_allclose(tiny.to_numpy() * 2.0**700, forecast.to_numpy(), rtol=1e-4, atol=1e-6)


def test_errors_of_channels_of_any_size_are_measured_alike() -> None:
    scores = {}
    for size in (1.0, 1e-200):
        fitted = Forecaster(**QUICK, bounds=None).fit(hourly() * size)
        scores[size] = fitted.backtest(windows=2, level=[]).scores[["rmse", "mae", "naive_rmse"]] / size
    np.testing.assert_allclose(scores[1e-200], scores[1.0], rtol=1e-6)


@pytest.mark.parametrize("name", [("a", "b"), 1.5, True, pd.Timestamp("2024-01-01")], ids=str)
def test_an_index_whose_name_could_not_be_given_back_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match="the index is named .*, neither text nor a whole number"):
        validate(hourly().set_axis(pd.DatetimeIndex(hourly().index, name=name), axis=0))


@pytest.mark.parametrize("index", [hourly().index, pd.RangeIndex(101)], ids=["dates", "numbers"])
def test_an_index_named_by_a_number_has_this_name_after_loading(index: pd.Index, tmp_path: Path) -> None:
    fitted = Forecaster(**QUICK).fit(hourly().set_axis(index.rename(np.int64(7)), axis=0))
    fitted.save(tmp_path / "model")
    name = Forecaster.load(tmp_path / "model").predict().index.name
    assert name == 7 and fitted.predict().index.name == 7


def test_names_that_a_forecast_could_not_give_back_are_refused_wherever_they_stand() -> None:
    with pytest.raises(InputError, match="the time column is named 0, which is no text; rename it"):
        open_table(hourly().rename_axis(0).reset_index())
    long = hourly().set_axis([True, False], axis=1).melt(ignore_index=False, var_name="unique_id", value_name="y")
    with pytest.raises(InputError, match="the column name True is neither text nor a whole number"):
        open_table(long.rename_axis("ds").reset_index())


def test_days_of_polars_are_forecast() -> None:
    polars = pytest.importorskip("polars")
    dates = pd.date_range("2024-01-01", periods=101)
    days = polars.DataFrame({"when": list(dates.date), **{name: hourly()[name].to_numpy() for name in hourly()}})
    forecast = Forecaster(**QUICK).fit(days).predict()
    assert forecast["when"].to_list()[0].date() == datetime.date(2024, 4, 11)


def test_levels_that_share_their_column_names_are_refused() -> None:
    with pytest.raises(InputError, match="levels 80.0 and 80.0000001 share the column names of 80; give one of them"):
        check_levels([80, 95, 80.0000001])


def test_a_sensor_that_is_silent_for_a_look_back_is_said_with_the_forecast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = hourly()
    frame.iloc[-11:, 1] = np.nan
    forecaster = Forecaster(**QUICK, missing="ffill").fit(frame)
    with pytest.warns(SilentChannelWarning, match="no value in the last 11 rows, all that the model sees: b; "):
        forecaster.predict()
    frame.iloc[-11, 1] = 0.5
    forecaster.predict(frame)
    frame.iloc[-11, 1] = np.nan
    frame.to_csv(tmp_path / "plant.csv", index_label="date")
    sizes = ["--horizon", "3", "--lookback", "11", "--missing", "ffill", "--set", "model=dlinear", "--set", "epochs=1"]
    monkeypatch.setattr(sys, "argv", ["primecast", "forecast", str(tmp_path / "plant.csv"), *sizes])
    with pytest.raises(SystemExit):
        main()
    assert "note: these channels have no value in the last 11 rows" in capsys.readouterr().err
