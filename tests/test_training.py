"""The loop: what it computes, when it stops, what it leaves alone, what it refuses."""

import math
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import primecast.training.loop as training
from primecast.data.windows import Batch
from primecast.errors import InputError, TrainingError
from primecast.models import create_model
from primecast.models.naive import SeasonalNaive
from primecast.nn.losses import LOSSES, Loss, create_loss
from primecast.training.device import keep_large_blocks
from primecast.training.loop import (
    History,
    Scores,
    evaluate,
    fit,
    predict,
    predict_batches,
)
from primecast.training.optimizer import SCHEDULES

LOOKBACK, HORIZON, CHANNELS, TIME_FEATURES = 7, 3, 5, 2
TRAIN, VAL = 23, 19


class Source:
    """So many windows of a noisy wave; it remembers which ones were asked for."""

    def __init__(self, windows: int, *, seed: int, time_features: bool = True) -> None:
        rows = windows + LOOKBACK + HORIZON - 1
        wave = torch.sin(torch.arange(rows)[:, None] * torch.linspace(0.3, 1.1, CHANNELS))
        noise = torch.randn(rows, CHANNELS, generator=torch.Generator().manual_seed(seed))
        self.series = wave + 0.3 * noise
        self.time_features = self.series[:, :TIME_FEATURES].cos() if time_features else None
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return len(self.series) - LOOKBACK - HORIZON + 1

    def batch(self, index: Tensor) -> Batch:
        self.asked.append(index.tolist())
        rows = index[:, None] + torch.arange(LOOKBACK + HORIZON)
        both = self.series[rows]
        return Batch(
            both[:, :LOOKBACK], both[:, LOOKBACK:], None if self.time_features is None else self.time_features[rows]
        )


class Tiny(nn.Module):
    """A network of each channel alone, with dropout and a term from the calendar."""

    def __init__(self, *, width: int = 11, dropout: float = 0.2) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Linear(LOOKBACK, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, HORIZON)
        self.header = nn.Linear(TIME_FEATURES, 1)

    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        forecast = self.head(self.dropout(torch.tanh(self.body(x.mT)))).mT
        return forecast if time_features is None else forecast + self.header(time_features[:, -HORIZON:])


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def train_tiny(model: nn.Module | None = None, train: Source | None = None, **changes: Any) -> History:
    """fit with small settings, some of them changed."""
    settings: dict[str, Any] = {
        "loss": F.mse_loss,
        "lr": 0.01,
        "batch_size": 5,
        "epochs": 3,
        "patience": 3,
        "seed": 2,
        "progress": "off",
        "val": Source(VAL, seed=1),
    }
    if train is None:
        train = Source(TRAIN, seed=0)
    return fit(model or Tiny(), train, **(settings | changes))


# ---------------------------------------------------------------- the loop


def test_fit_is_the_loop_one_would_write_by_hand() -> None:
    model, train, val = Tiny(), Source(TRAIN, seed=0), Source(VAL, seed=1)
    history = train_tiny(model, train, val=val, epochs=4, schedule="halving")

    twin = Tiny()
    optimizer = torch.optim.Adam(twin.parameters(), fused=True)
    shuffle = torch.Generator().manual_seed(2)
    torch.manual_seed(2)
    best, best_mse = weights(twin), math.inf
    for epoch, rate in enumerate([0.01, 0.01, 0.005, 0.0025], start=1):
        optimizer.param_groups[0]["lr"] = rate
        twin.train()
        losses = []
        for index in torch.randperm(TRAIN, generator=shuffle).split(5)[:4]:
            x, y, time_features = train.batch(index)
            loss = F.mse_loss(twin(x, time_features), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        twin.eval()
        x, y, time_features = val.batch(torch.arange(VAL))
        with torch.no_grad():
            mse = F.mse_loss(twin(x, time_features).double(), y.double()).item()
        if mse <= best_mse:
            best, best_mse = weights(twin), mse
        row = history.epochs[epoch - 1]
        assert (row.epoch, row.lr) == (epoch, rate)
        assert row.train_loss == pytest.approx(np.mean(losses), rel=1e-12)
        assert row.val_mse == pytest.approx(mse, rel=1e-6)
    assert same(weights(model), best)
    assert history.steps == 16
    assert not history.stopped_early
    assert not model.training
    assert history.best.val_mse == min(row.val_mse for row in history.epochs) < history.epochs[0].val_mse
    assert history.seconds == sum(row.seconds for row in history.epochs) > 0


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("halving", [1, 1] + [2.0**-k for k in range(1, 9)]),
        ("halving-early", [2.0**-k for k in range(10)]),
        ("tenth", [10.0**-k for k in range(10)]),
        ("cosine", [(1 + math.cos(math.pi * k / 10)) / 2 for k in range(10)]),
        ("constant", [1] * 10),
    ],
)
def test_schedules_give_the_learning_rates_of_the_published_code(name: str, factors: list[float]) -> None:
    assert [SCHEDULES[name](epoch, 10) for epoch in range(1, 11)] == pytest.approx(factors)


