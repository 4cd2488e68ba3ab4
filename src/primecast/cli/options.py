"""The options that several commands share, and the panels under which `--help` groups them."""

from pathlib import Path
from typing import Annotated, Any

import typer

DATA, MODEL, INTERVALS, ACTIONS, OUTPUT, MACHINE = "Data", "Model", "Intervals", "What to do", "Output", "Machine"
FORMAT, COVARIATES = "Format of the file", "Covariates"


def option(text: str, panel: str, *names: str) -> Any:
    """Return an option with its help text under a panel; `names` replace the name made from the parameter's."""
    return typer.Option(*names, help=text, rich_help_panel=panel)


Data = Annotated[
    str,
    typer.Argument(
        help="CSV (also .gz, .xz, .zip), Parquet, Feather or Excel file: a column per channel (wide), or a row "
        "per series and time (long, with --id). - is stdin."
    ),
]
SavedModel = Annotated[Path, typer.Argument(help="Folder of a saved model, see `primecast train`.")]
Time = Annotated[
    str | None, option("Time column, or year,month,day,hour that make a date. Default: found automatically.", DATA)
]
Columns = Annotated[str | None, option("Columns to use, between commas. Default: all that measure something.", DATA)]
Drop = Annotated[str | None, option("Columns to leave out, between commas.", DATA)]
Id = Annotated[
    str | None, option("Column that names the series of a long table, such as a sensor or a store.", DATA, "--id")
]
Value = Annotated[str | None, option("Column of values of a long table. Default: y, or its only numbers.", DATA)]
Past = Annotated[
    str | None, option("Covariates: columns that are read but not forecast, between commas.", COVARIATES, "--past")
]
Future = Annotated[str | None, option("Columns that are known in advance, between commas.", COVARIATES, "--future")]
Na = Annotated[
    list[str] | None, option('A cell that means missing, such as -9999 or "Bad Input"; repeatable.', FORMAT, "--na")
]
Header = Annotated[
    bool | None,
    option(
        "Whether the first row has the names. Default: yes, unless it is all numbers or dates.",
        FORMAT,
        "--header/--no-header",
    ),
]
Freq = Annotated[
    str | None,
    option(
        "Step, such as h or 15min: of rows without dates, with --start; or the one to which dated rows are averaged.",
        FORMAT,
    ),
]
Start = Annotated[str | None, option("Date of the first row, where rows have no dates.", FORMAT)]
Decimal = Annotated[str | None, option("Decimal sign, . or , where no cell decides it.", FORMAT)]
Zone = Annotated[str | None, option("Time zone of dates that have none, such as Europe/Berlin.", FORMAT, "--tz")]
Matrix = Annotated[
    bool | None,
    option(
        "Whether rows of years (days), a column for each month (hour), are one series. Default: the names decide.",
        FORMAT,
        "--matrix/--no-matrix",
    ),
]
Dayfirst = Annotated[
    bool | None,
    option("Read 05/02/2024 as 5 February or as 2 May. Default: the rows decide.", DATA, "--dayfirst/--monthfirst"),
]
Missing = Annotated[
    str,
    option(
        "Missing values: error (refuse), interpolate, ffill (last value) or mask (as ffill, not scored).",
        DATA,
    ),
]
Horizon = Annotated[int, option("Steps to forecast.", MODEL)]
Lookback = Annotated[int | None, option("Past steps the model sees; by default 336, less with few rows.", MODEL)]
Quality = Annotated[
    str | None,
    option(
        "Ensemble of 5 (fast), 7 (good) or 12 (best) models. Default: good, or one model if --set model= names it.",
        MODEL,
    ),
]
TimeLimit = Annotated[float | None, option("Seconds after which no further model of --quality is begun.", MODEL)]
ForecasterSettings = Annotated[
    list[str] | None, option("name=value, an argument of Forecaster or of its model; repeatable.", MODEL, "--set")
]
Level = Annotated[list[float] | None, option("Interval level in percent; repeatable. Default: 80 and 95.", INTERVALS)]
Adaptive = Annotated[bool, option("Adapt the intervals to recent errors.", INTERVALS, "--adaptive/--no-adaptive")]
Out = Annotated[str | None, option("CSV file to write; - is stdout.", OUTPUT)]
Report = Annotated[Path | None, option("HTML report to write; needs the extra `report`.", OUTPUT)]
Plot = Annotated[Path | None, option("Picture of the forecast to write: .png, .svg or .pdf.", OUTPUT)]
Save = Annotated[Path | None, option("Folder to save the model in.", OUTPUT)]
Force = Annotated[bool, option("Overwrite files that are there already.", OUTPUT, "--force")]
State = Annotated[
    Path | None,
    option("Checkpoint folder: written in training; the same command goes on from it after an interruption.", MACHINE),
]
Json = Annotated[bool, option("Print the result as one line of JSON.", OUTPUT, "--json")]
