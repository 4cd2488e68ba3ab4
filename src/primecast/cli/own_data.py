"""The commands for your own data: a table in; forecasts, scores, relations or a model file out.

    primecast forecast data.csv --horizon 96 --out forecast.csv --report report.html     train and forecast at once
    primecast train data.csv --horizon 96 --save model      then, in any process, use the saved model:
    primecast compare data.csv --horizon 96      the models of the ensemble side by side
    primecast predict model new.csv        backtest model data.csv        relations model data.csv        export model

Here are their options; `tables`, which is imported only once the names of files are checked, has what they do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from primecast.cli import options
from primecast.cli.options import DATA, MODEL, OUTPUT, option
from primecast.cli.targets import STREAM, check_model, check_source, check_targets
from primecast.errors import InputError


def forecast(
    data: options.Data,
    horizon: options.Horizon,
    lookback: options.Lookback = None,
    level: options.Level = None,
    quality: options.Quality = None,
    time_limit: options.TimeLimit = None,
    missing: options.Missing = "error",
    time: options.Time = None,
    id: options.Id = None,
    value: options.Value = None,
    dayfirst: options.Dayfirst = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    past: options.Past = None,
    future: options.Future = None,
    header: options.Header = None,
    freq: options.Freq = None,
    start: options.Start = None,
    decimal: options.Decimal = None,
    tz: options.Zone = None,
    na: options.Na = None,
    matrix: options.Matrix = None,
    settings: options.ForecasterSettings = None,
    out: options.Out = None,
    report: options.Report = None,
    plot: options.Plot = None,
    save: options.Save = None,
    state: options.State = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Train on a table and forecast the steps after its last row."""
    check_source(data)
    check_targets(reads=[data], out=out, report=report, plot=plot, save=save, force=force)
    from primecast.cli import tables
    from primecast.forecasting.intervals import check_levels

    check_levels(level or ())
    roles = {"past": tables.names(past), "future": tables.names(future)}
    sizes = {"horizon": horizon, "lookback": lookback, "missing": missing}
    fresh = tables.build(settings, **sizes, **roles, quality=quality, time_limit=time_limit)
    reading: dict[str, Any] = {"time": time, "id": id, "value": value, "dayfirst": dayfirst, "columns": columns}
    reading |= {"drop": drop, "header": header, "freq": freq, "start": start, "decimal": decimal, "tz": tz, "na": na}
    reading["matrix"] = matrix
    table, found = tables.read_described(data, fresh, **reading)
    fitted = tables.fit(fresh, table, save=save, state=state)
    wanted: dict[str, Any] = {"level": level, "out": out, "report": report, "plot": plot, "as_json": as_json}
    tables.deliver(fitted, table.frame, data, **wanted, extra={"data": found})


