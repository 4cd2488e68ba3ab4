"""A sweep on a real Ray, started here; with its package alone: python tools/integrations.py ray."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from primecast.experiments.run import run
from primecast.experiments.store import Store
from tests.test_engines import LONG, linux, start, tiny, wait_for_epochs

pytest.importorskip("ray", reason="Ray is not installed: pip install 'primecast[cluster]'")


def workers_of(store: Store) -> list[int]:
    """Processes that do a task of the Ray that this test has started, whose environment they have."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            busy = (folder / "cmdline").read_bytes().startswith(b"ray::do")
            ours = f"PRIMECAST_TEST_OF={store.folder}\0".encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if busy and ours:
            found.append(int(folder.name))
    return found


@linux
def test_on_ray_a_killed_worker_is_run_again_from_its_state_to_the_same_bits(tmp_path: Path) -> None:
    store, long, bad = Store(tmp_path), tiny(**LONG), tiny(lr=1e30)
    process = start(store, long, tiny(1), bad, engine="ray")
    wait_for_epochs(store, long.key(), 3, process)
    workers = workers_of(store)
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "done=2" in out and "learning rate" in out
    for spec in (long, tiny(1)):
        undisturbed = run(spec, progress="off")
        assert store.fields(spec.key())["mse"] == undisturbed.fields["mse"]
        np.testing.assert_array_equal(store.arrays(spec.key())["window_mae"], undisturbed.arrays["window_mae"])
        assert not store.state(spec.key()).exists()
    assert not list((tmp_path / "claims").glob("*.json"))
