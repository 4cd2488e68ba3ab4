"""What is asked of every model we did not write, once its attention has been swapped."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from primecast.nn.swap import SwapReport


def is_unchanged_until_it_is_trained(
    forecast: Callable[[], Tensor], model: nn.Module, swap: Callable[[], SwapReport], steps: int = 4
) -> SwapReport:
    """With a unit primer the output is what it was, to 1e-10 in double precision; a few steps later it is not.

    forecast: calls the model. It is called before and after `swap`, so the swapped model must feed itself.
    """
    model.double().eval()
    before = forecast().detach()
    names = set(model.state_dict())
    report = swap()
    assert_close(forecast().detach(), before, rtol=0, atol=1e-10)
    assert names <= set(model.state_dict())
    optimizer = torch.optim.Adam(report.primers.parameters(), lr=0.03)
    target = torch.randn_like(before)
    for _ in range(steps):
        optimizer.zero_grad()
        (forecast() - target).square().mean().backward()
        assert all(parameter.grad is not None for parameter in report.primers.parameters())
        optimizer.step()
    assert (forecast().detach() - before).abs().max() > 1e-6
    report.undo()
    assert_close(forecast().detach(), before, rtol=0, atol=1e-10)
    assert set(model.state_dict()) == names
    return report
