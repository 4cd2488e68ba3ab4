"""The files that commands read and write, checked before anything heavy is imported and anything long starts."""

import os
from collections.abc import Sequence
from os.path import realpath
from pathlib import Path

from primecast.errors import InputError, check_known
from primecast.storage.atomic import check_regular, refuse_os_errors

STREAM = "-"
"""The name of stdin as an input and of stdout as an output."""
PICTURES = (".png", ".svg", ".pdf")
MODEL_FILES = ("config.json", "model.safetensors", "README.md")
"""Of a saved model; `storage.folder`, which names them, imports torch."""
SHOWN = 100
"""Characters of a name that a message shows, at most."""


def check_source(source: str | Path | None) -> None:
    """Refuse a table that is not there; None and stdin are."""
    if source is not None and str(source) != STREAM and not _exists(Path(source)):
        raise InputError(f"there is no file {_shown(source)}")


def check_model(folder: Path) -> None:
    """Refuse a saved model that is not there."""
    if not (_exists(folder) and folder.is_dir()):
        raise InputError(f"there is no folder {_shown(folder)}; `primecast train` saves a model in one")


def check_targets(
    *,
    reads: Sequence[str | Path | None] = (),
    out: str | None = None,
    report: Path | None = None,
    plot: Path | None = None,
    save: Path | None = None,
    force: bool = False,
) -> None:
    """Refuse what cannot be written, or would be overwritten without `force`. reads: tables and models to be read."""
    if plot is not None:
        check_known("ending of a picture", plot.suffix, PICTURES)
    files = [path for path in (report, plot, None if out in (None, STREAM) else Path(str(out))) if path is not None]
    for path in files:
        check_file(path, force=force)
    _check_apart(files, reads=[*reads, save])
    if save is not None:
        _check_folder(save, force=force)
    if report is not None:
        from primecast.reporting import render  # here: it imports pandas

        render.plotly_script()


def check_file(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, or that is there already."""
    with refuse_os_errors(f"write {_shown(path)}"):
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; give the name of a file")
        check_regular(path)
        if path.exists() and not force:
            raise InputError(f"{path} is there already; --force overwrites it")
        _check_parent(path)


def _check_apart(files: Sequence[Path], *, reads: Sequence[str | Path | None]) -> None:
    """Refuse two results in one file, and one in the place of what the command reads or of a part of a model.

    They would be lost: no `force` is meant for that.
    """
    places = [realpath(path) for path in files]
    sources = [realpath(path) for path in reads if path is not None and str(path) != STREAM]
    parts = [str(Path(source, name)) for source in sources for name in MODEL_FILES]
    for path, place in zip(files, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{path} is named for two results; give each a file of its own")
        if place in sources or place in parts:
            what = "a file of the model" if place in parts else "what is read"
            raise InputError(f"cannot write {path}: it is {what}; give the name of another file")


def _check_folder(path: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be written into, or that holds something already."""
    with refuse_os_errors(f"write into {_shown(path)}"):
        if path.exists() and not path.is_dir():
            raise InputError(f"cannot write into {path}: it is a file; give the name of a folder")
        if path.is_dir() and any(path.iterdir()) and not force:
            raise InputError(f"the folder {path} is there already and not empty; --force overwrites it")
        _check_parent(path / "file" if path.is_dir() else path)


def _check_parent(path: Path) -> None:
    """Refuse a file whose folder cannot be written into, or is missing outside of the working folder."""
    folder = path.absolute().parent
    if not folder.exists() and not folder.is_relative_to(Path.cwd()):
        raise InputError(
            f"cannot write {path}: there is no folder {folder}; create it first (only folders within the working "
            "folder are created)"
        )
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        raise InputError(f"cannot write {path}: {there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path}: no permission to write into the folder {there}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _shown(path: str | Path) -> str:
    text = str(path)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
