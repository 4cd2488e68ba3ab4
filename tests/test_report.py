"""The report: what is in the page, that no name of a channel becomes markup, and, in a real browser, that it works."""

import base64
import gzip
import hashlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.model_card import describe_fitted
from primecast.frames.read import ColumnsLeftOutWarning
from primecast.reporting import render
from primecast.reporting.describe import duration, inspect
from primecast.reporting.gather import describe_settings, gather, pair_maps
from primecast.reporting.render import PairMap, ReportData, report_html, write_report
from primecast.reporting.summary import concerns, coverage_by_hour, next_values

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"
ROWS, HORIZON = 211, 13


def sample(channels: int = 5, *, first: str = HOSTILE) -> ReportData:
    """A report on waves that follow each other, each a step later; every part of it is there."""
    # Objects: pyarrow's strings, which pandas infers, cannot hold half a character.
    names = pd.Index([first, *(f"sensor {number}" for number in range(1, channels))], dtype=object)
    index = pd.date_range("2024-02-28", periods=ROWS + HORIZON, freq="h", name="time")
    place = np.arange(channels)
    values = 100 * (place + 1) + np.sin((np.arange(len(index))[:, None] - place) / 4)
    waves = pd.DataFrame(values, index=index, columns=names)
    frame, forecast = waves.iloc[:ROWS].copy(), waves.iloc[ROWS:]
    frame.iloc[40:47, 1] = np.nan
    pairs = pd.DataFrame(
        [
            (names[i], names[i + 1], i % 3, pd.Timedelta(hours=i % 3), (-1) ** i * (1 - i / channels))
            for i in place[:-1]
        ],
        columns=["leader", "follower", "steps", "time", "strength"],
        dtype=object,
    ).astype({"steps": int, "strength": float})
    weights = pd.DataFrame(np.eye(channels) + 0.25, index=names, columns=names)
    scores = {"rmse": 2.0, "mae": 1.5, "mase": 0.75, "naive_rmse": 4.0, "naive_mae": 3.0, "coverage-80": 0.81}
    return ReportData(
        title="waves & more",
        frame=frame,
        forecast=forecast,
        bounds={80: (forecast - 1, forecast + 3), 95: (forecast - 2, forecast + 7)},
        scores=pd.DataFrame({**scores, "width-80": 2.0}, index=pd.Index(["overall", *names], dtype=object)),
        earlier=earlier(frame, cutoff=ROWS - HORIZON - 1),
        pairs=pairs,
        maps=[
            PairMap(title=title, text=f"{title}.", frame=weights, concentration="Index 0.5")
            for title in ("Attention", "Primer")
        ],
        sensor_ablation=pd.DataFrame(
            {"mean": 0.05, "largest": np.linspace(0.3, 0.0, channels), "channel": names[1]}, index=names
        ),
        held_out={"windows": 29, "mse": 0.5, "mae": 0.5, "naive_mse": 1.0, "naive_mae": 0.4},
        settings={"model": {"name": "itransformer", "parameters": 12345}},
        lookback=17,
        units={names[1]: "m³/h"},
    )


def earlier(frame: pd.DataFrame, *, cutoff: int) -> pd.DataFrame:
    part = frame.iloc[cutoff + 1 : cutoff + 1 + HORIZON]
    names = pd.Series(np.repeat(frame.columns.to_numpy(), len(part)), dtype=object)
    forecast = part.to_numpy().T.ravel()
    long = pd.DataFrame(
        {"ds": part.index.append([part.index] * (len(frame.columns) - 1)), "cutoff": frame.index[cutoff]}
    )
    values = {
        "y": forecast + 0.5,
        "primecast": forecast,
        "primecast-lo-80": forecast - 1,
        "primecast-hi-80": forecast + 3,
    }
    return long.assign(unique_id=names, **values)


@pytest.fixture
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> str:
    """What is in a page does not depend on what plotly is."""
    script = "window.Plotly = {};"
    monkeypatch.setattr(render, "plotly_script", lambda: script)
    return script


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def packed(page: str, name: str) -> str:
    text = re.search(rf'id="{name}">([^<]*)</script>', page)
    assert text is not None
    return gzip.decompress(base64.b64decode(text[1])).decode()


# ---------------------------------------------------------------- what is in the page


@pytest.mark.usefixtures("small_plotly")
@pytest.mark.parametrize("name", [HOSTILE, "<b>bold</b>", "a & b", "\"'><svg onload=alert(1)>", "\u202eback"])
def test_a_channel_name_is_text_wherever_it_stands(name: str, tmp_path: Path) -> None:
    seen, plain = tmp_path / "report.html", tmp_path / "plain.html"
    write_report(sample(first=name), seen)
    write_report(sample(first="plain"), plain)
    found, wanted = (Tags(path.read_text(encoding="utf-8")) for path in (seen, plain))
    assert [tag for tag, _ in found.found] == [tag for tag, _ in wanted.found]
    if name.isprintable():
        assert found.text.count(name) == wanted.text.count("plain") >= 5


@pytest.mark.usefixtures("small_plotly")
def test_the_data_is_in_the_page_once_and_exact_to_a_hundred_thousandth_of_its_range() -> None:
    data = sample()
    page = report_html(data)
    found = json.loads(packed(page, "data"))
    names = found["channels"]
    assert names == list(data.frame.columns) and found["past"][0] == "2024-02-28 00:00:00"
    assert len(found["past"]) == ROWS and len(found["ahead"]) == HORIZON
    values = np.array(found["values"], dtype=float).T
    np.testing.assert_array_equal(np.isnan(values), data.frame.isna())
    span = data.frame.max() - data.frame.min()
    assert np.nanmax(np.abs(values - data.frame.to_numpy()) / span.to_numpy()) <= 1e-5
    np.testing.assert_allclose(np.array(found["bounds"]["95"][1]).T, data.bounds[95][1], atol=1e-5)
    np.testing.assert_allclose(np.array(found["backtest"][0]["values"]).T, data.frame.iloc[-HORIZON:], atol=1e-5)
    assert found["leads"][0] == [1, 2, 1, "1 h", -0.8] and found["together"][1] == [3, 4, 0, "0 s", -0.4]
    assert page == report_html(sample())


