"""The only loops: `fit` trains, `predict` forecasts, `evaluate` scores.

    for each epoch:   shuffle ─> for each batch: loss, gradient, Adam ─> score on validation ─> keep if best, or stop

The protocol is that of the benchmarks: Adam, learning rate halved per epoch from the third on, early stopping on
validation, best weights restored. One thing differs: validation and test count every window once, so no score depends
on the batch size.

The result depends on the arguments only: same seed, same bits. With a `state` folder a run can be killed at any moment:
weights, moments, random generators and progress are written together into one file, and the same call resumes there
and ends with the same bits. Under torchrun several processes train together: see `primecast.training.distributed`.

Letters: b batch, l look-back, h horizon, n channels, m time features, w windows.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from primecast.data.windows import Batch, WindowSource
from primecast.errors import InputError, TrainingError, show
from primecast.nn.losses import Loss
from primecast.schema import checked
from primecast.training.checkpoint import EpochRow, TrainingProgress, TrainingRun, lock_state_dir
from primecast.training.device import autocast, keep_large_blocks, select_device
from primecast.training.distributed import join
from primecast.training.optimizer import SCHEDULES, Adam, expand_factors, require_grad_only, select_parameters
from primecast.training.progress import Display
from primecast.training.settings import (
    TRAINING_RULES,
    TrainingSettings,
    at_least_one,
    describe,
    describe_model,
    describe_run,
)
from primecast.training.signals import HeldSignals, hold_signals

# ---------------------------------------------------------------- results


@dataclass(frozen=True)
class History:
    """What happened in a run; `best_epoch` is the one whose weights the model has now."""

    epochs: tuple[EpochRow, ...]
    best_epoch: int
    seconds: float
    steps: int
    stopped_early: bool

    @classmethod
    def of(cls, progress: TrainingProgress, *, epochs: int) -> "History":
        """Return the history of a run that was to have so many epochs."""
        rows = tuple(progress.rows)
        seconds = sum(row.seconds for row in rows)
        return cls(rows, progress.best_epoch, seconds, progress.steps, len(rows) < epochs)

    @property
    def best(self) -> EpochRow:
        return self.epochs[self.best_epoch - 1]


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Errors over windows × steps × channels, summed in float64 and then divided; each array keeps one of the axes."""

    mse: float
    mae: float
    windows: int
    step_mse: Float64[np.ndarray, "h"]
    step_mae: Float64[np.ndarray, "h"]
    channel_mse: Float64[np.ndarray, "n"]
    channel_mae: Float64[np.ndarray, "n"]
    window_mse: Float64[np.ndarray, "w"]
    window_mae: Float64[np.ndarray, "w"]

    def __repr__(self) -> str:
        lines = [f"Scores of {self.windows} windows, {len(self.step_mse)} steps, {len(self.channel_mse)} channels"]
        for name in ("mse", "mae"):
            step, channel = getattr(self, f"step_{name}"), getattr(self, f"channel_{name}")
            lines.append(
                f"{name.upper()} {getattr(self, name):.4g}: {step[0]:.4g} at the first step, {step[-1]:.4g} at the "
                f"last; {channel.min():.4g} to {channel.max():.4g} by channel"
            )
        return "\n".join(lines)


# ---------------------------------------------------------------- training


