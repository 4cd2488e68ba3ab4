"""Error curves of a study: one panel per data set, one line per group."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from primecast.plotting.figures import curve_figure


def error_curves(
    frame: pd.DataFrame, *, x: str, hue: str, levels: Mapping[str, tuple[str, float]] | None = None
) -> Figure:
    """Draw MSE against x, mean and range over seeds, a line per value of `hue`; levels: see `curve_figure`."""
    sets = list(dict.fromkeys(frame["dataset"]))
    errors = frame.assign(**{name: frame["mse"].where(frame["dataset"] == name) for name in sets})
    return curve_figure(errors, x=x, panels={name: f"MSE, {name}" for name in sets}, hue=hue, levels=levels)
