"""One thread, one seed and no window for every test: speed on small tensors, and failures that can be repeated."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("primecast", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("primecast")
torch.set_num_threads(1)
os.environ["MPLBACKEND"] = "agg"


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