def test_cosine_schedule_is_torchs() -> None:
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7, eta_min=1e-8)
    for epoch in range(1, 8):
        assert SCHEDULES["cosine"](epoch, 7) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-7)
        optimizer.step()
        scheduler.step()


def test_each_epoch_takes_every_window_once_in_a_new_order() -> None:
    train = Source(TRAIN, seed=0)
    train_tiny(train=train, epochs=2, drop_last=False)
    batches = train.asked[1:]  # the first is the fingerprint
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3] * 2
    first, second = [*chain(*batches[:5])], [*chain(*batches[5:])]
    assert sorted(first) == sorted(second) == list(range(TRAIN))
    assert first != second != sorted(second)


def test_the_loss_of_an_epoch_is_a_mean_over_windows_not_over_batches() -> None:
    class Constant(Tiny):
        def training_loss(self, x: Tensor, y: Tensor, time_features: Tensor | None, loss: Loss) -> Tensor:
            return float(len(x)) + 0 * self.head.weight.sum()

    assert train_tiny(Constant(), epochs=1, drop_last=False).best.train_loss == (4 * 5 * 5 + 3 * 3) / TRAIN


def test_the_last_short_batch_is_dropped_unless_asked_for() -> None:
    train = Source(TRAIN, seed=0)
    assert train_tiny(train=train, epochs=1).steps == 4
    assert [len(batch) for batch in train.asked[1:]] == [5, 5, 5, 5]
    assert train_tiny(epochs=1, drop_last=False).steps == 5


def test_fewer_windows_than_one_batch_are_one_batch() -> None:
    train = Source(TRAIN, seed=0)
    assert train_tiny(train=train, epochs=2, batch_size=29).steps == 2
    assert sorted(train.asked[1]) == list(range(TRAIN))


def test_the_seed_decides_order_and_dropout_and_nothing_else_does() -> None:
    models = [Tiny() for _ in range(3)]
    for model, seed, noise in zip(models, (2, 2, 13), (5, 7, 11), strict=True):
        torch.manual_seed(noise)
        train_tiny(model, seed=seed)
    assert same(weights(models[0]), weights(models[1]))
    assert not same(weights(models[0]), weights(models[2]))


