"""The commands of research: `run` (one benchmark cell), `study` (a table or figure), `list` and `fetch`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from primecast.cli.options import ACTIONS, DATA, MACHINE, MODEL, OUTPUT, Json, State, option
from primecast.cli.targets import check_source
from primecast.errors import InputError

DataDir = Annotated[Path | None, option("Folder of the data files. Default: PRIMECAST_DATA.", DATA)]


def run(
    dataset: Annotated[str | None, typer.Argument(help="Name of a data set, see `primecast list`.")] = None,
    data: Annotated[
        str | None, option("Instead of a data set: a table of your own, a CSV or Parquet file.", DATA)
    ] = None,
    model: Annotated[str, option("Name of a model, see `primecast list`.", MODEL)] = "itransformer",
    attention: Annotated[
        str | None,
        option("standard, prime, prime-table, MECHANISM or MECHANISM+prime. Default: the model's.", MODEL),
    ] = None,
    horizon: Annotated[int | None, option("Steps to forecast. Default: the data set's shortest.", MODEL)] = None,
    lookback: Annotated[int, option("Past steps the model sees.", MODEL)] = 96,
    seed: Annotated[int, option("Seed of the initial weights, the window order and dropout.", MODEL)] = 0,
    preset: Annotated[str, option("official (the backbone's public settings) or paper.", MODEL)] = "official",
    settings: Annotated[
        list[str] | None, option("name=value, overrides a setting; repeatable.", MODEL, "--set")
    ] = None,
    data_dir: DataDir = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Train one model on one benchmark data set, or on a table of your own, and print its test score."""
    if (dataset is None) == (data is None):
        raise InputError("give the name of a data set, see `primecast list`, or --data FILE")
    check_source(data)
    from primecast.data.catalog import CATALOG
    from primecast.experiments.run import run as run_spec
    from primecast.experiments.spec import Spec, parse_setting
    from primecast.training.distributed import is_main

    if horizon is None:
        horizon = CATALOG[dataset].horizons[0] if dataset in CATALOG else 96
    spec = Spec(
        dataset=str(dataset or data),
        model=model,
        attention=attention,
        horizon=horizon,
        lookback=lookback,
        seed=seed,
        preset=preset,
        settings=dict(parse_setting(text) for text in settings or []),
    )
    row = run_spec(spec, root=data_dir, state=state).fields
    if is_main():  # under torchrun every process has the row; one prints it
        print(json.dumps(row) if as_json else _describe_row(row))


def _describe_row(row: dict[str, Any]) -> str:
    return (
        f"{row['dataset']} {row['lookback']} -> {row['horizon']}, {row['model']} with {row['attention']} attention, "
        f"preset {row['preset']}, seed {row['seed']}\n"
        f"  test MSE {row['mse']:.4f}  MAE {row['mae']:.4f}  (validation MSE {row['val_mse']:.4f}, "
        f"best epoch {row['best_epoch']} of {row['epochs']})\n"
        f"  {row['parameters']} parameters, primer overhead {100 * row['overhead']:.2f} %; "
        f"{row['seconds']:.1f} s, peak memory {row['peak_mib']:.0f} MiB"
    )


