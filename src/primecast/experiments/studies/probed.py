"""Runs whose trained models are probed, and how the measurements are read from a frame of rows.

One training serves several studies: attention_maps, forecasts and sensor_ablation have the same specs, hence the same
keys, and are run once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import InputError
from primecast.experiments.spec import Spec
from primecast.experiments.studies.grid import Variants, grid
from primecast.experiments.studies.tables import markdown_table
from primecast.plotting.figures import readable

ATTENTIONS: Variants = {name: {"attention": name} for name in ("standard", "prime", "prime-table")}
"""Standard attention, prime attention with the paper's features, and the default."""
OWN = ("dataset", "model", "attention", "horizon", "seed", "mse", "mae", "parameters", "settings")
MEASURED = ("maps", "sensor_ablation", "example_forecasts")


def probed_specs(quick: bool = False) -> list[Spec]:
    """ETTh1 and ETTh2 (three seeds), Weather (two), then Exchange and the stand-in for Solar-Energy; horizon 96."""
    if quick:
        return grid(ATTENTIONS, ["nyc-weather"], seeds=range(2), horizons=[24], probes=MEASURED)
    return [
        *grid(ATTENTIONS, ["ETTh1", "ETTh2"], seeds=range(3), probes=MEASURED),
        *grid(ATTENTIONS, ["Weather"], seeds=range(2), probes=MEASURED),
        *grid(ATTENTIONS, ["Exchange"], seeds=range(3), probes=MEASURED),
        *grid(ATTENTIONS, ["rts-gmlc-pv"], seeds=range(2), probes=MEASURED),
    ]


def measurements(frame: pd.DataFrame, probe: str) -> pd.DataFrame:
    """Return one line per run with this probe: the fields of OWN, its variant, and each value measured."""
    own = [*OWN, *(["variant"] if "variant" in frame else [])]
    lines = []
    for row in frame.to_dict("records"):
        if probe in row["probes"]:
            lines.append({**{name: row[name] for name in own}, **row["probes"][probe]})
    return pd.DataFrame(lines) if lines else pd.DataFrame(columns=own)


def need_two(runs: pd.DataFrame) -> None:
    """Refuse to draw standard attention beside others while it, or all of them, have not been run."""
    there = set(runs["attention"])
    standard, *primed = ATTENTIONS
    if standard not in there or not there & set(primed):
        wanted = f"{standard} and of {' or '.join(primed)}"
        raise InputError(f"the figure needs runs of {wanted}, there are those of {sorted(there) or 'none'}")


def mean_map(lines: pd.DataFrame, name: str) -> np.ndarray:
    """The mean over runs of an answer that is a table of numbers."""
    return np.mean([np.array(values, dtype=float) for values in lines[name]], axis=0)


def over_seeds(values: "pd.Series[Any]", digits: int = 3, *, percent: bool = False) -> str:
    """Mean and standard deviation over seeds; the mean alone where there is one seed, "none" where nothing is."""
    numbers = pd.to_numeric(values).dropna().to_numpy(dtype=float)
    if not len(numbers):
        return "none"
    scale, unit = (100, " %") if percent else (1, "")
    mean = f"{scale * numbers.mean():.{digits}f}"
    return f"{mean} ± {scale * numbers.std(ddof=1):.{digits}f}{unit}" if len(numbers) > 1 else mean + unit


def cost_columns(runs: pd.DataFrame) -> dict[str, str]:
    """Return the measured cost of some runs; `times`: their training step as a multiple of standard attention's."""
    counted = {"training step (GFLOP)": over_seeds(runs["step_gflop"], 1)} if "step_gflop" in runs else {}
    return {
        "training step": over_seeds(runs["times"], 2),
        "training step (ms)": over_seeds(runs["step_ms"], 0),
        "forecast (ms)": over_seeds(runs["forward_ms"], 0),
        "kept (MiB)": over_seeds(runs["kept_mib"], 0),
        **counted,
    }


def most_common(values: "pd.Series[Any]") -> str:
    """The name given most often, with how often, where not always."""
    counts = values.value_counts()
    name, times = str(counts.index[0]), int(counts.iloc[0])
    return name if times == len(values) else f"{name} ({times} of {len(values)})"


def table(lines: Sequence[dict[str, Any]]) -> str:
    """A Markdown table; all lines have the columns of the first."""
    return markdown_table(list(lines[0]), ([readable(str(cell)) for cell in line.values()] for line in lines))
