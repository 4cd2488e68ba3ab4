"""Forecaster: a frame of sensors in, the dated future of every channel in its own units out.

    frame ─> validate ─> split 7:1:2 ─> fit ─> model ─> inverse scale ─> frame with the next dates

It is the benchmark's own line (the same split, fit and evaluate) with a DataFrame at both ends.
"""

import warnings
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from primecast.data.frames import ConstantChannelWarning, dataset_from_frame, future_index, validate
from primecast.data.windows import Scaler, split, time_features
from primecast.errors import InputError, unknown
from primecast.files import load_tensors, load_weights, read_json, save_tensors, write_json
from primecast.losses import create_loss
from primecast.models import MODELS, attention_options, create_model
from primecast.models.naive import SeasonalNaive
from primecast.training import History, Scores, evaluate, fit


class NotFittedError(ValueError, AttributeError):
    """A forecast was asked for before `fit`."""


class Forecaster:
    """Forecast all channels of a regular time series together.

    horizon:   steps to forecast. lookback: steps to look at.
    model, attention: names as in `primecast list`; attention None is prime where the model can be primed.
    model_args: arguments of the model, as `create_model` takes them.
    loss, lr, batch_size, epochs, patience, schedule, seed: of the training, see `fit`.
    missing:   what to do with missing values: "error", "interpolate" or "ffill".
    season:    steps of the seasonal-naive forecast it is compared with; from the dates when None.

    After `fit`: `model_`, `history_`, `scores_` and `naive_scores_` (on the last fifth of the rows, which training has
    not seen, in scaled units), `scaler_`, `frame_`.

    Example:

        f = Forecaster(horizon=24, lookback=96).fit(df)      # df: DatetimeIndex x channels
        f.predict()                                          # the next 24 rows, same columns, same units
    """

    def __init__(
        self,
        *,
        horizon: int,
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
        missing: str = "error",
        season: int | None = None,
        progress: str = "auto",
    ) -> None:
        if model not in MODELS:
            raise unknown("model", model, MODELS)
        attention = attention or ("prime" if MODELS[model].primable else "standard")
        self.horizon = horizon
        self.lookback = lookback
        self.model = model
        self.attention = attention
        self.model_args = dict(model_args or {})
        self.loss = loss
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.schedule = schedule
        self.seed = seed
        self.missing = missing
        self.season = season
        self.progress = progress
        # Everything that can be wrong with the arguments is wrong now, not after an hour of training.
        create_loss(loss)
        self._build(channels=2, marks=0)

    def _build(self, *, channels: int, marks: int) -> nn.Module:
        options = {**attention_options(self.model, self.attention), "marks": marks, **self.model_args}
        return create_model(
            self.model, lookback=self.lookback, horizon=self.horizon, channels=channels, seed=self.seed, **options
        )

    def fit(self, df: pd.DataFrame) -> "Forecaster":
        """Train on the first 70 % of the rows, stop by the next 10 %, score on the last 20 %."""
        frame = validate(df, missing=self.missing)
        dataset = dataset_from_frame(frame, season=self.season)
        splits = split(dataset, lookback=self.lookback, horizon=self.horizon)
        model = self._build(channels=splits.train.channels, marks=splits.train.mark_count)
        self.history_: History = fit(
            model,
            splits.train,
            splits.val,
            loss=create_loss(self.loss),
            lr=self.lr,
            batch_size=self.batch_size,
            epochs=self.epochs,
            patience=self.patience,
            schedule=self.schedule,
            seed=self.seed,
            progress=self.progress,
        )
        self.model_: nn.Module = model
        self.scaler_: Scaler = splits.scaler
        self.frame_: pd.DataFrame = frame.iloc[-self.lookback :]
        self.constant_: np.ndarray = (frame.max() == frame.min()).to_numpy()
        self.scores_: Scores = evaluate(model, splits.test)
        season = min(dataset.season, self.lookback)
        naive = SeasonalNaive(lookback=self.lookback, horizon=self.horizon, season=season)
        self.naive_scores_: Scores = evaluate(naive, splits.test)
        return self

    def predict(self, df: pd.DataFrame | None = None) -> pd.DataFrame:
        """The next `horizon` rows after the last row of `df` (after the rows of `fit` when None), in original units."""
        if not hasattr(self, "model_"):
            raise NotFittedError("this Forecaster has not been fitted: call fit(df) or load(path) first")
        frame = self.frame_ if df is None else self._recent(df)
        index = pd.DatetimeIndex(frame.index)
        future = future_index(index, self.horizon)
        window = torch.from_numpy(self.scaler_.transform(frame.to_numpy())).float()
        marks = torch.cat([time_features(index), time_features(future)])
        self.model_.eval()
        with torch.inference_mode():
            scaled = self.model_(window[None], marks[None])[0]
        values = self.scaler_.inverse(scaled.double().numpy())
        values[:, self.constant_] = frame.to_numpy()[-1, self.constant_]
        return pd.DataFrame(values, index=future, columns=frame.columns)

    def _recent(self, df: pd.DataFrame) -> pd.DataFrame:
        if list(df.columns) != list(self.frame_.columns):
            raise InputError(
                f"this Forecaster was fitted on channels {list(self.frame_.columns)}, the frame has {list(df.columns)}"
            )
        with warnings.catch_warnings():  # a channel may well stand still in a short recent frame
            warnings.simplefilter("ignore", ConstantChannelWarning)
            frame = validate(df, missing=self.missing)
        if len(frame) < self.lookback:
            raise InputError(f"a forecast looks at {self.lookback} rows, the frame has {len(frame)}")
        return frame.iloc[-self.lookback :]

    # ---------------------------------------------------------------- files

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with, as scikit-learn names them."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def save(self, path: Path | str) -> None:
        """Write config.json and model.safetensors into the folder `path`."""
        if not hasattr(self, "model_"):
            raise NotFittedError("this Forecaster has not been fitted: there is nothing to save")
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        index = pd.DatetimeIndex(self.frame_.index)
        state = {
            **{f"model.{name}": tensor for name, tensor in self.model_.state_dict().items()},
            "scaler.mean": torch.tensor(self.scaler_.mean),
            "scaler.std": torch.tensor(self.scaler_.std),
            "frame": torch.tensor(self.frame_.to_numpy()),
            "constant": torch.tensor(self.constant_),
        }
        save_tensors(folder / "model.safetensors", state, {})
        write_json(
            folder / "config.json",
            {
                "params": self.get_params(),
                "columns": [str(name) for name in self.frame_.columns],
                "start": index[0].isoformat(),
                "zone": None if index.tz is None else str(index.tz),
                "freq": index.freqstr,
                "marks": 4,
            },
        )

    @classmethod
    def load(cls, path: Path | str) -> "Forecaster":
        """A fitted Forecaster from the folder that `save` wrote."""
        folder = Path(path)
        config = read_json(folder / "config.json")
        tensors, _ = load_tensors(folder / "model.safetensors")
        forecaster = cls(**config["params"])
        columns = config["columns"]
        model = forecaster._build(channels=len(columns), marks=config["marks"])
        own = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        load_weights(model, own, source=str(folder / "model.safetensors"))
        forecaster.model_ = model
        forecaster.scaler_ = Scaler(mean=tensors["scaler.mean"].numpy(), std=tensors["scaler.std"].numpy())
        index = pd.date_range(config["start"], periods=forecaster.lookback, freq=config["freq"])
        if config["zone"]:
            index = index.tz_convert(config["zone"])
        forecaster.frame_ = pd.DataFrame(tensors["frame"].numpy(), index=index, columns=columns)
        forecaster.constant_ = tensors["constant"].numpy()
        return forecaster
