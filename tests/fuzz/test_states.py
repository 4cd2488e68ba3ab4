"""Damaged and hostile training states: the run ends with the right weights, or the state is refused in one sentence."""

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primecast.storage.tensors import as_bytes, checksum, parse_tensors
from tests.fuzz.mutations import damaged, mutated
from tests.fuzz.outcomes import fuzz, outcome
from tests.test_resume import interrupted, mse
from tests.test_training import Tiny, same, train_tiny, weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a state in the middle of a run."""
    folder = tmp_path_factory.mktemp("state")
    interrupted(folder, at_call=7)
    return (folder / "state.safetensors").read_bytes()


@pytest.fixture(scope="module")
def unbroken() -> Tiny:
    model = Tiny()
    train_tiny(model, loss=mse)
    return model


def resume(folder: Path, state: bytes) -> Tiny:
    """Continue the run with these bytes as its only state."""
    for path in folder.glob("state*"):
        path.unlink()
    (folder / "state.safetensors").write_bytes(state)
    model = Tiny()
    train_tiny(model, loss=mse, state=folder)
    return model


@fuzz(few=20)
@given(st.data())
def test_a_state_of_changed_bytes(tmp_path: Path, whole: bytes, unbroken: Tiny, data: st.DataObject) -> None:
    state = damaged(data, whole)
    model = outcome("states of changed bytes", lambda: resume(tmp_path, state))
    assert model is None or same(weights(model), weights(unbroken))


@fuzz(few=20)
@given(st.data())
def test_a_state_of_changed_fields_that_fits_its_checksum(
    tmp_path: Path, whole: bytes, unbroken: Tiny, data: st.DataObject
) -> None:
    tensors, metadata = parse_tensors(whole, source="state")
    name = data.draw(st.sampled_from(["progress", "progress", "settings", "format", "environment"]))
    if name in ("progress", "settings"):
        metadata[name] = json.dumps(mutated(data, json.loads(metadata[name])))
    else:
        metadata[name] = data.draw(st.one_of(st.text(max_size=5), st.sampled_from(["3", "5", "{}"])))
    del metadata["sha256"]
    metadata["sha256"] = checksum(tensors, metadata)
    state = as_bytes(tensors, metadata)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of another environment
        model = outcome("states of changed fields", lambda: resume(tmp_path, state))
    assert model is None or same(weights(model), weights(unbroken))
