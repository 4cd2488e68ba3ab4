"""The pictures behind the `plot` methods: frames in, matplotlib axes out. Nothing here imports torch.

As with `DataFrame.plot`, the figures are pyplot's: a notebook shows them, and in a script `plt.show()` does. Axes are
returned, not the figure, which a notebook would show twice; `axes[0].figure.savefig("forecast.png")` writes it.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from primecast.errors import InputError, check_known, format_list
from primecast.plotting.style import AHEAD, COLORS, PAST, finish, legend_above, short

ROWS = 6
"""Channels that are drawn below each other where none are chosen."""
PAIRED = 30
"""Channels of a map of pairs where none are chosen: those with the strongest pairs."""
LINE = 20
"""Letters that fit beside one row of a picture."""
Bounds = Mapping[float, tuple[pd.DataFrame, pd.DataFrame]]
"""Level in percent -> lower and upper bound."""


# ---------------------------------------------------------------- forecasts


def plot_forecast(
    past: pd.DataFrame,
    forecast: pd.DataFrame,
    bounds: Bounds,
    truth: pd.DataFrame | None = None,
    *,
    channels: Sequence[object] | None = None,
    units: Mapping[str, str] | None = None,
) -> npt.NDArray[np.object_]:
    """Draw one row per channel: observed values, forecast and the bands of its intervals; return the axes.

    truth: what was observed after the forecast origin, for an origin in the past.
    """
    names = _chosen(channels, list(forecast.columns))
    axes = _rows(names, left_out=channels is None and len(forecast.columns) - len(names), units=units)

    def joined(frame: pd.DataFrame, name: str) -> "pd.Series[float]":
        return pd.concat([past[name].iloc[-1:], frame[name]])

    for axis, name in zip(axes, names, strict=True):
        axis.plot(past[name], color=PAST, linewidth=1.2, label="observed")
        if past[name].isna().all():
            _say(axis, "no value in these rows")
        for place, level in enumerate(sorted(bounds, reverse=True)):
            low, high = (joined(side, name) for side in bounds[level])
            _band(axis, low, high, level=level, alpha=0.15 + 0.12 * place)
        if truth is not None:
            axis.plot(joined(truth, name), color=PAST, linewidth=1.2, linestyle="--", label="truth")
        axis.plot(joined(forecast, name), color=AHEAD, linewidth=1.8, label="forecast")
        axis.axvline(past.index[-1], color=PAST, linewidth=0.6, linestyle=":")
    _finish_rows(axes, past.index)
    return axes


def plot_backtest(
    forecasts: pd.DataFrame, *, channels: Sequence[object] | None = None, level: float | None = None
) -> npt.NDArray[np.object_]:
    """Draw one row per channel: the truth, and the forecast from each origin with its interval; return the axes.

    forecasts: long, as `Backtest.forecasts`. level: of the interval, by default the lowest that is there.
    """
    levels = sorted(float(name.removeprefix("primecast-lo-")) for name in forecasts.columns if "-lo-" in name)
    if level is not None and level not in levels:
        raise InputError(f"level is {level!r}; this backtest has {format_list([f'{one:g}' for one in levels])}")
    levels = levels[:1] if level is None else [level]
    known = list(forecasts["unique_id"].unique())
    names = _chosen(channels, known)
    axes = _rows(names, left_out=channels is None and len(known) - len(names))
    for axis, name in zip(axes, names, strict=True):
        own = forecasts[forecasts["unique_id"] == name]
        axis.plot(own.groupby("ds")["y"].first(), color=PAST, linewidth=1.2, label="truth")
        if own["y"].isna().all():
            _say(axis, "the truth is missing")
        for number, (_, part) in enumerate(own.groupby("cutoff")):
            rows = part.set_index("ds")
            for one in levels:
                low, high = rows[f"primecast-lo-{one:g}"], rows[f"primecast-hi-{one:g}"]
                _band(axis, low, high, level=one, alpha=0.2, first=not number)
            axis.plot(rows["primecast"], color=AHEAD, linewidth=1.5, label="_" * bool(number) + "forecast")
    _finish_rows(axes, pd.Index(forecasts["ds"]))
    return axes


def _chosen(channels: Sequence[object] | None, known: Sequence[str], most: int = ROWS) -> list[str]:
    """Return the names of the channels to draw, by default the first ones."""
    if channels is None:
        return list(known)[:most]
    names = [str(name) for name in ([channels] if isinstance(channels, str) else channels)]
    for name in names:
        check_known("channel", name, known)
    if not names:
        raise InputError("channels is empty; it must name at least one channel, or be None")
    return names


def _rows(names: Sequence[str], *, left_out: int, units: Mapping[str, str] | None = None) -> npt.NDArray[np.object_]:
    figure = plt.figure(figsize=(9, 1.9 * len(names) + 0.9), layout="constrained")
    axes: npt.NDArray[np.object_] = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axis, name in zip(axes, names, strict=True):
        unit = (units or {}).get(name)
        lines = wrap(short(name, 2 * LINE), LINE)
        axis.set_ylabel("\n".join([*lines, f"({unit})"] if unit else lines))
    if left_out:
        figure.supxlabel(f"{left_out} more channels are not drawn", fontsize=8)
    return axes


def _say(axis: Axes, text: str) -> None:
    """Write a text into an empty part of the axes."""
    axis.text(0.02, 0.9, text, transform=axis.transAxes, va="top", fontsize=8, style="italic", color=PAST)


def _band(
    axis: Axes, low: "pd.Series[float]", high: "pd.Series[float]", *, level: float, alpha: float, first: bool = True
) -> None:
    label = "_" * (not first) + f"{level:g} % interval"
    axis.fill_between(low.index, low, high, color=AHEAD, alpha=alpha, linewidth=0, label=label)


def _finish_rows(axes: npt.NDArray[np.object_], index: pd.Index) -> None:
    for axis in axes:
        axis.margins(x=0.01)
        axis.ticklabel_format(axis="y", useOffset=False)
        finish(axis)
    if isinstance(index, pd.DatetimeIndex):
        locator = AutoDateLocator(tz=index.tz)  # type: ignore[no-untyped-call]
        axes[-1].xaxis.set_major_locator(locator)
        form = ConciseDateFormatter(locator, tz=index.tz)  # type: ignore[no-untyped-call]
        axes[-1].xaxis.set_major_formatter(form)
    axes[0].figure.align_ylabels(axes)
    legend_above(axes[0].figure, axes[0], columns=6)


# ---------------------------------------------------------------- relations and leaderboards


def plot_relations(
    lead: pd.DataFrame, strength: pd.DataFrame, *, channels: Sequence[object] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the significant pairs as a map: its color is the correlation, its number the steps by which the row leads.

    A pair that moves together has its color on both sides of the diagonal and no number. By default the channels with
    the strongest pairs are drawn.
    """
    shown = (lead >= 0).to_numpy() & ~np.eye(len(lead), dtype=bool)
    values = strength.where(shown)
    best = pd.concat([values.abs().max(axis="index"), values.abs().max(axis="columns")], axis="columns").max(axis=1)
    strongest = set(best.fillna(0).sort_values(ascending=False, kind="stable").index[:PAIRED])
    names = _chosen(channels, list(lead.columns), most=len(lead))
    names = [name for name in names if name in strongest] if channels is None else names
    values, steps = values.loc[names, names], lead.loc[names, names].to_numpy()
    side = max(3.6, 0.36 * len(names) + 1.8)
    axis = plt.figure(figsize=(side + 1.2, side), layout="constrained").subplots() if ax is None else ax
    image = axis.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    axis.set_facecolor("#f4f4f4")
    for i, j in np.argwhere(values.notna().to_numpy() & (steps > 0)):
        ink = "white" if abs(values.to_numpy()[i, j]) > 0.6 else "black"
        axis.text(j, i, f"{steps[i, j]:.0f}", ha="center", va="center", fontsize=8, color=ink, weight="bold")
    places = np.arange(len(names))
    axis.set_xticks(places, [short(name, 2 * LINE) for name in names], rotation=90, fontsize=8)
    axis.set_yticks(places, [short(name, 2 * LINE) for name in names], fontsize=8)
    found = int(values.notna().to_numpy().sum())
    left_out = f"; {len(names)} of {len(lead)} channels" if len(names) < len(lead) else ""
    legend = "number: steps by which the row leads the column\nno number: the two move together"
    legend = legend if found else "no significant pair"
    axis.set_title(legend + left_out, fontsize=9)
    axis.set(xlabel="follower", ylabel="leader")
    axis.figure.colorbar(image, ax=axis, shrink=0.8, label="correlation")
    return axis


def plot_leaderboard(frame: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw a bar per row, its test error; the last row, the seasonal naive forecast, is a line.

    frame: columns test_mse and weight, as `Leaderboard.frame`; the row before the last is what forecasts.
    """
    *members, whole, naive = frame.index
    drawn = frame.loc[[*members, whole]].iloc[::-1]
    size = (7, 0.36 * len(drawn) + 1.4)
    axis = plt.figure(figsize=size, layout="constrained").subplots() if ax is None else ax
    colors = [AHEAD if name == whole else COLORS["standard"] for name in drawn.index]
    places = np.arange(len(drawn))
    axis.barh(places, drawn["test_mse"], color=colors, height=0.65)
    axis.set_ylim(-0.7, len(drawn) - 0.3)  # a single bar is no thicker than one of many
    weights = [f"{name}, weight {weight:.2f}" for name, weight in drawn["weight"].items()]
    axis.set_yticks(places, [text.removesuffix(", weight nan") for text in weights])
    axis.axvline(frame.loc[naive, "test_mse"], color=PAST, linestyle=":", linewidth=1.2, label=str(naive))
    finish(axis, xlabel="MSE of the test rows, scaled units")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8, borderaxespad=0)
    return axis
