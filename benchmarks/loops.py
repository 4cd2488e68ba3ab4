"""One training loop, timed by hooks in a process of its own, so that each library runs in its own environment.

    python benchmarks/loops.py --job '{"loop": "primecast", "steps": 240, "skip": 40}'

All train the same model: an iTransformer with standard attention at its official ETTh1 settings (width and
feed-forward width 256, 2 layers, 8 heads, dropout 0.1, instance norm, 7 channels, no time features), look-back and
horizon 96, batches of 32 of the same 8449 windows, squared error, Adam at 1e-4, float32, one thread. Progress bars,
checkpoints, loggers, summaries and validation are off.

A step begins when the model is called in training mode: hooks record these times. The first `skip` steps are set-up;
the result is windows per second from the beginning of step `skip` to that of step `steps`.

primecast         `primecast.training.loop.fit`
dataloader        the usual loop: Dataset with __getitem__, shuffling DataLoader without workers, torch's default Adam
dataloader-fused  the same with fused Adam, which `fit` uses: only the way windows are gathered differs
neuralforecast    its iTransformer, through NeuralForecast.fit; a step samples 32 of all windows
darts             its NeuralForecastModel with that iTransformer: the documented way, darts has none of its own
"""

import argparse
import json
import logging
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

ROWS, CHANNELS, LOOKBACK, HORIZON, BATCH = 8640, 7, 96, 96, 32
WIDTH, LAYERS, HEADS, DROPOUT, RATE = 256, 2, 8, 0.1, 1e-4


def make_series() -> np.ndarray:
    """Return a standardized hourly-like series: a daily wave and a random walk per channel."""
    random = np.random.default_rng(0)
    level = random.normal(size=(ROWS, CHANNELS)).cumsum(0) / 30
    wave = np.sin(2 * np.pi * np.arange(ROWS)[:, None] / 24 + random.uniform(0, 6, CHANNELS))
    series = level + wave + 0.3 * random.normal(size=(ROWS, CHANNELS))
    return ((series - series.mean(0)) / series.std(0)).astype(np.float32)


class Clock:
    """Record when a model is called in training mode."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def attach(self, model: nn.Module) -> None:
        model.register_forward_pre_hook(self._record)

    def _record(self, model: nn.Module, _: object) -> None:
        if model.training:
            self.times.append(time.perf_counter())


# ---------------------------------------------------------------- the loops: each trains for `steps` steps or more


def primecast_loop(series: np.ndarray, clock: Clock, steps: int) -> nn.Module:
    from primecast.data.windows import Windows
    from primecast.nn.losses import create_loss
    from primecast.training.loop import fit

    def windows(rows: np.ndarray) -> Windows:
        return Windows(torch.from_numpy(rows), None, start=0, lookback=LOOKBACK, horizon=HORIZON)

    model = _our_model()
    clock.attach(model)
    few = windows(series[: LOOKBACK + HORIZON])  # fit needs validation windows: one is enough
    fit(
        model,
        windows(series),
        few,
        loss=create_loss("mse"),
        lr=RATE,
        batch_size=BATCH,
        epochs=1 + steps // (len(windows(series)) // BATCH),
        patience=99,
        seed=0,
        progress="off",
    )
    return model


def _our_model() -> nn.Module:
    from primecast.models import create_model

    return create_model(
        "itransformer",
        lookback=LOOKBACK,
        horizon=HORIZON,
        channels=CHANNELS,
        d_model=WIDTH,
        n_layers=LAYERS,
        n_heads=HEADS,
        dropout=DROPOUT,
        attention="standard",
        seed=0,
    )


class WindowDataset(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The usual data set: one window at a time."""

    def __init__(self, series: np.ndarray) -> None:
        self.series = series

    def __len__(self) -> int:
        return len(self.series) - LOOKBACK - HORIZON + 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        middle = index + LOOKBACK
        return torch.from_numpy(self.series[index:middle]), torch.from_numpy(self.series[middle : middle + HORIZON])


