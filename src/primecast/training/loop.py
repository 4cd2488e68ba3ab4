"""The only training loop: `fit` trains, `evaluate` scores, `predict` forecasts.

    for each epoch:   shuffle ─> for each batch: loss, gradient, Adam ─> score on validation ─> keep if best, or stop

The protocol is the benchmarks': Adam, rate halved per epoch from the third on, early stopping on validation, best
weights restored. One thing is not: validation and test count every window once, so no score depends on a batch size.

A run is a function of its arguments: same seed, same bits. With a `state` folder it can also be killed at any moment:
weights, moments, random generators and position are written together into one file, and the same call goes on from
there to the same bits. Started by torchrun, several processes train together: see `primecast.training.distributed`.

Letters: b batch, l look-back, h horizon, n channels, m time features, w windows.
"""

import ctypes
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import index as whole
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from primecast.data.windows import WindowSource
from primecast.errors import InputError, TrainingError, unknown
from primecast.nn.losses import Loss
from primecast.training.checkpoint import EpochRow, Run, TrainingProgress, lock_state_dir
from primecast.training.distributed import ProcessGroup, join, own_device
from primecast.training.identity import digest, identity
from primecast.training.progress import Display

SCHEDULES: dict[str, Callable[[int, int], float]] = {
    # epoch (from 1), epochs -> factor on the learning rate
    "halving": lambda epoch, epochs: 0.5 ** max(0, epoch - 2),  # "type1" of the benchmarks: two epochs at full rate
    "halving-early": lambda epoch, epochs: 0.5 ** (epoch - 1),  # as FreDF's code has it
    "tenth": lambda epoch, epochs: 0.1 ** (epoch - 1),  # OpenLTM's "type1"
    "cosine": lambda epoch, epochs: (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2,
    "constant": lambda epoch, epochs: 1.0,
}

PRECISIONS = {
    "float32": "everything in float32",
    "bf16": "products of forward and backward in bfloat16 (torch's autocast); weights, moments and sums in float32",
}


# ---------------------------------------------------------------- what a run leaves behind


@dataclass(frozen=True)
class History:
    """What happened in a run; `best_epoch` is the one whose weights the model has now."""

    epochs: tuple[EpochRow, ...]
    best_epoch: int
    seconds: float
    steps: int
    stopped_early: bool

    @property
    def best(self) -> EpochRow:
        return self.epochs[self.best_epoch - 1]


@dataclass(frozen=True, eq=False)
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


# ---------------------------------------------------------------- training


def fit(
    model: nn.Module,
    train: WindowSource,
    val: WindowSource,
    *,
    loss: Loss,
    lr: float,
    batch_size: int,
    epochs: int,
    patience: int,
    seed: int,
    schedule: str = "halving",
    drop_last: bool = True,
    parameters: Callable[[str], bool] | str | None = None,
    lr_factors: Mapping[str, float] | None = None,
    precision: str = "float32",
    state: Path | str | None = None,
    save_every: int = 200,
    progress: str = "auto",
    keep_blocks: bool = True,
    device: str = "cpu",
) -> History:
    """Train the model in place; it ends in eval mode, on `device`, with the weights of its best epoch.

    That is also how a TrainingError leaves it; before the end of the first epoch, with the weights it began with.

    loss:       of forecast and truth; a model with `training_loss(x, y, time_features, loss)` decides itself how to use it.
    patience:   stop after so many epochs in a row that are worse than the best; a tie counts as improvement.
    seed:       of the order of windows and of dropout; the caller's own random state is left as it was.
    schedule:   a name in SCHEDULES.
    drop_last:  leave out an epoch's last, short batch. Windows fewer than one batch are one batch all the same.
    parameters: train only these: the name of a part of the model ("head"), or a predicate over parameter names.
    lr_factors:      factors on lr for named parts, {"primer": 10.0}; the innermost part a parameter lies in counts.
    precision:  a name in PRECISIONS, also for the validation scores.
    state:      a folder of this run's own; it is written every `save_every` steps and after each epoch, and a call
                that finds one there continues it. A finished one returns at once.
    progress:   "bar", "lines" (one per epoch) or "off", on stderr; "auto" is a bar on a terminal, else lines.
    keep_blocks: see `keep_large_blocks`.
    device:     "cpu", "cuda", "cuda:1", "mps". Only the CPU has been tested, and only there is a resumed run promised
                the same bits.

    Under torchrun all processes must call it, with the same arguments; `batch_size` is that of all together.
    """
    if schedule not in SCHEDULES:
        raise unknown("schedule", schedule, SCHEDULES)
    if not (lr > 0 and math.isfinite(lr)):
        raise InputError(f"lr is {lr}; it must be a finite number above 0")
    batch_size, epochs, patience, save_every = _at_least_one(
        batch_size=batch_size, epochs=epochs, patience=patience, save_every=save_every
    )
    _at_least_one(**{"number of training windows": len(train), "number of validation windows": len(val)})
    seed = _whole("seed", seed)
    if not 0 <= seed < 2**63:
        raise InputError(f"seed is {seed}; it must be a whole number from 0 to 2**63 - 1")
    lr, lr_factors = (
        float(lr),
        {part: float(factor) for part, factor in (lr_factors or {}).items()},
    )  # numpy's do not go into JSON
    state = None if state is None else Path(state)
    _check_precision(precision)
    where = _device(device, model)
    chosen = _choose(model, parameters)
    factors = _factors(chosen, lr_factors)
    team = join(where)
    if keep_blocks:
        keep_large_blocks()

    model.to(where)
    steps = max(1, len(train) // batch_size) if drop_last else math.ceil(len(train) / batch_size)
    settings = {
        "model": identity(model),
        "choice of parameters": f"{len(chosen)} tensors, {digest(*chosen)}",
        "training windows": _fingerprint(train),
        "validation windows": _fingerprint(val),
        "loss": identity(loss),
        "lr": lr,
        "batch_size": batch_size,
        "epochs": epochs,
        "patience": patience,
        "seed": seed,
        "schedule": schedule,
        "drop_last": drop_last,
        "lr_factors": lr_factors,
        "precision": precision,
        "number of processes": team.size,
    }
    team.check_equal({**settings, "save_every": save_every, "state": str(state)})
    with (
        _only(model, chosen),
        torch.random.fork_rng(devices=[where] if where.type == "cuda" else []),
        lock_state_dir(state, team),
        Display(progress, shown=team.is_main, epochs=epochs, steps=steps) as display,
    ):
        team.start_equal(model)
        run = Run(model=model, trained=chosen, factors=factors, settings=settings, seed=seed, device=where, team=team)
        if state is not None and run.resume(state):
            display.resumed(run.position)
        at = run.position

        while not at.finished:
            rate = lr * SCHEDULES[schedule](at.epoch, epochs)
            order = run.draw_order(len(train))
            began = time.perf_counter() - at.seconds
            model.train()
            while at.step < steps:
                index = order[at.step * batch_size : (at.step + 1) * batch_size]
                mine = team.share(index)
                batch, value = None, None
                if len(mine):  # none where there are fewer windows than processes
                    batch = _gather(train, mine, where)
                    value = _training_loss(model, *batch, loss, precision)
                    value.backward()
                number = team.average(value, list(chosen.values()), model, share=len(mine) / len(index))
                if not math.isfinite(number):
                    run.restore_best()
                    raise TrainingError(_why_not_finite(number, batch, at, rate, team))
                run.optimizer.step(rate)
                at.step += 1
                at.steps += 1
                at.windows += len(index)
                at.loss_sum += number * len(index)
                at.seconds = time.perf_counter() - began
                display.step(at)
                if state is not None and at.steps % save_every == 0 and at.step < steps:
                    run.save(state)

            # At the training batch size: it is known to fit into memory.
            scores = evaluate(model, val, batch_size=batch_size, precision=precision, device=device)
            if not math.isfinite(scores.mse):
                run.restore_best()
                raise TrainingError(
                    f"the validation error is {scores.mse} after epoch {at.epoch}: the validation windows hold values "
                    f"that are not finite, or the learning rate {rate:g} is too high"
                )
            at.seconds = time.perf_counter() - began
            row = EpochRow(at.epoch, rate, at.loss_sum / at.windows, scores.mse, scores.mae, at.seconds)
            run.end_epoch(row, last=epochs, patience=patience)
            display.row(row)
            if state is not None:
                run.save(state)

        run.restore_best()
    return History(
        epochs=tuple(at.rows),
        best_epoch=at.best_epoch,
        seconds=sum(row.seconds for row in at.rows),
        steps=at.steps,
        stopped_early=len(at.rows) < epochs,
    )


def _training_loss(
    model: nn.Module,
    x: Float[Tensor, "b l n"],
    y: Float[Tensor, "b h n"],
    time_features: Float[Tensor, "b l+h m"] | None,
    loss: Loss,
    precision: str,
) -> Float[Tensor, ""]:
    """The model's own way from a batch to a loss if it has one: next-patch targets, auxiliary terms."""
    own = getattr(model, "training_loss", None)
    with _autocast(precision, x.device):
        value = loss(_forecast(model, x, y, time_features), y) if own is None else own(x, y, time_features, loss)
    if not isinstance(value, Tensor) or value.shape != ():
        given = f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputError(f"the loss {identity(loss)} gives {given}; it must be one number in a tensor, such as a mean")
    if not value.requires_grad:
        raise InputError(f"the loss {identity(loss)} does not depend on any of the parameters to train")
    return value


def _why_not_finite(
    value: float,
    batch: tuple[Tensor, Tensor, Tensor | None] | None,
    at: TrainingProgress,
    rate: float,
    team: ProcessGroup,
) -> str:
    """One sentence, the same in all processes, whichever of them holds the cause."""
    where = f"the training loss is {value} at epoch {at.epoch}, step {at.step + 1}"
    bad = [tensor is not None and not tensor.isfinite().all() for tensor in batch or (None, None, None)]
    counts = team.add_up(torch.tensor(bad, dtype=torch.int64))
    for name, count in zip(("x", "y", "time_features"), counts.tolist(), strict=True):
        if count:
            return f"{where}: {name} of this batch holds values that are not finite; fill or drop them in the data"
    if at.steps == 0:
        return f"{where}, before the first update, though its batch is finite: the model or the loss itself overflows"
    return f"{where}: the learning rate {rate:g} is probably too high; try a tenth of it"


def _choose(model: nn.Module, parameters: Callable[[str], bool] | str | None) -> dict[str, nn.Parameter]:
    """The parameters to train, by name; those the caller froze stay frozen."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    match parameters:
        case None:
            chosen = named
        case str():
            chosen = {name: named[name] for name in _inside(parameters, named)}
        case _:
            chosen = {name: value for name, value in named.items() if parameters(name)}
    if not chosen:
        raise InputError(
            f"{type(model).__name__} has nothing to train: of its parameters {len(named)} require a gradient, and none "
            "of these was chosen"
        )
    return chosen


def _inside(part: str, names: Collection[str]) -> list[str]:
    """The parameters of a named part of the model."""
    inside = [name for name in names if f"{name}.".startswith(f"{part}.")]
    if not inside:
        raise unknown("part of the model", part, {name.split(".")[0] for name in names})
    return inside


def _factors(names: Collection[str], lr_factors: Mapping[str, float]) -> dict[str, float]:
    """For each parameter its factor on the learning rate."""
    factors = dict.fromkeys(names, 1.0)
    for part in sorted(lr_factors, key=len):  # the innermost part, which has the longest name, has the last word
        if not (lr_factors[part] > 0 and math.isfinite(lr_factors[part])):
            raise InputError(f"the lr_factor of {part!r} is {lr_factors[part]}; it must be a finite number above 0")
        factors |= dict.fromkeys(_inside(part, names), lr_factors[part])
    return factors


@contextmanager
def _only(model: nn.Module, chosen: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Gradients for the chosen parameters alone: nothing is computed for the others, which stay as they are."""
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in chosen)
        yield
    finally:
        for parameter, required in before.items():
            parameter.requires_grad_(required)
            parameter.grad = None


def _fingerprint(windows: WindowSource) -> str:
    """Enough to tell other data from the same: how many windows, and what the first, middle and last one hold."""
    count = len(windows)
    batch = windows.batch(torch.tensor([0, count // 2, count - 1]))
    tensors = [batch.x, batch.y] if batch.time_features is None else [batch.x, batch.y, batch.time_features]
    return f"{count} windows, {digest(*(tensor.cpu().numpy().tobytes() for tensor in tensors))}"


# ---------------------------------------------------------------- scoring and forecasting


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

    Under torchrun all processes must call it: each scores its share of the windows, all get the scores of the whole.
    """
    (count,) = _at_least_one(**{"number of windows": len(windows)})
    group = join(_device(device, model))
    own = group.share(torch.arange(count))
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
    step_mse, step_mae = (group.add_up(by_step) / (count * channels)).numpy()
    channel_mse, channel_mae = (group.add_up(by_channel) / (count * horizon)).numpy()
    window_mse, window_mae = (group.add_up(by_window) / (horizon * channels)).numpy()
    return Scores(
        mse=float(window_mse.mean()),
        mae=float(window_mae.mean()),
        windows=count,
        step_mse=step_mse,
        step_mae=step_mae,
        channel_mse=channel_mse,
        channel_mae=channel_mae,
        window_mse=window_mse,
        window_mae=window_mae,
    )


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
    _at_least_one(**{"number of windows": len(windows) if index is None else len(index)})
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
    (batch_size,) = _at_least_one(batch_size=batch_size)
    _check_precision(precision)
    index = torch.arange(len(windows)) if index is None else index
    target = _device(device, model)
    model.to(target)
    for numbers in index.split(batch_size) if len(index) else ():
        x, y, time_features = _gather(windows, numbers, target)
        with _inference(model), _autocast(precision, target):
            forecast = _forecast(model, x, y, time_features)
        yield numbers, forecast.to("cpu", y.dtype), y.cpu()


def _forecast(
    model: nn.Module,
    x: Float[Tensor, "b l n"],
    y: Float[Tensor, "b h n"],
    time_features: Float[Tensor, "b l+h m"] | None,
) -> Float[Tensor, "b h n"]:
    """The model's forecast, in the shape of the truth, so that no error is ever broadcast."""
    forecast = model(x, time_features)
    if not isinstance(forecast, Tensor):
        raise InputError(f"{type(model).__name__} returns a {type(forecast).__name__}; a forecast must be one tensor")
    if forecast.shape != y.shape:
        raise InputError(
            f"the model forecasts {tuple(forecast.shape)} where the windows hold {tuple(y.shape)} (windows, steps, "
            "channels); create it with the windows' horizon and channels"
        )
    return forecast


@contextmanager
def _inference(model: nn.Module) -> Iterator[None]:
    """Without dropout and without gradients; afterwards every part is in the mode it was in."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, mode in before.items():
            module.training = mode


def _gather(
    windows: WindowSource, index: Int64[Tensor, "b"], device: torch.device
) -> tuple[Float[Tensor, "b l n"], Float[Tensor, "b h n"], Float[Tensor, "b l+h m"] | None]:
    batch = windows.batch(index)
    time_features = None if batch.time_features is None else batch.time_features.to(device)
    return batch.x.to(device), batch.y.to(device), time_features


def _at_least_one(**counts: int) -> list[int]:
    for name, count in counts.items():
        if _whole(name, count) < 1:
            raise InputError(f"{name} is {count}; it must be at least 1")
    return [whole(count) for count in counts.values()]


def _whole(name: str, number: int) -> int:
    """The number as one of Python's own, which go into JSON, also if it is one of numpy's."""
    try:
        return whole(number)
    except TypeError as error:
        raise InputError(f"{name} is {number!r}; it must be a whole number") from error


# ---------------------------------------------------------------- the machine


def _device(name: str | None, model: nn.Module) -> torch.device:
    if name is None:
        tensor = next(chain(model.parameters(), model.buffers()), None)
        return torch.device("cpu") if tensor is None else tensor.device
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    there = ["cpu", *(["cuda", *gpus] if gpus else []), *(["mps"] if torch.backends.mps.is_available() else [])]
    if name not in there:
        raise unknown("device", name, there)
    return own_device(torch.device(name))


def _check_precision(name: str) -> None:
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)


def _autocast(precision: str, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def keep_large_blocks() -> bool:
    """Tell the C library to keep large blocks of memory for the next step instead of returning them to the system.

    By default glibc maps blocks above a threshold (128 KiB, growing to at most 32 MiB) afresh and unmaps them when
    they are freed, and shrinks its heap whenever the top of it is free. Each training step then pays a page fault for
    every 4 KiB of its temporaries. Kept, the process stays as large as its largest step. The setting holds for the
    whole process and cannot be undone. False where there is no glibc: nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h
    mapped = any(mallopt(mmap_threshold, size) for size in (1 << 30, 32 << 20))  # old glibc allows 32 MiB at most
    return bool(mallopt(trim_threshold, -1)) and mapped  # -1: never
