"""Synthetic systems of channels with known relations, against which the relations of a trained model are scored.

    lead        follower(t) = gain * driver(t - lag) + noise
    instant     second(t)   = gain * first(t) + noise
    nonlinear   follower(t) = g(driver(t - lag)) + noise, with g the square (no linear trace) or tanh (a clipped one)
    none        channels of their own

Every relation has a driver of its own, an autoregressive process plus a season; the seasons of two drivers have no
period in common, so unrelated channels stay uncorrelated in the long run. The followers of one driver are related among
themselves, too, by the difference of their lags; the truth includes these pairs.

Letters: t rows, n channels; i and j channels, `lead[i, j] > 0` when i leads j by that many steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from primecast.data.windows import Dataset, Ratio
from primecast.errors import InputError, check_known

RELATION_KINDS = ("none", "lead", "instant", "nonlinear")
PERIODS = (24, 31, 17, 43, 13, 37, 11, 29, 41, 19, 23, 47)
"""Seasons of the drivers, in steps, pairwise without a common divisor; the first is that of the data set."""
COUPLINGS: dict[str, Callable[[Float64[np.ndarray, "t"]], Float64[np.ndarray, "t"]]] = {
    "square": lambda driver: driver**2 - 1,
    "tanh": lambda driver: np.tanh(2 * driver),
}


@dataclass(frozen=True, eq=False)
class Truth:
    """The relation of every pair of channels."""

    kind: tuple[tuple[str, ...], ...]  # kind[i][j], a name in RELATION_KINDS; symmetric
    lead: Int64[np.ndarray, "n n"]  # antisymmetric; zero where nothing leads


@dataclass(frozen=True, eq=False)
class SyntheticSystem:
    """A data set and the true relations of its channels."""

    dataset: Dataset
    truth: Truth


def lagged_system(
    *,
    rows: int,
    seed: int,
    lags: Sequence[Sequence[int]] = ((2, 5), (7,)),
    instant: int = 1,
    nonlinear: Sequence[tuple[str, int]] = (("square", 3), ("tanh", 4)),
    independent: int = 2,
    noise: float = 0.1,
) -> SyntheticSystem:
    """Return a system of hourly channels, the same for the same seed.

    lags:        for every linear driver, the lags of its followers, in steps.
    instant:     pairs that move together without lag.
    nonlinear:   (coupling, lag) of further pairs; couplings are named in COUPLINGS.
    independent: channels that are related to no other.
    noise:       standard deviation of the noise of a follower; its driver's is 1, and gains lie in 0.5 to 2,
                 with either sign.

    >>> system = lagged_system(rows=1000, seed=0, lags=[[3]], instant=0, nonlinear=[], independent=0)
    >>> system.dataset.names, int(system.truth.lead[0, 1])
    (('driver 0', 'driver 0 after 3'), 3)
    """
    groups = _groups(lags=lags, instant=instant, nonlinear=nonlinear, independent=independent)
    _check(rows=rows, drivers=len(groups), noise=noise)
    longest = max(lag for group in groups for lag in group.lags)

    rng = np.random.default_rng(seed)
    drivers = _drivers(rng, rows=rows + longest, count=len(groups))
    channels = []
    for group, driver in zip(groups, drivers, strict=True):
        channels.append(driver[longest:])
        for lag in group.lags[1:]:
            gain = rng.choice([-1.0, 1.0]) * rng.uniform(0.5, 2.0)
            past = driver[longest - lag : longest - lag + rows]
            channels.append(gain * group.law(past) + noise * rng.standard_normal(rows))

    dataset = Dataset(
        name="synthetic",
        values=np.stack(channels, axis=1),
        index=pd.date_range("2020-01-01", periods=rows, freq="h"),
        names=tuple(name for group in groups for name in group.names),
        borders=Ratio(),
        season=PERIODS[0],
        time_features=False,
    )
    return SyntheticSystem(dataset=dataset, truth=_truth(groups))


SYSTEMS: dict[str, Callable[[], SyntheticSystem]] = {
    "synthetic-lagged-0": partial(lagged_system, rows=10_000, seed=0),
    "synthetic-lagged-1": partial(lagged_system, rows=10_000, seed=1),
    "synthetic-noisy-0": partial(lagged_system, rows=10_000, seed=0, noise=1.0),
}
"""Systems known by name, as the catalog lists them; noisy: the noise of a follower is as large as its driver."""


@cache
def system(name: str) -> SyntheticSystem:
    """Return the system of this name, the same every time.

    >>> system("synthetic-lagged-0").dataset.values.shape
    (10000, 13)
    """
    check_known("synthetic system", name, SYSTEMS)
    built = SYSTEMS[name]()
    return replace(built, dataset=replace(built.dataset, name=name))


@dataclass(frozen=True)
class _Group:
    """A driver and its followers: lags[0] = 0 is the driver's own."""

    kind: str
    lags: tuple[int, ...]
    names: tuple[str, ...]
    law: Callable[[Float64[np.ndarray, "t"]], Float64[np.ndarray, "t"]] = lambda driver: driver


