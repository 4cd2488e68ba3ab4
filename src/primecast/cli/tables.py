"""What the commands for your own data do: read a table, train or load a model, forecast; print and write the results.

Messages for people go to stderr, results to files or stdout; `-` is stdin or stdout. Imports torch: not for `--help`.
"""

import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from pandas import DataFrame

from primecast.cli.targets import STREAM
from primecast.errors import InputError, check_known
from primecast.experiments.spec import SIZES, parse_setting
from primecast.forecasting.arguments import RULES
from primecast.forecasting.designs import ONE_MODEL
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.saved_config import FORM
from primecast.frames.dates import frequency_in_words
from primecast.frames.future_covariates import UnknownFutureWarning
from primecast.frames.layouts import FILE
from primecast.frames.read import OpenTable, open_table, reopen_table
from primecast.frames.validate import ConstantChannelWarning, SilentChannelWarning
from primecast.models import MODELS
from primecast.reporting import render
from primecast.reporting.gather import gather
from primecast.storage.atomic import refuse_os_errors, write_bytes_atomically
from primecast.storage.folder import check_replaceable

LEVELS = (80.0, 95.0)
BOUND = re.compile(r"-(lo|hi)-[\d.]+$")
"""The end of the name of a bound's column."""
SHOWN = 20
"""Rows of a table that are printed; files and JSON have all of them."""


def say(text: str) -> None:
    """Print a message for people on stderr."""
    typer.echo(text, err=True)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print primecast's own warnings as one line each, without the place in the code."""
    with warnings.catch_warnings():
        for kind in (ConstantChannelWarning, SilentChannelWarning, UnknownFutureWarning):
            warnings.simplefilter("always", kind)
        said = set[str]()

        def show(message: object, *_: object, **__: object) -> None:
            if str(message) not in said:  # a report and a picture forecast once more
                said.add(str(message))
                say(f"note: {message}")

        warnings.showwarning = show
        yield


# ---------------------------------------------------------------- input


@contextmanager
def _file(source: str | Path) -> Iterator[Path]:
    """Give the path of a file, or of one that holds stdin; errors name stdin."""
    if str(source) != STREAM:
        with refuse_os_errors(f"read {source}"):
            yield Path(source)
        return
    if sys.stdin is None:
        raise InputError("cannot read stdin: it is closed")
    with TemporaryDirectory() as folder, refuse_os_errors("read stdin"):
        path = Path(folder) / "stdin.csv"
        path.write_bytes(sys.stdin.buffer.read())
        try:
            yield path
        except InputError as error:
            raise InputError(str(error).replace(str(path), "stdin")) from error


def names(given: str | None) -> list[str] | None:
    """Return the names of an option, "a,b"."""
    return None if given is None else [name.strip() for name in given.split(",")]


def read_described(
    source: str, forecaster: Forecaster, *, header: bool | None, drop: str | None, na: list[str] | None, **reading: Any
) -> tuple[OpenTable, dict[str, Any]]:
    """Read a table, which the Forecaster checks; print and return what was found in it. reading: of `open_table`."""
    covariates = [*(forecaster.past or ()), *(forecaster.future or ())]
    first_row: int | str | None = {None: "infer", True: 0, False: None}[header]
    with _file(source) as path:
        table = open_table(path, **reading, header=first_row, drop=drop or (), na=na or (), covariates=covariates)
    return _described(table, source, missing=forecaster.missing)


def _described(table: OpenTable, source: str, *, missing: str) -> tuple[OpenTable, dict[str, Any]]:
    table = replace(table, source="stdin" if source == STREAM else source)
    say(re.sub(r"\bna=(-?[\d.]+)", r"--na \1", table.describe(missing=missing)))
    frame = table.frame
    return table, {
        "source": table.source,
        "rows": len(frame),
        "first": str(frame.index.min()),
        "last": str(frame.index.max()),
        "step": frequency_in_words(frame.index),
        "time_column": frame.index.name,
        "channels": [str(name) for name in frame.columns],
        "left_out": dict(table.layout.left_out),
        "missing": int(frame.isna().to_numpy().sum()),
    }


