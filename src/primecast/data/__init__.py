"""Benchmark data: sets known by name, windows to train on, synthetic systems whose truth is known.

`windows` splits, scales and cuts a series; `catalog` loads and fetches the sets of catalog.toml, `formats` reads their
files. May import: errors.
"""

from primecast.data.catalog import CATALOG, Entry, cache_folder, fetch, load_dataset
from primecast.data.nyc import UNITS, nyc_weather, unit_of
from primecast.data.synthetic import SyntheticSystem, Truth, lagged_system
from primecast.data.windows import Batch, Cuts, Dataset, Fixed, Ratio, Scaler, Splits, Windows, calendar_features, split

__all__ = [
    "CATALOG",
    "UNITS",
    "Batch",
    "Cuts",
    "Dataset",
    "Entry",
    "Fixed",
    "Ratio",
    "Scaler",
    "Splits",
    "SyntheticSystem",
    "Truth",
    "Windows",
    "cache_folder",
    "calendar_features",
    "fetch",
    "lagged_system",
    "load_dataset",
    "nyc_weather",
    "split",
    "unit_of",
]
