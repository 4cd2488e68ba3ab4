"""A run that is killed and resumed ends with the bits of one that was not: proven with real processes.

As a script this file is the process that trains and gets killed. Importing torch takes seconds, so one such process
serves many tests: for each scenario it forks a child, which trains, dies or reports.
"""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primecast.errors import InputError
from primecast.models import create_model
from primecast.nn.losses import Loss
from primecast.storage.tensors import checksum, load_tensors, save_tensors
from primecast.training.loop import History, fit
from tests.test_training import CHANNELS, HORIZON, LOOKBACK, Source, Tiny, same, train_tiny, weights

ROOT = Path(__file__).parent.parent
STEPS = 9  # per epoch: 47 windows in batches of 5


# ---------------------------------------------------------------- the process


def train(folder: str, when: str = "never", number: int = 0) -> dict[str, object]:
    """Train; be killed in the loss of a step, in the rename of a save, or (slow) by somebody else."""
    calls = {"step": 0, "save": 0}

    def die_at(event: str) -> None:
        calls[event] += 1
        if event == when and calls[event] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def loss(forecast: Tensor, truth: Tensor) -> Tensor:
        die_at("step")
        if when == "slow":
            time.sleep(0.05)
        return F.mse_loss(forecast, truth)

    loss.__qualname__ = "mse"  # whatever it does beside, it is the same loss
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        die_at("save")
        return rename(self, target)

    Path.replace = replace  # type: ignore[assignment, method-assign]
    model = Tiny()
    history = fit(
        model,
        Source(47, seed=0),
        Source(13, seed=1),
        loss=loss,
        lr=0.1,
        batch_size=5,
        epochs=5,
        patience=3,
        schedule="constant",
        seed=2,
        state=Path(folder) if folder else None,
        save_every=2,
        progress="off",
    )
    return {
        "weights": hashlib.sha256(b"".join(t.numpy().tobytes() for t in weights(model).values())).hexdigest(),
        "rows": [[row.epoch, row.lr, row.train_loss, row.val_mse, row.val_mae] for row in history.epochs],
        "best_epoch": history.best_epoch,
        "steps": history.steps,
        "stopped_early": history.stopped_early,
        "steps here": calls["step"],
        "rich": "rich" in sys.modules,
        "compiler": "torch._dynamo" in sys.modules,
    }


def serve() -> None:
    """For each line of arguments a child that trains: its pid, then its exit code and report."""
    for line in sys.stdin:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                json.dump(train(*json.loads(line)), pipe)
            os._exit(0)
        os.close(writing)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        with os.fdopen(reading) as pipe:
            report = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(json.dumps({"code": code, "report": json.loads(report or "{}")}) + "\n")
        sys.stdout.flush()


