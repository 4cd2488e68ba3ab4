"""Sensor ablation: how much forecast errors grow when one sensor's past is replaced by a constant.

Letters: b windows, n channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from primecast.analysis.maps import BATCH, MOST_TOKENS, five_digits
from primecast.data.windows import Batch, Dataset, Splits, WindowSource, evenly_spaced
from primecast.errors import check_known
from primecast.training.loop import predict_batches

ABLATIONS = {
    "mean": "the sensor reads its mean over the training rows",
    "last": "the sensor stays at the oldest value of the window",
}

ABLATION_WINDOWS, ABLATION_FORECASTS = 256, 2**13
"""The probe takes at most so many windows; with many channels fewer, for about so many forecasts in all."""


@dataclass(frozen=True, eq=False)
class SensorAblation:
    """Errors with one sensor ablated at a time.

    growth:        relative growth of each target's (row) squared error when a sensor (column) is ablated; 0.1 is 10 %.
    squared_error: sum over windows and steps of each target's squared error, in scaled units, with all sensors.
    """

    growth: pd.DataFrame
    squared_error: "pd.Series[float]"

    @cached_property
    def summary(self) -> pd.DataFrame:
        """For each sensor the mean growth of the other channels, the largest and its channel; worst sensor first."""
        rows = {}
        for sensor in self.growth.columns:
            others = self.growth[sensor].drop(index=sensor, errors="ignore")
            if len(others):
                rows[sensor] = {"mean": others.mean(), "largest": others.max(), "channel": others.idxmax()}
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "largest", "channel"])
        return table.sort_values("mean", ascending=False, kind="stable")

    def single_points(self, threshold: float = 0.1) -> list[str]:
        """Return the sensors whose ablation makes another channel's squared error grow by more than `threshold`."""
        return [str(name) for name in self.summary.index[self.summary["largest"] > threshold]]


@dataclass(frozen=True, eq=False)
class AblatedWindows:
    """The windows of another source, with one channel of the look-back held constant as ABLATIONS says."""

    source: WindowSource
    channel: int
    hold: str

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, index: Int64[Tensor, "b"]) -> Batch:
        batch = self.source.batch(index)
        x = batch.x.clone()
        x[:, :, self.channel] = 0.0 if self.hold == "mean" else x[:, :1, self.channel]  # scaled: the training mean is 0
        return batch._replace(x=x)


def ablate_sensors(
    model: nn.Module,
    windows: WindowSource,
    *,
    names: Sequence[str],
    targets: int,
    hold: str = "mean",
    index: Int64[Tensor, "w"] | None = None,
    batch_size: int = 64,
) -> SensorAblation:
    """Forecast the windows once as they are and once for each ablated channel.

    targets: how many channels, from the first on, are scored. hold: a name in ABLATIONS. index: numbers of the windows
    to forecast; all of them by default.
    """
    check_known("sensor ablation", hold, ABLATIONS)

    def squared_errors(source: WindowSource) -> Float64[Tensor, "n"]:
        total = torch.zeros(targets, dtype=torch.float64)
        for _, forecast, truth in predict_batches(model, source, index=index, batch_size=batch_size):
            total += (forecast - truth)[..., :targets].double().square().sum((0, 1))
        return total

    intact = squared_errors(windows)
    ablated = torch.stack([squared_errors(AblatedWindows(windows, n, hold)) for n in range(len(names))])
    growth = (ablated / intact.clamp(min=1e-30) - 1).T.numpy()
    return SensorAblation(
        growth=pd.DataFrame(growth, index=list(names[:targets]), columns=list(names)),
        squared_error=pd.Series(intact.numpy(), index=list(names[:targets])),
    )


def sensor_ablation(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Probe: hold each channel at its training mean in the look-back and measure the error of the others.

    growth[c][j]: relative growth of the MSE of channel j when c is ablated; the diagonal, c's own forecast, counts in
    none of the other values. harm[c]: growth of the mean MSE of all channels but c.
    """
    channels = splits.test.channels
    most = min(ABLATION_WINDOWS, max(BATCH, ABLATION_FORECASTS // channels))
    index = evenly_spaced(len(splits.test), most)
    found = ablate_sensors(model, splits.test, names=dataset.names, targets=channels, index=index, batch_size=BATCH)
    growth, mse = found.growth.to_numpy().T, found.squared_error.to_numpy() / (len(index) * splits.test.horizon)
    others = ~np.eye(channels, dtype=bool)
    harm = (mse * (1 + growth) * others).sum(1) / (mse * others).sum(1) - 1
    positive = harm.clip(min=0)
    pairs = np.where(others, growth, -np.inf)
    ablated, hurt = divmod(int(pairs.argmax()), channels)
    return {
        "harm_max": float(harm.max()),
        "harm_mean": float(harm.mean()),
        "harm_share": float(positive.max() / positive.sum()) if positive.sum() > 0 else 0.0,
        "harm_channel": dataset.names[int(harm.argmax())],
        "pair_growth_max": float(pairs.max()),
        "pair_growth_of": [dataset.names[ablated], dataset.names[hurt]],
        "loss_windows": len(index),
        "loss_mse": float(mse.mean()),
        "channels": list(dataset.names),
        "harm": five_digits(harm),
        **({"growth": five_digits(growth)} if channels <= MOST_TOKENS else {}),
        "growth_of_pairs": growth.astype(np.float32),
    }
