"""Peers of the accuracy benchmark; each runs in the environment of its library: `accuracy.py` starts this file there.

    python accuracy_peers.py --job '{"method": "NHITS", "data": "cell.npz", "out": "forecasts.npz", "seed": 0}'

`data` has the scaled rows, dates, borders and origins of a cell; `out` gets the forecasts from the validation and test
origins, or from the test origins with quantiles (MSTL, AutoGluon). CPU seconds are those of training and forecasting,
without imports.

Neural models are neuralforecast's, in its default sizes but for SIZES, trained in one plain loop. The library's own
trainer sees the same windows, but copies all windows of 32 series at every step.

Letters: b windows in a batch, l look-back, h horizon, n channels, t rows, m origins.
"""

import argparse
import json
import logging
import resource
import warnings
from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

Data = dict[str, Any]
Forecasts = dict[str, Any]

STEPS, BATCH, CHECK, PATIENCE, RATE = 1000, 32, 100, 3, 1e-3
"""Training steps at most, windows of all channels in a step, steps between validations, validations without gain."""
SERIES = 256
"""Series of a step for models of single series, at most: 32 windows of all channels, or so many drawn from them."""
SIZES: dict[str, dict[str, Any]] = {
    "NHITS": {},
    "TSMixer": {},
    "iTransformer": {"hidden_size": 128, "d_ff": 128},
    "PatchTST": {},
    "SOFTS": {"hidden_size": 128, "d_core": 64, "d_ff": 128},
    "DLinear": {},
}
"""Where they differ from neuralforecast's: the sizes of the authors' scripts for ETT."""
FEWER_STEPS = {"PatchTST": 300}
"""It is by far the most expensive of them."""
TREES = {"n_estimators": 300, "learning_rate": 0.05, "num_leaves": 31}
LAGS = (*range(1, 13), 24, 48, 72, 96)
"""Lags of LightGBM; the season is added."""

PAST = 1000
"""Rows before an origin that MSTL is fitted to, or seven seasons where they are longer."""
LEVELS = (80, 60, 40, 20)
"""Intervals whose bounds are the quantiles 0.1 to 0.9; the mean is the one between."""
AUTOGLUON: dict[str, dict[str, Any]] = {
    name: {} for name in ("RecursiveTabular", "DirectTabular", "TemporalFusionTransformer", "DeepAR")
}
"""The models of its preset `high_quality` without pretrained ones and those that are fitted to single series."""
TIME_LIMIT, CONTEXT = 60, 2500
"""CPU seconds of AutoGluon's training, about those of quality `good`, and rows before an origin that it is given."""


