"""The leaderboard: weights and errors of the members of an ensemble, beside the seasonal naive forecast."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from primecast.forecasting.comparison import COMPARED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ["weight", "val_mse", "val_mae", "test_mse", "test_mae", "seconds", *COMPARED]
SEASONAL_NAIVE = "seasonal naive"


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """frame: a row per member, then "ensemble" (or "model", if there is only one), then "seasonal naive".

    Errors are in scaled units; val_: of the rows that chose the weights. seconds: of the training. mse_change: how much
    the test MSE exceeds that of the ensemble, 0.1 is 10 %, with its 95 % interval from mse_low to mse_high: a paired
    block bootstrap over the test windows. verdict: whether it differs with significance; None with too few windows.
    """

    # Not a subclass of DataFrame: its `plot` is an accessor (`.plot.bar()`), which a method would hide, and a slice of
    # a leaderboard is none. `Backtest` and `Relations` hold their frames in the same way.
    frame: pd.DataFrame

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the test errors as bars, with the seasonal naive forecast as a line; return the matplotlib axes."""
        from primecast.plotting.plots import plot_leaderboard  # matplotlib only where something is drawn

        return plot_leaderboard(self.frame, ax=ax)

    def __repr__(self) -> str:
        return self.frame.to_string(float_format="{:.4g}".format, na_rep="")

    def _repr_html_(self) -> str:
        return self.frame.to_html(float_format="{:.4g}".format, na_rep="")


def leaderboard(facts: Mapping[str, Any]) -> Leaderboard:
    """Return the leaderboard from the facts of the model card."""
    scores, members = facts["scores"], facts.get("members", [])
    rows: dict[str, Mapping[str, Any]] = {str(member["name"]): member for member in members}
    rows["ensemble" if members else "model"] = {"test_mse": scores["mse"], "test_mae": scores["mae"]}
    rows[SEASONAL_NAIVE] = {"test_mse": scores["naive_mse"], "test_mae": scores["naive_mae"]}
    compared = facts.get("comparison", {})  # folders of before have none
    rows = {name: {**row, **compared.get(name, {})} for name, row in rows.items()}
    return Leaderboard(pd.DataFrame.from_dict(rows, orient="index").reindex(columns=COLUMNS))
