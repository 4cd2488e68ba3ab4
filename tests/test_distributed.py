"""Two real processes train together: the curve of one, every window counted once, one writer, and no one left behind.

As a script this file is the parent of such pairs. Importing torch takes seconds, so one parent serves all tests: for
each scenario it forks two children, which find each other by torchrun's environment variables and report.
"""

import contextlib
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primecast.errors import InputError, TrainingError
from primecast.nn.losses import Loss
from primecast.training.checkpoint import lock_state_dir
from primecast.training.distributed import ProcessGroup, is_main, join, launched, local_device
from primecast.training.loop import evaluate
from tests.test_training import HORIZON, Source, Tiny, train_tiny, weights

ROOT = Path(__file__).parent.parent


# ---------------------------------------------------------------- models


class Own(Tiny):
    """A loss of its own, a buffer, and a parameter that never gets a gradient."""

    def __init__(self) -> None:
        super().__init__(dropout=0.0)
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("flags", torch.tensor([True, False, True]))

    def training_loss(self, x: Tensor, y: Tensor, time_features: Tensor | None, loss: Loss) -> Tensor:
        return loss(self(x, time_features), y) + 0.1 * self.head.weight.square().mean()


class Sometimes(Tiny):
    """Its `header` gets a gradient from batches of more than one window only."""

    def __init__(self) -> None:
        super().__init__(dropout=0.0)

    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        return super().forward(x, time_features if len(x) > 1 else None)


class Normed(Tiny):
    """With a batch normalisation, which keeps running statistics."""

    def __init__(self) -> None:
        super().__init__(dropout=0.0)
        self.norm = nn.BatchNorm1d(HORIZON)

    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        return self.norm(super().forward(x, time_features))


class Wild(Tiny):
    """Other weights in every process."""

    def __init__(self) -> None:
        super().__init__(dropout=0.0)
        nn.init.normal_(self.head.weight, generator=torch.Generator().manual_seed(int(os.environ.get("RANK", "0"))))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "still": lambda: Tiny(dropout=0.0),
    "dropout": lambda: Tiny(dropout=0.5),
    "own": Own,
    "sometimes": Sometimes,
    "normed": Normed,
    "wild": Wild,
}


# ---------------------------------------------------------------- what the processes do


def train(
    name: str = "still",
    *,
    windows: int = 23,
    hole: int | None = None,
    die: tuple[int, int] | None = None,
    save_every: int = 2,
    **changes: Any,
) -> dict[str, Any]:
    """Train; with a hole in the data, or killed at `die` (rank, step); report what happened here."""
    writes, steps, shown = [], 0, io.StringIO()
    rename, model, source = Path.replace, MODELS[name](), Source(windows, seed=0)
    if hole is not None:
        source.series[hole] = torch.nan

    def loss(forecast: Tensor, truth: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        if die is not None and os.environ.get("RANK", "0") == str(die[0]) and steps == die[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return F.mse_loss(forecast, truth)

    # A state is recognized by this name; the children run this file as __main__.
    loss.__module__, loss.__qualname__ = "tests.test_distributed", "mse"

    def replace(self: Path, target: Path) -> Path:
        writes.append(str(target))
        return rename(self, target)

    masks: list[Tensor] = []
    model.get_submodule("dropout").register_forward_hook(lambda module, inputs, out: masks.append(out == 0))
    if "state" in changes:
        changes["state"] = Path(changes["state"])
    report: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(shown):
        patch.setattr(Path, "replace", replace)
        try:
            history = train_tiny(
                model, source, loss=loss, save_every=save_every, **{"progress": "lines", "drop_last": False, **changes}
            )
            rows = [[row.epoch, row.lr, row.train_loss, row.val_mse, row.val_mae] for row in history.epochs]
            report = {"rows": rows, "best_epoch": history.best_epoch, "stopped_early": history.stopped_early}
        except (InputError, TrainingError) as error:
            report = {"error": str(error)}
    return report | {
        "weights": {key: tensor.tolist() for key, tensor in weights(model).items()},
        "bits": hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in weights(model).values())).hexdigest(),
        "batches": source.asked[1:],
        "writes": len(writes),
        "shown": shown.getvalue(),
        "first mask": masks[0].tolist() if masks else None,
        "steps here": steps,
    }


def score(*, windows: int, batch_size: int) -> dict[str, Any]:
    source = Source(windows, seed=1)
    scores = evaluate(MODELS["still"](), source, batch_size=batch_size)
    plain = {key: np.asarray(value).tolist() for key, value in vars(scores).items()}
    return {"scores": plain, "asked": [number for batch in source.asked[1:] for number in batch]}


def differ() -> dict[str, Any]:
    return train(lr=0.01 * (1 + int(os.environ["RANK"])))