def cpu_seconds() -> float:
    """Return user and system time of this process and its children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


# ---------------------------------------------------------------- neuralforecast


def neural(method: str, data: Data, seed: int) -> Forecasts:
    import torch
    from neuralforecast import models
    from neuralforecast.losses.pytorch import MSE

    torch.set_num_threads(1)
    values, horizon, lookback = torch.from_numpy(data["values"]), int(data["horizon"]), int(data["lookback"])
    kind = getattr(models, method)
    began = cpu_seconds()
    own = {"n_series": values.shape[1]} if kind.MULTIVARIATE else {}
    model = kind(h=horizon, input_size=lookback, loss=MSE(), random_seed=seed, **own, **SIZES[method])
    windows = values.unfold(0, lookback + horizon, 1)  # (t, n, l + h); window w begins at row w
    steps = train(model, windows, data, seed, most=FEWER_STEPS.get(method, STEPS))
    found = {name: forecast(model, windows, data[name] - lookback) for name in ("calibration", "origins")}
    return found | {"seconds": cpu_seconds() - began, "steps": steps}


def train(model: Any, windows: Any, data: Data, seed: int, *, most: int) -> int:
    """Train with Adam and the model's own schedule, keep the weights of the best validation; return the steps."""
    import torch

    lookback, generator = int(data["lookback"]), torch.Generator().manual_seed(seed)
    train_windows = int(data["trained"]) - windows.shape[-1] + 1
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    decays = max(most // model.num_lr_decays, 1) if model.num_lr_decays > 0 else most + 1
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=decays, gamma=0.5)
    truth = windows[data["calibration"] - lookback][..., lookback:].mT
    best, best_weights, waited, order = float("inf"), None, 0, torch.empty(0, dtype=torch.long)
    for step in range(1, most + 1):
        if len(order) < BATCH:
            order = torch.randperm(train_windows, generator=generator)
        chosen, order = order[:BATCH], order[BATCH:]
        x, y = split(windows[chosen], lookback, model, generator)
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(call(model, x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % CHECK == 0 or step == most:
            error = float(((forecast(model, windows, data["calibration"] - lookback) - truth.numpy()) ** 2).mean())
            waited += 1
            if error < best:
                best, best_weights, waited = error, deepcopy(model.state_dict()), 0
            if waited >= PATIENCE:
                break
    if best_weights is not None:
        model.load_state_dict(best_weights)
    return step


def split(batch: Any, lookback: int, model: Any, generator: Any = None) -> tuple[Any, Any]:
    """Return inputs (b, l, n) and truth (b, h, n) of windows (b, n, l + h); models of single series get (b n, l, 1)."""
    import torch

    if not model.MULTIVARIATE:
        batch = batch.flatten(0, 1)[:, None]
        if generator is not None and len(batch) > SERIES:
            batch = batch[torch.randperm(len(batch), generator=generator)[:SERIES]]
    return batch[..., :lookback].mT.contiguous(), batch[..., lookback:].mT.contiguous()


def call(model: Any, x: Any) -> Any:
    """Return the forecast of the underlying module."""
    nothing = {"futr_exog": None, "hist_exog": None, "stat_exog": None}
    return model({"insample_y": x, "insample_mask": x.new_ones(x.shape), **nothing})


def forecast(model: Any, windows: Any, first: np.ndarray) -> np.ndarray:
    """Return the forecasts (m, h, n) of the windows that begin at these rows."""
    import torch

    model.eval()
    found, lookback = [], model.input_size
    with torch.no_grad():
        for part in torch.from_numpy(first).split(BATCH):
            x, y = split(windows[part], lookback, model)
            out = call(model, x)
            if not model.MULTIVARIATE:
                out = out.reshape(len(part), -1, y.shape[1]).mT
            found.append(out)
    return torch.cat(found).numpy()


# ---------------------------------------------------------------- LightGBM by mlforecast


def lightgbm(method: str, data: Data, seed: int) -> Forecasts:
    """One model of all channels; its forecast of a step is an input of the next."""
    import mlforecast  # type: ignore[import-not-found]  # noqa: F401  # before the clock starts
    from lightgbm import LGBMRegressor  # type: ignore[import-not-found]

    values, horizon, trained = data["values"], int(data["horizon"]), int(data["trained"])
    began = cpu_seconds()
    forecaster, frame = tree_forecaster(LGBMRegressor(random_state=seed, n_jobs=1, verbose=-1, **TREES), data)
    forecaster.fit(frame[frame["row"] < trained].drop(columns="row"), static_features=["channel"])
    model, lags = forecaster.models_["model"], sorted({*LAGS, int(data["season"])})
    calendar = calendar_features(data)
    found = {}
    for name in ("calibration", "origins"):
        rows, width = data[name], values.shape[1]
        past = values[rows[:, None] - np.arange(max(lags), 0, -1)]  # (m, longest lag, n); forecasts are appended
        ahead = np.empty((len(rows), horizon, width), dtype=np.float32)
        for step in range(horizon):
            lagged = [past[:, past.shape[1] - lag] for lag in lags]
            known = [np.broadcast_to(each[rows + step, None], (len(rows), width)) for each in calendar.values()]
            channel = np.broadcast_to(np.arange(width), (len(rows), width))
            features = np.stack([channel, *lagged, *known], axis=-1).reshape(len(rows) * width, -1)
            columns = pd.DataFrame(features, columns=["channel", *(f"lag{lag}" for lag in lags), *calendar])
            columns["channel"] = columns["channel"].astype(int).astype("category")
            ahead[:, step] = model.predict(columns[model.feature_name_]).reshape(len(rows), width)
            past = np.concatenate([past[:, 1:], ahead[:, step : step + 1]], axis=1)
        found[name] = ahead
    return found | {"seconds": cpu_seconds() - began, "steps": None}


def calendar_features(data: Data) -> dict[str, np.ndarray]:
    dates = pd.DatetimeIndex(data["dates"])
    return {"hour": dates.hour.to_numpy(), "minute": dates.minute.to_numpy(), "dayofweek": dates.dayofweek.to_numpy()}


def tree_forecaster(model: Any, data: Data) -> tuple[Any, pd.DataFrame]:
    """Return mlforecast's object and the long frame of all rows."""
    from mlforecast import MLForecast

    values, dates = data["values"], pd.DatetimeIndex(data["dates"])
    rows, width = values.shape
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat([f"c{channel:03d}" for channel in range(width)], rows),
            "ds": np.tile(dates.to_numpy(), width),
            "y": values.T.ravel(),
            "channel": pd.Categorical(np.repeat(np.arange(width), rows)),
            "row": np.tile(np.arange(rows), width),
        }
    )
    lags = sorted({*LAGS, int(data["season"])})
    step = pd.tseries.frequencies.to_offset(dates[1] - dates[0])
    return MLForecast({"model": model}, freq=step, lags=lags, date_features=list(calendar_features(data))), frame


