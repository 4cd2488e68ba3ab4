"""Figures show what they are given: every name, every line, one color scale where two things are compared."""

import io
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from primecast.analysis.relations import Relations
from primecast.data import nyc_weather
from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.leaderboard import leaderboard
from primecast.frames import lengthen
from primecast.plotting.figures import (
    Example,
    MapRow,
    bar_figure,
    curve_figure,
    example_figure,
    map_figure,
    relation_figure,
    trade_figure,
)
from primecast.plotting.plots import plot_forecast, plot_relations
from primecast.plotting.style import COLORS


def drawn(figure: Figure | SubFigure) -> bytes:
    """What drawing needs is there; a figure is only made when it is saved."""
    assert isinstance(figure, Figure)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    return file.getvalue()


def labels(ticks: list) -> list[str]:  # type: ignore[type-arg]
    return [tick.get_text() for tick in ticks]


def maps(tokens: int, peak: float) -> np.ndarray:
    values = np.random.default_rng(tokens).random((tokens, tokens))
    return peak * values / values.max()


def test_two_maps_share_one_scale_and_their_difference_has_zero_in_the_middle() -> None:
    names = ["wv (m/s)", "SWDR (W/m\ufffd)", "a name that is far too long to be read", "d", "e"]
    rows = [
        MapRow("one", names, {"standard": maps(5, 0.3), "prime": maps(5, 0.7)}),
        MapRow("two", list("abc"), {"standard": maps(3, 0.9), "prime": maps(3, 0.1)}),
    ]
    figure = map_figure(rows)
    assert drawn(figure)
    panels = [axis for axis in figure.axes if axis.images and axis.get_title()]
    assert len(panels) == 6
    for row, top in ((0, 0.7), (1, 0.9)):
        first, second, change = (axis.images[0] for axis in panels[3 * row : 3 * row + 3])
        assert first.get_clim() == second.get_clim() == (0, top)
        low, high = change.get_clim()
        differs = rows[row].maps["prime"] - rows[row].maps["standard"]
        assert low == -high == -np.abs(differs).max()
        np.testing.assert_array_equal(first.get_array(), rows[row].maps["standard"])
        np.testing.assert_allclose(np.asarray(change.get_array()), differs)
    assert labels(panels[0].get_xticklabels()) == ["wv (m/s)", "SWDR (W/m²)", "a name tha…o be read", "d", "e"]
    assert [axis.get_title() for axis in panels[:3]] == ["one: standard", "one: prime", "prime minus standard"]


def test_equal_maps_have_a_difference_that_can_be_drawn() -> None:
    assert drawn(map_figure([MapRow("one", list("abc"), {"standard": maps(3, 0.5), "prime": maps(3, 0.5)})]))


def test_a_map_that_is_not_there_leaves_its_place_empty() -> None:
    three = {"standard": maps(3, 0.5), "prime": maps(3, 0.2), "prime-table": maps(3, 0.3)}
    two = {name: three[name] for name in ("standard", "prime-table")}
    figure = map_figure([MapRow("one", list("abc"), three), MapRow("two", list("abc"), two)])
    assert drawn(figure)
    shown = [axis.get_title() for axis in figure.axes if axis.images and axis.get_title()]
    assert shown == [
        *("one: standard", "one: prime", "one: prime-table", "prime minus standard", "prime-table minus standard"),
        *("two: standard", "two: prime-table", "prime-table minus standard"),
    ]


def test_related_pairs_are_framed_in_every_panel() -> None:
    related = np.zeros((5, 5))
    related[1, 3] = related[3, 1] = 1
    panels = {f"source {number}": maps(5, 0.5) for number in range(4)}
    figure = relation_figure(panels, related, list("abcde"))
    assert drawn(figure)
    shown = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in shown] == list(panels)
    for axis in shown:
        frames = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
        middles = {tuple(np.round(frame.get_center()).tolist()) for frame in frames}
        assert middles == {(3.0, 1.0), (1.0, 3.0)}


