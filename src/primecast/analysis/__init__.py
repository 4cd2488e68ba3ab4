"""Analysis of trained models and their errors.

`statistics` compares runs by a paired block bootstrap; `relations` finds leads; `hooks` and `maps` read attention and
primers; `sensor_ablation`, `synthetic_recovery`, `example_forecasts` and `cost` are measured by the registry `probes`.
May import: training, models, frames, data, nn, storage, errors.
"""
