"""What a training run is given: numbers that are checked, and a description by which a state recognizes its run.

The description is text that a person can read: numbers, names and plain attributes, never code or addresses. Only the
windows, which have no name, are described by a hash of three of them.
"""

import hashlib
import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial
from numbers import Number
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType

import torch
from torch import nn

from primecast.data.windows import WindowSource
from primecast.errors import InputError
from primecast.nn.losses import Loss
from primecast.schema import COUNT, LARGEST_SEED, Bounds, Rule, check
from primecast.storage.tensors import describe_tensor
from primecast.training.device import PRECISIONS
from primecast.training.optimizer import SCHEDULES

TRAINING_RULES = {
    "lr": Rule("number", Bounds(above=0)),
    **dict.fromkeys(("batch_size", "epochs", "patience", "save_every"), Rule("count", Bounds(least=1, most=2**31 - 1))),
    "seed": Rule("count", Bounds(least=0, most=LARGEST_SEED)),
    "schedule": Rule("name", allowed=SCHEDULES),
    "precision": Rule("name", allowed=PRECISIONS),
    "drop_last": Rule("flag"),
}
"""What the plain arguments of `fit` may be."""


@dataclass
class TrainingSettings:
    """The plain arguments of `fit`, checked, with numpy's numbers made Python's own."""

    lr: float
    batch_size: int
    epochs: int
    patience: int
    seed: int
    schedule: str
    drop_last: bool
    lr_factors: dict[str, float]
    precision: str
    state: Path | None
    save_every: int

    def __post_init__(self) -> None:
        for name, value in check(TRAINING_RULES, vars(self)).items():
            setattr(self, name, value)
        factors = self.lr_factors.items()
        self.lr_factors = {part: Rule("number").check(f"the lr_factor of {part!r}", factor) for part, factor in factors}

    def steps(self, windows: int) -> int:
        """Return the number of steps in an epoch over so many windows."""
        return max(1, windows // self.batch_size) if self.drop_last else math.ceil(windows / self.batch_size)


def at_least_one(name: str, count: int) -> int:
    """Return the count as one of Python's integers, once it is certain that it is one and not below 1."""
    whole: int = COUNT.check(name, count)
    return whole


# ---------------------------------------------------------------- the description of a run


def describe_run(
    train: WindowSource, val: WindowSource, loss: Loss, settings: TrainingSettings, processes: int
) -> dict[str, str]:
    """Return all that decides the result of a run besides its model, as text by name."""
    if settings.state is not None:
        check_named(loss)
    return {
        "training windows": describe_windows("training", train),
        "validation windows": describe_windows("validation", val),
        "loss": describe(loss),
        **{name: describe(value) for name, value in asdict(settings).items() if name not in ("state", "save_every")},
        "number of processes": str(processes),
    }


def describe_windows(kind: str, windows: WindowSource) -> str:
    """Return how many windows there are and a hash of the first, middle and last one: enough to tell data apart."""
    count = at_least_one(f"number of {kind} windows", len(windows))
    batch = windows.batch(torch.tensor([0, count // 2, count - 1]))
    arrays = [tensor.cpu().numpy() for tensor in batch if tensor is not None]
    return f"{count} windows, {hashlib.sha256(b''.join(array.tobytes() for array in arrays)).hexdigest()[:12]}"


def describe_model(model: nn.Module, trained: Collection[str]) -> dict[str, str]:
    """Return class and plain attributes of each part of the model, then type and shape of its tensors."""
    texts = {}
    for path, part in model.named_modules(prefix="model"):
        texts[path] = type(part).__qualname__
        texts |= {f"{path}.{name}": text for name, text in _describe_attributes(part).items()}
    for name, tensor in model.state_dict().items():
        texts[f"model.{name}"] = describe_tensor(tensor) + (", trained" if name in trained else "")
    return texts


def _describe_attributes(value: object) -> dict[str, str]:
    """Return the plain attributes of an object by name. None is left out: a tensor may be kept there later."""
    hidden = vars(nn.Module()) if isinstance(value, nn.Module) else {}
    own = {name: entry for name, entry in getattr(value, "__dict__", {}).items() if name not in hidden}
    texts = {name: describe(own[name], attributes=False) for name in sorted(own) if own[name] is not None}
    return {name: text for name, text in texts.items() if text}


def describe(value: object, *, attributes: bool = True) -> str:
    """Return plain values, and functions by their names, as text that is the same in every process; "" for the rest.

    Tensors are left out, and so are objects that are neither settings nor callable: they may change during training.
    attributes: describe a callable object by its plain attributes, too; not those of its attributes in turn.
    """
    inner = partial(describe, attributes=attributes)
    match value:
        case None | Number() | str() | bytes():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(filter(None, map(inner, value)))}]"
        case set() | frozenset():
            return f"{{{', '.join(sorted(filter(None, map(inner, value))))}}}"
        case dict():
            texts = {inner(key): inner(entry) for key, entry in value.items()}
            return f"{{{', '.join(f'{key}: {text}' for key, text in texts.items() if text)}}}"
        case partial():
            arguments = [*map(inner, value.args), *(f"{name}={inner(entry)}" for name, entry in value.keywords.items())]
            return f"{inner(value.func)}({', '.join(arguments)})"
        case MethodType():
            return f"{inner(value.__self__)}.{value.__name__}"
        case FunctionType() | BuiltinFunctionType() | type():
            return f"{value.__module__}.{value.__qualname__}"
        case _ if is_dataclass(value):
            shown = {part.name: inner(getattr(value, part.name)) for part in fields(value) if part.repr}
        case _ if callable(value):
            shown = _describe_attributes(value) if attributes else {}
        case _:
            return ""
    return f"{type(value).__qualname__}({', '.join(f'{name}={text}' for name, text in shown.items() if text)})"


def check_named(loss: object) -> None:
    """Refuse a loss that a later call could not recognize, because a part of it has no name of its own."""
    if isinstance(loss, partial):
        for part in (loss.func, *loss.args, *loss.keywords.values()):
            check_named(part)
    elif not describe(loss) or "<" in getattr(loss, "__qualname__", ""):
        name = getattr(loss, "__qualname__", type(loss).__name__)
        raise InputError(
            f"a run with a state must be recognized by its loss, and {name} has no name of its own: define the loss at "
            "the top level of a module (functools.partial with plain arguments is fine), or train without state"
        )
