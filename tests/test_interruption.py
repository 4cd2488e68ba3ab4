"""Ctrl-C and SIGTERM: the state is written first, a line says how to go on, and the end is that of an unbroken run."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from torch import nn

from primecast import Forecaster
from primecast.cli.app import main
from primecast.cli.guard import guarded
from primecast.training import loop

HORIZON, LOOKBACK, ROWS, EPOCHS = 3, 7, 211, 2
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1}


def table() -> pd.DataFrame:
    index = pd.date_range("2024-01-01", periods=ROWS, freq="h", name="time")
    values = np.random.default_rng(0).standard_normal((ROWS, 2)).cumsum(axis=0)
    return pd.DataFrame(values, index=index, columns=["a", "b"])


def forecaster(**others: Any) -> Forecaster:
    given: dict[str, Any] = {"horizon": HORIZON, "lookback": LOOKBACK, "epochs": EPOCHS, "model_args": SIZES}
    return Forecaster(**given | {"batch_size": 32, "progress": "off"} | others)


class Interruption:
    """Counts training steps; raises a signal within one of them, before the step is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps, self.at, self.signal = 0, 0, signal.SIGINT
        own = loop._train_step

        def step(*given: Any) -> float:
            self.steps += 1
            value = own(*given)
            if self.steps == self.at:
                signal.raise_signal(self.signal)
            return value

        monkeypatch.setattr(loop, "_train_step", step)


@pytest.fixture
def interruption(monkeypatch: pytest.MonkeyPatch) -> Interruption:
    return Interruption(monkeypatch)


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.parametrize("others", [{}, {"quality": "good"}, {"refit": True}], ids=str)
def test_an_interrupted_fit_goes_on_and_ends_with_the_bits_of_an_unbroken_one(
    others: dict[str, Any], tmp_path: Path, interruption: Interruption
) -> None:
    unbroken = forecaster(**others).fit(table())
    needed, interruption.steps = interruption.steps, 0
    again = forecaster(**others)
    for interruption.at in (needed // 3, 2 * needed // 3):
        with pytest.raises(KeyboardInterrupt):
            again.fit(table(), state=tmp_path)
        assert interruption.steps == interruption.at  # the step under way was the last
    again.fit(table(), state=tmp_path)
    assert interruption.steps == needed  # no step was done twice, no finished member trained again
    assert_same_weights(again.model_, unbroken.model_)
    pd.testing.assert_frame_equal(again.predict(level=[80]), unbroken.predict(level=[80]))
    assert again.facts_["scores"] == unbroken.facts_["scores"]


def test_a_state_of_other_rows_is_refused(tmp_path: Path) -> None:
    forecaster(epochs=1).fit(table(), state=tmp_path)
    with pytest.raises(ValueError, match="holds the state of another run: its training windows"):
        forecaster(epochs=1).fit(table() + 1.0 * np.arange(ROWS)[:, None], state=tmp_path)


def test_without_a_state_a_signal_takes_effect_at_once(interruption: Interruption) -> None:
    interruption.at = 2
    with pytest.raises(KeyboardInterrupt):
        forecaster().fit(table())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_says_how_to_go_on_and_does(
    kind: signal.Signals,
    code: int,
    tmp_path: Path,
    interruption: Interruption,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table().to_csv(tmp_path / "data.csv")
    options = [f"--set={name}={value}" for name, value in (SIZES | {"epochs": EPOCHS, "progress": "off"}).items()]
    options += [f"--horizon={HORIZON}", f"--lookback={LOOKBACK}", f"--save={tmp_path / 'model'}"]

    def call(*others: str) -> int:
        monkeypatch.setattr(sys, "argv", ["primecast", "train", str(tmp_path / "data.csv"), *options, *others])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0)

    interruption.at, interruption.signal = 3, kind
    handler = signal.getsignal(signal.SIGTERM)
    assert call() == code
    assert capsys.readouterr().err.splitlines()[-1] == (
        "primecast: interrupted; nothing was kept: with --state FOLDER the same command can go on where it was "
        "interrupted"
    )
    interruption.steps = 0
    state = tmp_path / "state"
    assert call("--state", str(state)) == code
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"primecast: interrupted; the same command goes on from the state in {state}"
    )
    assert call("--state", str(state)) == 0
    assert signal.getsignal(signal.SIGTERM) is handler
    assert_same_weights(Forecaster.load(tmp_path / "model").model_, forecaster().fit(table()).model_)


TRAINING = """
import os, signal
from pathlib import Path
from primecast.training import loop
from tests.test_interruption import forecaster, table

own = loop._train_step
def step(*given):
    signal.raise_signal(signal.SIGTERM)
    return own(*given)
loop._train_step = step
forecaster().fit(table(), state=Path({state!r}))
"""


def test_a_sigterm_that_nobody_handles_ends_the_process_after_its_state_is_written_and_unlocked(tmp_path: Path) -> None:
    done = run_process(TRAINING.format(state=str(tmp_path)))
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["state.safetensors"]


# ---------------------------------------------------------------- at any moment of the process

START = """
import atexit, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            signal.raise_signal({number})

sys.meta_path.insert(0, Finder())
sys.argv = ["primecast", *{words!r}]
from primecast.__main__ import main
"""


def run_process(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


KINDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_signal_before_the_command_ends_the_process_with_one_line(kind: signal.Signals, code: int) -> None:
    done = run_process(START.format(name="typer", number=int(kind), words=["list"]) + "main()")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "primecast: interrupted\n")


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_signal_during_an_import_waits_for_it(kind: signal.Signals, code: int) -> None:
    start = START.format(name="primecast.experiments.studies", number=int(kind), words=["study", "--list"])
    loaded = "print('primecast.experiments.studies' in sys.modules)"
    done = run_process(f"{start}\nimport primecast.cli.app\ntry:\n    main()\nfinally:\n    {loaded}")
    assert (done.returncode, done.stderr) == (code, "primecast: interrupted\n")
    assert done.stdout.endswith("True\n")  # a module whose import fails is taken out


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_signal_after_the_command_changes_nothing(kind: signal.Signals, code: int) -> None:
    start = START.format(name="nothing", number=int(kind), words=["--version"])
    done = run_process(f"{start}\natexit.register(signal.raise_signal, {int(kind)})\nmain()")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_a_signal_whose_exception_is_ignored_comes_again(
    kind: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Object:
        def __del__(self) -> None:
            signal.raise_signal(kind)

    def command(state: Path | None = None) -> None:
        Object()
        time.sleep(30)

    handlers = [signal.getsignal(one) for one, _ in KINDS]
    with pytest.raises(typer.Exit) as stop:
        guarded(command)()
    assert stop.value.exit_code == code
    assert capsys.readouterr().err == "primecast: interrupted\n"
    assert handlers == [signal.getsignal(one) for one, _ in KINDS]


def test_an_interrupted_command_names_what_it_has_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def command(out: str | None, save: Path | None, state: Path | None) -> None:
        (tmp_path / "model").mkdir()
        signal.raise_signal(signal.SIGTERM)

    given = {"out": str(tmp_path / "out.csv"), "save": tmp_path / "model"}
    for state, end in (
        (None, ""),
        (tmp_path / "s", f"; the same command with --force goes on from the state in {tmp_path}/s"),
    ):
        with pytest.raises(typer.Exit):
            guarded(command)(**given, state=state)
        assert capsys.readouterr().err == f"primecast: interrupted; written: {tmp_path / 'model'}{end}\n"
        (tmp_path / "model").rmdir()
