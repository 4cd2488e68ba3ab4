"""Data sets by name: load them from files, or fetch those that have a public source.

`load_dataset` reads files that are already there and never uses the network; `fetch` downloads a file and verifies its
checksum. Synthetic systems are computed when they are loaded. What each data set is stands in catalog.toml.
"""

import hashlib
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pooch

from primecast.data.formats import FORMATS, uncompressed
from primecast.data.nyc import nyc_weather
from primecast.data.synthetic import system
from primecast.data.windows import Borders, Cuts, Dataset, Fixed, Ratio
from primecast.errors import InputError, check_known
from primecast.schema import checked


@dataclass(frozen=True)
class Entry:
    """One data set of the catalog.

    Borders and horizons are those of the long benchmarks unless given: 70 % train, 20 % test; 96, 192, 336, 720 steps.

    files:     file name (uncompressed) -> sha256 of the uncompressed bytes, None where none is known to us.
    form:      a name in formats.FORMATS, "embedded" (it comes with the package) or "synthetic" (it is computed).
    frequency: sampling step, as pandas writes it. season: steps of the seasonal-naive period.
    time_features: whether the benchmark feeds calendar features to the model.
    fill_gaps: whether missing values are filled after scaling.
    source:    where people get the files. url: of the one file, when it can be fetched.
    """

    files: dict[str, str | None]
    form: str
    rows: int
    channels: int
    frequency: str
    season: int
    license: str
    notes: str
    source: str
    borders: Borders = field(default_factory=Ratio)
    horizons: tuple[int, ...] = (96, 192, 336, 720)
    time_features: bool = True
    fill_gaps: bool = False
    url: str | None = None


def _read_catalog() -> dict[str, Entry]:
    kinds = {"Fixed": Fixed, "Ratio": Ratio, "Cuts": Cuts}
    table: dict[str, dict[str, Any]] = tomllib.loads((files("primecast.data") / "catalog.toml").read_text("utf-8"))
    for row in table.values():
        row["files"] = {file: sha256 or None for file, sha256 in row["files"].items()}
        if "borders" in row:
            row["borders"] = kinds[row["borders"].pop("kind")](**row["borders"])
        if "horizons" in row:
            row["horizons"] = tuple(row["horizons"])
    return {name: Entry(**row) for name, row in table.items()}


CATALOG = _read_catalog()


@checked()
def load_dataset(name: str, root: Path | str | None = None) -> Dataset:
    """Return the data set of this name, read from files in `root`, the folder PRIMECAST_DATA or the cache of `fetch`.

    Sub-folders are searched by file name; files may be compressed (.gz, .xz). Checksums, where known, and the shape
    are verified.

    >>> load_dataset("nyc-weather").values.shape
    (8730, 24)
    """
    entry = _entry(name)
    frame = _read(name, entry, root)
    if frame.shape != (entry.rows, entry.channels):
        rows, channels = frame.shape
        raise InputError(
            f"{' and '.join(entry.files)} should give {entry.rows} rows of {entry.channels} channels for data set "
            f"{name!r}, but gave {rows} rows of {channels}"
        )
    return Dataset(
        name=name,
        # The last bits of a mean depend on the order in memory; simbench keeps the one its scores were made with.
        values=np.array(frame, dtype=np.float64, order="F" if name == "simbench" else "C"),
        index=frame.index if isinstance(frame.index, pd.DatetimeIndex) else None,
        names=tuple(frame.columns),
        borders=entry.borders,
        season=entry.season,
        time_features=entry.time_features,
        fill_gaps=entry.fill_gaps,
    )


def cache_folder() -> Path:
    """Return the folder that `fetch` downloads to: the user's cache, by the convention of the operating system."""
    return Path(pooch.os_cache("primecast"))


@checked()
def fetch(name: str, *, cache: Path | str | None = None) -> Path:
    """Download the file of a data set into the cache, verify it and return its path; the file is kept.

    A download that fails or whose checksum is wrong leaves no file behind.
    """
    entry = _entry(name)
    if not entry.files:
        raise InputError(f"data set {name!r} need not be fetched: {entry.source}")
    if entry.url is None:
        raise InputError(
            f"data set {name!r} cannot be fetched: {entry.source}; put {' and '.join(entry.files)} into a folder "
            "and name that folder in PRIMECAST_DATA"
        )
    ((file, sha256),) = entry.files.items()
    folder = cache_folder() if cache is None else Path(cache)
    try:
        return Path(pooch.retrieve(entry.url, known_hash=f"sha256:{sha256}", fname=file, path=folder))
    except ValueError as error:  # pooch: a wrong checksum; it has removed the download
        raise InputError(
            f"{entry.url} is not the published {file}: its sha256 is not {sha256}; nothing was kept"
        ) from error
    except OSError as error:  # no network, no such page, no place: requests raises children of OSError
        raise InputError(f"{file} could not be downloaded from {entry.url}: {error}") from error


def _entry(name: str) -> Entry:
    check_known("data set", name, CATALOG)
    return CATALOG[name]


def _read(name: str, entry: Entry, root: Path | str | None) -> pd.DataFrame:
    if entry.form == "embedded":
        return nyc_weather().interpolate(method="time").ffill().bfill()
    if entry.form == "synthetic":
        dataset = system(name).dataset
        return pd.DataFrame(dataset.values, index=dataset.index, columns=dataset.names)
    return FORMATS[entry.form]({file: _find(name, entry, file, root) for file in entry.files})


def _find(name: str, entry: Entry, file: str, root: Path | str | None) -> bytes:
    """Return the uncompressed bytes of a file, from the first folder that has one of its name.

    Names such as val.npz are common, so a folder is searched on until the checksum fits.
    """
    sha256 = entry.files[file]
    folders = list(_folders(root))
    for folder in folders:
        first: Path | None = None
        for path in _candidates(folder, file):
            first = first or path
            content = uncompressed(path)
            if sha256 is None or hashlib.sha256(content).hexdigest() == sha256:
                return content
        if first:
            raise InputError(
                f"{first} is not the {file} of data set {name!r}: its sha256 (uncompressed) should be {sha256}; "
                f"{entry.source}"
            )
    how_to_get = f"`primecast fetch {name}` downloads it" if entry.url else entry.source
    searched = ", ".join(str(folder) for folder in folders)
    raise InputError(
        f"data set {name!r} needs the file {file} (or .gz, .xz), which is not in {searched}: {how_to_get}; the folder "
        "can be given as root or in PRIMECAST_DATA"
    )


def _folders(root: Path | str | None) -> Iterator[Path]:
    if root is not None:
        if not Path(root).is_dir():
            raise InputError(f"the data folder {str(root)!r} does not exist")
        yield Path(root)
    if os.environ.get("PRIMECAST_DATA"):
        yield Path(os.environ["PRIMECAST_DATA"])
    yield cache_folder()


def _candidates(folder: Path, file: str) -> Iterator[Path]:
    """Yield files of that name, compressed or not: in the folder first, then below it, sorted by name."""
    names = [file, f"{file}.gz", f"{file}.xz"]
    yield from (folder / name for name in names if (folder / name).is_file())
    below = (path for name in names for path in folder.rglob(name))
    yield from sorted(path for path in below if path.parent != folder and path.is_file())