SCENARIOS: dict[str, Callable[..., dict[str, Any]]] = {"train": train, "score": score, "differ": differ}


def serve() -> None:
    """For each line a pair of children: their exit codes and reports."""
    for line in sys.stdin:
        scenario, arguments = json.loads(line)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        children = []
        for rank in range(2):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                with os.fdopen(writing, "w") as pipe:
                    try:
                        json.dump(SCENARIOS[scenario](**arguments), pipe)
                    except RuntimeError:  # the other one is dead
                        os._exit(7)
                os._exit(0)
            os.close(writing)
            children.append((pid, reading))
        reports = []
        for pid, reading in children:
            with os.fdopen(reading) as pipe:
                report = json.loads(pipe.read() or "{}")
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            reports.append({"code": code, **report})
        sys.stdout.write(json.dumps(reports) + "\n")
        sys.stdout.flush()


class Pairs:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.test_distributed"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, scenario: str, **arguments: Any) -> list[dict[str, Any]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([scenario, arguments]) + "\n")
        self.process.stdin.flush()
        reports: list[dict[str, Any]] = json.loads(self.process.stdout.readline())
        return reports


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    pairs = Pairs()
    yield pairs
    pairs.process.communicate()


def same_result(first: dict[str, Any], second: dict[str, Any]) -> bool:
    keys = ("rows", "best_epoch", "stopped_early", "bits")
    return all(first[key] == second[key] for key in keys)


def assert_close(pair: dict[str, Any], alone: dict[str, Any]) -> None:
    np.testing.assert_allclose(pair["rows"], alone["rows"], rtol=1e-5)
    assert (pair["best_epoch"], pair["stopped_early"]) == (alone["best_epoch"], alone["stopped_early"])
    for name, values in alone["weights"].items():
        np.testing.assert_allclose(pair["weights"][name], values, rtol=1e-3, atol=1e-5, err_msg=name)


# ---------------------------------------------------------------- training


@pytest.mark.parametrize(
    "settings",
    [
        {},  # parts of 3 and 2, at the end 2 and 1
        {"windows": 21, "drop_last": False},  # at the end 1 and none
        {"windows": 21, "name": "sometimes"},  # and a part without a gradient there
        {"name": "own", "lr_factors": {"head": 3.0}},
        {"parameters": "head"},
        {"lr": 0.3, "epochs": 7, "patience": 1, "schedule": "constant"},  # stops early
    ],
    ids=["parts", "empty part", "no gradient", "own loss", "part", "early stop"],
)
def test_two_processes_have_the_curve_of_one(pairs: Pairs, settings: dict[str, Any]) -> None:
    first, second = pairs.run("train", **settings)
    alone = train(**settings)
    assert same_result(first, second)
    assert_close(first, alone)
    assert alone["stopped_early"] == ("patience" in settings)


def test_two_processes_in_bf16_have_the_curve_of_one_as_far_as_bf16_sees(pairs: Pairs) -> None:
    first, second = pairs.run("train", precision="bf16")
    assert same_result(first, second)
    np.testing.assert_allclose(first["rows"], train(precision="bf16")["rows"], rtol=2e-3)


def test_the_processes_share_every_batch_in_the_order_of_one(pairs: Pairs) -> None:
    first, second = pairs.run("train")
    assert [len(batch) for batch in second["batches"]] == [2, 2, 2, 2, 1] * 3
    together = [mine + other for mine, other in zip(first["batches"], second["batches"], strict=True)]
    assert together == train()["batches"]


def test_every_process_draws_its_own_dropout(pairs: Pairs) -> None:
    first, second = pairs.run("train", name="dropout")
    assert first["first mask"][:2] != second["first mask"]  # of 3 and of 2 windows
    assert same_result(first, second)


def test_running_statistics_are_averaged_and_the_models_stay_one(pairs: Pairs) -> None:
    first, second = pairs.run("train", name="normed", epochs=1, windows=10, batch_size=10, lr=1e-8)
    alone = train("normed", epochs=1, windows=10, batch_size=10, lr=1e-8)
    assert same_result(first, second)
    # The mean of two halves' means is that of the whole; of variances it is the mean within the halves.
    np.testing.assert_allclose(first["weights"]["norm.running_mean"], alone["weights"]["norm.running_mean"], rtol=1e-5)
    np.testing.assert_allclose(first["weights"]["norm.running_var"], alone["weights"]["norm.running_var"], rtol=0.1)


def test_all_start_from_the_weights_of_the_main_process(pairs: Pairs) -> None:
    first, second = pairs.run("train", name="wild")
    assert same_result(first, second)
    assert_close(first, train("wild"))


def test_only_the_main_process_writes_and_shows(pairs: Pairs, tmp_path: Path) -> None:
    first, second = pairs.run("train", state=str(tmp_path))
    assert first["writes"] == 3 + 6  # after each of 3 epochs, and 2 in each before its last step
    assert len(first["shown"].splitlines()) == 3
    assert (second["writes"], second["shown"]) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.previous.safetensors", "state.safetensors"]