def train(
    data: options.Data,
    horizon: options.Horizon,
    save: Annotated[Path, option("Folder to save the model in.", OUTPUT)],
    lookback: options.Lookback = None,
    quality: options.Quality = None,
    time_limit: options.TimeLimit = None,
    missing: options.Missing = "error",
    time: options.Time = None,
    id: options.Id = None,
    value: options.Value = None,
    dayfirst: options.Dayfirst = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    past: options.Past = None,
    future: options.Future = None,
    header: options.Header = None,
    freq: options.Freq = None,
    start: options.Start = None,
    decimal: options.Decimal = None,
    tz: options.Zone = None,
    na: options.Na = None,
    matrix: options.Matrix = None,
    settings: options.ForecasterSettings = None,
    state: options.State = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Train on a table and save the model in a folder."""
    check_source(data)
    check_targets(save=save, force=force)
    from primecast.cli import tables

    roles = {"past": tables.names(past), "future": tables.names(future)}
    sizes = {"horizon": horizon, "lookback": lookback, "missing": missing}
    fresh = tables.build(settings, **sizes, **roles, quality=quality, time_limit=time_limit)
    reading: dict[str, Any] = {"time": time, "id": id, "value": value, "dayfirst": dayfirst, "columns": columns}
    reading |= {"drop": drop, "header": header, "freq": freq, "start": start, "decimal": decimal, "tz": tz, "na": na}
    reading["matrix"] = matrix
    table, found = tables.read_described(data, fresh, **reading)
    fitted = tables.fit(fresh, table, save=save, state=state)
    if as_json:
        tables.print_json({"data": found, **tables.facts(fitted), "saved": str(save)})


def compare(
    data: options.Data,
    horizon: options.Horizon,
    lookback: options.Lookback = None,
    quality: options.Quality = None,
    time_limit: options.TimeLimit = None,
    missing: options.Missing = "error",
    time: options.Time = None,
    id: options.Id = None,
    value: options.Value = None,
    dayfirst: options.Dayfirst = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    past: options.Past = None,
    future: options.Future = None,
    header: options.Header = None,
    freq: options.Freq = None,
    start: options.Start = None,
    decimal: options.Decimal = None,
    tz: options.Zone = None,
    na: options.Na = None,
    matrix: options.Matrix = None,
    settings: options.ForecasterSettings = None,
    out: options.Out = None,
    plot: Annotated[Path | None, option("Picture of the test errors to write: .png, .svg or .pdf.", OUTPUT)] = None,
    state: options.State = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Train an ensemble on a table and compare its members, itself and the seasonal naive forecast on held-out rows."""
    check_source(data)
    check_targets(reads=[data], out=out, plot=plot, force=force)
    from primecast.cli import tables

    roles = {"past": tables.names(past), "future": tables.names(future)}
    sizes = {"horizon": horizon, "lookback": lookback, "missing": missing}
    fresh = tables.build(settings, **sizes, **roles, quality=quality, time_limit=time_limit)
    reading: dict[str, Any] = {"time": time, "id": id, "value": value, "dayfirst": dayfirst, "columns": columns}
    reading |= {"drop": drop, "header": header, "freq": freq, "start": start, "decimal": decimal, "tz": tz, "na": na}
    reading["matrix"] = matrix
    table, found = tables.read_described(data, fresh, **reading)
    fitted = tables.fit(fresh, table, save=None, state=state, board=False)
    board = fitted.leaderboard()
    if out is not None:
        tables.write_csv(tables.six_digits(board.frame), out, name="forecast")
    if plot is not None:
        tables.write_picture([board.plot()], plot)
    if as_json:
        tables.print_json({"data": found, **tables.facts(fitted), "rows": tables.json_rows(board.frame, "forecast")})
    elif out != STREAM:
        windows = fitted.facts_["scores"]["windows"]
        typer.echo(f"{windows} forecasts of held-out rows, {tables.describe_comparison(board.frame)}")


def predict(
    model: options.SavedModel,
    data: Annotated[str | None, typer.Argument(help="Newer rows of the same channels; - is stdin.")] = None,
    level: options.Level = None,
    future: Annotated[Path | None, option("Table of the covariates whose future values are known.", DATA)] = None,
    adaptive: options.Adaptive = True,
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    start: options.Start = None,
    out: options.Out = None,
    report: options.Report = None,
    plot: options.Plot = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Forecast with a saved model, after its training rows or after the last row of newer data."""
    check_model(model)
    check_source(data)
    check_source(future)
    check_targets(reads=[model, data, future], out=out, report=report, plot=plot, force=force)
    if report is not None and data is None:
        raise InputError("a report needs a table: give the data after the model")
    from primecast.cli import tables

    fitted, frame = tables.open_model(model, data, time=time, dayfirst=dayfirst, start=start)
    known = None if future is None else tables.read_later(fitted, future, time=time, dayfirst=dayfirst).frame
    wanted: dict[str, Any] = {"level": level, "out": out, "report": report, "plot": plot, "as_json": as_json}
    tables.deliver(fitted, frame, data or str(model), **wanted, future=known, adaptive=adaptive)


def backtest(
    model: options.SavedModel,
    data: options.Data,
    windows: Annotated[int, option("Number of forecast origins.", MODEL)] = 5,
    step: Annotated[int | None, option("Rows between two origins. Default: the horizon.", MODEL)] = None,
    level: options.Level = None,
    adaptive: options.Adaptive = True,
    refit: Annotated[bool, option("Train again at every origin.", MODEL, "--refit")] = False,
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    start: options.Start = None,
    out: options.Out = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Forecast from past origins of a table and score against the values that followed."""
    check_model(model)
    check_source(data)
    check_targets(reads=[model, data], out=out, force=force)
    from primecast.cli import tables

    fitted, frame = tables.open_model(model, data, time=time, dayfirst=dayfirst, start=start)
    levels = list(level or tables.LEVELS)
    with tables.plain_warnings():
        tested = fitted.backtest(frame, windows=windows, step=step, level=levels, adaptive=adaptive, refit=refit)
    if out is not None:
        tables.write_csv(tables.round_forecasts(tested.forecasts, fitted), out, index=False)
    if as_json:
        tables.print_json({"windows": len(tested.origins), "scores": tables.json_rows(tested.scores, "channel")})
    elif out != STREAM:
        title = f"{len(tested.origins)} forecasts of {fitted.horizon} steps"
        tables.print_table(tested.scores, title=title, name="channel")


def relations(
    model: options.SavedModel,
    data: options.Data,
    alpha: Annotated[float, option("Probability of one or more false lead-lag pairs.", MODEL)] = 0.01,
    sensor_ablation: Annotated[
        bool, option("Also measure the error without each sensor.", MODEL, "--sensor-ablation")
    ] = False,
    time: options.Time = None,
    dayfirst: options.Dayfirst = None,
    start: options.Start = None,
    out: options.Out = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Show which channel leads which, by how many steps, and what the model attends to."""
    check_model(model)
    check_source(data)
    check_targets(reads=[model, data], out=out, force=force)
    from primecast.cli import tables

    fitted, frame = tables.open_model(model, data, time=time, dayfirst=dayfirst, start=start)
    found = fitted.relations(frame, alpha=alpha)
    pairs = found.pairs()
    ablation = fitted.sensor_ablation(frame).summary if sensor_ablation else None
    if out is not None:
        tables.write_csv(pairs.round(6), out, index=False)
    concentration = None if found.attention is None else vars(found.concentration())
    if as_json:
        ablated = {} if ablation is None else {"sensor_ablation": tables.json_rows(ablation, "sensor")}
        times: Any = [None if one is None else str(one) for one in pairs["time"]]
        rows = pairs.assign(time=times).to_dict(orient="records")
        tables.print_json({"pairs": rows, "concentration": concentration, **ablated})
    elif out != STREAM:
        tables.print_table(pairs, title=f"{len(pairs)} significant lead-lag pairs")
        if concentration is not None:
            channel, fraction = concentration["channel"], concentration["fraction"]
            typer.echo(f"most attended channel: {channel}, {100 * fraction:.0f} % of all attention")
        if ablation is not None:
            tables.print_table(ablation, title="growth of the squared error without a sensor", name="sensor")


def export(
    model: options.SavedModel,
    out: Annotated[Path, option("ONNX file to write.", OUTPUT)] = Path("model.onnx"),
    force: options.Force = False,
) -> None:
    """Export a saved model to ONNX, which runs without primecast; needs the extra `export`."""
    check_model(model)
    check_targets(reads=[model], out=str(out), force=force)
    from primecast.forecasting.forecaster import Forecaster

    Forecaster.load(model).export(out)
    typer.echo(str(out))


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command for command in (forecast, train, compare, predict, backtest, relations, export)
}
