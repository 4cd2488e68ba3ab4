"""Figures: frames and arrays in, a matplotlib figure out. Nothing here knows of torch.

Letters: n channels, t tokens (channels, then calendar features), l look-back, h horizon; i asks, j answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAST, AHEAD = "#4a4a4a", "#d1495b"
COLOURS = {
    "standard": "#2f6690",
    "prime": AHEAD,
    "prime-table": "#e09f3e",
    "standard, a vector for each channel": "#81a4cd",
}
"""One colour for each attention in all figures; others take matplotlib's own."""


def forecast_figure(
    history: pd.DataFrame, forecast: pd.DataFrame, *, channels: Sequence[str], units: Mapping[str, str] | None = None
) -> Figure:
    """One row per channel: what was, and what is forecast, on one time axis."""
    figure = Figure(figsize=(9, 1.9 * len(channels) + 0.6), layout="constrained")
    axes = figure.subplots(len(channels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, channel in zip(axes, channels, strict=True):
        past, ahead = history[channel], forecast[channel]
        axis.plot(past.index, past.to_numpy(), color=PAST, linewidth=1.2, label="observed")
        joined = pd.concat([past.iloc[-1:], ahead])
        axis.plot(joined.index, joined.to_numpy(), color=AHEAD, linewidth=1.8, label="forecast")
        axis.axvline(past.index[-1], color=PAST, linewidth=0.6, linestyle=":")
        unit = (units or {}).get(channel)
        axis.set_ylabel(f"{channel}\n({unit})" if unit else channel)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    axes[0].legend(loc="upper left", frameon=False, ncols=2)
    axes[-1].tick_params(axis="x", rotation=20)
    return figure


# ---------------------------------------------------------------- maps of pairs


@dataclass(frozen=True, eq=False)
class MapRow:
    """One row of `map_figure`: the same tokens, seen with several attentions; others are held against the first."""

    title: str
    names: Sequence[str]
    maps: Mapping[str, Float[np.ndarray, "t t"]]


def map_figure(rows: Sequence[MapRow]) -> Figure:
    """For each row the maps on one colour scale, and what the others differ from the first by, around zero."""
    labels = list(dict.fromkeys(label for row in rows for label in row.maps))
    side, columns = 3.4, 2 * len(labels) - 1
    figure = Figure(figsize=(columns * side + 1.2, side * len(rows) + 0.4), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes, row in zip(grid, rows, strict=True):
        reference, *others = row.maps
        changes = {label: row.maps[label] - row.maps[reference] for label in others}
        top = max(float(values.max()) for values in row.maps.values())
        most = max(float(np.abs(change).max()) for change in (*changes.values(), np.array(1e-12)))
        for axis, label in zip(axes, labels, strict=False):
            if label in row.maps:
                image = axis.imshow(row.maps[label], vmin=0, vmax=top, cmap="viridis")
            axis.set_title(f"{row.title}: {label}", fontsize=9)
        figure.colorbar(image, ax=axes[: len(labels)].tolist(), shrink=0.8, pad=0.01)
        for axis, label in zip(axes[len(labels) :], labels[1:], strict=True):
            if label in changes:
                image = axis.imshow(changes[label], vmin=-most, vmax=most, cmap="RdBu_r")
            axis.set_title(f"{label} minus {reference}", fontsize=9)
        figure.colorbar(image, ax=axes[len(labels) :].tolist(), shrink=0.8, pad=0.01)
        for column, axis in enumerate(axes):
            if axis.images:
                _name_tokens(axis, row.names, rows=column == 0)
            else:  # has not been run
                axis.set_visible(False)
        axes[0].set_ylabel("who asks", fontsize=8)
    grid[-1, 0].set_xlabel("who is asked", fontsize=8)
    return figure


def _name_tokens(axis: Axes, names: Sequence[str], *, rows: bool = True) -> None:
    """Token names along both sides, small enough for all to be read."""
    size = 7 if len(names) <= 12 else 5
    places = np.arange(len(names))
    axis.set_xticks(places, [_short(name) for name in names], rotation=90, fontsize=size)
    axis.set_yticks(places, [_short(name) for name in names] if rows else [], fontsize=size)
    if not rows:
        axis.tick_params(axis="y", left=False)


def _short(name: str, most: int = 16) -> str:
    """Replacement characters, as some published column names have them, are left out."""
    name = name.replace("\ufffd", "")
    return name if len(name) <= most else name[: most - 1] + "…"


def relation_figure(
    panels: Mapping[str, Float[np.ndarray, "n n"]], related: Float[np.ndarray, "n n"], names: Sequence[str]
) -> Figure:
    """What each source says of all pairs, each on a scale of its own; truly related pairs are framed."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns + 1, 3.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axis in grid.flat[len(panels) :]:
        axis.set_visible(False)
    for place, (axis, (title, score)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
        shown = np.where(np.eye(len(names), dtype=bool), np.nan, score)
        image = axis.imshow(shown, cmap="viridis", vmin=np.nanmin(shown), vmax=np.nanmax(shown))
        for i, j in np.argwhere(related > 0):
            axis.plot(*_frame(int(j), int(i)), color=AHEAD, linewidth=1.2)
        axis.set_title(title, fontsize=9)
        figure.colorbar(image, ax=axis, shrink=0.75)
        _name_tokens(axis, names, rows=place % columns == 0)
    return figure


def _frame(x: int, y: int, half: float = 0.42) -> tuple[list[float], list[float]]:
    return [x - half, x + half, x + half, x - half, x - half], [y - half, y - half, y + half, y + half, y - half]


# ---------------------------------------------------------------- curves and bars


def curve_figure(
    frame: pd.DataFrame,
    *,
    x: str,
    panels: Mapping[str, str],
    hue: str,
    levels: Mapping[str, float] | None = None,
) -> Figure:
    """One panel per column of the frame (column -> label of its axis) against x, one line per value of `hue`.

    Several rows at one place are averaged, and the band is from the least to the greatest. levels: a horizontal dotted
    line in the panel of a column, a level to be reached.
    """
    figure = Figure(figsize=(3.5 * len(panels) + 0.5, 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (column, label) in zip(axes, panels.items(), strict=True):
        for name, part in frame.groupby(hue, sort=False):
            at = part.groupby(x)[column]
            places = at.mean().index.to_numpy()
            colour = COLOURS.get(str(name))
            (line,) = axis.plot(places, at.mean(), marker="o", markersize=4, label=str(name), color=colour)
            axis.fill_between(places, at.min(), at.max(), alpha=0.15, color=line.get_color(), linewidth=0)
        if levels and column in levels:
            axis.axhline(levels[column], color=PAST, linestyle=":", linewidth=1)
        axis.set_xlabel(x)
        axis.set_ylabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    axes[0].legend(frameon=False)
    return figure


def trade_figure(
    points: pd.DataFrame,
    *,
    x: tuple[str, str],
    panels: Mapping[str, str],
    lines: Mapping[str, Sequence[str]],
    named: Sequence[str] = (),
) -> Figure:
    """Points, the frame's index, by what they cost and what they give; one panel per column (column -> label).

    x: column and label of the cost. lines: label -> names that are joined, in this order, those that are there. These
    and those in `named` have their names written beside them, the others are dots.
    """
    cost, cost_label = x
    figure = Figure(figsize=(5.2 * len(panels) + 0.5, 4.4), layout="constrained")
    told = {*named, *(member for members in lines.values() for member in members)}
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (column, label) in zip(axes, panels.items(), strict=True):
        there = points.dropna(subset=[cost, column])
        axis.plot(there[cost], there[column], "o", color=PAST, markersize=3)
        for name, members in lines.items():
            part = there.loc[[member for member in members if member in there.index]]
            axis.plot(part[cost], part[column], marker="o", markersize=5, label=name, color=COLOURS.get(name))
        for point, place in there[there.index.isin(told)].iterrows():
            axis.annotate(str(point), (place[cost], place[column]), (5, 3), textcoords="offset points", fontsize=7)
        axis.set_xlabel(cost_label)
        axis.set_ylabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    axes[0].legend(frameon=False)
    return figure


def bar_figure(panels: Mapping[str, pd.DataFrame], *, label: str) -> Figure:
    """One panel per frame (title -> frame): a group of bars for each line of its index, a bar for each column."""
    widths = [max(3, len(frame)) for frame in panels.values()]
    figure = Figure(figsize=(max(5.6, 0.32 * sum(widths) + 2), 3.9), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, gridspec_kw={"width_ratios": widths})[0]
    for axis, (title, frame) in zip(axes, panels.items(), strict=True):
        width = 0.8 / len(frame.columns)
        places = np.arange(len(frame))
        for number, column in enumerate(frame.columns):
            shift = (number - (len(frame.columns) - 1) / 2) * width
            axis.bar(places + shift, frame[column], width, label=str(column), color=COLOURS.get(str(column)))
        axis.set_xticks(places, [_short(str(name)) for name in frame.index], rotation=90, fontsize=7)
        axis.axhline(0, color=PAST, linewidth=0.6)
        axis.set_title(title, fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(label)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


# ---------------------------------------------------------------- forecasts beside each other


@dataclass(frozen=True, eq=False)
class Example:
    """One channel of one window: its look-back, what came, and what each model had forecast."""

    title: str
    past: Float[np.ndarray, "l"]
    truth: Float[np.ndarray, "h"]
    forecasts: Mapping[str, Float[np.ndarray, "h"]]


def example_figure(examples: Sequence[Sequence[Example]]) -> Figure:
    """A grid of windows; steps are counted from the moment of forecast."""
    rows, columns = len(examples), max(len(row) for row in examples)
    figure = Figure(figsize=(3.6 * columns, 2.0 * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, row in zip(grid, examples, strict=True):
        for axis in axes[len(row) :]:
            axis.set_visible(False)
        for axis, example in zip(axes, row, strict=False):
            before, after = np.arange(-len(example.past), 0), np.arange(len(example.truth))
            axis.plot(before, example.past, color=PAST, linewidth=0.9)
            axis.plot(after, example.truth, color=PAST, linewidth=1.4, label="truth")
            for name, values in example.forecasts.items():
                axis.plot(after, values, color=COLOURS.get(name), linewidth=1.4, label=name)
            axis.axvline(-0.5, color=PAST, linewidth=0.6, linestyle=":")
            axis.set_title(example.title, fontsize=8)
            axis.ticklabel_format(axis="y", useOffset=False)
            axis.tick_params(labelsize=7)
            axis.spines[["top", "right"]].set_visible(False)
    grid[0, 0].legend(frameon=False, fontsize=7)
    for axis in grid[-1]:
        axis.set_xlabel("steps from the forecast", fontsize=8)
    return figure