def test_the_callers_random_state_is_left_as_it_was() -> None:
    model = Tiny()
    before = torch.get_rng_state()
    train_tiny(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_may_make_its_own_training_loss() -> None:
    class Own(Tiny):
        def training_loss(self, x: Tensor, y: Tensor, time_features: Tensor | None, loss: Loss) -> Tensor:
            assert time_features is not None
            assert x.shape == (5, LOOKBACK, CHANNELS)
            assert time_features.shape == (5, LOOKBACK + HORIZON, TIME_FEATURES)
            return 1000 + 0 * loss(self(x, time_features), y)

    model = Own()
    before = weights(model)
    history = train_tiny(model, epochs=1)
    assert history.best.train_loss == 1000
    assert same(weights(model), before)


def test_windows_without_time_features_are_windows_too() -> None:
    history = train_tiny(train=Source(TRAIN, seed=0, time_features=False), val=Source(VAL, seed=1, time_features=False))
    assert history.best.val_mse < history.epochs[0].train_loss


# ---------------------------------------------------------------- when it stops


def scripted(monkeypatch: pytest.MonkeyPatch, errors: list[float]) -> list[dict[str, Tensor]]:
    """Validation errors as written down; returns the weights that were scored, epoch by epoch."""
    seen: list[dict[str, Tensor]] = []
    real = evaluate

    def score(model: nn.Module, windows: Source, **how: Any) -> Scores:
        seen.append(weights(model))
        scores = real(model, windows, **how)
        return Scores(**vars(scores) | {"mse": errors[len(seen) - 1]})

    monkeypatch.setattr(training, "evaluate", score)
    return seen


def test_training_stops_after_patience_and_restores_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scripted(monkeypatch, [5.0, 4.0, 4.5, 4.4, 4.1, 0.0])
    model = Tiny()
    history = train_tiny(model, epochs=6, patience=3, schedule="constant")
    assert [row.val_mse for row in history.epochs] == [5.0, 4.0, 4.5, 4.4, 4.1]
    assert (history.best_epoch, history.best.val_mse, history.stopped_early) == (2, 4.0, True)
    assert same(weights(model), seen[1])
    assert not same(weights(model), seen[4])


def test_a_tie_counts_as_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scripted(monkeypatch, [4.0, 4.5, 4.0, 4.5, 4.6])
    model = Tiny()
    history = train_tiny(model, epochs=5, patience=2, schedule="constant")
    assert (history.best_epoch, len(history.epochs), history.stopped_early) == (3, 5, False)
    assert same(weights(model), seen[2])


# ---------------------------------------------------------------- part of the parameters


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_a_named_part_is_trained_and_the_rest_stays() -> None:
    model = Tiny()
    before = weights(model)
    train_tiny(model, parameters="head")
    assert changed(before, weights(model)) == {"head.weight", "head.bias"}
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_a_predicate_chooses_parameters_and_frozen_ones_stay_frozen() -> None:
    model = Tiny()
    model.body.bias.requires_grad_(False)
    before = weights(model)
    train_tiny(model, parameters=lambda name: name.endswith("bias"))
    assert changed(before, weights(model)) == {"head.bias", "header.bias"}
    assert not model.body.bias.requires_grad


def test_an_unknown_part_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InputError, match=r"unknown part of the model 'hed' .*allowed: body, head, header$"):
        train_tiny(parameters="hed")


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(InputError, match=r"Tiny has nothing to train: of its parameters 6 require a gradient"):
        train_tiny(parameters=lambda name: False)


# ---------------------------------------------------------------- learning rates of parts


def test_lr_factors_are_parameter_groups_of_torchs_adam() -> None:
    model, train = Tiny(dropout=0.0), Source(TRAIN, seed=0)
    train_tiny(model, train, epochs=1, lr_factors={"head": 3.0, "body": 0.5, "body.bias": 7})

    twin = Tiny(dropout=0.0)
    groups = [
        {"params": [twin.body.weight], "lr": 0.005},
        {"params": [twin.body.bias], "lr": 0.07},
        {"params": twin.head.parameters(), "lr": 0.03},
        {"params": twin.header.parameters(), "lr": 0.01},
    ]
    optimizer = torch.optim.Adam(groups, fused=True)
    for index in torch.randperm(TRAIN, generator=torch.Generator().manual_seed(2)).split(5)[:4]:
        x, y, time_features = train.batch(index)
        optimizer.zero_grad()
        F.mse_loss(twin(x, time_features), y).backward()
        optimizer.step()
    torch.testing.assert_close(weights(model), weights(twin), rtol=1e-6, atol=1e-8)


def test_an_lr_factor_of_one_changes_no_bit() -> None:
    plain, rated = Tiny(), Tiny()
    assert train_tiny(plain).best.val_mse == train_tiny(rated, lr_factors={"head": 1.0}).best.val_mse
    assert same(weights(plain), weights(rated))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr_factors": {"hed": 2.0}}, r"unknown part of the model 'hed' .*allowed: body, head, header$"),
        ({"lr_factors": {"body": 2.0}, "parameters": "head"}, r"unknown part of the model 'body'; allowed: head$"),
        ({"lr_factors": {"head": 0.0}}, r"the lr_factor of 'head' is 0\.0; it must be a finite number above 0$"),
        ({"lr_factors": {"head": math.inf}}, r"the lr_factor of 'head' is inf; it must be"),
    ],
)
def test_lr_factors_that_cannot_be_used_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_tiny(**changes)


# ---------------------------------------------------------------- precision


