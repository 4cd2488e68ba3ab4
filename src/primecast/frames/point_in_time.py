"""Values as they were known at a time in the past.

An interpolated gap is filled with the help of a value that comes after it. A forecast made within the gap could not
have used that value. So every held-out window reads its rows through `PointInTimeValues`.

Letters: t rows, n columns, b windows of a batch, w rows of a window.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int64

from primecast.data.windows import Scaler
from primecast.frames.validate import CheckedFrame


@dataclass(frozen=True, eq=False)
class PointInTimeValues:
    """Each cell as it was known at each time: a gap is interpolated only once a value has come after it.

    filled: the cells as the policy for missing values fills them when all rows are known.
    held:   gaps as the last value before them, which they are until the next value comes.
    closes: the row of that next value; of a cell without a gap its own row, of an open gap the number of rows.
    """

    filled: Float[np.ndarray, "t n"]
    held: Float[np.ndarray, "t n"]
    closes: Int64[np.ndarray, "t n"]

    @classmethod
    def of(cls, table: CheckedFrame) -> "PointInTimeValues":
        values, rows = table.frame.to_numpy(), len(table)
        if not table.gaps.any():
            return cls(values, values, np.broadcast_to(np.arange(rows)[:, None], values.shape))
        truth = table.truth
        truth[0] = values[0]  # a gap that began before these rows has the value it was filled with
        later = np.where(table.gaps, rows, np.arange(rows)[:, None])
        closes = np.minimum.accumulate(later[::-1], axis=0)[::-1]
        return cls(values, pd.DataFrame(truth).ffill().to_numpy(), closes)

    def as_of(
        self, rows: Int64[np.ndarray, "*b w"], time: int | Int64[np.ndarray, "*b"]
    ) -> Float[np.ndarray, "*b w n"]:
        """Return these rows as they were known before the row `time`."""
        still_open = self.closes[rows] >= np.asarray(time)[..., None, None]
        return np.where(still_open, self.held[rows], self.filled[rows])

    def frame_as_of(self, table: CheckedFrame, time: int) -> CheckedFrame:
        """Return the rows of the table before the row `time` as they were known then."""
        part = table.rows(0, time)
        if not part.gaps.any():
            return part
        values = self.as_of(np.arange(time), time)
        return CheckedFrame(pd.DataFrame(values, index=part.frame.index, columns=part.frame.columns), part.gaps)

    def scaled(self, scaler: Scaler) -> "PointInTimeValues":
        filled, held = (scaler.transform(values).astype(np.float32) for values in (self.filled, self.held))
        return PointInTimeValues(filled, held, self.closes)
