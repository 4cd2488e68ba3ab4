"""The commands. They parse, call one function of the package and print; heavy modules load inside them, so that
`primecast --help` is instant.

Bad input is one sentence on stderr and exit code 2; a training that cannot go on is one sentence and exit code 1. With
PRIMECAST_TRACEBACK=1 in the environment there is a traceback instead of the sentence.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from primecast.cli.own_data import COMMANDS
from primecast.errors import InputError, TrainingError, unknown

app = typer.Typer(
    help="Forecast many channels together with prime attention.",
    epilog="Bad input is one sentence and exit code 2; PRIMECAST_TRACEBACK=1 shows the traceback instead.",
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
    from primecast.cli.demo import demo as show

    show(out)


@app.command(name="list")
def list_everything() -> None:
    """Show models, mechanisms, primers, losses and data sets."""
    from rich.console import Console
    from rich.table import Table

    from primecast.data.catalog import CATALOG
    from primecast.models import ATTENTIONS, CONTROLS, MODELS
    from primecast.nn.attention import MECHANISMS
    from primecast.nn.losses import LOSSES
    from primecast.nn.primer import KINDS

    def yes(is_so: bool) -> str:
        return "yes" if is_so else "no"

    def first_line(thing: Any) -> str:
        return (thing.__doc__ or "").strip().splitlines()[0]

    tables: dict[str, tuple[list[str], list[list[str]]]] = {
        "models": (
            ["name", "tokens", "mechanisms", "can be primed", "reference"],
            [
                [name, entry.tokens, ", ".join(entry.mechanisms) or "-", yes(entry.supports_primer), entry.reference]
                for name, entry in MODELS.items()
            ],
        ),
        "attentions (--attention NAME)": (
            ["name", "what it is"],
            [[name, attention.what] for name, attention in ATTENTIONS.items()],
        ),
        "mechanisms (--attention NAME or NAME+prime; standard is dot, prime is dot+prime)": (
            ["name", "what it is", "can be primed"],
            [[name, first_line(kind), yes(kind.supports_primer)] for name, kind in MECHANISMS.items()],
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
        str | None, typer.Option(help="standard, prime-free, prime, MECHANISM[+prime]; prime-free where it can be.")
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
    from primecast.experiments.experiment import Spec, parse_setting
    from primecast.experiments.experiment import run as run_cell
    from primecast.training.distributed import is_main

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
    row = run_cell(spec, root=data_dir, state=state).fields
    if not is_main():  # under torchrun all processes have the row, and one prints it
        return
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


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(help="A study of `primecast study --list`.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the studies.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what is there, what is missing, and core-hours.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Run what is missing; may be cut off and repeated.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Run nothing that --out has from before.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Write the CSV files and the table into --out.")] = False,
    figure: Annotated[bool, typer.Option("--figure", help="Draw the figure from the CSV files in --out.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, on data of the package.")] = False,
    store: Annotated[Path, typer.Option(help="Folder of the runs; several machines may share it.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of tables and figures.")] = Path("results"),
    dataset: Annotated[list[str] | None, typer.Option(help="Run and plan these data sets alone; repeatable.")] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at a time; as many as cores.")] = None,
    engine: Annotated[str, typer.Option(help="local (processes) or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; else one is started here.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files; else PRIMECAST_DATA.")] = None,
) -> None:
    """Run a study, and make its table and figure from the runs."""
    from primecast.experiments.studies import STUDIES, load_study

    if show_list or name is None:
        for each in STUDIES:
            print(f"{each:{max(map(len, STUDIES))}}  {load_study(each).TITLE}")
        return
    module = load_study(name)
    if figure and not hasattr(module, "figure"):
        drawn = [each for each in STUDIES if hasattr(load_study(each), "figure")]
        raise InputError(f"study {name!r} has no figure; those that have one: {', '.join(drawn)}")
    if quick and not (run or plan or table or figure):
        run = table = True
    if new and not run:
        raise InputError("--new goes with --run: it leaves out what --out has from before")
    if not (run or plan or table or figure):
        raise InputError(f"say what to do with study {name!r}: --plan, --run, --table, --figure; or --quick alone")

    from primecast.experiments.engines import Interrupted
    from primecast.experiments.experiment import run_all
    from primecast.experiments.store import Store
    from primecast.experiments.studies import results

    if quick:  # not among the committed results
        out = out / "quick"
    runs = Store(store)
    specs = module.specs(quick=quick)
    asked = [spec for spec in specs if dataset is None or spec.dataset in dataset]
    for each in dataset or []:
        if each not in {spec.dataset for spec in specs}:
            raise unknown(f"data set of study {name}", each, dict.fromkeys(spec.dataset for spec in specs))
    if plan:
        print(results.plan(asked, runs, out=out, root=data_dir))
    failed: dict[str, str] = {}
    if run:
        try:
            if new:
                asked = list(results.uncommitted(asked, out, data_dir).values())
            report = run_all(asked, runs, engine=engine, workers=workers, root=data_dir, address=address)
        except Interrupted as stop:
            print(f"primecast: {stop}", file=sys.stderr)
            sys.exit(130)
        failed = report.failed
        print(f"{report.there} runs were there, {report.done + report.elsewhere} are new, {len(failed)} failed")
        for shown, sentence in failed.items():
            print(f"failed: {shown}: {sentence}", file=sys.stderr)
    if table:
        frame, blocks = results.join_committed(out, specs, *results.collect(specs, runs, data_dir), data_dir)
        if frame.empty:
            raise InputError(
                f"no run of study {name!r} is in {store} or {out}: `primecast study {name} --run` makes them"
            )
        results.write_results(name, out, frame, blocks)
        print((out / f"{name}.md").read_text(encoding="utf-8"))
    if figure:
        drawing = module.figure(results.read_results(name, out)[0])
        drawing.savefig(out / f"{name}.png", dpi=150)
        print(out / f"{name}.png")
    if failed:
        sys.exit(1)


for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """The entry point of the command `primecast`."""
    try:
        app()
    except (InputError, TrainingError) as error:
        if os.environ.get("PRIMECAST_TRACEBACK"):
            traceback.print_exc()
        else:
            print(f"primecast: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
