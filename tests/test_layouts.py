"""Tables in, the same kind of table out: names and the reading of dates are remembered for the tables that follow."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.frames.layouts import Layout, lengthen
from primecast.frames.read import open_table, reopen_table

QUICK: dict[str, Any] = {"horizon": 3, "lookback": 11, "epochs": 1, "model": "dlinear", "progress": "off"}


def hourly(rows: int = 53, columns: tuple[object, ...] = ("a", "b", "c")) -> pd.DataFrame:
    values = np.random.default_rng(5).normal(size=(rows, len(columns)))
    return pd.DataFrame(values, index=pd.date_range("2024-02-05", periods=rows, freq="h"), columns=list(columns))


def write_day_first(frame: pd.DataFrame, path: Path) -> Path:
    frame.rename_axis("when").to_csv(path, date_format="%d/%m/%Y %H:%M")
    return path


# ---------------------------------------------------------------- the reading of dates


def test_a_later_table_is_read_with_the_day_first_as_the_first_one_was(tmp_path: Path) -> None:
    whole = hourly(331)  # until the 18th, which is no month
    layout = open_table(write_day_first(whole, tmp_path / "old.csv")).layout
    assert layout.dayfirst is True
    later = write_day_first(whole.iloc[:19], tmp_path / "new.csv")  # all of it on 05/02/2024
    for given in (later, pd.read_csv(later)):
        with pytest.raises(InputError, match="may be 05 February 2024 or 02 May 2024"):
            open_table(given, time="when")
        wide, again = reopen_table(given, Layout(time="when", dayfirst=True))
        assert list(wide.index) == list(whole.index[:19]) and again.dayfirst is True
    long = lengthen(whole.iloc[:19])
    long["ds"] = long["ds"].dt.strftime("%d/%m/%Y %H:%M")
    assert list(reopen_table(long, layout)[0].index) == list(whole.index[:19])


# ---------------------------------------------------------------- names


def test_a_long_file_is_opened_by_the_names_said_and_so_is_the_next(tmp_path: Path) -> None:
    long = lengthen(hourly(), id_column="sensor", time_column="at", value_column="reading")
    long.to_csv(tmp_path / "long.csv", index=False)
    opened = open_table(tmp_path / "long.csv", id="sensor", time="at", value="reading")
    wide, layout = opened.frame, opened.layout
    again, _ = reopen_table(tmp_path / "long.csv", layout)
    for one in (wide, again):
        pd.testing.assert_frame_equal(one, hourly(), check_names=False, check_freq=False)
    assert list(layout.render(wide, {}).columns) == ["a", "b", "c"]  # a file is handed back as a wide frame


def test_names_said_of_a_frame_apply_to_later_ones_that_have_such_columns() -> None:
    long = lengthen(hourly(), id_column="sensor", time_column="at", value_column="reading")
    layout = open_table(long, id="sensor", time="at", value="reading").layout
    assert list(reopen_table(long, layout)[0].columns) == ["a", "b", "c"]
    assert reopen_table(hourly(), layout)[1].id is None
    timed = hourly().rename_axis("date").reset_index().assign(when=hourly().index)
    layout = open_table(timed.drop(columns="date"), time="when").layout
    assert list(reopen_table(timed.drop(columns="date"), layout)[0].index) == list(hourly().index)
    assert reopen_table(hourly(), layout)[1].time is None


def test_names_that_are_whole_numbers_come_back_as_such() -> None:
    opened = open_table(hourly(columns=(7, 11, "c")))
    wide, layout = opened.frame, opened.layout
    inside = wide.rename(columns=str)
    assert list(layout.render(inside, {}).columns) == [7, 11, "c"]
    bounds = {"lo-80": inside - 1, "hi-80": inside + 1}
    assert list(layout.render(inside[["11", "c"]], bounds).columns) == [
        *(11, "11-lo-80", "11-hi-80"),
        *("c", "c-lo-80", "c-hi-80"),
    ]
    np.testing.assert_array_equal(layout.render(inside, bounds)["11-hi-80"], wide[11] + 1)


def test_ids_that_are_whole_numbers_come_back_as_such(tmp_path: Path) -> None:
    long = lengthen(hourly(columns=(13, 5, 2)))
    opened = open_table(long)
    wide, layout = opened.frame, opened.layout
    back = layout.render(wide.rename(columns=str), {})
    assert back["unique_id"].dtype == long["unique_id"].dtype == np.int64
    assert back["unique_id"].tolist() == long["unique_id"].tolist()
    long.to_csv(tmp_path / "long.csv", index=False)
    opened = open_table(tmp_path / "long.csv")
    wide, layout = opened.frame, opened.layout
    assert list(layout.render(wide.rename(columns=str), {}).columns) == [13, 5, 2]


def test_columns_of_several_levels_are_refused_before_any_is_looked_at() -> None:
    frame = hourly().set_axis(pd.MultiIndex.from_product([["temp"], ["x", "y", "z"]]), axis=1)
    ways: list[dict[str, Any]] = [{}, {"time": "temp"}, {"id": "temp"}]
    for options in ways:
        with pytest.raises(InputError, match=r"column names have 2 levels .* the first \('temp', 'x'\)"):
            open_table(frame.reset_index(drop=True), **options)


# ---------------------------------------------------------------- until the forecast is handed back


def fitted_and_loaded(folder: Path, data: object, **names: Any) -> list[Forecaster]:
    fitted = Forecaster(**QUICK).fit(data, **names)
    fitted.save(folder / "model")
    return [fitted, Forecaster.load(folder / "model")]


def test_a_forecast_of_a_day_that_could_be_a_month_goes_on_from_that_day(tmp_path: Path) -> None:
    whole = hourly(331)
    old = write_day_first(whole, tmp_path / "old.csv")
    new = write_day_first(whole.iloc[:19], tmp_path / "new.csv")
    for one in fitted_and_loaded(tmp_path, old):
        assert one.predict(new).index[0] == pd.Timestamp("2024-02-05 19:00")


def test_a_long_file_of_numbered_series_is_forecast_by_its_names(tmp_path: Path) -> None:
    long = lengthen(hourly(331, columns=(13, 5, 2)), id_column="sensor", time_column="at", value_column="reading")
    long.to_csv(tmp_path / "long.csv", index=False)
    for one in fitted_and_loaded(tmp_path, tmp_path / "long.csv", id="sensor", time="at", value="reading"):
        forecast = one.predict(tmp_path / "long.csv", level=[80])
        assert forecast.columns.tolist()[::3] == [13, 5, 2]
        pd.testing.assert_frame_equal(forecast, one.predict(level=[80]), check_freq=False)


def test_a_file_across_a_change_of_summer_time_can_be_gone_on_from_its_last_rows(tmp_path: Path) -> None:
    whole = hourly(331).set_axis(pd.date_range("2024-03-25", periods=331, freq="h", tz="Europe/Berlin"), axis="index")
    whole.iloc[:311].to_csv(tmp_path / "old.csv", index_label="date")
    whole.iloc[-41:].to_csv(tmp_path / "new.csv", index_label="date")  # all of them in summer
    after = whole.index[-1] + pd.Timedelta("1h")
    for one in fitted_and_loaded(tmp_path, tmp_path / "old.csv"):
        forecast = one.predict(tmp_path / "new.csv")
        assert forecast.index[0] == after
        pd.testing.assert_frame_equal(one.update(tmp_path / "new.csv").predict(), forecast)