def test_curves_average_what_stands_at_one_place() -> None:
    frame = pd.DataFrame(
        {"density": [0.2, 0.2, 1.0, 0.2], "mse": [1.0, 3.0, 5.0, 7.0], "attention": ["standard"] * 3 + ["prime"]}
    )
    figure = curve_figure(frame, x="density", panels={"mse": "MSE"}, hue="attention", levels={"mse": ("goal", 4.0)})
    assert drawn(figure)
    standard, prime, level = figure.axes[0].lines
    np.testing.assert_array_equal(standard.get_xydata(), [[0.2, 2.0], [1.0, 5.0]])
    np.testing.assert_array_equal(prime.get_xydata(), [[0.2, 7.0]])
    assert (standard.get_color(), prime.get_color()) == (COLORS["standard"], COLORS["prime"])
    assert set(np.asarray(level.get_ydata())) == {4.0}
    assert figure.axes[0].get_ylabel() == "MSE"


def test_points_stand_at_their_cost_and_joined_ones_in_the_order_of_their_line() -> None:
    points = pd.DataFrame(
        {"step": [1.0, 3.0, 2.0, np.nan, 4.0], "mse": [0.0, -2.0, 5.0, 7.0, 9.0]},
        index=["standard", "wide", "narrow", "unmeasured", "other"],
    )
    lines = {"grouped": ("narrow", "wide", "wider"), "dense": ()}
    figure = trade_figure(points, x=("step", "cost"), panels={"mse": "error"}, lines=lines, named=["standard"])
    assert drawn(figure)
    axis = figure.axes[0]
    dots, grouped, dense = axis.lines
    np.testing.assert_array_equal(dots.get_xydata(), [[1, 0], [3, -2], [2, 5], [4, 9]])
    np.testing.assert_array_equal(grouped.get_xydata(), [[2, 5], [3, -2]])
    assert np.size(dense.get_xydata()) == 0
    assert [text.get_text() for text in axis.texts] == ["standard", "wide", "narrow"]
    boxes = [text.get_window_extent() for text in axis.texts]
    assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("cost", "error")


def test_bars_stand_in_groups_by_the_index() -> None:
    frames = {
        "one": pd.DataFrame({"standard": [1.0, 2.0, 3.0], "prime": [4.0, 5.0, -6.0]}, index=["a", "b", "c"]),
        "two": pd.DataFrame({"standard": [7.0], "prime": [8.0]}, index=["d"]),
    }
    figure = bar_figure(frames, label="growth")
    assert drawn(figure)
    first, second = figure.axes
    assert [bar.get_height() for bar in first.patches if isinstance(bar, Rectangle)] == [1.0, 2.0, 3.0, 4.0, 5.0, -6.0]
    assert labels(first.get_xticklabels()) == ["a", "b", "c"] and second.get_title() == "two"
    assert first.get_ylabel() == "growth"


def test_examples_count_steps_from_the_forecast() -> None:
    example = Example("w", np.arange(5.0), np.arange(3.0), {"standard": np.ones(3), "prime": np.zeros(3)})
    figure = example_figure([[example, example], [example]])
    assert drawn(figure)
    past, truth, standard, prime, _ = figure.axes[0].lines
    np.testing.assert_array_equal(past.get_xdata(), [-5, -4, -3, -2, -1])
    np.testing.assert_array_equal(truth.get_xdata(), [0, 1, 2])
    assert (standard.get_label(), prime.get_label()) == ("standard", "prime")
    assert [axis.get_visible() for axis in figure.axes] == [True, True, True, False]


# ---------------------------------------------------------------- the plot methods


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def hours(rows: int, **columns: float) -> pd.DataFrame:
    index = pd.date_range("2020-01-01", periods=rows, freq="h")
    return pd.DataFrame({name: np.arange(rows) + start for name, start in columns.items()}, index=index, dtype=float)


def test_a_forecast_joins_what_was_observed() -> None:
    frame = hours(7, a=0)
    (axis,) = plot_forecast(frame[:4], frame[4:], {}, units={"a": "K"})
    assert drawn(axis.figure)
    past, ahead, _ = axis.lines
    assert np.size(past.get_xdata()) == 4 and np.size(ahead.get_xdata()) == 4
    assert axis.get_ylabel() == "a\n(K)"


def test_a_forecast_of_a_past_origin_shows_its_intervals_and_the_truth() -> None:
    frame = hours(7, a=0, b=0)
    ahead = frame[4:]
    bounds = {80.0: (ahead - 1, ahead + 1), 95.0: (ahead - 2, ahead + 3)}
    axes = plot_forecast(frame[:4], ahead + 1, bounds, ahead)
    assert drawn(axes[0].figure)
    legend = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert legend == ["observed", "95 % interval", "80 % interval", "truth", "forecast"]
    _, truth, forecast, _ = axes[1].lines
    np.testing.assert_array_equal(truth.get_ydata(), [3, 4, 5, 6])
    np.testing.assert_array_equal(forecast.get_ydata(), [3, 5, 6, 7])
    widest, narrow = (band.get_paths()[0].get_extents() for band in axes[1].collections)
    assert (widest.y0, widest.y1, narrow.y0, narrow.y1) == (2, 9, 3, 7)


