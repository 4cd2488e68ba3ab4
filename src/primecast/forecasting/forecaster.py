"""Forecaster: a table of sensors in, the dated future of every channel in its own units out.

    table ─> open ─> validate ─> split 7:1:2 ─> fit ─> model ─> inverse scale ─> intervals ─> the same kind of table

It is the benchmark's own line (the same split, fit and evaluate) with a table at both ends. The first 70 % of the rows
train, the next 10 % say when to stop, the last 20 % score; `periods_` has their dates. What comes after the training
rows is held out: its errors make the intervals, its windows show the relations. A held-out window looks at what
`predict` would have seen at its origin, and no interval hears of an error before its truth was there (`Known`, `Past`).

Letters: t rows, m windows, l look-back, h horizon, n channels.
"""

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import nn

from primecast.analysis.relations import Relations, relate
from primecast.analysis.sensor_ablation import SensorAblation, ablate_sensors
from primecast.data.formats import to_numbers
from primecast.data.windows import Scaler, split
from primecast.errors import InputError, format_list, unknown
from primecast.forecasting.backtesting import Backtest, tabulate
from primecast.forecasting.hub import model_card, pull, push
from primecast.forecasting.intervals import check_levels, conformal_radius, radius, thinned
from primecast.forecasting.persistence import open_forecaster, save_forecaster
from primecast.frames.checked import (
    CheckedFrame,
    all_known,
    check_magnitude,
    check_overlap,
    check_step,
    checked,
    continued,
    in_step,
    index_of,
    row_length,
    rows_until,
    step_of,
)
from primecast.frames.future_covariates import read_future_covariates
from primecast.frames.layouts import Layout, open_table, reopen_table
from primecast.frames.point_in_time import HeldOutForecasts, PointInTimeValues, SeasonalNaiveWindows
from primecast.frames.read import POLICIES, ConstantChannelWarning, Index, dataset_from_frame, future_index
from primecast.frames.roles import Roles, RoleWindows, TargetsOnly, masked_loss, shifts
from primecast.frames.window_builder import WindowBuilder
from primecast.models import MODELS, attention_options, create_model, default_attention, reads_time_features
from primecast.models.naive import SeasonalNaive
from primecast.nn.losses import create_loss
from primecast.nn.primer import seeded
from primecast.storage.tensors import describe_tensor, load_weights
from primecast.training.device import PRECISIONS
from primecast.training.loop import History, Scores, evaluate, fit
from primecast.training.optimizer import SCHEDULES
from primecast.training.progress import PROGRESS

LOOKED_AT = 256
"""Held-out windows that relations and sensor_ablation are averaged over, at most."""


_CHOICES: dict[str, Mapping[str, object] | Sequence[str]] = {
    "schedule": SCHEDULES,
    "precision": PRECISIONS,
    "progress": PROGRESS,
    "missing": POLICIES,
}


class NotFittedError(ValueError, AttributeError):
    """A forecast was asked for before `fit`."""


