"""primecast's rows of the accuracy benchmark: one fit of quality "good" gives `good`, its first member alone `fast`.

`accuracy.py` starts this file in a process of its own. The Forecaster gets the rows in original units and splits and
scales them itself; forecasts are made from the same origins as those of the peers, without training anew. Intervals
are those of `backtest`: adaptive, from the errors of validation and test rows that are known at each origin.

Letters: m origins, h horizon, n channels, q quantiles.
"""

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from jaxtyping import Float
from torch import nn

import measure
from accuracy_cells import LOOKBACK, QUANTILES, Cell, load_cell
from accuracy_peers import cpu_seconds
from primecast import Forecaster
from primecast.forecasting.arguments import DESIGNS, QUALITIES
from primecast.forecasting.intervals import ErrorDistribution
from primecast.forecasting.prediction import forecast_from, forecast_held_out
from primecast.forecasting.state import FittedState
from primecast.frames.dates import row_number
from primecast.frames.validate import CheckedFrame
from primecast.training.loop import fit


def settings(method: str) -> dict[str, object]:
    """Return what the forecasts of a quality depend on: the designs of its members."""
    return {"designs": list(DESIGNS.items())[: QUALITIES[method]]}


def intervals(state: FittedState, table: CheckedFrame, cell: Cell) -> tuple[np.ndarray, Float[np.ndarray, "q m h n"]]:
    """Return the forecasts from the test origins and their quantiles, all scaled."""
    model, builder, batch_size = state.bounded_model, state.builder, state.arguments.batch_size
    ahead = forecast_from(model, builder, table, cell.origins, batch_size=batch_size).forecasts
    held_out = forecast_held_out(model, builder, table, range(cell.trained, len(table)), batch_size=batch_size)
    first = row_number(table.index) - len(table)
    errors = held_out.calibration(int(cell.origins[-1]), first=first)
    told = ErrorDistribution(errors, until=first + cell.tested, season=state.season, adaptive=True)
    quantiles = []
    for forecast, origin in zip(ahead, first + cell.origins, strict=True):
        told.move_to(int(origin))
        quantiles.append(told.quantiles(forecast[None], np.array([origin]), QUANTILES)[:, 0])
    least = np.where(state.nonnegative, -state.scaler.mean / state.scaler.std, -np.inf)
    return ahead, np.maximum(np.stack(quantiles, axis=1), least)


class TimedFit:
    """`training.loop.fit` that keeps, for each call, the model and the CPU seconds until its end."""

    def __init__(self) -> None:
        self.models: list[nn.Module] = []
        self.ends: list[float] = []
        self.steps: list[int] = []

    def __call__(self, model: nn.Module, train: Any, *others: Any, **options: Any) -> Any:
        history = fit(model, train, *others, **options)
        self.models.append(model)
        self.ends.append(cpu_seconds())
        self.steps.append(len(history.epochs) * -(-len(train) // options["batch_size"]))
        return history


def run(cell: Cell, seed: int, folder: Path) -> dict[str, Any]:
    """Write the forecasts of both qualities and return their facts."""
    timed, began, wall = TimedFit(), cpu_seconds(), time.perf_counter()
    with patch("primecast.forecasting.fitting.fit", timed):
        wanted: dict[str, Any] = {"quality": "good", "seed": seed, "season": cell.season, "progress": "off"}
        forecaster = Forecaster(horizon=cell.horizon, lookback=LOOKBACK, **wanted)
        # A clock that is set back gives two rows one stamp: such rows are numbered instead.
        forecaster.fit(cell.frame if cell.frame.index.is_unique else cell.frame.reset_index(drop=True))
    fitted, state = cpu_seconds(), forecaster.state_
    assert state.training is not None
    table = state.training.data
    first = replace(state, model=timed.models[0].eval(), members=())
    facts: dict[str, dict[str, Any]] = {}
    for name, own, trained, steps in (
        ("good", state, fitted - began, sum(timed.steps)),
        ("fast", first, timed.ends[0] - began, timed.steps[0]),
    ):
        started = cpu_seconds()
        forecast, quantiles = intervals(own, table, cell)
        np.savez(folder / f"{name}.npz", forecast=forecast, quantiles=quantiles)
        facts[name] = {"seconds": trained + cpu_seconds() - started, "steps": steps}
    weights = {member["name"]: member["weight"] for member in state.facts["members"]}
    facts["good"] |= {"weights": weights, "wall": time.perf_counter() - wall}
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--job", required=True)
    job = json.loads(parser.parse_args().job)
    warnings.filterwarnings("ignore")
    measure.prepare_process()
    print(json.dumps(run(load_cell(job["set"], job["horizon"]), job["seed"], Path(job["folder"]))))


if __name__ == "__main__":
    main()