def test_the_page_lets_no_script_run_but_its_own_and_fetches_nothing(small_plotly: str) -> None:
    page = report_html(sample())
    tags = Tags(page)
    own = page.rsplit("<script>", 1)[1].split("</script>")[0]
    policy = next(attrs["content"] for tag, attrs in tags.found if attrs.get("http-equiv"))
    allowed = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (own, small_plotly)]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{allowed[0]}' 'sha256-{allowed[1]}'; style-src 'unsafe-inline'; "
        "img-src data: blob:"
    )
    assert not [attrs for _, attrs in tags.found if "src" in attrs or any(name.startswith("on") for name in attrs)]
    assert all(str(attrs["href"]).startswith("#") for tag, attrs in tags.found if tag == "a")
    assert not [tag for tag, _ in tags.found if tag == "link"]


@pytest.mark.usefixtures("small_plotly")
def test_every_link_of_the_page_has_its_section() -> None:
    tags = Tags(report_html(sample())).found
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {str(attrs["href"])[1:] for tag, attrs in tags if tag == "a"} <= set(ids)


@pytest.mark.usefixtures("small_plotly")
def test_the_first_sentence_says_how_it_compares_also_when_it_is_worse() -> None:
    page = report_html(sample())
    assert (
        "29 forecasts" in page and "<strong>50 % smaller</strong>" in page and "the absolute error 25 % larger" in page
    )
    assert "Single points of failure" in page and "50 %" in page


@pytest.mark.usefixtures("small_plotly")
def test_the_page_opens_with_the_next_values_how_good_it_was_and_what_to_worry_about() -> None:
    page = report_html(sample())
    ids = [str(attrs["id"]) for tag, attrs in Tags(page).found if tag == "section"]
    assert ids[:4] == ["next", "good", "worry", "future"]
    opening = page.split('<section id="next">')[1].split('<section id="good">')[0]
    assert "<th>2024-03-07 19:00</th>" in opening and "80 % prediction interval" in opening
    first = sample().forecast["sensor 1"].iloc[0]
    assert f"<strong>{first:.3f}</strong><small>{first - 1:.3f} … {first + 3:.3f}</small>" in opening
    assert '<bdi>sensor 1</bdi> <small class="unit">m³/h</small>' in opening


@pytest.mark.usefixtures("small_plotly")
def test_parts_that_could_not_be_made_say_why() -> None:
    data = sample()
    bare = ReportData(
        title="bare",
        frame=data.frame,
        forecast=data.forecast,
        notes={"backtest": "too few rows <here>", "relations": "no relations", "bounds": "no bounds"},
    )
    page = report_html(bare)
    assert "too few rows &lt;here&gt;" in page and page.count("no relations") == 2 and "no bounds" in page
    assert "no other channel to be affected" in page
    assert data.pairs is not None and data.sensor_ablation is not None
    none_found = report_html(replace(data, pairs=data.pairs.iloc[:0], sensor_ablation=data.sensor_ablation * 0))
    assert "significantly correlated" in none_found and "there is no single point of failure" in " ".join(
        none_found.split()
    )


@pytest.mark.usefixtures("small_plotly")
def test_hundreds_of_channels_are_cut_where_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MAP", 7)
    monkeypatch.setattr(render, "PAIRS", 11)
    monkeypatch.setattr(render, "CELLS", 53 * 101)
    page = report_html(sample(53))
    found = json.loads(packed(page, "data"))
    assert len(found["maps"][0]["values"]) == 7 and len(found["maps"][0]["values"][0]) == 7
    assert len(found["leads"]) == len(found["together"]) == 11 and found["leadsInAll"] == 34
    assert len(found["sensor_ablation"]) == render.BARS and len(found["values"]) == 53 and len(found["past"]) == 101
    assert (
        "The figure shows the 7 of 53 channels with the largest sums" in page
        and "The figure shows the 30 worst of 53" in page
    )


