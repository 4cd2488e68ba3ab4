"""Data: sets known by name, frames of one's own, windows to train on, systems whose truth is known."""

from primecast.data.ahead import UnknownFutureWarning
from primecast.data.catalog import CATALOG, Entry, cache_folder, fetch, load_dataset
from primecast.data.frames import (
    POLICIES,
    ConstantChannelWarning,
    dataset_from_frame,
    describe_gaps,
    future_index,
    lengthen,
    read_table,
    season_of,
    validate,
    widen,
)
from primecast.data.nyc import UNITS, nyc_weather, unit_of
from primecast.data.presets import PRESETS, preset
from primecast.data.synthetic import SyntheticSystem, Truth, lagged_system
from primecast.data.windows import Batch, Cuts, Dataset, Fixed, Ratio, Scaler, Splits, Windows, split, time_features

__all__ = [
    "CATALOG",
    "POLICIES",
    "PRESETS",
    "UNITS",
    "Batch",
    "ConstantChannelWarning",
    "Cuts",
    "Dataset",
    "Entry",
    "Fixed",
    "Ratio",
    "Scaler",
    "Splits",
    "SyntheticSystem",
    "Truth",
    "UnknownFutureWarning",
    "Windows",
    "cache_folder",
    "dataset_from_frame",
    "describe_gaps",
    "fetch",
    "future_index",
    "lagged_system",
    "lengthen",
    "load_dataset",
    "nyc_weather",
    "preset",
    "read_table",
    "season_of",
    "split",
    "time_features",
    "unit_of",
    "validate",
    "widen",
]
