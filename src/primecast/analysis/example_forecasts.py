"""Example forecasts: look-back, truth and forecast of a few test windows, for figures.

Letters: b windows, s steps, n channels.
"""

from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from primecast.analysis.maps import BATCH, MAP_WINDOWS, five_digits
from primecast.data.windows import Dataset, Splits, evenly_spaced
from primecast.training.loop import predict

EXAMPLES = 3


def example_forecasts(model: nn.Module, splits: Splits, dataset: Dataset) -> dict[str, Any]:
    """Probe: look-back, truth and forecast, in the data's own units, of three test windows and up to three channels.

    Windows are drawn with a fixed seed. Channels: the first, and those with the largest and the smallest error of the
    forecast that repeats the last value, so that two models show the same ones. example_mse is in scaled units.
    """
    windows = splits.test
    generator = torch.Generator().manual_seed(0)
    index = torch.randperm(len(windows), generator=generator)[:EXAMPLES].sort().values
    naive = torch.zeros(windows.channels, dtype=torch.float64)
    for part in evenly_spaced(len(windows), MAP_WINDOWS).split(BATCH):
        batch = windows.batch(part)
        naive += (batch.y - batch.x[:, -1:]).double().square().sum((0, 1))
    chosen = list(dict.fromkeys([0, int(naive.argmax()), int(naive.argmin())]))
    x, y, _ = windows.batch(index)
    forecast = predict(model, windows, index=index)

    def in_data_units(values: Float32[Tensor, "b s n"]) -> Any:
        return five_digits(splits.scaler.inverse(values.double().numpy())[:, :, chosen])

    starts = (index + windows.start + windows.lookback).tolist()
    return {
        "example_rows": starts,
        "example_stamps": [] if dataset.index is None else [str(dataset.index[row]) for row in starts],
        "example_channels": [dataset.names[channel] for channel in chosen],
        "example_mse": (forecast - y).double().square().mean(1)[:, chosen].tolist(),
        "past": in_data_units(x),
        "truth": in_data_units(y),
        "forecast": in_data_units(forecast),
    }
