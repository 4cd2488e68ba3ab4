"""What a trained model and its errors say: statistics, lead-lag relations, attention maps, sensor ablation, cost.

`statistics` compares runs by a paired block bootstrap; `hooks` reads attention maps and primers while a model
forecasts. May import: training, models, frames, data, nn, storage, errors.
"""
