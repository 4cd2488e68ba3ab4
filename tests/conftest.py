"""One thread and one seed for every test: speed on small tensors, and failures that can be repeated."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("primecast", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("primecast")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
