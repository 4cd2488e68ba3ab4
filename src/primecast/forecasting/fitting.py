"""Fitting: from a table to a FittedState.

    wide frame ─> check ─> split 7:1:2 ─> windows ─> train ─> score the test rows ─> errors of held-out rows ─> state

It is the protocol of the benchmarks: the same split, training loop and scores. The first 70 % of the rows train, the
next 10 % stop training, the last 20 % score. A held-out window reads what was known at its origin.

Letters: t rows, b batch, l look-back, h horizon, n channels or targets, m time features.
"""

import sys
import time
from bisect import bisect_left
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from primecast.data.windows import Ranges, Ratio, Scaler, is_subhourly, row_ranges
from primecast.errors import InputError, TrainingError, format_list
from primecast.forecasting.arguments import Arguments
from primecast.forecasting.bounds import AtLeast, find_nonnegative
from primecast.forecasting.comparison import compare_all
from primecast.forecasting.designs import is_short
from primecast.forecasting.ensemble import (
    Ensemble,
    build_member,
    channel_errors,
    channel_weights,
    error_products,
    greedy_weights,
    parts_of,
    retrained_places,
    with_parts,
)
from primecast.forecasting.intervals import thinned
from primecast.forecasting.leaderboard import SEASONAL_NAIVE
from primecast.forecasting.memory import MemoryNeededError, check_memory
from primecast.forecasting.model_card import collect_facts
from primecast.forecasting.prediction import forecast_held_out
from primecast.forecasting.state import FittedState, TrainingRecord
from primecast.frames.dates import season_of
from primecast.frames.layouts import Layout
from primecast.frames.point_in_time import PointInTimeValues
from primecast.frames.roles import Roles
from primecast.frames.validate import CheckedFrame, check_frame, check_magnitude, warn_constant_channels
from primecast.frames.window_builder import RoleWindows, SeasonalNaiveWindows, WindowBuilder
from primecast.models.naive import SeasonalNaive
from primecast.nn.losses import Loss, create_loss
from primecast.training.loop import History, Scores, evaluate, fit, predict

WEIGHTING_WINDOWS = 512
"""Validation windows that choose the weights of an ensemble, at most; evenly spaced."""


def fit_state(
    arguments: Arguments, wide: pd.DataFrame, layout: Layout, *, checkpoints: Path | None = None
) -> FittedState:
    """Return the state of a model trained on this table, which has not been checked yet.

    checkpoints: a folder from which an interrupted call continues; every training has a folder of its own in it.
    """
    table = check_frame(wide.rename(columns=str), missing=arguments.missing)
    warn_constant_channels(table)
    columns = [str(name) for name in table.frame.columns]
    roles = Roles.of(columns, past=arguments.past or (), future=arguments.future or ())
    table = table.ordered(roles.columns)
    arguments, ranges = _split(arguments, len(table))
    lookback, horizon = arguments.lookback, arguments.horizon
    season = season_of(table.index) if arguments.season is None else arguments.season
    _check_training_rows(table, ranges.train.stop, season)

    values = PointInTimeValues.of(table)
    known = values.frame_as_of(table, ranges.train.stop)  # no gap of the training rows is filled from beyond them
    with np.errstate(over="ignore", invalid="ignore"):  # `check_magnitude` names the value
        scaler = Scaler.fit(known.frame.to_numpy())
    check_magnitude(table, scaler)
    builder = WindowBuilder(scaler, roles, lookback, horizon, arguments.missing, is_subhourly(table.index))
    train = builder.windows(known, ranges.train)
    val, test = (builder.held_out(table, rows).complete() for rows in (ranges.val, ranges.test))
    fitted = _train_members(arguments, train, val, checkpoints, last_season=season if is_short(len(table)) else None)
    board = [member.facts for member in fitted]
    if arguments.quality:
        fitted, model, scored = _average(arguments, fitted, val, test)
    else:
        model, scored = fitted[0].model, {}
    nonnegative = find_nonnegative(table.truth[: ranges.train.stop, : builder.targets], arguments.bounds)
    bounded = AtLeast.zero(model, scaler, nonnegative)
    naive = SeasonalNaiveWindows(test, values.scaled(scaler), season=season)
    record = TrainingRecord(
        data=table,
        history=max(fitted, key=lambda member: member.facts["weight"]).history,
        scores=_score(bounded, test, batch_size=arguments.batch_size),
        naive_scores=_score(
            SeasonalNaive(lookback=naive.lookback, horizon=horizon, channels=test.channels, season=naive.lookback),
            naive,
        ),
    )
    state = _calibrate(arguments, model, builder, record, ranges, layout=layout, columns=columns, season=season)
    compared = compare_all(
        {**scored, SEASONAL_NAIVE: record.naive_scores}, record.scores, lookback=lookback, horizon=horizon
    )
    state = replace(state, facts={**state.facts, "comparison": compared})
    if arguments.quality:
        members = tuple(member.arguments for member in fitted)
        state = replace(state, facts={**state.facts, "members": board}, members=members)
    return replace(state, final=_train_final(state, fitted, table, val, checkpoints))


