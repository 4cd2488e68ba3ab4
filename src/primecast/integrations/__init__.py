"""primecast inside other forecasting packages. Each module needs its package, which is an extra of the same name.

May import: everything but cli.
"""