# ---------------------------------------------------------------- MSTL by statsforecast


def mstl(method: str, data: Data, seed: int) -> Forecasts:
    """One model for each channel and origin, fitted to the last rows before the origin; AutoETS without a season."""
    from statsforecast.models import MSTL, AutoETS  # type: ignore[import-not-found]

    values, season, horizon = data["values"].astype(np.float64), int(data["season"]), int(data["horizon"])
    began, past = cpu_seconds(), max(PAST, 7 * season)
    shape = len(data["origins"]), horizon, values.shape[1]
    ahead, quantiles = np.empty(shape), np.empty((2 * len(LEVELS) + 1, *shape))
    model = AutoETS() if season == 1 else MSTL(season_length=season)  # whose trend is by AutoETS
    for place, origin in enumerate(data["origins"]):
        for channel in range(values.shape[1]):
            found = model.forecast(values[max(origin - past, 0) : origin, channel], h=horizon, level=list(LEVELS))
            lows, highs = ([found[f"{side}-{level}"] for level in LEVELS] for side in ("lo", "hi"))
            ahead[place, :, channel] = found["mean"]
            quantiles[:, place, :, channel] = [*lows, found["mean"], *highs[::-1]]
    return {"origins": ahead, "quantiles": quantiles, "seconds": cpu_seconds() - began, "steps": None}


# ---------------------------------------------------------------- AutoGluon


def autogluon(method: str, data: Data, seed: int) -> Forecasts:
    """Fitted once to all rows before the test rows, of which it takes its own validation rows; never fitted again."""
    import time

    from autogluon.timeseries import TimeSeriesPredictor  # type: ignore[import-not-found]

    # Its time limit would be one of wall time: on a busy machine it would train less.
    time.time = time.monotonic = cpu_seconds
    dates, width, horizon = pd.DatetimeIndex(data["dates"]), data["values"].shape[1], int(data["horizon"])
    began = cpu_seconds()
    with TemporaryDirectory() as folder:
        predictor = TimeSeriesPredictor(
            prediction_length=horizon,
            freq=pd.tseries.frequencies.to_offset(dates[1] - dates[0]).freqstr,
            eval_metric="MSE",
            eval_metric_seasonal_period=int(data["season"]),
            quantile_levels=[round(0.1 * place, 1) for place in range(1, 10)],
            path=folder,
            verbosity=0,
        )
        known = item_frame(data, range(int(data["tested"])))
        predictor.fit(known, time_limit=TIME_LIMIT, hyperparameters=AUTOGLUON, random_seed=seed)
        found = []
        for origin in map(int, data["origins"]):
            past = item_frame(data, range(max(origin - CONTEXT, 0), origin))
            ahead = predictor.predict(past, use_cache=False).to_numpy()  # (n h, the mean and the quantiles)
            found.append(ahead.reshape(width, horizon, -1).transpose(2, 1, 0))
        models = predictor.model_names()
    ahead = np.stack(found, axis=1)
    return {"origins": ahead[0], "quantiles": ahead[1:], "seconds": cpu_seconds() - began, "models": models}


def item_frame(data: Data, rows: range) -> Any:
    """Return AutoGluon's frame of these rows: one item for each channel."""
    from autogluon.timeseries import TimeSeriesDataFrame

    values, dates = data["values"][rows.start : rows.stop], data["dates"][rows.start : rows.stop]
    names = np.repeat([f"c{channel:03d}" for channel in range(values.shape[1])], len(rows))
    columns = {"item_id": names, "timestamp": np.tile(dates, values.shape[1]), "target": values.T.ravel()}
    return TimeSeriesDataFrame.from_data_frame(pd.DataFrame(columns))


# ---------------------------------------------------------------- the command

METHODS: dict[str, Callable[[str, Data, int], Forecasts]] = {
    **dict.fromkeys(SIZES, neural),
    "LightGBM": lightgbm,
    "MSTL": mstl,
    "AutoGluon": autogluon,
}
PACKAGES = {
    **dict.fromkeys(SIZES, ("torch", "neuralforecast")),
    "LightGBM": ("lightgbm", "mlforecast"),
    "MSTL": ("statsforecast",),
    "AutoGluon": ("torch", "autogluon.timeseries"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--job", required=True)
    job = json.loads(parser.parse_args().job)
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with np.load(job["data"]) as file:
        data = dict(file)
    found = METHODS[job["method"]](job["method"], data, job["seed"])
    arrays = {name: found.pop(name) for name in ("calibration", "origins", "quantiles") if name in found}
    np.savez(job["out"], **arrays)
    print(json.dumps(found | {"libraries": {name: version(name) for name in PACKAGES[job["method"]]}}))


if __name__ == "__main__":
    main()
