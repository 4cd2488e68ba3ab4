"""The benchmarks measure what they say, and the committed summary is what the committed rows give."""

import json
import math
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import accuracy
import accuracy_cells
import accuracy_own
import accuracy_peers
import accuracy_summary
import attention
import install
import loops
import measure
import summary
import training
from accuracy import NAIVE, PEERS, is_measured, row_id, settings
from accuracy_cells import Cell
from measure import Others, Rows
from primecast import Forecaster
from primecast.data.windows import Scaler
from primecast.forecasting.prediction import forecast_from
from primecast.nn.attention import Prime, attend

NAMES = [
    "core_rank1_vs_sdpa", "core_rank2_vs_sdpa", "dense_vs_materialized_time", "dense_vs_materialized_memory",
    "features_vs_sdpa_321", "features_vs_sdpa_862", "step_etth1", "step_weather", "step_ecl", "step_pems03",
    "step_traffic", "traffic_original_gib", "growth_time", "growth_memory", "loop_vs_dataloader", "loop_vs_darts",
    "loop_vs_neuralforecast", "import_seconds", "install_packages", "install_mb", "demo_seconds",
]  # fmt: skip


def idle() -> Others:
    others = Others()
    others.cores = 0.0
    return others


# ---------------------------------------------------------------- measuring


def test_contenders_take_turns_and_short_calls_are_repeated() -> None:
    called: list[str] = []

    def call(name: str, seconds: float) -> Any:
        def run() -> None:
            called.append(name)
            time.sleep(seconds)

        return run

    timings = measure.time_interleaved({"slow": call("slow", 0.031), "fast": call("fast", 0.005)}, seconds=0, fewest=3)
    assert timings["slow"].samples == timings["fast"].samples == 3
    assert timings["slow"].inner == 1 and 1 < timings["fast"].inner <= 6
    turns = called[4:]  # after two calls each to warm up and to see how long they take
    runs = [name for before, name in zip([None, *turns], turns, strict=False) if name != before]
    assert runs == ["slow", "fast", "slow", "fast"]  # forth, back, forth: neighbours of the same name are one run
    assert timings["slow"].seconds > 2 * timings["fast"].seconds > 0.01


def test_a_timing_is_the_median_and_the_quartiles() -> None:
    timing = measure.summarize([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (timing.low, timing.seconds, timing.high, timing.samples) == (2.0, 3.0, 4.0, 5)
    assert measure.summarize([7.0]).high == 7.0


def test_a_fresh_process_answers_with_its_last_line_and_a_failing_one_is_quoted(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "print('noise')\n"
        "print(json.dumps({'job': json.loads(sys.argv[2]), 'threads': os.environ['OMP_NUM_THREADS']}))\n"
    )
    assert measure.run_fresh(script, {"n": 13}) == {"job": {"n": 13}, "threads": "1"}
    script.write_text("raise SystemExit('the disk is full')")
    with pytest.raises(RuntimeError, match="script.py --job .* ended with 1:\nthe disk is full"):
        measure.run_fresh(script, {})


def test_what_others_did_is_what_the_system_did_less_the_own(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([(100.0, 7.0, 3.0), (102.0, 10.0, 4.0)])  # wall clock, all processors, this process
    monkeypatch.setattr(Others, "_now", staticmethod(lambda: next(moments)))
    with Others() as others:
        pass
    assert others.cores == 1.0  # 3 s of work in 2 s, 1 of them ours


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_peak_is_of_the_fresh_process_and_counts_what_was_freed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(measure.HERE)!r})\n"
        "import json, measure, torch\n"
        "before = measure.peak_bytes()\n"
        "torch.ones(2**24)\n"
        "print(json.dumps({'more': measure.peak_bytes() - before}))\n"
    )
    assert measure.run_fresh(script, {})["more"] == pytest.approx(2**26, rel=0.2)


