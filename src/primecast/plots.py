"""Figures: frames in, a matplotlib figure out. Nothing here knows of torch."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

PAST, AHEAD = "#4a4a4a", "#d1495b"


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