def read_later(
    fitted: Forecaster, source: str | Path, *, time: str | None, dayfirst: bool | None, start: str | None = None
) -> OpenTable:
    """Read a table for a saved model, as the one it was fitted on was read, but for what is given."""
    layout = fitted.state_.layout
    if layout.kind != FILE:  # it was fitted on a frame, whose names need not be those of the file
        layout = replace(layout, kind=FILE, id=None, time=None, value=None)
    layout = replace(layout, time=time or layout.time, dayfirst=layout.dayfirst if dayfirst is None else dayfirst)
    with _file(source) as path:
        return OpenTable(*reopen_table(path, layout, start=start))


def open_model(
    model: Path, data: str | None, *, time: str | None, dayfirst: bool | None, start: str | None
) -> tuple[Forecaster, DataFrame | None]:
    """Load a saved model and read the table it is to be used on, if there is one."""
    fitted = Forecaster.load(model)
    if data is None:
        return fitted, None
    table = read_later(fitted, data, time=time, dayfirst=dayfirst, start=start)
    return fitted, _described(table, data, missing=fitted.missing)[0].frame


def build(settings: Sequence[str] | None, **arguments: Any) -> Forecaster:
    """Return a Forecaster with these arguments; a setting that is not one of its own is passed to its model."""
    given = dict(arguments)
    own, others = signature(Forecaster).parameters, dict[str, Any]()
    for name, value in map(parse_setting, settings or ()):
        if name in arguments:
            raise InputError(f"{name} has an option of its own: --{name.replace('_', '-')} {value}")
        (given if name in own else others)[name] = value
    if others:
        model = given.get("model") or ONE_MODEL["model"]
        check_known("model", model, MODELS)
        known = {*own, *signature(MODELS[model].build).parameters} - {*arguments, "model_args", *SIZES}
        for name in others:
            check_known("setting", name, known)
        mapping = RULES["model_args"].check("model_args", given.get("model_args"))
        given["model_args"] = {**(mapping or {}), **others}
    return Forecaster(**given)


def fit(
    forecaster: Forecaster, table: OpenTable, *, save: Path | None, state: Path | None, board: bool = True
) -> Forecaster:
    """Fit and save a Forecaster; print its scores. board: and the leaderboard of an ensemble."""
    if save is not None:
        check_replaceable(save, form=FORM)  # before the training, which would be lost
    with plain_warnings():
        fitted = forecaster.fit(table, state=state)
    scores = fitted.facts_["scores"]
    say(
        f"{scores['windows']} forecasts of held-out rows: MSE {scores['mse']:.4f}, MAE {scores['mae']:.4f}; "
        f"seasonal naive: {scores['naive_mse']:.4f}, {scores['naive_mae']:.4f} (standardized units)"
    )
    if board and fitted.facts_.get("members"):
        say(describe_comparison(fitted.leaderboard().frame))
    if save is not None:
        fitted.save(save)
        say(f"saved {save}")
    return fitted


# ---------------------------------------------------------------- output


def deliver(
    fitted: Forecaster,
    frame: DataFrame | None,
    source: str,
    *,
    level: list[float] | None,
    out: str | None,
    report: Path | None,
    plot: Path | None,
    as_json: bool,
    extra: dict[str, Any] | None = None,
    **arguments: Any,
) -> None:
    """Forecast, and write the result to the file, the report and stdout; stdout is the default."""
    with plain_warnings():
        levels = level or _default_levels(fitted)
        predicted = fitted.predict(frame, level=levels, **arguments)
        if out is None and report is None and plot is None and not as_json:
            out = STREAM
        if out is not None:
            write_csv(round_forecasts(predicted, fitted), out)
        if report is not None and frame is not None:
            title = "stdin" if source == STREAM else Path(source).name
            render.write_report(gather(fitted, frame, title=title, level=levels, **arguments), report)
            say(f"wrote {report}")
        if plot is not None:
            write_picture(fitted.plot(frame, level=levels, **arguments), plot)
            say(f"wrote {plot}")
    if as_json:
        columns = _json_values(predicted.rename(columns=str)).to_dict(orient="list")
        times = [str(time) for time in predicted.index]
        print_json({**(extra or {}), **facts(fitted), "forecast": {"time": times, **columns}})


def _default_levels(fitted: Forecaster) -> list[float]:
    """Return those of `LEVELS` that the number of held-out windows allows; say which are left out."""
    windows = len(fitted.calibration_)
    needed = {level: math.ceil(level / (100 - level)) for level in LEVELS}
    for level in LEVELS:
        if windows < needed[level]:
            say(f"note: no intervals of {level:g} %, which need {needed[level]} held-out windows; there are {windows}")
    return [level for level in LEVELS if windows >= needed[level]]


