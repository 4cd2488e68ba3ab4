"""Runs whose trained models are probed, and how the measurements are read from a frame of rows.

One training serves several studies: attention_maps, forecasts and sensor_ablation have the same specs, hence the same
keys, and are run once.
"""

from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import InputError
from primecast.experiments.studies.grid import Variants, grid
from primecast.experiments.studies.tables import over_seeds

ATTENTIONS: Variants = {name: {"attention": name} for name in ("standard", "prime", "prime-table")}
"""Standard attention, prime attention with the paper's features, and the default."""
MEASURED = ("maps", "sensor_ablation", "example_forecasts")
PROBED_SPECS = [
    *grid(ATTENTIONS, ["ETTh1", "ETTh2"], seeds=range(3), probes=MEASURED),
    *grid(ATTENTIONS, ["Weather"], seeds=range(2), probes=MEASURED),
    *grid(ATTENTIONS, ["Exchange"], seeds=range(3), probes=MEASURED),
    *grid(ATTENTIONS, ["rts-gmlc-pv"], seeds=range(2), probes=MEASURED),
]
"""The last is the stand-in for Solar-Energy."""
PROBED_QUICK = grid(ATTENTIONS, ["nyc-weather"], seeds=range(2), horizons=[24], probes=MEASURED)
COSTS = {
    "training step": ("times", 2),
    "training step (ms)": ("step_ms", 0),
    "forecast (ms)": ("forward_ms", 0),
    "kept (MiB)": ("kept_mib", 0),
    "training step (GFLOP)": ("step_gflop", 1),
}
"""Columns of a table of costs: what the probe calls it, and digits. Runs of before have no step_gflop."""


def measurements(frame: pd.DataFrame, probe: str) -> pd.DataFrame:
    """Return one line per run with this probe: the fields of its row, and each value measured."""
    probed = frame[[probe in measured for measured in frame["probes"]]].reset_index(drop=True)
    return probed.join(pd.DataFrame([measured[probe] for measured in probed["probes"]]))


def need_two(runs: pd.DataFrame) -> None:
    """Refuse to draw standard attention beside others while it, or all of them, have not been run."""
    there = set(runs["attention"])
    standard, *primed = ATTENTIONS
    if standard not in there or not there & set(primed):
        wanted = f"{standard} and of {' or '.join(primed)}"
        raise InputError(f"the figure needs runs of {wanted}, there are those of {sorted(there) or 'none'}")


def mean_map(lines: pd.DataFrame, name: str) -> np.ndarray:
    """Return the mean over runs of a measurement that is a table of numbers."""
    return np.mean([np.array(values, dtype=float) for values in lines[name]], axis=0)


def cost_columns(runs: pd.DataFrame) -> dict[str, str]:
    """Return the measured cost of some runs; `times`: their training step as a multiple of standard attention's."""
    return {title: over_seeds(runs[name], digits) for title, (name, digits) in COSTS.items() if name in runs}


def most_common(values: "pd.Series[Any]") -> str:
    """Return the name given most often, with how often, where not always."""
    counts = values.value_counts()
    name, times = str(counts.index[0]), int(counts.iloc[0])
    return name if times == len(values) else f"{name} ({times} of {len(values)})"