@checked(**TRAINING_RULES)
def fit(
    model: nn.Module, train: WindowSource, val: WindowSource, *,
    loss: Loss, lr: float, batch_size: int, epochs: int, patience: int, seed: int,
    schedule: str = "halving", drop_last: bool = True,
    parameters: Callable[[str], bool] | str | None = None, lr_factors: Mapping[str, float] | None = None,
    precision: str = "float32", device: str = "cpu", keep_blocks: bool = True,
    state: Path | str | None = None, save_every: int = 200, progress: str = "auto",
) -> History:  # fmt: skip
    """Train the model in place; it ends in eval mode, on `device`, with the weights of its best epoch.

    An error ends training in the same way; before the end of the first epoch, with the weights it began with.
    Under torchrun all processes must call it, with the same arguments; `batch_size` is that of all together.

    loss:        of forecast and truth; a model with a method `training_loss(x, y, time_features, loss)` uses that.
                 One with a method `solve(train, val)` is solved in closed form instead, which counts as one epoch.
    patience:    stop after so many epochs in a row that are worse than the best; a tie counts as improvement.
    seed:        of the order of windows and of dropout; the caller's random state is left as it was.
    schedule:    of the learning rate, a name in SCHEDULES.
    drop_last:   leave out an epoch's last, short batch, unless it is the only one.
    parameters:  train only these: the name of a part of the model ("head"), or a predicate over parameter names.
    lr_factors:  factors on lr for named parts, {"primer": 10.0}; the innermost part of a parameter counts.
    precision:   a name in PRECISIONS, also for the validation scores.
    device:      "cpu", "cuda", "cuda:1", "mps". Only the CPU is tested; only there a resumed run gives the same bits.
    keep_blocks: see `keep_large_blocks`.
    state:       a folder for this run alone, written every `save_every` steps, after epochs, before Ctrl-C and SIGTERM
                 take effect. A call that finds a state there resumes it. The loss must have a name of its own.
    progress:    "bar", "lines" (one per epoch) or "off", on stderr; "auto" is a bar on a terminal, else lines.
    """
    settings = TrainingSettings(
        lr=lr, batch_size=batch_size, epochs=epochs, patience=patience, seed=seed, schedule=schedule,
        drop_last=drop_last, lr_factors=dict(lr_factors or {}), precision=precision,
        state=None if state is None else Path(state), save_every=save_every,
    )  # fmt: skip
    target = select_device(device, model)
    if keep_blocks:
        keep_large_blocks()
    if hasattr(model, "solve"):
        return _solve(model.to(target), train, val, batch_size=batch_size, parameters=parameters)
    selected = select_parameters(model, parameters)
    group = join(target)
    model.to(target)
    optimizer = Adam(selected, expand_factors(selected, settings.lr_factors))
    steps = settings.steps(len(train))
    description, parts = describe_run(train, val, loss, settings, group.size), describe_model(model, selected)
    group.check_equal({**description, "model": parts, "save_every": settings.save_every, "state": str(state)})
    with (
        require_grad_only(model, selected),
        torch.random.fork_rng(devices=[target] if target.type == "cuda" else []),
        hold_signals(settings.state is not None and group.size == 1) as held,  # of a group, none can save alone
        lock_state_dir(settings.state, group),
        Display(progress, shown=group.is_main, epochs=settings.epochs, steps=steps) as display,
    ):
        run = TrainingRun(model, optimizer, {**parts, **description}, settings, steps, target, group)
        if run.resume():
            display.resumed(run.progress)
        try:
            _train(run, train, val, loss, display, held)
        finally:
            run.restore_best()
    return History.of(run.progress, epochs=settings.epochs)


def _solve(model: nn.Module, train: WindowSource, val: WindowSource, *, batch_size: int, parameters: object) -> History:
    """Solve the model in closed form; its history is one epoch without learning rate and training loss."""
    if parameters is not None:
        raise InputError(f"parameters is {show(parameters)}; a model in closed form is solved as a whole")
    began = time.perf_counter()
    model.train()
    model.solve(train, val)  # type: ignore[operator]
    model.eval()
    scores = evaluate(model, val, batch_size=batch_size)
    seconds = time.perf_counter() - began
    row = EpochRow(epoch=1, lr=0.0, train_loss=float("nan"), val_mse=scores.mse, val_mae=scores.mae, seconds=seconds)
    return History((row,), 1, seconds, 0, False)