def test_a_bf16_run_ends_near_the_float32_one_with_float32_weights() -> None:
    single, half = Tiny(dropout=0.0), Tiny(dropout=0.0)
    seen: set[torch.dtype] = set()
    half.body.register_forward_hook(lambda module, inputs, out: seen.add(out.dtype))
    settings: dict[str, Any] = {"epochs": 5, "drop_last": False}
    histories = train_tiny(single, **settings), train_tiny(half, **settings, precision="bf16")
    assert seen == {torch.bfloat16}
    assert {tensor.dtype for tensor in weights(half).values()} == {torch.float32}
    losses = [[row.train_loss for row in history.epochs] for history in histories]
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.01)
    assert losses[1][-1] < 0.6 * losses[1][0]
    assert histories[1].best.val_mse == pytest.approx(histories[0].best.val_mse, rel=0.01)


@pytest.mark.parametrize(("primer", "name"), [("full", "mse"), *((None, name) for name in sorted(LOSSES))])
def test_attention_trains_in_bf16_with_every_loss(primer: str | None, name: str) -> None:
    def train(precision: str) -> tuple[float, float]:
        model = create_model(
            "itransformer", lookback=LOOKBACK, horizon=HORIZON, channels=CHANNELS, n_time_features=TIME_FEATURES,
            d_model=22, n_heads=2, dropout=0.0, primer=primer, seed=0,
        )  # fmt: skip
        history = train_tiny(model, loss=create_loss(name), precision=precision)
        assert all(torch.isfinite(tensor).all() for tensor in weights(model).values())
        return history.epochs[-1].train_loss, history.best.val_mse

    np.testing.assert_allclose(train("bf16"), train("float32"), rtol=0.03)


def test_scores_and_forecasts_in_bf16_are_near_and_float32() -> None:
    model, windows = Tiny(), Source(VAL, seed=1)
    single, half = predict(model, windows), predict(model, windows, precision="bf16")
    assert half.dtype == torch.float32
    assert not torch.equal(single, half)
    torch.testing.assert_close(half, single, rtol=0.02, atol=0.02)
    scores = evaluate(model, windows, precision="bf16")
    assert scores.mse == pytest.approx(evaluate(model, windows).mse, rel=0.01)
    _, y, _ = windows.batch(torch.arange(VAL))
    assert scores.mse == pytest.approx(F.mse_loss(half, y).item(), rel=1e-5)


# ---------------------------------------------------------------- what goes wrong


def test_a_learning_rate_that_is_too_high_is_named_with_epoch_and_step() -> None:
    train = Source(TRAIN, seed=0)
    with pytest.raises(TrainingError, match=r"loss is (nan|inf) at epoch \d+, step \d+: the learning rate 1e\+30 is"):
        train_tiny(train=train, lr=1e30)


@pytest.mark.parametrize(("part", "row"), [("y", -1), ("x", 0)])
def test_values_that_are_not_finite_are_named_with_epoch_and_step(part: str, row: int) -> None:
    train = Source(TRAIN, seed=0)
    train.series[row, 2] = math.nan  # of one window: the last one's future, or the first one's past
    with pytest.raises(TrainingError, match=rf"nan at epoch 1, step [1-5]: {part} of this batch holds values"):
        train_tiny(train=train, drop_last=False)


def test_a_model_that_overflows_at_once_is_not_attributed_to_the_learning_rate() -> None:
    model = Tiny()
    nn.init.constant_(model.head.bias, math.inf)
    with pytest.raises(TrainingError, match=r"inf at epoch 1, step 1, before the first update, though its batch is"):
        train_tiny(model)


def test_validation_windows_that_are_not_finite_stop_training() -> None:
    val = Source(VAL, seed=1)
    val.series[-1, 0] = math.inf
    with pytest.raises(TrainingError, match=r"validation error is inf after epoch 1: the validation windows hold"):
        train_tiny(val=val)


