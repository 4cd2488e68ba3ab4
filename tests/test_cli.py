"""The commands: what they print, and that bad input is one sentence, exit code 2 and nothing written over."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from primecast.attention import MECHANISMS
from primecast.cli import main
from primecast.data.catalog import CATALOG
from primecast.losses import LOSSES
from primecast.models import CONTROLS, MODELS
from primecast.primers import KINDS

QUICK = ["--set", "epochs=1", "--set", "d_model=16", "--set", "n_layers=1", "--set", "batch_size=256"]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["primecast", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_list_shows_every_registered_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert call(monkeypatch, "list") == 0
    shown = capsys.readouterr().out
    for name in [*MODELS, *MECHANISMS, *CONTROLS, *KINDS, *LOSSES, *CATALOG]:
        assert name in shown


def test_run_prints_one_line_of_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "run", "nyc-weather", *QUICK, "--json") == 0
    out = capsys.readouterr().out
    row = json.loads(out)
    assert out.count("\n") == 1
    assert row["dataset"] == "nyc-weather" and row["attention"] == "prime"
    assert row["horizon"] == CATALOG["nyc-weather"].horizons[0]


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
        (["run", "nyc-weather", "--set", "loss=mape"], "unknown loss 'mape'"),
        (["run", "nyc-weather", "--set", "n_heads=7"], "d_model 64 cannot be divided into n_heads 7"),
        (["run", "nyc-weather", "--horizon", "5000"], "rows"),
        (["fetch", "Weather"], "cannot be fetched"),
        (["fetch", "nothing"], "unknown data set 'nothing'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert call(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err


def test_a_missing_file_is_named_with_the_place_and_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "run", "ETTh1", "--data-dir", str(tmp_path)) == 2
    message = capsys.readouterr().err
    assert "ETTh1.csv" in message and str(tmp_path) in message and "primecast fetch ETTh1" in message


def test_a_training_that_cannot_go_on_is_one_sentence_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "nyc-weather", *QUICK, "--set", "lr=1e30") == 1
    assert "primecast: " in capsys.readouterr().err


def test_the_command_and_the_module_are_installed() -> None:
    for command in ([str(Path(sys.executable).parent / "primecast")], [sys.executable, "-m", "primecast"]):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        assert all(name in done.stdout for name in ("demo", "list", "fetch", "run"))


def test_the_demo_does_the_whole_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("primecast.demo.EPOCHS", 1)
    assert call(monkeypatch, "demo", "--out", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    for word in (
        "Gap policy",
        "EWR temp (°F)",
        "2013-12-31",
        "seasonal naive",
        "standard attention",
        "prime attention",
    ):
        assert word in shown
    forecast = pd.read_csv(tmp_path / "forecast.csv", index_col="time", parse_dates=True)
    assert forecast.shape == (24, 24) and forecast.notna().all().all()
    assert 10 < forecast["EWR temp"].mean() < 60
    assert (tmp_path / "forecast.png").read_bytes().startswith(b"\x89PNG") and (
        tmp_path / "forecast.png"
    ).stat().st_size > 20_000
