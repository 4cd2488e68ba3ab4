"""Build the sdist, install it from itself into an environment of its own, and run its tests from itself.

    python tools/sdist.py                     # all tests but the slow ones
    python tools/sdist.py tests/test_cli.py   # what follows is given to pytest

The sdist is unpacked into a temporary folder outside the repository, so that nothing but its own content is found. The
environment is .envs/sdist: packages that are there at the right version stay, primecast is installed anew.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ["-m", "not slow", "-n", "2", "--dist", "worksteal"]


def unpack(folder: Path) -> tuple[Path, Path]:
    """Return the sdist, built into a folder, and the folder of its content beside it."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("primecast-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return archive, folder / archive.name.removesuffix(".tar.gz")


def install(archive: Path, constraints: Path) -> Path:
    """Return the Python of the environment, into which the sdist is installed with what its tests need."""
    folder = ROOT / ".envs" / "sdist"
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
    subprocess.run([*pip, "torch"], check=True)  # first and pinned, as in the Makefile
    subprocess.run([*pip, f"primecast[dev,docs] @ {archive.as_uri()}"], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(archive)], check=True)  # the version may be the same
    return python


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="primecast-sdist-") as name:
        archive, content = unpack(Path(name).resolve())
        python = install(archive, content / "constraints.txt")
        where = [str(python), "-P", "-c", "import primecast; print(primecast.__file__)"]
        print("tests of", content.name, "with", subprocess.check_output(where, text=True).strip(), flush=True)
        return subprocess.run([str(python), "-m", "pytest", *(sys.argv[1:] or DEFAULT)], cwd=content).returncode


if __name__ == "__main__":
    sys.exit(main())
