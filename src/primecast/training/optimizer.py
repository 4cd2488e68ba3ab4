"""Which parameters are trained, at which learning rate, by which optimizer."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from primecast.errors import InputError, unknown

SCHEDULES: dict[str, Callable[[int, int], float]] = {
    # epoch (from 1), epochs -> factor on the learning rate
    "halving": lambda epoch, epochs: 0.5 ** max(0, epoch - 2),  # "type1" of the benchmarks: two epochs at full rate
    "halving-early": lambda epoch, epochs: 0.5 ** (epoch - 1),  # as FreDF's code has it
    "tenth": lambda epoch, epochs: 0.1 ** (epoch - 1),  # OpenLTM's "type1"
    "cosine": lambda epoch, epochs: (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2,
    "constant": lambda epoch, epochs: 1.0,
}


update_parameters = partial(
    adam, fused=True, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False
)


class Adam:
    """Adam with torch's defaults, its moments by parameter name; `factors` multiply the learning rate.

    The arithmetic is torch's fused one, which passes over each parameter once instead of a dozen times.
    torch.optim.Adam gives the same bits, but its constructor imports torch's compiler: 2.1 seconds in each process
    (torch 2.13). Its function `adam`, which is as public, does not.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], factors: Mapping[str, float]) -> None:
        self.parameters = parameters
        self.groups = {f: [name for name in parameters if factors[name] == f] for f in dict.fromkeys(factors.values())}
        self.moments = {name: self._initial_moments(name) for name in parameters}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update every parameter that has a gradient, and clear the gradients."""
        for factor, group in self.groups.items():
            gradients = {name: grad for name in group if (grad := self.parameters[name].grad) is not None}
            moments = [self.moments[name] for name in gradients]
            parameters: list[Tensor] = [self.parameters[name] for name in gradients]
            average, square, steps = ([one[kind] for one in moments] for kind in ("exp_avg", "exp_avg_sq", "step"))
            update_parameters(parameters, list(gradients.values()), average, square, [], steps, lr=lr * factor)
        for parameter in self.parameters.values():
            parameter.grad = None

    def _initial_moments(self, name: str) -> dict[str, Tensor]:
        """Return the moments of a parameter before its first step."""
        parameter = self.parameters[name]
        step = torch.zeros((), device=parameter.device)
        return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}


def select_parameters(model: nn.Module, parameters: Callable[[str], bool] | str | None) -> dict[str, nn.Parameter]:
    """Return the parameters to train by name; those the caller froze stay frozen."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if isinstance(parameters, str):
        chosen = _names_in(parameters, named)
    else:
        chosen = [name for name in named if parameters is None or parameters(name)]
    if not chosen:
        raise InputError(
            f"{type(model).__name__} has nothing to train: of its parameters {len(named)} require a gradient, and none "
            "of these was chosen"
        )
    return {name: named[name] for name in chosen}


def expand_factors(names: Collection[str], factors: Mapping[str, float]) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter; its innermost part counts."""
    expanded = dict.fromkeys(names, 1.0)
    for part in sorted(factors, key=len):  # the innermost part has the longest name
        if not (factors[part] > 0 and math.isfinite(factors[part])):
            raise InputError(f"the lr_factor of {part!r} is {factors[part]}; it must be a finite number above 0")
        expanded |= dict.fromkeys(_names_in(part, names), factors[part])
    return expanded


def _names_in(part: str, names: Collection[str]) -> list[str]:
    """Return the names of the parameters of a named part of the model."""
    inside = [name for name in names if f"{name}.".startswith(f"{part}.")]
    if not inside:
        raise unknown("part of the model", part, {name.split(".")[0] for name in names})
    return inside


@contextmanager
def require_grad_only(model: nn.Module, selected: Collection[str]) -> Iterator[None]:
    """Compute gradients for the selected parameters only; afterwards each parameter is as it was, without gradient."""
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in selected)
        yield
    finally:
        for parameter, required in before.items():
            parameter.requires_grad_(required)
            parameter.grad = None