def _split(arguments: Arguments, rows: int) -> tuple[Arguments, Ranges]:
    """Return the arguments for so many rows, and the rows of each split; refuse too few and say how many are enough."""

    def split(count: int, horizon: int = arguments.horizon) -> tuple[Arguments, Ranges]:
        one = replace(arguments, horizon=horizon).for_rows(count)
        return one, row_ranges(Ratio(), rows=count, lookback=one.lookback, horizon=one.horizon)

    def is_enough(count: int, horizon: int = arguments.horizon) -> bool:
        with suppress(InputError):
            return bool(split(count, horizon))
        return False

    def stays_enough(count: int) -> bool:  # 7:1:2 is rounded: one row more may be too few again
        return all(map(is_enough, range(count, count + 10)))

    try:
        return split(rows)
    except InputError as error:
        counts = range(rows, 20 * (rows + arguments.lookback + arguments.horizon))
        shorter = next((one for one in range(arguments.horizon - 1, 0, -1) if is_enough(rows, horizon=one)), None)
        fits = "" if shorter is None else f", and for horizon={shorter} these are"
        raise InputError(f"{error}; {counts[bisect_left(counts, True, key=stays_enough)]} are enough{fits}") from error


def _train_final(
    state: FittedState, fitted: list["FittedMember"], table: CheckedFrame, val: RoleWindows, checkpoints: Path | None
) -> nn.Module | None:
    """Return the model trained anew on all rows, for the forecasts after them; None if no part of it is.

    What the validation rows chose stays: the weights, the lambdas of closed forms, the number of epochs of the others.
    """
    again = retrained_places(state.model, refit=state.arguments.refit)
    if not again:
        return None
    everything = state.builder.windows(table, range(len(table)))
    parts = parts_of(state.model)
    for place in again:
        member = fitted[place]
        if hasattr(member.model, "solve"):
            parts[place] = deepcopy(member.model)
            _of_targets(parts[place], everything).solve(everything, None)  # type: ignore[operator]
            continue
        sizes = {"channels": everything.channels, "n_time_features": everything.n_time_features}
        parts[place] = build_member(member.arguments, lookback=state.lookback, **sizes)
        folder = checkpoints and checkpoints / f"refit-{place + 1}"
        _train(member.arguments, parts[place], everything, val, epochs=member.history.best_epoch, checkpoint=folder)
    return with_parts(state.model, parts)


def _check_training_rows(table: CheckedFrame, rows: int, season: int) -> None:
    empty = [name for place, name in enumerate(table.frame.columns) if table.gaps[:rows, place].all()]
    if empty:
        raise InputError(f"these channels have no value in the {rows} rows that train: {format_list(empty)}; drop them")
    if season >= rows:
        raise InputError(f"season is {season}; it must be less than the {rows} rows that train")


