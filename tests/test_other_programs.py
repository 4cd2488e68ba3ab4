"""Files of loggers, databases, plants and spreadsheets: each gives its rows, or is refused with what reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from primecast import InputError
from primecast.frames import validate
from primecast.frames.read import OpenTable, open_table

ROWS = 211
HOURS = pd.date_range("2024-02-27", periods=ROWS, freq="h")
A, B = (
    (20 + 5 * np.sin(np.arange(ROWS) * np.pi / 12 + phase) + np.random.default_rng(phase).normal(size=ROWS)).round(2)
    for phase in (0, 2)
)


def opened(folder: Path, content: str, **options: Any) -> OpenTable:
    path = folder / "plant.txt"
    path.write_text(content, encoding="utf-8")
    return open_table(path, **options)


def written(row: Callable[[pd.Timestamp, float, float], str], *, above: str, below: str = "") -> str:
    body = [row(hour, a, b) for hour, a, b in zip(HOURS, A, B, strict=True)]
    return "\n".join([above, *body, below])


RULED = written(
    lambda hour, a, b: f" {hour}+00 | {a:6.2f} | {b:6.2f}",
    above="         bucket         |   T    |   p\n------------------------+--------+--------",
    below=f"({ROWS} rows)\n",
)
BORDERED = written(
    lambda hour, a, b: f"| {hour} | {a:6.2f} | {b:6.2f} |",
    above="+-----+----+----+\n| at | T | p |\n+-----+----+----+",
    below="+-----+----+----+\n",
)
PADDED = written(
    lambda hour, a, b: f"{hour:%d.%m.%Y %H:%M};{a};{b};ok".replace(".", ",").replace(",", ".", 2),
    above="Site:;DE0001;;\nRead on:;20.02.2024;;\n;;;\nFrom;T;p;Status",
)
WORDS = written(
    lambda hour, a, b: f"{hour:%Y%m%d}  {hour:%H%M}  {a:6.2f}  {b:6.2f}",
    above="           HOURLY OBSERVATIONS\n STATION 72503\n\nDATE      TIME  T       p\n--------  ----  ------  ------",
)
BUOY = written(
    lambda hour, a, b: f"{hour:%Y %m %d %H %M} {a:5.2f} {b:5.2f}",
    above="#YY  MM DD hh mm T     p\n#yr  mo dy hr mn degC  hPa",
)
SHORT_CLOCK = written(
    lambda hour, a, b: f"{hour:%m/%d/%y}\t{hour.hour % 12 or 12}:{hour:%M}{'a' if hour.hour < 12 else 'p'}\t{a}\t{b}",
    above="\t\tT\tp\nDate\tTime\tOut\tOut",
)
SUMMED = written(
    lambda hour, a, b: f"{hour},{a},{b}", above="time,T,p", below=f"Sum,{A.sum():.2f},{B.sum():.2f}\n,0,0\n"
)
FILES: dict[str, tuple[str, str]] = {
    "a query of a database": (RULED, "1 row below the last date left out: '(211 rows)'"),
    "a table with borders": (BORDERED, "time column 'at'"),
    "titles that a spreadsheet padded": (PADDED, "3 lines above the names left out"),
    "columns between blanks below a title": (WORDS, "time from DATE, TIME, 2 lines above the names left out"),
    "a buoy": (BUOY, "time from YY, MM, DD, hh, mm, names from the comment above the rows"),
    "a clock with a and p": (SHORT_CLOCK, "time from Date, Time"),
    "sums below the rows": (SUMMED, "2 rows below the last date left out: 'Sum'"),
}


@pytest.mark.parametrize(("content", "said"), FILES.values(), ids=FILES.keys())
def test_a_file_of_another_program_gives_its_rows_and_says_what_was_done(
    content: str, said: str, tmp_path: Path
) -> None:
    table = opened(tmp_path, content)
    np.testing.assert_array_equal(table.frame, np.column_stack([A, B]))
    index = pd.DatetimeIndex(table.frame.index)
    assert list(index.tz_localize(None)) == list(HOURS)
    assert said in table.describe()


def test_units_below_the_names_of_a_buoy_are_units(tmp_path: Path) -> None:
    assert opened(tmp_path, BUOY).frame.attrs["units"]["T"] == "degC"


def test_rain_in_mm_is_no_minute(tmp_path: Path) -> None:
    content = written(lambda hour, a, b: f"{hour:%Y,%m,%d,%H},{hour.hour % 3},{a}", above="year,month,day,hour,mm,T")
    table = opened(tmp_path, content)
    assert list(table.frame.columns) == ["mm", "T"] and list(table.frame.index) == list(HOURS)


def test_last_rows_are_left_out_for_the_time_alone(tmp_path: Path) -> None:
    """Other columns of dates may be empty at their end."""
    rows = [
        f"{hour},{a},{'' if row > 200 else hour.date()}" for row, (hour, a) in enumerate(zip(HOURS, A, strict=True))
    ]
    table = opened(tmp_path, "\n".join(["time,T,serviced", *rows]))
    assert len(table.frame) == ROWS and "below the last date" not in table.describe()
    four = "\n".join(["time,T,p", *(f"{hour},1.5,2" for hour in HOURS), *["end,0,0"] * 4])
    with pytest.raises(InputError, match=f"column 'time' of .* holds dates, but row {ROWS + 1} has 'end'"):
        opened(tmp_path, four)


def test_the_sums_of_a_workbook_are_left_out_and_its_merged_names_are_joined(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    rows: list[list[Any]] = [["report", None, None, None], [None] * 4]
    rows += [["day", "hall 1", None, "hall 2"], [None, "T", "p", "T"], [None, "C", "hPa", "C"]]
    rows += [[hour, a, b, a] for hour, a, b in zip(HOURS, A, B, strict=True)]
    pd.DataFrame([*rows, ["sum", 1.0, 2.0, 3.0]], dtype=object).to_excel(
        tmp_path / "plant.xlsx", header=False, index=False, startcol=1
    )
    table = open_table(tmp_path / "plant.xlsx")
    assert list(table.frame.columns) == ["hall 1 T", "hall 1 p", "hall 2 T"] and table.frame.index.name == "day"
    np.testing.assert_array_equal(table.frame, np.column_stack([A, B, A]))
    assert "1 row below the last date left out: 'sum'" in table.describe()


@pytest.mark.parametrize("word", ["ERR", "\\N", "unavailable", "unknown", "ND", "MM", "***", "#REF!"])
def test_words_of_programs_for_missing_are_missing(word: str, tmp_path: Path) -> None:
    rows = [f"{hour},{word if row == 7 else a}" for row, (hour, a) in enumerate(zip(HOURS, A, strict=True))]
    assert list(np.flatnonzero(opened(tmp_path, "\n".join(["time,T", *rows])).frame["T"].isna())) == [7]


def test_words_for_missing_among_words_are_values(tmp_path: Path) -> None:
    rows = [f"{hour},{a},{'unknown' if row % 3 else 'ND'}" for row, (hour, a) in enumerate(zip(HOURS, A, strict=True))]
    table = opened(tmp_path, "\n".join(["time,T,state", *rows]), covariates=["state"])
    assert list(table.frame.columns) == ["T", "state=ND", "state=unknown"] and not table.frame.isna().any(axis=None)


def test_a_word_among_decimal_commas_is_named_and_its_channel_is_kept(tmp_path: Path) -> None:
    rows = [
        f"{hour};{'Bad Input' if row == 7 else a};{b}".replace(".", ",")
        for row, (hour, a, b) in enumerate(zip(HOURS, A, B, strict=True))
    ]
    content = "\n".join(["time;T;p", *rows])
    with pytest.raises(InputError, match="column 'T' .* holds 'Bad Input'"):
        validate(opened(tmp_path, content).frame)
    assert list(opened(tmp_path, content, na="Bad Input").frame.columns) == ["T", "p"]


def test_the_tables_of_an_influx_export_are_one_and_its_names_are_said(tmp_path: Path) -> None:
    parts = []
    for number, (name, values) in enumerate((("T", A), ("p", B))):
        rows = [f",,{number},{hour:%Y-%m-%dT%H:%M:%SZ},{x},{name},pi" for hour, x in zip(HOURS, values, strict=True)]
        annotations = [
            "#group,false,false,false,false,true,true",
            "#datatype,string,long,dateTime,double,string,string",
        ]
        parts += [*annotations, "#default,_result,,,,,", ",result,table,_time,_value,_field,host", *rows, ""]
    content = "\n".join(parts)
    with pytest.raises(InputError, match="once for each _field: .* give id='_field', value='_value'"):
        opened(tmp_path, content)
    table = opened(tmp_path, content, id="_field", value="_value")
    np.testing.assert_array_equal(table.frame[["T", "p"]], np.column_stack([A, B]))


def test_states_of_several_sensors_in_one_column_are_refused_until_it_is_said(tmp_path: Path) -> None:
    late = np.random.default_rng(7).uniform(0, 3000, 2 * ROWS)
    states = [(hour, "t", a) for hour, a in zip(HOURS, A, strict=True)]
    states += [(hour, "h", b) for hour, b in zip(HOURS, B, strict=True)]
    rows = sorted(
        (hour + pd.Timedelta(seconds=more), name, x) for (hour, name, x), more in zip(states, late, strict=True)
    )
    content = "\n".join(
        ["entity_id,state,last_changed", *(f"sensor.{name},{x},{at:%Y-%m-%dT%H:%M:%S.%fZ}" for at, name, x in rows)]
    ).replace(f",{A[5]},", ",unavailable,", 1)
    message = "of 2 entity_ids at irregular times: give id='entity_id' and a step for all of them, such as freq='h'"
    for options in ({}, {"freq": "h"}):
        with pytest.raises(InputError, match=message):
            opened(tmp_path, content, **options)
    table = opened(tmp_path, content, id="entity_id", freq="h")
    assert table.frame["sensor.t"].isna().sum() == 1
    np.testing.assert_array_equal(table.frame["sensor.h"], B)


def test_what_is_no_table_is_refused_with_what_to_do(tmp_path: Path) -> None:
    content = "Writer\t2\n***End***\t\nSamples\t600\t600\nX\tU\tI\tComment\n" + "0.1\t1.5\t2.5\n" * 20
    with pytest.raises(InputError, match="is not a CSV table: .*; delete the lines above the names and below the rows"):
        opened(tmp_path, content)
