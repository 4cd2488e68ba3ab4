"""Tables of all kinds: what is accepted has the right rows and values, everything else is refused in one sentence."""

import io
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from primecast.errors import InputError
from primecast.frames.dates import describe_step, future_index, season_of
from primecast.frames.layouts import Layout, lengthen
from primecast.frames.read import open_table
from primecast.frames.validate import CheckedFrame, check_frame
from tests.fuzz.mutations import damaged
from tests.fuzz.outcomes import fuzz, outcome

STARTS = ["1677-09-22", "1970-01-01", "2024-01-01", "2024-01-11", "2024-02-28", "2024-03-30 23:00", "2262-04-09"]
STEPS = ["h", "15min", "s", "D", "B", "W-SUN", "MS", "ME", "QE-DEC", "YS", "7h", "ms", "ns"]
ZONES = [None, None, None, "UTC", "Europe/Berlin", "America/New_York", "+02:30", "Africa/Monrovia"]
NAMES = [
    "a",
    "b",
    "temp °C",
    "y",
    "ds",
    "date",
    "unique_id",
    "a,b",
    'a"b',
    "a;b",
    "17",
    "-3",
    " a",
    "nan",
    "",
    "a-lo-80",
]
VALUES = st.one_of(
    *[st.floats(-1e3, 1e3).map(lambda value: round(value, 3))] * 9,
    st.sampled_from([0.0, -0.0, 1e-200, 1e300, 1e-320, float("nan"), float("inf"), 2.0**53 + 1, 17.0]),
)
FORMATS = [
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%y %H:%M:%S"),
    *("%Y/%m/%d %H:%M:%S", "%y-%m-%d %H:%M:%S", "%H:%M:%S %d/%m/%Y", "%I%p %d/%m/%Y", "%d. %m. %Y", "%m - %d - %Y"),
    *("%Hh%M %d/%m/%y", "%b %d %Y %H:%M", "%a %d.%m.%Y %I:%M %p", "%d/%m", "%H:%M:%S", "%Y%m%dT%H%M%S"),
]


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Return a wide frame of dates or numbers, mostly one that can be used."""
    rows = draw(st.sampled_from([0, 1, 2, 3, 3, 4, 5, 5, 7, 7, 11, 11]))
    least = 0 if draw(st.integers(0, 9)) == 9 else 1
    columns = draw(st.lists(st.sampled_from(NAMES), min_size=least, max_size=4, unique=draw(st.integers(0, 9)) < 9))
    values = draw(st.lists(VALUES, min_size=rows * len(columns), max_size=rows * len(columns)))
    index: pd.Index
    if draw(st.integers(0, 4)) < 4:
        try:
            index = pd.date_range(
                draw(st.sampled_from(STARTS)),
                periods=rows,
                freq=draw(st.sampled_from(STEPS)),
                tz=draw(st.sampled_from(ZONES)),
                unit=draw(st.sampled_from(["s", "us", "ns"])),
            )
        except ValueError:  # dates that pandas does not have
            assume(False)
        index = index._with_freq(draw(st.sampled_from([None, "infer"]))) if rows > 2 else index  # type: ignore[attr-defined]
    else:
        start, step = draw(st.sampled_from([0, -5, 10**9, (1 << 63) - 40])), draw(st.integers(1, 3))
        index = pd.RangeIndex(start, start + rows * step, step)
    return pd.DataFrame(np.reshape(values, (rows, len(columns))).astype(float), index=index, columns=columns)


def disordered(draw: Callable[..., Any], frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with rows left out, doubled or in another order, or as it is."""
    kind = draw(st.sampled_from(["as it is", "as it is", "reversed", "gap", "double", "order", "missing"]))
    if kind == "as it is" or len(frame) < 3:
        return frame
    if kind == "missing" and isinstance(frame.index, pd.DatetimeIndex):
        return frame.set_axis(frame.index.where(np.arange(len(frame)) != 1), axis="index")
    order = list(range(len(frame)))
    place = draw(st.integers(1, len(frame) - 2))
    changed = {
        "reversed": order[::-1],
        "gap": order[:place] + order[place + 1 :],
        "double": order[:place] + order[place - 1 :],
        "order": order[place:] + order[:place],
    }
    return frame.iloc[changed.get(kind, order)]