def test_rows_are_kept_by_id_and_those_of_a_busy_machine_are_provisional(tmp_path: Path) -> None:
    rows = Rows.open(tmp_path, "core")
    timings = {"sdpa": measure.summarize([2.0]), "rho 1": measure.summarize([3.0])}
    rows.put_timings(timings, idle(), against="sdpa", n=7)
    busy = Others()
    busy.cores = 0.9
    rows.put("n=7 sdpa", busy, what="sdpa", ratio=1.0)
    rows = Rows.open(tmp_path, "core")
    assert list(rows.rows) == ["n=7 sdpa", "n=7 rho 1"] and rows.rows["n=7 rho 1"]["ratio"] == 1.5
    assert rows.settled("n=7 rho 1") and not rows.settled("n=7 rho 1", "n=7 sdpa") and not rows.settled("n=7 rho 2")
    assert {"machine", "versions", "commit", "threads", "at"} < set(rows.rows["n=7 rho 1"])


def test_a_missing_environment_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure, "ENVS", tmp_path)
    with pytest.raises(SystemExit, match="darts/bin/python is missing: run python benchmarks/install.py --prepare"):
        measure.peer_python("darts")


# ---------------------------------------------------------------- what is measured


def test_every_contender_of_the_core_is_checked_against_the_materialised_form(monkeypatch: pytest.MonkeyPatch) -> None:
    attention.check()
    right = attend
    monkeypatch.setattr(
        attention,
        "attend",
        lambda q, k, v, *, prime: right(q, k, v, prime=prime) * (1.001 if isinstance(prime, Prime) else 1),
    )
    with pytest.raises(AssertionError, match="not close"):
        attention.check()


def test_the_core_asks_for_a_gradient_of_every_input() -> None:
    for what in attention.CONTENDERS:
        given = attention.make_inputs(attention.Shape(2, 5, 8 * 3), what)
        out, *gradients = attention.run(what, given)
        assert out.shape == given["up"].shape == (2, 8, 5, 3)
        assert [g.shape for g in gradients] == [leaf.shape for name, leaf in given.items() if name != "up"]
        assert all(leaf.is_leaf and leaf.requires_grad for name, leaf in given.items() if name != "up")


def test_features_reach_every_parameter_but_the_gains() -> None:
    calls = attention.feature_calls(attention.Shape(2, 5, 8 * 3))
    gradients: Any = calls["features"]()
    lags, instantaneous, offset = sorted((tuple(g.shape) for g in gradients), key=len, reverse=True)
    assert {lags, instantaneous} == {(16, 96), (16, 3)} and offset == (16,)


def test_the_grid_has_the_batches_of_the_paper() -> None:
    shapes = {(shape.b, shape.n) for shape in attention.grid(attention.TOKENS, attention.WIDTHS)}
    assert shapes == {(128, 8), (128, 25), (4, 137), (4, 321), (2, 862), (1, 2048)}


def test_a_benchmarked_step_trains_and_has_the_shape_of_its_data_set() -> None:
    training.check()
    assert training.time_features_of("Weather", 3).shape == (3, 192, 4)
    few = training.make_step("Traffic", "paper", "prime, 2 units per head", channels=11, batch=1, time_features=False)
    assert math.isfinite(few())


def test_both_own_loops_train_the_same_model_and_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "ROWS", 96 + 96 + 7 * 32)
    monkeypatch.setattr(loops, "WIDTH", 24)
    found = [loops.measure_loop(name, steps=5, skip=2) for name in ("primecast", "dataloader", "dataloader-fused")]
    assert len({answer["parameters"] for answer in found}) == 1
    assert all(float(str(answer["windows_per_second"])) > 0 and answer["dtype"] == "torch.float32" for answer in found)


def test_the_first_forecast_of_the_demo_is_recognised() -> None:
    assert install.FORECAST_LINE.search("│ 2013-12-31 00:00 │ -1.3          │ 4.2 │")
    for line in (
        "nyc-weather: 8730 hours of 2013 at EWR, JFK and LGA, 24 channels.",
        "epoch 1/2  loss 0.4312",
        "time (UTC)",
    ):
        assert not install.FORECAST_LINE.search(line)


# ---------------------------------------------------------------- what the rows come to


