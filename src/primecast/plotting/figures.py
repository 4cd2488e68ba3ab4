"""Figures: data frames and arrays in, a matplotlib figure out. Nothing here imports torch.

Letters: n channels, t tokens (channels, then calendar features), l look-back, h horizon; i query token, j key token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from primecast.plotting.style import AHEAD, COLORS, PAST, finish, legend_above, readable, short

# ---------------------------------------------------------------- maps of pairs


@dataclass(frozen=True, eq=False)
class MapRow:
    """One row of `map_figure`: maps of the same tokens with several attentions; the first is the reference."""

    title: str
    names: Sequence[str]
    maps: Mapping[str, Float[np.ndarray, "t t"]]


def map_figure(rows: Sequence[MapRow]) -> Figure:
    """Draw for each row the maps on one color scale, and the differences from the first map, centered at zero."""
    labels = list(dict.fromkeys(label for row in rows for label in row.maps))
    side, columns = max(3.4, 0.16 * max(len(row.names) for row in rows)), 2 * len(labels) - 1
    figure = Figure(figsize=(columns * side + 2, (side + 0.9) * len(rows)), layout="compressed")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes, row in zip(grid, rows, strict=True):
        reference, *others = row.maps
        changes = {label: row.maps[label] - row.maps[reference] for label in others}
        top = max(float(values.max()) for values in row.maps.values())
        most = max(float(np.abs(change).max()) for change in (*changes.values(), np.array(1e-12)))
        weights = {f"{row.title}: {label}": row.maps.get(label) for label in labels}
        differences = {f"{label} minus {reference}": changes.get(label) for label in labels[1:]}
        for side, panels, low, high, colors, text in (
            (axes[: len(labels)], weights, 0, top, "viridis", "attention weight"),
            (axes[len(labels) :], differences, -most, most, "RdBu_r", "difference"),
        ):
            for axis, (title, values) in zip(side, panels.items(), strict=True):
                axis.set_title(title, fontsize=9)
                if values is None:  # this attention was not run
                    axis.set_visible(False)
                else:
                    image = axis.imshow(values, vmin=low, vmax=high, cmap=colors)
                    _name_tokens(axis, row.names, rows=axis is axes[0])
            figure.colorbar(image, ax=side.tolist(), shrink=0.8, pad=0.01, label=text)
        axes[0].set_ylabel("query token", fontsize=8)
        axes[0].set_xlabel("key token", fontsize=8)
    return figure


def _name_tokens(axis: Axes, names: Sequence[str], *, rows: bool = True) -> None:
    """Label both axes with the token names, small enough for all to be read."""
    size = 7 if len(names) <= 13 else 6
    places = np.arange(len(names))
    axis.set_xticks(places, [short(name) for name in names], rotation=90, fontsize=size)
    axis.set_yticks(places, [short(name) for name in names] if rows else [], fontsize=size)
    if not rows:
        axis.tick_params(axis="y", left=False)


def relation_figure(
    panels: Mapping[str, Float[np.ndarray, "n n"]], related: Float[np.ndarray, "n n"], names: Sequence[str]
) -> Figure:
    """Draw the scores of all pairs from each source, each on its own color scale; truly related pairs are framed."""
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns + 1.2, 4.1 * rows), layout="compressed")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axis in grid.flat[len(panels) :]:
        axis.set_visible(False)
    for place, (axis, (title, score)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
        shown = np.where(np.eye(len(names), dtype=bool), np.nan, score)
        image = axis.imshow(shown, cmap="viridis", vmin=np.nanmin(shown), vmax=np.nanmax(shown))
        for i, j in np.argwhere(related > 0):
            axis.add_patch(Rectangle((j - 0.42, i - 0.42), 0.84, 0.84, fill=False, edgecolor=AHEAD, linewidth=1.2))
        axis.set_title(title, fontsize=9)
        figure.colorbar(image, ax=axis, shrink=0.7).ax.tick_params(labelsize=7)
        _name_tokens(axis, names, rows=place % columns == 0)
    return figure


# ---------------------------------------------------------------- curves and bars


def curve_figure(
    frame: pd.DataFrame,
    *,
    x: str,
    panels: Mapping[str, str],
    hue: str,
    levels: Mapping[str, tuple[str, float]] | None = None,
) -> Figure:
    """Draw one panel per column of the frame (column -> label of its axis) against x, one line per value of `hue`.

    Rows with the same x are averaged; the band is from their minimum to their maximum. levels: column -> label and
    value of a horizontal dotted line.
    """
    figure = Figure(figsize=(3.5 * len(panels) + 0.5, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (column, label) in zip(axes, panels.items(), strict=True):
        for name, part in frame.groupby(hue, sort=False):
            at = part.groupby(x)[column]
            places = at.mean().index.to_numpy()
            style = {"label": str(name), "color": COLORS.get(str(name))}
            (line,) = axis.plot(places, at.mean(), marker="o", markersize=4, **style)
            axis.fill_between(places, at.min(), at.max(), alpha=0.15, color=line.get_color(), linewidth=0)
        if levels and column in levels:
            text, value = levels[column]
            axis.axhline(value, color=PAST, linestyle=":", linewidth=1, label=text)
        finish(axis, grid=True, xlabel=x, ylabel=label)
    legend_above(figure, max(axes, key=lambda axis: len(axis.lines)))
    return figure


def trade_figure(
    points: pd.DataFrame,
    *,
    x: tuple[str, str],
    panels: Mapping[str, str],
    lines: Mapping[str, Sequence[str]],
    named: Sequence[str] = (),
) -> Figure:
    """Draw the rows of a frame as points of cost and benefit; one panel per column (column -> label).

    x: column and label of the cost. lines: label -> names to be joined in this order, where they exist. These and those
    in `named` are labeled with their names; the others are dots.
    """
    cost, cost_label = x
    figure = Figure(figsize=(6.4 * len(panels) + 0.5, 4.9), layout="constrained")
    labeled = {*named, *(member for members in lines.values() for member in members)}
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    notes: dict[Axes, list[Annotation]] = {}
    for axis, (column, label) in zip(axes, panels.items(), strict=True):
        there = points.dropna(subset=[cost, column])
        axis.plot(there[cost], there[column], "o", color=PAST, markersize=3)
        for name, members in lines.items():
            part = there.loc[[member for member in members if member in there.index]]
            axis.plot(part[cost], part[column], marker="o", markersize=5, label=name, color=COLORS.get(name))
        notes[axis] = [
            axis.annotate(str(point), (place[cost], place[column]), (6, 4), textcoords="offset points", fontsize=7)
            for point, place in there[there.index.isin(labeled)].iterrows()
        ]
        axis.margins(x=0.08, y=0.08)
        finish(axis, grid=True, xlabel=cost_label, ylabel=label)
    legend_above(figure, axes[0])
    figure.draw_without_rendering()
    for axis, texts in notes.items():
        _spread_labels(axis, texts)
    return figure


def _spread_labels(axis: Axes, texts: Sequence[Annotation]) -> None:
    """Move each label to the first place around its point where it covers no point, no line and no other label."""
    placed: list[Bbox] = []
    drawn = [axis.transData.transform(line.get_xydata()) for line in axis.lines]
    fractions = np.linspace(0, 1, 30)[:, None, None]
    along = [(one[:-1] + fractions * np.diff(one, axis=0)).reshape(-1, 2) for one in drawn[1:]]  # the first has no line
    dots = np.concatenate([*drawn, *along])
    offsets = [(side, up) for up in (4, -10, 14, -20, 24, -30, 34, -40) for side in (6, -6)]
    for text in texts:
        for side, up in offsets:
            text.set_position((side, up))
            text.set_horizontalalignment("left" if side > 0 else "right")
            box = text.get_window_extent()
            inside = axis.bbox.x0 <= box.x0 and box.x1 <= axis.bbox.x1 and axis.bbox.y0 <= box.y0
            if inside and not box.count_contains(dots) and not box.count_overlaps(placed):
                break
        placed.append(text.get_window_extent())


def agreement_figure(frame: pd.DataFrame, *, label: str) -> Figure:
    """Draw measured against published values, a panel for each `panel`, a color for each `hue`, the diagonal dotted.

    frame: columns published, measured, std (over seeds; NaN for one seed), panel, hue.
    """
    names = list(dict.fromkeys(frame["panel"]))
    figure = Figure(figsize=(4.2 * len(names), 4.4), layout="constrained")
    for place, name in enumerate(names):
        axis = figure.add_subplot(1, len(names), place + 1)
        part = frame[frame["panel"] == name]
        ends = [part[["published", "measured"]].min().min() * 0.95, part[["published", "measured"]].max().max() * 1.05]
        axis.plot(ends, ends, color=PAST, linestyle=":", linewidth=1)
        for hue, points in part.groupby("hue", sort=False):
            axis.errorbar(
                points["published"],
                points["measured"],
                yerr=points["std"].fillna(0),
                fmt="o",
                markersize=5,
                alpha=0.8,
                color=COLORS.get(str(hue)),
                label=str(hue),
            )
        finish(axis, grid=True, title=name, xlabel=f"{label}, the paper", ylabel=f"{label}, measured")
    legend_above(figure, figure.axes[0])
    return figure


def bar_figure(panels: Mapping[str, pd.DataFrame], *, label: str) -> Figure:
    """Draw one panel per frame (title -> frame): a group of bars for each row of its index, a bar for each column."""
    widths = [max(3, len(frame)) for frame in panels.values()]
    figure = Figure(figsize=(max(6.4, 0.32 * sum(widths) + 2), 3.9), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, gridspec_kw={"width_ratios": widths})[0]
    for axis, (title, frame) in zip(axes, panels.items(), strict=True):
        width = 0.8 / len(frame.columns)
        places = np.arange(len(frame))
        for number, column in enumerate(frame.columns):
            shift = (number - (len(frame.columns) - 1) / 2) * width
            axis.bar(places + shift, frame[column], width, label=str(column), color=COLORS.get(str(column)))
        few = len(panels) == 1 and len(frame) <= 5
        names = [short(str(name)) for name in frame.index]
        axis.set_xticks(places, names, rotation=0 if few else 90, fontsize=9 if few else 7)
        axis.axhline(0, color=PAST, linewidth=0.6)
        axis.set_title(title, fontsize=9)
        axis.margins(x=0.02)
        finish(axis)
    axes[0].set_ylabel(label)
    legend_above(figure, axes[0])
    return figure


# ---------------------------------------------------------------- forecasts of several models


@dataclass(frozen=True, eq=False)
class Example:
    """One channel of one window: look-back, truth, and the forecast of each model."""

    title: str
    past: Float[np.ndarray, "l"]
    truth: Float[np.ndarray, "h"]
    forecasts: Mapping[str, Float[np.ndarray, "h"]]


def example_figure(examples: Sequence[Sequence[Example]]) -> Figure:
    """Draw a grid of windows; steps are counted from the forecast origin."""
    rows, columns = len(examples), max(len(row) for row in examples)
    figure = Figure(figsize=(3.6 * columns, 2.0 * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, row in zip(grid, examples, strict=True):
        for axis in axes[len(row) :]:
            axis.set_visible(False)
        for axis, example in zip(axes, row, strict=False):
            before, after = np.arange(-len(example.past), 0), np.arange(len(example.truth))
            axis.plot(before, example.past, color=PAST, linewidth=0.9, label="look-back")
            axis.plot(after, example.truth, color=PAST, linewidth=1.6, label="truth")
            for name, values in example.forecasts.items():
                axis.plot(after, values, color=COLORS.get(name), linewidth=1.4, label=name)
            axis.axvline(-0.5, color=PAST, linewidth=0.6, linestyle=":")
            axis.set_title(readable(example.title), fontsize=8)
            axis.ticklabel_format(axis="y", useOffset=False)
            axis.tick_params(labelsize=7)
            finish(axis)
    legend_above(figure, grid[0, 0], columns=6)
    for axis in grid[-1]:
        axis.set_xlabel("steps from the forecast origin", fontsize=8)
    return figure
