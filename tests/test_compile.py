"""torch.compile is nothing we call, and something that works: same forecast, and a training step with dropout.

In a process of its own, because a compiler does not see through the shape checks that the tests put on.
"""

import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from primecast.models import create_model

torch.manual_seed(0)
model = create_model("itransformer", lookback=13, horizon=5, channels=3, d_model=22, n_heads=2, n_layers=1, dropout=0.3,
                     primer={primer!r})
windows, truth = torch.randn(7, 13, 3), torch.randn(7, 5, 3)
compiled = torch.compile(model)
with torch.no_grad():
    torch.testing.assert_close(compiled.eval()(windows), model.eval()(windows), rtol=1e-5, atol=1e-5)
loss = (compiled.train()(windows) - truth).square().mean()
loss.backward()
assert loss.isfinite() and all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++)")
@pytest.mark.parametrize("primer", [None, "full"])
def test_a_compiled_model_forecasts_the_same_and_can_be_trained(primer: str | None) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT.format(primer=primer)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
