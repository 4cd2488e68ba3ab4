"""The options that several commands share, and the panels under which `--help` groups them."""

from pathlib import Path
from typing import Annotated, Any

import typer

DATA, MODEL, INTERVALS, ACTIONS, OUTPUT, MACHINE = "Data", "Model", "Intervals", "What to do", "Output", "Machine"


def option(text: str, panel: str, *names: str) -> Any:
    """Return an option with its help text under a panel; `names` replace the name made from the parameter's."""
    return typer.Option(*names, help=text, rich_help_panel=panel)


Data = Annotated[str, typer.Argument(help="CSV (also .gz, .xz) or Parquet file, wide or long; - is stdin.")]
SavedModel = Annotated[Path, typer.Argument(help="Folder of a saved model, see `primecast train`.")]
Time = Annotated[str | None, option("Name of the time column. Default: found automatically.", DATA)]
Dayfirst = Annotated[
    bool | None,
    option("Read 05/02/2024 as 5 February or as 2 May. Default: the rows decide.", DATA, "--dayfirst/--monthfirst"),
]
Missing = Annotated[str, option("Policy for missing values: error, interpolate, ffill or mask.", DATA)]
Horizon = Annotated[int, option("Steps to forecast.", MODEL)]
Lookback = Annotated[int | None, option("Past steps the model sees; by default 336, less with few rows.", MODEL)]
Quality = Annotated[
    str | None, option("fast, good or best ensemble. Default: good; one model, if --set names it.", MODEL)
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
