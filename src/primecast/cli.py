"""The commands. They parse, call one function of the package and print; heavy modules load inside them, so that
`primecast --help` is instant.

Bad input is one sentence on stderr and exit code 2; a training that cannot go on is one sentence and exit code 1.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from primecast.errors import InputError, TrainingError

app = typer.Typer(
    help="Forecast many channels together with prime attention.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Forecast many channels together with prime attention."""


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for forecast.csv and forecast.png.")] = Path()) -> None:
    """Train on New York's weather of 2013, forecast the next day, compare, draw."""
    from primecast.demo import demo as show

    show(out)


@app.command(name="list")
def list_everything() -> None:
    """Show models, mechanisms, primers, losses and data sets."""
    from rich.console import Console
    from rich.table import Table

    from primecast.attention import MECHANISMS
    from primecast.data.catalog import CATALOG
    from primecast.losses import LOSSES
    from primecast.models import CONTROLS, MODELS
    from primecast.primers import KINDS

    def yes(is_so: bool) -> str:
        return "yes" if is_so else "no"

    def first_line(thing: Any) -> str:
        return (thing.__doc__ or "").strip().splitlines()[0]

    tables: dict[str, tuple[list[str], list[list[str]]]] = {
        "models": (
            ["name", "tokens", "mechanisms", "can be primed", "reference"],
            [
                [name, entry.tokens, ", ".join(entry.mechanisms) or "-", yes(entry.primable), entry.reference]
                for name, entry in MODELS.items()
            ],
        ),
        "mechanisms (--attention NAME or NAME+prime; standard is dot, prime is dot+prime)": (
            ["name", "what it is", "can be primed"],
            [[name, first_line(kind), yes(kind.primable)] for name, kind in MECHANISMS.items()],
        ),
        "controls (--attention NAME)": (
            ["name", "what it is"],
            [[name, control.what] for name, control in CONTROLS.items()],
        ),
        "primers (--set primer=NAME)": (["name", "what it knows of a pair"], [[n, what] for n, what in KINDS.items()]),
        "losses (--set loss=NAME)": (
            ["name", "what it is"],
            [[name, first_line(loss)] for name, loss in LOSSES.items()],
        ),
        "data sets": (
            ["name", "rows", "channels", "step", "horizons", "licence", "how to get it"],
            [
                [
                    name,
                    str(entry.rows),
                    str(entry.channels),
                    entry.frequency,
                    " ".join(map(str, entry.horizons)),
                    entry.licence,
                    f"primecast fetch {name}" if entry.url else entry.source,
                ]
                for name, entry in CATALOG.items()
            ],
        ),
    }
    console = Console()
    for title, (columns, rows) in tables.items():
        table = Table(*columns, title=title, title_justify="left", title_style="bold")
        for row in rows:
            table.add_row(*row)
        console.print(table)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A data set of `primecast list`.")],
    cache: Annotated[Path | None, typer.Option(help="Folder to put it in; the user's cache by default.")] = None,
) -> None:
    """Download a data set that has a public source, and check it."""
    from primecast.data.catalog import fetch as download

    print(download(name, cache=cache))


@app.command()
def run(
    dataset: Annotated[str, typer.Argument(help="A data set of `primecast list`.")],
    model: Annotated[str, typer.Option(help="A model of `primecast list`.")] = "itransformer",
    attention: Annotated[
        str | None, typer.Option(help="standard, prime, MECHANISM or MECHANISM+prime; prime where it can be.")
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps to forecast; the data set's shortest.")] = None,
    lookback: Annotated[int, typer.Option(help="Steps to look at.")] = 96,
    seed: Annotated[int, typer.Option(help="Of initial weights, window order and dropout.")] = 0,
    preset: Annotated[str, typer.Option(help="official (the backbone's public settings) or paper.")] = "official",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files; else PRIMECAST_DATA.")] = None,
    state: Annotated[Path | None, typer.Option(help="Folder to resume from; written while it trains.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="name=value, replaces a setting; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Train and score one benchmark cell, from the data set's preset to its test score."""
    from primecast.data.catalog import CATALOG
    from primecast.experiment import Spec, parse_setting
    from primecast.experiment import run as run_cell

    if horizon is None:
        horizon = CATALOG[dataset].horizons[0] if dataset in CATALOG else 96
    spec = Spec(
        dataset=dataset,
        model=model,
        attention=attention,
        horizon=horizon,
        lookback=lookback,
        seed=seed,
        preset=preset,
        settings=dict(parse_setting(text) for text in settings or []),
    )
    row = run_cell(spec, root=data_dir, state=state)
    if as_json:
        print(json.dumps(row))
        return
    print(
        f"{row['dataset']} {row['lookback']} -> {row['horizon']}, {row['model']} with {row['attention']} attention, "
        f"preset {row['preset']}, seed {row['seed']}\n"
        f"  test MSE {row['mse']:.4f}  MAE {row['mae']:.4f}  (validation MSE {row['val_mse']:.4f}, "
        f"best of {row['epochs']} epochs: {row['best_epoch']})\n"
        f"  {row['parameters']} parameters, of which the primer adds {100 * row['overhead']:.2f} % to the model; "
        f"{row['seconds']:.1f} s, peak {row['peak_mib']:.0f} MiB"
    )


def main() -> None:
    """The entry point of the command `primecast`."""
    try:
        app()
    except InputError as error:
        print(f"primecast: {error}", file=sys.stderr)
        sys.exit(2)
    except TrainingError as error:
        print(f"primecast: {error}", file=sys.stderr)
        sys.exit(1)