class Forecaster:
    """Forecast all channels of a regular time series together.

    horizon:   steps to forecast. lookback: steps to look at.
    model, attention: names as in `primecast list`; attention None is prime-table where the model can be primed.
    model_args: arguments of the model, as `create_model` takes them.
    past:      names of columns that are looked at but not forecast, such as a controller's output.
    future:    names of columns that are known beforehand, such as a holiday; `predict` is given their future.
    loss, lr, batch_size, epochs, patience, schedule, seed: of the training, see `fit`.
    device, precision: what it is trained on and with, see `fit`; forecasts are made on the CPU in float32.
    missing:   what to do with missing values: "error", "interpolate", "ffill" or "mask", see POLICIES.
    season:    steps of the seasonal-naive forecast it is compared with, which may be more than the look-back; from the
               dates when None.
    refit:     train once more, on all rows and for as many epochs as were best, before forecasting. Scores and
               intervals stay those of the model that had not seen the held-out rows. It doubles the time.

    All arguments can be written as JSON and are checked at once.

    After `fit`: `scores_` and `naive_scores_` (on the last fifth of the rows, which training has not seen, in scaled
    units), `periods_`, `model_`, `history_`, `scaler_`.

    Example:

        f = Forecaster(horizon=24, lookback=96).fit(df)      # df: DatetimeIndex x channels
        f.predict()                                          # the next 24 rows, same columns, same units
        f.predict(newer, level=[80, 95])                     # from newer rows, with lo and hi columns
    """

    # What `fit` and `load` leave behind.
    model_: nn.Module
    scaler_: Scaler
    roles_: Roles
    layout_: Layout
    columns_: list[str]  # as they came
    recent_: CheckedFrame  # the last look-back + horizon rows
    constant_: Bool[np.ndarray, "n"]
    season_: int
    naive_mae_: Float64[np.ndarray, "n"]  # of the seasonal naive forecast on the training rows, in original units
    calibration_: Float32[np.ndarray, "m h n"]  # errors on held-out windows, scaled, in time order
    stride_: int  # rows between those windows
    rows_: int  # rows since the last of those windows of `fit` ended
    periods_: dict[str, tuple[str, str]]  # first and last row of train, val and test
    scores_: Scores
    naive_scores_: Scores
    history_: History
    data_: CheckedFrame  # all rows of `fit`; not saved
    facts_: dict[str, Any]  # what the model card tells
    fitted_: dict[str, Any]  # the arguments it was fitted with

    def __init__(
        self,
        *,
        horizon: int,
        lookback: int = 96,
        model: str = "itransformer",
        attention: str | None = None,
        model_args: Mapping[str, Any] | None = None,
        past: Sequence[str] | None = None,
        future: Sequence[str] | None = None,
        loss: str = "mse",
        lr: float = 5e-4,
        batch_size: int = 32,
        epochs: int = 10,
        patience: int = 3,
        schedule: str = "halving",
        seed: int = 0,
        device: str = "cpu",
        precision: str = "float32",
        missing: str = "error",
        season: int | None = None,
        refit: bool = False,
        progress: str = "auto",
    ) -> None:
        # Stored as they come: that is what makes clones equal. What they come to is worked out where it is needed.
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
        self._check()
        if future and not reads_time_features(model, model_args):
            raise InputError(f"model {model!r} looks at no time features, so it cannot use future covariates")

    def _check(self) -> None:
        """Everything that can be wrong with the arguments is wrong now, not after an hour of training."""
        for name in ("horizon", "lookback", "batch_size", "epochs", "patience"):
            _check_count(name, getattr(self, name))
        _check_count("seed", self.seed, least=0)
        if self.season is not None:
            _check_count("season", self.season)
        if not (_is_number(self.lr) and self.lr > 0 and math.isfinite(self.lr)):
            raise InputError(f"lr is {self.lr!r}; it must be a finite number above 0")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown("policy for missing values" if name == "missing" else name, getattr(self, name), allowed)
        for name in ("past", "future"):
            names = getattr(self, name)
            if names is not None and (isinstance(names, str) or not all(isinstance(one, str) for one in names)):
                raise InputError(f"{name} is {names!r}; it must be a list of names of columns")
        twice = set(self.past or ()) & set(self.future or ())
        if twice:
            raise InputError(f"these covariates are given as past and as future: {format_list(sorted(twice))}")
        try:
            json.dumps(self.get_params(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"the arguments of a Forecaster must be such as JSON can hold: {error}") from error
        create_loss(self.loss)
        self._outline(channels=2, n_time_features=2)

    def _build(self, *, channels: int, n_time_features: int) -> nn.Module:
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        attention = self.attention or default_attention(self.model)
        options = {
            **attention_options(self.model, attention),
            "n_time_features": n_time_features,
            **dict(self.model_args or {}),
        }
        if isinstance(options.get("primer"), Mapping):
            options["primer"] = seeded(options["primer"], self.seed)
        return create_model(
            self.model, lookback=self.lookback, horizon=self.horizon, channels=channels, seed=self.seed, **options
        )

    def _outline(self, *, channels: int, n_time_features: int) -> dict[str, str]:
        """Names and kinds of the model's tensors, without allocating them where the model allows it."""
        try:
            with torch.device("meta"):
                model = self._build(channels=channels, n_time_features=n_time_features)
        except NotImplementedError:  # gat draws its graph while it is built
            model = self._build(channels=channels, n_time_features=n_time_features)
        return {name: describe_tensor(tensor) for name, tensor in model.state_dict().items()}

    # ---------------------------------------------------------------- training

    def fit(
        self, data: object, *, id: str | None = None, time: str | None = None, value: str | None = None
    ) -> "Forecaster":
        """Train on the first 70 % of the rows, stop by the next 10 %, score on the last 20 %.

        data: a wide frame (DatetimeIndex or counting index × channels), a long one, the path of a CSV or Parquet file,
        an array (rows, channels). id, time, value: names of columns, see `primecast.frames.layouts.open_table`.
        """
        self._check()
        wide, layout = open_table(data, id=id, time=time, value=value)
        table = checked(wide, self.missing)
        columns = [str(name) for name in table.frame.columns]
        roles = Roles.of(columns, past=self.past or (), future=self.future or ())
        table = table.of(roles)
        dataset = dataset_from_frame(table.frame, season=self.season)
        with np.errstate(over="ignore", invalid="ignore"):  # `check_magnitude` says whose
            splits = split(dataset, lookback=self.lookback, horizon=self.horizon)
        check_magnitude(table, splits.scaler)
        trained, tested = len(splits.train.series), splits.test.rows.start + self.lookback
        unknown_yet = [name for place, name in enumerate(roles.columns) if table.gaps[:trained, place].all()]
        if unknown_yet:
            raise InputError(
                f"these channels have no value in the {trained} rows that train: {format_list(unknown_yet)}; drop them"
            )
        if dataset.season >= trained:
            raise InputError(f"season is {dataset.season}; it must be less than the {trained} rows that train")

        # All of it happens to a copy: this one stays as it was until everything has worked.
        new = Forecaster(**self.get_params())
        new.fitted_ = deepcopy(self.get_params())
        new.roles_, new.layout_, new.columns_ = roles, layout, columns
        known = PointInTimeValues.of(table)
        seen = known.frame_as_of(table, trained)  # a gap over the border is not bridged from beyond it
        new.scaler_ = Scaler.fit(seen.frame.to_numpy())
        train = new._view.windows(seen, range(trained))
        val = new._view.held_out(table, range(trained - self.lookback, tested)).complete()
        test = new._view.held_out(table, range(tested - self.lookback, len(table))).complete()
        new.model_ = new._build(channels=train.channels, n_time_features=train.n_time_features)
        new.history_ = new._train(new.model_, train, val, epochs=self.epochs)
        new.scores_ = _of_targets(evaluate(_scored(new.model_, roles), test, batch_size=self.batch_size), roles)
        new.season_ = dataset.season
        ago = SeasonalNaiveWindows(test, known.scaled(new.scaler_), season=new.season_)
        naive = SeasonalNaive(lookback=ago.lookback, horizon=self.horizon, season=ago.lookback)
        new.naive_scores_ = _of_targets(evaluate(_scored(naive, roles), ago), roles)
        new.naive_mae_ = _naive_mae(table.truth[:trained, : len(roles.targets)], new.season_)
        new.constant_ = (table.frame.max() == table.frame.min()).to_numpy()[: len(roles.targets)]
        new.periods_ = {
            name: (str(table.frame.index[first]), str(table.frame.index[after - 1]))
            for name, first, after in (("train", 0, trained), ("val", trained, tested), ("test", tested, len(table)))
        }
        past = new._past(table, range(trained, len(table)))
        new.calibration_, new.stride_ = past.errors(len(table)), past.stride or 1
        new.rows_ = len(table) - int(past.ends[-1])
        if self.refit:
            new.model_ = new._build(channels=train.channels, n_time_features=train.n_time_features)
            everything = new._view.windows(table, range(len(table)))
            new._train(new.model_, everything, val, epochs=new.history_.best_epoch)
        new.data_ = table
        new.facts_ = new._facts(table, val_errors=past.ends <= tested)
        new.recent_ = table.last(self.lookback + self.horizon)
        vars(self).update(vars(new))
        return self

    def _train(self, model: nn.Module, train: RoleWindows, val: RoleWindows, *, epochs: int) -> History:
        loss = create_loss(self.loss)
        masked = train.gaps is not None or train.targets < train.channels
        history = fit(
            _scored(model, self.roles_),
            train,
            val,
            loss=masked_loss(loss) if masked else loss,
            lr=self.lr,
            batch_size=self.batch_size,
            epochs=epochs,
            patience=min(self.patience, epochs),
            schedule=self.schedule,
            seed=self.seed,
            progress=self.progress,
            device=self.device,
            precision=self.precision,
        )
        model.cpu()
        return history

    @property
    def _view(self) -> WindowBuilder:
        return WindowBuilder(self.scaler_, self.roles_, self.lookback, self.horizon, self.missing)

    def _past(self, table: CheckedFrame, rows: range) -> HeldOutForecasts:
        """The forecasts from these rows on of which a truth can be had, some of them."""
        origins = self._view.origins(table, rows)
        return self._forecasts(table, origins[thinned(len(origins), cells=self.horizon * len(self.roles_.targets))])

    def _forecasts(self, table: CheckedFrame, origins: Int64[np.ndarray, "m"]) -> HeldOutForecasts:
        return self._view.past(self.model_, table, origins, batch_size=self.batch_size)

    # ---------------------------------------------------------------- forecasting

    def predict(
        self,
        data: object = None,
        *,
        level: Sequence[float] = (),
        future: object = None,
        adaptive: bool = False,
    ) -> Any:
        """The next `horizon` rows after the last row of `data` (after the rows known so far when None), in its units.

        level:    per cent of each interval, [80, 95]: columns "<channel>-lo-80" and "<channel>-hi-80".
        future:   a table with the future values of the covariates that are known beforehand; where it has none, their
                  last value is used, with an UnknownFutureWarning.
        adaptive: intervals that follow the errors of late, see `update`, instead of all held-out ones alike.

        The answer is the same kind of table as `data`, or as the one of `fit`; see `Layout.render`.
        """
        self._check_fitted("call fit(df) or load(path) first")
        levels = check_levels(level)
        table, layout = (self.recent_, self.layout_) if data is None else self._read(data)
        if len(table) < self.lookback:
            raise InputError(f"a forecast looks at {self.lookback} rows, the frame has {len(table)}")
        seen, still = table.last(self.lookback), self._still(table)
        ahead = future_index(index_of(seen.frame), self.horizon)
        names = self.roles_.future
        covariates = read_future_covariates(future, names, table=seen, ahead=ahead, layout=self.layout_)
        point = self._forecast(seen, ahead, covariates, still=still)
        late = self._begun(table) if adaptive and levels else None
        radii = {
            one: self._radius(one, self.calibration_, adaptive=adaptive, stride=self.stride_, late=late, still=still)
            for one in levels
        }
        bounds = {}
        for sign, side, order in ((-1, "lo", levels[::-1]), (1, "hi", levels)):
            for one in order:
                moved = point.to_numpy() + sign * radii[one]
                bounds[f"{side}-{one:g}"] = pd.DataFrame(moved, index=ahead, columns=point.columns)
        return layout.render(point, bounds)

    def _forecast(
        self, table: CheckedFrame, ahead: Index, known: Float64[np.ndarray, "h c"], *, still: Bool[np.ndarray, "n"]
    ) -> pd.DataFrame:
        """The forecast of the targets after the last row of the table, in original units and the order they came in."""
        forecast = self._view.forecast(self.model_, table, ahead, known)
        forecast[:, still] = table.frame.to_numpy()[-1, : len(self.roles_.targets)][still]
        return pd.DataFrame(forecast, index=ahead, columns=list(self.roles_.targets))

    def _still(self, table: CheckedFrame) -> Bool[np.ndarray, "n"]:
        """Which targets were constant in `fit` and are what they were in all of these rows."""
        targets = len(self.roles_.targets)
        still = (table.frame.to_numpy()[:, :targets] == self.scaler_.mean[:targets]).all(axis=0)
        return np.asarray(self.constant_ & still)

    def _radius(
        self,
        level: float,
        errors: Float32[np.ndarray, "m h n"],
        *,
        adaptive: bool,
        stride: int,
        late: Float32[np.ndarray, "k h n"] | None,
        still: Bool[np.ndarray, "n"],
    ) -> Float64[np.ndarray, "h n"]:
        """Half the width of an interval, in original units."""
        spread = self.scaler_.std[: errors.shape[-1]]
        scaled = radius(errors, level, adaptive=adaptive, stride=stride, late=late).astype(np.float64)
        return np.where(still, 0.0, scaled * spread)

    def _begun(self, table: CheckedFrame) -> Float32[np.ndarray, "k h n"] | None:
        """Errors so far of the windows that have begun and not ended at the last of these rows; None without any."""
        now, first = len(table), self._first_origin(table)
        origins = np.arange(now - self.horizon + self.stride_, now - self.stride_ + 1, self.stride_)
        origins = origins[origins >= first]
        return self._forecasts(table, origins).errors(now) if len(origins) else None

    def update(self, data: object) -> "Forecaster":
        """Newer rows have come: forecasts start from them, and intervals learn from the errors made on them.

        The model stays as it is. `data` may be a single row, and may overlap what is known; its first new row must be
        the next one. All rows of an array are new, since they carry no numbers.
        """
        self._check_fitted("call fit(df) or load(path) first")
        before = self.recent_
        new = self._newer(data)
        if not len(new):
            return self
        joined = self._joined(new)
        # One more window ends with every new row; those that keep to the stride of the others are kept.
        first = max(self._first_origin(joined), len(before) + 1 - self.horizon)
        past = self._forecasts(joined, self._view.origins(joined, range(first, len(joined))))
        kept = (self.rows_ + past.ends - len(before)) % self.stride_ == 0
        most = max(len(self.calibration_), 1)
        self.calibration_ = np.concatenate([self.calibration_, past.errors(len(joined))[kept]])[-most:]
        self.constant_ = self._still(joined)
        self.rows_ += len(new)
        self.recent_ = joined.last(self.lookback + self.horizon)
        return self

    def _newer(self, data: object) -> pd.DataFrame:
        """The rows of a table that come after those known, as they came."""
        wide, _ = self._open(data)
        own = index_of(self.recent_.frame)
        if wide.index.hasnans:
            raise InputError(f"{np.count_nonzero(wide.index.isna())} time stamps are missing (NaT); drop those rows")
        if isinstance(data, np.ndarray) and len(wide):
            wide = wide.set_axis(future_index(own, len(wide)), axis="index")
        new = wide[wide.index > own[-1]]
        if isinstance(own, pd.RangeIndex) and len(new) < len(wide):
            check_overlap(wide, self.recent_)
        if not len(new):
            return new
        expected = future_index(own, len(new))
        wrong = np.flatnonzero(new.index != expected)
        if len(wrong):
            raise InputError(
                f"the next row is that of {expected[wrong[0]]}, but the newer rows "
                f"{'go on with' if wrong[0] else 'begin at'} {new.index[wrong[0]]}"
            )
        return pd.DataFrame(to_numbers(new), index=new.index, columns=new.columns)

    def _joined(self, new: pd.DataFrame) -> CheckedFrame:
        """The rows known so far and these after them, checked and filled together."""
        before = self.recent_
        given = before.truth
        given[0] = before.frame.iloc[0]  # a gap that reaches back beyond these rows goes on from what was there
        values = np.concatenate([given, new[list(self.roles_.columns)].to_numpy()])
        index = continued(index_of(before.frame), len(values))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstantChannelWarning)
            joined = checked(pd.DataFrame(values, index=index, columns=before.frame.columns), self.missing)
        check_magnitude(joined, self.scaler_)
        return CheckedFrame(joined.frame, np.concatenate([before.gaps[:1], joined.gaps[1:]]))

    def _open(self, data: object) -> tuple[pd.DataFrame, Layout]:
        """A table given later: of the same channels and the same kind of rows as the one of `fit`, not yet checked."""
        wide, layout = reopen_table(data, self.layout_)
        wide = wide.rename(columns=str)
        if sorted(wide.columns) != sorted(self.columns_):
            raise InputError(
                f"this Forecaster was fitted on channels {format_list(self.columns_)}, the frame has {format_list(wide.columns)}"
            )
        return in_step(wide[self.columns_], index_of(self.recent_.frame)), layout

    def _read(self, data: object) -> tuple[CheckedFrame, Layout]:
        """A table given later, checked."""
        wide, layout = self._open(data)
        with warnings.catch_warnings():  # a channel may well stand still in a short recent frame
            warnings.simplefilter("ignore", ConstantChannelWarning)
            table = checked(wide, self.missing).of(self.roles_)
        check_step(table.frame.index, index_of(self.recent_.frame))
        check_magnitude(table, self.scaler_)
        return table, layout

    # ---------------------------------------------------------------- looking back, looking inside

    def backtest(
        self,
        data: object = None,
        *,
        windows: int = 5,
        step: int | None = None,
        level: Sequence[float] = (80, 95),
        adaptive: bool = False,
        refit: bool = False,
    ) -> Backtest:
        """Forecast from the last `windows` origins, `step` rows apart (the horizon when None), and see what happened.

        data:  the rows; those of `fit` when None.
        refit: train anew for each origin, on the rows before it, instead of using this model throughout. Without it,
               an origin within the rows this model was trained on is refused.

        Intervals are made of errors known at their origin: those of windows after the training rows that had ended.
        """
        self._check_fitted("call fit(df) or load(path) first")
        _check_count("windows", windows)
        step = self.horizon if step is None else step
        _check_count("step", step)
        levels = check_levels(level)
        table = self._table(data) if refit else self._rows(data)
        index = index_of(table.frame)
        last = len(table) - self.horizon
        origins = [last - step * back for back in reversed(range(windows))]
        if origins[0] < self.lookback:
            raise InputError(
                f"{windows} windows {step} rows apart, with look-back {self.lookback} and horizon {self.horizon}, need "
                f"{self.lookback + step * (windows - 1) + self.horizon} rows; there are {len(table)}"
            )
        if not refit and origins[0] < self._first_held_out(table):
            raise InputError(
                f"the first of {windows} windows begins at {index[origins[0]]}, but {self._not_held_out(table)}; take "
                "fewer windows, or refit=True"
            )
        return self._backtest(table, origins, levels=levels, adaptive=adaptive, refit=refit)

    def _backtest(
        self, table: CheckedFrame, origins: list[int], *, levels: list[float], adaptive: bool, refit: bool
    ) -> Backtest:
        index, targets, known = index_of(table.frame), len(self.roles_.targets), PointInTimeValues.of(table)
        earlier, last = self._earlier(table), origins[-1] + (self.horizon if adaptive else 0)
        past = None if refit else self._past(table, range(self._first_held_out(table), last))
        forecasts, naives, radii = [], [], {level: [] for level in levels}  # type: ignore[var-annotated]
        for origin in origins:
            one = self._refitted(table, origin) if refit else self
            before = known.frame_as_of(table, origin)
            seen, still = before.last(self.lookback), one._still(before)
            covariates = known.as_of(np.arange(origin, origin + self.horizon), origin)[:, len(self.roles_.channels) :]
            ahead = future_index(index_of(seen.frame), self.horizon)
            forecasts.append(one._forecast(seen, ahead, covariates, still=still).to_numpy())
            ago = origin - self.season_ + np.arange(self.horizon) % self.season_
            repeated = known.as_of(ago.clip(0), origin)[:, :targets]
            naives.append(repeated if origin >= self.season_ else np.full_like(repeated, np.nan))
            if past is None:
                errors, late, stride = one.calibration_, one._begun(one.recent_) if adaptive else None, one.stride_
            else:
                stride = min(past.stride or self.stride_, self.stride_ if len(earlier) else len(table))
                told, begun = past.errors(origin), past.ends > origin
                errors = np.concatenate([earlier, told[~begun]])
                late = told[begun & (past.origins <= origin - stride)]
            for level in levels:
                radii[level].append(
                    one._radius(level, errors, adaptive=adaptive, stride=stride, late=late, still=still)
                )
        return tabulate(
            channels=self.roles_.targets,
            cutoffs=[index[origin - 1] for origin in origins],
            times=[index[origin : origin + self.horizon] for origin in origins],
            truth=np.stack([table.truth[origin : origin + self.horizon, :targets] for origin in origins]),
            forecast=np.stack(forecasts),
            naive=np.stack(naives),
            naive_mae=self.naive_mae_,
            radii={level: np.stack(each) for level, each in radii.items()},
        )

    def _refitted(self, table: CheckedFrame, origin: int) -> "Forecaster":
        return Forecaster(**self.get_params()).fit(table.as_given(self.columns_, until=origin))

    def _earlier(self, table: CheckedFrame) -> Float32[np.ndarray, "m h n"]:
        """The errors of before these rows: all that `fit` and `update` left, if they were known at the first origin."""
        known = int((table.frame.index <= self.recent_.frame.index[-1]).sum())
        return self.calibration_[: len(self.calibration_) if known <= self._first_held_out(table) else 0]

    def relations(self, data: object = None, *, alpha: float = 0.01) -> Relations:
        """Who leads whom, at whom the model looks, and how it filters each pair; over rows it was not trained on.

        data: the rows, those of `fit` when None. alpha: how likely one false lead may be, see `primecast.analysis.relations`.
        """
        self._check_fitted("call fit(df) or load(path) first")
        table = self._rows(data)
        first = self._first_held_out(table) - self.lookback
        windows = self._view.held_out(table, range(first, len(table)))
        return relate(
            self.model_,
            self._some(windows),
            windows.base.series[max(0, self._trained(table) - first) :],
            names=self.roles_.channels,
            lookback=self.lookback,
            season=self.season_,
            step=row_length(index_of(table.frame)),
            alpha=alpha,
            seed=self.seed,
        )

    def sensor_ablation(self, data: object = None, *, hold: str = "mean") -> SensorAblation:
        """By how much the error of each channel grows when a sensor is lost; over rows it was not trained on.

        data: the rows, those of `fit` when None. hold: what a lost sensor reads, its "mean" or the "last" value.
        """
        self._check_fitted("call fit(df) or load(path) first")
        table = self._rows(data)
        first = self._first_held_out(table) - self.lookback
        windows = self._view.held_out(table, range(first, len(table))).complete()
        return ablate_sensors(
            self.model_, self._some(windows), names=self.roles_.channels, targets=len(self.roles_.targets), hold=hold
        )

    def _some(self, windows: RoleWindows) -> RoleWindows:
        """Evenly spaced ones, fewer where there are many channels."""
        most = max(32, min(LOOKED_AT, 64 * LOOKED_AT // windows.channels))
        return windows.only(thinned(len(windows), cells=1, most=most))

    def _table(self, data: object) -> CheckedFrame:
        if data is not None:
            return self._read(data)[0]
        if not hasattr(self, "data_"):
            raise InputError("a saved Forecaster does not carry the rows it was fitted on: give them as `data`")
        return self.data_

    def _rows(self, data: object) -> CheckedFrame:
        """A table of whose rows some can be forecast that the model was not trained on."""
        table = self._table(data)
        if len(table) - self._first_held_out(table) < self.horizon:
            raise InputError(
                f"{self._not_held_out(table)}; of later ones at least {self.horizon} are needed, and a look-back "
                "before them"
            )
        return table

    def _first_origin(self, table: CheckedFrame) -> int:
        """The first row that can be forecast by a model that was not trained on it."""
        return max(self.lookback, self._trained(table))

    def _first_held_out(self, table: CheckedFrame) -> int:
        """The same of a whole table: `predict` refuses rows in which some channel has had no value yet."""
        return max(self._first_origin(table), all_known(table))

    def _not_held_out(self, table: CheckedFrame) -> str:
        if self._first_held_out(table) > self._first_origin(table):
            return f"some channel has no value before {table.frame.index[all_known(table) - 1]}"
        return f"rows until {self.periods_[self._last_trained][1]} were trained on"

    @property
    def _last_trained(self) -> str:
        """The last period that the model was trained on; with `refit` that is all of them."""
        return "test" if self.refit else "train"

    def _trained(self, table: CheckedFrame) -> int:
        """How many rows of the table the model may have been trained on: those until its last training row."""
        return rows_until(table.frame.index, self.periods_[self._last_trained][1])

    def _facts(self, table: CheckedFrame, *, val_errors: Bool[np.ndarray, "m"]) -> dict[str, Any]:
        """What the model card tells; all of it can be written as JSON."""
        before, after = self.calibration_[val_errors], self.calibration_[~val_errors]
        coverage: dict[str, float | None] = {}
        for level in (80, 90):
            enough = len(before) >= level / (100 - level) and len(after) > 0
            coverage[str(level)] = float((after <= conformal_radius(before, level)).mean()) if enough else None
        roles = self.roles_
        return {
            "data": {
                "targets": list(roles.targets),
                "past": list(roles.past),
                "future": list(roles.future),
                "step": step_of(table.frame.index),
                "missing": self.missing,
                "periods": {name: list(ends) for name, ends in self.periods_.items()},
                "season": self.season_,
            },
            "model": {
                "name": self.model,
                "attention": self.attention or default_attention(self.model),
                "parameters": sum(p.numel() for p in self.model_.parameters()),
                "lookback": self.lookback,
                "horizon": self.horizon,
            },
            "scores": {
                "windows": self.scores_.windows,
                "mse": self.scores_.mse,
                "mae": self.scores_.mae,
                "naive_mse": self.naive_scores_.mse,
                "naive_mae": self.naive_scores_.mae,
            },
            "coverage": coverage,
            "calibration": len(self.calibration_),
            "versions": {name: version(name) for name in ("primecast", "torch", "numpy", "pandas")},
        }

    # ---------------------------------------------------------------- manners

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with, as scikit-learn names them."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> "Forecaster":
        """Change arguments; all are checked before any is changed. What was fitted with others wants a new `fit`."""
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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self, way_out: str) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this Forecaster has not been fitted: {way_out}")
        for name, value in self.fitted_.items():
            if name != "progress" and getattr(self, name) != value:
                raise InputError(
                    f"this Forecaster was fitted with {name}={value!r} and has {name}={getattr(self, name)!r} now: fit "
                    "it again, or set it back"
                )

    # ---------------------------------------------------------------- files

    def save(self, path: Path | str) -> None:
        """Write config.json, model.safetensors and README.md into the folder `path`, all of them or none."""
        self._check_fitted("there is nothing to save")
        recent = self.recent_
        save_forecaster(
            Path(path),
            params=self.get_params(),
            model=self.model_,
            index=index_of(recent.frame),
            fields={
                "columns": self.columns_,
                "layout": asdict(self.layout_),
                "time_features": self._n_time_features(recent.frame.index),
                "season": self.season_,
                "stride": self.stride_,
                "rows": self.rows_,
                "periods": {name: list(ends) for name, ends in self.periods_.items()},
                "facts": self.facts_,
            },
            arrays={
                "scaler.mean": self.scaler_.mean,
                "scaler.std": self.scaler_.std,
                "recent.values": recent.frame.to_numpy(),
                "recent.gaps": recent.gaps,
                "constant": self.constant_,
                "naive_mae": self.naive_mae_,
                "calibration": self.calibration_,
            },
            card=model_card(self.facts_),
        )

    def _n_time_features(self, index: pd.Index) -> int:
        own = 4 if isinstance(index, pd.DatetimeIndex) else 0
        return own + len(shifts(lookback=self.lookback, horizon=self.horizon)) * len(self.future or ())

    @classmethod
    def load(cls, path: Path | str) -> "Forecaster":
        """A fitted Forecaster from the folder that `save` wrote; every name, size and number is checked first."""
        saved = open_forecaster(Path(path), arguments=set(signature(cls).parameters))
        with saved.reraise_for():
            new = cls.__new__(cls)  # without the constructor, which may build a model: first all sizes are checked
            vars(new).update(saved.params)
            new._check()
            new.fitted_ = deepcopy(saved.params)
            new.columns_ = saved.fields["columns"]
            roles = new.roles_ = Roles.of(new.columns_, past=new.past or (), future=new.future or ())
            new.layout_ = Layout(**saved.fields["layout"])
            n_time_features = new._n_time_features(saved.index)
            if n_time_features != saved.fields["time_features"]:
                raise InputError(
                    f"it says {saved.fields['time_features']} time_features, where its other fields come to {n_time_features}"
                )
            n, k, rows = len(roles.columns), len(roles.targets), len(saved.index)
            weights, arrays = saved.tensors(
                new._outline(channels=len(roles.channels), n_time_features=n_time_features),
                {
                    "scaler.mean": f"float64[{n}]",
                    "scaler.std": f"float64[{n}]",
                    "recent.values": f"float64[{rows}, {n}]",
                    "recent.gaps": f"bool[{rows}, {n}]",
                    "constant": f"bool[{k}]",
                    "naive_mae": f"float64[{k}]",
                    "calibration": f"float32[{saved.windows}, {new.horizon}, {k}]",
                },
            )
            if rows < new.lookback or not (arrays["scaler.std"] > 0).all():
                raise InputError("its rows are fewer than the look-back, or a deviation of its scaler is not above 0")
            new.model_ = new._build(channels=len(roles.channels), n_time_features=n_time_features)
            load_weights(new.model_, weights, source=str(path))
            new.scaler_ = Scaler(mean=arrays["scaler.mean"], std=arrays["scaler.std"])
            frame = pd.DataFrame(arrays["recent.values"], index=saved.index, columns=list(roles.columns))
            new.recent_ = CheckedFrame(frame, arrays["recent.gaps"])
            new.constant_, new.naive_mae_ = arrays["constant"], arrays["naive_mae"]
            new.calibration_ = arrays["calibration"]
            new.season_, new.stride_, new.rows_ = (saved.fields[name] for name in ("season", "stride", "rows"))
            new.periods_ = {name: (str(first), str(last)) for name, (first, last) in saved.fields["periods"].items()}
            new.facts_ = saved.fields["facts"]
        new.model_.eval()
        return new

    def push_to_hub(self, repo_id: str, *, private: bool = True) -> str:
        """Save it and upload it to the Hugging Face Hub; returns the address of the commit. Needs the extra `hub`."""
        with TemporaryDirectory() as folder:
            self.save(Path(folder) / "model")
            return push(Path(folder) / "model", repo_id, private=private)

    @classmethod
    def from_pretrained(cls, name: Path | str, *, revision: str | None = None) -> "Forecaster":
        """`load` from a folder, or, where there is none of this name, from the Hugging Face Hub (extra `hub`)."""
        return cls.load(name if Path(name).is_dir() else pull(str(name), revision=revision))

    def export(self, path: Path | str) -> None:
        """Write the model as ONNX, see `primecast.forecasting.export`."""
        self._check_fitted("there is nothing to export")
        import_module("primecast.forecasting.export").export_forecaster(self, path)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _check_count(name: str, value: object, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} is {value!r}; it must be a whole number of at least {least}")


# ---------------------------------------------------------------- scores


def _scored(model: nn.Module, roles: Roles) -> nn.Module:
    return TargetsOnly(model, len(roles.targets)) if roles.past else model


def _of_targets(scores: Scores, roles: Roles) -> Scores:
    """The same scores over the targets alone: the other channels had no error, and counted as cells."""
    if not roles.past:
        return scores
    share = len(roles.targets) / len(roles.channels)
    return replace(
        scores,
        channel_mse=scores.channel_mse[: len(roles.targets)],
        channel_mae=scores.channel_mae[: len(roles.targets)],
        **{
            name: getattr(scores, name) / share
            for name in ("mse", "mae", "step_mse", "step_mae", "window_mse", "window_mae")
        },
    )


def _naive_mae(values: Float64[np.ndarray, "t n"], season: int) -> Float64[np.ndarray, "n"]:
    """Mean |y(t) - y(t - season)| of what is known; 0 where nothing is."""
    differences = np.abs(values[season:] - values[:-season])
    known = ~np.isnan(differences)
    return np.where(known, differences, 0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
