"""Run the tests of the integrations, each in an environment of its own, since what they require does not fit together.

    python tools/integrations.py                  # all of them
    python tools/integrations.py sktime           # this one
    python tools/integrations.py --list

An environment is made in .envs/<name> and kept; it is made anew when its requirements, those of primecast, the pinned
torch or the Python change. torch goes first and pinned: an open range would fetch gigabytes of accelerator packages.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVS = ROOT / ".envs"
TESTED_WITH = ("pytest", "hypothesis")
INTEGRATIONS = {
    "itransformer": ["iTransformer==0.8.1"],
    "neuralforecast": ["neuralforecast>=3.3,<4"],
    "ray": ["ray>=2.40,<3"],
    "sktime": ["sktime>=1.2,<2"],
    "transformers": ["transformers>=5.23,<6"],
}
"""Name of tests/integrations/test_<name>.py -> packages whose newest release of this range it is run against."""


def requirements(name: str) -> list[str]:
    """What pip is told to install, torch first."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    torch = next(line for line in pins if line.startswith("torch=="))
    return [torch, *INTEGRATIONS[name], *TESTED_WITH]


def fingerprint(name: str) -> str:
    """Changes with anything that would make another environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = [sys.version, *requirements(name), *project["dependencies"]]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def environment(name: str) -> Path:
    """The environment's Python, made if there is none or another is wanted."""
    folder = ENVS / name
    mark = folder / "fingerprint"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not mark.is_file() or mark.read_text(encoding="utf-8") != fingerprint(name):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        torch, *others = requirements(name)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, torch], check=True)
        subprocess.run([*pip, torch, *others, "--editable", str(ROOT)], check=True)
        mark.write_text(fingerprint(name), encoding="utf-8")
    return python


def run(name: str) -> bool:
    """Whether the tests of this integration pass; what they print goes to the terminal."""
    start = time.monotonic()
    try:
        python = environment(name)
    except subprocess.CalledProcessError as error:
        print(f"{name}: the environment could not be made ({' '.join(map(str, error.cmd[1:4]))} failed)")
        return False
    made = time.monotonic()
    # Other people's warnings are not our errors, and sktime looks into constructors, which shape checks would wrap.
    options = ["-q", "-ra", "--disable-warnings", "-o", "addopts=", "-o", "filterwarnings=default"]
    command = [str(python), "-m", "pytest", *options, "-p", "no:cacheprovider", f"tests/integrations/test_{name}.py"]
    command.append("tests/test_documents.py::test_code_that_needs_another_package_runs_where_it_is")
    done = subprocess.run(command, cwd=ROOT)
    end = time.monotonic()
    word = "passed" if done.returncode == 0 else "FAILED"
    print(f"{name}: {word} (environment {made - start:.0f} s, tests {end - made:.0f} s)", flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help="which ones; all when none is named")
    parser.add_argument("--list", action="store_true", help="print the names and what is installed for each")
    arguments = parser.parse_args()
    if arguments.list:
        for name in INTEGRATIONS:
            print(f"{name:<16} {' '.join(requirements(name))}")
        return 0
    unknown = [name for name in arguments.names if name not in INTEGRATIONS]
    if unknown:
        parser.error(f"unknown integration {unknown[0]!r}; allowed: {', '.join(INTEGRATIONS)}")
    passed = [run(name) for name in arguments.names or INTEGRATIONS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
