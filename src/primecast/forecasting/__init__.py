"""The product: `Forecaster`, from a table of channels to dated forecasts with intervals.

`arguments` and `state` hold the data; `fitting`, `prediction`, `backtesting` and `intervals` compute with them;
`persistence`, `model_card`, `hub` and `export` write files. May import: analysis, training, models, frames, data, nn,
storage, errors; not experiments.
"""
