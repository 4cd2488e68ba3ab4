"""The commands: what they print, and that bad input is one sentence, exit code 2 and nothing written over."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jaxtyping
import pandas as pd
import pytest

import primecast
from primecast.cli.app import main
from primecast.data.catalog import CATALOG
from primecast.data.nyc import nyc_weather
from primecast.data.windows import split
from primecast.experiments.spec import Spec
from primecast.experiments.studies import STUDIES
from primecast.experiments.sweep import Interrupted
from primecast.frames.validate import dataset_from_frame
from primecast.models import ATTENTIONS, CONTROLS, MODELS
from primecast.nn.losses import LOSSES
from primecast.nn.mechanisms import MECHANISMS
from primecast.nn.primer_layers import KINDS

QUICK = ["--set", "epochs=1", "--set", "d_model=16", "--set", "n_layers=1", "--set", "batch_size=256"]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["primecast", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_list_shows_every_registered_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "61")  # the names stay whole all the same
    assert call(monkeypatch, "list") == 0
    shown = capsys.readouterr().out
    for name in [*MODELS, *ATTENTIONS, *MECHANISMS, *CONTROLS, *KINDS, *LOSSES, *CATALOG]:
        assert name in shown


def test_run_prints_one_line_of_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "run", "nyc-weather", *QUICK, "--json") == 0
    out = capsys.readouterr().out
    row = json.loads(out)
    assert out.count("\n") == 1
    assert row["dataset"] == "nyc-weather" and row["attention"] == "prime-table"
    assert row["horizon"] == CATALOG["nyc-weather"].horizons[0]


def test_run_takes_a_table_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = nyc_weather()[["EWR temp", "JFK temp"]].ffill().iloc[:997]
    table.to_csv(tmp_path / "my.csv")
    arguments = ["--data", str(tmp_path / "my.csv"), "--horizon", "5", "--lookback", "13"]
    assert call(monkeypatch, "run", *arguments, *QUICK, "--json") == 0
    row = json.loads(capsys.readouterr().out)
    assert row["dataset"] == str(tmp_path / "my.csv") and row["horizon"] == 5
    parts = split(dataset_from_frame(table), lookback=13, horizon=5)
    assert row["windows"] == len(parts.test) and len(row["channel_mse"]) == 2
    for refused in (["run"], ["run", "nyc-weather", "--data", "my.csv"]):
        assert call(monkeypatch, *refused) == 2
        assert "give the name of a data set, see `primecast list`, or --data FILE" in capsys.readouterr().err


def test_a_plan_without_measured_runs_does_not_guess(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folders = ["--store", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert call(monkeypatch, "study", "kv", "--plan", *folders) == 0
    said = capsys.readouterr().out
    assert "how long they take is not known" in said and "core-hours" not in said


def test_run_prints_a_sentence_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "run", "nyc-weather", "--attention", "standard", "--horizon", "24", *QUICK) == 0
    captured = capsys.readouterr()
    assert "itransformer with standard attention" in captured.out and "test MSE" in captured.out
    assert "epoch 1/1" in captured.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "ETTh3"], "primecast: unknown data set 'ETTh3' (did you mean 'ETTh2'?); allowed: "),
        (["run", "nyc-weather", "--model", "nothing"], "primecast: unknown model 'nothing'; allowed: "),
        (["run", "nyc-weather", "--attention", "primed"], "did you mean 'prime'?"),
        (["run", "nyc-weather", "--preset", "best"], "primecast: unknown preset 'best'"),
        (["run", "nyc-weather", "--set", "lr"], "must be written name=value"),
        (["run", "nyc-weather", "--set", "lr=x"], "lr is 'x'; it must be a finite number above 0"),
        (["run", "nyc-weather", "--set", "epoch=1"], "unknown setting 'epoch' (did you mean 'epochs'?); allowed: "),
        (["run", "nyc-weather", "--set", "d_model=8.5"], "d_model is 8.5; it must be a whole number of at least 1"),
        (["run", "nyc-weather", "--seed", "-1"], "--seed is -1; it must be a whole number of at least 0"),
        (["run", "nyc-weather", "--set", "loss=mape"], "unknown loss 'mape'"),
        (["run", "nyc-weather", "--set", "n_heads=7"], "d_model 64 cannot be divided into n_heads 7"),
        (["run", "nyc-weather", "--horizon", "5000"], "rows"),
        (["study", "control", "--plan"], "unknown study 'control' (did you mean 'controls'?)"),
        (["study", "controls"], "say what to do with study 'controls': --plan, --run, --table, --figure"),
        (
            ["study", "kv", "--figure"],
            "study 'kv' has no figure; those that have one: primer_design, main_table, lookback, sparsity",
        ),
        (["study", "kv", "--table", "--store", "nowhere", "--out", "no"], "no run of study 'kv' is in nowhere or no"),
        (["study", "kv", "--table", "--new"], "--new goes with --run"),
        (["study", "kv", "--quick", "--run", "--engine", "rai", "--store", "nowhere"], "unknown engine 'rai'"),
        (["fetch", "Weather"], "cannot be fetched"),
        (["fetch", "nothing"], "unknown data set 'nothing'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no checks of annotations
    assert call(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err


def test_a_missing_file_is_named_with_the_place_and_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("PRIMECAST_DATA", raising=False)
    assert call(monkeypatch, "run", "ETTh1", "--data-dir", str(tmp_path)) == 2
    message = capsys.readouterr().err
    assert "ETTh1.csv" in message and str(tmp_path) in message and "primecast fetch ETTh1" in message


def test_a_training_that_cannot_go_on_is_one_sentence_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "nyc-weather", *QUICK, "--set", "lr=1e30") == 1
    assert "primecast: " in capsys.readouterr().err


def test_study_lists_every_study(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "study", "--list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(STUDIES)


def test_a_study_goes_from_specs_to_table_and_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = {"epochs": 1, "d_model": 8, "n_heads": 2, "n_layers": 1, "batch_size": 2048}
    sizes: dict[str, Any] = {"horizon": 7, "lookback": 13, "settings": settings}
    variants = {"100 %": "standard", "0 %": "prime"}  # as the study names them: pairs without a primer
    specs = [Spec(dataset="nyc-weather", attention=a, variant=v, **sizes) for v, a in variants.items()]
    monkeypatch.setattr("primecast.experiments.studies.sparsity.SPECS", specs)
    folders = ["--store", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert call(monkeypatch, "study", "sparsity", "--plan", *folders) == 0
    assert "0 runs are in the store, 2 are missing" in capsys.readouterr().out
    assert call(monkeypatch, "study", "sparsity", "--plan", "--dataset", "ETTh1", *folders) == 2
    assert "unknown data set of study sparsity 'ETTh1'; allowed: nyc-weather" in capsys.readouterr().err
    assert call(monkeypatch, "study", "sparsity", "--plan", "--dataset", "nyc-weather", *folders) == 0
    assert "2 are missing" in capsys.readouterr().out
    assert call(monkeypatch, "study", "sparsity", "--run", "--table", "--figure", "--workers", "2", *folders) == 0
    shown = capsys.readouterr()
    assert "0 runs were there, 2 are new, 0 failed" in shown.out and "# Sparsity" in shown.out
    assert "2/2" in shown.err
    made = {path.name for path in (tmp_path / "results").iterdir()}
    assert made == {"sparsity.csv", "sparsity_blocks.csv", "sparsity.md", "sparsity.png"}
    assert "2 of 2 runs are there" in (tmp_path / "results" / "sparsity.md").read_text(encoding="utf-8")
    assert call(monkeypatch, "study", "sparsity", "--plan", "--run", *folders) == 0
    assert "about 0.0 core-hours are left" in capsys.readouterr().out
    elsewhere = ["--store", str(tmp_path / "other"), "--out", str(tmp_path / "results")]  # a clone, its store empty
    assert call(monkeypatch, "study", "sparsity", "--run", "--new", *elsewhere) == 0
    assert "0 runs were there, 0 are new, 0 failed" in capsys.readouterr().out


def test_a_study_with_a_run_that_failed_says_so_and_leaves_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("primecast.experiments.studies.kv.SPECS", [Spec(dataset="Traffic")])
    monkeypatch.delenv("PRIMECAST_DATA", raising=False)
    assert call(monkeypatch, "study", "kv", "--run", "--store", str(tmp_path), "--data-dir", str(tmp_path)) == 1
    assert "failed: Traffic 96->96" in (err := capsys.readouterr().err) and "traffic.csv" in err


def test_an_interrupted_study_says_what_is_left_and_leaves_with_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Interrupted("3 of 5 runs are there")

    monkeypatch.setattr("primecast.experiments.studies.runner.run_all", interrupted)
    assert call(monkeypatch, "study", "kv", "--run", "--store", str(tmp_path)) == 130
    assert capsys.readouterr().err == "primecast: 3 of 5 runs are there\n"


def test_a_full_disk_and_a_terminal_with_ascii_alone_are_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "primecast", "study", "--list"]
    with Path("/dev/full").open("w") as full:
        for line in (command, [*command[:3], "--help"], [*command[:3], "--version"]):
            done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            assert done.returncode == 2
            assert done.stderr == "primecast: cannot write to stdout: No space left on device\n"
        # Messages that cannot be written end nothing: here the command is refused for what it is, elsewhere it trains.
        done = subprocess.run([*command[:3], "predict", "nowhere"], stderr=full, text=True, check=False)
        assert done.returncode == 2
    path = tmp_path / "Zürich.csv"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for refused in (["forecast", str(path), "--horizon", "3"], ["--help"]):
        done = subprocess.run([*command[:3], *refused], capture_output=True, text=True, check=False, env=ascii_only)
        assert "Traceback" not in done.stderr
    assert "Usage" in done.stdout


def test_what_the_machine_refuses_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, sentence in (
        (OSError(errno.EROFS, "Read-only file system", "runs"), "cannot read or write runs: Read-only file system"),
        (MemoryError("Unable to allocate 60 GiB"), "Unable to allocate 60 GiB; take fewer channels"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
    ):

        def refuse(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("primecast.experiments.studies.runner.run_study", refuse)
        assert call(monkeypatch, "study", "kv", "--plan") == 2
        assert capsys.readouterr().err.startswith(f"primecast: {sentence}")


def test_the_version_is_that_of_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"primecast {primecast.__version__}\n"


def test_the_command_and_the_module_are_installed() -> None:
    for command in ([str(Path(sys.executable).parent / "primecast")], [sys.executable, "-m", "primecast"]):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        assert all(name in done.stdout for name in ("demo", "list", "fetch", "run", "study"))


def test_the_demo_does_the_whole_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("primecast.cli.demo.EPOCHS", 1)
    assert call(monkeypatch, "demo", "--out", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    for word in (
        "Missing values",
        "EWR temp (°F)",
        "2013-12-31",
        "seasonal naive",
        "standard attention",
        "prime-table attention",
    ):
        assert word in shown
    forecast = pd.read_csv(tmp_path / "forecast.csv", index_col="time", parse_dates=True)
    assert forecast.shape == (24, 3 * 24) and forecast.notna().all().all()
    assert 10 < forecast["EWR temp"].mean() < 60
    assert (forecast["EWR temp-lo-80"] < forecast["EWR temp-hi-80"]).all()
    assert (tmp_path / "forecast.png").read_bytes().startswith(b"\x89PNG") and (
        tmp_path / "forecast.png"
    ).stat().st_size > 20_000
