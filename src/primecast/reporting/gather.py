"""Collect what a report shows from a fitted Forecaster."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pandas as pd

from primecast.analysis.relations import Relations, concentration_of
from primecast.errors import InputError
from primecast.forecasting.backtesting import Backtest
from primecast.forecasting.ensemble import Ensemble
from primecast.forecasting.forecaster import Forecaster
from primecast.forecasting.model_card import describe_fitted
from primecast.frames.columns import may_mean_missing
from primecast.frames.dates import frequency_in_words
from primecast.reporting.describe import percent
from primecast.reporting.render import PairMap, ReportData

Found = TypeVar("Found")
SIZES = ("parameters", "lookback", "horizon")
"""What an ensemble has in common with a single model."""


def gather(
    forecaster: Forecaster,
    frame: pd.DataFrame,
    *,
    title: str,
    level: Sequence[float] = (80, 95),
    windows: int = 20,
    future: object = None,
    adaptive: bool = True,
    units: Mapping[str, str] | None = None,
) -> ReportData:
    """Run forecast, backtest, relations and sensor ablation on the rows of fit, or on newer rows of the same channels.

    frame: wide, as `read_table` returns it. windows: origins of the backtest, fewer if there are too few rows. A
    section that needs more rows is left out, with the reason in its place. future, adaptive: as for `predict`.
    units: channel -> unit, by default `frame.attrs["units"]`.
    """
    notes: dict[str, str] = {}
    units = frame.attrs.get("units") if units is None else units
    frame = _ordered(frame.rename(columns=str))
    targets = list(forecaster.roles_.targets)
    try:
        wide = forecaster.predict(frame, level=level, future=future, adaptive=adaptive)
    except InputError as error:  # too few held-out windows for the widest interval, or too few rows at all
        wide, level = forecaster.predict(frame, future=future), ()
        notes["bounds"] = str(error)

    def backtest_of(count: int) -> Backtest:
        return forecaster.backtest(frame, windows=count, level=level, adaptive=adaptive)

    counts = range(windows, 0, -1)
    backtest, notes["backtest"] = _first_success(*(partial(backtest_of, count) for count in counts))
    relations, notes["relations"] = _first_success(lambda: forecaster.relations(frame))
    ablation, notes["sensor_ablation"] = _first_success(lambda: forecaster.sensor_ablation(frame))
    facts = forecaster.facts_
    suspects = {name: may_mean_missing(frame[name]) for name in targets}
    return ReportData(
        suspects={name: values for name, values in suspects.items() if values},
        title=title,
        frame=frame,
        forecast=wide[targets],
        bounds={one: (_bound(wide, targets, "lo", one), _bound(wide, targets, "hi", one)) for one in level},
        scores=None if backtest is None else backtest.scores,
        earlier=None if backtest is None else backtest.forecasts,
        pairs=None if relations is None else relations.pairs(),
        maps=() if relations is None else pair_maps(relations, member=_attention_member(forecaster)),
        sensor_ablation=None if ablation is None else ablation.summary,
        held_out=facts["scores"],
        settings={
            "model": describe_settings(facts),
            "arguments": {k: v for k, v in forecaster.get_params().items() if v is not None and k != "progress"},
            "rows": {name: f"{first} to {last}" for name, (first, last) in facts["data"]["periods"].items()},
            "versions": facts["versions"],
        },
        notes={section: why for section, why in notes.items() if why},
        frequency=frequency_in_words(frame.index),
        lookback=forecaster.state_.lookback,
        units={str(name): str(unit) for name, unit in (units or {}).items()},
        leaderboard=forecaster.leaderboard().frame if isinstance(forecaster.model_, Ensemble) else None,
    )


def describe_settings(facts: Mapping[str, Any]) -> dict[str, object]:
    """Return the facts of the model; an ensemble has its members instead of a name and an attention."""
    single = dict(facts["model"])
    if not facts.get("members"):
        return single
    return {"name": describe_fitted(facts), **{name: one for name, one in single.items() if name in SIZES}}


def _first_success(*calls: Callable[[], Found]) -> tuple[Found | None, str]:
    """Return the result of the first call that works, or None and the message of the first error."""
    first = ""
    for call in calls:
        try:
            return call(), ""
        except InputError as error:
            first = first or str(error)
    return None, first


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by time, convert to float, and infer the frequency of the index if it has one."""
    frame = frame.sort_index().apply(pd.to_numeric).astype(float)
    if isinstance(frame.index, pd.DatetimeIndex) and frame.index.freq is None:
        with suppress(ValueError):
            frame.index = pd.DatetimeIndex(frame.index, freq="infer")
    return frame


def _bound(wide: pd.DataFrame, targets: Sequence[str], side: str, level: float) -> pd.DataFrame:
    return wide[[f"{name}-{side}-{level:g}" for name in targets]].set_axis(list(targets), axis="columns")


def _attention_member(forecaster: Forecaster) -> str:
    """Return the name and weight of the member of an ensemble whose attention `relations` shows; "" for one model."""
    model = forecaster.model_
    if not isinstance(model, Ensemble):
        return ""
    shown = model.member_with_attention()
    kept = [facts for facts in forecaster.facts_["members"] if facts["weight"] > 0]  # the ensemble has no others
    named = zip(model.members, kept, strict=True)
    return next((f"{facts['name']} (weight {facts['weight']:.2f})" for member, facts in named if member is shown), "")


def pair_maps(relations: Relations, *, member: str = "") -> list[PairMap]:
    """Return the maps of attention and primer, where the model has them, with their concentration in words.

    member: of an ensemble, the one that has these maps.
    """
    maps = []
    of_member = f"Of the ensemble's member {member}. " if member else ""
    if (weights := relations.attention) is not None:
        text = f"{of_member}Attention weight, averaged over layers, heads and held-out windows."
        maps.append(PairMap("Attention", text, weights, _concentration_text(weights, "attention")))
    if (distances := relations.primer) is not None:
        text = f"{of_member}Distance of a pair's filter from the mean filter; 0: filtered as the mean pair is."
        fractions = distances.div(distances.sum(axis="columns"), axis="index")
        maps.append(PairMap("Primer", text, distances, _concentration_text(fractions, "distance")))
    return maps


def _concentration_text(weights: pd.DataFrame, what: str) -> str:
    if len(weights) < 2 or weights.isna().any(axis=None):  # distances that are all 0 have no fractions
        return ""
    found = concentration_of(weights)
    text = (
        f"Concentration index {1 - found.entropy:.3f} (0: uniform over key channels, 1: everything to one). "
        f"{found.channel} receives the largest fraction of the {what}: {_points(found.fraction)}; uniform would be "
        f"{_points(1 / len(weights))}."
    )
    if found.calendar > 0.005:
        text += f" Calendar tokens receive {_points(found.calendar)} of all attention."
    return text


def _points(fraction: float) -> str:
    return percent(fraction, ".0f" if fraction >= 0.1 else ".2g")