def _calibrate(
    arguments: Arguments,
    model: nn.Module,
    builder: WindowBuilder,
    record: TrainingRecord,
    ranges: Ranges,
    *,
    layout: Layout,
    columns: list[str],
    season: int,
) -> FittedState:
    """Return the state with the errors of the held-out rows, validation and test."""
    table, targets = record.data, builder.targets
    trained, tested = ranges.train.stop, ranges.val.stop
    nonnegative = find_nonnegative(table.truth[:trained, :targets], arguments.bounds)
    bounded = AtLeast.zero(model, builder.scaler, nonnegative)
    held_out = forecast_held_out(bounded, builder, table, range(trained, len(table)), batch_size=arguments.batch_size)
    borders = {"train": (0, trained), "val": (trained, tested), "test": (tested, len(table))}
    state = FittedState(
        arguments=arguments,
        model=model,
        builder=builder,
        layout=layout,
        columns=columns,
        recent=table.last(builder.lookback + builder.horizon),
        constant=(table.frame.max() == table.frame.min()).to_numpy()[:targets],
        season=season,
        naive_mae=_naive_mae(table.truth[:trained, :targets], season),
        calibration=held_out.calibration(len(table), first=-len(table)),
        nonnegative=find_nonnegative(table.truth[:, :targets], arguments.bounds),  # of the forecasts from here on
        stride=held_out.stride or 1,
        rows=len(table) - int(held_out.ends[-1]),
        periods={
            name: (str(table.index[first]), str(table.index[after - 1])) for name, (first, after) in borders.items()
        },
        facts={},
        training=record,
    )
    return replace(state, facts=collect_facts(state, record, val_errors=held_out.ends <= tested))


# ---------------------------------------------------------------- training and scores


