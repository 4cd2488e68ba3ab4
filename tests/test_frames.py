"""Frames of one's own: read, turned, checked, continued; every refusal says what is wrong and what to do."""

import gzip
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primecast.data.nyc import nyc_weather
from primecast.data.windows import split
from primecast.errors import InputError
from primecast.frames.date_columns import read_dates
from primecast.frames.dates import frequency_in_words, future_index, season_of
from primecast.frames.layouts import lengthen
from primecast.frames.long_tables import widen
from primecast.frames.read import ColumnsLeftOutWarning, read_table
from primecast.frames.validate import ConstantChannelWarning, dataset_from_frame, describe_gaps, validate


def hourly(rows: int = 11, channels: tuple[str, ...] = ("a", "b", "c")) -> pd.DataFrame:
    values = np.random.default_rng(5).normal(size=(rows, len(channels)))
    return pd.DataFrame(values, index=pd.date_range("2024-01-01", periods=rows, freq="h"), columns=list(channels))


def with_row(frame: pd.DataFrame, row: int, value: float) -> pd.DataFrame:
    changed = frame.copy()
    changed.iloc[row] = value
    return changed


# ---------------------------------------------------------------- reading


def test_a_csv_finds_its_time_column_by_its_usual_name(tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    path.write_text("a,note,Date,b\n1,2020-01-01,2024-01-01 00:00,2.5\n3,2020-01-01,2024-01-01 01:00,4.5\n")
    with pytest.warns(ColumnsLeftOutWarning, match=r"plant.csv left out: note \(dates\); choose with columns="):
        frame = read_table(path)
    assert list(frame.columns) == ["a", "b"]
    assert list(frame.index) == list(pd.date_range("2024-01-01", periods=2, freq="h"))
    assert list(frame["b"]) == [2.5, 4.5]


def test_a_csv_finds_its_time_column_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "plant.csv.gz"
    path.write_bytes(gzip.compress(b"when,a,state\n2024-01-01,1,on\n2024-01-02,2,off\n"))
    frame = read_table(str(path), drop="state")
    assert frame.index.name == "when"
    assert list(frame.columns) == ["a"]


def test_the_time_column_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    path.write_text("date,when,a\n2024-01-01,2025-01-01,1\n2024-01-02,2025-01-02,2\n")
    assert read_table(path, time="when", columns=["a"]).index[0] == pd.Timestamp("2025-01-01")
    with pytest.raises(InputError, match=r"unknown time column of .*'wen' \(did you mean 'when'\?\)"):
        read_table(path, time="wen")
    with pytest.raises(InputError, match="column 'a' of .*plant.csv does not hold dates in all rows; write them like"):
        path.write_text("date,a\n2024-01-01,x\n")
        read_table(path, time="a")


def test_semicolons_decimal_commas_and_dates_with_the_day_first_are_read(tmp_path: Path) -> None:
    path = tmp_path / "werk.csv"
    rows = [f"{day:02}.01.2024 00:00;{day},5" for day in range(1, 32)]
    path.write_text("\n".join(["Zeit;Druck", *rows]))
    frame = read_table(path)
    assert frame["Druck"].iloc[30] == 31.5
    assert list(frame.index) == list(pd.date_range("2024-01-01", periods=31, freq="D"))


def test_stamps_across_a_change_of_summer_time_become_utc(tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    path.write_text("ds,a\n2024-03-31 01:00+01:00,1\n2024-03-31 03:00+02:00,2\n2024-03-31 04:00+02:00,3\n")
    frame = validate(read_table(path))
    assert frame.index[0] == pd.Timestamp("2024-03-31 00:00", tz="UTC")
    assert isinstance(frame.index, pd.DatetimeIndex) and frame.index.freq == pd.offsets.Hour()


def test_a_column_that_numbers_the_rows_is_no_channel(tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    hourly().rename_axis("ds").reset_index().to_csv(path)
    assert list(read_table(path).columns) == ["a", "b", "c"]


@pytest.mark.parametrize("rows", [slice(5, None), [2, 3, 7, 5]], ids=["from 5 on", "with holes"])
def test_numbers_of_rows_need_not_begin_at_0_nor_be_all(rows: slice | list[int], tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    hourly().rename_axis("ds").reset_index().iloc[rows].to_csv(path)
    assert list(read_table(path).columns) == ["a", "b", "c"]


def test_a_nameless_column_of_measurements_is_a_channel(tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    path.write_text(",ds,a\n1.5,2024-01-01,1\n2.5,2024-01-02,2\n")
    assert list(read_table(path).columns) == ["Unnamed: 0", "a"]


def test_a_long_file_is_widened(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    lengthen(hourly()).to_csv(path, index=False)
    pd.testing.assert_frame_equal(read_table(path), hourly(), check_names=False, check_freq=False)


def test_a_long_file_is_widened_by_the_columns_named(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    lengthen(hourly(), id_column="sensor", time_column="at", value_column="reading").to_csv(path, index=False)
    frame = read_table(path, id="sensor", time="at", value="reading")
    pd.testing.assert_frame_equal(frame, hourly(), check_names=False, check_freq=False)
    pd.testing.assert_frame_equal(read_table(path, id="sensor"), frame)  # its only dates, its only numbers
    with pytest.raises(InputError, match=r"long.csv has no column 'values'; its columns are sensor, at, reading"):
        read_table(path, id="sensor", value="values")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n3,4\n", "has no time column: no column of text holds dates in all rows .columns: a, b."),
        (b"", "plant.csv is empty"),
        (b"\x08\x00onnx\x00\n", "plant.csv is no text; give a CSV"),
        (b"a,b\n1,2,3\n4,5,6,7\n", "is not a CSV table"),
    ],
)
def test_an_unreadable_file_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plant.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_table(path)


def test_parquet_is_read_with_the_extra(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    hourly().to_parquet(tmp_path / "indexed.parquet")
    hourly().rename_axis("date").reset_index().to_parquet(tmp_path / "plain.parquet")
    lengthen(hourly()).to_parquet(tmp_path / "long.parquet")
    for name in ("indexed", "plain", "long"):
        frame = read_table(tmp_path / f"{name}.parquet")
        pd.testing.assert_frame_equal(frame, hourly(), check_names=False, check_freq=False)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(InputError, match="bad.parquet is not a Parquet table"):
        read_table(tmp_path / "bad.parquet")


def test_parquet_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plant.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow: pip install 'primecast\[parquet\]', or save it as CSV"):
        read_table(tmp_path / "plant.parquet")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file '.*nothing.csv'"):
        read_table(tmp_path / "nothing.csv")


# ---------------------------------------------------------------- dates


@pytest.mark.parametrize("stamps", [[17, 18], [20240131.5, 20240201.5], [True, False], [20241301, 20241302]])
@pytest.mark.parametrize("dtype", [None, object])
def test_other_numbers_are_no_dates(stamps: list[float], dtype: type | None, tmp_path: Path) -> None:
    frame = pd.DataFrame({"unique_id": "a", "ds": pd.Series(stamps, dtype=dtype), "y": 1.0})
    message = rf"column 'ds' of the long frame holds numbers, the first {stamps[0]}, which are neither dates like"
    with pytest.raises(InputError, match=message):
        widen(frame)
    frame.rename(columns={"ds": "timestamp"})[["timestamp", "y"]].to_csv(tmp_path / "plant.csv", index=False)
    with pytest.raises(InputError, match=r"column 'timestamp' of .*plant\.csv holds numbers"):
        read_table(tmp_path / "plant.csv", time="timestamp")


def read(text: list[str], dayfirst: bool | None = None) -> tuple[pd.DatetimeIndex, bool | None]:
    return read_dates(pd.DataFrame({"when": text}), "when", dayfirst=dayfirst, source="the frame")


@pytest.mark.parametrize("layout", ["%d/%m/%Y", "%d.%m.%y", "%a %d-%m-%Y", "%m/%d/%Y", "%m-%d-%y %H:%M"])
@pytest.mark.parametrize("start", ["2024-02-05", "2024-02-13"])
@pytest.mark.parametrize("dayfirst", [None, True, False])
def test_a_row_that_can_be_read_in_one_way_only_decides_for_all(layout: str, start: str, dayfirst: bool | None) -> None:
    days = pd.date_range(start, periods=29, freq="D")
    stamps, found = read(list(days.strftime(layout)), dayfirst)
    assert list(stamps) == list(days) and found is (layout.index("d") < layout.index("m"))


@pytest.mark.parametrize("rows", [19, 53, 200])
def test_dates_that_can_be_read_in_two_ways_are_refused_unless_dayfirst_is_given(rows: int) -> None:
    hours = pd.date_range("2024-02-02", periods=rows, freq="h")  # from the 2nd to the 10th of February
    text = list(hours.strftime("%d/%m/%Y %H:%M"))
    assert read(text, True)[1] is True and list(read(text, True)[0]) == list(hours)
    if rows == 19:  # all of it on 02/02/2024
        assert read(text)[1] is None
        return
    with pytest.raises(
        InputError,
        match=r"'03/02/2024 00:00' in column 'when' may be 03 February 2024 or 02 March 2024, .*dayfirst=True or",
    ):
        read(text)
    stamps, found = read(text, False)
    assert stamps[24] == pd.Timestamp("2024-03-02") and found is False


def test_dayfirst_is_an_argument_wherever_dates_are_read(tmp_path: Path) -> None:
    days = pd.date_range("2024-02-05", periods=3, freq="D")
    frame = pd.DataFrame({"date": days.strftime("%d/%m/%Y"), "a": [1.0, 2.0, 3.0]})
    frame.to_csv(tmp_path / "plant.csv", index=False)
    with pytest.raises(InputError, match="'05/02/2024' in column 'date' may be 05 February 2024 or 02 May 2024"):
        read_table(tmp_path / "plant.csv")
    assert list(read_table(tmp_path / "plant.csv", dayfirst=True).index) == list(days)
    long = frame.rename(columns={"date": "ds", "a": "y"}).assign(unique_id="a")
    with pytest.raises(InputError, match="may be 05 February 2024 or 02 May 2024"):
        widen(long)
    assert list(widen(long, dayfirst=False).index) == [pd.Timestamp(2024, month, 2) for month in (5, 6, 7)]


@pytest.mark.parametrize(
    "text", [["2024-02-05", "2024-02-06"], ["05/05/2024 01:00", "05/05/2024 02:00"], ["5 Feb 2024"]]
)
def test_where_either_reading_is_the_same_there_is_none_to_remember(text: list[str]) -> None:
    assert read(text)[1] is None


def test_days_before_months_with_differing_offsets_become_utc() -> None:
    stamps, _ = read(["31.03.2024 01:00+01:00", "31.03.2024 03:00+02:00"])
    assert list(stamps) == list(pd.date_range("2024-03-31", periods=2, freq="h", tz="UTC"))


# ---------------------------------------------------------------- long and wide


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6) | st.just(np.nan), min_size=3, max_size=3), min_size=2, max_size=7),
    st.permutations(["z", "a", "m"]),
)
def test_long_and_back_is_the_same_frame(values: list[list[float]], names: list[str]) -> None:
    wide = pd.DataFrame(values, index=pd.date_range("2024", periods=len(values), freq="D"), columns=names)
    back = widen(lengthen(wide))
    pd.testing.assert_frame_equal(back, wide, check_names=False, check_freq=False)


def test_long_columns_may_have_other_names() -> None:
    long = lengthen(hourly(), id_column="sensor", time_column="at", value_column="reading")
    assert list(long.columns) == ["sensor", "at", "reading"]
    wide = widen(long, id_column="sensor", time_column="at", value_column="reading")
    pd.testing.assert_frame_equal(wide, hourly(), check_names=False, check_freq=False)


def test_pairs_absent_from_a_long_frame_are_gaps() -> None:
    long = lengthen(hourly()).drop(index=4)
    assert widen(long).isna().sum().tolist() == [1, 0, 0]


def test_dates_of_a_long_frame_may_be_text() -> None:
    long = lengthen(hourly())
    assert isinstance(widen(long.assign(ds=long["ds"].astype(str))).index, pd.DatetimeIndex)
    with pytest.raises(InputError, match="column 'ds' of the long frame does not hold dates"):
        widen(long.assign(ds="soon"))


def test_a_bad_long_frame_is_refused() -> None:
    long = lengthen(hourly())
    with pytest.raises(InputError, match="no column 'y' for the values: .*; its columns are unique_id, ds, value"):
        widen(long.rename(columns={"y": "value"}))
    with pytest.raises(InputError, match="1 rows repeat an id and time, the first 'b' at 2024-01-01 01:00:00"):
        widen(pd.concat([long, long.iloc[[12]]]))
    with pytest.raises(InputError, match=r"2 rows have no 'unique_id', the first at 2024-01-01 02:00:00; .*df\.dropna"):
        widen(long.assign(unique_id=long["unique_id"].where(~long.index.isin([13, 17]))))


# ---------------------------------------------------------------- checking


def test_a_good_frame_comes_back_as_float64_with_its_freq() -> None:
    frame = hourly()
    frame["d"] = range(11)
    frame["e"] = [str(number) for number in range(11)]
    frame.index = pd.DatetimeIndex(frame.index.to_numpy())
    checked = validate(frame)
    assert isinstance(checked.index, pd.DatetimeIndex) and checked.index.freq == pd.offsets.Hour()
    assert (checked.dtypes == np.float64).all()
    np.testing.assert_array_equal(checked[["d", "e"]], np.arange(11.0)[:, None].repeat(2, axis=1))
    assert frame["d"].dtype == np.int64  # the frame given is left alone


def test_rows_with_the_newest_first_are_turned_round() -> None:
    pd.testing.assert_frame_equal(validate(hourly().iloc[::-1]), hourly())


@given(st.permutations(range(7)).filter(lambda order: order not in ([*range(7)], [*range(7)][::-1])))
def test_rows_out_of_order_are_refused_until_they_are_sorted(order: list[int]) -> None:
    frame = hourly(rows=7)
    late = next(place for place in range(6) if order[place + 1] < order[place])
    message = f"not in order: {frame.index[order[late + 1]]} comes after {frame.index[order[late]]}; .*sort_index"
    with pytest.raises(InputError, match=message):
        validate(frame.iloc[order])
    pd.testing.assert_frame_equal(validate(frame.iloc[order].sort_index()), frame)


BAD_FRAMES: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "names as index": (lambda df: df.set_axis(list("abcdefghijk")), "neither dates nor whole numbers .*df.set_index"),
    "fractions as index": (lambda df: df.set_axis(np.arange(11) / 2), "neither dates nor whole numbers .*float64"),
    "periods as index": (lambda df: df.to_period("h"), r"has a PeriodIndex; .*df.to_timestamp\(\)"),
    "row numbers missing": (
        lambda df: df.set_axis([0, 2, 4, 8, 10, 12, 14, 18, 20, 22, 24]),
        r"usual step is 2, but 2 steps differ, the first 4 to 8, 14 to 18; .*df\.reindex",
    ),
    "a row number twice": (
        lambda df: df.set_axis([0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9]),
        "1 row number occurs more than once, the first 2; keep",
    ),
    "long": (lambda df: lengthen(df), r"looks like a long frame: make it wide with primecast\.frames\.widen"),
    "two rows": (lambda df: df.iloc[:2], "has 2 rows, but at least 3 are needed"),
    "no columns": (lambda df: df[[]], "has no columns"),
    "same names": (lambda df: df.rename(columns={"b": "a"}), "these are repeated: a"),
    "names of two levels": (
        lambda df: df.set_axis(pd.MultiIndex.from_tuples([("x", "p"), ("x", "q"), ("y", "p")]), axis=1),
        r"column names have 2 levels \(a MultiIndex\), the first \('x', 'p'\); .*df\.columns = \[' '\.join",
    ),
    "no stamp": (
        lambda df: df.set_index(df.index.where(df.index != df.index[3])),
        r"missing time stamps \(NaT\) in 1 rows",
    ),
    "a stamp twice": (
        lambda df: pd.concat([df, df.iloc[[4, 2]]]),
        r"2 time stamps occur more than once, the first 2024-01-01 04:00:00, 2024-01-01 02:00:00; .*duplicated",
    ),
    "rows missing": (
        lambda df: df.drop(df.index[[3, 7]]),
        r"usual step is 0 days 01:00:00, but 2 steps differ, the first 2024-01-01 02:00:00 to "
        r"2024-01-01 04:00:00, .*rows are missing: missing='interpolate' .*df\.asfreq\('h'\)",
    ),
    "a late row": (
        lambda df: df.set_index(df.index.where(df.index != df.index[3], df.index[3] + pd.Timedelta("7min"))),
        r"2 steps differ, .*02:00:00 to 2024-01-01 03:07:00.*by the means within each, freq='h'",
    ),
    "a word": (
        lambda df: df.assign(b=["1"] * 5 + ["broken"] + ["1"] * 5),
        "column 'b' of the frame is not numeric: row 2024-01-01 05:00:00 holds 'broken'; correct .* na='broken'",
    ),
    "dates as values": (lambda df: df.assign(b=df.index), "column 'b' of the frame is not numeric but datetime64"),
    "infinite": (
        lambda df: with_row(df, 6, np.inf),
        "3 values are infinite, the first in 'a' at 2024-01-01 06:00:00",
    ),
    "an empty channel": (lambda df: df.assign(b=np.nan), "these channels have no value at all: b; drop them"),
    "gaps": (
        lambda df: with_row(df, 6, np.nan).assign(b=1.0),
        r"2 values are missing: 1 in a, 1 in c; choose a policy, .*'interpolate' .*'ffill' .* or missing='mask'",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_is_refused_with_the_way_out(spoil: Callable[[pd.DataFrame], pd.DataFrame], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate(spoil(hourly()))


def test_an_unknown_policy_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"unknown policy for missing values 'fill'.*error, ffill, interpolate, mask"):
        validate(hourly(), missing="fill")


def test_the_way_out_of_missing_rows_is_one() -> None:
    frame = hourly().drop(hourly().index[[3, 7]])
    checked = validate(frame.asfreq("h"), missing="interpolate")
    assert checked.shape == (11, 3)


@pytest.mark.parametrize("freq", ["B", "MS", "ME", "15min"])
def test_the_way_out_keeps_to_the_calendar(freq: str) -> None:
    whole = pd.DataFrame({"a": np.arange(23.0)}, index=pd.date_range("2024-01-01", periods=23, freq=freq))
    with pytest.raises(InputError, match=rf"rows are missing: .*; df\.asfreq\('{freq}'\)"):
        validate(whole.drop(whole.index[7]))
    way_out = whole.drop(whole.index[7]).asfreq(freq)
    assert list(validate(way_out, missing="interpolate").index) == list(whole.index)


def test_policies_fill_gaps_as_they_say() -> None:
    frame = pd.DataFrame(
        {"a": [np.nan, 2.0, np.nan, np.nan, 8.0, np.nan], "b": [0.0, 1, 2, 3, 4, 5]},
        index=pd.date_range("2024-01-01", periods=6, freq="h"),
    )
    assert validate(frame, missing="interpolate")["a"].tolist() == [2, 2, 4, 6, 8, 8]
    assert validate(frame, missing="ffill")["a"].tolist() == [2, 2, 2, 2, 8, 8]


def test_masked_gaps_stay_where_they_are() -> None:
    frame = with_row(hourly(), 4, np.nan)
    pd.testing.assert_frame_equal(validate(frame, missing="mask"), frame)


def test_numbered_rows_are_counted_on_and_have_no_season() -> None:
    frame = hourly(rows=41).set_axis(range(7, 7 + 3 * 41, 3))
    checked = validate(frame.iloc[::-1])
    assert isinstance(checked.index, pd.RangeIndex) and list(checked.index) == list(frame.index)
    assert list(future_index(checked.index, 2)) == [130, 133]
    assert season_of(checked.index) == 1
    dataset = dataset_from_frame(frame)
    assert dataset.index is None and dataset.season == 1
    assert describe_gaps(frame) == "no value is missing in 41 rows"
    holed = frame.copy()
    holed.iloc[3, 0] = np.nan
    first = frame.iloc[:, 0]
    between = (first.iloc[2] + first.iloc[4]) / 2
    assert validate(holed, missing="interpolate").iloc[3, 0] == pytest.approx(between)


def test_whole_numbers_truth_values_and_numbers_in_text_are_numbers() -> None:
    frame = hourly().assign(b=[True, False] * 5 + [True], c=pd.array([1, None] * 5 + [3], dtype="Int64"))
    checked = validate(frame, missing="mask")
    assert checked["b"].tolist() == [1.0, 0.0] * 5 + [1.0]
    assert checked["c"].isna().sum() == 5
    mixed = hourly().astype(object)
    mixed.iloc[2, 1] = "x"
    with pytest.raises(InputError, match="column 'b' of the frame is not numeric: row 2024-01-01 02:00:00 holds 'x'"):
        validate(mixed)


def test_interpolation_goes_by_time_not_by_row() -> None:
    months = pd.date_range("2023-01-01", periods=4, freq="MS")  # 31 days, then 28
    frame = pd.DataFrame({"a": [0.0, np.nan, 59.0, 60.0]}, index=months)
    assert validate(frame, missing="interpolate")["a"].iloc[1] == pytest.approx(31.0)


@given(st.lists(st.integers(0, 28), max_size=19), st.sampled_from(["interpolate", "ffill"]))
def test_filling_leaves_known_values_alone_and_no_gaps(holes: list[int], policy: str) -> None:
    frame = hourly(rows=29, channels=("a", "b"))
    frame.iloc[holes, 0] = np.nan
    checked = validate(frame, missing=policy)
    known = frame["a"].notna()
    assert checked.notna().all(axis=None)
    assert (checked["a"][known] == frame["a"][known]).all()


def test_a_constant_channel_is_a_warning_that_names_it() -> None:
    frame = hourly().assign(b=7.0)
    with pytest.warns(ConstantChannelWarning, match="never change, their forecast is their constant: b$"):
        assert (validate(frame)["b"] == 7.0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        validate(hourly())


# ---------------------------------------------------------------- time

CALENDARS = {
    "hours": ("2024-01-01", "h", None),
    "quarter hours": ("2024-01-01", "15min", None),
    "days": ("2024-02-20", "D", None),
    "business days": ("2024-01-01", "B", None),
    "weeks": ("2024-01-01", "W-WED", None),
    "month starts": ("2024-01-01", "MS", None),
    "month ends": ("2024-01-31", "ME", None),
    "quarters": ("2024-03-31", "QE-DEC", None),
    "hours across spring": ("2024-03-30", "h", "Europe/Berlin"),
    "hours across autumn": ("2024-10-26", "h", "America/New_York"),
    "days across spring": ("2024-03-20", "D", "Europe/Berlin"),
}


@pytest.mark.parametrize("known", [13, 47])
@pytest.mark.parametrize(("start", "freq", "zone"), CALENDARS.values(), ids=CALENDARS.keys())
def test_the_future_continues_the_calendar(start: str, freq: str, zone: str | None, known: int) -> None:
    whole = pd.date_range(start, periods=known + 17, freq=freq, tz=zone)
    past = pd.DatetimeIndex(list(whole[:known]))  # freq is to be inferred
    future = future_index(past, 17)
    assert list(future) == list(whole[known:])
    assert list(future_index(whole[:known], 17)) == list(whole[known:])


@pytest.mark.parametrize(("start", "freq", "zone"), CALENDARS.values(), ids=CALENDARS.keys())
def test_every_calendar_is_a_regular_one(start: str, freq: str, zone: str | None) -> None:
    index = pd.DatetimeIndex(list(pd.date_range(start, periods=47, freq=freq, tz=zone)))
    frame = pd.DataFrame({"a": np.arange(47.0)}, index=index)
    assert list(validate(frame).index) == list(index)


@pytest.mark.parametrize(
    ("step", "name", "season"),
    [(pd.DateOffset(hours=1), "h", 24), (pd.DateOffset(months=1), "MS", 12), (pd.offsets.Week(), "W-MON", 1)],
)
def test_a_step_without_a_name_gets_the_one_its_stamps_show(step: pd.DateOffset, name: str, season: int) -> None:
    whole = pd.date_range("2024-01-01", periods=53 + 7, freq=step)
    frame = pd.DataFrame({"a": np.arange(53.0)}, index=whole[:53])
    index = validate(frame).index
    assert isinstance(index, pd.DatetimeIndex) and index.freqstr == name
    for known in (index, whole[:53]):
        assert list(future_index(known, 7)) == list(whole[53:])
        assert season_of(known) == season
    assert describe_gaps(frame).startswith("no value is missing in 53 ")


def test_a_step_without_a_name_that_the_stamps_do_not_show_is_refused() -> None:
    index = pd.date_range("2024-01-15", periods=11, freq=pd.DateOffset(months=1))
    with pytest.raises(InputError, match="time stamps are irregular"):
        validate(pd.DataFrame({"a": np.arange(11.0)}, index=index))


def test_business_days_skip_the_week_end() -> None:
    week = pd.date_range("2024-01-01", "2024-01-12", freq="B")  # ends on a Friday
    assert future_index(week, 2).tolist() == [pd.Timestamp("2024-01-15"), pd.Timestamp("2024-01-16")]


def test_an_unknown_future_is_refused() -> None:
    index = hourly().index
    assert isinstance(index, pd.DatetimeIndex)
    with pytest.raises(InputError, match="horizon must be at least 1 step, but 0"):
        future_index(index, 0)
    with pytest.raises(InputError, match="step of these 10 time stamps is unknown"):
        future_index(index.delete(4), 3)


@pytest.mark.parametrize(
    ("freq", "rows", "season"),
    [
        ("h", 100, 24),
        ("15min", 500, 96),
        ("7min", 3000, 1),  # 7 minutes do not divide the day
        ("D", 100, 7),
        ("B", 100, 5),
        ("W-SUN", 110, 52),
        ("MS", 100, 12),
        ("QE-DEC", 100, 4),
        ("YE-DEC", 30, 1),
        ("h", 47, 1),  # less than two days
    ],
)
def test_the_season_is_the_usual_one_if_it_fits_twice(freq: str, rows: int, season: int) -> None:
    assert season_of(pd.date_range("2001-01-01", periods=rows, freq=freq)) == season


# ---------------------------------------------------------------- words and data sets


@pytest.mark.parametrize(
    ("freq", "words"),
    [("h", "hourly"), ("15min", "every 15 minutes"), ("B", "business days"), ("W-WED", "weekly"), ("QE", "quarterly")],
)
def test_a_frequency_in_words_is_that_of_the_dates(freq: str, words: str) -> None:
    index = pd.date_range("2024-01-01", periods=29, freq=freq)
    assert frequency_in_words(index) == frequency_in_words(pd.DatetimeIndex(index.to_numpy())) == words
    assert frequency_in_words(index.delete(7)) == "irregular"
    assert frequency_in_words(pd.date_range("2024", periods=5, freq=pd.DateOffset(hours=3))) == "every 3 hours"


def test_gaps_are_described_in_a_sentence() -> None:
    frame = hourly(channels=("a", "b", "c", "d", "e"))
    assert describe_gaps(frame) == "no value is missing in 11 hours"
    for channel, holes in (("a", 1), ("b", 5), ("c", 2), ("d", 3)):
        frame.loc[frame.index[:holes], channel] = np.nan
    assert describe_gaps(frame) == (
        "5 of 11 hours have missing values, most of them in b (5), d (3) and c (2), filled by time interpolation"
    )
    assert describe_gaps(frame.asfreq("2h"), missing="ffill").startswith("3 of 6 rows have missing values")
    assert describe_gaps(frame[["a"]], missing="error") == (
        "1 of 11 hours have missing values, all of them in a (1), left as they are"
    )


def test_gaps_of_the_embedded_set_are_described() -> None:
    assert describe_gaps(nyc_weather()).startswith(
        "2008 of 8730 hours have missing values, most of them in LGA pressure"
    )


def test_a_frame_becomes_a_data_set_that_can_be_split() -> None:
    frame = hourly(rows=211).rename(columns={"c": 3})
    dataset = dataset_from_frame(frame, name="plant")
    assert (dataset.name, dataset.names, dataset.season) == ("plant", ("a", "b", "3"), 24)
    np.testing.assert_array_equal(dataset.values, frame.to_numpy())
    splits = split(dataset, lookback=7, horizon=5)
    assert (len(splits.train), len(splits.test), splits.train.n_time_features) == (147 - 11, 42 - 4, 4)
    assert dataset_from_frame(frame, season=5).season == 5


def test_a_data_set_is_made_of_checked_frames_only() -> None:
    with pytest.raises(InputError, match="values are missing"):
        dataset_from_frame(hourly().mask(hourly() > 1))
    with pytest.raises(InputError, match="season is 0; it must be a whole number of at least 1"):
        dataset_from_frame(hourly(), season=0)
    for check in (dataset_from_frame, validate):
        with pytest.raises(InputError, match="df is array.*; it must be a DataFrame"):
            check(hourly().to_numpy())  # type: ignore[arg-type]
