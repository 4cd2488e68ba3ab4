"""The sdist holds what its tests need, and the wheel built from it works outside the repository."""

import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path, path: Path | None = None) -> str:
    """Return what a command prints; `path` replaces PYTHONPATH."""
    environment = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(target: str, *, source: Path, out: Path) -> Path:
    pytest.importorskip("hatchling")
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", out, cwd=source)
    (built,) = out.glob("primecast-*.tar.gz" if target == "sdist" else "primecast-*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", source=ROOT, out=folder)) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


@pytest.fixture(scope="module")
def installed(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel of the sdist is installed into, without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build("wheel", source=unpacked, out=folder)
    site = folder / "site"
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        site,
        wheel,
        cwd=folder,
    )
    return site


def test_the_sdist_holds_what_git_tracks(unpacked: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git repository")
    tracked = {
        name for name in listed.stdout.splitlines() if not name.startswith(".github/") and (ROOT / name).exists()
    }
    packed = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert tracked - packed == set()
    assert not [name for name in packed if name.startswith((".venv", ".envs", "runs", "dist"))]


def test_the_installed_wheel_runs_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    command = installed / "bin" / "primecast"
    assert run(command, "--version", cwd=tmp_path, path=installed) == f"primecast {version}\n"
    assert "itransformer" in run(command, "list", cwd=tmp_path, path=installed)
    assert "controls" in run(command, "study", "--list", cwd=tmp_path, path=installed)
    script = "from primecast import Forecaster, load_dataset; import primecast; print(primecast.__file__)"
    imported = run(sys.executable, "-c", script, cwd=tmp_path, path=installed)
    assert Path(imported.strip()).is_relative_to(installed)


def test_the_installed_wheel_has_its_data_and_its_types(installed: Path) -> None:
    source = ROOT / "src" / "primecast"
    kept = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {path for path in kept if not (installed / "primecast" / path).exists()} == set()


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}] - 20" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_is_said_of_bad_input_is_printed_case_by_case(tmp_path: Path) -> None:
    cases = tmp_path / "test_cases.py"
    cases.write_text(
        """
import sys, warnings
import pytest
from primecast.errors import InputError

def test_an_error():
    with pytest.raises(InputError):
        raise InputError("lr is 0")

def test_a_warning():
    with pytest.warns(UserWarning):
        warnings.warn("two threads", stacklevel=1)

def test_a_command():
    with pytest.raises(SystemExit):
        sys.exit(143)

def test_nothing():
    with pytest.raises(SystemExit):
        sys.exit(0)
""",
        encoding="utf-8",
    )
    said = run(sys.executable, ROOT / "tools" / "said.py", cases, cwd=tmp_path).splitlines()
    found = [line.rsplit("::")[-1] for line in said if "::" in line or line.startswith("    ")]
    assert found == [
        "test_an_error", "    InputError: lr is 0", "test_a_warning", "    UserWarning: two threads",
        "test_a_command", "    exit code 143",
    ]  # fmt: skip
