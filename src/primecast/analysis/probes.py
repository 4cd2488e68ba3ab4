"""The registry of probes: what a run measures of its trained model besides the test score.

A probe takes the model, the splits and the data set, and returns a flat dict. Numbers, texts and lists go into the row
of the run, from which tables and figures are made; float32 arrays are stored beside it. A probe changes neither the
model nor a global random state.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from primecast.analysis.cost import cost
from primecast.analysis.example_forecasts import example_forecasts
from primecast.analysis.maps import attention_maps
from primecast.analysis.sensor_ablation import sensor_ablation
from primecast.analysis.synthetic_recovery import synthetic_recovery
from primecast.data.windows import Dataset, Splits

Probe = Callable[[nn.Module, Splits, Dataset], dict[str, Any]]

PROBES: dict[str, Probe] = {
    "maps": attention_maps,
    "sensor_ablation": sensor_ablation,
    "example_forecasts": example_forecasts,
    "relations": synthetic_recovery,
    "cost": cost,
}
