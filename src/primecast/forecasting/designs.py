"""What a Forecaster trains unless it is told otherwise: the designs of an ensemble, and the defaults of its arguments.

    fast    four ridge regressions in closed form, the last season repeated where rows are few, and a small network,
            briefly trained
    good    the same and two networks of different normalization, trained longer
    best    the same and networks of other attentions, look-backs and seeds

Which designs these are, and what each of them brought on which data sets: docs/decisions.md.
"""

from collections.abc import Mapping
from typing import Any

Design = dict[str, Any]

SHORT, LONG = 96, 336
"""Look-backs in steps: of a single model and of most members; of members that see two weeks of hours."""
LAST_SEASON = "last season"
"""The member that repeats the last season; in short tables alone, see `is_short`."""

DESIGNS: dict[str, Design] = {
    "ridge": {"model": "ridge"},
    "ridge, long look-back": {"model": "ridge", "lookback": LONG},
    "ridge, components": {"model": "ridge", "model_args": {"components": 4}},
    "ridge, shared": {"model": "ridge", "model_args": {"shared": True}, "lookback": LONG},
    LAST_SEASON: {"model": "seasonal-naive", "lookback": LONG},
    "prime-learned, small": {
        "attention": "prime-learned",
        "model_args": {
            "norm": "shrink", "d_model": 64, "n_heads": 4,
            "primer": {"kind": "learned", "prime_self": False, "hidden": 8},
        },
        "epochs": 0.4,
    },
    "prime-learned, shrink": {
        "attention": "prime-learned", "model_args": {"norm": "shrink"}, "epochs": 0.8,
    },
    "prime-learned, none": {
        "attention": "prime-learned",
        "model_args": {"norm": "none", "d_model": 64, "n_heads": 4},
        "epochs": 0.8,
    },
    "prime-learned, long look-back": {
        "attention": "prime-learned", "model_args": {"norm": "shrink"}, "lookback": LONG,
    },
    "prime": {"attention": "prime"},
    "standard": {"attention": "standard", "model_args": {"norm": "shrink", "channel_embeddings": True}},
    "prime-learned, shrink, seed + 1": {"attention": "prime-learned", "model_args": {"norm": "shrink"}, "seed": 1},
    "dlinear": {"model": "dlinear"},
}  # fmt: skip
"""Name -> arguments that replace those of the Forecaster. seed is added to its seed, epochs are a fraction of its
epochs; lookback is at most its look-back, SHORT unless stated."""
QUALITIES = {"fast": 6, "good": 8, "best": len(DESIGNS)}
"""How many of the designs, from the first on, each quality trains."""

ONE_MODEL: Mapping[str, Any] = {
    "model": "itransformer", "lookback": SHORT, "lr": 5e-4, "epochs": 10, "schedule": "halving",
}  # fmt: skip
ENSEMBLE: Mapping[str, Any] = {
    "model": "itransformer", "lookback": LONG, "lr": 1e-3, "epochs": 5, "schedule": "cosine", "quality": "good",
}  # fmt: skip
DESCRIBES_MODEL = ("model", "attention", "model_args")


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a Forecaster with the defaults of those that are None.

    Without a quality, a model that is described by any of DESCRIBES_MODEL is one model, and all else an ensemble.
    """
    described = any(given[name] is not None for name in DESCRIBES_MODEL)
    defaults = ONE_MODEL if described and given["quality"] is None else ENSEMBLE
    return {name: defaults.get(name) if value is None else value for name, value in given.items()}


def designs_around(model_args: Mapping[str, Any] | None, *, has_norm: bool) -> dict[str, Design]:
    """Return the designs where a model is described: as it is, with norm "shrink" if it has a choice, other seeds."""
    designs: dict[str, Design] = {"as given": {"lookback": LONG}}
    if has_norm:
        designs["shrink"] = {"lookback": LONG, "model_args": {**(model_args or {}), "norm": "shrink"}}
    return designs | {f"seed + {step}": {"lookback": LONG, "seed": step} for step in (1, 2)}


def is_short(rows: int) -> bool:
    """Return whether a table is too short for the long look-back: then the last season, repeated, is a member."""
    return rows // 10 < LONG


def shorter_lookback(lookback: int, *, rows: int, horizon: int) -> int:
    """Return the look-back of an ensemble on so many rows: at most a tenth of them.

    So the held-out rows hold three look-backs, as `relations` needs. It is also at most a quarter of the windows that
    train.
    """
    return max(1, min(lookback, rows // 10, (int(0.7 * rows) - horizon) // 4))
