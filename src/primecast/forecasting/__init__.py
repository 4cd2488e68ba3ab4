"""The product: `Forecaster`, from a table of channels to dated forecasts with intervals.

`intervals` has the statistics, `backtesting` the scores of past forecasts, `persistence` and `hub` the saved folder,
`export` ONNX. May import: analysis, training, models, frames, data, nn, storage, errors; not experiments.
"""