@pytest.mark.parametrize("die", [(0, 7), (1, 9)], ids=["the main process", "the other"])
def test_a_killed_pair_resumes_to_the_same_bits(pairs: Pairs, tmp_path: Path, die: tuple[int, int]) -> None:
    unbroken = pairs.run("train", name="dropout")
    dead = pairs.run("train", name="dropout", state=str(tmp_path), die=die)
    assert dead[die[0]]["code"] == -signal.SIGKILL
    assert dead[1 - die[0]]["code"] == 7  # it does not wait for ever
    first, second = pairs.run("train", name="dropout", state=str(tmp_path))
    assert same_result(first, unbroken[0]) and same_result(second, unbroken[1])
    assert first["steps here"] == second["steps here"] < unbroken[0]["steps here"]
    assert first["shown"].startswith("continuing at epoch 2, step ")
    again = pairs.run("train", name="dropout", state=str(tmp_path))
    assert all(report["steps here"] == 0 and same_result(report, first) for report in again)


def test_a_state_of_two_processes_is_not_one_of_one(pairs: Pairs, tmp_path: Path) -> None:
    pairs.run("train", state=str(tmp_path))
    assert "its number of processes is 2, here it is 1" in train(state=str(tmp_path))["error"]


# ---------------------------------------------------------------- what goes wrong, for all of them


def test_a_hole_in_one_part_stops_all_with_one_sentence(pairs: Pairs) -> None:
    first, second = pairs.run("train", hole=0)  # of one window's past
    assert first["error"] == second["error"]
    assert "nan at epoch 1, step" in first["error"] and "x of this batch holds values" in first["error"]
    assert first["error"] == train(hole=0)["error"]


def test_processes_with_different_arguments_are_told_so(pairs: Pairs) -> None:
    for report in pairs.run("differ"):
        assert report["error"] == "the 2 processes that train together must be given the same, but their lr differs"


def test_a_folder_in_use_stops_all_with_one_sentence(pairs: Pairs, tmp_path: Path) -> None:
    with lock_state_dir(tmp_path, ProcessGroup()):
        first, second = pairs.run("train", state=str(tmp_path))
    assert first["error"] == second["error"]
    assert "is in use by another process" in first["error"]
    assert "rows" in pairs.run("train", state=str(tmp_path))[0]


# ---------------------------------------------------------------- scoring


@pytest.mark.parametrize(("windows", "batch_size"), [(19, 4), (1, 5), (2, 1)])
def test_two_processes_count_every_window_once(pairs: Pairs, windows: int, batch_size: int) -> None:
    first, second = pairs.run("score", windows=windows, batch_size=batch_size)
    alone = score(windows=windows, batch_size=batch_size)
    assert first["asked"] + second["asked"] == alone["asked"] == list(range(windows))
    assert first["scores"] == second["scores"]
    for name, value in alone["scores"].items():
        np.testing.assert_allclose(first["scores"][name], value, rtol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("PRIMECAST_DATA" not in os.environ, reason="needs the benchmark files in the folder PRIMECAST_DATA")
def test_the_command_under_torchrun_prints_the_row_of_one_process_once() -> None:
    command = ["-m", "primecast", "run", "ETTh1", "--json"]
    for setting in ("epochs=1", "dropout=0", "d_model=32", "n_heads=2"):
        command += ["--set", setting]

    def rows(*launcher: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, *launcher, *command],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    (alone,) = rows()
    (together,) = rows("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    for name in ("mse", "mae", "val_mse"):
        assert together[name] == pytest.approx(alone[name], rel=1e-5)


# ---------------------------------------------------------------- one process, and which device


def test_a_process_alone_is_a_group_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert join(torch.device("cpu")) == ProcessGroup(0, 1)
    assert is_main() and not launched()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert join(torch.device("cpu")) == ProcessGroup(0, 1)


def test_each_process_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_device(torch.device("cuda")) == torch.device("cuda")
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "7")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not is_main()
    assert local_device(torch.device("cuda")) == torch.device("cuda:1")
    assert local_device(torch.device("cuda:3")) == torch.device("cuda:3")
    assert local_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(InputError, match="the device mps is one device, which cannot be shared"):
        join(torch.device("mps"))


def test_seeds_of_processes_are_their_own_and_the_main_process_has_the_seed() -> None:
    seeds = [ProcessGroup(rank, 7).own_seed(seed) for rank in range(7) for seed in (0, 1, 2)]
    assert len(set(seeds)) == 21
    assert seeds[:3] == [0, 1, 2]
    assert all(0 <= seed < 2**63 for seed in seeds)


if __name__ == "__main__":
    serve()
