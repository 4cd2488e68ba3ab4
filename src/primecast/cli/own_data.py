"""The commands for one's own data: a table in, forecasts, scores, relations or a model's file out.

    primecast forecast data.csv --horizon 96 --out forecast.csv --report report.html        all of it at once
    primecast train data.csv --horizon 96 --save model      and then, in any process, of the saved model:
    primecast predict model new.csv        backtest model data.csv        relations model data.csv        export model

Results go to stdout or to files, everything said on the way to stderr; `-` is stdin or stdout. They parse, call the
Forecaster and print; heavy modules load inside them, so that `primecast --help` is instant.
"""

import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primecast.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    DataFrame = Any  # tests check annotations at run time, and pandas is not to be imported for that

STREAM = "-"
LEVELS = (80.0, 95.0)
SHOWN = 20
"""Lines of a table that are printed; files and JSON have all."""

Data = Annotated[str, typer.Argument(help="CSV (may be .gz, .xz) or Parquet, wide or long; - is stdin.")]
Model = Annotated[Path, typer.Argument(help="Folder of a saved model, see `primecast train`.")]
Horizon = Annotated[int, typer.Option(help="Steps to forecast.")]
Lookback = Annotated[int, typer.Option(help="Steps to look at.")]
Level = Annotated[list[float] | None, typer.Option(help="Per cent of an interval; may be repeated. 80 and 95.")]
Missing = Annotated[str, typer.Option(help="Missing values: error, interpolate, ffill or mask.")]
Time = Annotated[str | None, typer.Option(help="Name of the time column; found by itself as a rule.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="name=value, an argument of Forecaster or of its model; may be repeated."),
]
Out = Annotated[str | None, typer.Option(help="CSV file to write; - is stdout.")]
Report = Annotated[Path | None, typer.Option(help="HTML report to write; needs the extra `report`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


# ---------------------------------------------------------------- the commands


def forecast(
    data: Data,
    horizon: Horizon,
    lookback: Lookback = 96,
    level: Level = None,
    missing: Missing = "error",
    time: Time = None,
    settings: Settings = None,
    out: Out = None,
    report: Report = None,
    save: Annotated[Path | None, typer.Option(help="Folder to keep the model in.")] = None,
    as_json: Json = False,
) -> None:
    """Train on a table and forecast what comes after its last row."""
    _check_targets(out, report)
    _check_levels(level)
    frame, found = _read(data, time=time, missing=missing)
    fitted = _fit(frame, horizon=horizon, lookback=lookback, missing=missing, settings=settings)
    if save is not None:
        fitted.save(save)
        _say(f"saved {save}")
    _hand_over(fitted, frame, data, level=level, out=out, report=report, as_json=as_json, extra={"data": found})


def train(
    data: Data,
    horizon: Horizon,
    save: Annotated[Path, typer.Option(help="Folder to keep the model in.")],
    lookback: Lookback = 96,
    missing: Missing = "error",
    time: Time = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Train on a table and keep the model in a folder."""
    frame, found = _read(data, time=time, missing=missing)
    fitted = _fit(frame, horizon=horizon, lookback=lookback, missing=missing, settings=settings)
    fitted.save(save)
    _say(f"saved {save}")
    if as_json:
        _print_json({"data": found, **_told(fitted), "saved": str(save)})


def predict(
    model: Model,
    data: Annotated[str | None, typer.Argument(help="Newer rows of the same channels; - is stdin.")] = None,
    level: Level = None,
    future: Annotated[Path | None, typer.Option(help="Table of the covariates known beforehand.")] = None,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Intervals that follow the errors of late.")] = False,
    time: Time = None,
    out: Out = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Forecast with a saved model, after its own last row or after that of newer data."""
    _check_targets(out, report)
    if report is not None and data is None:
        raise InputError("a report needs rows to look at: give the data beside the model")
    fitted = _load(model)
    frame = None if data is None else _read(data, time=time, missing=fitted.missing)[0]
    _hand_over(
        fitted,
        frame,
        data or str(model),
        level=level,
        out=out,
        report=report,
        as_json=as_json,
        future=None if future is None else _table(future, time=time),
        adaptive=adaptive,
    )


def backtest(
    model: Model,
    data: Data,
    windows: Annotated[int, typer.Option(help="Moments to forecast from.")] = 5,
    step: Annotated[int | None, typer.Option(help="Rows between them; the horizon.")] = None,
    level: Level = None,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Intervals that follow the errors of late.")] = False,
    refit: Annotated[bool, typer.Option("--refit", help="Train anew for each moment.")] = False,
    time: Time = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Forecast from moments in the past of a table, and score against what then happened."""
    _check_targets(out)
    fitted = _load(model)
    frame, _ = _read(data, time=time, missing=fitted.missing)
    with _plain_warnings():
        tested = fitted.backtest(
            frame, windows=windows, step=step, level=list(level or LEVELS), adaptive=adaptive, refit=refit
        )
    if out is not None:
        _write_csv(tested.forecasts, out, index=False)
    if as_json:
        _print_json({"windows": len(tested.origins), "scores": _rows(tested.scores, "channel")})
    elif out != STREAM:
        _print_table(tested.scores, title=f"{len(tested.origins)} forecasts of {fitted.horizon} steps", name="channel")


def relations(
    model: Model,
    data: Data,
    alpha: Annotated[float, typer.Option(help="How likely one false lead may be.")] = 0.01,
    sensor_ablation: Annotated[bool, typer.Option("--sensor_ablation", help="Also, whose loss would hurt.")] = False,
    time: Time = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Say which channel leads which, by how long, and what the model looks at."""
    _check_targets(out)
    fitted = _load(model)
    frame, _ = _read(data, time=time, missing=fitted.missing)
    found = fitted.relations(frame, alpha=alpha)
    pairs = found.pairs()
    lost = fitted.sensor_ablation(frame).summary if sensor_ablation else None
    if out is not None:
        _write_csv(pairs, out, index=False)
    looked = None if found.attention is None else vars(found.concentration())
    if as_json:
        lost_rows = {} if lost is None else {"sensor_ablation": _rows(lost, "sensor")}
        times = pairs.assign(time=[None if one is None else str(one) for one in pairs["time"]])
        _print_json({"pairs": times.to_dict(orient="records"), "concentration": looked, **lost_rows})
    elif out != STREAM:
        _print_table(pairs, title=f"{len(pairs)} pairs that are more than chance")
        if looked is not None:
            typer.echo(f"most looked at: {looked['channel']}, {100 * looked['share']:.0f} % of all attention")
        if lost is not None:
            _print_table(lost, title="growth of the squared error when a sensor is lost", name="sensor")


def export(model: Model, out: Annotated[Path, typer.Option(help="ONNX file to write.")] = Path("model.onnx")) -> None:
    """Write a saved model as ONNX, which runs without primecast; needs the extra `export`."""
    _load(model).export(out)
    typer.echo(str(out))


COMMANDS = (forecast, train, predict, backtest, relations, export)


# ---------------------------------------------------------------- in


def _say(text: str) -> None:
    typer.echo(text, err=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Our own warnings as a line for people, without the place in the code."""
    from primecast.frames.future_covariates import UnknownFutureWarning
    from primecast.frames.read import ConstantChannelWarning

    with warnings.catch_warnings():
        for kind in (ConstantChannelWarning, UnknownFutureWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_, **__: _say(f"note: {message}")
        yield


def _table(source: str | Path, *, time: str | None) -> DataFrame:
    """A file, or what comes from stdin, as a wide frame."""
    from primecast.frames.read import read_table

    if str(source) != STREAM:
        try:
            return read_table(source, time=time)
        except OSError as error:
            raise InputError(f"cannot read {source}: {error.strerror or error}") from error
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.csv"
        path.write_bytes(sys.stdin.buffer.read())
        try:
            return read_table(path, time=time)
        except InputError as error:
            raise InputError(str(error).replace(str(path), "stdin")) from error


def _read(source: str, *, time: str | None, missing: str) -> tuple[DataFrame, dict[str, Any]]:
    """The table and what was found in it, which is also said."""
    from primecast.errors import format_list
    from primecast.frames.read import ConstantChannelWarning, describe_gaps, validate
    from primecast.reporting.report import stamp, step_words

    frame = _table(source, time=time)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantChannelWarning)  # `fit` tells
        checked = validate(frame, missing="error" if missing == "error" else "mask")
    index = checked.index
    found = {
        "source": "stdin" if source == STREAM else source,
        "rows": len(checked),
        "first": str(index[0]),
        "last": str(index[-1]),
        "step": step_words(index),
        "time_column": index.name,
        "channels": [str(name) for name in checked.columns],
        "missing": int(checked.isna().to_numpy().sum()),
    }
    _say(
        f"{found['source']}: {len(checked)} rows, {found['step']}, from {stamp(index[0])} to {stamp(index[-1])} "
        f"(time column {index.name!r})\n"
        f"{len(checked.columns)} channels: {format_list(checked.columns)}; {describe_gaps(checked, missing=missing)}"
    )
    return frame, found


def _fit(frame: DataFrame, *, horizon: int, lookback: int, missing: str, settings: Sequence[str] | None) -> Any:
    """A fitted Forecaster; a setting that is none of its arguments is one of the model's."""
    from inspect import signature

    from primecast.experiments.experiment import parse_setting
    from primecast.forecasting.forecaster import Forecaster

    chosen: dict[str, Any] = {}
    for name, value in map(parse_setting, settings or ()):
        if name in ("horizon", "lookback", "missing"):
            raise InputError(f"{name} has an option of its own: --{name} {value}")
        if name in signature(Forecaster).parameters:
            chosen[name] = value
        else:
            chosen.setdefault("model_args", {})[name] = value
    forecaster = Forecaster(horizon=horizon, lookback=lookback, missing=missing, **chosen)
    with _plain_warnings():
        forecaster.fit(frame)
    scores = forecaster.facts_["scores"]
    _say(
        f"{scores['windows']} forecasts of held-out rows: MSE {scores['mse']:.4f}, MAE {scores['mae']:.4f}; last "
        f"season repeated: {scores['naive_mse']:.4f}, {scores['naive_mae']:.4f} (scaled units)"
    )
    return forecaster


def _load(model: Path) -> Any:
    from primecast.forecasting.forecaster import Forecaster

    return Forecaster.load(model)


# ---------------------------------------------------------------- out


def _check_levels(level: list[float] | None) -> None:
    from primecast.forecasting.intervals import check_levels

    check_levels(level or ())


def _check_targets(out: str | None, report: Path | None = None) -> None:
    """What would make all the work be for nothing is said before it."""
    for path in (report, None if out in (None, STREAM) else Path(str(out))):
        if path is not None and path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; give the name of a file")
    if report is not None:
        from primecast.reporting.report import plotly_script

        plotly_script()


def _hand_over(
    fitted: Any,
    frame: DataFrame | None,
    source: str,
    *,
    level: list[float] | None,
    out: str | None,
    report: Path | None,
    as_json: bool,
    extra: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """The forecast to where it is wanted: a file, a report, stdout when nothing else is named."""
    with _plain_warnings():
        levels = level or _usual_levels(fitted)
        ahead = fitted.predict(frame, level=levels, **options)
        printed = out == STREAM or (out is None and report is None and not as_json)
        if printed or out is not None:
            _write_csv(ahead, STREAM if printed else str(out))
        if report is not None and frame is not None:
            from primecast.reporting.report import gather, write_report

            title = "stdin" if source == STREAM else Path(source).name
            write_report(gather(fitted, frame, title=title, level=levels, **options), report)
            _say(f"wrote {report}")
    if as_json:
        rows = {"time": [str(time) for time in ahead.index], **{str(c): _cells(ahead[c]) for c in ahead}}
        _print_json({**(extra or {}), **_told(fitted), "forecast": rows})


def _usual_levels(fitted: Any) -> list[float]:
    """As many of the usual levels as the held-out windows give; what is left out is said."""
    windows = len(fitted.calibration_)
    for level in LEVELS:
        if windows < level / (100 - level):
            needed = math.ceil(level / (100 - level))
            _say(f"note: no intervals of {level:g} %, which need {needed} held-out windows; there are {windows}")
    return [level for level in LEVELS if windows >= level / (100 - level)]


def _told(fitted: Any) -> dict[str, Any]:
    return {name: fitted.facts_[name] for name in ("model", "scores", "coverage")}


def _write_csv(frame: DataFrame, out: str, *, index: bool = True) -> None:
    label = str(frame.index.name or "time")
    text = frame.to_csv(index=index, index_label=label, lineterminator="\n")
    if out == STREAM:
        typer.echo(text, nl=False)
        return
    from primecast.storage.atomic import write_bytes_atomically

    write_bytes_atomically(Path(out), text.encode())
    _say(f"wrote {out}")


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, allow_nan=False))


def _cells(column: Any) -> list[Any]:
    """Plain values; NaN, which JSON does not know, is null."""
    return [None if value != value else value for value in column.tolist()]


def _rows(frame: DataFrame, name: str) -> list[dict[str, Any]]:
    table = frame.rename_axis(name).reset_index()
    columns = {str(column): _cells(table[column]) for column in table}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _print_table(frame: DataFrame, *, title: str, name: str | None = None) -> None:
    """The first lines, in columns; `name` is that of the index, if it is to be shown."""
    shown = frame.head(SHOWN) if name is None else frame.head(SHOWN).rename_axis(name).reset_index()
    typer.echo(title)
    if len(shown):
        typer.echo(shown.to_string(index=False, float_format="{:.4g}".format))
    if len(frame) > SHOWN:
        typer.echo(f"... {len(frame) - SHOWN} more; --out or --json have all")
