"""Tables of users: from a file or a frame to checked, regular windows, and back to the same kind of table.

`read` and `layouts` open a table, `window_builder` makes windows of it. Frames know no model. May import: data, errors.
"""

from primecast.frames.future_covariates import UnknownFutureWarning
from primecast.frames.read import (
    POLICIES,
    ConstantChannelWarning,
    dataset_from_frame,
    describe_gaps,
    future_index,
    lengthen,
    read_table,
    season_of,
    validate,
    widen,
)

__all__ = [
    "POLICIES",
    "ConstantChannelWarning",
    "UnknownFutureWarning",
    "dataset_from_frame",
    "describe_gaps",
    "future_index",
    "lengthen",
    "read_table",
    "season_of",
    "validate",
    "widen",
]