def _groups(
    *, lags: Sequence[Sequence[int]], instant: int, nonlinear: Sequence[tuple[str, int]], independent: int
) -> list[_Group]:
    for lag in [lag for group in lags for lag in group] + [lag for _, lag in nonlinear]:
        if lag < 1:
            raise InputError(f"lags must be at least 1 step, but {lag} was given; without lag, use instant pairs")
    for coupling, _ in nonlinear:
        check_known("coupling", coupling, COUPLINGS)

    linear = [
        _Group("lead", (0, *group), (f"driver {k}", *(f"driver {k} after {lag}" for lag in group)))
        for k, group in enumerate(lags)
    ]
    together = [_Group("instant", (0, 0), (f"twin {k} a", f"twin {k} b")) for k in range(instant)]
    bent = [
        _Group("nonlinear", (0, lag), (f"source {k}", f"{law} of source {k} after {lag}"), COUPLINGS[law])
        for k, (law, lag) in enumerate(nonlinear)
    ]
    alone = [_Group("none", (0,), (f"alone {k}",)) for k in range(independent)]
    return linear + together + bent + alone


def _check(*, rows: int, drivers: int, noise: float) -> None:
    if rows < 1:
        raise InputError(f"rows must be at least 1, but {rows} was given")
    if not 1 <= drivers <= len(PERIODS):
        raise InputError(f"a system has 1 to {len(PERIODS)} relations and independent channels, not {drivers}")
    if noise < 0:
        raise InputError(f"noise is a standard deviation and cannot be {noise}")


def _drivers(rng: np.random.Generator, *, rows: int, count: int) -> Float64[np.ndarray, "drivers t"]:
    """Return standardized sums of a first-order autoregressive process and a season."""
    memory = rng.uniform(0.5, 0.8, count)
    shocks = rng.standard_normal((rows, count)) * np.sqrt(1 - memory**2)
    process = np.empty((rows, count))
    process[0] = rng.standard_normal(count)
    for t in range(1, rows):
        process[t] = memory * process[t - 1] + shocks[t]
    angle = 2 * np.pi * np.arange(rows)[:, None] / np.array(PERIODS[:count])
    season = np.sin(angle + rng.uniform(0, 2 * np.pi, count))
    return ((process + 0.5 * season) / np.sqrt(1 + 0.5**2 / 2)).T


def _truth(groups: Sequence[_Group]) -> Truth:
    """Return the truth: within a group the difference of lags, and instant where it is zero; between groups nothing."""
    owner = [group for group in groups for _ in group.lags]
    lag = np.array([lag for group in groups for lag in group.lags])
    related = np.array([[a is b for b in owner] for a in owner]) & ~np.eye(len(owner), dtype=bool)
    lead = np.where(related, lag[None, :] - lag[:, None], 0)
    kind = [["none"] * len(owner) for _ in owner]
    for i, j in np.argwhere(related):
        straight = owner[i].kind != "nonlinear"
        kind[i][j] = "instant" if straight and lead[i, j] == 0 else owner[i].kind
    lead.setflags(write=False)
    return Truth(kind=tuple(map(tuple, kind)), lead=lead)
