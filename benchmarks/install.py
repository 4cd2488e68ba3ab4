"""Cost of installing and starting primecast: packages, megabytes, import time, time to the first forecast.

    python benchmarks/install.py --prepare     # environments under benchmarks/.envs, once; needs the package index
    python benchmarks/install.py               # all parts

install  number and megabytes of the wheels that pip collects for primecast, neuralforecast and darts, with torch pinned
         to the same build; torch's own wheel is not counted, and the packages torch needs are listed separately.
import   a fresh interpreter that imports minus one that does nothing; interleaved, medians.
demo     from the start of the command `primecast demo` to the first line of its first forecast.

The reduced grid needs no preparation: it leaves out `install` and the peers and uses the environment it runs in.

`darts` is darts[torch]: without the extra it has no neural models.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import measure
from measure import ENVS, ROOT, Others, Rows, Timing

REQUIREMENTS = {
    "torch": "torch",
    "primecast": str(ROOT),
    "neuralforecast": "neuralforecast",
    "darts": "darts[torch]",
}
LOOP_NEEDS = {"darts": "neuralforecast"}
"""What the training loop of loops.py needs besides its package; not counted."""

IMPORTS = {
    "python": ("primecast", "pass"),
    "primecast": ("primecast", "import primecast"),
    "primecast, Forecaster": ("primecast", "from primecast import Forecaster"),
    "torch": ("primecast", "import torch"),
    "neuralforecast": ("neuralforecast", "import neuralforecast"),
    "darts": ("darts", "import darts"),
    "darts, its models": ("darts", "from darts.models import TSMixerModel"),
}
"""Label -> environment and import statement."""


# ---------------------------------------------------------------- environments


def prepare() -> None:
    """Collect wheels and make the environments; existing ones are kept, primecast is always built again."""
    for name, requirement in REQUIREMENTS.items():
        folder = ENVS / "wheels" / name
        if not _holds(folder, _needs(name)):
            print(f"gathering the wheels of {name}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            _pip("wheel", "--wheel-dir", folder, "--constraint", ROOT / "constraints.txt", "torch", requirement)
            (folder / ".ready").write_text(_needs(name), encoding="utf-8")
        if name != "torch":
            _environment(name)
    build_primecast()


def _needs(name: str) -> str:
    """Return what a folder must hold; primecast's dependencies change."""
    if name != "primecast":
        return REQUIREMENTS[name]
    return json.dumps(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"])


def _holds(folder: Path, needs: str) -> bool:
    ready = folder / ".ready"
    return ready.exists() and ready.read_text(encoding="utf-8") == needs


def _environment(name: str) -> None:
    if _holds(ENVS / name, _needs(name)):
        return
    print(f"making the environment of {name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVS / name)], check=True)
    wanted = {name: name, "darts": "darts[torch]"}[name]
    needs = [LOOP_NEEDS[name]] if name in LOOP_NEEDS else []
    places = [f"--find-links={ENVS / 'wheels' / place}" for place in (name, *needs)]
    _pip("install", "--no-index", *places, wanted, *needs, python=measure.peer_python(name))
    (ENVS / name / ".ready").write_text(_needs(name), encoding="utf-8")


def build_primecast() -> None:
    """Build the current package and install it into its environment."""
    wheels = ENVS / "wheels" / "primecast"
    for old in wheels.glob("primecast-*.whl"):
        old.unlink()
    _pip("wheel", "--no-deps", "--wheel-dir", wheels, ROOT)
    (wheel,) = wheels.glob("primecast-*.whl")
    _pip("install", "--no-index", "--no-deps", "--force-reinstall", wheel, python=measure.peer_python("primecast"))


def _pip(*words: object, python: Path | str = sys.executable) -> None:
    """Run the interpreter's own pip, with the user's configuration (index, certificate)."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")


# ---------------------------------------------------------------- the parts


def install(rows: Rows, arguments: argparse.Namespace) -> None:
    """Count packages and megabytes; the result does not depend on how busy the machine is."""
    if arguments.quick:
        return
    build_primecast()
    torch = wheels_of("torch")
    for name in ("primecast", "neuralforecast", "darts"):
        wheels = {package: size for package, size in wheels_of(name).items() if package != "torch"}
        beyond = {package: size for package, size in wheels.items() if package not in torch}
        rows.put(
            name,
            None,
            what=name,
            packages=len(wheels),
            megabytes=round(sum(wheels.values()) / 1e6, 2),
            packages_beyond_torch=len(beyond),
            megabytes_beyond_torch=round(sum(beyond.values()) / 1e6, 2),
            of="wheel files, without torch's own; beyond torch: also without those that torch needs",
        )
    header = ("what", "packages", "MB", "beyond torch's: packages", "MB")
    fields = ("what", "packages", "megabytes", "packages_beyond_torch", "megabytes_beyond_torch")
    measure.show("wheels besides torch", header, [[row[field] for field in fields] for row in rows.rows.values()])


def wheels_of(name: str) -> dict[str, int]:
    """Return package -> bytes of its wheel."""
    return {path.name.split("-")[0].lower(): path.stat().st_size for path in (ENVS / "wheels" / name).glob("*.whl")}


def imports(rows: Rows, arguments: argparse.Namespace) -> None:
    chosen = {what: job for what, job in IMPORTS.items() if job[0] == "primecast" or not arguments.quick}
    if arguments.resume and rows.settled(*(what for what in chosen if what != "python")):
        return
    found: dict[str, list[float]] = {what: [] for what in chosen}
    with Others() as others:
        for turn in range(-1, 3 if arguments.quick else 5):  # the first fills the disk cache and is not counted
            for what, (env, statement) in chosen.items():
                command = [str(sys.executable if arguments.quick else measure.peer_python(env)), "-c", statement]
                began = time.perf_counter()
                subprocess.run(command, check=True, env=measure.environment(), capture_output=True)
                if turn >= 0:
                    found[what].append(time.perf_counter() - began)
    bare = measure.summarize(found.pop("python")).seconds
    timings = {what: measure.summarize([value - bare for value in values]) for what, values in found.items()}
    for what, timing in timings.items():
        rows.put(what, others, what=what, seconds=round(timing.seconds, 4), **_spread(timing), python=round(bare, 4))
    table = [(what, timing.seconds) for what, timing in timings.items()]
    measure.show(f"import, less the bare interpreter; others {others.cores}", ("what", "s"), table)


def demo(rows: Rows, arguments: argparse.Namespace) -> None:
    if arguments.resume and rows.settled("demo"):
        return
    if not arguments.quick:
        build_primecast()
    command = Path(sys.executable if arguments.quick else measure.peer_python("primecast")).with_name("primecast")
    with Others() as others:
        found = [run_demo(command) for _ in range(1 if arguments.quick else 3)]
    first = measure.summarize([seconds for seconds, _ in found])
    whole = measure.summarize([seconds for _, seconds in found])
    rows.put(
        "demo", others, what="demo", seconds=round(first.seconds, 3), **_spread(first), whole=round(whole.seconds, 3)
    )
    measure.show(
        f"primecast demo; others {others.cores}",
        ("until", "s"),
        [("first forecast", first.seconds), ("end", whole.seconds)],
    )


FORECAST_LINE = re.compile(r"\b\d{4}-\d{2}-\d{2} \d{2}:\d{2}\b.*\d\.\d")
"""A time and a number: a row of the forecast table."""


def run_demo(command: Path) -> tuple[float, float]:
    """Return the seconds until the first forecast row is printed and until the command ends."""
    with tempfile.TemporaryDirectory() as folder:
        began, first = time.perf_counter(), None
        process = subprocess.Popen(
            [command, "demo"],
            cwd=folder,
            env=measure.environment(),
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if first is None and FORECAST_LINE.search(line):
                first = time.perf_counter() - began
        if process.wait() or first is None:
            raise RuntimeError(
                f"primecast demo ended with {process.returncode} and printed no forecast that is recognised"
            )
        return first, time.perf_counter() - began


def _spread(timing: Timing) -> dict[str, float]:
    return {"low": round(timing.low, 4), "high": round(timing.high, 4), "samples": timing.samples}


# ---------------------------------------------------------------- the command

PARTS = {"install": install, "import": imports, "demo": demo}


def main() -> None:
    parser = measure.parser(__doc__, list(PARTS))
    parser.add_argument("--prepare", action="store_true", help="make the environments and do nothing else")
    arguments = parser.parse_args()
    measure.prepare_process()
    if arguments.prepare:
        prepare()
        return
    for part in arguments.parts:
        PARTS[part](Rows.open(measure.folder(arguments), part), arguments)


if __name__ == "__main__":
    main()