def _train(
    run: TrainingRun, train: WindowSource, val: WindowSource, loss: Loss, display: Display, held: HeldSignals
) -> None:
    """Train from where the run stands to its last epoch, or until validation has not improved for too long."""
    model, settings, progress = run.model, run.settings, run.progress
    steps, batch_size = run.steps, settings.batch_size
    while not progress.finished:
        lr = settings.lr * SCHEDULES[settings.schedule](progress.epoch, settings.epochs)
        order = run.draw_order(len(train))
        began = time.perf_counter() - progress.seconds
        model.train()
        while progress.step < steps:
            index = order[progress.step * batch_size : (progress.step + 1) * batch_size]
            value = _train_step(run, train, index, loss, lr)
            progress.end_step(value, windows=len(index))
            progress.seconds = time.perf_counter() - began
            display.step(progress)
            if progress.step < steps and (progress.steps % settings.save_every == 0 or held.pending):
                run.save()
                held.deliver()

        # At the training batch size: it is known to fit into memory.
        scores = evaluate(model, val, batch_size=batch_size, precision=settings.precision)
        if not math.isfinite(scores.mse):
            raise TrainingError(
                f"the validation error is {scores.mse} after epoch {progress.epoch}: the validation windows hold "
                f"values that are not finite, or the learning rate {lr:g} is too high"
            )
        progress.seconds = time.perf_counter() - began
        train_loss = progress.loss_sum / progress.windows
        row = EpochRow(progress.epoch, lr, train_loss, scores.mse, scores.mae, progress.seconds)
        run.end_epoch(row)
        display.row(row)
        run.save()
        held.deliver()


def _train_step(run: TrainingRun, train: WindowSource, index: Int64[Tensor, "b"], loss: Loss, lr: float) -> float:
    """Update the weights by the gradient of one batch, whose windows the processes divide; return its loss."""
    own = run.group.own_part(index)
    batch, value = None, None
    if len(own):  # empty where there are fewer windows than processes
        batch = _gather(train, own, run.device)
        value = _training_loss(run.model, batch, loss, run.settings.precision)
        value.backward()
    parameters = list(run.optimizer.parameters.values())
    number = run.group.average(value, parameters, run.model, fraction=len(own) / len(index))
    if not math.isfinite(number):
        raise TrainingError(_why_not_finite(number, batch, run, lr))
    run.optimizer.step(lr)
    return number


def _training_loss(model: nn.Module, batch: Batch, loss: Loss, precision: str) -> Float[Tensor, ""]:
    """Return the model's own training loss if it has one, such as of next patches; else the loss of its forecast."""
    own = getattr(model, "training_loss", None)
    with autocast(precision, batch.x.device):
        value = loss(_forecast(model, batch), batch.y) if own is None else own(*batch, loss)
    if not isinstance(value, Tensor) or value.shape != ():
        given = f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputError(f"the loss {describe(loss)} gives {given}; it must be one number in a tensor, such as a mean")
    if not value.requires_grad:
        raise InputError(f"the loss {describe(loss)} does not depend on any of the parameters to train")
    return value


def _why_not_finite(value: float, batch: Batch | None, run: TrainingRun, lr: float) -> str:
    """Return one sentence, the same in all processes, whichever of them holds the cause."""
    progress = run.progress
    where = f"the training loss is {value} at epoch {progress.epoch}, step {progress.step + 1}"
    bad = [tensor is not None and not tensor.isfinite().all() for tensor in batch or (None, None, None)]
    counts = run.group.sum(torch.tensor(bad, dtype=torch.int64))
    for name, count in zip(Batch._fields, counts.tolist(), strict=True):
        if count:
            return f"{where}: {name} of this batch holds values that are not finite; fill or drop them in the data"
    if progress.steps == 0:
        return f"{where}, before the first update, though its batch is finite: the model or the loss itself overflows"
    return f"{where}: the learning rate {lr:g} is probably too high; try a tenth of it"


# ---------------------------------------------------------------- scoring and forecasting