def made_up_rows() -> dict[str, dict[str, dict[str, Any]]]:
    """Two units per head always cost 2, memory and time of a step grow with the square."""
    rows: dict[str, dict[str, dict[str, Any]]] = {"core": {}, "memory": {}, "growth": {}}
    for b, n, d in ((128, 8, 128), (128, 25, 128), *attention.BAR_SHAPES):
        for what, ratio in (
            ("rho 1", 1 + n / 1000),
            ("rho 2", 2.0),
            ("dense 16", 10.0),
            ("materialised", 10.0 * (n // 100)),
        ):
            rows["core"][f"b={b} n={n} d={d} {what}"] = {
                "b": b,
                "n": n,
                "d": d,
                "what": what,
                "ratio": ratio,
                "seconds": ratio,
            }
            for share, allocator in enumerate(summary.ALLOCATORS, start=1):
                size = ratio / share if what == "materialised" else ratio
                rows["memory"][f"b={b} n={n} d={d} {allocator}{what}"] = {"what": what, "bytes": size}
    for channels in (137, 311, 541):
        for middle, measured in (("", "seconds"), ("memory ", "bytes")):
            name = f"channels={channels} {middle}{summary.PRIME}"
            rows["growth"][name] = {"channels": channels, "what": summary.PRIME, measured: 3 * channels**2}
    return {
        part: {name: row | {"id": name, "provisional": part == "growth"} for name, row in found.items()}
        for part, found in rows.items()
    }


def test_the_summary_has_exactly_the_agreed_names() -> None:
    assert list(summary.summarize({})) == NAMES
    assert all(entry["value"] is None and entry["met"] is False for entry in summary.summarize({}).values())


def test_figures_are_worst_cases_smaller_gains_and_slopes() -> None:
    entries = summary.summarize(made_up_rows())
    worst = entries["core_rank1_vs_sdpa"]
    assert (worst["value"], worst["met"], worst["from"]) == (1.862, False, ["core.jsonl: b=1 n=862 d=128 rho 1"])
    assert entries["core_rank2_vs_sdpa"]["value"] == 2.0 and entries["core_rank2_vs_sdpa"]["met"]
    assert entries["dense_vs_materialized_time"]["value"] == 3.0 and not entries["dense_vs_materialized_time"]["met"]
    assert entries["dense_vs_materialized_memory"]["value"] == 1.5
    assert entries["growth_time"]["value"] == entries["growth_memory"]["value"] == 2.0
    assert entries["growth_time"]["provisional"] and not worst["provisional"]


def test_the_same_rows_give_the_same_pictures(tmp_path: Path) -> None:
    for folder in ("once", "twice"):
        summary.draw(made_up_rows(), tmp_path / folder)
    for name in summary.FIGURES:
        first, second = ((tmp_path / folder / f"{name}.svg").read_bytes() for folder in ("once", "twice"))
        assert first == second and len(first) < 2**20


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Everything as it is, but nothing is measured: all take a second and a megabyte. Returns who ran, in order."""
    ran: list[str] = []
    measure.stamp()  # asks git, and remembers; below, subprocess runs nothing any more

    def run_fresh(script: Path, job: dict[str, Any], **_: object) -> dict[str, Any]:
        ran.append(str(job.get("loop", job.get("what"))))
        answer = {"windows_per_second": 3.0, "parameters": 11, "dtype": "torch.float32", "versions": {}}
        return {"peak": 2**20 * (1 + job.get("passes", job.get("steps", 0))), "seconds": [1.0]} | answer

    def time_interleaved(calls: dict[str, object], **_: object) -> dict[str, measure.Timing]:
        return {name: measure.summarize([1.0]) for name in calls}

    steps = {"sdpa": None, "layer with projections": None, "features": None}
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr(measure, "ENVS", tmp_path / ".envs")
    monkeypatch.setattr(measure, "run_fresh", run_fresh)
    monkeypatch.setattr(measure, "peer_python", lambda name: tmp_path / name / "python")
    for module in (attention, training):
        monkeypatch.setattr(module, "time_interleaved", time_interleaved)
        monkeypatch.setattr(module, "check", lambda: None)
    monkeypatch.setattr(attention, "make_inputs", lambda *_: {})
    monkeypatch.setattr(attention, "feature_calls", lambda _: steps)
    monkeypatch.setattr(training, "make_step", lambda *_, **__: None)
    monkeypatch.setattr(install, "build_primecast", lambda: None)
    monkeypatch.setattr(install, "wheels_of", lambda name: {"torch": 10**8, name: 10**6, "numpy": 10**7})
    monkeypatch.setattr(install, "run_demo", lambda _: (5.0, 7.0))
    monkeypatch.setattr("subprocess.run", lambda command, **_: ran.append(command[-1]))
    monkeypatch.setattr(measure, "prepare_process", lambda: None)
    return ran


def test_all_parts_together_give_every_figure(
    fake: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (attention, training, install):
        monkeypatch.setattr(sys, "argv", ["benchmark"])
        module.main()
    rows = measure.read_rows(measure.RESULTS)
    entries = summary.summarize(rows)
    assert [name for name, entry in entries.items() if entry["value"] is None] == []
    assert entries["traffic_original_gib"]["value"] == pytest.approx(2 / 1024, abs=1e-4)  # the whole process: 2 MiB
    assert entries["install_packages"]["value"] == 2 and entries["install_mb"]["value"] == 11.0
    assert "windows / s" in capsys.readouterr().out
    loops_ran = [name for name in fake if name in training.LOOPS]
    assert loops_ran[:10] == [*training.LOOPS, *reversed(training.LOOPS)]  # in turn, forth and back


def test_resuming_leaves_out_what_was_measured_undisturbed(fake: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "BUSY", math.inf)
    for options, anything in (([], True), (["--resume"], False), ([], True)):
        fake.clear()
        monkeypatch.setattr(sys, "argv", ["benchmark", "--part", "growth", "loop", *options])
        training.main()
        assert bool(fake) is anything


# ---------------------------------------------------------------- what is committed


@pytest.fixture
def committed() -> dict[str, dict[str, dict[str, Any]]]:
    rows = measure.read_rows(measure.RESULTS)
    if not rows:
        pytest.skip("no rows in benchmarks/results: make bench-full writes them")
    return rows


def test_the_committed_summary_is_what_the_committed_rows_give(committed: dict[str, Any]) -> None:
    written = json.loads((measure.RESULTS / "summary.json").read_text(encoding="utf-8"))
    assert written == summary.summarize(committed)
    assert all(entry["value"] is not None and not entry["provisional"] for entry in written.values())


def test_committed_rows_cover_the_grid_and_say_where_they_come_from(committed: dict[str, Any]) -> None:
    cells = {(row["n"], row["d"], row["what"]) for row in committed["core"].values()}
    factored = ("sdpa", *attention.GROUPED, "dense 16")
    assert cells >= {(n, d, what) for n in attention.TOKENS for d in attention.WIDTHS for what in factored}
    assert {row["channels"] for row in committed["growth"].values()} == set(training.GROWTH)
    assert {row["what"] for row in committed["loop"].values()} == set(training.LOOPS)
    for name, part in committed.items():
        for row in part.values():
            assert row["machine"]["cpu"] and row["versions"]["torch"] and row["commit"]
            assert row["threads"] == 1 or name == "accuracy_forecast"  # which is a command with all cores


def test_committed_loops_trained_the_same_model(committed: dict[str, Any]) -> None:
    assert len({(row["parameters"], row["dtype"], row["steps"]) for row in committed["loop"].values()}) == 1


def test_committed_ratios_are_those_of_the_medians(committed: dict[str, Any]) -> None:
    for part, case in (("core", ("b", "n", "d")), ("features", ("b", "n", "d")), ("steps", ("dataset", "preset"))):
        rows = list(committed[part].values())
        reference = {tuple(row[c] for c in case): row["seconds"] for row in rows if row["what"] == row["against"]}
        for row in rows:
            assert row["ratio"] == pytest.approx(row["seconds"] / reference[tuple(row[c] for c in case)], rel=1e-3)
            assert row["low"] <= row["seconds"] <= row["high"]


# ---------------------------------------------------------------- accuracy


def small_cell(rows: int = 331, channels: int = 3, horizon: int = 5) -> Cell:
    hours = np.arange(rows)[:, None]
    noise = np.random.default_rng(0).standard_normal((rows, channels))
    values = np.sin(2 * np.pi * hours / 24 + np.arange(channels)) + 0.3 * noise
    frame = pd.DataFrame(values, index=pd.date_range("2024-01-01", periods=rows, freq="h"), columns=list("abc"))
    trained, tested = int(0.7 * rows), rows - int(0.2 * rows)
    return Cell(
        name="small",
        horizon=horizon,
        frame=frame,
        values=Scaler.fit(values[:trained]).transform(values).astype(np.float32),
        season=24,
        trained=trained,
        tested=tested,
        calibration=accuracy_cells.spaced(trained, tested - horizon + 1),
        origins=accuracy_cells.spaced(tested, rows - horizon + 1),
        quarter=accuracy_cells.quarter_of_day(frame.index, 24),
    )


def test_origins_are_few_and_meet_every_hour() -> None:
    origins = accuracy_cells.spaced(101, 5003)
    assert len(origins) <= 200 and origins[0] == 101 and origins[-1] < 5003
    assert set(origins % 24) == set(range(24))
    assert len(accuracy_cells.spaced(7, 60)) == 53


def test_slow_peers_have_origins_from_the_first_to_the_last_and_all_methods_are_scored_on_these_too() -> None:
    cell = small_cell()
    few = accuracy.at_strided(cell)
    assert len(few.origins) == accuracy_cells.STRIDED < len(cell.origins) and set(few.origins) < set(cell.origins)
    assert (few.origins[[0, -1]] == cell.origins[[0, -1]]).all() and np.ptp(np.diff(few.origins)) <= 1
    assert (accuracy_cells.strided(np.arange(7)) == np.arange(7)).all()
    scores, _ = accuracy._run_naive(cell)
    error = cell.seasonal_naive(few.origins).astype(np.float64) - cell.truth(few.origins)
    assert scores["strided"]["mse"] == pytest.approx((error**2).mean()) and scores["strided"]["mse"] != scores["mse"]


def test_mstl_is_fitted_to_the_rows_before_each_origin_and_its_bounds_are_quantiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Last:
        """Forecasts the last value; the half-width of an interval is its level."""

        def __init__(self, season_length: int = 1) -> None:
            self.season = season_length

        def forecast(self, y: np.ndarray, h: int, level: list[int]) -> dict[str, np.ndarray]:
            assert self.season == 24 and len(y) == 200  # seven seasons of 24 are fewer
            mean = np.full(h, y[-1])
            bounds = {f"{side}-{one}": mean + sign * one for one in level for side, sign in (("lo", -1), ("hi", 1))}
            return {"mean": mean} | bounds

    library = ModuleType("statsforecast.models")
    library.MSTL = library.AutoETS = Last  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "statsforecast", ModuleType("statsforecast"))
    monkeypatch.setitem(sys.modules, "statsforecast.models", library)
    monkeypatch.setattr(accuracy_peers, "PAST", 200)
    cell = accuracy.at_strided(small_cell())
    found = accuracy_peers.mstl("MSTL", vars(cell), 0)
    assert (found["origins"] == cell.values[cell.origins - 1][:, None]).all()
    widths = found["quantiles"] - found["origins"]
    assert np.allclose(widths, np.array([-80, -60, -40, -20, 0, 20, 40, 60, 80])[:, None, None, None])


def test_the_quarter_of_the_day_comes_from_dates_or_else_from_the_season() -> None:
    hours = pd.date_range("2024-01-01 05:00", periods=3, freq="h")
    found = accuracy_cells.quarter_of_day(hours, 24)
    assert found is not None and found.tolist() == [0, 1, 1]
    found = accuracy_cells.quarter_of_day(pd.RangeIndex(9), 8)
    assert found is not None and found.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 0]
    assert accuracy_cells.quarter_of_day(pd.date_range("2024-01-01", periods=3, freq="D"), 1) is None


def test_forecasts_are_scored_against_the_rows_after_their_origin() -> None:
    cell = small_cell()
    truth = cell.truth(cell.origins).astype(np.float64)
    assert truth[2, 3, 1] == cell.values[cell.origins[2] + 3, 1]
    bands = np.stack([truth + offset for offset in np.linspace(-4, 4, 9)])
    scores = accuracy_cells.score(cell, truth + 0.5, bands)
    assert scores["mse"] == pytest.approx(0.25) and scores["mae"] == pytest.approx(0.5)
    assert scores["coverage"] == 100 and scores["coverage_by_quarter"] == [100] * 4 and scores["width"] == 8
    pinball = np.mean([min(q, 1 - q) * abs(o) for q, o in zip(accuracy_cells.QUANTILES, range(-4, 5), strict=True)])
    assert scores["wql"] == pytest.approx(2 * pinball / np.abs(truth).mean())
    with pytest.raises(ValueError, match="finite numbers"):
        accuracy_cells.score(cell, truth * np.nan, None)


def test_seasonal_naive_repeats_the_last_season_before_the_origin() -> None:
    cell = small_cell(horizon=29)
    found = cell.seasonal_naive(cell.origins)
    assert (found[:, :24] == cell.values[cell.origins[:, None] - 24 + np.arange(24)]).all()
    assert (found[:, 24:] == found[:, :5]).all()


def test_coverage_by_fifth_is_of_the_level_of_each_channel() -> None:
    forecast = np.stack([np.arange(50.0), 1000 - np.arange(50.0)], axis=1).reshape(10, 5, 2)
    inside = np.stack([np.arange(50) < 10, np.arange(50) < 20], axis=1).reshape(10, 5, 2)
    assert accuracy_cells.coverage_by_fifth(inside, forecast) == [50, 0, 0, 50, 50]
    assert accuracy_cells.coverage_gap({"coverage_by_fifth": [79, 81, 80], "coverage_by_quarter": [86, 80]}) == 6
    assert accuracy_cells.coverage_gap({"coverage_by_fifth": [79, 83], "coverage_by_quarter": None}) == 3


def test_conformal_quantiles_cover_what_they_say_of_the_calibration_errors() -> None:
    errors = np.random.default_rng(0).standard_normal((999, 2, 3)) ** 3
    found = accuracy_cells.conformal_quantiles(np.full((7, 2, 3), 10.0), errors)
    assert found.shape == (9, 7, 2, 3)
    below = (errors[None] <= found[:, :1] - 10.0).mean(axis=1)
    assert np.abs(below - np.array(accuracy_cells.QUANTILES)[:, None, None]).max() < 0.002


def accuracy_row(name: str, method: str, mse: float, seconds: float, seed: int = 0) -> dict[str, Any]:
    scores = {"mse": mse, "mae": mse / 2, "wql": mse / 3, "coverage": 78.0, "width": 1.0, "seconds": seconds}
    fifths = {"coverage_by_fifth": [80.0, 80.0, 80.0, 80.0, 74.0], "coverage_by_quarter": None}
    return {"set": name, "horizon": 96, "method": method, "seed": seed, **scores, **fifths}


def test_the_bars_of_accuracy_are_those_of_the_rows() -> None:
    table = {
        "wth": {"good": 0.8, "fast": 0.9, NAIVE: 2.0, "NHITS": 1.0, "DLinear": 1.1},
        "ETTm2": {"good": 1.0, "fast": 1.0, NAIVE: 4.0, "NHITS": 1.0, "DLinear": 0.5},
    }
    seconds = {"good": 30.0, "fast": 10.0, NAIVE: 0.0, "NHITS": 20.0, "DLinear": 5.0}
    rows = [accuracy_row(name, one, mse, seconds[one]) for name, each in table.items() for one, mse in each.items()]
    rows += [accuracy_row("wth", "NHITS", 1.0, 20.0, seed=1), accuracy_row("brightwind", "NHITS", 1.0, 20.0)]
    found = accuracy_summary.bars(rows, ("wth", "ETTm2", "brightwind"), None)
    assert (found["place_mse"], found["place_mae"], found["cells"], found["seeds"]) == (1, 1, 2, [1, 2])
    assert found["good_vs_best_peer"] == pytest.approx((0.8 * 2.0) ** 0.5)
    assert found["fast_vs_best_peer"] == pytest.approx((0.9 * 2.0) ** 0.5)
    assert found["fast_seconds_ratio"] == pytest.approx((0.5 + 2) / 2) and found["good_over_fast_seconds"] == 3
    assert found["coverage_gap"] == 6 and found["forecast_seconds"] is None
    ranks = accuracy_summary.mean_ranks(accuracy_summary.gather(rows, ("ETTm2",)), ["good", "fast", "DLinear"], "mse")
    assert ranks == {"good": 2.5, "fast": 2.5, "DLinear": 1.0}  # equal scores share their rank
    empty = accuracy_summary.bars([], ("wth",), None)
    assert empty["cells"] == 0 and empty["place_mse"] is None and empty["coverage_gap"] is None


def test_a_slow_peer_is_compared_on_its_own_origins_with_methods_scored_there_in_all_its_cells() -> None:
    rows = [accuracy_row(name, method, 9.0, 1.0) for name in ("wth", "ETTm2") for method in (NAIVE, "good", "NHITS")]
    for row in rows:
        if row["method"] != "NHITS" or row["set"] == "wth":
            row["strided"] = {"mse": 4.0 if row["method"] == NAIVE else 1.0}
    rows += [accuracy_row(name, "MSTL", 2.0, 1.0) for name in ("wth", "ETTm2")]
    rows += [accuracy_row("wth", "AutoGluon", 3.0, 1.0)]
    found = accuracy_summary.slow_peers(rows, ("wth", "ETTm2", "brightwind"))["slow_peers"]
    assert found["MSTL"] == {"cells": 2, "origins": 20, "skill_mse": {"good": 0.75, NAIVE: 0.0, "MSTL": 0.5}}
    assert found["AutoGluon"]["cells"] == 1 and set(found["AutoGluon"]["skill_mse"]) == {
        "good", NAIVE, "NHITS", "AutoGluon",
    }  # fmt: skip
    assert accuracy_summary.slow_peers(rows, ("brightwind",)) == {"slow_peers": {}}


def test_rows_of_other_settings_are_not_summarized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows.open(tmp_path, "accuracy")
    for method in ("good", "fast", *PEERS, "MSTL"):
        row = accuracy_row("wth", method, 1.0 if method == NAIVE else 0.7, 3.0)
        key = accuracy_cells.fingerprint(settings(method))
        rows.put(row_id("wth", 96, method, 0), idle(), **row, protocol=key)
    assert is_measured(rows, "wth", 96, "NHITS", 0) and not is_measured(rows, "wth", 24, "NHITS", 0)
    accuracy_summary.write(tmp_path)
    summary = json.loads((tmp_path / "accuracy.json").read_text())
    assert summary["cells"] == 1 and summary["rows"] == 3 + len(PEERS) and summary["choosing"]["cells"] == 0
    assert "| NHITS | 5.00 | 5.00 | 30.0 (30.0 to 30.0)" in (tmp_path / "accuracy.md").read_text()
    assert (tmp_path / "accuracy.svg").stat().st_size > 1000
    monkeypatch.setitem(accuracy_cells.PROTOCOL, "rows", 13)
    assert not is_measured(rows, "wth", 96, "NHITS", 0)


def test_rows_of_primecast_are_those_of_a_forecaster_with_this_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy_own, "Forecaster", partial(Forecaster, epochs=1))
    cell = small_cell()
    facts = accuracy_own.run(cell, "fast", 0, tmp_path)
    fast = Forecaster(horizon=cell.horizon, quality="fast", epochs=1, progress="off").fit(cell.dated_frame())
    state, table = fast.state_, fast.data_
    ahead = forecast_from(state.bounded_model, state.builder, table, cell.origins, batch_size=32).forecasts
    with np.load(tmp_path / "forecasts.npz") as found:
        assert (found["forecast"] == ahead).all()
        assert (found["quantiles"] == accuracy_own.intervals(state, table, cell, ahead)).all()
    assert facts["seconds"] > 0 and sum(facts["weights"].values()) == pytest.approx(1)