def check(given: pd.DataFrame, wide: pd.DataFrame, layout: Layout, *, exact: bool = True) -> CheckedFrame:
    """Return the checked frame, if it holds the values of the given one at their times; render a forecast of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant channels
        table = check_frame(wide.rename(columns=str), missing="ffill")
    names = [str(name) for name in given.columns]
    assert list(table.frame.columns) == (names if exact else [name.strip() for name in names])
    expected = given.sort_index()
    if isinstance(expected.index, pd.DatetimeIndex):
        assert isinstance(table.index, pd.DatetimeIndex)
        there = expected.index.tz_convert("UTC") if expected.index.tz is not None else expected.index
        here = table.index.tz_convert("UTC") if table.index.tz is not None else table.index
        assert there.isin(here).all() and here[0] == there[0] and here[-1] == there[-1]
        expected = expected.set_axis(there, axis="index").reindex(here)  # rows that are not there are gaps
    assert len(table) == len(expected)
    values = expected.to_numpy(float)
    known = ~np.isnan(values)
    assert (table.gaps == ~known).all()
    if exact:
        assert (table.frame.to_numpy()[known] == values[known]).all()
    else:
        np.testing.assert_allclose(table.frame.to_numpy()[known], values[known], rtol=1e-12)
    describe_step(table.index)
    season_of(table.index)
    ahead = future_index(table.index, 3)
    assert table.index.append(ahead).is_monotonic_increasing
    point = pd.DataFrame(table.frame.to_numpy()[-3:], index=ahead, columns=table.frame.columns)
    layout.render(point, {"lo-80": point, "hi-80": point})
    return table


@fuzz(few=40)
@given(st.data())
def test_a_wide_frame(data: st.DataObject) -> None:
    frame = disordered(data.draw, data.draw(frames()))

    def read() -> None:
        opened = open_table(frame)
        wide, layout = opened.frame, opened.layout
        check(frame, wide, layout)

    outcome("wide frames", read)


@fuzz(few=30)
@given(st.data())
def test_a_long_frame(data: st.DataObject) -> None:
    frame = data.draw(frames())
    long = lengthen(frame)
    if data.draw(st.booleans()) and len(long):
        long = long.iloc[data.draw(st.permutations(range(len(long))))]

    def read() -> None:
        opened = open_table(long)
        wide, layout = opened.frame, opened.layout
        check(frame[sorted(frame.columns)], wide[sorted(wide.columns)], layout)

    outcome("long frames", read)


@fuzz(few=40)
@given(st.data())
def test_a_csv_file(tmp_path: Path, data: st.DataObject) -> None:
    frame = data.draw(frames())
    assume(isinstance(frame.index, pd.DatetimeIndex))
    header = [data.draw(st.sampled_from(["date", "when", "time"])), *frame.columns]
    assume(len(set(header)) == len(header) and "" not in header)  # pandas gives such columns names of its own
    dayfirst = data.draw(st.sampled_from([None, None, True, False]))
    written = data.draw(st.sampled_from([None, *FORMATS]))
    sep = data.draw(st.sampled_from([",", ",", ";", "\t"]))
    text = io.StringIO(newline="")
    frame.rename_axis(header[0]).to_csv(
        text,
        date_format=written,
        sep=sep,
        decimal="," if sep == ";" else ".",
        lineterminator=data.draw(st.sampled_from(["\n", "\r\n"])),
    )
    path = tmp_path / "table.csv"
    content = text.getvalue().encode()
    # Of %y-%m-%d, too, dayfirst=True says that the day comes first.
    order = "" if written is None or written.startswith("%Y") else "".join(re.findall("%([ymdYb])", written))
    contradicts = dayfirst is not None and order[:2] in ("dm", "md", "ym") and dayfirst != (order[:2] == "dm")
    header_row = data.draw(st.integers(0, 4)) > 0
    dates = pd.DatetimeIndex(frame.index)
    loses = written is not None and (
        dates.tz is not None
        or not (pd.to_datetime(dates.strftime(written), format=written, errors="coerce") == dates).all()
    )

    path.write_bytes(
        data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + (content if header_row else content.partition(b"\n")[2])
    )

    def read() -> None:
        opened = open_table(path, dayfirst=dayfirst)
        assert header_row, "the first row became names"
        wide, layout = opened.frame, opened.layout
        if not contradicts and not loses:
            check(frame, wide, layout, exact=False)

    outcome("CSV files", read)


@fuzz(few=30)
@given(st.data())
def test_a_csv_file_of_changed_bytes(tmp_path: Path, data: st.DataObject) -> None:
    text = "date,a,b\n" + "".join(f"2024-01-{day:02} 00:00,{day},{day / 7:.3f}\n" for day in range(1, 13))
    path = tmp_path / data.draw(st.sampled_from(["table.csv", "table.csv.gz", "table.csv.xz"]))
    changed = damaged(data, text.encode())
    path.write_bytes(changed)

    def read() -> None:
        opened = open_table(path)
        wide, layout = opened.frame, opened.layout
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            table = check_frame(wide, missing="ffill")
        assert np.isfinite(table.frame.to_numpy()).all() and len(table) > 0
        layout.render(table.frame, {})

    outcome("CSV files of changed bytes", read)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The same table as a Parquet, a Feather and an Excel file: ending -> bytes."""
    frame = pd.DataFrame(
        {"date": pd.date_range("2024-01-01", periods=13), "a": np.arange(13.0), "b": ["1", "x"] * 6 + ["2"]}
    )
    folder = tmp_path_factory.mktemp("binary")
    for ending, package in {"parquet": "pyarrow", "feather": "pyarrow", "xlsx": "openpyxl"}.items():
        pytest.importorskip(package)
        getattr(frame, "to_excel" if ending == "xlsx" else f"to_{ending}")(folder / f"table.{ending}")
    return {path.suffix: path.read_bytes() for path in sorted(folder.iterdir())}


