"""A primecast forecaster for sktime: `PrimecastForecaster` passes sktime's own `check_estimator`.

    f = PrimecastForecaster(lookback=96).fit(y, fh=[1, 2, 3]); f.predict()

It is `primecast.Forecaster` behind sktime's interface: univariate and multivariate y, any index sktime has, forecasts
at any steps ahead, prediction intervals and quantiles. Exogenous X are covariates known beforehand: `predict` wants
their rows at `fh`.

The horizon is the farthest step of `fh`. Series can be very short here, and some rows must be held out for early
stopping and for scores (`held_out`). Where these cannot hold the horizon, a shorter one is trained, and a forecast is
continued from itself as often as it takes; where the training rows are few, the look-back is at most half of what the
horizon leaves of them (`sizes`). Intervals are calibrated for the trained horizon; those of a continued forecast are
wider by what its start is uncertain. Where too few windows are held out for a coverage, the widest interval that they
allow is returned, with a warning.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from primecast.errors import InputError
from primecast.forecasting.forecaster import Forecaster
from primecast.frames.future_covariates import UnknownFutureWarning
from primecast.models.registry import reads_time_features

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
        "capability:exogenous": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
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
        if X is not None and not reads_time_features(self.model, self.model_args):
            warnings.warn(f"model {self.model!r} reads no covariates: X is not used", stacklevel=2)
            X = None
        farthest = int(fh.to_relative(self.cutoff).to_pandas().max())
        lookback, horizon = sizes(len(y), lookback=self.lookback, horizon=farthest)
        others = {name: value for name, value in self.get_params().items() if name != "lookback"}
        self.rows_ = y
        self.exogenous_ = None if X is None else X.reindex(y.index)
        covariates = [] if X is None else [f"x{place}" for place in range(X.shape[1])]
        forecaster = Forecaster(lookback=lookback, horizon=horizon, future=covariates or None, **others)
        self.forecaster_ = forecaster.fit(self._table())
        return self

    def _update(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> "PrimecastForecaster":
        rows = y.combine_first(self.rows_)[self.rows_.columns]
        exogenous = self.exogenous_
        if exogenous is not None:
            newer = exogenous.iloc[:0] if X is None else X
            exogenous = newer.combine_first(exogenous)[exogenous.columns].reindex(rows.index).ffill()
        if update_params:
            return self._fit(rows, exogenous, self.fh)
        self.rows_, self.exogenous_ = rows, exogenous
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:
        forecast = self._forecast(fh, X, levels=[])[[str(place) for place in range(self.rows_.shape[1])]]
        return forecast.set_axis(self.rows_.columns, axis="columns")

    def _predict_interval(self, fh: Any, X: pd.DataFrame | None, coverage: Sequence[float]) -> pd.DataFrame:
        """Return the bounds; a coverage of 0, of which sktime makes the median, is the forecast itself."""
        highest = self._highest_level()
        levels = {one: min(max(round(100 * one, 3), 1.0), highest) for one in coverage if one > 0}
        for one, level in levels.items():
            if level < round(100 * one, 3):
                warnings.warn(
                    f"an interval of {100 * one:g} % needs more than the {len(self.forecaster_.calibration_)} held-out "
                    f"windows there are: the one of {level:.3g} % is returned",
                    stacklevel=2,
                )
        forecast = self._forecast(fh, X, levels=sorted(set(levels.values())))
        bounds = {}
        for place, name in enumerate(self._get_varnames()):
            for one in coverage:
                for side, short in (("lower", "lo"), ("upper", "hi")):
                    column = f"{place}-{short}-{levels[one]:g}" if one in levels else str(place)
                    bounds[name, one, side] = forecast[column]
        return pd.DataFrame(bounds)

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: Sequence[float]) -> pd.DataFrame:
        """Return bounds of intervals; sktime's own default mixes the columns up where y has several."""
        coverage = {one: round(abs(1 - 2 * one), 9) for one in alpha}
        bounds = self._predict_interval(fh, X, sorted(set(coverage.values())))
        return pd.DataFrame(
            {
                (name, one): bounds[name, coverage[one], "lower" if one < 0.5 else "upper"]
                for name in self._get_varnames()
                for one in alpha
            }
        )

    def _highest_level(self) -> float:
        """Return the level of the widest interval that the held-out windows allow, in per cent."""
        windows = len(self.forecaster_.calibration_)
        for rank in range(windows, 0, -1):
            level = math.floor(1e5 * rank / (windows + 1)) / 1e3  # rounded up it would be another rank
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UnknownFutureWarning)
                    self.forecaster_.predict(level=[level])
            except InputError:
                continue
            return level
        raise InputError(f"{windows} held-out windows are too few for any interval: give a longer series")

    def _forecast(self, fh: Any, X: pd.DataFrame | None, *, levels: Sequence[float]) -> pd.DataFrame:
        """Return forecasts and bounds at `fh`, with the columns of `Forecaster.predict`, continued as far as needed."""
        steps = fh.to_relative(self.cutoff).to_pandas().astype(int)
        index = fh.to_absolute(self.cutoff).to_pandas()
        lookback, targets = self.forecaster_.state_.lookback, [str(place) for place in range(self.rows_.shape[1])]
        future = None if X is None or self.exogenous_ is None else _covariates(X, self.rows_.index)
        covered = X is not None and index.isin(X.index).all()
        rows, parts = self._table(), []
        seen, wanted = lookback + self.forecaster_.horizon, len(rows) + steps.max()  # recent errors adapt intervals
        start: dict[str, pd.Series[float] | float] = {}  # how far the last row of the forecast so far may be off
        while len(rows) < wanted:
            with warnings.catch_warnings():
                if covered:  # sktime gives X at fh alone
                    warnings.simplefilter("ignore", UnknownFutureWarning)
                more = self.forecaster_.predict(rows.iloc[-seen:], level=levels, future=future)
            for name in more.columns.difference(targets):
                point = more[name.split("-")[0]]
                offset = more[name] - point + start.get(name, 0.0)
                more[name], start[name] = point + offset, offset.iloc[-1]
            parts.append(more)
            seen = lookback  # a forecast has no errors
            rows = pd.concat([rows, more[targets]])
            rows = (rows if future is None else rows.fillna(future)).ffill()
        return pd.concat(parts).iloc[steps - 1].set_axis(index, axis="index")

    def _table(self) -> pd.DataFrame:
        """Return y and the covariates as one frame."""
        frame = _frame(self.rows_)
        if self.exogenous_ is None:
            return frame
        return frame.join(_covariates(self.exogenous_, self.rows_.index))

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
    names = [str(place) for place in range(y.shape[1])]
    return _dated(y, y.index).set_axis(names, axis="columns").astype(float)


def _covariates(X: pd.DataFrame, rows: pd.Index) -> pd.DataFrame:
    """Return X in the same way, its numbers counted from the first of these rows."""
    names = [f"x{place}" for place in range(X.shape[1])]
    return _dated(X, rows).set_axis(names, axis="columns").astype(float)


def _dated(frame: pd.DataFrame, rows: pd.Index) -> pd.DataFrame:
    if isinstance(frame.index, pd.PeriodIndex):
        return frame.set_axis(frame.index.to_timestamp(), axis="index")
    if isinstance(frame.index, pd.DatetimeIndex):
        return frame
    numbers = frame.index - rows[0]
    between = pd.RangeIndex(numbers.min(), numbers.max() + 1)  # X at fh alone may leave rows out
    return frame.set_axis(numbers, axis="index").reindex(between)
