"""Tables of users: from a file or a frame to checked, regular windows, and back to the same kind of table.

`read` opens a table (by way of `files`, `time_columns` and `columns`), `dates` and `validate` check it,
`window_builder` makes windows of it; `layouts` returns forecasts in kind. No module here knows a model.
May import: data, schema, storage, errors.
"""

from primecast.frames.dates import frequency_in_words, future_index, season_of
from primecast.frames.future_covariates import UnknownFutureWarning
from primecast.frames.layouts import lengthen
from primecast.frames.long_tables import widen
from primecast.frames.read import ColumnsLeftOutWarning, open_table, read_table
from primecast.frames.validate import (
    POLICIES,
    ConstantChannelWarning,
    RevisedRowsWarning,
    SilentChannelWarning,
    dataset_from_frame,
    describe_gaps,
    validate,
)

__all__ = [
    "POLICIES",
    "ColumnsLeftOutWarning",
    "ConstantChannelWarning",
    "RevisedRowsWarning",
    "SilentChannelWarning",
    "UnknownFutureWarning",
    "dataset_from_frame",
    "describe_gaps",
    "frequency_in_words",
    "future_index",
    "lengthen",
    "open_table",
    "read_table",
    "season_of",
    "validate",
    "widen",
]
