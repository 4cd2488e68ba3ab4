"""Relations and sensor ablation of a fitted state, over rows that its model was not trained on."""

from primecast.analysis.relations import Relations, relate
from primecast.analysis.sensor_ablation import SensorAblation, ablate_sensors
from primecast.forecasting.ensemble import Ensemble
from primecast.forecasting.intervals import thinned
from primecast.forecasting.state import FittedState
from primecast.frames.dates import row_length
from primecast.frames.validate import CheckedFrame
from primecast.frames.window_builder import RoleWindows

WINDOWS = 256
"""Held-out windows over which relations and sensor ablation are averaged, at most."""


def relations_of(state: FittedState, table: CheckedFrame, *, alpha: float) -> Relations:
    """Return the relations in the table; of an ensemble, the member of the largest weight with attention is shown."""
    windows = state.held_out_windows(table)
    model = state.model.member_with_attention() if isinstance(state.model, Ensemble) else state.model
    return relate(
        model,
        _sample(windows),
        windows.base.series[max(0, state.rows_trained(table) - windows.base.start) :],
        names=state.roles.channels,
        lookback=state.lookback,
        season=state.season,
        step=row_length(table.index),
        alpha=alpha,
        seed=state.arguments.seed,
    )


def sensor_ablation_of(state: FittedState, table: CheckedFrame, *, hold: str) -> SensorAblation:
    """Return the growth of the errors in the table without each sensor."""
    windows = _sample(state.held_out_windows(table).complete())
    return ablate_sensors(state.model, windows, names=state.roles.channels, targets=len(state.roles.targets), hold=hold)


def _sample(windows: RoleWindows) -> RoleWindows:
    """Return evenly spaced windows, fewer where there are many channels."""
    most = max(32, min(WINDOWS, 64 * WINDOWS // windows.channels))
    return windows.only(thinned(len(windows), cells=1, most=most))
