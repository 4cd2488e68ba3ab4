"""Command lines of drawn arguments: they do what they say, or say in one sentence why not, with exit code 2."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from primecast.cli.app import main
from tests.fuzz.outcomes import COUNTS, fuzz, outcome
from tests.test_practice_commands import csv, model  # noqa: F401  fixtures

TEXTS = st.one_of(
    st.sampled_from(
        ["", "-", "0", "-1", "5", "1e9", "nan", "10000000000000000000000", "x", "=", "a=b", ".", "/dev/null"]
    ),
    st.sampled_from(["nowhere", "/nowhere/x", "\udcff", "x" * 300, "a\nb", "--json", "80", "80.5", "None", "[]"]),
    st.text(max_size=5).filter(lambda text: "\0" not in text),  # which no command line can hold
)
SETTINGS = st.tuples(
    st.sampled_from(["d_model", "n_heads", "n_layers", "dropout", "lr", "seed", "batch_size", "epochs", "loss", "model",
                     "attention", "norm", "primer", "past", "future", "model_args", "device", "precision", "season"]),
    st.one_of(st.sampled_from(["0", "8", "8.5", "-1", "1e400", "x", "", "prime", "null", "[1]", "{}", "true"]), TEXTS),
).map("=".join)  # fmt: skip
SMALL = [
    part
    for one in ("epochs=1", "batch_size=64", "d_model=4", "n_heads=2", "n_layers=1", "progress=off")
    for part in ("--set", one)
]


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Return a command with a few options; DATA, MODEL and NEW stand for files that are there, and one that is not."""
    values = st.one_of(st.sampled_from(["DATA", "MODEL", "NEW"]), TEXTS)
    command = draw(
        st.sampled_from(["forecast", "train", "predict", "backtest", "relations", "export", "list", "fetch"])
    )
    options: dict[str, st.SearchStrategy[str]] = {
        **dict.fromkeys(("--time", "--missing", "--quality"), TEXTS),
        **dict.fromkeys(("--level", "--windows", "--step", "--alpha", "--lookback"), TEXTS),
        **dict.fromkeys(("--out", "--save", "--future", "--plot"), values),
    }
    line = [command]
    if command in ("forecast", "train"):
        horizon = draw(st.one_of(st.just("3"), TEXTS))
        line += [draw(st.one_of(st.just("DATA"), values)), "--horizon", horizon, "--lookback", "7", *SMALL]
        line += ["--set", draw(SETTINGS)] if draw(st.booleans()) else []
        line += ["--save", draw(st.one_of(st.just("NEW"), values))] if command == "train" else []
    elif command not in ("list", "fetch"):
        line.append(draw(st.one_of(st.just("MODEL"), values)))
        line += [] if command == "export" else [draw(st.one_of(st.just("DATA"), values))]
    for _ in range(draw(st.integers(0, 2))):
        option = draw(st.sampled_from([*options, "--json", "--adaptive", "--refit"]))
        line += [option, draw(options[option])] if option in options else [option]
    if draw(st.integers(0, 5)) == 5:
        line.insert(draw(st.integers(0, len(line))), draw(values))
    return line


def call(line: list[str]) -> int:
    """Return the exit code of a command."""
    sys.argv = ["primecast", *line]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


FORECAST = ["forecast", "DATA", "--horizon", "3", "--lookback", "7", *SMALL, "--set"]


@fuzz(few=10)
@given(line=lines())
@example(line=[*FORECAST, "model_args=0"])
@example(line=[*FORECAST, "model_args=null"])
@example(line=[*FORECAST, "lr=1" + "0" * 5000])
@example(line=[*FORECAST, "seed=" + "[" * 100_000])
def test_a_command_line(
    tmp_path: Path,
    csv: Path,  # noqa: F811
    model: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    line: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    files = {"DATA": str(csv), "MODEL": str(model), "NEW": str(tmp_path / "new")}
    capfd.readouterr()
    code = outcome("command lines", lambda: call([files.get(part, part) for part in line]))
    out, err = capfd.readouterr()
    assert code in (0, 1, 2), line
    if code == 0 and "--json" in line and "--out" not in line and "--help" not in line:
        assert isinstance(json.loads(out), dict) or line[0] in ("list", "fetch")
    if code:
        COUNTS["command lines"].update({"works": -1, "refused": 1})
        assert "Traceback" not in err, (line, err)
        last = [text for text in err.splitlines() if text.strip()][-1]
        assert last.startswith("primecast: ") or "Usage: " in err, (line, err)