def test_a_training_that_cannot_go_on_leaves_the_best_weights_in_eval_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scripted(monkeypatch, [5.0, 4.0, 4.5, math.nan])
    model = Tiny()
    with pytest.raises(TrainingError, match="the validation error is nan after epoch 4"):
        train_tiny(model, epochs=5, schedule="constant")
    assert same(weights(model), seen[1]) and not same(weights(model), seen[3])
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_loss_that_is_not_finite_leaves_the_best_weights_so_far(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    seen = scripted(monkeypatch, [5.0, 4.0])
    model, calls = Tiny(), []
    start = weights(model)

    def loss(forecast: Tensor, truth: Tensor) -> Tensor:
        calls.append(1)
        return F.mse_loss(forecast, truth) * (math.nan if len(calls) == 4 * (epoch - 1) + 2 else 1)

    with pytest.raises(TrainingError, match=f"the training loss is nan at epoch {epoch}, step 2"):
        train_tiny(model, loss=loss)
    assert same(weights(model), start if epoch == 1 else seen[1])
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, r"lr is 0\.0; it must be a finite number above 0"),
        ({"lr": math.nan}, r"lr is nan; it must be"),
        ({"batch_size": 0}, r"batch_size is 0; it must be a whole number of at least 1"),
        ({"epochs": 0}, r"epochs is 0; it must be a whole number of at least 1"),
        ({"patience": 0}, r"patience is 0; it must be a whole number of at least 1"),
        ({"save_every": 0}, r"save_every is 0; it must be a whole number of at least 1"),
        (
            {"schedule": "halfing"},
            r"unknown schedule 'halfing' \(did you mean 'halving'\?\); allowed: constant, cosine",
        ),
        ({"progress": "loud"}, r"unknown progress 'loud'; allowed: auto, bar, lines, off"),
        ({"device": "tpu"}, r"unknown device 'tpu'.*; allowed: cpu"),
        ({"device": "cpu:x"}, r"unknown device 'cpu:x'.*; allowed: cpu"),
        ({"device": ""}, r"unknown device ''; allowed: cpu"),
        ({"precision": "float16"}, r"unknown precision 'float16'.*; allowed: bf16, float32"),
        ({"seed": -1}, r"seed is -1; it must be a whole number of at least 0 and of at most 9223372036854775807"),
        ({"seed": 2**63}, r"seed is 9223372036854775808; it must be a whole number"),
        ({"train": Source(0, seed=0)}, r"training windows is 0; it must be a whole number of at least 1"),
        ({"val": Source(0, seed=0)}, r"validation windows is 0; it must be a whole number of at least 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_that_cannot_be_used_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_tiny(**changes)


def test_numbers_of_numpy_and_a_folder_as_text_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no such checks
    whole = {"batch_size": np.int64(5), "epochs": np.int32(3), "patience": np.int64(3), "seed": np.uint8(2)}
    plain, numpys, again = Tiny(), Tiny(), Tiny()
    train_tiny(plain, lr=float(np.float32(0.01)), lr_factors={"head": 0.5})
    given: dict[str, Any] = {
        **whole,
        "lr": np.float32(0.01),
        "lr_factors": {"head": np.float64(0.5)},
        "save_every": np.int16(2),
    }
    train_tiny(numpys, **given, state=str(tmp_path))
    train_tiny(again, lr=float(np.float32(0.01)), lr_factors={"head": 0.5}, state=tmp_path)
    assert same(weights(plain), weights(numpys)) and same(weights(plain), weights(again))
    assert evaluate(plain, Source(VAL, seed=1), batch_size=np.int64(7)).windows == VAL  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["batch_size", "epochs", "patience", "save_every", "seed"])
def test_numbers_that_are_not_whole_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no such checks
    with pytest.raises(InputError, match=rf"{name} is 2\.5; it must be a whole number"):
        train_tiny(None, None, **{name: 2.5})


def test_the_largest_seed_is_a_seed() -> None:
    assert train_tiny(seed=2**63 - 1, epochs=1).steps == 4


