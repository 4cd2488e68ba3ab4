"""tools/migrate_results.py: names of before become those of today, keys are computed anew, scores stay."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from primecast.experiments.run import run
from primecast.experiments.spec import Spec, key_of
from primecast.experiments.store import Row, Store

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def migrate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("migrate_results", ROOT / "tools" / "migrate_results.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_before(fields: dict[str, Any]) -> dict[str, Any]:
    """The same row as it was written before the names were changed, under another key."""
    row = {name: value for name, value in json.loads(json.dumps(fields)).items() if name != "variant"}
    model, training = row["settings"]["model"], row["settings"]["training"]
    model["primer"]["kind"] = "free"
    model["channel_vectors"] = model.pop("channel_embeddings")
    training["rates"] = training.pop("lr_factors")
    return {**row, "attention": "prime-free", "key": "0123456789abcdef"}


def test_a_store_of_before_is_only_read_and_its_rows_keep_their_scores(migrate: ModuleType, tmp_path: Path) -> None:
    small = {"epochs": 1, "d_model": 8, "n_heads": 2, "n_layers": 1, "batch_size": 2048, "lr_factor.primer": 2.0}
    spec = Spec(dataset="nyc-weather", lookback=13, horizon=7, attention="prime-table", settings=small)
    row = run(spec, progress="off")
    old, new = Store(tmp_path / "old"), Store(tmp_path / "new")
    old.add(Row(as_before(row.fields), row.arrays))
    before = {path.name: path.read_bytes() for path in old.folder.iterdir()}
    for _ in range(2):  # it may be run again
        counts = migrate.migrate_store(old.folder, new.folder)
        assert str(counts).startswith("1 rows read, 1 migrated, 0 already new") and str(counts).endswith("all equal")
    assert new.keys() == [spec.key()] and key_of(new.fields(spec.key())) == spec.key()
    assert new.fields(spec.key())["mse"] == row.fields["mse"]
    assert {path.name: path.read_bytes() for path in old.folder.iterdir()} == before


def test_a_changed_score_is_counted(migrate: ModuleType) -> None:
    counts = migrate.Counts()
    row = dict.fromkeys(migrate.SCORES, 1.0)
    counts.add(row, {**row, "mse": 2.0})
    assert counts.unequal == 1 and "1 DIFFER" in str(counts)
