"""Run the tests with other versions than those of constraints.txt, each in an environment of its own under .envs.

    python tools/versions.py minimum      # the oldest version of every package that pyproject.toml allows, but torch
    python tools/versions.py pythons      # Python 3.12 and 3.13 without torch: what can be imported and tested there

minimum: torch is the pinned one. Warnings are no errors: packages of different ages warn of each other.
pythons: interpreters of pyenv, or those on the path; one that is not there is said and left out. Modules and tests that
need torch, directly or through others, are left out: the whole suite runs in the workflow of GitHub.
"""

import argparse
import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVS = ROOT / ".envs"
PYTHONS = ("3.12", "3.13")
OF_THEIR_TIME = ["python-dateutil<3"]
"""Packages of packages whose newest versions do not fit to the oldest ones of the others."""
OPTIONS = ["-q", "-o", "addopts=", "-o", "filterwarnings=default", "--disable-warnings", "-p", "no:cacheprovider"]
NEEDS_ALL = {"tests.test_package", "tests.test_compile", "tests.integrations.test_missing_packages"}
"""Tests that start processes which import everything."""
NOT_HERE = "not test_public_names_are_listed and not test_a_module_imports_no_heavy_package"
"""The same, of test_architecture."""


def requirements(*, minimum: bool) -> list[str]:
    """Return the packages of primecast and of its tests, but torch; the oldest allowed versions, or the newest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = [re.match(r"([\w-]+)>=([\w.]+)", text) for text in
              (*project["dependencies"], *project["optional-dependencies"]["dev"])]  # fmt: skip
    found = {bound[1]: bound[2] for bound in bounds if bound is not None and bound[1] != "torch"}
    if not minimum:
        return list(found)
    return [*(f"{name}=={version}" for name, version in found.items()), *OF_THEIR_TIME]


def environment(name: str, interpreter: str, packages: list[str], *, torch: bool) -> Path:
    """Return the Python of an environment with these packages; it is made anew when they or the interpreter change."""
    folder = ENVS / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    mark = hashlib.sha256("\n".join([interpreter, str(torch), *packages]).encode()).hexdigest()
    if not (folder / "fingerprint").is_file() or (folder / "fingerprint").read_text(encoding="utf-8") != mark:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if torch:  # first and pinned: an open range would fetch gigabytes of accelerator packages
            pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
            packages = [next(line for line in pins if line.startswith("torch==")), *packages]
            subprocess.run([*pip, packages[0]], check=True)
        subprocess.run([*pip, *packages], check=True)
        subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
        (folder / "fingerprint").write_text(mark, encoding="utf-8")
    return python


def test_minimum() -> bool:
    """Return whether the suite passes with the oldest versions."""
    python = environment("minimum", sys.executable, requirements(minimum=True), torch=True)
    tests = ["-m", "pytest", *OPTIONS, "-m", "not slow", "-n", "2", "--dist", "worksteal"]
    return subprocess.run([str(python), *tests], cwd=ROOT).returncode == 0


# ---------------------------------------------------------------- other Pythons, without torch


def imported(path: Path) -> set[str]:
    """Return the names that a module imports when it is imported itself; of `from a import b` both "a" and "a.b"."""
    names: set[str] = set()
    waiting: list[ast.stmt] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.Import):
            names.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names.update({statement.module, *(f"{statement.module}.{alias.name}" for alias in statement.names)})
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.dump(statement.test):
            waiting += [*statement.body, *statement.orelse]
    return names


def without_torch() -> list[str]:
    """Return the modules of primecast and of its tests that can be imported where torch is not."""
    modules: dict[str, set[str]] = {}
    for folder, package in ((ROOT / "src", "primecast"), (ROOT, "tests")):
        for path in sorted((folder / package).rglob("*.py")):
            name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            parents = {name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)}
            modules[name] = imported(path) | parents

    need = {name for name, names in modules.items() if any(one.split(".")[0] == "torch" for one in names)}
    while more := {name for name, names in modules.items() if names & need} - need:
        need |= more
    return [name for name in modules if name not in need]


def interpreter(version: str) -> str | None:
    """Return a Python of this version, of pyenv or on the path; None if there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted((root / "versions").glob(f"{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def test_python(version: str) -> bool:
    """Return whether what needs no torch can be imported and passes its tests with this Python."""
    found = interpreter(version)
    if found is None:
        print(f"Python {version}: not found, left out")
        return True
    packages = [name for name in requirements(minimum=False) if not re.match("onnx|mypy|ruff|playwright|hatch", name)]
    python = environment(f"python-{version}", found, packages, torch=False)
    modules = without_torch()
    own = [name for name in modules if name.startswith("primecast") and not name.endswith("__main__")]
    tests = [f"{name.replace('.', '/')}.py" for name in modules if ".test_" in name and name not in NEEDS_ALL]
    ok = subprocess.run([str(python), "-W", "error", "-c", f"import {', '.join(own)}"], cwd=ROOT).returncode == 0
    print(f"Python {version}: {len(own)} modules {'imported' if ok else 'NOT imported'}; {len(tests)} files of tests:")
    return (
        subprocess.run([str(python), "-m", "pytest", *OPTIONS, "-k", NOT_HERE, *tests], cwd=ROOT).returncode == 0 and ok
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("what", choices=["minimum", "pythons"])
    if parser.parse_args().what == "minimum":
        return 0 if test_minimum() else 1
    passed = [test_python(version) for version in PYTHONS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
