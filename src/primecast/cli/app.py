"""The typer app and its entry point.

Bad input prints one sentence on stderr and exits with code 2; a training that cannot continue, with code 1. With
PRIMECAST_TRACEBACK=1 in the environment the traceback is printed instead of the sentence.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

import primecast
from primecast.cli import own_data, research
from primecast.cli.guard import flush, guarded, prepare_streams, refusals
from primecast.cli.options import Force
from primecast.cli.targets import check_file
from primecast.errors import InputError, TrainingError

app = typer.Typer(
    help="Forecast many channels together with prime attention.",
    epilog="Bad input prints one sentence and exits with code 2; PRIMECAST_TRACEBACK=1 shows the traceback instead.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> bool:
    if requested:
        print(f"primecast {primecast.__version__}")
        raise typer.Exit
    return requested


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Forecast many channels together with prime attention."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for forecast.csv and forecast.png.")] = Path(),
    force: Force = False,
) -> None:
    """Train on New York's weather of 2013, forecast a day, compare and draw."""
    for name in ("forecast.csv", "forecast.png"):
        check_file(out / name, force=force)
    from primecast.cli.demo import run_demo

    run_demo(out)


PANELS = {"Start here": {"demo": demo}, "Your own data": own_data.COMMANDS, "Research": research.COMMANDS}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        app.command(name=name, rich_help_panel=panel)(guarded(command))


def _run() -> None:
    try:
        app()
    except SystemExit as stop:
        if not stop.code:  # help and versions, which no command guards
            flush()
        raise


def main() -> None:
    """Run the command of `sys.argv`; `primecast.__main__` says what signals do before and after it."""
    os.environ["MPLBACKEND"] = "agg"  # pictures are written to files: no window is needed, nor a display
    prepare_streams()
    try:
        with refusals():
            _run()
    except (InputError, TrainingError) as error:
        if os.environ.get("PRIMECAST_TRACEBACK"):
            traceback.print_exc()
        else:
            print(f"primecast: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
