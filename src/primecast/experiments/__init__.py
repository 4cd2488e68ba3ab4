"""The evidence: a spec is trained and scored into a row; many rows are a study; a study is a table and a figure.

`studies/` has one short file for each table or figure of the paper. May import: analysis, training, models, frames,
data, nn, plotting, storage, errors; not forecasting.
"""