def test_a_gpu_that_is_not_there_is_refused_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device in ("cuda:2", "cuda:-1", "cuda:", "cuda:x"):
        with pytest.raises(InputError, match=rf"unknown device '{device}'.*; allowed: cpu, cuda, cuda:0, cuda:1"):
            evaluate(Tiny(), Source(VAL, seed=1), device=device)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            partial(F.mse_loss, reduction="none"),
            r"the loss torch\.nn\.functional\.mse_loss\(reduction='none'\) gives a tensor of \(5, 3, 5\); it",
        ),
        (lambda forecast, truth: 3.0, r"gives a float; it must be one number in a tensor, such as a mean$"),
        (lambda forecast, truth: truth.mean(), r"does not depend on any of the parameters to train$"),
    ],
    ids=["not reduced", "no tensor", "no gradient"],
)
def test_a_loss_that_is_none_is_refused(loss: Loss, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_tiny(loss=loss)


def test_a_model_that_returns_more_than_a_forecast_is_refused() -> None:
    class Pair(Tiny):
        def forward(self, x: Tensor, time_features: Tensor | None = None) -> tuple[Tensor, None]:  # type: ignore[override]
            return super().forward(x, time_features), None

    for use in (train_tiny, lambda model: evaluate(model, Source(VAL, seed=1))):
        with pytest.raises(InputError, match=r"^Pair returns a tuple; a forecast must be one tensor$"):
            use(Pair())


def test_a_forecast_of_the_wrong_shape_is_refused_before_it_is_broadcast() -> None:
    class Short(Tiny):
        def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
            return super().forward(x, time_features)[:, :1]

    with pytest.raises(InputError, match=r"forecasts \(5, 1, 5\) where the windows hold \(5, 3, 5\)"):
        train_tiny(Short())
    with pytest.raises(InputError, match=r"forecasts \(19, 1, 5\) where the windows hold \(19, 3, 5\)"):
        evaluate(Short(), Source(VAL, seed=1))


# ---------------------------------------------------------------- scoring and forecasting


def test_scores_are_plain_means_over_windows_steps_and_channels() -> None:
    model, windows = Tiny(), Source(VAL, seed=1)
    scores = evaluate(model, windows, batch_size=5)
    x, y, time_features = windows.batch(torch.arange(VAL))
    model.eval()
    error = (model(x, time_features) - y).detach().double().numpy()
    assert scores.windows == VAL
    for kind, values in {"mse": error**2, "mae": abs(error)}.items():
        assert getattr(scores, kind) == pytest.approx(values.mean(), rel=1e-6)
        for axis, axes in {"step": (0, 2), "channel": (0, 1), "window": (1, 2)}.items():
            array = getattr(scores, f"{axis}_{kind}")
            assert array.dtype == np.float64
            assert array.mean() == pytest.approx(getattr(scores, kind), rel=1e-12)
            np.testing.assert_allclose(array, values.mean(axis=axes), rtol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 7, 18, 19, 256])
def test_scores_do_not_depend_on_the_batch_size_and_count_the_tail(batch_size: int) -> None:
    windows = Source(VAL, seed=1)
    windows.series[-1] += 100  # an error only the last window has
    whole, split = evaluate(Tiny(), windows), evaluate(Tiny(), windows, batch_size=batch_size)
    assert whole.window_mse[-1] > 1000 > 10 > whole.window_mse[:-1].max()
    for name, value in vars(whole).items():
        np.testing.assert_allclose(vars(split)[name], value, rtol=1e-6)


def test_sums_do_not_lose_small_errors_beside_a_large_one() -> None:
    class Zero(nn.Module):
        def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
            return torch.zeros(len(x), HORIZON, CHANNELS)

    windows = Source(VAL, seed=1)
    windows.series[:] = 1.0
    windows.series[LOOKBACK] = 2.0**13  # its square is 2^26, beside which float32 cannot see a 1
    cells = VAL * HORIZON * CHANNELS
    assert evaluate(Zero(), windows, batch_size=7).mse == (CHANNELS * 2.0**26 + cells - CHANNELS) / cells


def test_scoring_knows_no_dropout_and_leaves_every_mode_as_it_was() -> None:
    model = Tiny(dropout=0.9)
    model.train()
    model.head.eval()
    assert evaluate(model, Source(VAL, seed=1)).mse == evaluate(Tiny(dropout=0.0), Source(VAL, seed=1)).mse
    assert model.training and model.dropout.training and not model.head.training
    model.dropout.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate(model, Source(VAL, seed=1))
    assert model.training and model.dropout.training and not model.head.training
    assert not torch.is_inference_mode_enabled()


def test_predict_gives_every_window_in_order_as_an_ordinary_tensor() -> None:
    model, windows = Tiny(), Source(VAL, seed=1)
    forecast = predict(model, windows, batch_size=7)
    x, _, time_features = windows.batch(torch.arange(VAL))
    torch.testing.assert_close(forecast, model.eval()(x, time_features).detach())
    assert not forecast.is_inference()
    gain = torch.ones(1, requires_grad=True)
    (forecast * gain).sum().backward()
    assert gain.grad is not None


