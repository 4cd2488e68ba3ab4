"""A study from the command line: what is left of it, its runs, its table and its figure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from primecast.errors import InputError, unknown
from primecast.experiments.run import run_all
from primecast.experiments.spec import Spec
from primecast.experiments.store import Store, estimate_seconds
from primecast.experiments.studies import STUDIES, load_study
from primecast.experiments.studies.results import collect, read_committed, read_results, uncommitted, write_results


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
    specs: list[Spec] = study.specs(quick=quick)
    available = dict.fromkeys(spec.dataset for spec in specs)
    for each in datasets or ():
        if each not in available:
            raise unknown(f"data set of study {name}", each, available)
    wanted = [spec for spec in specs if datasets is None or spec.dataset in datasets]
    runs = Store(store)
    failed: dict[str, str] = {}
    if plan:
        echo(str(plan_study(wanted, runs, out=out, root=root)))
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


@dataclass(frozen=True)
class StudyPlan:
    """Runs of a study: in the store, missing, without data on this machine; core-hours that the missing ones take.

    committed: of the missing, those whose rows are among the results. new_hours: of the others.
    unknown:   missing runs whose model has not been measured.
    """

    there: int
    missing: int
    committed: int
    without_data: tuple[str, ...]
    hours: float
    new_hours: float
    unknown: int

    def __str__(self) -> str:
        lines = [
            f"{self.there} runs are in the store, {self.missing} are missing",
            f"about {self.hours:.1f} core-hours are left, by the seconds of similar runs",
        ]
        if self.unknown:
            lines[-1] += f"; {self.unknown} runs are not included: no similar run has been measured yet"
        if self.committed:
            lines.append(
                f"of the missing, {self.committed} are among the committed results, and in the table; --new leaves "
                f"them out: {self.missing - self.committed} runs, about {self.new_hours:.1f} core-hours, are left then"
            )
        if self.without_data:
            lines.append(f"data sets that are not on this machine: {', '.join(self.without_data)}")
        return "\n".join(lines)


def plan_study(specs: Iterable[Spec], store: Store, *, out: Path, root: Path | str | None = None) -> StudyPlan:
    """Return what is left of a study; seconds are estimated from the rows of the store and of `out`."""
    committed = read_committed(out)
    measured = [*(store.fields(key) for key in store.keys()), *committed.rows.values()]  # noqa: SIM118  no dict
    there = unknown = 0
    absent: dict[str, None] = {}
    hours: dict[bool, list[float]] = {True: [], False: []}  # of the missing, by whether they are committed
    for spec in specs:
        try:
            spec.key(root)
        except InputError:
            absent[spec.dataset] = None
        own = committed.key(spec, root)
        if store.has(own):
            there += 1
            continue
        seconds = estimate_seconds(measured, vars(spec))
        unknown += seconds is None
        hours[own in committed.rows].append((seconds or 0.0) / 3600)
    done, new = hours[True], hours[False]
    missing = len(done) + len(new)
    return StudyPlan(there, missing, len(done), tuple(absent), sum(done) + sum(new), sum(new), unknown)
