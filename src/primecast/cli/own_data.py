"""The commands for your own data: a table in; forecasts, scores, relations or a model file out.

    primecast forecast data.csv --horizon 96 --out forecast.csv --report report.html     train and forecast at once
    primecast train data.csv --horizon 96 --save model      then, in any process, use the saved model:
    primecast predict model new.csv        backtest model data.csv        relations model data.csv        export model

Results go to stdout or to files, messages to stderr; `-` is stdin or stdout.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primecast.cli import options, streams
from primecast.cli.options import DATA, MODEL, OUTPUT, option
from primecast.cli.streams import STREAM, say
from primecast.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from primecast.forecasting.forecaster import Forecaster
else:
    DataFrame = Forecaster = Any  # tests check annotations at run time, which must not import pandas or torch

LEVELS = (80.0, 95.0)


def forecast(
    data: options.Data,
    horizon: options.Horizon,
    lookback: options.Lookback = 96,
    level: options.Level = None,
    missing: options.Missing = "error",
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    settings: options.ForecasterSettings = None,
    out: options.Out = None,
    report: options.Report = None,
    save: Annotated[Path | None, option("Folder to save the model in.", OUTPUT)] = None,
    as_json: options.Json = False,
) -> None:
    """Train on a table and forecast the steps after its last row."""
    from primecast.forecasting.intervals import check_levels

    _check_targets(out, report)
    check_levels(level or ())
    frame, found = streams.read_described(data, time=time, dayfirst=dayfirst, missing=missing)
    fitted = _fit(frame, horizon=horizon, lookback=lookback, missing=missing, settings=settings)
    if save is not None:
        fitted.save(save)
        say(f"saved {save}")
    _deliver(fitted, frame, data, level=level, out=out, report=report, as_json=as_json, extra={"data": found})


def train(
    data: options.Data,
    horizon: options.Horizon,
    save: Annotated[Path, option("Folder to save the model in.", OUTPUT)],
    lookback: options.Lookback = 96,
    missing: options.Missing = "error",
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    settings: options.ForecasterSettings = None,
    as_json: options.Json = False,
) -> None:
    """Train on a table and save the model in a folder."""
    frame, found = streams.read_described(data, time=time, dayfirst=dayfirst, missing=missing)
    fitted = _fit(frame, horizon=horizon, lookback=lookback, missing=missing, settings=settings)
    fitted.save(save)
    say(f"saved {save}")
    if as_json:
        streams.print_json({"data": found, **_facts(fitted), "saved": str(save)})


def predict(
    model: options.SavedModel,
    data: Annotated[str | None, typer.Argument(help="Newer rows of the same channels; - is stdin.")] = None,
    level: options.Level = None,
    future: Annotated[Path | None, option("Table of the covariates whose future values are known.", DATA)] = None,
    adaptive: options.Adaptive = False,
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    out: options.Out = None,
    report: options.Report = None,
    as_json: options.Json = False,
) -> None:
    """Forecast with a saved model, after its training rows or after the last row of newer data."""
    _check_targets(out, report)
    if report is not None and data is None:
        raise InputError("a report needs a table: give the data after the model")
    fitted = _load(model)
    frame = (
        None if data is None else streams.read_described(data, time=time, dayfirst=dayfirst, missing=fitted.missing)[0]
    )
    known = None if future is None else streams.read(future, time=time, dayfirst=dayfirst)
    wanted: dict[str, Any] = {"level": level, "out": out, "report": report, "as_json": as_json}
    _deliver(fitted, frame, data or str(model), **wanted, future=known, adaptive=adaptive)


def backtest(
    model: options.SavedModel,
    data: options.Data,
    windows: Annotated[int, option("Number of forecast origins.", MODEL)] = 5,
    step: Annotated[int | None, option("Rows between two origins. Default: the horizon.", MODEL)] = None,
    level: options.Level = None,
    adaptive: options.Adaptive = False,
    refit: Annotated[bool, option("Train again at every origin.", MODEL, "--refit")] = False,
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Forecast from past origins of a table and score against the values that followed."""
    _check_targets(out)
    fitted = _load(model)
    frame, _ = streams.read_described(data, time=time, dayfirst=dayfirst, missing=fitted.missing)
    with streams.plain_warnings():
        tested = fitted.backtest(
            frame, windows=windows, step=step, level=list(level or LEVELS), adaptive=adaptive, refit=refit
        )
    if out is not None:
        streams.write_csv(tested.forecasts, out, index=False)
    if as_json:
        streams.print_json({"windows": len(tested.origins), "scores": streams.json_rows(tested.scores, "channel")})
    elif out != STREAM:
        streams.print_table(
            tested.scores, title=f"{len(tested.origins)} forecasts of {fitted.horizon} steps", name="channel"
        )