class Server:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.test_resume"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def start(self, folder: Path | None, *when: object) -> int:
        """Begin to train in a new process; returns its pid."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(folder or ""), *when]) + "\n")
        self.process.stdin.flush()
        pid: int = self._read()
        return pid

    def killed(self) -> bool:
        return bool(self._read()["code"] == -signal.SIGKILL)

    def run(self, folder: Path | None) -> dict[str, Any]:
        """Train to the end in a new process; returns its report."""
        self.start(folder)
        end = self._read()
        assert end["code"] == 0
        report: dict[str, Any] = end["report"]
        return report

    def close(self) -> None:
        self.process.communicate()


def result(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key not in ("steps here", "rich", "compiler")}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def unbroken(server: Server) -> dict[str, Any]:
    return server.run(None)


def test_two_processes_give_the_same_bits(unbroken: dict[str, Any]) -> None:
    other = Server()
    assert other.run(None) == unbroken
    other.close()
    assert unbroken["steps"] == unbroken["steps here"] == STEPS * len(unbroken["rows"])
    assert not unbroken["rich"]  # imported only where a bar is drawn
    assert not unbroken["compiler"]  # seconds to import, and not used


def test_keeping_a_state_changes_nothing(server: Server, unbroken: dict[str, Any], tmp_path: Path) -> None:
    assert server.run(tmp_path) == unbroken
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.previous.safetensors", "state.safetensors"]


@pytest.mark.parametrize("seed", [2, 3, 5, 7])
def test_a_run_killed_at_any_steps_ends_bit_equal(
    server: Server, unbroken: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    assert unbroken["best_epoch"] < len(unbroken["rows"])  # so that best weights and last weights differ
    kills = random.Random(seed).sample(range(3, 2 * STEPS), 3)
    for number in kills:
        server.start(tmp_path, "step", number)
        assert server.killed()
    report = server.run(tmp_path)
    assert result(report) == result(unbroken), f"killed at steps {kills}"
    # It went on, not anew: the step of the kill and at most one before it were done twice.
    assert unbroken["steps"] - sum(kills) < report["steps here"] <= unbroken["steps"] - sum(kills) + 2 * len(kills)

    again = server.run(tmp_path)
    assert result(again) == result(unbroken)
    assert again["steps here"] == 0


def test_a_run_killed_between_writing_and_renaming_ends_bit_equal(
    server: Server, unbroken: dict[str, Any], tmp_path: Path
) -> None:
    server.start(tmp_path, "save", 1)
    assert server.killed()
    assert not (tmp_path / "state.safetensors").exists()
    server.start(tmp_path, "save", 7)
    assert server.killed()
    assert len(list(tmp_path.iterdir())) == 4  # the state under two names, what was left lying, and the lock
    assert result(server.run(tmp_path)) == result(unbroken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.previous.safetensors", "state.safetensors"]


def test_a_run_killed_from_outside_ends_bit_equal(server: Server, unbroken: dict[str, Any], tmp_path: Path) -> None:
    pid = server.start(tmp_path, "slow")
    for _ in range(1200):
        if (tmp_path / "state.safetensors").exists():
            break
        time.sleep(0.05)
    with pytest.raises(
        InputError, match=r"^the state folder .* is in use by another process; give this run one of its"
    ):
        train_tiny(state=tmp_path)
    time.sleep(random.Random().uniform(0, 0.5))
    os.kill(pid, signal.SIGKILL)
    assert server.killed()
    report = server.run(tmp_path)
    assert result(report) == result(unbroken)
    assert 0 < report["steps here"] < unbroken["steps"]


# ---------------------------------------------------------------- whose state it is


def test_a_finished_run_returns_at_once_with_the_same_history_and_weights(tmp_path: Path) -> None:
    first, second, train = Tiny(), Tiny(), Source(23, seed=0)
    history = train_tiny(first, state=tmp_path)
    assert train_tiny(second, train, state=tmp_path) == history
    assert same(weights(first), weights(second))
    assert len(train.asked) == 1  # for its fingerprint


def test_a_resumed_run_says_where_it_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted(tmp_path, at_call=7)
    train_tiny(state=tmp_path, loss=mse, progress="lines")
    train_tiny(state=tmp_path, loss=mse, progress="lines")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "continuing at epoch 2, step 3"
    assert lines[-1] == "finished before"


def mse(forecast: Tensor, truth: Tensor) -> Tensor:
    return F.mse_loss(forecast, truth)


def interrupted(folder: Path, *, at_call: int, **changes: Any) -> None:
    calls = 0

    def dying(forecast: Tensor, truth: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == at_call:
            raise KeyboardInterrupt
        return F.mse_loss(forecast, truth)

    dying.__qualname__ = mse.__qualname__
    with pytest.raises(KeyboardInterrupt):
        train_tiny(state=folder, loss=dying, save_every=2, **changes)


def test_training_a_part_resumes_with_that_parts_moments(tmp_path: Path) -> None:
    whole, broken = Tiny(), Tiny()
    train_tiny(whole, parameters="head", epochs=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("primecast.training.progress.Display.row", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_tiny(broken, parameters="head", epochs=4, state=tmp_path, save_every=1)
    names = load_tensors(tmp_path / "state.safetensors")[0]
    assert {name for name in names if name.startswith("moments/")} == {
        f"moments/head.{part}/{kind}" for part in ("weight", "bias") for kind in ("exp_avg", "exp_avg_sq", "step")
    }
    fresh = Tiny()
    train_tiny(fresh, parameters="head", epochs=4, state=tmp_path)
    assert same(weights(fresh), weights(whole))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.02}, r"its lr is 0\.01, here it is 0\.02"),
        ({"batch_size": 7}, r"its batch_size is 5, here it is 7"),
        ({"epochs": 2}, r"its epochs is 3, here it is 2"),
        ({"patience": 2}, r"its patience is 3, here it is 2"),
        ({"seed": 3}, r"its seed is 2, here it is 3"),
        ({"schedule": "cosine"}, r"its schedule is 'halving', here it is 'cosine'"),
        ({"drop_last": False}, r"its drop_last is True, here it is False"),
        ({"lr_factors": {"head": 3.0}}, r"its lr_factors is \{\}, here it is \{'head': 3\.0\}"),
        ({"precision": "bf16"}, r"its precision is 'float32', here it is 'bf16'"),
        (
            {"loss": partial(F.huber_loss, delta=2.0)},
            r"its loss is torch.nn.functional.mse_loss, here it is torch.nn.functional.huber_loss\(delta=2\.0\);",
        ),
        ({"parameters": "head"}, r"its model.body.weight is float32\[11, 7\], trained, here it is float32\[11, 7\];"),
        ({"train": Source(29, seed=0)}, r"its training windows is 23 windows, \w+, here it is 29 windows, "),
        ({"train": Source(23, seed=5)}, r"its training windows is 23 windows, \w+, here it is 23 windows, "),
        ({"val": Source(19, seed=5)}, r"its validation windows is 19 windows, \w+, here it is 19 windows, "),
        ({"model": nn.Linear(7, 3)}, r"its model is Tiny, here it is Linear;"),
        ({"model": Tiny(dropout=0.5)}, r"its model\.dropout\.p is 0\.2, here it is 0\.5;"),
        (
            {"loss": nn.HuberLoss(delta=2.0)},
            r"its loss is .*mse_loss, here it is HuberLoss\(delta=2\.0, reduction='mean'\);",
        ),
        ({"val": Source(19, seed=1, time_features=False)}, r"its validation windows is 19 windows, "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_state_of_another_run_is_refused_and_kept(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    train_tiny(state=tmp_path)
    path = tmp_path / "state.safetensors"
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"state\.safetensors holds the state of another run: " + message):
        train_tiny(state=tmp_path, **changes)
    assert path.read_bytes() == before


SIZES: dict[str, Any] = {"lookback": LOOKBACK, "horizon": HORIZON, "channels": CHANNELS, "seed": 0}
SMALL: dict[str, Any] = {"d_model": 12, "n_heads": 2, "n_layers": 1}


def product(x: Tensor) -> Tensor:
    return x[:, :, None, :2] * x[:, None, :, :2]


def total(x: Tensor) -> Tensor:
    return x[:, :, None, :2] + x[:, None, :, :2]


@pytest.mark.parametrize(
    ("name", "options", "change"),
    [
        ("itransformer", SMALL, {"norm": "none"}),
        ("itransformer", SMALL, {"activation": "relu"}),
        ("itransformer", SMALL, {"n_heads": 3}),
        ("itransformer", {**SMALL, "primer": "full"}, {"primer": {"base": "identity"}}),
        ("itransformer", {**SMALL, "primer": "full"}, {"primer": {"smooth": True}}),
        ("itransformer", {**SMALL, "primer": "full"}, {"primer": {"rolling": 3}}),
        ("itransformer", {**SMALL, "primer": "full"}, {"primer": {"form": "matrix"}}),
        (
            "itransformer",
            {**SMALL, "primer": {"kind": product, "features": 2}},
            {"primer": {"kind": total, "features": 2}},
        ),
        ("dlinear", {}, {"kernel": 5}),
        ("timer_xl", {**SMALL, "patch": LOOKBACK}, {"rotary": "flattened"}),
        ("autoformer", {**SMALL, "kernel": 3}, {"factor": 1.0}),
        ("autoformer", {**SMALL, "kernel": 3}, {"kernel": 5}),
        ("autoformer", {**SMALL, "kernel": 3}, {"label": 2}),
        ("lift", {"leaders": 2, "states": 2}, {"estimate": "overlap"}),
        ("lagts-reconstruction", {"d_model": 12, "hidden": 3}, {"guidance": 0.2}),
        ("gat", {**SMALL, "primer": "full"}, {"modulate": "k"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_the_state_of_a_model_with_other_arguments_is_refused(
    tmp_path: Path, name: str, options: dict[str, Any], change: dict[str, Any]
) -> None:
    def train(**options: Any) -> History:
        return train_tiny(create_model(name, **SIZES, **options), epochs=1, state=tmp_path)

    history = train(**options)
    with pytest.raises(InputError, match=r"holds the state of another run: its model\.\S+ is .*, here it is "):
        train(**{**options, **change})
    assert train(**options) == history


@dataclass(frozen=True)
class Config:
    power: float = 2.0


class Configured(Tiny):
    """Keeps its settings in an object, weights in a list, and what it last saw."""

    def __init__(self, power: float = 2.0) -> None:
        super().__init__()
        self.config = Config(power)
        self.flat = list(self.parameters())
        self.notes: list[Tensor] = []
        self.last: Tensor | None = None

    def forward(self, x: Tensor, time_features: Tensor | None = None) -> Tensor:
        self.notes, self.last = [x], x
        return super().forward(x, time_features)


def test_settings_in_an_object_count_and_tensors_beside_the_weights_do_not(tmp_path: Path) -> None:
    model = Configured()
    history = train_tiny(model, state=tmp_path)
    with torch.no_grad():
        model.head.bias.fill_(7.0)
    assert train_tiny(model, state=tmp_path) == history
    with pytest.raises(
        InputError, match=r"its model\.config is Config\(power=2\.0\), here it is Config\(power=3\.0\);"
    ):
        train_tiny(Configured(power=3.0), state=tmp_path)


def weighted(forecast: Tensor, truth: Tensor, *, weight: float | Tensor, loss: Loss = F.mse_loss) -> Tensor:
    return weight * loss(forecast, truth)


class Weighted:
    """A loss that is an object with a setting."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, forecast: Tensor, truth: Tensor) -> Tensor:
        return weighted(forecast, truth, weight=self.weight)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (F.mse_loss, mse),
        (nn.HuberLoss(delta=2.0), nn.HuberLoss(delta=3.0)),
        (partial(weighted, weight=2.0), partial(weighted, weight=3.0)),
        (partial(weighted, weight=2.0), partial(weighted, weight=2.0, loss=F.l1_loss)),
        (
            partial(weighted, weight=2.0, loss=nn.HuberLoss(delta=2.0)),
            partial(weighted, weight=2.0, loss=nn.HuberLoss()),
        ),
        (Weighted(2.0), Weighted(3.0)),
        (Weighted(2.0).__call__, Weighted(3.0).__call__),
    ],
    ids=["function", "module", "value", "function inside", "module inside", "object", "method"],
)
def test_the_state_of_a_run_with_another_loss_is_refused(tmp_path: Path, one: Any, other: Any) -> None:
    history = train_tiny(state=tmp_path, loss=one)
    with pytest.raises(InputError, match="holds the state of another run: its loss is "):
        train_tiny(state=tmp_path, loss=other)
    assert train_tiny(state=tmp_path, loss=one) == history


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (lambda forecast, truth: F.mse_loss(forecast, truth), "<lambda>"),
        (partial(weighted, weight=2.0, loss=lambda forecast, truth: F.mse_loss(forecast, truth)), "<lambda>"),
        (partial(weighted, weight=torch.tensor(2.0)), "Tensor"),
    ],
    ids=["lambda", "lambda inside", "tensor inside"],
)
def test_a_loss_without_a_name_of_its_own_is_refused_with_a_state_only(tmp_path: Path, loss: Loss, name: str) -> None:
    with pytest.raises(
        InputError, match=f"{name} has no name of its own: define the loss at the top level of a module"
    ):
        train_tiny(state=tmp_path, loss=loss)
    assert not list(tmp_path.iterdir())
    assert train_tiny(loss=loss).epochs