def _train(
    arguments: Arguments,
    model: nn.Module,
    train: RoleWindows,
    val: RoleWindows,
    *,
    epochs: int,
    checkpoint: Path | None = None,
) -> tuple[nn.Module, History]:
    loss = create_loss(arguments.loss)
    masked = train.gaps is not None or train.targets < train.channels
    history = fit(
        _of_targets(model, train),
        train,
        val,
        loss=masked_loss(loss) if masked else loss,
        lr=arguments.lr,
        batch_size=arguments.batch_size,
        epochs=epochs,
        patience=min(arguments.patience, epochs),
        schedule=arguments.schedule,
        seed=arguments.seed,
        progress=arguments.progress,
        device=arguments.device,
        precision=arguments.precision,
        state=checkpoint,
    )
    return model.cpu(), history


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A trained model, alone or as the member of an ensemble; facts: its line of the leaderboard."""

    arguments: Arguments
    model: nn.Module
    history: History
    facts: dict[str, Any]


def _train_members(
    arguments: Arguments, train: RoleWindows, val: RoleWindows, checkpoints: Path | None, *, last_season: int | None
) -> list[FittedMember]:
    """Train the members one after the other; those that diverge or that the time limit cuts off are left out."""
    wanted, fitted, began = arguments.members(last_season) or {"": arguments}, list[FittedMember](), time.monotonic()
    failure: TrainingError | MemoryNeededError | None = None
    for number, (name, one) in enumerate(wanted.items(), 1):
        started = time.monotonic()
        if fitted and arguments.time_limit is not None and started - began > arguments.time_limit:
            _say(arguments, f"time limit of {arguments.time_limit:g} s: members {number} to {len(wanted)} are left out")
            break
        _say(arguments, f"member {number} of {len(wanted)}: {name}")
        sizes = {"channels": train.channels, "n_time_features": train.n_time_features}
        try:
            check_memory(one, **sizes)
            fresh = build_member(one, lookback=arguments.lookback, **sizes)
            folder = checkpoints and checkpoints / f"member-{number}"
            model, history = _train(one, fresh, train, val, epochs=one.epochs, checkpoint=folder)
        except (TrainingError, MemoryNeededError) as error:
            failure = error
            _say(arguments, f"  left out: {error}")
            continue
        best, seconds = history.best, history.seconds
        began -= max(0.0, seconds - (time.monotonic() - started))  # what a resumed training took before
        facts = {"name": name, "weight": 1.0, "val_mse": best.val_mse, "val_mae": best.val_mae, "seconds": seconds}
        fitted.append(FittedMember(one, model, history, facts))
        _say(arguments, f"  validation MSE {best.val_mse:.4f} after {seconds:.0f} s")
    if failure is not None and not any(True for member in fitted for _ in member.model.parameters()):
        raise failure  # nothing was trained
    return fitted


def _average(
    arguments: Arguments, fitted: list[FittedMember], val: RoleWindows, test: RoleWindows
) -> tuple[list[FittedMember], nn.Module, dict[str, Scores]]:
    """Return the members that have a weight, which the validation windows choose, their ensemble, all test scores."""
    sample = val.only(thinned(len(val), cells=1, most=WEIGHTING_WINDOWS))
    truth = sample.batch(torch.arange(len(sample))).y[..., : val.targets]
    batch_size = arguments.batch_size
    forecasts = [predict(member.model, sample, batch_size=batch_size)[..., : val.targets] for member in fitted]
    scored = {member.facts["name"]: _score(member.model, test, batch_size=batch_size) for member in fitted}
    apart = max(1.0, len(val) / arguments.horizon)
    shared = greedy_weights(error_products(forecasts, truth), windows=apart)
    weights = channel_weights(shared, channel_errors(forecasts, truth), windows=apart)
    for member, mean in zip(fitted, weights.mean(axis=1).tolist(), strict=True):
        scores = scored[member.facts["name"]]
        member.facts.update(weight=mean, test_mse=scores.mse, test_mae=scores.mae)
    places = np.flatnonzero(weights.any(axis=1))
    model = Ensemble([fitted[place].model for place in places], channels=val.channels)
    model.weights[:, : val.targets] = torch.from_numpy(weights[places])
    return [fitted[place] for place in places], model.eval(), scored


def _say(arguments: Arguments, line: str) -> None:
    """Print a line on the progress of an ensemble."""
    if arguments.quality and arguments.progress != "off":
        sys.stderr.write(f"{line}\n")


def _score(model: nn.Module, windows: RoleWindows | SeasonalNaiveWindows, *, batch_size: int = 256) -> Scores:
    """Return the scores over the targets: the other channels have no error, but are counted as cells."""
    base = windows.windows if isinstance(windows, SeasonalNaiveWindows) else windows
    scores = evaluate(_of_targets(model, base), windows, batch_size=batch_size)
    if base.targets == base.channels:
        return scores
    fraction = base.targets / base.channels
    return replace(
        scores,
        channel_mse=scores.channel_mse[: base.targets],
        channel_mae=scores.channel_mae[: base.targets],
        **{
            name: getattr(scores, name) / fraction
            for name in ("mse", "mae", "step_mse", "step_mae", "window_mse", "window_mae")
        },
    )


def _of_targets(model: nn.Module, windows: RoleWindows) -> nn.Module:
    return TargetsOnly(model, windows.targets) if windows.targets < windows.channels else model


class TargetsOnly(nn.Module):
    """A model whose forecast of the channels after the targets is replaced by 0."""

    def __init__(self, model: nn.Module, targets: int) -> None:
        super().__init__()
        self.model = model
        self.targets = targets
        if hasattr(model, "solve"):  # it leaves out truths that are NaN by itself
            self.solve = model.solve

    def forward(
        self, x: Float[Tensor, "b l n"], time_features: Float[Tensor, "b t m"] | None = None
    ) -> Float[Tensor, "b h n"]:
        forecast: Float[Tensor, "b h n"] = self.model(x, time_features)
        return torch.cat([forecast[..., : self.targets], torch.zeros_like(forecast[..., self.targets :])], dim=-1)

    def training_loss(
        self,
        x: Float[Tensor, "b l n"],
        y: Float[Tensor, "b h n"],
        time_features: Float[Tensor, "b t m"] | None,
        loss: Loss,
    ) -> Float[Tensor, ""]:
        """Return the model's own training loss if it has one."""
        own = getattr(self.model, "training_loss", None)
        return loss(self.model(x, time_features), y) if own is None else own(x, y, time_features, loss)


def masked_loss(loss: Loss) -> Loss:
    """Return a loss that leaves out cells whose truth is NaN: its mean is over the others.

    Exact for losses that are means over cells. A loss of whole series, as FreDF's of spectra, sees an error of 0 there.
    """
    return partial(_masked_loss, loss)


def _masked_loss(loss: Loss, forecast: Float[Tensor, "b h n"], truth: Float[Tensor, "b h n"]) -> Float[Tensor, ""]:
    known = ~truth.isnan()
    fraction = known.double().mean().item()
    if fraction == 0:
        return (forecast * 0).sum()
    zero = torch.zeros_like(truth)
    return loss(torch.where(known, forecast, zero), torch.where(known, truth, zero)) / fraction


def _naive_mae(values: Float64[np.ndarray, "t n"], season: int) -> Float64[np.ndarray, "n"]:
    """Return the mean of |y(t) - y(t - season)| over known pairs; 0 where there are none."""
    differences = np.abs(values[season:] - values[:-season])
    known = ~np.isnan(differences)
    return np.where(known, differences, 0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
