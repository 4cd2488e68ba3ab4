"""Columns with roles: what is known comes into view, what is not scored is not, gaps count nowhere."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from primecast.data.windows import Scaler, calendar_features
from primecast.errors import InputError
from primecast.forecasting.fitting import TargetsOnly
from primecast.frames.roles import Roles, shift_future_covariates, shifts
from primecast.frames.validate import CheckedFrame
from primecast.frames.window_builder import RoleWindows, WindowBuilder

L, H, ROLES = 5, 3, Roles(targets=("a", "b"), past=("p",), future=("f", "g"))


def table(rows: int = 29, *, dated: bool = True) -> CheckedFrame:
    index = pd.date_range("2024-01-01", periods=rows, freq="h") if dated else pd.RangeIndex(rows)
    values = np.random.default_rng(0).normal(size=(rows, 5))
    return CheckedFrame(
        pd.DataFrame(values, index=index, columns=["a", "b", "p", "f", "g"]), np.zeros((rows, 5), dtype=bool)
    )


def windows(given: CheckedFrame | None = None, *, roles: Roles = ROLES) -> RoleWindows:
    given = table() if given is None else given
    builder = WindowBuilder(Scaler(np.zeros(5), np.ones(5)), roles, L, H, missing="mask", minute=False)
    return builder.windows(given, range(len(given)))


def test_roles_are_told_apart_by_name_and_keep_the_order_of_the_columns() -> None:
    roles = Roles.of(["x", "p", "y", "f"], past=["p"], future=["f"])
    assert (roles.targets, roles.channels, roles.columns) == (("x", "y"), ("x", "y", "p"), ("x", "y", "p", "f"))
    with pytest.raises(InputError, match="unknown future covariate 'z'.*f, p, x, y"):
        Roles.of(["x", "p", "y", "f"], past=[], future=["z"])


@pytest.mark.parametrize("horizon", [1, 3, 5, 7, 13])
def test_every_future_value_comes_into_view_within_the_look_back(horizon: int) -> None:
    time = torch.arange(L + horizon).float()
    shown = shift_future_covariates(time[None, :, None], known=1, lookback=L)
    assert shown.shape[-1] == len(shifts(lookback=L, horizon=horizon))
    assert set(shown[0, :L].flatten().tolist()) == set(range(L + horizon))
    assert shown.max() == L + horizon - 1  # nothing beyond what is known


def test_batches_are_what_slicing_gives() -> None:
    source = windows()
    series = torch.tensor(table().frame.to_numpy()).float()
    dates = calendar_features(pd.DatetimeIndex(table().frame.index))
    x, y, time_features = source.batch(torch.tensor([7, 2]))
    assert time_features is not None and time_features.shape == (2, L + H, source.n_time_features)
    for place, start in enumerate((7, 2)):
        rows = series[start : start + L + H]
        assert torch.equal(x[place], rows[:L, :3])
        assert torch.equal(y[place, :, :2], rows[L:, :2]) and y[place, :, 2].isnan().all()
        assert torch.equal(time_features[place, :, :4], dates[start : start + L + H])
        assert torch.equal(time_features[place, :, 4:6], rows[:, 3:])
        assert torch.equal(time_features[place, :L, 6:], rows[H:, 3:])
    assert source.origins.tolist() == list(range(L, 29 - H + 1))


def test_plain_columns_are_plain_windows() -> None:
    plain = windows(roles=Roles(targets=("a", "b", "p", "f", "g")))
    index = torch.tensor([3, 11])
    for ours, theirs in zip(plain.batch(index), plain.base.batch(index), strict=True):
        assert ours is not None and theirs is not None and torch.equal(ours, theirs)
    assert (len(plain), plain.n_time_features, plain.channels) == (29 - L - H + 1, 4, 5)
    assert windows(table(dated=False), roles=Roles(targets=("a", "b", "p", "f", "g"))).n_time_features == 0


def test_the_next_window_has_the_last_rows_and_the_covariates_given() -> None:
    given = table()
    known = np.random.default_rng(1).normal(size=(H, 2))
    builder = WindowBuilder(Scaler(np.zeros(5), np.ones(5)), ROLES, L, H, missing="error", minute=False)
    source = builder.next(given, known)
    x, y, time_features = source.batch(torch.tensor([0]))
    assert len(source) == 1 and y.shape == (1, H, 3) and time_features is not None
    assert torch.equal(x[0], torch.tensor(given.frame.to_numpy()[-L:, :3]).float())
    assert torch.equal(time_features[0, L:, 4:6], torch.from_numpy(known).float())
    later = calendar_features(pd.date_range(given.frame.index[-1], periods=H + 1, freq="h")[1:])
    assert torch.equal(time_features[0, L:, :4], later)


def test_gaps_are_missing_truths_and_complete_windows_have_none() -> None:
    given = table()
    gaps = given.gaps
    gaps[13, 0] = gaps[20, 2] = gaps[24, 4] = True  # a target, a past-only channel, a future covariate
    source = windows(given)
    truths = torch.stack([source.batch(torch.tensor([number])).y[0] for number in range(len(source))])
    missing = truths[..., :2].isnan().any(dim=2).any(dim=1)
    assert missing.nonzero()[:, 0].tolist() == [6, 7, 8]  # row 13 is among rows 5 + 6 ... 5 + 8 + 2
    complete = source.complete()
    assert complete.numbers.tolist() == [number for number in range(len(source)) if number not in (6, 7, 8)]
    assert complete.batch(torch.arange(len(complete))).y.isfinite().all()
    assert complete.only(np.array([0, 7])).numbers.tolist() == [0, 10]
    gaps[5:, 1] = True
    with pytest.raises(InputError, match="no window of 3 steps from row 5 on is without a gap"):
        windows(given).complete()


class Echo(nn.Module):
    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        return x[:, -H:]


def test_what_is_not_a_target_is_never_wrong() -> None:
    source = windows().complete()
    batch = source.batch(torch.arange(len(source)))
    forecast = TargetsOnly(Echo(), 2)(batch.x, batch.time_features)
    assert torch.equal(forecast[..., 2], batch.y[..., 2]) and not forecast[..., 2].any()
    assert torch.equal(forecast[..., :2], batch.x[:, -H:, :2])


def test_a_model_keeps_its_own_way_to_a_loss() -> None:
    class Own(Echo):
        def training_loss(self, x: Tensor, y: Tensor, time_features: Tensor | None, loss: object) -> Tensor:
            return torch.tensor(math.pi)

    x, y = torch.randn(2, L, 3), torch.randn(2, H, 3)
    assert TargetsOnly(Own(), 2).training_loss(x, y, None, nn.functional.mse_loss).item() == pytest.approx(math.pi)
    plain = TargetsOnly(Echo(), 2).training_loss(x, y, None, nn.functional.mse_loss)
    assert torch.equal(plain, nn.functional.mse_loss(x[:, -H:], y))