class Inward(Tiny):
    """Holds a method of its own and an object that refers back to it."""

    def __init__(self) -> None:
        super().__init__()
        self.method = self.forward
        self.helper = Weighted(2.0)
        vars(self.helper)["owner"] = self


def test_a_model_that_refers_to_itself_is_described_and_resumed(tmp_path: Path) -> None:
    assert train_tiny(Inward(), state=tmp_path) == train_tiny(Inward(), state=tmp_path)


def rewrite(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], *, sign: bool = True) -> None:
    """Write a state as somebody would who changes it on purpose, with the right checksum."""
    content = {name: text for name, text in metadata.items() if name != "sha256"}
    save_tensors(path, tensors, content | ({"sha256": checksum(tensors, content)} if sign else {}))


def test_a_state_of_an_earlier_version_is_refused_and_kept(tmp_path: Path) -> None:
    train_tiny(state=tmp_path)
    path = tmp_path / "state.safetensors"
    tensors, metadata = load_tensors(path)
    for gone in ("format", "sha256"):
        rewrite(path, tensors, {name: text for name, text in metadata.items() if name != gone}, sign=gone == "format")
        before = path.read_bytes()
        with pytest.raises(InputError, match="was written by another version of primecast and .* delete that file to"):
            train_tiny(state=tmp_path)
        assert path.read_bytes() == before


