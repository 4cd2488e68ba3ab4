"""Damaged stores: a row is whole or counts as missing and is run again; a claim belongs to one or is taken over."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from primecast.experiments.store import Row, Store
from tests.fuzz.mutations import damaged, mutated
from tests.fuzz.outcomes import fuzz, outcome

ROW = Row({"key": "0a", "mse": 0.5, "mae": 0.25, "seed": 0, "settings": {"lr": 0.1}}, {"window_mse": np.ones((2, 3))})


def read(store: Store) -> bool:
    """Return whether the row is there; check that it can then be used, and that its run can otherwise be done again."""
    if store.has("0a"):
        fields = store.fields("0a")
        assert fields["key"] == "0a" and math.isfinite(fields["mse"]) and store.keys() == ["0a"]
        assert all(isinstance(array, np.ndarray) for array in store.arrays("0a").values())
        return True
    store.add(ROW)
    assert store.has("0a") and store.fields("0a") == ROW.fields
    assert (store.arrays("0a")["window_mse"] == 1).all()
    return False


@fuzz(few=20)
@given(st.data())
def test_a_row_of_changed_bytes_or_fields(tmp_path: Path, data: st.DataObject) -> None:
    store = Store(tmp_path)
    for path in tmp_path.glob("0a.*"):
        path.unlink()
    store.add(ROW)
    path = tmp_path / data.draw(st.sampled_from(["0a.json", "0a.npz"]))
    if path.suffix == ".json" and data.draw(st.booleans()):
        path.write_text(json.dumps(mutated(data, ROW.fields)))
    else:
        path.write_bytes(damaged(data, path.read_bytes()))
    outcome("rows of a store", lambda: read(Store(tmp_path)))


@fuzz(few=20)
@given(st.data())
def test_a_claim_of_changed_bytes_or_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    (tmp_path / "claims").mkdir(exist_ok=True)
    path = tmp_path / "claims" / "0a.json"
    path.unlink(missing_ok=True)
    one, other = Store(tmp_path), Store(tmp_path)
    assert one.claim("0a")
    claim: dict[str, Any] = json.loads(path.read_text())
    if data.draw(st.booleans()):
        path.write_text(json.dumps(mutated(data, claim)))
    else:
        path.write_bytes(damaged(data, path.read_bytes()))
    taken = outcome("claims of a store", lambda: other.claim("0a"))
    assert taken is not None and other.owns("0a") == taken  # never an error: it would end the sweep
    one.beat("0a")
    one.release("0a")
    assert other.owns("0a") == taken
    monkeypatch.setattr("primecast.experiments.store.STALE", -1)
    assert taken or other.claim("0a") or one_is_alive(path)


def one_is_alive(path: Path) -> bool:
    """Return whether the claim is still that of this process, which nobody takes over."""
    return bool(json.loads(path.read_text())["process"])


STATE = save({"weight": np.ones(3)}, metadata={"progress": json.dumps({"epoch": 3, "rows": []})})


@fuzz(few=20)
@given(st.data())
def test_the_position_of_a_state_of_changed_bytes(tmp_path: Path, data: st.DataObject) -> None:
    store = Store(tmp_path)
    store.state("0a").mkdir(parents=True, exist_ok=True)
    (store.state("0a") / "state.safetensors").write_bytes(damaged(data, STATE))
    position = outcome("positions of states", lambda: store.position("0a"))
    assert position is None or isinstance(position, dict)
