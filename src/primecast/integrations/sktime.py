"""A primecast forecaster for sktime: `PrimecastForecaster` passes sktime's own `check_estimator`.

    f = PrimecastForecaster(lookback=96).fit(y, fh=[1, 2, 3]); f.predict()

It is `primecast.Forecaster` behind sktime's interface: univariate and multivariate y, any index sktime has, forecasts
at any steps ahead. Exogenous data are not used.

The horizon is the farthest step of `fh`. Series can be very short here, and some rows must be held out for early
stopping and for scores (`held_out`). Where these cannot hold the horizon, a shorter one is trained, and a forecast is
continued from itself as often as it takes; where the training rows are few, the look-back is at most half of what the
horizon leaves of them (`sizes`).
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster

try:
    from sktime.forecasting.base import BaseForecaster
except ImportError as error:
    raise ImportError(
        "primecast.integrations.sktime needs sktime, which is not installed: pip install 'primecast[sktime]'"
    ) from error

SHORTEST = 3
"""The shortest look-back: with fewer steps there are no features of a pair of channels."""


def held_out(rows: int) -> tuple[int, int, int]:
    """Return the numbers of rows for training, validation and test, as `Forecaster.fit` splits them: 7:1:2.

    >>> held_out(20)
    (14, 2, 4)
    """
    train, test = int(0.7 * rows), int(0.2 * rows)
    return train, rows - train - test, test


def sizes(rows: int, *, lookback: int, horizon: int) -> tuple[int, int]:
    """Return the look-back and the horizon that the rows allow, at most those given.

    >>> sizes(1000, lookback=96, horizon=24), sizes(20, lookback=96, horizon=3)
    ((96, 24), (6, 2))
    """
    train, val, test = held_out(rows)
    shorter = min(horizon, val, test, train - SHORTEST)
    if shorter < 1:
        raise InputError(f"a series of {rows} rows is too short to hold rows out and train on the others")
    return min(lookback, max(SHORTEST, (train - shorter) // 2)), shorter


class PrimecastForecaster(BaseForecaster):
    """Forecast all columns together, with prime attention where the model has attention.

    lookback: steps to look at, fewer where the series is short. All others: see `primecast.Forecaster`.

    Example:

    >>> import pandas as pd
    >>> from primecast.integrations.sktime import PrimecastForecaster
    >>> months = pd.period_range("2024-01", periods=60, freq="M")
    >>> y = pd.DataFrame({"a": range(60), "b": range(60, 0, -1)}, index=months)
    >>> forecaster = PrimecastForecaster(lookback=12, epochs=1, model="dlinear").fit(y, fh=[1, 2, 3])
    >>> forecaster.predict().shape
    (3, 2)
    """

    _tags = {  # noqa: RUF012 (sktime reads it so)
        "authors": ["The primecast developers"],
        "maintainers": ["The primecast developers"],
        "python_dependencies": ["torch"],
        "y_inner_mtype": "pd.DataFrame",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": True,
        "capability:exogenous": False,
        "capability:insample": False,
        "capability:missing_values": False,
        "requires-fh-in-fit": True,
        "capability:update": True,
    }

    # Forecasts start from the newest rows; sktime will stop keeping them, so this class keeps them in `rows_`.
    _config = {"remember_data": False}  # noqa: RUF012
    _y: pd.DataFrame | None = None  # read by sktime if `remember_data` is switched on
    _X: pd.DataFrame | None = None

    def __init__(
        self,
        lookback: int = 96,
        model: str = "itransformer",
        attention: str | None = None,
        model_args: Mapping[str, Any] | None = None,
        loss: str = "mse",
        lr: float = 5e-4,
        batch_size: int = 32,
        epochs: int = 10,
        patience: int = 3,
        schedule: str = "halving",
        seed: int = 0,
        progress: str = "off",
    ) -> None:
        self.lookback = lookback
        self.model = model
        self.attention = attention
        self.model_args = model_args
        self.loss = loss
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.schedule = schedule
        self.seed = seed
        self.progress = progress
        super().__init__()

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: Any) -> "PrimecastForecaster":
        farthest = int(fh.to_relative(self.cutoff).to_pandas().max())
        lookback, horizon = sizes(len(y), lookback=self.lookback, horizon=farthest)
        others = {name: value for name, value in self.get_params().items() if name != "lookback"}
        self.forecaster_ = Forecaster(lookback=lookback, horizon=horizon, **others).fit(_frame(y))
        self.rows_ = y
        return self

    def _update(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> "PrimecastForecaster":
        rows = y.combine_first(self.rows_)[self.rows_.columns]
        if update_params:
            return self._fit(rows, X, self.fh)
        self.rows_ = rows
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:
        steps = fh.to_relative(self.cutoff).to_pandas().astype(int)
        known = _frame(self.rows_)
        rows = known.iloc[-self.forecaster_.state_.lookback :]
        while len(rows) < self.forecaster_.state_.lookback + steps.max():
            more = self.forecaster_.predict(rows.iloc[-self.forecaster_.state_.lookback :])
            rows = pd.concat([rows, more])
        forecast = rows.iloc[self.forecaster_.state_.lookback + steps - 1]
        index = fh.to_absolute(self.cutoff).to_pandas()
        return pd.DataFrame(forecast.to_numpy(), index=index, columns=self.rows_.columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that make sktime's tests quick."""
        small = {"d_model": 8, "n_heads": 2, "n_layers": 1}
        return [
            {"lookback": 7, "epochs": 1, "model_args": small},
            {"lookback": 5, "epochs": 2, "model": "dlinear", "lr": 1e-2},
        ]


def _frame(y: pd.DataFrame) -> pd.DataFrame:
    """Return y as `Forecaster` takes it: periods become their first moments, numbers are counted from 0."""
    frame = y.set_axis([str(place) for place in range(y.shape[1])], axis="columns").astype(float)
    if isinstance(y.index, pd.PeriodIndex):
        return frame.set_axis(y.index.to_timestamp(), axis="index")
    return frame if isinstance(y.index, pd.DatetimeIndex) else frame.reset_index(drop=True)
