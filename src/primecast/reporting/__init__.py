"""The HTML report of a fitted Forecaster: one page, no server, no network.

May import: forecasting and everything below it.
"""