def test_predict_takes_the_windows_asked_for_in_their_order() -> None:
    model, windows = Tiny(), Source(VAL, seed=1)
    index = torch.tensor([3, 17, 5, 5, 11])
    everything, chosen = predict(model, windows), predict(model, windows, index=index, batch_size=2)
    torch.testing.assert_close(chosen, everything[index])
    assert windows.asked[1:] == [[3, 17], [5, 5], [11]]
    with pytest.raises(InputError, match="number of windows is 0; it must be a whole number of at least 1"):
        predict(model, windows, index=index[:0])


def test_hooks_have_run_when_a_batch_is_yielded_and_modes_are_as_they_were() -> None:
    model, windows, seen = Tiny(), Source(VAL, seed=1), []
    model.train()
    model.head.register_forward_hook(lambda module, inputs, out: seen.append(module.training))
    for index, forecast, truth in predict_batches(model, windows, batch_size=7):
        assert seen == [False] and model.training
        assert torch.equal(truth, windows.batch(index).y) and forecast.shape == truth.shape
        seen.clear()


@pytest.mark.parametrize("score", [evaluate, predict])
def test_scoring_leaves_the_model_on_its_device_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, score: Callable[..., object]
) -> None:
    """There is one device here, so where the model is moved to is written down instead."""
    model, windows, moves = Tiny(), Source(VAL, seed=1), []
    monkeypatch.setattr(model, "to", lambda device: moves.append(device))
    monkeypatch.setattr(training, "_gather", lambda windows, index, device: windows.batch(index))
    score(model, windows)
    model.body.to("meta")  # the first parameter says where the model is
    monkeypatch.setattr(model, "forward", lambda x, time_features: torch.zeros(len(x), HORIZON, CHANNELS))
    monkeypatch.setattr(training, "autocast", lambda precision, device: torch.no_grad())
    score(model, windows)
    score(model, windows, device="cpu")
    assert moves == [torch.device("cpu"), torch.device("meta"), torch.device("cpu")]


def test_a_model_without_parameters_is_scored_on_the_cpu() -> None:
    model = SeasonalNaive(lookback=LOOKBACK, horizon=HORIZON, channels=CHANNELS, season=2)
    assert predict(model, Source(VAL, seed=1)).shape[0] == VAL


@pytest.mark.parametrize("score", [evaluate, predict])
def test_no_windows_and_no_batch_are_refused(score: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="windows is 0; it must be a whole number of at least 1"):
        score(Tiny(), Source(0, seed=0))
    with pytest.raises(InputError, match="batch_size is -1; it must be a whole number of at least 1"):
        score(Tiny(), Source(VAL, seed=0), batch_size=-1)


# ---------------------------------------------------------------- what is shown


def test_without_a_terminal_each_epoch_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    history = train_tiny(progress="auto")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 3
    assert lines[2].startswith("epoch 3/3  lr 0.005  loss ")
    assert f"val mse {history.epochs[2].val_mse:.4f}" in lines[2]


def test_the_bar_shows_epoch_step_loss_and_validation_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    history = train_tiny(progress="bar")
    out, err = capsys.readouterr()
    assert out == ""
    assert "epoch 3/3" in err
    assert "step 4/4" in err
    assert f"loss {history.epochs[2].train_loss:.4f}" in err
    assert f"val {history.epochs[2].val_mse:.4f}" in err


def test_off_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    train_tiny(progress="off")
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------- the allocator


def test_the_allocator_is_told_unless_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(training, "keep_large_blocks", lambda: calls.append(True))
    train_tiny(epochs=1, keep_blocks=False)
    assert calls == []
    train_tiny(epochs=1)
    assert calls == [True]


def test_the_allocator_is_left_alone_where_it_is_not_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        pass

    monkeypatch.setattr("ctypes.CDLL", lambda name: Other())
    assert keep_large_blocks() is False
    monkeypatch.setattr("sys.platform", "darwin")
    assert keep_large_blocks() is False


def test_the_allocator_accepts_both_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []

    class Glibc:
        def mallopt(self, what: int, value: int) -> int:
            given.append((what, value))
            return int(value <= 32 << 20)  # an old one

    monkeypatch.setattr("ctypes.CDLL", lambda name: Glibc())
    monkeypatch.setattr("sys.platform", "linux")
    assert keep_large_blocks() is True
    assert given == [(-3, 1 << 30), (-3, 32 << 20), (-1, -1)]


def test_nothing_is_written_without_a_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train_tiny(epochs=1)
    assert list(tmp_path.iterdir()) == []