def test_a_channel_that_was_silent_is_said_to_be() -> None:
    frame = hours(7, a=0, b=0)
    past = frame[:4].assign(b=np.nan)
    axes = plot_forecast(past, frame[4:], {80.0: (frame[4:] - 1, frame[4:] + 2)})
    assert drawn(axes[0].figure)
    assert [[text.get_text() for text in axis.texts] for axis in axes] == [[], ["no value in these rows"]]


def test_of_many_channels_the_first_are_drawn_and_those_that_are_asked_for() -> None:
    frame = hours(7, **{f"c{number}": number for number in range(11)})
    axes = plot_forecast(frame[:4], frame[4:], {})
    assert [axis.get_ylabel() for axis in axes] == [f"c{number}" for number in range(6)]
    assert axes[0].figure.get_supxlabel() == "5 more channels are not drawn"
    axes = plot_forecast(frame[:4], frame[4:], {}, channels=["c7", "c3"])
    assert [axis.get_ylabel() for axis in axes] == ["c7", "c3"] and axes[0].figure.get_supxlabel() == ""
    with pytest.raises(InputError, match="unknown channel 'c77' .did you mean 'c7'"):
        plot_forecast(frame[:4], frame[4:], {}, channels=["c77"])


def test_long_names_of_sensors_stay_different() -> None:
    names = [f"Plant {place} line 0{line} temperature" for place in "NS" for line in (1, 2)]
    frame = hours(7, **dict.fromkeys(names, 0))
    axes = plot_forecast(frame[:4], frame[4:], {}, units={names[1]: "°C"})
    assert [axis.get_ylabel() for axis in axes][:2] == [
        "Plant N line 01\ntemperature",
        "Plant N line 02\ntemperature\n(°C)",
    ]
    assert drawn(axes[0].figure)
    axis = plot_relations(pd.DataFrame(np.nan, names, names), pd.DataFrame(0.0, names, names))
    assert labels(axis.get_xticklabels()) == names


def test_the_figure_is_the_one_that_pyplot_shows() -> None:
    frame = hours(7, a=0)
    (axis,) = plot_forecast(frame[:4], frame[4:], {})
    assert plt.gcf() is axis.figure


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    frame = nyc_weather()[["EWR temp", "JFK temp", "EWR wind_speed"]].tail(331)
    arguments: dict[str, Any] = {"horizon": 5, "lookback": 11, "epochs": 1, "missing": "interpolate", "progress": "off"}
    return Forecaster(**arguments, model="dlinear").fit(frame)


def test_a_forecaster_draws_its_forecast_in_one_line(fitted: Forecaster) -> None:
    axes = fitted.plot(level=[80])
    forecast = fitted.predict(level=[80])
    assert [axis.get_ylabel() for axis in axes] == ["EWR temp\n(°F)", "JFK temp\n(°F)", "EWR wind_speed\n(mph)"]
    np.testing.assert_array_equal(axes[1].lines[1].get_ydata()[1:], forecast["JFK temp"])
    assert np.size(axes[1].lines[0].get_ydata()) == 11 + 5
    band = axes[1].collections[0].get_paths()[0].get_extents()
    assert np.isclose(band.y1, forecast["JFK temp-hi-80"].max()) and drawn(axes[0].figure)


