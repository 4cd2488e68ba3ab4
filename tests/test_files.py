"""Files: whole or not at all, never unpickled, refused with a sentence that names them."""

import json
import os
import random
import struct
from pathlib import Path

import pytest
import torch
from torch import nn

from primecast.errors import InputError
from primecast.storage.atomic import read_json, write_bytes_atomically, write_json
from primecast.storage.tensors import load_tensors, load_weights, save_tensors


def test_bytes_arrive_whole_in_a_folder_that_did_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_bytes_atomically(path, b"first")
    write_bytes_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_bytes_atomically(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*file: No space left on device"):
        write_bytes_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*taken"):
        write_json(tmp_path / "taken" / "file.json", 1)


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    value = {"name": "Zürich", "values": [0.1, -3, None, True], "nested": {"empty": []}}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    assert "Zürich" in (tmp_path / "a.json").read_text(encoding="utf-8")


def test_json_never_holds_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", [float("nan")])
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"[" * 100_000])
def test_json_that_is_not_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.json is not valid JSON"):
        read_json(tmp_path / "bad.json")


def test_tensors_come_back_with_their_bits_dtypes_and_metadata(tmp_path: Path) -> None:
    base = torch.randn(3, 5)
    tensors = {
        "turned": base.T,
        "same memory": base,
        "double": torch.randn(2, dtype=torch.float64),
        "half": torch.randn(7).bfloat16(),
        "counts": torch.arange(11),
        "scalar": torch.tensor(True),
        "empty": torch.zeros(0, 3),
    }
    save_tensors(tmp_path / "a.safetensors", tensors, {"key": "välue"})
    loaded, metadata = load_tensors(tmp_path / "a.safetensors")
    assert metadata == {"key": "välue"}
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_loaded_tensors_outlive_a_change_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"a": torch.ones(13)}, {})
    loaded, _ = load_tensors(path)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(loaded["a"], torch.ones(13))


def test_a_file_truncated_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    save_tensors(path, {"a": torch.ones(3), "b": torch.ones(2)}, {"key": "value"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut\.safetensors is not a whole safetensors file"):
            load_tensors(path)


def test_a_damaged_file_is_loaded_or_refused_but_never_crashes(tmp_path: Path) -> None:
    path = tmp_path / "damaged.safetensors"
    save_tensors(path, {"a": torch.ones(3), "b": torch.ones(2)}, {"key": "value"})
    whole = path.read_bytes()
    refused = 0
    for seed in range(500):
        draw = random.Random(seed)
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            load_tensors(path)
        except InputError as error:
            refused += 1
            assert "damaged.safetensors" in str(error)
    assert refused > 100


def _header(entries: dict[str, object]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"not a tensor in sight",
        struct.pack("<Q", 2**60) + b"{}",
        _header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}) + b"\0" * 4,
        _header({"a": {"dtype": "NO", "shape": [1], "data_offsets": [0, 4]}}) + b"\0" * 4,
        _header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**62]}}),
    ],
    ids=["text", "huge header", "huge shape", "unknown dtype", "huge offset"],
)
def test_what_is_not_safetensors_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"odd\.safetensors is not a whole safetensors file"):
        load_tensors(tmp_path / "odd.safetensors")


class _Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (os.environ["PRIMECAST_TRAP"],))


def test_a_pickle_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMECAST_TRAP", str(tmp_path / "sprung"))
    torch.save(_Trap(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"model\.pt is not a whole safetensors file"):
        load_tensors(tmp_path / "model.pt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("read", [read_json, load_tensors])
def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path, read: object) -> None:
    assert callable(read)
    with pytest.raises(InputError, match=r"cannot read .*nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(InputError, match=str(tmp_path)):
        read(tmp_path)


# ---------------------------------------------------------------- weights


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_weights_of_the_same_model_are_copied() -> None:
    model, other = nn.Linear(3, 5), nn.Linear(3, 5)
    load_weights(model, _weights(other), source="here")
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"weight": torch.ones(5, 2)},
            r"weight is float32\[5, 2\] there and float32\[5, 3\] in the model; create",
        ),
        ({"bias": torch.ones(5).double()}, r"bias is float64\[5\] there and float32\[5\] in the model; create"),
        ({"bias": None}, r"bias is missing there and float32\[5\] in the model; create"),
        ({"gain": torch.ones(7)}, r"gain is float32\[7\] there and missing in the model; create"),
        (
            {name: torch.ones(2) for name in "abcd"},
            r"a is .*; b is .*; c is float32\[2\] there and missing in the model; and 1 more; create",
        ),
    ],
    ids=["shape", "dtype", "missing", "unexpected", "many"],
)
def test_weights_of_another_model_are_refused_and_the_model_stays(
    change: dict[str, torch.Tensor | None], message: str
) -> None:
    model = nn.Linear(3, 5)
    before = _weights(model)
    changed: dict[str, torch.Tensor | None] = {**_weights(nn.Linear(3, 5)), **change}
    given = {name: tensor for name, tensor in changed.items() if tensor is not None}
    with pytest.raises(InputError, match="^here holds the weights of another model: " + message):
        load_weights(model, given, source="here")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
