"""Future covariates: columns whose values are known beforehand, read from the table that `predict` is given.

Letters: h future rows, c covariates.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float64

from primecast.data.formats import to_numbers
from primecast.errors import InputError, format_list
from primecast.frames.dates import Index, align_rows
from primecast.frames.layouts import Layout
from primecast.frames.long_tables import add_absent_series
from primecast.frames.read import reopen_table
from primecast.frames.validate import CheckedFrame


class UnknownFutureWarning(UserWarning):
    """Some future values of a covariate are not known; its last known value was used."""


def read_future_covariates(
    future: object, names: Sequence[str], *, table: CheckedFrame, ahead: Index, layout: Layout
) -> Float64[np.ndarray, "h c"]:
    """Return the covariates at the rows `ahead`, which follow the table; where unknown, the last value, with a warning.

    future: a table as `open_table` takes it, or None. layout: that of the table of `fit`.
    """
    if future is not None and not names:
        raise InputError("this Forecaster has no future covariates: name them with Forecaster(future=[...])")
    if future is None:
        held = pd.DataFrame(np.nan, index=ahead, columns=list(names))
    else:
        given, _ = reopen_table(future, layout)
        if isinstance(future, np.ndarray):
            given = _numbered(given, names, ahead)
        given = add_absent_series(given.rename(columns=str), names, layout)
        held = _check(align_rows(given, table.index), names).reindex(ahead)
    unknown_cells = int(held.isna().to_numpy().sum())
    if unknown_cells:
        warnings.warn(
            f"{unknown_cells} of {held.size} future values of {format_list(names)} are not known; the last known value "
            f"of each was used. They are needed from {ahead[0]} to {ahead[-1]}: predict(future=...), in the "
            "shell predict --future FILE",
            UnknownFutureWarning,
            stacklevel=3,
        )
    last = table.frame[list(names)].iloc[[-1]]
    return pd.concat([last, held]).ffill().to_numpy()[1:]


def _numbered(given: pd.DataFrame, names: Sequence[str], ahead: Index) -> pd.DataFrame:
    """Return an array, which has neither dates nor names, as a frame of the rows `ahead`."""
    if given.shape[1] != len(names):
        raise InputError(
            f"the future array has {given.shape[1]} columns, there are {len(names)} future covariates: "
            f"{format_list(names)}"
        )
    return given.iloc[: len(ahead)].set_axis(ahead[: len(given)], axis="index").set_axis(list(names), axis=1)


def _check(given: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    absent = [name for name in names if name not in given.columns]
    if absent:
        raise InputError(f"the future frame has no column {format_list(absent)}; it has {format_list(given.columns)}")
    twice = given.index[given.index.duplicated()].unique()
    if len(twice):
        raise InputError(
            f"{len(twice)} rows of the future frame occur more than once, the first {format_list(twice[:3])}; keep one "
            "of each, for example with df[~df.index.duplicated()]"
        )
    numbers = to_numbers(given[list(names)], source="the future frame")
    if np.isinf(numbers).any():
        raise InputError(f"the future frame holds {int(np.isinf(numbers).sum())} infinite values; correct them")
    return pd.DataFrame(numbers, index=given.index, columns=list(names))
