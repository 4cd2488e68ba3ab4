"""primecast's rows of the accuracy benchmark: a Forecaster of each quality with all other arguments at their default.

`accuracy.py` starts this file in a process of its own. The Forecaster gets the rows in original units and splits and
scales them itself; forecasts are made from the same origins as those of the peers, without training anew. Intervals
are those of `backtest`: adaptive, from the errors of validation and test rows that are known at each origin.

Letters: m origins, h horizon, n channels, q quantiles.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

import measure
from accuracy_cells import QUANTILES, Cell, load_cell
from accuracy_peers import cpu_seconds
from primecast import Forecaster
from primecast.forecasting.designs import DESIGNS, ENSEMBLE, QUALITIES
from primecast.forecasting.intervals import ErrorDistribution
from primecast.forecasting.prediction import forecast_from, forecast_held_out
from primecast.forecasting.state import FittedState
from primecast.frames.dates import row_number
from primecast.frames.validate import CheckedFrame
from primecast.models import ridge


def settings(method: str) -> dict[str, object]:
    """Return what the forecasts of a quality depend on: the designs of its members, and rules that have changed."""
    rules = {
        "intervals": "by level, wider with few windows",
        "lambda of ridge": "by the error of the channel and of all",
        "last season": "a member where is_short",
        "failing members": "left out of the channel",
        "windows of ridge": [ridge.TRAIN_WINDOWS, ridge.SHARED_WINDOWS],
    }
    return {"designs": list(DESIGNS.items())[: QUALITIES[method]], "defaults": dict(ENSEMBLE), **rules}


def intervals(
    state: FittedState, table: CheckedFrame, cell: Cell, ahead: Float[np.ndarray, "m h n"]
) -> Float[np.ndarray, "q m h n"]:
    """Return the quantiles of the forecasts from the test origins, scaled."""
    model, builder, batch_size = state.bounded_model, state.builder, state.arguments.batch_size
    held_out = forecast_held_out(model, builder, table, range(cell.trained, len(table)), batch_size=batch_size)
    first = row_number(table.index) - len(table)
    errors = held_out.calibration(int(cell.origins[-1]), first=first)
    told = ErrorDistribution(errors, until=first + cell.tested, season=state.season, adaptive=True)
    quantiles = []
    for forecast, origin in zip(ahead, first + cell.origins, strict=True):
        told.move_to(int(origin))
        quantiles.append(told.quantiles(forecast[None], np.array([origin]), QUANTILES)[:, 0])
    # In float32, as the truths are: a bound of 0 must not lie above a truth of 0 by rounding.
    zero = (-state.scaler.mean / state.scaler.std).astype(np.float32)
    least = np.where(state.nonnegative, zero, -np.inf)
    return np.maximum(np.stack(quantiles, axis=1), least)


def run(cell: Cell, quality: str, seed: int, folder: Path) -> dict[str, Any]:
    """Write the forecasts of a quality and return its facts; all other arguments are the defaults of primecast."""
    began, wall = cpu_seconds(), time.perf_counter()
    forecaster = Forecaster(horizon=cell.horizon, quality=quality, seed=seed, progress="off")
    forecaster.fit(cell.dated_frame())
    state = forecaster.state_
    assert state.training is not None
    table, batch_size = state.training.data, state.arguments.batch_size
    ahead = forecast_from(state.bounded_model, state.builder, table, cell.origins, batch_size=batch_size).forecasts
    seconds = cpu_seconds() - began  # without those of the intervals, as for the peers
    np.savez(folder / "forecasts.npz", forecast=ahead, quantiles=intervals(state, table, cell, ahead))
    members = {member["name"]: member for member in state.facts["members"]}
    return {
        "seconds": seconds,
        "wall": time.perf_counter() - wall,
        "steps": None,
        "weights": {name: member["weight"] for name, member in members.items()},
        "members": {name: member["test_mse"] for name, member in members.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--job", required=True)
    job = json.loads(parser.parse_args().job)
    warnings.filterwarnings("ignore")
    measure.prepare_process()
    cell = load_cell(job["set"], job["horizon"])
    print(json.dumps(run(cell, job["quality"], job["seed"], Path(job["folder"]))))


if __name__ == "__main__":
    main()
