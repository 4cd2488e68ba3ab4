"""The fitted state of a Forecaster: what `fit` computes, `save` writes and every forecast reads.

Letters: n targets.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from torch import nn

from primecast.data.windows import Scaler
from primecast.errors import InputError
from primecast.forecasting.arguments import Arguments
from primecast.forecasting.bounds import AtLeast
from primecast.forecasting.intervals import Calibration
from primecast.frames.dates import future_index, rows_until
from primecast.frames.layouts import Layout
from primecast.frames.roles import Roles
from primecast.frames.validate import CheckedFrame
from primecast.frames.window_builder import RoleWindows, WindowBuilder
from primecast.training.loop import History, Scores


class NotFittedError(ValueError, AttributeError):
    """A method or attribute of a fitted Forecaster was used before `fit`."""


@dataclass(frozen=True, eq=False)
class TrainingRecord:
    """What `fit` leaves beside the model; it is not saved."""

    data: CheckedFrame  # all rows of `fit`
    history: History
    scores: Scores  # of the test rows, in scaled units
    naive_scores: Scores  # of the seasonal naive forecast of the same rows


@dataclass(frozen=True)
class Limits:
    """Targets whose forecast after a table is their constant, and those whose forecast is kept from below 0."""

    unchanged: Bool[np.ndarray, "n"]
    nonnegative: Bool[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class FittedState:
    """A fitted model with everything that a forecast needs; `update` returns a new one.

    columns:     the columns of the table of `fit`, in their order.
    recent:      the last look-back + horizon rows.
    constant:    the targets that have never changed.
    naive_mae:   of the seasonal naive forecast on the training rows, in original units: the divisor of MASE.
    calibration: errors of held-out windows; row 0 is the one after the last known. stride: rows between its windows.
    nonnegative: the targets without a known value below 0, which are forecast as 0 at least, see `bounds`.
    rows:        rows since the last calibration window of `fit` ended.
    periods:     first and last row of train, val and test.
    facts:       the content of the model card.
    members:     the members of an ensemble, in the order of its weights; none for a single model.
    final:       the model of the rows after those of `fit`: parts of it are trained on all rows. None: `model`.
    """

    arguments: Arguments
    model: nn.Module
    builder: WindowBuilder
    layout: Layout
    columns: list[str]
    recent: CheckedFrame
    constant: Bool[np.ndarray, "n"]
    season: int
    naive_mae: Float64[np.ndarray, "n"]
    calibration: Calibration
    nonnegative: Bool[np.ndarray, "n"]
    stride: int
    rows: int
    periods: dict[str, tuple[str, str]]
    facts: dict[str, Any]
    training: TrainingRecord | None = None
    members: tuple[Arguments, ...] = ()
    final: nn.Module | None = None

    @property
    def roles(self) -> Roles:
        return self.builder.roles

    @property
    def scaler(self) -> Scaler:
        return self.builder.scaler

    @property
    def lookback(self) -> int:
        return self.builder.lookback

    @property
    def horizon(self) -> int:
        return self.builder.horizon

    @property
    def bounded_model(self) -> nn.Module:
        """Return the model with forecasts of at least 0 where `nonnegative` says so."""
        return AtLeast.zero(self.model, self.scaler, self.nonnegative)

    def model_after(self, table: CheckedFrame) -> nn.Module:
        """Return the model for the rows after this table: the final one, if `fit` knew none of them."""
        if self.final is None or rows_until(future_index(table.index, 1), self.periods["test"][1]):
            return self.model
        return self.final

    @property
    def record(self) -> TrainingRecord:
        """Return what `fit` leaves beside the model; a loaded state has none."""
        if self.training is None:
            raise NotFittedError(
                "a saved Forecaster does not carry the rows it was fitted on, nor its training scores: give the rows "
                "as `data`, or see facts_ for the scores"
            )
        return self.training

    # ---------------------------------------------------------------- which rows the model was not trained on

    @property
    def last_training_row(self) -> str:
        """Return the last row that the model was trained on."""
        before_final = self.arguments.refit and self.final is None  # saved by an earlier version: on all rows
        return self.periods["test" if before_final else "train"][1]

    def rows_trained(self, table: CheckedFrame) -> int:
        """Return how many rows of the table lie at or before the last training row."""
        return rows_until(table.index, self.last_training_row)

    def first_origin(self, table: CheckedFrame) -> int:
        """Return the first row with a look-back before it that the model was not trained on."""
        return max(self.lookback, self.rows_trained(table))

    def first_held_out(self, table: CheckedFrame) -> int:
        """Return the first such row before which every channel has had a value, which `predict` demands."""
        return max(self.first_origin(table), table.first_complete_row())

    def why_not_held_out(self, table: CheckedFrame) -> str:
        """Return why rows before `first_held_out` cannot be forecast."""
        if self.first_held_out(table) > self.first_origin(table):
            return f"some channel has no value before {table.index[table.first_complete_row() - 1]}"
        return f"rows until {self.last_training_row} were trained on"

    def check_held_out(self, table: CheckedFrame) -> None:
        """Refuse a table without a whole horizon of held-out rows."""
        if len(table) - self.first_held_out(table) < self.horizon:
            raise InputError(
                f"{self.why_not_held_out(table)}; at least {self.horizon} later rows are needed, with a look-back "
                "before them"
            )

    def held_out_windows(self, table: CheckedFrame) -> RoleWindows:
        """Return all windows whose truth the model was not trained on."""
        self.check_held_out(table)
        return self.builder.held_out(table, range(self.first_held_out(table) - self.lookback, len(table)))

    def limits(self, table: CheckedFrame) -> Limits:
        """Return which targets have always been constant or never below 0, as in `fit`, in all of these rows, too."""
        targets = len(self.roles.targets)
        values = table.frame.to_numpy()[:, :targets]
        same, negative = (values == self.scaler.mean[:targets]).all(axis=0), (values < 0).any(axis=0)
        return Limits(np.asarray(self.constant & same), np.asarray(self.nonnegative & ~negative))