def test_a_forecaster_draws_long_frames_and_arrays_and_the_truth_that_followed(fitted: Forecaster) -> None:
    frame = nyc_weather()[["EWR temp", "JFK temp"]].tail(331).interpolate().bfill()
    for table, name in ((lengthen(frame), "JFK temp"), (frame.to_numpy(), "channel 1")):
        other = Forecaster(horizon=5, lookback=11, epochs=1, model="dlinear", progress="off").fit(table)
        (axis,) = other.plot(channels=[name], level=[])
        assert axis.get_ylabel() == name
    past, all_rows = fitted.data_.as_given().iloc[:-5], fitted.data_.as_given()
    (axis,) = fitted.plot(past, truth=all_rows, channels=["JFK temp"], units={"JFK temp": "degrees"})
    np.testing.assert_array_equal(axis.lines[1].get_ydata(), all_rows["JFK temp"].iloc[-6:])
    assert axis.get_ylabel() == "JFK temp\n(degrees)"
    last = all_rows.iloc[[-1]]
    for truth, message in (
        (past, "truth has none of the rows that are forecast, 2013-12-30 19:00 to"),
        (pd.concat([all_rows, last]), "truth has the row of 2013-12-30 23:00 more than once"),
        (all_rows.astype(str).replace(str(last["JFK temp"].iloc[0]), "bad"), "column 'JFK temp' of the frame is not"),
    ):
        with pytest.raises(InputError, match=message):
            fitted.plot(past, truth=truth)


def test_a_backtest_draws_the_truth_once_and_every_forecast(fitted: Forecaster) -> None:
    backtest = fitted.backtest(windows=3, step=2, level=[80, 95])
    axes = backtest.plot(channels=["JFK temp"])
    truth, *forecasts = axes[0].lines
    assert np.size(truth.get_ydata()) == 2 * 2 + 5 and len(forecasts) == 3 == len(axes[0].collections)
    own = backtest.forecasts[backtest.forecasts["unique_id"] == "JFK temp"]
    np.testing.assert_array_equal(np.concatenate([line.get_ydata() for line in forecasts]), own["primecast"])
    legend = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert legend == ["truth", "80 % interval", "forecast"] and drawn(axes[0].figure)
    narrow = axes[0].collections[0].get_paths()[0].get_extents().height
    assert backtest.plot(channels=["JFK temp"], level=95)[0].collections[0].get_paths()[0].get_extents().height > narrow
    assert not fitted.backtest(windows=3, level=[]).plot()[0].collections
    with pytest.raises(InputError, match="level is 90; this backtest has 80, 95"):
        backtest.plot(level=90)


def relations_of(channels: int) -> Relations:
    names = [f"c{number}" for number in range(channels)]
    lead = pd.DataFrame(np.nan, index=names, columns=names)
    lead.loc["c0", "c1"], lead.loc["c1", "c0"], lead.loc["c1", "c2"], lead.loc["c2", "c1"] = 7, -7, 0, 0
    return Relations(lead=lead, lead_time=None, strength=lead * 0 - 0.5, attention=None, primer=None)


def test_relations_are_drawn_where_the_row_leads_or_moves_together() -> None:
    relations = relations_of(5)
    axis = relations.plot()
    assert drawn(axis.figure) and labels(axis.get_yticklabels()) == ["c0", "c1", "c2", "c3", "c4"]
    assert [(text.get_position(), text.get_text()) for text in axis.texts] == [((1, 0), "7")]
    colored = ~np.ma.getmaskarray(np.ma.asarray(axis.images[0].get_array()))
    assert np.argwhere(colored).tolist() == [[0, 1], [1, 2], [2, 1]]  # c1 and c2 move together
    figure = plt.figure()
    own = figure.subplots()
    assert relations.plot(channels=["c3", "c4"], ax=own) is own and own.get_title().startswith("no significant pair")
    assert labels(relations_of(37).plot().get_xticklabels())[:3] == ["c0", "c1", "c2"]
    assert len(relations_of(37).plot().get_xticklabels()) == 30


def test_a_leaderboard_is_drawn_with_the_seasonal_naive_forecast_as_a_line() -> None:
    members = [{"name": "one", "weight": 0.25, "test_mse": 3.0}, {"name": "two", "weight": 0.75, "test_mse": 2.0}]
    scores = {"mse": 1.0, "mae": 1.0, "naive_mse": 5.0, "naive_mae": 5.0}
    board = leaderboard({"scores": scores, "members": members})
    axis = board.plot()
    assert drawn(axis.figure)
    assert [bar.get_width() for bar in axis.patches if isinstance(bar, Rectangle)] == [1.0, 2.0, 3.0]
    assert labels(axis.get_yticklabels()) == ["ensemble", "two, weight 0.75", "one, weight 0.25"]
    assert set(np.asarray(axis.lines[0].get_xdata())) == {5.0}
    assert repr(board).splitlines()[1].split() == ["one", "0.25", "3"] and "<table" in board._repr_html_()
    assert drawn(leaderboard({"scores": scores}).plot().figure)