def test_the_state_of_a_model_of_other_shapes_is_refused_and_the_model_stays(tmp_path: Path) -> None:
    train_tiny(state=tmp_path)
    path = tmp_path / "state.safetensors"
    before, model = path.read_bytes(), Tiny(width=13)
    untouched = weights(model)
    with pytest.raises(InputError, match=r"its model\.body\.out_features is 11, here it is 13"):
        train_tiny(model, state=tmp_path)
    assert path.read_bytes() == before
    assert same(weights(model), untouched)


def test_a_folder_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write into .*file/state: Not a directory$"):
        train_tiny(state=tmp_path / "file" / "state")


def test_a_folder_is_free_again_after_a_run_that_failed(tmp_path: Path) -> None:
    interrupted(tmp_path, at_call=7)
    (tmp_path / ".lock").touch()  # as a process that was killed leaves it
    assert train_tiny(state=tmp_path, loss=mse).epochs
    assert not (tmp_path / ".lock").exists()


def test_lr_factors_and_their_moments_are_resumed(tmp_path: Path) -> None:
    whole, broken = Tiny(), Tiny()
    lr_factors = {"head": 3.0, "body.bias": 0.5}
    train_tiny(whole, loss=mse, lr_factors=lr_factors)
    interrupted(tmp_path, at_call=7, lr_factors=lr_factors)
    train_tiny(broken, loss=mse, lr_factors=lr_factors, state=tmp_path)
    assert same(weights(whole), weights(broken))