def facts(fitted: Forecaster) -> dict[str, Any]:
    """Return what JSON results say of the model."""
    return {name: fitted.facts_[name] for name in ("model", "scores", "coverage")}


def round_forecasts(frame: DataFrame, fitted: Forecaster) -> DataFrame:
    """Round forecasts and bounds to a millionth or so of the standard deviation of their channel: more says nothing.

    frame: with a column per channel and bound, or with a row per channel, `unique_id`, whose truth stays as it is.
    """
    stds = zip(map(str, fitted.roles_.columns), fitted.scaler_.std.tolist(), strict=True)
    decimals = {name: max(0, 5 - math.floor(math.log10(std))) for name, std in stds}
    if "unique_id" not in frame.columns:
        places = {name: decimals[BOUND.sub("", str(name))] for name in frame.columns}
        return frame.round(places)
    numbers = [name for name in frame.columns if name.startswith("primecast")]
    return frame.assign(
        **{
            name: [
                round(value, decimals[channel]) for channel, value in zip(frame["unique_id"], frame[name], strict=True)
            ]
            for name in numbers
        }
    )


def six_digits(frame: DataFrame) -> DataFrame:
    """Round the numbers of a frame to six significant digits."""
    return frame.map(lambda value: float(f"{value:.6g}") if isinstance(value, float) else value)


def write_csv(frame: DataFrame, out: str, *, index: bool = True, name: str = "time") -> None:
    """Write a frame to a file or to stdout. name: of an index that has none."""
    text = frame.to_csv(index=index, index_label=str(frame.index.name or name), lineterminator="\n")
    if out == STREAM:
        typer.echo(text, nl=False)
    else:
        write_bytes_atomically(Path(out), text.encode())
        say(f"wrote {out}")


def write_picture(axes: Any, path: Path) -> None:
    """Write the figure of these axes, in the format of the file's ending."""
    from matplotlib import pyplot  # as in `Forecaster.plot`: only where something is drawn

    image, figure = BytesIO(), axes[0].figure
    figure.savefig(image, format=path.suffix[1:], dpi=130)
    pyplot.close(figure)
    write_bytes_atomically(path, image.getvalue())


def print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, allow_nan=False))


def _json_values(frame: DataFrame) -> DataFrame:
    """Return a frame of plain Python values; NaN, which JSON does not have, becomes None."""
    return frame.astype(object).where(frame.notna(), None)


def json_rows(frame: DataFrame, name: str) -> list[dict[str, Any]]:
    """Return one dictionary per row; `name` is the key of the index."""
    rows: Any = _json_values(frame.rename_axis(name).reset_index().rename(columns=str)).to_dict(orient="records")
    return rows


def print_table(frame: DataFrame, *, title: str, name: str | None = None) -> None:
    """Print the first rows in columns; `name` is the heading of the index, which is left out without one."""
    shown = frame.head(SHOWN) if name is None else frame.head(SHOWN).rename_axis(name).reset_index()
    typer.echo(title)
    if len(shown):
        typer.echo(shown.to_string(index=False, float_format="{:.4g}".format))
    if len(frame) > SHOWN:
        typer.echo(f"... {len(frame) - SHOWN} more; --out or --json have all")


def describe_comparison(board: DataFrame) -> str:
    """Return a leaderboard as text, with the differences from the row that all others are compared with in per cent."""
    whole = board.index[-2]
    shown = board[["weight", "val_mse", "test_mse", "test_mae", "seconds"]].map("{:.4g}".format).replace("nan", "")
    shown["test MSE against it"] = [_in_percent(*row) for row in board[["mse_change", "mse_low", "mse_high"]].values]
    # pandas makes a column of floats of verdicts that are all None, and text would not fit in.
    shown[""] = board["verdict"].astype(object).fillna("").tolist()
    return (
        f"standardized units; compared with the {whole}:\n"
        f"{shown.rename_axis('forecast').reset_index().to_string(index=False)}\n"
        "in brackets: 95 % intervals, a paired block bootstrap over the held-out windows"
    )


def _in_percent(change: float, low: float, high: float) -> str:
    if math.isnan(change):
        return ""
    bounds = "too few windows" if math.isnan(low) else f"{100 * low:+.1f} to {100 * high:+.1f}"
    return f"{100 * change:+.1f} % ({bounds})"