def dataloader_loop(series: np.ndarray, clock: Clock, steps: int, *, fused: bool = False) -> nn.Module:
    model = _our_model()
    clock.attach(model)
    loader = torch.utils.data.DataLoader(WindowDataset(series), batch_size=BATCH, shuffle=True, drop_last=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=fused or None)
    criterion = nn.MSELoss()
    model.train()
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()  # the usual loop adds it up, and so does `fit`
            if len(clock.times) > steps:
                return model


SILENT = {
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "logger": False,
}


def neuralforecast_loop(series: np.ndarray, clock: Clock, steps: int) -> nn.Module:
    import pandas as pd
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MSE
    from neuralforecast.models import iTransformer

    model = iTransformer(
        h=HORIZON,
        input_size=LOOKBACK,
        n_series=CHANNELS,
        hidden_size=WIDTH,
        n_heads=HEADS,
        e_layers=LAYERS,
        d_ff=WIDTH,
        dropout=DROPOUT,
        use_norm=True,
        loss=MSE(),
        max_steps=steps + 1,
        learning_rate=RATE,
        windows_batch_size=BATCH,
        val_check_steps=10**6,
        **SILENT,
    )
    hours = pd.date_range("2016-07-01", periods=ROWS, freq="h")
    frame = pd.concat(pd.DataFrame({"unique_id": f"c{c}", "ds": hours, "y": series[:, c]}) for c in range(CHANNELS))
    forecast = NeuralForecast(models=[model], freq="h")
    clock.attach(forecast.models[0])
    forecast.fit(frame)
    return forecast.models[0]


def darts_loop(series: np.ndarray, clock: Clock, steps: int) -> nn.Module:
    import pandas as pd
    from darts import TimeSeries  # type: ignore[import-not-found]
    from darts.models.forecasting.nf_model import NeuralForecastModel  # type: ignore[import-not-found]

    class Watched(NeuralForecastModel):  # type: ignore[misc]  # darts makes its module inside fit
        def _create_model(self, sample: Any) -> nn.Module:
            module = super()._create_model(sample)
            clock.attach(module)
            return module

    model = Watched(
        input_chunk_length=LOOKBACK,
        output_chunk_length=HORIZON,
        model="iTransformer",
        model_kwargs={
            "hidden_size": WIDTH,
            "n_heads": HEADS,
            "e_layers": LAYERS,
            "d_ff": WIDTH,
            "dropout": DROPOUT,
            "use_norm": True,
        },
        batch_size=BATCH,
        n_epochs=1 + steps // (ROWS // BATCH - 10),
        loss_fn=nn.MSELoss(),
        optimizer_kwargs={"lr": RATE},
        random_state=0,
        pl_trainer_kwargs=SILENT | {"max_steps": steps + 1},
    )
    hours = pd.date_range("2016-07-01", periods=ROWS, freq="h")
    model.fit(TimeSeries.from_times_and_values(hours, series), verbose=False)
    return model.model


LOOPS: dict[str, Callable[[np.ndarray, Clock, int], nn.Module]] = {
    "primecast": primecast_loop,
    "dataloader": dataloader_loop,
    "dataloader-fused": lambda series, clock, steps: dataloader_loop(series, clock, steps, fused=True),
    "neuralforecast": neuralforecast_loop,
    "darts": darts_loop,
}


def measure_loop(loop: str, steps: int, skip: int) -> dict[str, object]:
    clock = Clock()
    model = LOOPS[loop](make_series(), clock, steps)
    seconds = clock.times[steps] - clock.times[skip]
    packages = {
        "primecast": ("primecast",),
        "darts": ("darts", "neuralforecast"),
        "neuralforecast": ("neuralforecast",),
    }
    return {
        "windows_per_second": BATCH * (steps - skip) / seconds,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(next(model.parameters()).dtype),
        "versions": {name: version(name) for name in ("torch", *packages.get(loop, ()))},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--job", required=True)
    job = json.loads(parser.parse_args().job)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "darts"):
        logging.getLogger(name).setLevel(logging.ERROR)
    print(json.dumps(measure_loop(**job)))


if __name__ == "__main__":
    main()
