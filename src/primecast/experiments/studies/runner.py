"""A study from the command line: what is left of it, its runs, its table and its figure."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from primecast.errors import InputError, check_known
from primecast.experiments.spec import Spec, has_data
from primecast.experiments.store import Store, estimate_seconds
from primecast.experiments.studies import STUDIES, load_study
from primecast.experiments.studies.results import collect, read_committed, read_results, uncommitted, write_results
from primecast.experiments.sweep import run_all


def run_study(
    name: str,
    *,
    echo: Callable[[str], object],
    plan: bool = False,
    run: bool = False,
    new: bool = False,
    table: bool = False,
    figure: bool = False,
    quick: bool = False,
    store: Path = Path("runs"),
    out: Path = Path("results"),
    datasets: Sequence[str] | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    root: Path | None = None,
) -> dict[str, str]:
    """Plan, run, tabulate and draw a study, as requested; return the messages of runs that failed.

    echo:     called with each text for the user.
    new:      run nothing that `out` has. quick: a small version, on data of the package, into `out`/quick; alone it
              means run and table. datasets: plan and run these alone. engine, workers, address, root: see `run_all`.
    """
    study = load_study(name)
    if figure and not hasattr(study, "figure"):
        drawn = [each for each in STUDIES if hasattr(load_study(each), "figure")]
        raise InputError(f"study {name!r} has no figure; those that have one: {', '.join(drawn)}")
    if quick and not (run or plan or table or figure):
        run = table = True
    if new and not run:
        raise InputError("--new goes with --run: it leaves out what --out has from before")
    if not (run or plan or table or figure):
        raise InputError(f"say what to do with study {name!r}: --plan, --run, --table, --figure; or --quick alone")
    out = out / "quick" if quick else out  # not among the committed results
    specs: list[Spec] = study.QUICK if quick else study.SPECS
    for each in datasets or ():
        check_known(f"data set of study {name}", each, {spec.dataset for spec in specs})
    wanted = [spec for spec in specs if datasets is None or spec.dataset in datasets]
    runs = Store(store)
    failed: dict[str, str] = {}
    if plan:
        echo(describe_plan(plan_study(wanted, runs, out=out, root=root)))
    if run:
        wanted = uncommitted(wanted, out, root) if new else wanted
        report = run_all(wanted, runs, engine=engine, workers=workers, root=root, address=address)
        failed = report.failed
        echo(f"{report.there} runs were there, {report.done + report.elsewhere} are new, {len(failed)} failed")
    if table:
        frame, blocks = collect(specs, runs, out, root)
        if frame.empty:
            raise InputError(f"no run of study {name!r} is in {store} or {out}: `primecast study {name} --run`")
        write_results(name, out, frame, blocks)
        echo((out / f"{name}.md").read_text(encoding="utf-8"))
    if figure:
        study.figure(read_results(name, out)[0]).savefig(out / f"{name}.png", dpi=150)
        echo(str(out / f"{name}.png"))
    return failed


def plan_study(specs: Iterable[Spec], store: Store, *, out: Path, root: Path | str | None = None) -> pd.DataFrame:
    """Return one line per run: its dataset, whether the data are on this machine, where its row is, and its hours.

    row:   "store", "results" (among the committed ones alone) or "missing".
    hours: 0 if it is in the store, or if a line above is missing, too, and has the same training; else by the seconds
           of similar runs, NaN where none has been measured.
    """
    committed = read_committed(out)
    counted: set[tuple[str, str]] = set()  # of missing rows and of committed ones: --new runs the missing alone
    measured = [*(store.fields(key) for key in store.keys()), *committed.rows.values()]  # noqa: SIM118  no dict
    lines = []
    for spec in specs:
        own = committed.key(spec, root)
        row = "store" if store.has(own) else "results" if own in committed.rows else "missing"
        known = row == "store" or (row, spec.training) in counted
        counted.add((row, spec.training))
        seconds = 0.0 if known else estimate_seconds(measured, vars(spec))
        hours = math.nan if seconds is None else seconds / 3600
        lines.append({"dataset": spec.dataset, "data": has_data(spec.dataset, root), "row": row, "hours": hours})
    return pd.DataFrame(lines)


def describe_plan(plan: pd.DataFrame) -> str:
    """Return what is left of a study in words."""
    left = plan[plan["row"] != "store"]
    new = left[left["row"] == "missing"]
    lines = [f"{len(plan) - len(left)} runs are in the store, {len(left)} are missing"]
    unknown = int(left["hours"].isna().sum())
    if unknown < len(left) or left.empty:
        lines.append(f"about {left['hours'].sum():.1f} core-hours are left, by the seconds of similar runs")
        if unknown:
            lines[-1] += f"; {unknown} runs are not included: no similar run has been measured yet"
    else:
        lines.append(
            "how long they take is not known: no similar run is in --store or --out (measured runs come with the "
            "repository, not with the package)"
        )
    if len(new) < len(left):
        lines.append(
            f"of the missing, {len(left) - len(new)} are among the committed results, and in the table; --new leaves "
            f"them out: {len(new)} runs, about {new['hours'].sum():.1f} core-hours, are left then"
        )
    absent = left[~left["data"]]
    if len(absent):
        hours = f", about {absent['hours'].sum():.1f} core-hours," if absent["hours"].notna().any() else ""
        lines.append(
            f"{len(absent)} of the missing runs{hours} need data sets that are not on this machine: "
            f"{', '.join(dict.fromkeys(absent['dataset']))}"
        )
    return "\n".join(lines)
