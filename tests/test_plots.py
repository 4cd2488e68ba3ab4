"""Figures show what they are given: every name, every line, one color scale where two things are compared."""

import io

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from primecast.plotting.figures import (
    COLORS,
    Example,
    MapRow,
    bar_figure,
    curve_figure,
    example_figure,
    forecast_figure,
    map_figure,
    relation_figure,
    trade_figure,
)


def drawn(figure: Figure) -> bytes:
    """What drawing needs is there; a figure is only made when it is saved."""
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
    assert labels(panels[0].get_xticklabels()) == ["wv (m/s)", "SWDR (W/m²)", "a name that is far …", "d", "e"]
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


def test_a_forecast_joins_what_was_observed() -> None:
    index = pd.date_range("2020-01-01", periods=7, freq="h")
    frame = pd.DataFrame({"a": np.arange(7.0)}, index=index)
    figure = forecast_figure(frame[:4], frame[4:], channels=["a"], units={"a": "K"})
    assert drawn(figure)
    past, ahead, _ = figure.axes[0].lines
    assert np.size(past.get_xdata()) == 4 and np.size(ahead.get_xdata()) == 4
    assert figure.axes[0].get_ylabel() == "a\n(K)"


def test_a_forecast_of_a_past_origin_shows_its_interval_and_the_truth() -> None:
    index = pd.date_range("2020-01-01", periods=7, freq="h")
    frame = pd.DataFrame({"a": np.arange(7.0), "b": np.arange(7.0)}, index=index)
    ahead = frame[4:]
    figure = forecast_figure(frame[:4], ahead + 1, ahead - 2, ahead + 3, ahead, channels=["a", "b"], level=95)
    assert drawn(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "observed",
        "95 % interval",
        "truth",
        "forecast",
    ]
    _, truth, forecast, _ = figure.axes[1].lines
    np.testing.assert_array_equal(np.asarray(truth.get_ydata()), [3, 4, 5, 6])
    np.testing.assert_array_equal(np.asarray(forecast.get_ydata()), [3, 5, 6, 7])
    assert len(figure.axes[1].collections) == 1
