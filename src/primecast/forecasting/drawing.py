"""The picture of a forecast: recent rows, forecast and intervals of a fitted state, drawn by `primecast.plotting`."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from primecast.data.formats import to_numbers
from primecast.errors import InputError, stamp
from primecast.forecasting.prediction import forecast_frames, open_later, read_later
from primecast.forecasting.state import FittedState


def plot_state(
    state: FittedState,
    data: object,
    *,
    channels: Sequence[object] | None,
    level: Sequence[float],
    truth: object,
    units: Mapping[str, str] | None,
    future: object,
    adaptive: bool,
) -> npt.NDArray[np.object_]:
    """Draw the last look-back + horizon rows and what follows; see `Forecaster.plot`."""
    from primecast.plotting.plots import plot_forecast  # matplotlib only where something is drawn

    table = state.recent if data is None else read_later(state, data)[0]
    forecast, bounds = forecast_frames(state, table, level=level, future=future, adaptive=adaptive)
    past = table.last(state.lookback + state.horizon).as_given()
    followed = None if truth is None else _rows_that_followed(open_later(state, truth)[0], forecast.index)
    units = table.frame.attrs.get("units") if units is None else units
    return plot_forecast(past, forecast, bounds, followed, channels=channels, units=units)


def _rows_that_followed(truth: pd.DataFrame, ahead: pd.Index) -> pd.DataFrame:
    """Return the rows that are forecast as they turned out, NaN where they have not yet."""
    rows = truth[truth.index.isin(ahead)]
    if not len(rows):
        raise InputError(f"truth has none of the rows that are forecast, {stamp(ahead[0])} to {stamp(ahead[-1])}")
    if rows.index.has_duplicates:
        twice = rows.index[rows.index.duplicated()][0]
        raise InputError(f"truth has the row of {stamp(twice)} more than once; keep one of them")
    return pd.DataFrame(to_numbers(rows), index=rows.index, columns=rows.columns).reindex(ahead)