def test_a_file_that_is_no_state_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_tensors(path, {"a": torch.ones(3)}, {})
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"state\.safetensors is not the state of a training run; give another"):
        train_tiny(state=tmp_path)
    assert path.read_bytes() == before
    path.write_bytes(before[:-1])
    with pytest.raises(InputError, match=r"state\.safetensors is not a whole safetensors file"):
        train_tiny(state=tmp_path)


# ---------------------------------------------------------------- states that are damaged


def change_state(folder: Path, tensors: dict[str, Tensor | None], metadata: dict[str, str]) -> Path:
    """Interrupt a run, and change its only state with the right checksum; None takes a tensor out."""
    interrupted(folder, at_call=7)
    (folder / "state.previous.safetensors").unlink()  # which would be continued
    path = folder / "state.safetensors"
    whole, texts = load_tensors(path)
    changed: dict[str, Tensor | None] = {**whole, **tensors}
    rewrite(path, {name: tensor for name, tensor in changed.items() if tensor is not None}, texts | metadata)
    return path


MOMENTS = [f"moments/head.bias/{kind}" for kind in ("exp_avg", "exp_avg_sq", "step")]


@pytest.mark.parametrize(
    "change",
    [
        {"moments/head.bias/exp_avg": torch.ones(2)},
        {"moments/head.bias/exp_avg": torch.ones(1)},  # would be broadcast
        {"moments/head.bias/exp_avg": torch.ones(3).double()},
        {"moments/head.bias/exp_avg": torch.full((3,), torch.nan)},
        {"moments/head.bias/exp_avg_sq": None},
        dict.fromkeys(MOMENTS),  # all of them, which is how a parameter without a gradient looked once
        {"moments/gone/step": torch.zeros(())},
        {"unknown": torch.ones(2)},
        {"weights/head.bias": torch.ones(4)},
        {"best/head.bias": None},
        {"generators/shuffle": None},
        {"generators/shuffle": torch.ones(3).byte()},
        {"generators/shuffle": torch.ones(5056).byte()},
        {"generators/dropout/cpu/0": None},
        {"generators/dropout/cpu/0": torch.ones(3).byte()},
        {"generators/dropout/cpu/1": torch.get_rng_state()},
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_state_with_other_tensors_than_the_run_is_refused(tmp_path: Path, change: dict[str, Tensor | None]) -> None:
    change_state(tmp_path, change, {})
    model = Tiny()
    with pytest.raises(InputError, match=r"state\.safetensors is damaged: .*; give another folder, or"):
        train_tiny(model, loss=mse, state=tmp_path)
    assert same(weights(model), weights(Tiny()))


@pytest.mark.parametrize(
    "change",
    [
        *({"epoch": epoch} for epoch in (-5, 1, 3, 10**9, 2.0, True, None)),
        *({"step": step} for step in (-1, 1, 4, 10**9, 2.0)),
        *({"windows": windows} for windows in (0, 11, -10, 10.0)),
        *({"best_epoch": epoch} for epoch in (0, 2, 10**9)),
        *({"steps": 5}, {"failures": 1}, {"failures": -1}, {"finished": True}, {"finished": 0}, {"rows": []}),
        *({"loss_sum": number} for number in (float("nan"), float("inf"), 10**400, "1")),
    ],
    ids=str,
)
def test_a_state_at_a_position_that_its_run_cannot_have_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    interrupted(tmp_path / "a", at_call=7)  # saved in epoch 2 after step 2 of 4
    progress = json.loads(load_tensors(tmp_path / "a" / "state.safetensors")[1]["progress"])
    assert (progress["epoch"], progress["step"], progress["windows"], progress["steps"]) == (2, 2, 10, 6)
    change_state(tmp_path / "b", {}, {"progress": json.dumps(progress | change)})
    reason = (
        "(no such run can have come to its progress|its settings or its progress cannot be read)"  # types: beartype
    )
    with pytest.raises(InputError, match=f"is damaged: {reason}; give another folder"):
        train_tiny(loss=mse, state=tmp_path / "b")


def test_a_state_that_fits_its_checksum_but_not_the_run_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    unbroken, model = Tiny(), Tiny()
    train_tiny(unbroken, loss=mse)
    interrupted(tmp_path, at_call=7)
    path = tmp_path / "state.safetensors"
    tensors, metadata = load_tensors(path)
    rewrite(path, {**tensors, "weights/head.bias": torch.ones(4)}, metadata)
    with pytest.warns(
        UserWarning, match=r"weights/head.bias is float32\[4\] there, float32\[3\] here; continuing with"
    ):
        train_tiny(model, loss=mse, state=tmp_path)
    assert same(weights(model), weights(unbroken))


def test_a_state_of_the_format_before_is_resumed(tmp_path: Path) -> None:
    unbroken, model = Tiny(), Tiny()
    train_tiny(unbroken, loss=mse)
    path = change_state(tmp_path, {}, {"format": "3"})
    tensors, metadata = load_tensors(path)
    rewrite(path, tensors, {name: text for name, text in metadata.items() if name != "environment"})
    train_tiny(model, loss=mse, state=tmp_path)
    assert same(weights(model), weights(unbroken))


def test_a_state_that_was_written_with_other_threads_or_torch_says_that_bits_may_differ(tmp_path: Path) -> None:
    here = f"torch {torch.__version__} and {torch.get_num_threads()} threads"
    path = change_state(tmp_path, {}, {})
    assert load_tensors(path)[1]["environment"] == here
    for there in (here.replace(" and ", " and 1"), here.replace("torch ", "torch 1")):
        tensors, metadata = load_tensors(path)
        rewrite(path, tensors, metadata | {"environment": there})
        with pytest.warns(UserWarning, match=f"was written with {re.escape(there)}, this run has .* last bits"):
            interrupted(tmp_path, at_call=1)
    with pytest.warns(UserWarning, match="it continues, but its result may differ in the last bits"):
        assert train_tiny(loss=mse, state=tmp_path).steps == 12


def test_a_state_far_larger_than_the_run_is_not_read(tmp_path: Path) -> None:
    path = change_state(tmp_path, {}, {})
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # sparse: no disk is used
    with pytest.raises(
        InputError, match=r"state\.safetensors: it has 1099511627776 bytes, and at most \d+ are expected"
    ):
        train_tiny(loss=mse, state=tmp_path)


@pytest.mark.parametrize("name", ["progress", "settings"])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{", "[1]", "7", "null"], ids=["deep", "cut", "list", "number", "null"]
)
def test_a_state_whose_texts_are_no_settings_and_no_progress_is_refused(tmp_path: Path, name: str, text: str) -> None:
    change_state(tmp_path, {}, {name: text})
    with pytest.raises(InputError, match="is damaged: its settings or its progress cannot be read; give another"):
        train_tiny(loss=mse, state=tmp_path)


def test_a_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    unbroken = Tiny()
    train_tiny(unbroken, loss=mse)
    interrupted(tmp_path, at_call=7)
    (tmp_path / "state.previous.safetensors").unlink()
    path, draw, refused = tmp_path / "state.safetensors", random.Random(3), 0
    whole = path.read_bytes()
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        model = Tiny()
        try:
            train_tiny(model, loss=mse, state=tmp_path)
            assert same(weights(model), weights(unbroken))
        except InputError as error:
            refused += 1
            assert "state.safetensors" in str(error)
    assert refused > 50


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_where_the_newest_state_is_damaged_the_one_before_it_is_continued(tmp_path: Path, damage: str) -> None:
    unbroken, model = Tiny(), Tiny()
    train_tiny(unbroken, loss=mse)
    interrupted(tmp_path, at_call=9)  # saved after steps 2, 4 and 6, and after the first epoch: 4, too, and 8
    path, previous = tmp_path / "state.safetensors", tmp_path / "state.previous.safetensors"
    whole = path.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    path.write_bytes({"cut": whole[:-1], "flipped": flipped, "empty": b""}[damage])
    good = previous.read_bytes()
    with pytest.warns(UserWarning, match=r"state\.safetensors is .*continuing with the state before it, .*previous"):
        interrupted(tmp_path, at_call=1)
    assert previous.read_bytes() == good  # the damaged one did not take its place
    with pytest.warns(UserWarning, match="continuing with the state before it"):
        train_tiny(model, loss=mse, state=tmp_path)
    assert same(weights(model), weights(unbroken))
    assert train_tiny(loss=mse, state=tmp_path).steps == 12


def test_where_both_states_are_damaged_the_newest_is_refused_by_name(tmp_path: Path) -> None:
    interrupted(tmp_path, at_call=9)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"/state\.safetensors is not a whole safetensors file"):
        train_tiny(loss=mse, state=tmp_path)


def test_a_run_whose_state_was_deleted_begins_anew(tmp_path: Path) -> None:
    interrupted(tmp_path, at_call=9)
    (tmp_path / "state.safetensors").unlink()
    assert train_tiny(loss=mse, lr=0.02, state=tmp_path).epochs[0].lr == 0.02


def test_the_state_before_is_kept_also_where_files_have_one_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    interrupted(tmp_path, at_call=9)
    (tmp_path / "state.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="continuing with the state before it"):
        assert train_tiny(loss=mse, state=tmp_path).steps == 12


if __name__ == "__main__":
    serve()