def relations(
    model: options.SavedModel,
    data: options.Data,
    alpha: Annotated[float, option("Probability of one or more false lead-lag pairs.", MODEL)] = 0.01,
    sensor_ablation: Annotated[
        bool, option("Also measure the error without each sensor.", MODEL, "--sensor-ablation")
    ] = False,
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Show which channel leads which, by how many steps, and what the model attends to."""
    _check_targets(out)
    fitted = _load(model)
    frame, _ = streams.read_described(data, time=time, dayfirst=dayfirst, missing=fitted.missing)
    found = fitted.relations(frame, alpha=alpha)
    pairs = found.pairs()
    ablation = fitted.sensor_ablation(frame).summary if sensor_ablation else None
    if out is not None:
        streams.write_csv(pairs, out, index=False)
    concentration = None if found.attention is None else vars(found.concentration())
    if as_json:
        ablated = {} if ablation is None else {"sensor_ablation": streams.json_rows(ablation, "sensor")}
        times: Any = [None if one is None else str(one) for one in pairs["time"]]
        rows = pairs.assign(time=times).to_dict(orient="records")
        streams.print_json({"pairs": rows, "concentration": concentration, **ablated})
    elif out != STREAM:
        streams.print_table(pairs, title=f"{len(pairs)} significant lead-lag pairs")
        if concentration is not None:
            channel, fraction = concentration["channel"], concentration["fraction"]
            typer.echo(f"most attended channel: {channel}, {100 * fraction:.0f} % of all attention")
        if ablation is not None:
            streams.print_table(ablation, title="growth of the squared error without a sensor", name="sensor")


def export(
    model: options.SavedModel, out: Annotated[Path, option("ONNX file to write.", OUTPUT)] = Path("model.onnx")
) -> None:
    """Export a saved model to ONNX, which runs without primecast; needs the extra `export`."""
    _load(model).export(out)
    typer.echo(str(out))


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command for command in (forecast, train, predict, backtest, relations, export)
}


def _check_targets(out: str | None, report: Path | None = None) -> None:
    """Refuse what cannot be written before anything long starts."""
    for path in (report, None if out in (None, STREAM) else Path(str(out))):
        if path is not None and path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; give the name of a file")
    if report is not None:
        from primecast.reporting.render import plotly_script

        plotly_script()


def _fit(frame: DataFrame, *, horizon: int, lookback: int, missing: str, settings: Sequence[str] | None) -> Forecaster:
    """Fit a Forecaster; a setting that is not one of its arguments is passed to its model."""
    from inspect import signature

    from primecast.experiments.spec import parse_setting
    from primecast.forecasting.forecaster import Forecaster

    arguments: dict[str, Any] = {}
    for name, value in map(parse_setting, settings or ()):
        if name in ("horizon", "lookback", "missing"):
            raise InputError(f"{name} has an option of its own: --{name} {value}")
        if name in signature(Forecaster).parameters:
            arguments[name] = value
        else:
            arguments.setdefault("model_args", {})[name] = value
    forecaster = Forecaster(horizon=horizon, lookback=lookback, missing=missing, **arguments)
    with streams.plain_warnings():
        forecaster.fit(frame)
    scores = forecaster.facts_["scores"]
    say(
        f"{scores['windows']} forecasts of held-out rows: MSE {scores['mse']:.4f}, MAE {scores['mae']:.4f}; "
        f"seasonal naive: {scores['naive_mse']:.4f}, {scores['naive_mae']:.4f} (standardized units)"
    )
    return forecaster


def _load(model: Path) -> Forecaster:
    from primecast.forecasting.forecaster import Forecaster

    return Forecaster.load(model)


def _facts(fitted: Forecaster) -> dict[str, Any]:
    return {name: fitted.facts_[name] for name in ("model", "scores", "coverage")}


def _deliver(
    fitted: Forecaster,
    frame: DataFrame | None,
    source: str,
    *,
    level: list[float] | None,
    out: str | None,
    report: Path | None,
    as_json: bool,
    extra: dict[str, Any] | None = None,
    **arguments: Any,
) -> None:
    """Forecast, and write the result to the file, the report and stdout; stdout is the default."""
    with streams.plain_warnings():
        levels = level or _default_levels(fitted)
        predicted = fitted.predict(frame, level=levels, **arguments)
        if out is None and report is None and not as_json:
            out = STREAM
        if out is not None:
            streams.write_csv(predicted, out)
        if report is not None and frame is not None:
            from primecast.reporting.gather import gather
            from primecast.reporting.render import write_report

            title = "stdin" if source == STREAM else Path(source).name
            write_report(gather(fitted, frame, title=title, level=levels, **arguments), report)
            say(f"wrote {report}")
    if as_json:
        columns = streams.json_values(predicted.rename(columns=str)).to_dict(orient="list")
        times = [str(time) for time in predicted.index]
        streams.print_json({**(extra or {}), **_facts(fitted), "forecast": {"time": times, **columns}})


def _default_levels(fitted: Forecaster) -> list[float]:
    """Return those of `LEVELS` that the number of held-out windows allows; say which are left out."""
    windows = len(fitted.calibration_)
    for level in LEVELS:
        if windows < level / (100 - level):
            needed = math.ceil(level / (100 - level))
            say(f"note: no intervals of {level:g} %, which need {needed} held-out windows; there are {windows}")
    return [level for level in LEVELS if windows >= level / (100 - level)]
