"""Ridge regression in closed form: equal to numpy's solution, chosen by validation, used by `fit` and in ensembles."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from primecast.data.windows import Batch, Windows, calendar_features
from primecast.errors import InputError
from primecast.forecasting.ensemble import LastSteps, LastStepsWindows
from primecast.models import create_model
from primecast.models.ridge import LAMBDAS, Ridge, _fourier, _pooled
from primecast.nn.losses import mse
from primecast.training.loop import fit

L, H, N = 7, 3, 2
TRAINING: dict[str, Any] = {
    "loss": mse,
    "lr": 1e-3,
    "batch_size": 32,
    "epochs": 3,
    "patience": 2,
    "seed": 0,
    "progress": "off",
}


def windows(rows: int = 211, *, seed: int = 0, dates: bool = False) -> Windows:
    """A channel that repeats itself every eleven steps, and one that follows it; a daily rhythm if there are dates."""
    generator, steps = np.random.default_rng(seed), np.arange(rows + 2)
    lead = np.sin(2 * np.pi * steps / 11) + 0.1 * generator.standard_normal(rows + 2)
    series = np.stack([lead[2:], 0.5 * lead[:-2] + 0.05 * generator.standard_normal(rows)], axis=1)
    index = pd.date_range("2024-01-01", periods=rows, freq="h")
    features = calendar_features(index) if dates else None
    return Windows(torch.from_numpy(series.astype(np.float32)), features, 0, L, H)


def test_the_closed_form_is_the_minimum_that_numpy_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primecast.models.ridge.LAMBDAS", (0.03,))
    train = windows()
    model = Ridge(lookback=L, horizon=H, channels=N)
    model.solve(train, train)
    batch = train.batch(torch.arange(len(train)))
    x, y = batch.x.double().numpy(), batch.y.double().numpy()
    for channel in range(N):
        last = x[:, -1:, channel]
        inputs = np.concatenate([x[:, :-1, channel] - last, last], axis=1)
        normal = (inputs - inputs.mean(0)) / inputs.std(0)
        change = y[..., channel] - last
        # Ridge regression as least squares with a row sqrt(lambda) for each weight.
        rows = np.concatenate([normal / len(x) ** 0.5, 0.03**0.5 * np.eye(L)])
        truths = np.concatenate([(change - change.mean(0)) / len(x) ** 0.5, np.zeros((L, H))])
        weight = np.linalg.lstsq(rows, truths, rcond=None)[0]
        expected = last + normal @ weight + change.mean(0)
        np.testing.assert_allclose(model(batch.x)[..., channel].detach().numpy(), expected, atol=1e-5)


def test_each_channel_has_the_lambda_that_is_best_by_its_own_and_the_mean_validation_error() -> None:
    train, val = windows(), windows(seed=1)
    batch = val.batch(torch.arange(len(val)))
    forecasts = []
    for penalty in LAMBDAS:
        with pytest.MonkeyPatch.context() as one:
            one.setattr("primecast.models.ridge.LAMBDAS", (penalty,))
            model = Ridge(lookback=L, horizon=H, channels=N)
            model.solve(train, val)
        forecasts.append(model(batch.x).detach())
    errors = torch.stack([(forecast - batch.y).square().mean((0, 1)) for forecast in forecasts])
    relative = errors / errors.min(dim=0).values
    chosen = (relative + relative.mean(dim=1, keepdim=True)).argmin(dim=0)
    model = Ridge(lookback=L, horizon=H, channels=N)
    model.solve(train, val)
    for channel, place in enumerate(chosen.tolist()):
        torch.testing.assert_close(model(batch.x)[..., channel], forecasts[place][..., channel])


def test_a_channel_with_little_evidence_follows_the_others_in_its_choice_of_lambda() -> None:
    errors = torch.tensor([[1.0, 4.0, 4.0], [1.01, 2.0, 2.0], [3.0, 3.0, 3.0]], dtype=torch.float64)
    assert _pooled(errors).argmin(0).tolist() == [1, 1, 1] and errors.argmin(0).tolist() == [0, 1, 1]
    certain = torch.tensor([[1.0, 1.1], [9.0, 1.0]], dtype=torch.float64)
    assert _pooled(certain).argmin(0).tolist() == [0, 0]
    assert torch.isfinite(_pooled(torch.zeros(2, 3, dtype=torch.float64))).all()  # constant channels


def test_channels_without_a_known_truth_keep_their_last_value_and_others_leave_unknown_windows_out() -> None:
    whole = windows()

    class Gappy:
        def __len__(self) -> int:
            return len(whole)

        def batch(self, index: torch.Tensor) -> Batch:
            x, y, features = whole.batch(index)
            y = y.clone()
            y[..., 1] = float("nan")
            y[index % 5 == 0, 0, 0] = float("nan")
            return Batch(x, y, features)

    model = Ridge(lookback=L, horizon=H, channels=N)
    model.solve(Gappy(), Gappy())
    x = whole.batch(torch.arange(13)).x
    assert torch.equal(model(x)[..., 1], x[:, -1:, 1].expand(-1, H))
    assert model(x).isfinite().all() and not torch.equal(model(x)[..., 0], x[:, -1:, 0].expand(-1, H))


@dataclass(frozen=True)
class Gathered:
    """All windows of a batch, as a `WindowSource`."""

    all: Batch

    def __len__(self) -> int:
        return len(self.all.x)

    def batch(self, index: torch.Tensor) -> Batch:
        return Batch(self.all.x[index], self.all.y[index], None)


def test_components_let_a_channel_see_the_one_it_follows() -> None:
    sources = []
    for seed in (0, 1):
        x, y, _ = windows(499, seed=seed).batch(torch.arange(487))
        sources.append(Gathered(Batch(x[:, -2:], y[:, :1], None)))
    errors = []
    for components in (0, 2):
        model = Ridge(lookback=2, horizon=1, channels=N, components=components)
        model.solve(*sources)
        errors.append((model(sources[1].all.x) - sources[1].all.y)[..., 1].square().mean().item())
    assert errors[1] < 0.8 * errors[0]


def test_a_shared_map_is_that_of_all_channels_in_one() -> None:
    train, val = windows(), windows(seed=1)
    shared = Ridge(lookback=L, horizon=H, channels=N, shared=True)
    shared.solve(train, val)
    single = Ridge(lookback=L, horizon=H, channels=1)
    stacked = []
    for source in (train, val):
        x, y, _ = source.batch(torch.arange(len(source)))
        past, truth = (one.permute(2, 0, 1).flatten(0, 1)[..., None] for one in (x, y))
        stacked.append(Gathered(Batch(past, truth, None)))
    single.solve(*stacked)
    x = val.batch(torch.arange(13)).x
    torch.testing.assert_close(shared(x)[..., 1:], single(x[..., 1:]))


def test_the_calendar_tells_hours_minutes_and_weekends_apart() -> None:
    hours = calendar_features(pd.date_range("2024-01-01", periods=7 * 24, freq="h"))
    assert len(torch.unique(_fourier(hours), dim=0)) == 7 * 24
    quarters = calendar_features(pd.date_range("2024-01-01", periods=96, freq="15min"), minute=True)
    assert len(torch.unique(_fourier(quarters), dim=0)) == 96


def test_fit_solves_it_in_one_epoch_also_with_a_shorter_look_back() -> None:
    train, val = windows(dates=True), windows(seed=1, dates=True)
    plain = create_model("ridge", lookback=5, horizon=H, channels=N, n_time_features=4)
    wrapped = LastSteps(create_model("ridge", lookback=5, horizon=H, channels=N, n_time_features=4), 5)
    history = fit(wrapped, train, val, **TRAINING)
    assert len(history.epochs) == 1 and not wrapped.training
    fit(plain, LastStepsWindows(train, 5), LastStepsWindows(val, 5), **TRAINING)
    batch = val.batch(torch.arange(17))
    assert batch.time_features is not None
    assert torch.equal(wrapped(batch.x, batch.time_features), plain(batch.x[:, 2:], batch.time_features[:, 2:]))


@pytest.mark.parametrize("shared", [False, True])
def test_solving_again_on_more_windows_keeps_the_lambdas(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, val = Ridge(lookback=L, horizon=H, channels=N, shared=shared), windows(seed=1)
    with pytest.raises(InputError, match="only lambdas chosen before can be used: there are none"):
        model.solve(windows(), None)
    model.solve(windows(), val)
    assert model.penalties is not None
    chosen = model.penalties.clone()
    more = windows(401, seed=2)
    model.solve(more, None)
    assert torch.equal(model.penalties, chosen)
    for channel in range(N):
        monkeypatch.setattr("primecast.models.ridge.LAMBDAS", (float(chosen[0 if shared else channel]),))
        expected = Ridge(lookback=L, horizon=H, channels=N, shared=shared)
        expected.solve(more, val)
        x = val.batch(torch.arange(17)).x
        assert torch.equal(model(x)[..., channel], expected(x)[..., channel])


def test_a_model_made_for_time_features_asks_for_them() -> None:
    model = create_model("ridge", lookback=L, horizon=H, channels=N, n_time_features=4)
    with pytest.raises(InputError, match="made for 4 time features"):
        model(torch.zeros(1, L, N))


def test_a_part_of_a_model_in_closed_form_cannot_be_solved_alone() -> None:
    model = create_model("ridge", lookback=L, horizon=H, channels=N)
    with pytest.raises(InputError, match="parameters is 'weight'; a model in closed form is solved as a whole"):
        fit(model, windows(), windows(seed=1), **TRAINING, parameters="weight")