def study(
    name: Annotated[str | None, typer.Argument(help="Name of a study, see `primecast study --list`.")] = None,
    show_list: Annotated[bool, option("Show the studies.", ACTIONS, "--list")] = False,
    plan: Annotated[bool, option("Print finished and missing runs and core-hours.", ACTIONS, "--plan")] = False,
    run: Annotated[bool, option("Run what is missing; may be interrupted and repeated.", ACTIONS, "--run")] = False,
    new: Annotated[bool, option("With --run: skip the runs whose results are in --out.", ACTIONS, "--new")] = False,
    table: Annotated[bool, option("Write the CSV files and the table into --out.", ACTIONS, "--table")] = False,
    figure: Annotated[bool, option("Draw the figure from the CSV files in --out.", ACTIONS, "--figure")] = False,
    quick: Annotated[bool, option("A small version, on the package's own data.", ACTIONS, "--quick")] = False,
    store: Annotated[Path, option("Folder of the runs; several machines may share it.", OUTPUT)] = Path("runs"),
    out: Annotated[Path, option("Folder of the tables and figures.", OUTPUT)] = Path("results"),
    dataset: Annotated[list[str] | None, option("Plan and run only this data set; repeatable.", DATA)] = None,
    data_dir: DataDir = None,
    workers: Annotated[int | None, option("Number of parallel runs. Default: the number of cores.", MACHINE)] = None,
    engine: Annotated[str, option("local (processes) or ray.", MACHINE)] = "local",
    address: Annotated[str | None, option("Address of a Ray cluster. Default: start one here.", MACHINE)] = None,
) -> None:
    """Run a study and make its table and figure from the runs."""
    from primecast.experiments.studies import STUDIES, load_study
    from primecast.experiments.studies.runner import run_study

    if show_list or name is None:
        for each in STUDIES:
            print(f"{each:{max(map(len, STUDIES))}}  {load_study(each).TITLE}")
        return
    failed = run_study(
        name,
        echo=print,
        plan=plan,
        run=run,
        new=new,
        table=table,
        figure=figure,
        quick=quick,
        store=store,
        out=out,
        datasets=dataset,
        workers=workers,
        engine=engine,
        address=address,
        root=data_dir,
    )
    for spec, message in failed.items():
        print(f"failed: {spec}: {message}", file=sys.stderr)
    if failed:
        sys.exit(1)


def list_registries() -> None:
    """Show the models, attentions, mechanisms, primers, losses and data sets."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for title, (header, *rows) in _registries().items():
        table = Table(title=title, title_justify="left", title_style="bold")
        for place, column in enumerate(header):
            table.add_column(str(column), no_wrap=place == 0, overflow="fold")  # a name is copied: it stays whole
        for row in rows:
            table.add_row(*("yes" if cell is True else "no" if cell is False else str(cell) for cell in row))
        console.print(table)


def _registries() -> dict[str, list[tuple[object, ...]]]:
    """Return title -> rows, the header first."""
    from primecast.data.catalog import CATALOG
    from primecast.models import ATTENTIONS, CONTROLS, MODELS
    from primecast.nn.losses import LOSSES
    from primecast.nn.mechanisms import MECHANISMS
    from primecast.nn.primer_layers import KINDS

    def summary(thing: object) -> str:
        return (thing.__doc__ or "").strip().splitlines()[0]

    named = ("name", "description")
    models = [(n, m.tokens, ", ".join(m.mechanisms) or "-", m.supports_primer, m.reference) for n, m in MODELS.items()]
    datasets = [
        (name, d.rows, d.channels, d.frequency, " ".join(map(str, d.horizons)), d.license,
         f"primecast fetch {name}" if d.url else d.source)
        for name, d in CATALOG.items()
    ]  # fmt: skip
    return {
        "models": [("name", "tokens", "mechanisms", "supports a primer", "reference"), *models],
        "attentions (--attention NAME)": [named, *((name, one.what) for name, one in ATTENTIONS.items())],
        "mechanisms (--attention NAME or NAME+prime; standard is dot, prime is dot+prime)": [
            (*named, "supports a primer"),
            *((name, summary(kind), kind.supports_primer) for name, kind in MECHANISMS.items()),
        ],
        "controls (--attention NAME)": [named, *((name, one.what) for name, one in CONTROLS.items())],
        "primers (--set primer=NAME)": [named, *KINDS.items()],
        "losses (--set loss=NAME)": [named, *((name, summary(loss)) for name, loss in LOSSES.items())],
        "data sets": [("name", "rows", "channels", "step", "horizons", "license", "how to get it"), *datasets],
    }


def fetch(
    name: Annotated[str, typer.Argument(help="Name of a data set, see `primecast list`.")],
    cache: Annotated[Path | None, option("Folder to download into. Default: the user's cache folder.", OUTPUT)] = None,
) -> None:
    """Download a data set that has a public source and check its digest."""
    from primecast.data.catalog import fetch as download

    print(download(name, cache=cache))


COMMANDS: dict[str, Callable[..., None]] = {"run": run, "study": study, "list": list_registries, "fetch": fetch}
