"""Forecasting models, one file each; `registry` knows them by name, `presets` has their published settings.

`create_model(name, lookback=, horizon=, channels=, ...)` builds a model, which is called as
`model(x: (b, l, n), time_features: (b, l + h, m) or None) -> (b, h, n)`. May import: nn, errors.
"""

from primecast.models.registry import (
    ATTENTIONS,
    CONTROLS,
    MODELS,
    PAPERS_PRIMER,
    Attention,
    ModelEntry,
    attention_options,
    attention_size,
    attentions,
    create_model,
    default_attention,
    list_models,
    reads_time_features,
)

__all__ = [
    "ATTENTIONS",
    "CONTROLS",
    "MODELS",
    "PAPERS_PRIMER",
    "Attention",
    "ModelEntry",
    "attention_options",
    "attention_size",
    "attentions",
    "create_model",
    "default_attention",
    "list_models",
    "reads_time_features",
]