@fuzz(few=30)
@given(st.data())
def test_a_binary_file_of_changed_bytes(tmp_path: Path, binary: dict[str, bytes], data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from(list(binary)))
    path = tmp_path / f"table{ending}"
    path.write_bytes(damaged_member(data, binary[ending]) if ending == ".xlsx" else damaged(data, binary[ending]))
    outcome("Parquet, Feather and Excel files of changed bytes", lambda: open_table(path, drop=["b"]))


def damaged_member(data: st.DataObject, whole: bytes) -> bytes:
    """Return a ZIP archive with one of its files damaged, or with its own bytes damaged."""
    if data.draw(st.booleans()):
        return damaged(data, whole)
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(changed, "w") as new:
        hit = data.draw(st.sampled_from(old.namelist()))
        for name in old.namelist():
            new.writestr(name, damaged(data, old.read(name)) if name == hit else old.read(name))
    return changed.getvalue()


@fuzz(few=20)
@given(st.text(max_size=99))
def test_a_text_for_a_path(text: str) -> None:
    outcome("texts for a path", lambda: open_table(text))


def test_a_long_frame_without_rows_is_refused_in_one_sentence() -> None:
    assert outcome("long frames", lambda: open_table(lengthen(pd.DataFrame(columns=["a"])))) is None


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_a_csv_file_of_decimal_commas_without_a_header(tmp_path: Path, rows: int) -> None:
    """As many commas as semicolons: the first row became names, by commas."""
    path = tmp_path / "table.csv"
    path.write_text("".join(f"1677-09-22 0{row}:00:00;-{row},0;0,0\n" for row in range(rows)))
    with pytest.raises(InputError, match="the first row of .* holds no names but 1677-09-22 00:00:00, -0,0, 0,0; if"):
        open_table(path)
    frame = open_table(path, header=None).frame
    assert list(frame.iloc[:, 0]) == [-float(row) for row in range(rows)]
    path.write_text("time;a;b\n" + path.read_text())
    assert list(open_table(path).frame["a"]) == [-float(row) for row in range(rows)]
