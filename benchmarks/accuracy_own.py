"""primecast's rows of the accuracy benchmark: a Forecaster of each quality with all other arguments at their default.

`accuracy.py` starts this file in a process of its own. The Forecaster gets the rows in original units and splits and
scales them itself; forecasts are made from the same origins as those of the peers, without training anew. Intervals
are calibrated on the validation rows alone: those that a user gets also know the errors of the test rows.

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
from primecast.forecasting.intervals import radius
from primecast.forecasting.prediction import forecast_from
from primecast.forecasting.state import FittedState
from primecast.frames.validate import CheckedFrame


def settings(method: str) -> dict[str, object]:
    """Return what the forecasts of a quality depend on: the designs of its members."""
    return {"designs": list(DESIGNS.items())[: QUALITIES[method]], "defaults": dict(ENSEMBLE)}


def intervals(state: FittedState, table: CheckedFrame, cell: Cell) -> tuple[np.ndarray, Float[np.ndarray, "q m h n"]]:
    """Return the forecasts from the test origins and their quantiles, all scaled."""
    batch_size = state.arguments.batch_size
    ahead = forecast_from(state.model, state.builder, table, cell.origins, batch_size=batch_size).forecasts
    held_out = forecast_from(state.model, state.builder, table, cell.calibration, batch_size=batch_size)
    errors = held_out.errors(cell.tested)
    widths = [radius(errors, 100 * abs(2 * level - 1), adaptive=False) if level != 0.5 else 0.0 for level in QUANTILES]
    signs = np.sign(np.array(QUANTILES) - 0.5)
    return ahead, np.stack([ahead + sign * width for sign, width in zip(signs, widths, strict=True)])


def run(cell: Cell, quality: str, seed: int, folder: Path) -> dict[str, Any]:
    """Write the forecasts of a quality and return its facts; the look-back is the default of primecast."""
    began, wall = cpu_seconds(), time.perf_counter()
    forecaster = Forecaster(horizon=cell.horizon, quality=quality, seed=seed, progress="off")
    forecaster.fit(cell.dated_frame())
    state = forecaster.state_
    assert state.training is not None
    forecast, quantiles = intervals(state, state.training.data, cell)
    np.savez(folder / "forecasts.npz", forecast=forecast, quantiles=quantiles)
    members = {member["name"]: member for member in state.facts["members"]}
    return {
        "seconds": cpu_seconds() - began,
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
