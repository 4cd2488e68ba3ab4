"""The HTML report of a fitted Forecaster: one page, no server, no network.

`gather` collects its data, `describe` turns values into words, `render` fills templates/report.html. May import:
forecasting and everything below it.
"""