@checked(batch_size=TRAINING_RULES["batch_size"])
def evaluate(
    model: nn.Module,
    windows: WindowSource,
    *,
    batch_size: int = 256,
    precision: str = "float32",
    device: str | None = None,
) -> Scores:
    """Score every window once; the batch size is a matter of memory, never of the result.

    device: where the model is moved to and stays; None leaves it where it is.

    Under torchrun all processes must call it: each scores a part of the windows, all get the scores of the whole.
    """
    count = at_least_one("number of windows", len(windows))
    group = join(select_device(device, model))
    own = group.own_part(torch.arange(count))
    _, horizon, channels = windows.batch(torch.tensor([0])).y.shape
    # For each kind of error, squared and absolute: sums over all but one axis.
    by_step = torch.zeros(2, horizon, dtype=torch.float64)
    by_channel = torch.zeros(2, channels, dtype=torch.float64)
    by_window = torch.zeros(2, count, dtype=torch.float64)
    batches = predict_batches(model, windows, index=own, batch_size=batch_size, precision=precision, device=device)
    for index, forecast, truth in batches:
        error = forecast - truth
        errors = torch.stack([error.square(), error.abs()])  # 2 b h n
        by_step += errors.sum((1, 3), dtype=torch.float64)
        by_channel += errors.sum((1, 2), dtype=torch.float64)
        by_window[:, index] = errors.sum((2, 3), dtype=torch.float64)
    step = (group.sum(by_step) / (count * channels)).numpy()
    channel = (group.sum(by_channel) / (count * horizon)).numpy()
    window = (group.sum(by_window) / (horizon * channels)).numpy()
    return Scores(float(window[0].mean()), float(window[1].mean()), count, *step, *channel, *window)


@checked(batch_size=TRAINING_RULES["batch_size"])
def predict(
    model: nn.Module,
    windows: WindowSource,
    *,
    index: Int64[Tensor, "w"] | None = None,
    batch_size: int = 256,
    precision: str = "float32",
    device: str | None = None,
) -> Float[Tensor, "w h n"]:
    """Return the forecast of every window, in order, on the CPU; a process that calls it forecasts all of them alone.

    The arguments are those of `predict_batches`.
    """
    at_least_one("number of windows", len(windows) if index is None else len(index))
    batches = predict_batches(model, windows, index=index, batch_size=batch_size, precision=precision, device=device)
    return torch.cat([forecast for _, forecast, _ in batches])


def predict_batches(
    model: nn.Module,
    windows: WindowSource,
    *,
    index: Int64[Tensor, "w"] | None = None,
    batch_size: int = 256,
    precision: str = "float32",
    device: str | None = None,
) -> Iterator[tuple[Int64[Tensor, "b"], Float[Tensor, "b h n"], Float[Tensor, "b h n"]]]:
    """Yield number, forecast and truth of the windows, batch by batch, in order; all on the CPU.

    This is the only inference loop: `predict` joins its batches, `evaluate` sums their errors. The model runs in eval
    mode and without gradients, and every part of it is put back into the mode it was in.

    windows: to change what the model sees, such as one channel set to its mean, pass an object whose `batch` returns
             the changed inputs. Where the future is not known, its `batch` returns any `y` of the right shape.
    index:   numbers of the windows to forecast; all of them by default.
    device:  where the model is moved to and stays; None leaves it where it is.

    To record what happens inside the model, register forward hooks before the iteration: when a batch is yielded, its
    hooks have run.
    """
    batch_size = at_least_one("batch_size", batch_size)
    index = torch.arange(len(windows)) if index is None else index
    target = select_device(device, model)
    model.to(target)
    for numbers in index.split(batch_size) if len(index) else ():
        batch = _gather(windows, numbers, target)
        with _inference(model), autocast(precision, target):
            forecast = _forecast(model, batch)
        yield numbers, forecast.to("cpu", batch.y.dtype), batch.y.cpu()


def _forecast(model: nn.Module, batch: Batch) -> Float[Tensor, "b h n"]:
    """Return the model's forecast, in the shape of the truth, so that no error is ever broadcast."""
    forecast = model(batch.x, batch.time_features)
    if not isinstance(forecast, Tensor):
        raise InputError(f"{type(model).__name__} returns a {type(forecast).__name__}; a forecast must be one tensor")
    if forecast.shape != batch.y.shape:
        raise InputError(
            f"the model forecasts {tuple(forecast.shape)} where the windows hold {tuple(batch.y.shape)} (windows, "
            "steps, channels); create it with the windows' horizon and channels"
        )
    return forecast


@contextmanager
def _inference(model: nn.Module) -> Iterator[None]:
    """Switch off dropout and gradients; afterwards every part is in the mode it was in."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, mode in before.items():
            module.training = mode


def _gather(windows: WindowSource, index: Int64[Tensor, "b"], device: torch.device) -> Batch:
    x, y, time_features = windows.batch(index)
    return Batch(x.to(device), y.to(device), None if time_features is None else time_features.to(device))
