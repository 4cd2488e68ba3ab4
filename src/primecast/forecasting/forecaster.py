"""Forecaster: a table of channels in, their dated future in original units out.

    table ─> read ─> check ─> split 7:1:2 ─> windows ─> train ─> forecast ─> inverse scale ─> intervals ─> table

The class holds the arguments and the fitted state; the work is done by the modules of this room: `fitting`,
`prediction`, `backtesting`, `persistence`, `export`, `hub`.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32
from torch import nn

from primecast.analysis.relations import Relations
from primecast.analysis.sensor_ablation import SensorAblation
from primecast.data.windows import Scaler
from primecast.errors import InputError, check_known, unknown
from primecast.forecasting.analyses import relations_of, sensor_ablation_of
from primecast.forecasting.arguments import Arguments
from primecast.forecasting.backtesting import Backtest, backtest, check_origins
from primecast.forecasting.designs import resolve
from primecast.forecasting.drawing import plot_state
from primecast.forecasting.export import export_state
from primecast.forecasting.fitting import fit_state
from primecast.forecasting.hub import locate, push
from primecast.forecasting.intervals import check_levels
from primecast.forecasting.leaderboard import Leaderboard, leaderboard
from primecast.forecasting.model_card import summarize
from primecast.forecasting.persistence import load_state, save_state
from primecast.forecasting.prediction import predict_table, read_later, update_state
from primecast.forecasting.state import FittedState, NotFittedError
from primecast.frames.read import open_table
from primecast.frames.roles import Roles
from primecast.frames.validate import CheckedFrame
from primecast.schema import COUNT, checked
from primecast.training.loop import History, Scores


class Forecaster:
    """Forecast all channels of a regular time series together.

    horizon:   steps to forecast.
    lookback:  steps of input. None: 96 for one model; 336 for an ensemble, at most a tenth of the rows.
    model, attention: names as in `primecast list`; attention None is the model's default.
    model_args: arguments of the model, as `create_model` takes them.
    past:      names of columns that are inputs but not forecast, such as a controller's output.
    future:    names of columns that are known beforehand, such as a holiday; `predict` is given their future.
    loss, lr, batch_size, epochs, patience, schedule, seed: of the training, see `primecast.fit`. lr, epochs and
               schedule None: 5e-4, 10, "halving" for one model, 1e-3, 5, "cosine" for an ensemble.
    device, precision: of the training, see `primecast.fit`; forecasts are made on the CPU in float32.
    missing:   policy for missing values: "error", "interpolate", "ffill" or "mask", see `primecast.frames.POLICIES`.
    season:    steps of the seasonal naive forecast, which may exceed the look-back; by default from the dates.
    refit:     train networks once more, on all rows and for the best number of epochs: it doubles the time. Ridge
               regressions are always solved once more on all rows. What is trained on all rows forecasts the rows after
               them alone; scores, intervals and `backtest` are of the model that does not know the held-out rows.
    progress:  "bar", "lines", "off" or "auto", see `primecast.fit`.
    quality:   "fast", "good" or "best": an ensemble of 5, 7 or 12 members of different designs, averaged with weights
               that the validation rows choose; see `leaderboard`. None: "good"; but one model where a model, an
               attention or model_args are given. With a quality, too, the members are built on what is given.
    time_limit: seconds after which no further member is begun; the first one is always trained.
    bounds:    "auto": no forecast or interval below 0 for channels without a known value below 0 (for `scores_`: in the
               training rows; validation errors and `leaderboard` are without it). None: forecasts as they come.

    All arguments can be written as JSON and are checked at once. After `fit`: `scores_`, `naive_scores_` (of the last
    fifth of the rows, which are not trained on, in scaled units), `periods_`, `model_` and the other attributes below.

    Example: `Forecaster(horizon=24).fit(df).predict(level=[80, 95])`, with df: DatetimeIndex x channels.
    """

    state_: FittedState
    """Everything that `fit` computed."""

    def __init__(
        self,
        *,
        horizon: int,
        lookback: int | None = None,
        model: str | None = None,
        attention: str | None = None,
        model_args: Mapping[str, Any] | None = None,
        past: Sequence[str] | None = None,
        future: Sequence[str] | None = None,
        loss: str = "mse",
        lr: float | None = None,
        batch_size: int = 32,
        epochs: int | None = None,
        patience: int = 3,
        schedule: str | None = None,
        seed: int = 0,
        device: str = "cpu",
        precision: str = "float32",
        missing: str = "error",
        season: int | None = None,
        refit: bool = False,
        progress: str = "auto",
        quality: str | None = None,
        time_limit: float | None = None,
        bounds: str | None = "auto",
    ) -> None:
        # Stored as given: scikit-learn's clone compares identities.
        self.horizon = horizon
        self.lookback = lookback
        self.model = model
        self.attention = attention
        self.model_args = model_args
        self.past = past
        self.future = future
        self.loss = loss
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.schedule = schedule
        self.seed = seed
        self.device = device
        self.precision = precision
        self.missing = missing
        self.season = season
        self.refit = refit
        self.progress = progress
        self.quality = quality
        self.time_limit = time_limit
        self.bounds = bounds
        self._arguments().check()

    # ---------------------------------------------------------------- training and forecasting

    @checked()
    def fit(self, data: object, *, state: Path | str | None = None, **reading: Any) -> "Forecaster":
        """Train on the first 70 % of the rows, stop by the next 10 %, score on the last 20 %.

        data:    a wide frame (DatetimeIndex or numbered rows x channels), a long one, the path of a CSV, Parquet,
                 Feather or Excel file, an array (rows, channels).
        state:   a folder for this training alone: the same call on the same rows continues an interrupted one there,
                 and ends with the same bits. Ctrl-C and SIGTERM write it first.
        reading: how the table is read, where it does not show that by itself: time, id, value, dayfirst, columns, drop,
                 header, decimal, freq, start, tz, na, matrix; see `primecast.frames.read.open_table`.
        """
        arguments = self._arguments()
        arguments.check()
        known = signature(open_table).parameters.keys() - {"data", "covariates"}
        for name in reading:
            check_known("argument of fit", name, known | {"state"})
        table = open_table(data, **reading, covariates=[*(self.past or ()), *(self.future or ())])
        if table is not data:
            table.say(missing=self.missing, shown=self.progress != "off")
        checkpoints = None if state is None else Path(state)
        self.state_ = fit_state(arguments, table.frame, table.layout, checkpoints=checkpoints)
        return self

    @checked()
    def predict(
        self,
        data: object = None,
        *,
        level: Sequence[float] = (),
        future: object = None,
        adaptive: bool = True,
    ) -> Any:
        """Forecast the `horizon` rows after the last row of `data` (by default of the rows known so far), in its units.

        level:    per cent of each interval, [80, 95]: columns "<channel>-lo-80" and "<channel>-hi-80".
        future:   a table with the future values of the future covariates; where it has none, their last value is used,
                  with an UnknownFutureWarning.
        adaptive: intervals that forget old errors and learn from misses, see `update`, instead of all errors alike.

        Return the same kind of table as `data`, or as the one of `fit`; see `Layout.render`.
        """
        return predict_table(self._fitted(), data, level=level, future=future, adaptive=adaptive)

    @checked()
    def plot(
        self,
        data: object = None,
        *,
        channels: Sequence[object] | None = None,
        level: Sequence[float] = (80,),
        truth: object = None,
        units: Mapping[str, str] | None = None,
        future: object = None,
        adaptive: bool = True,
    ) -> npt.NDArray[np.object_]:
        """Draw the recent rows and the forecast with its intervals; return matplotlib axes, one for each channel.

        channels: those to draw, by default the first six. truth: a table with the rows that followed, for a forecast of
        the past. units: channel -> unit, by default `df.attrs["units"]`. The others are those of `predict`.
        """
        wanted: dict[str, Any] = {"channels": channels, "level": level, "truth": truth, "units": units}
        return plot_state(self._fitted(), data, **wanted, future=future, adaptive=adaptive)

    def update(self, data: object) -> "Forecaster":
        """Add newer rows: forecasts start from them, and their errors join those that make the intervals.

        The model stays as it is. `data` may be a single row, and may overlap the known rows; its first new row must be
        the next one. All rows of an array are new, since they have no numbers. Other values for the last look-back +
        horizon dates are used, with a RevisedRowsWarning where they contradict known ones; in numbered rows, refused.
        """
        self.state_ = update_state(self._fitted(), data)
        return self

    # ---------------------------------------------------------------- backtests and analysis

    @checked(windows=COUNT, step=replace(COUNT, optional=True))
    def backtest(
        self,
        data: object = None,
        *,
        windows: int = 5,
        step: int | None = None,
        level: Sequence[float] = (80, 95),
        adaptive: bool = True,
        refit: bool = False,
    ) -> Backtest:
        """Forecast from the last `windows` origins, `step` rows apart (default: the horizon), and score the forecasts.

        data:  the rows, by default those of `fit`.
        refit: train anew for each origin, on the rows before it, instead of using this model throughout. Without it,
               an origin within the rows this model was trained on is refused.

        Intervals use the errors known at their origin, step by step, of windows after the training rows.
        """
        state = self._fitted()
        step = self.horizon if step is None else step
        levels = check_levels(level)
        table = self._table(data)
        if not refit:
            state.check_held_out(table)
        origins = check_origins(state, table, windows=windows, step=step, refit=refit)
        return backtest(state, table, origins, levels=levels, adaptive=adaptive, refit=refit)

    @checked()
    def relations(self, data: object = None, *, alpha: float = 0.01) -> Relations:
        """Return which channel leads which, the model's attention and its primers; over rows it was not trained on.

        data: the rows, by default those of `fit`. alpha: the probability of one false lead, see
        `primecast.analysis.relations`. Of an ensemble, the member of the largest weight with attention is shown.
        """
        return relations_of(self._fitted(), self._table(data), alpha=alpha)

    def leaderboard(self) -> Leaderboard:
        """Return weights, scaled errors (val: of the rows that chose the weights) and seconds of all members."""
        return leaderboard(self._fitted().facts)

    @checked()
    def sensor_ablation(self, data: object = None, *, hold: str = "mean") -> SensorAblation:
        """Return how much the error of each channel grows when a sensor fails; over rows it was not trained on.

        data: the rows, by default those of `fit`. hold: the value of a failed sensor, its "mean" or its "last" value.
        """
        return sensor_ablation_of(self._fitted(), self._table(data), hold=hold)

    def _table(self, data: object) -> CheckedFrame:
        return self.data_ if data is None else read_later(self._fitted(), data)[0]

    # ---------------------------------------------------------------- fitted attributes

    @property
    def model_(self) -> nn.Module:
        """The trained model."""
        return self._fitted().model

    @property
    def scaler_(self) -> Scaler:
        """Mean and standard deviation of each column in the training rows."""
        return self._fitted().scaler

    @property
    def roles_(self) -> Roles:
        """The columns by role."""
        return self._fitted().roles

    @property
    def season_(self) -> int:
        """Steps of the seasonal naive forecast."""
        return self._fitted().season

    @property
    def recent_(self) -> CheckedFrame:
        """The last look-back + horizon rows."""
        return self._fitted().recent

    @property
    def calibration_(self) -> Float32[np.ndarray, "m h n"]:
        """Errors, truth - forecast, of held-out windows, scaled, in time order: windows, steps, targets."""
        return self._fitted().calibration.errors

    @property
    def periods_(self) -> dict[str, tuple[str, str]]:
        """First and last row of train, val and test."""
        return self._fitted().periods

    @property
    def facts_(self) -> dict[str, Any]:
        """The content of the model card: data, model, scores, coverage, versions."""
        return self._fitted().facts

    @property
    def scores_(self) -> Scores:
        """Scores of the test rows, in scaled units; not saved."""
        return self._fitted().record.scores

    @property
    def naive_scores_(self) -> Scores:
        """Scores of the seasonal naive forecast of the test rows; not saved."""
        return self._fitted().record.naive_scores

    @property
    def history_(self) -> History:
        """The epochs of the training, of an ensemble those of its member of the largest weight; not saved."""
        return self._fitted().record.history

    @property
    def data_(self) -> CheckedFrame:
        """All rows of `fit`; not saved."""
        return self._fitted().record.data

    def _fitted(self, remedy: str = "call fit(df) or load(path) first") -> FittedState:
        """Return the fitted state, if the arguments are still those of `fit`."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this Forecaster has not been fitted: {remedy}")
        resolved = resolve(self.get_params())
        for name, value in vars(self.state_.arguments).items():
            shortened = name == "lookback" and self.lookback is None
            if name != "progress" and not shortened and resolved[name] != value:
                raise InputError(
                    f"this Forecaster was fitted with {name}={value!r} and has {name}={getattr(self, name)!r} now: fit "
                    "it again, or set it back"
                )
        return self.state_

    # ---------------------------------------------------------------- scikit-learn API

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments by name."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> "Forecaster":
        """Change arguments; all are checked before any is changed. A fitted Forecaster must then be fitted again."""
        for name in params:
            if name not in self.get_params():
                raise unknown("argument of Forecaster", name, self.get_params())
        Forecaster(**{**self.get_params(), **params})
        vars(self).update(params)
        return self

    def __repr__(self) -> str:
        defaults = {name: one.default for name, one in signature(type(self)).parameters.items()}
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name])
        return f"Forecaster({given})"

    def _repr_html_(self) -> str:
        return summarize(repr(self), self.facts_ if self.__sklearn_is_fitted__() else {})

    def __sklearn_is_fitted__(self) -> bool:
        return "state_" in vars(self)

    def _arguments(self) -> Arguments:
        return Arguments(**deepcopy(resolve(self.get_params())))

    # ---------------------------------------------------------------- files

    @checked()
    def save(self, path: Path | str) -> None:
        """Write config.json, model.safetensors and README.md into the folder `path`, all of them or none."""
        save_state(self._fitted("there is nothing to save"), Path(path))

    @classmethod
    @checked()
    def load(cls, path: Path | str) -> "Forecaster":
        """Return the fitted Forecaster of a folder that `save` wrote; every name, size and number is checked first."""
        state = load_state(Path(path))
        new = cls.__new__(cls)  # the arguments have been checked
        vars(new).update(deepcopy(vars(state.arguments)), state_=state)
        return new

    @checked()
    def push_to_hub(self, repo_id: str, *, private: bool = True) -> str:
        """Upload it to the Hugging Face Hub and return the address of the commit. Needs the extra `hub`."""
        with TemporaryDirectory() as folder:
            self.save(Path(folder) / "model")
            return push(Path(folder) / "model", repo_id, private=private)

    @classmethod
    @checked()
    def from_pretrained(cls, name: Path | str, *, revision: str | None = None) -> "Forecaster":
        """Load from a folder or, where there is none of this name, from the Hugging Face Hub (extra `hub`)."""
        return cls.load(locate(name, revision=revision))

    @checked()
    def export(self, path: Path | str) -> None:
        """Write the model as ONNX, see `primecast.forecasting.export`."""
        export_state(self._fitted("there is nothing to export"), path)
