"""primecast: prime attention, and the forecasting software built on it.

Importing this package imports nothing heavy; each name below loads its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primecast.data.catalog import fetch, load_dataset
    from primecast.data.windows import split
    from primecast.errors import InputError
    from primecast.experiments.run import run
    from primecast.experiments.spec import Spec
    from primecast.forecasting.forecaster import Forecaster
    from primecast.models import create_model, list_models
    from primecast.nn.attention import Prime, attend, attention_weights
    from primecast.nn.losses import create_loss
    from primecast.nn.multi_head import MultiHeadAttention
    from primecast.nn.primer import Primer, parameter_overhead
    from primecast.nn.swap import priming, swap_attention
    from primecast.training.loop import evaluate, fit

_HOME = {
    "Forecaster": "forecasting.forecaster",
    "InputError": "errors",
    "MultiHeadAttention": "nn.multi_head",
    "Prime": "nn.attention",
    "Primer": "nn.primer",
    "Spec": "experiments.spec",
    "attend": "nn.attention",
    "attention_weights": "nn.attention",
    "create_loss": "nn.losses",
    "create_model": "models",
    "evaluate": "training.loop",
    "fetch": "data.catalog",
    "fit": "training.loop",
    "list_models": "models",
    "load_dataset": "data.catalog",
    "parameter_overhead": "nn.primer",
    "priming": "nn.swap",
    "run": "experiments.run",
    "split": "data.windows",
    "swap_attention": "nn.swap",
}
"""Public name -> module that defines it."""

__all__ = [
    "Forecaster",
    "InputError",
    "MultiHeadAttention",
    "Prime",
    "Primer",
    "Spec",
    "attend",
    "attention_weights",
    "create_loss",
    "create_model",
    "evaluate",
    "fetch",
    "fit",
    "list_models",
    "load_dataset",
    "parameter_overhead",
    "priming",
    "run",
    "split",
    "swap_attention",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # takes longer to import than all of the above

        return version("primecast")
    if name in _HOME:
        return getattr(import_module(f"primecast.{_HOME[name]}"), name)
    raise AttributeError(f"module 'primecast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
