"""One thread, one seed and no window for every test: speed on small tensors, and failures that can be repeated."""

import os
import signal
from contextlib import suppress

import pytest
from hypothesis import settings

with suppress(ModuleNotFoundError):  # tools/versions.py runs tests that need no torch where there is none
    import torch

settings.register_profile("primecast", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("primecast")
HAS_TORCH = "torch" in globals()
if HAS_TORCH:
    torch.set_num_threads(1)
os.environ["MPLBACKEND"] = "agg"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a job in the background: tests send it to themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seed() -> None:
    if HAS_TORCH:
        torch.manual_seed(0)
