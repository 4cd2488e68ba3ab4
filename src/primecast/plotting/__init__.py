"""matplotlib drawings of frames and arrays.

They know no model and no study. May import: errors.
"""
