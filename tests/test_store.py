"""The store: whole rows or none, one owner per run, and no two truths under one key."""

import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from primecast.errors import InputError
from primecast.experiments.store import STALE, Row, Store, StoreError, estimate_seconds
from primecast.storage.atomic import lock_folder


def row(key: str = "0a", mse: float = 0.5, **fields: object) -> Row:
    arrays = {"window_mse": np.arange(7, dtype=np.float32), "maps.attention": np.ones((2, 3), np.float32)}
    return Row({"key": key, "mse": mse, "mae": 0.25, "seed": 0, **fields}, arrays)


def test_a_row_comes_back_with_its_arrays(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "folder")
    assert not store.has("0a") and store.keys() == []
    store.add(row())
    assert store.has("0a") and store.keys() == ["0a"]
    assert store.fields("0a") == row().fields
    arrays = store.arrays("0a")
    for name, array in row().arrays.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == np.float32


def test_a_second_row_that_agrees_is_fine_and_the_first_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(row(hardware="first"))
    store.add(row(mse=0.5 * (1 + 9e-6), hardware="second"))
    assert store.fields("0a")["hardware"] == "first"


def test_a_second_row_that_disagrees_is_an_error_that_shows_both(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(row(hardware="the old machine"))
    with pytest.raises(
        StoreError, match="run 0a is already in .* with another score: mse 0.5 there, 0.50001 now"
    ) as at:
        store.add(row(mse=0.50001, hardware="the new machine"))
    assert "the old machine" in str(at.value) and "the new machine" in str(at.value)
    assert isinstance(at.value, InputError)
    with pytest.raises(StoreError, match="nan now"):
        store.add(row(mse=float("nan")))
    assert store.fields("0a")["mse"] == 0.5


def test_adding_a_row_clears_the_state_of_its_run_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key in ("0a", "0b"):
        store.state(key).mkdir(parents=True)
        (store.state(key) / "state.safetensors").write_bytes(b"anything")
    store.add(row())
    assert not store.state("0a").exists() and store.state("0b").exists()


def test_where_a_run_stands_is_read_from_the_header_of_its_state(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.position("0a") is None
    path = store.state("0a") / "state.safetensors"
    path.parent.mkdir(parents=True)
    save_file({"weight": np.ones(3)}, path, metadata={"progress": json.dumps({"epoch": 3})})
    assert store.position("0a") == {"epoch": 3}
    path.write_bytes(b"cut off")
    assert store.position("0a") is None


# ---------------------------------------------------------------- claims


def test_a_run_is_claimed_once_until_it_is_released(tmp_path: Path) -> None:
    one, other = Store(tmp_path), Store(tmp_path)
    assert one.claim("0a") and not other.claim("0a") and other.claim("0b")
    one.release("0a")
    assert other.claim("0a")


def test_a_claim_of_a_process_that_is_gone_is_taken_over_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    gone = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
    gone.start()
    gone.join()
    _claim_of(store, "0a", socket.gethostname(), gone.pid)
    assert store.claim("0a")
    assert json.loads((tmp_path / "claims" / "0a.json").read_text())["process"] == os.getpid()


def test_a_claim_of_another_machine_is_taken_over_when_its_heart_was_watched_not_to_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("primecast.experiments.store.time.monotonic", lambda: clock[0])
    store = Store(tmp_path)
    path = _claim_of(store, "0a", "elsewhere", 1)
    os.utime(path, (1, 1))  # clocks differ: how old a file looks decides nothing
    assert not store.claim("0a")
    store.release("0a")  # not ours to release
    clock[0] += 100 * STALE  # this computer slept, and has not watched
    assert not store.claim("0a")
    for second in range(int(STALE) - 2):
        clock[0] += 1
        if second == 53:
            os.utime(path)  # a heartbeat
        assert not store.claim("0a")
    taken = []
    for _ in range(61):
        clock[0] += 1
        taken.append(store.claim("0a"))
    assert any(taken)
    assert [file.name for file in (tmp_path / "claims").iterdir()] == ["0a.json"]


def test_a_claim_of_a_living_process_is_never_taken_over_and_a_reused_number_is_no_life(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = _claim_of(store, "0a", socket.gethostname(), os.getppid())
    os.utime(path, (1, 1))  # as after a night with the lid closed
    assert not store.claim("0a")
    path.write_text(json.dumps({"host": socket.gethostname(), "process": os.getppid(), "started": "another boot 17"}))
    assert store.claim("0a")


@pytest.mark.parametrize("text", ["", "[]", "7", "{", '{"host": 5, "process": []}', '{"token": ""}', "\0" * 100])
def test_a_malformed_claim_is_nobodys_and_taken_over_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    store = Store(tmp_path)
    _claim_of(store, "0a", "elsewhere", 1).write_text(text)
    assert not store.claim("0a") and not store.owns("0a")
    monkeypatch.setattr("primecast.experiments.store.STALE", -1)
    assert store.claim("0a")


def test_the_owner_before_a_takeover_knows_by_its_token_that_the_run_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primecast.experiments.store.STALE", -1)
    sleeper, other = Store(tmp_path), Store(tmp_path)
    assert sleeper.claim("0a") and sleeper.owns("0a") and sleeper.beat("0a")
    monkeypatch.setattr("primecast.experiments.store.socket.gethostname", lambda: "elsewhere")
    assert other.claim("0a")
    token = sleeper.tokens["0a"]
    assert not sleeper.owns("0a") and not sleeper.beat("0a") and not other.owns("0a", token)
    sleeper.release("0a")
    assert other.owns("0a")


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text(path.read_text().replace('"0a"', '"0b"')),
        lambda path: path.write_text(path.read_text().replace("0.25", "NaN")),
        lambda path: path.with_suffix(".npz").write_bytes(b"PK"),
        lambda path: path.with_suffix(".npz").write_bytes(path.with_suffix(".npz").read_bytes()[:-30]),
    ],
    ids=["cut", "empty", "list", "another key", "nan", "no arrays", "arrays cut"],
)
def test_a_damaged_row_counts_as_missing_and_the_next_one_takes_its_place(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    store = Store(tmp_path)
    store.add(row())
    assert store.has("0a")
    damage(tmp_path / "0a.json")
    assert not store.has("0a") and store.keys() == []
    store.add(row(mse=0.75))
    assert store.has("0a") and store.fields("0a")["mse"] == 0.75 and len(store.arrays("0a")) == 2


def test_what_is_left_of_claims_of_those_who_are_gone_is_cleared_and_a_live_claim_stays(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    for key in ("0a", "0b"):
        (_claim_of(store, key, socket.gethostname(), 0).parent / f".{key}.0123abcd.stale").write_text("{}")
        store.clear_claim(key)
    assert not list((tmp_path / "claims").iterdir())
    assert other.claim("0a")
    store.clear_claim("0a")
    assert other.owns("0a")


def test_releasing_a_run_removes_the_lock_of_its_dead_worker_and_never_that_of_a_living_one(tmp_path: Path) -> None:
    store, state = Store(tmp_path), tmp_path / "state" / "0a"
    with lock_folder(state, wait=False):
        assert store.claim("0a")
        store.release("0a")
        with lock_folder(state, wait=False) as second:
            assert not second
    (state / ".lock").touch()  # as a worker that was killed leaves it
    Store(tmp_path).release("0a")  # whose run it is not
    assert (state / ".lock").exists()
    assert store.claim("0a")
    store.release("0a")
    assert list(state.iterdir()) == []


def test_a_beat_without_a_claim_does_nothing(tmp_path: Path) -> None:
    Store(tmp_path).beat("0a")
    assert not (tmp_path / "claims").exists()


def test_of_many_who_claim_at_once_one_has_it(tmp_path: Path) -> None:
    _claim_of(Store(tmp_path), "3", socket.gethostname(), 0)  # one of them is of a process that is gone
    context = multiprocessing.get_context("fork")
    queue, gate = context.Queue(), context.Barrier(4)
    claimants = [context.Process(target=_claim_all, args=(str(tmp_path), gate, queue)) for _ in range(4)]
    for process in claimants:
        process.start()
    taken = [queue.get() for _ in claimants]
    for process in claimants:
        process.join()
    assert sorted(key for keys in taken for key in keys) == [str(number) for number in range(10)]


def _claim_all(folder: str, gate: object, queue: object) -> None:
    store = Store(folder)
    gate.wait()  # type: ignore[attr-defined]
    mine = [key for key in map(str, range(10)) if store.claim(key)]
    gate.wait()  # type: ignore[attr-defined]  # nobody's process may be gone before all have asked
    queue.put(mine)  # type: ignore[attr-defined]


def _claim_of(store: Store, key: str, host: str, process: int | None) -> Path:
    path = store.folder / "claims" / f"{key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"host": host, "process": process}))
    return path


# ---------------------------------------------------------------- seconds


def test_seconds_are_those_of_the_runs_most_alike() -> None:
    base = {"dataset": "A", "model": "m", "attention": "prime", "lookback": 96, "horizon": 96}
    done = [
        {**base, "seconds": 10.0},
        {**base, "seconds": 20.0},
        {**base, "horizon": 192, "seconds": 40.0},
        {**base, "attention": "standard", "seconds": 5.0},
        {**base, "dataset": "B", "seconds": 100.0},
    ]
    assert estimate_seconds(done, base) == 15
    assert estimate_seconds(done, {**base, "horizon": 192}) == 40
    assert estimate_seconds(done, {**base, "horizon": 720}) == pytest.approx(70 / 3)
    assert estimate_seconds(done, {**base, "attention": "other"}) == pytest.approx(75 / 4)
    assert estimate_seconds(done, {**base, "dataset": "C"}) == 35
    assert estimate_seconds(done, {**base, "model": "other"}) is None
