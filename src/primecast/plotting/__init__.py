"""matplotlib figures of data frames and arrays.

They know no model and no study. May import: errors.
"""