def test_a_report_without_plotly_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(InputError, match=r"a report needs plotly: pip install 'primecast\[report\]'"):
        write_report(sample(), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_page_can_be_made_where_there_is_no_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import pandas as pd; from primecast.reporting import render; render.plotly_script = lambda: ''\n"
        "frame = pd.DataFrame({'a': [1.0, 2.0, 4.0]}, index=pd.RangeIndex(3))\n"
        "print(len(render.report_html(render.ReportData('t', frame, frame.set_axis([3, 4, 5])))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10_000


@pytest.mark.usefixtures("small_plotly")
def test_leads_come_first_and_pairs_without_one_on_demand() -> None:
    page = report_html(sample())
    leads = page.split('id="leads-body"')[1].split("</tbody>")[0]
    assert leads.count("<tr>") == 2 and "together" not in leads
    assert "<details><summary>2 pairs move together, without a lead</summary>" in page
    data = sample()
    assert data.pairs is not None
    none = report_html(replace(data, pairs=data.pairs[data.pairs["steps"] == 0]))
    assert "No channel leads another." in none and 'id="graph"' not in none


@pytest.mark.usefixtures("small_plotly")
def test_a_flat_map_says_that_there_is_no_structure_to_show() -> None:
    data = sample()
    flat = replace(data.maps[0], frame=data.maps[0].frame * 0 + 0.2)
    page = report_html(replace(data, maps=[flat, data.maps[1]]))
    assert "No structure to show: no value differs from the mean, 0.2000, by more than 10\N{NO-BREAK SPACE}%." in page
    assert 'id="map-0"' not in page and 'id="map-1"' in page
    drawn = json.loads(packed(page, "data"))["maps"]
    assert drawn[0] is None and len(drawn[1]["values"]) == 5
    assert replace(flat, frame=flat.frame * 0).flat and not data.maps[1].flat


def test_the_table_of_a_map_has_the_largest_values_between_two_channels() -> None:
    frame = pd.DataFrame(np.arange(9.0).reshape(3, 3), index=list("abc"), columns=list("abc"))
    found = PairMap(title="own", text="", frame=frame).largest()
    assert found == [
        ("c", "b", 7.0),
        ("c", "a", 6.0),
        ("b", "c", 5.0),
        ("b", "a", 3.0),
        ("a", "c", 2.0),
        ("a", "b", 1.0),
    ]
    assert frame.loc["c", "c"] == 8
    assert len(sample(11).maps[0].largest()) == render.LISTED


@pytest.mark.usefixtures("small_plotly")
def test_only_a_map_of_many_pairs_is_cut() -> None:
    page = report_html(sample())
    assert "The largest values" not in page and "The largest values" in report_html(sample(11))


@pytest.mark.usefixtures("small_plotly")
def test_an_interval_beside_its_forecast_is_explained() -> None:
    data, said = sample(), "An interval need not contain its forecast"
    assert said not in report_html(data)
    low, high = data.bounds[80]
    raised = {step: low + 1.5 * (np.arange(HORIZON) == step)[:, None] for step in (0, 1)}
    assert said in report_html(replace(data, bounds={80: (raised[0], high), 95: data.bounds[95]}))
    assert said not in report_html(replace(data, bounds={80: (raised[1], high)}))  # a step that the table leaves out


@pytest.mark.usefixtures("small_plotly")
def test_an_ensemble_shows_its_leaderboard() -> None:
    none = [math.nan, math.nan]
    errors = {"test_mse": [0.5, 0.7, 1.1], "test_mae": [0.6, 0.8, 1.3]}
    board = {"weight": [0.25, *none], **errors, "seconds": [3.4, *none]}
    page = report_html(replace(sample(), leaderboard=pd.DataFrame(board, index=["shrink", "ensemble", "naive"])))
    assert "<tr><td><bdi>shrink</bdi></td><td>0.25</td><td>0.5000</td><td>0.6000</td><td>3</td>" in page
    assert '<tr class="total"><td><bdi>ensemble</bdi></td><td>-</td><td>0.7000</td>' in page
    assert "Leaderboard" not in report_html(sample())


def test_an_ensemble_is_described_by_its_members_and_a_single_model_by_its_attention() -> None:
    single = {"name": "itransformer", "attention": "prime", "parameters": 12345, "lookback": 17, "horizon": 13}
    assert describe_settings({"model": single}) == single
    members = [{"name": name, "weight": weight} for name, weight in (("ridge", 0.75), ("a", 0.0), ("b", 0.25))]
    assert describe_settings({"model": single, "members": members}) == {
        "name": "ensemble of 0.75 ridge; 0.25 b", "parameters": 12345, "lookback": 17, "horizon": 13
    }  # fmt: skip
    assert describe_fitted({"model": single}) == "itransformer with prime attention"


# ---------------------------------------------------------------- what to worry about


def found_by(frame: pd.DataFrame, **parts: Any) -> dict[str, list[tuple[str, str]]]:
    given = {"scores": None, "earlier": None, "sensor_ablation": None, "lookback": 17, **parts}
    return {one.title: list(one.channels) for one in concerns(frame, **given)}


def test_numbers_that_may_mean_missing_are_named_before_they_are_trusted() -> None:
    found = found_by(sample(5).frame, suspects={"b": {"-999": 2, "9999": 1}})
    assert found == {"Numbers that may mean missing": [("b", "-999 in 2 rows"), ("b", "9999 in 1 row")]}
    rows = np.random.default_rng(7).normal(size=(211, 2))
    rows[[7, 11], 1] = -999
    frame = pd.DataFrame(rows, columns=["a", "b"])
    with pytest.warns(ColumnsLeftOutWarning, match="^in the frame -999 stands in 2 rows of b, .* give na=-999$"):
        forecaster = Forecaster(horizon=3, lookback=13, model="ridge", progress="off").fit(frame)
    assert gather(forecaster, frame, title="plant").suspects == {"b": {"-999": 2}}


@pytest.mark.usefixtures("small_plotly")
def test_a_number_that_may_mean_missing_hides_neither_digits_nor_the_curve() -> None:
    data = sample(first="a")
    frame, forecast = data.frame.copy(), data.forecast.copy()
    frame.iloc[50, 0] = -9999
    forecast.iloc[0, 0] = -1e-9
    odd = replace(data, frame=frame, forecast=forecast, suspects={"a": {"-9999": 1}})
    row = next_values(frame, forecast, data.bounds, odd.suspects)["rows"][0]
    assert row["cells"][0][0] == "0.000" and row["seen"][0] == f"{frame['a'].iloc[-1]:.3f}"
    assert next_values(frame, forecast, data.bounds)["rows"][0]["seen"][0] == f"{frame['a'].iloc[-1]:.0f}"
    ranges = json.loads(packed(report_html(odd), "data"))["ranges"]
    assert ranges[1:] == [None] * 4 and -20 < ranges[0][0] < 0 and 101 < ranges[0][1] < 120


def test_channels_whose_forecast_lies_outside_its_interval_are_named() -> None:
    data = sample(5, first="a")
    names = list(data.forecast.columns)
    low, high = data.forecast - 1, data.forecast + 1
    low[names[2]], high[names[2]] = data.forecast[names[2]] + 0.5, data.forecast[names[2]] + 2
    high.loc[high.index[0], names[3]] = data.forecast[names[3]].iloc[0] - 0.5  # a single step
    wide = (data.forecast - 9, data.forecast + 9)
    found = found_by(data.frame, forecast=data.forecast, bounds={95.0: wide, 80.0: (low, high)})
    steps = len(data.forecast)
    assert found == {"Forecast outside its interval": [(names[2], f"below it in {steps} of {steps} steps")]}
    assert found_by(data.frame, forecast=data.forecast, bounds={80.0: wide}) == {}


def test_silent_and_stuck_sensors_are_named() -> None:
    frame = sample(5, first="a").frame.copy()
    assert found_by(frame) == {}
    frame.iloc[-19:, 1], frame.iloc[-7:, 2], frame.iloc[-2:, 3] = np.nan, np.nan, np.nan
    frame.iloc[-23:, 4] = 42.0
    assert found_by(frame) == {
        "Silent sensors": [
            ("sensor 1", "19 rows, since 2024-03-06 23:00; the whole look-back is filled in"),
            ("sensor 2", "7 rows, since 2024-03-07 11:00"),
        ],
        "Stuck sensors": [("sensor 4", "at 42.00 since 2024-03-06 20:00")],
    }
    frame.iloc[30:50, 4] = 41.0  # it has been still for nearly as long before
    assert "Stuck sensors" not in found_by(frame)


def test_channels_worse_than_naive_and_intervals_too_narrow_are_named() -> None:
    scores = pd.DataFrame(
        {"mae": [2.0, 3.0, 1.0], "naive_mae": [1.0, 2.0, 2.0], "coverage-80": [0.3, 0.59, 0.61]},
        index=["overall", "a", "b"],
    )
    assert found_by(sample().frame, scores=scores) == {
        "Worse than naive": [("a", "MAE +50\N{NO-BREAK SPACE}%")],
        "Intervals too narrow": [("a", "59 % covered")],
    }
    assert found_by(sample().frame, scores=scores.drop(columns="coverage-80")).keys() == {"Worse than naive"}


@pytest.mark.parametrize("origins", [7, 13])
def test_errors_that_grow_from_origin_to_origin_are_named(origins: int) -> None:
    time = pd.date_range("2024-01-01", periods=origins, freq="D")
    errors = {"even": np.linspace(2.0, 1.0, origins), "grows": np.linspace(1.0, 3.0, origins)}
    rows = [
        pd.DataFrame({"cutoff": time, "unique_id": name, "y": 0.0, "primecast": one}) for name, one in errors.items()
    ]
    found = found_by(sample().frame, earlier=pd.concat(rows))
    half = [errors["grows"][part].mean() for part in (slice(0, origins // 2), slice(origins // 2, None))]
    text = f"MAE from {half[0]:.3f} to {half[1]:.3f}"
    assert found == ({"Drifting errors": [("grows", text)]} if origins >= 8 else {})


def test_a_sensor_that_others_depend_on_is_named() -> None:
    ablation = sample(3, first="a").sensor_ablation
    assert found_by(sample().frame, sensor_ablation=ablation) == {
        "Single points of failure": [
            ("a", "+30\N{NO-BREAK SPACE}% for sensor 1"),
            ("sensor 1", "+15\N{NO-BREAK SPACE}% for sensor 1"),
        ]
    }


@pytest.mark.usefixtures("small_plotly")
def test_a_page_without_concerns_says_what_was_looked_for() -> None:
    data = sample(5, first="a")
    assert data.sensor_ablation is not None
    page = report_html(replace(data, sensor_ablation=data.sensor_ablation.assign(largest=0.0)))
    assert (
        "Nothing was found: no silent or stuck sensor, no forecast outside its interval, no channel worse than naive"
        in page
    )


def test_coverage_is_counted_by_the_hour_of_the_day() -> None:
    index = pd.date_range("2024-01-01", periods=72, freq="h", tz="Europe/Berlin")
    y = np.where(index.hour == 5, 9.0, 0.0)
    y[7] = np.nan
    lo, hi = np.where(index.day == 2, 8.0, -1.0), np.where(index.day == 2, 10.0, 5.0)
    long = pd.DataFrame({"ds": index, "y": y, "primecast-lo-80": lo, "primecast-hi-80": hi})
    hours = coverage_by_hour(long)
    assert hours is not None
    np.testing.assert_allclose(hours[80.0], [0.5 if h == 7 else 1 / 3 if h == 5 else 2 / 3 for h in range(24)])
    assert coverage_by_hour(long[long["ds"].dt.hour < 2]) is None  # daily rows have one hour
    assert coverage_by_hour(long.assign(ds=np.arange(72))) is None and coverage_by_hour(long[["ds", "y"]]) is None


# ---------------------------------------------------------------- what is found in the data


def test_gaps_outliers_and_constants_are_counted() -> None:
    frame = pd.DataFrame({"calm": np.arange(19) % 5, "still": 7.0, "wild": np.arange(19) % 5}, dtype=float)
    frame.loc[[2, 3, 4, 11], "calm"] = np.nan
    frame.loc[13, "wild"] = 1e3
    found = inspect(frame)
    assert found["missing"].tolist() == [4, 0, 0] and found["longest_gap"].tolist() == [3, 0, 0]
    assert found["outliers"].tolist() == [0, 0, 1] and found["constant"].tolist() == [False, True, False]
    assert found["max"].tolist() == [4, 7, 1000]


def test_a_lead_is_written_in_units_of_time_or_in_steps() -> None:
    assert duration(pd.Timedelta(days=1, hours=2), 26) == "1 d 2 h" and duration(None, 1) == "1 step"


@pytest.mark.usefixtures("small_plotly")
def test_the_hour_that_comes_twice_in_autumn_is_drawn_twice() -> None:
    data = sample()
    index = pd.date_range("2024-10-20", periods=ROWS + HORIZON, freq="h", tz="Europe/Berlin")
    moved = replace(
        data,
        frame=data.frame.set_axis(index[:ROWS]),
        forecast=data.forecast.set_axis(index[ROWS:]),
        bounds={},
        earlier=None,
    )
    page = report_html(moved)
    past = pd.DatetimeIndex(json.loads(packed(page, "data"))["past"])
    assert past.is_unique and (past[1:] - past[:-1] == pd.Timedelta(hours=1)).all()
    assert "time zone Europe/Berlin" in page


@pytest.mark.usefixtures("small_plotly")
def test_past_and_forecast_are_drawn_by_one_clock() -> None:
    data = sample()
    zone, change = "Europe/Berlin", pd.Timestamp("2024-03-31 01:00", tz="UTC")  # an hour is left out there
    index = pd.date_range(change - pd.Timedelta(hours=ROWS), periods=ROWS + HORIZON, freq="h").tz_convert(zone)
    frame = data.frame.set_axis(index[:ROWS])
    assert index[ROWS - 1].utcoffset() != index[ROWS].utcoffset()
    moved = replace(
        data,
        frame=frame,
        forecast=data.forecast.set_axis(index[ROWS:]),
        bounds={},
        earlier=earlier(frame, cutoff=ROWS - HORIZON - 1),
    )
    drawn = json.loads(packed(report_html(moved), "data"))
    times = pd.DatetimeIndex(drawn["past"] + drawn["ahead"])
    assert (times[1:] - times[:-1] == pd.Timedelta(hours=1)).all()
    assert times[ROWS - 1] == index[ROWS - 1].tz_localize(None)
    assert drawn["backtest"][0]["times"] == drawn["past"][-HORIZON:]


@pytest.mark.usefixtures("small_plotly")
def test_a_channel_called_overall_has_a_line_of_its_own() -> None:
    data = sample(3, first="overall")
    assert data.scores is not None
    data.scores["mae"] = [4.0, 11.0, 1.0, 2.0]
    page = report_html(data).split('<section id="trust">')[1]
    lines = re.findall(r"<tr[^>]*>(?:(?!</tr>).)*>overall<.*?</tr>", page)
    assert ["11.00" in line for line in lines[:2]] == [False, True] and 'class="total"' in lines[0]
    assert "In MAE, 2 of 3 channels are better than naive" in page


# ---------------------------------------------------------------- from a forecaster


@pytest.fixture(scope="module")
def fitted() -> tuple[Forecaster, pd.DataFrame]:
    rng = np.random.default_rng(0)
    index = pd.date_range("2024-01-01", periods=307, freq="h")
    wave = np.sin(np.arange(320) * 2 * np.pi / 24) + 0.1 * rng.standard_normal(320).cumsum()
    frame = pd.DataFrame({f"c{lag}": wave[13 - lag :][:307] for lag in (0, 2, 5)}, index=index)
    sizes: Any = {"d_model": 8, "n_heads": 2, "n_layers": 1}
    forecaster = Forecaster(horizon=5, lookback=11, model_args=sizes, epochs=1, batch_size=64, progress="off")
    return forecaster.fit(frame), frame


def test_gather_holds_what_the_forecaster_says(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    forecaster, frame = fitted
    data = gather(forecaster, frame, title="own", level=(80,), windows=3)
    said = forecaster.predict(level=[80])
    pd.testing.assert_frame_equal(data.forecast, said[list(frame.columns)])
    np.testing.assert_array_equal(data.bounds[80][0]["c2"], said["c2-lo-80"])
    np.testing.assert_array_equal(data.bounds[80][1]["c5"], said["c5-hi-80"])
    assert data.scores is not None and list(data.scores.index) == ["overall", "c0", "c2", "c5"]
    assert data.earlier is not None and data.earlier["cutoff"].nunique() == 3
    assert [one.title for one in data.maps] == ["Attention", "Primer"]
    assert all("Concentration index 0." in one.concentration for one in data.maps)
    assert data.sensor_ablation is not None and set(data.sensor_ablation.index) == set(frame.columns)
    assert data.notes == {} and data.settings["arguments"]["lookback"] == 11 and data.frequency == "hourly"
    assert data.lookback == 11 and data.units == {} and data.leaderboard is None


def test_gather_takes_units_from_the_frame_or_as_they_are_given(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    forecaster, frame = fitted
    frame = frame.copy()
    frame.attrs["units"] = {"c2": "bar"}
    assert gather(forecaster, frame, title="own", windows=1).units == {"c2": "bar"}
    assert gather(forecaster, frame, title="own", windows=1, units={"c0": "K"}).units == {"c0": "K"}


def test_gather_says_whose_attention_an_ensemble_shows(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    single, frame = fitted
    arguments = {**single.get_params(), "quality": "good"}
    forecaster = Forecaster(**arguments).fit(frame)
    data = gather(forecaster, frame, title="own", windows=1)
    best = max(forecaster.facts_["members"], key=lambda member: member["weight"])
    said = f"Of the ensemble's member {best['name']} (weight {best['weight']:.2f}). "
    assert all(one.text.startswith(said) for one in data.maps) and data.maps
    assert data.leaderboard is not None and {best["name"], "ensemble"} < set(data.leaderboard.index)


def test_gather_forecasts_as_it_is_told_to(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    forecaster, frame = fitted
    data = gather(forecaster, frame, title="own", level=(80,), windows=3, adaptive=True)
    said = forecaster.predict(frame, level=[80], adaptive=True)
    np.testing.assert_array_equal(data.bounds[80][1]["c5"], said["c5-hi-80"])
    assert data.scores is not None
    wanted = forecaster.backtest(frame, level=[80], windows=3, adaptive=True).scores
    pd.testing.assert_frame_equal(data.scores, wanted)


@pytest.mark.usefixtures("small_plotly")
def test_a_switch_is_a_channel_too(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    _, frame = fitted
    frame = frame.assign(on=np.arange(307) % 5 > 2)
    forecaster = Forecaster(horizon=5, lookback=11, model="dlinear", epochs=1, progress="off").fit(frame)
    assert "<bdi>on</bdi>" in report_html(gather(forecaster, frame, title="own", windows=2))


def test_a_map_in_which_nothing_deviates_has_no_concentration(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    forecaster, frame = fitted
    relations = forecaster.relations(frame)
    assert relations.primer is not None
    nothing, one = relations.primer * 0, relations.primer * 0
    one["c2"] = 3.0
    told = [pair_maps(replace(relations, primer=primer))[1].concentration for primer in (nothing, one)]
    assert told[0] == ""
    assert "Concentration index 1.000" in told[1]
    text = told[1].replace("\N{NO-BREAK SPACE}", " ")
    assert "c2 receives the largest fraction of the distance: 100 %; uniform would be 33 %" in text


def test_gather_leaves_out_what_the_rows_do_not_suffice_for(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    forecaster, frame = fitted
    data = gather(forecaster, frame.iloc[-19:], title="short", level=(99.9,))
    assert data.bounds == {} and "needs at least 999 held-out windows" in data.notes["bounds"]
    assert data.pairs is None and "relations need at least" in data.notes["relations"]


@pytest.mark.usefixtures("small_plotly")
def test_newest_rows_first_is_no_matter(fitted: tuple[Forecaster, pd.DataFrame]) -> None:
    forecaster, frame = fitted
    one, other = (gather(forecaster, rows, title="own", windows=2) for rows in (frame, frame.iloc[::-1]))
    assert report_html(one) == report_html(other)


# ---------------------------------------------------------------- in a browser


def browser_program() -> str | None:
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return os.environ.get("PRIMECAST_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("plotly", reason="the report needs plotly: pip install 'primecast[report]'")
    api = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright: pip install playwright")
    program = browser_program()
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell, or set PRIMECAST_CHROMIUM")
    with api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def page_file(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(sample(227), path)
    return path


@pytest.fixture(scope="module")
def open_page(browser: Any, page_file: Path) -> Iterator[Any]:
    """A function that opens the report and records whatever the browser complains of or asks for."""
    contexts = []

    def opened(*, before: str = "", file: Path = page_file, **options: Any) -> SimpleNamespace:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        complaints: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        if before:
            page.add_init_script(before)
        page.goto(file.as_uri())
        if not before:
            page.wait_for_selector("html[data-ready]", timeout=60_000)
        return SimpleNamespace(page=page, complaints=complaints, asked=asked)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def desk(open_page: Any) -> SimpleNamespace:
    """The report on a desk's screen, opened once for all that only use it."""
    opened: SimpleNamespace = open_page()
    return opened


def wait_for_ink(page: Any, color: str) -> None:
    """Until the drawing has this color of text. Its policy lets nobody evaluate text in the page, so it is asked."""
    until = time.monotonic() + 30
    while page.locator("#forecast .xtick text").first.evaluate("(text) => getComputedStyle(text).fill") != color:
        assert time.monotonic() < until, f"the drawing did not become {color}"
        time.sleep(0.05)


def pixels(image: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).astype(int)


def near(picture: np.ndarray, color: tuple[int, int, int], reach: int = 40) -> int:
    return int((np.abs(picture - color).max(axis=-1) <= reach).sum())


def test_the_page_loads_without_complaint_and_without_the_network(desk: SimpleNamespace, page_file: Path) -> None:
    seen = desk
    assert seen.complaints == []
    assert seen.asked == [page_file.as_uri()]
    assert seen.page.title() == "waves & more"
    assert seen.page.locator("#chosen").inner_text() == HOSTILE
    assert seen.page.locator("main img, main b").count() == 0
    figure = pixels(seen.page.locator("#forecast").screenshot())
    assert near(figure, (200, 55, 76)) > 50  # the forecast
    assert near(figure, (59, 67, 80)) > 500  # what was before it
    assert len(np.unique(pixels(seen.page.locator("#map-0").screenshot()).reshape(-1, 3), axis=0)) > 5
    assert near(pixels(seen.page.locator("#sensor_ablation").screenshot()), (47, 102, 144)) > 500


def test_the_channel_picker_finds_and_draws(desk: SimpleNamespace) -> None:
    page = desk.page
    page.fill("#search", "")
    assert page.locator("#cards button").count() == 60
    assert page.locator("#found").inner_text() == "227 of 227 channels; the first 60 are shown, type more of the name"
    page.fill("#search", "22 SENSOR")
    assert page.locator("#cards span").all_inner_texts() == [f"sensor {n}" for n in (22, 122, *range(220, 227))]
    page.get_by_role("button", name="sensor 223").click()
    assert page.locator("#chosen").inner_text() == "sensor 223"
    drawn = page.evaluate("document.getElementById('forecast').data.find((one) => one.name === 'forecast').y")
    np.testing.assert_allclose(drawn, sample(227).forecast["sensor 223"], atol=1e-4)
    assert page.locator("#cards button[aria-pressed=true]").inner_text() == "sensor 223"
    page.fill("#search", "nothing like it")
    assert page.locator("#cards button").count() == 0 and page.locator("#chosen").inner_text() == "sensor 223"
    page.fill("#search", "sensor 17")
    page.press("#search", "Enter")
    assert page.locator("#chosen").inner_text() == "sensor 17"
    lines = "document.getElementById('forecast').data.filter((one) => one.name === 'backtest forecast').length"
    assert page.evaluate(lines) == 0
    page.check("#before")
    assert page.evaluate(lines) == 1


def test_the_threshold_takes_edges_away(desk: SimpleNamespace) -> None:
    page = desk.page
    pairs = sample(227).pairs
    assert pairs is not None
    strengths, steps = pairs["strength"].abs(), pairs["steps"]
    start = float(page.locator("#threshold").input_value())
    assert 0 < (strengths[steps > 0] >= start).sum() <= 30
    assert not page.is_checked("#together")
    for threshold, together in ((0.5, True), (0.9, True), (0.9, False), (1.0, False), (0.0, True)):
        page.fill("#threshold", str(threshold))
        page.set_checked("#together", together)
        wanted = int(((strengths >= threshold) & (together | (steps > 0))).sum())
        leads = int(((strengths >= threshold) & (steps > 0)).sum())
        assert page.locator("#graph > svg > path").count() == min(wanted, 120)
        assert page.locator("#leads-body tr").count() == min(leads, 40)
        assert page.locator("#level").inner_text().startswith(f"{threshold:.2f}: {leads} of 150 leads")
    page.fill("#threshold", "0.95")
    titles = page.locator("#graph > svg > path > title").all_text_contents()
    assert "sensor 1 leads sensor 2 by 1 h, correlation -1.00" in titles


def test_the_download_is_the_forecast_with_its_intervals(desk: SimpleNamespace) -> None:
    with desk.page.expect_download() as download:
        desk.page.click("#download")
    assert download.value.suggested_filename == "forecast.csv"
    found = pd.read_csv(download.value.path(), index_col=0, parse_dates=True)
    data = sample(227)
    columns = [f"{HOSTILE}{end}" for end in ("", "-lo-95", "-lo-80", "-hi-80", "-hi-95")]
    assert found.index.name == "time" and list(found.columns[:5]) == columns and found.shape == (HORIZON, 5 * 227)
    np.testing.assert_allclose(found["sensor 8"], data.forecast["sensor 8"], atol=1e-4)
    np.testing.assert_allclose(found["sensor 8-lo-95"], data.bounds[95][0]["sensor 8"], atol=1e-4)
    np.testing.assert_allclose(found["sensor 8-hi-80"], data.bounds[80][1]["sensor 8"], atol=1e-4)
    assert (found.index == data.forecast.index).all()


def test_all_steps_of_the_chosen_channel_are_listed_on_demand(desk: SimpleNamespace) -> None:
    page = desk.page
    page.fill("#search", "sensor 1")
    page.press("#search", "Enter")
    page.click("#steps summary")
    assert page.locator("#steps-head th").all_inner_texts() == [
        "time",
        "forecast",
        "lo 95 %",
        "lo 80 %",
        "hi 80 %",
        "hi 95 %",
    ]
    assert page.locator("#steps-body tr").count() == HORIZON
    assert page.evaluate("document.getElementById('forecast').layout.yaxis.title.text") == "m³/h"
    first = float(page.locator("#steps-body tr").first.locator("td").nth(1).inner_text())
    assert abs(first - sample(227).forecast["sensor 1"].iloc[0]) < 1e-4


def overlaps(page: Any, selector: str) -> int:
    """How many pairs of these elements lie on each other by more than a pixel."""
    boxes = page.locator(selector).evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect()).map((r) => [r.left, r.top, r.right, r.bottom])"
    )
    left, top, right, bottom = np.array(boxes).T[..., None]
    beside = (np.minimum(right, right.T) - np.maximum(left, left.T)) > 1
    above = (np.minimum(bottom, bottom.T) - np.maximum(top, top.T)) > 1
    return int((beside & above).sum()) - len(boxes)


def test_names_beside_a_map_do_not_overlap_and_of_many_channels_are_in_its_table(
    desk: SimpleNamespace, open_page: Any, tmp_path: Path
) -> None:
    names = "#map-0 .xtick text, #map-0 .ytick text"
    assert desk.page.locator(names).count() == 0
    desk.page.locator("#inside details summary").first.click()
    assert desk.page.locator("#inside details").first.locator("tbody tr").count() == 50
    few = tmp_path / "few.html"
    write_report(sample(7), few)
    for width in (390, 1280):
        page = open_page(file=few, viewport={"width": width, "height": 800}).page
        assert page.locator(names).count() == 14 and overlaps(page, names) == 0


def test_tables_keep_words_whole_and_the_first_column_keeps_its_lines(open_page: Any) -> None:
    page = open_page(viewport={"width": 390, "height": 740}, is_mobile=True, has_touch=True).page
    table = page.locator("#trust .scroll").first
    table.evaluate("(box) => { box.scrollLeft = 150; }")
    cells = table.locator("tbody tr:nth-child(9) td")
    style = """(cell) => {
        const style = getComputedStyle(cell);
        return [style.borderBottomWidth, style.borderRightWidth, cell.getBoundingClientRect().left];
    }"""
    bottom, right, left = cells.first.evaluate(style)
    assert (bottom, right) == ("1px", "1px")
    assert abs(left - table.evaluate("(box) => box.getBoundingClientRect().left")) < 2
    assert page.locator("table").first.evaluate("(table) => getComputedStyle(table).borderCollapse") == "separate"
    lines = """(cell) => {
        const text = cell.querySelector("bdi")?.firstChild ?? cell.firstChild, range = document.createRange();
        return [...text.data.matchAll(/\\S+/g)].map((word) => {
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            return range.getClientRects().length;
        });
    }"""
    for cell in page.locator("#leads .scroll").first.locator("th, td").all()[:20]:
        assert set(cell.evaluate(lines)) == {1}


def test_it_fits_a_phone(open_page: Any) -> None:
    seen = open_page(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True, device_scale_factor=2)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
    wide = "[...document.querySelectorAll('.plot, #graph svg, .cards')].map((one) => one.getBoundingClientRect().right)"
    assert max(seen.page.evaluate(wide)) <= 360
    assert seen.complaints == []


def test_names_of_cards_and_dates_are_whole_and_units_stand_beside_their_name(open_page: Any, tmp_path: Path) -> None:
    data = sample(3, first="Plant N line 02 temperature of the return flow")
    names = {name: f"Plant N line 0{place} temperature" for place, name in enumerate(data.frame.columns[1:], 1)}
    renamed = {part: getattr(data, part).rename(columns=names) for part in ("frame", "forecast")}
    renamed["frame"].iloc[-150:, 2] = np.nan
    bounds = {
        level: (low.rename(columns=names), high.rename(columns=names)) for level, (low, high) in data.bounds.items()
    }
    units = dict.fromkeys(names.values(), "°C")
    parts: dict[str, Any] = dict.fromkeys(("scores", "earlier", "pairs", "sensor_ablation"))
    write_report(replace(data, **renamed, **parts, bounds=bounds, maps=(), units=units), tmp_path / "names.html")
    page = open_page(file=tmp_path / "names.html", viewport={"width": 390, "height": 800}).page
    for card in page.locator("#cards span").all()[1:]:  # the first name is longer than two lines
        assert card.evaluate("(one) => one.scrollHeight <= one.clientHeight && one.scrollWidth <= one.clientWidth")
    assert page.locator("#worry .whole").first.evaluate("(one) => one.getClientRects().length") == 1
    gap = """(unit) => {
        const range = document.createRange();
        range.selectNodeContents(unit.parentElement.querySelector("bdi"));
        return unit.getBoundingClientRect().left - [...range.getClientRects()].at(-1).right;
    }"""
    assert page.locator(".values .unit").first.evaluate(gap) < 10


def test_it_is_dark_where_dark_is_wished_for_and_light_on_paper(open_page: Any) -> None:
    seen = open_page(color_scheme="dark")
    page = seen.page
    dark = pixels(page.screenshot())
    assert np.median(dark) < 40
    assert near(pixels(page.locator("#forecast").screenshot()), (255, 125, 140)) > 50
    page.emulate_media(media="print", color_scheme="dark")
    wait_for_ink(page, "rgb(0, 0, 0)")
    assert np.median(pixels(page.screenshot())) == 255
    assert not page.locator("nav").is_visible() and not page.locator("#search").is_visible()
    page.emulate_media(media="screen", color_scheme="light")
    wait_for_ink(page, "rgb(29, 33, 38)")
    assert seen.complaints == []


def test_paper_has_light_figures_of_its_own_width_and_the_tables_of_maps(open_page: Any) -> None:
    seen = open_page(color_scheme="dark", viewport={"width": 1280, "height": 800})
    page = seen.page

    def drawn() -> tuple[float, float, float]:
        box = [page.locator(one).bounding_box()["width"] for one in ("#forecast .main-svg >> nth=0", "#forecast")]
        return *box, page.locator("main").bounding_box()["width"]

    on_screen = drawn()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # before the browser has the colors of paper
    wait_for_ink(page, "rgb(29, 33, 38)")
    figure, card, main = drawn()
    assert abs(figure - card) < 1 and 600 < card < main == 680
    assert page.locator("#inside details[open]").count() == 2
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    wait_for_ink(page, "rgb(231, 232, 228)")
    assert page.locator("#inside details[open]").count() == 0
    until = time.monotonic() + 30
    while drawn()[0] < 900:
        assert time.monotonic() < until, "the figure did not get its width back"
        time.sleep(0.05)
    assert np.allclose(drawn(), on_screen, atol=1)
    page.emulate_media(media="print", color_scheme="dark")
    wait_for_ink(page, "rgb(0, 0, 0)")
    wide = "[...document.querySelectorAll('table, .plot, #graph svg')].map((one) => one.getBoundingClientRect().right)"
    assert max(page.evaluate(wide)) <= 680
    shown = page.locator("#trust > .scroll tbody tr").evaluate_all(
        "(all) => all.filter((one) => one.offsetParent).length"
    )
    together = "(text) => getComputedStyle(text).breakAfter + getComputedStyle(text).breakInside"
    assert page.locator("#future h2 + p").evaluate(together) == "avoidavoid"  # else a heading stays behind its figure
    assert shown == 31 and page.get_by_text("On paper, the first 30 of 227 channels.").count() == 2
    assert page.locator("#found").inner_text() == "227 of 227 channels; the first 60 are shown"
    assert seen.complaints == []


def test_times_of_leads_do_not_cover_each_other(desk: SimpleNamespace) -> None:
    page = desk.page
    page.fill("#threshold", str(sorted(abs(sample(227).pairs["strength"]))[-29]))  # type: ignore[index]
    assert page.locator("#graph .time").count() > 9
    assert overlaps(page, "#graph .time") == 0


def test_a_long_name_does_not_push_columns_off_a_desk(open_page: Any, tmp_path: Path) -> None:
    file, name = tmp_path / "long.html", "plant_3_unit_17_TI_4711_PV_corrected_and_smoothed/second filter"
    write_report(sample(7, first=name), file)
    page = open_page(file=file, viewport={"width": 1280, "height": 800}).page
    fits = "(all) => all.filter((box) => box.offsetParent && box.scrollWidth > box.clientWidth).length"
    assert page.locator("main .scroll").count() > 5 and page.locator("main .scroll").evaluate_all(fits) == 0
    ends = "(cell) => cell.scrollWidth <= cell.clientWidth"
    assert all(page.locator("td bdi", has_text="plant_3").evaluate_all(f"(all) => all.map({ends})"))


def test_a_figure_of_any_width_finds_its_margins(open_page: Any, tmp_path: Path) -> None:
    """How many ticks there are depends on the width: a margin for the last one may take it away, and so on forever."""
    data = sample(40)
    assert data.sensor_ablation is not None
    bars = data.sensor_ablation.assign(mean=-0.0003, largest=np.linspace(0.001313, 0, 40))
    write_report(replace(data, sensor_ablation=bars), tmp_path / "edge.html")
    seen = open_page(file=tmp_path / "edge.html")
    figure = seen.page.locator("#sensor_ablation")
    for width in range(760, 830, 2):
        figure.evaluate("(place, width) => Plotly.relayout(place, { width, autosize: false }).then(() => 0)", width)
    assert seen.complaints == []


def test_it_prints(desk: SimpleNamespace) -> None:
    paper = desk.page.pdf(format="A4")
    assert paper.startswith(b"%PDF") and len(paper) > 30_000


def test_a_browser_too_old_to_unpack_is_told_and_still_shows_the_tables(open_page: Any) -> None:
    seen = open_page(before="delete window.DecompressionStream;")
    seen.page.wait_for_selector("#broken:not([hidden])")
    assert "need a browser of 2023 or newer" in seen.page.locator("#broken").inner_text()
    assert seen.page.locator("#trust > .scroll tbody tr").count() == 228


def test_numbers_that_are_not_finite_do_not_break_the_page() -> None:
    assert render._numbers(np.array([1.0, math.nan, math.inf]), 3) == [1.0, None, None]


def test_labels_that_are_cut_stay_different(open_page: Any) -> None:
    page = open_page().page
    pumps = [f"Pump {number}, Druck µbar" for number in range(1, 8)]
    for names, labels in (
        (pumps, [f"…{number}, …µbar" for number in range(1, 8)]),
        (["Kessel 1, Vorlauf", "Kessel 2, Vorlauf", "out"], ["Kessel 1…", "Kessel 2…", "out"]),
        (["tank 1 temp", "hall 2 pressure"], ["tank…temp", "hall…sure"]),
        (["a", "b"], ["a", "b"]),
        (["Hall 1 power", "Hall 1 flow"], ["…power", "…flow"]),
        (["Plant N line 02 CO2", "Plant N line 03 CO2", "Plant S line 02 flow"], ["N 02 CO2", "N 03 CO2", "S 02 flow"]),
    ):
        assert page.evaluate("names => shorts(names, 9)", names) == labels
