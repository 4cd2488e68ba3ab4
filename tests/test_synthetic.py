"""The truth of a made system can be seen in its channels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primecast.data.synthetic import PERIODS, RELATION_KINDS, SyntheticSystem, lagged_system
from primecast.data.windows import split
from primecast.errors import InputError

ROWS = 5003


@pytest.fixture(scope="module")
def system() -> SyntheticSystem:
    return lagged_system(rows=ROWS, seed=7)


def correlation(x: np.ndarray, y: np.ndarray, lag: int) -> float:
    """Of x(t) with y(t + lag)."""
    ahead, behind = (x[: len(x) - lag], y[lag:]) if lag >= 0 else (x[-lag:], y[:lag])
    return float(np.corrcoef(ahead, behind)[0, 1])


def test_the_same_seed_makes_the_same_system_and_another_another() -> None:
    first, again, other = (lagged_system(rows=101, seed=seed).dataset for seed in (3, 3, 5))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


def test_the_truth_cannot_be_written_over(system: SyntheticSystem) -> None:
    with pytest.raises(ValueError, match="read-only"):
        system.truth.lead[0, 1] = 0


def test_all_kinds_of_relation_occur(system: SyntheticSystem) -> None:
    assert {kind for row in system.truth.kind for kind in row} == set(RELATION_KINDS)
    assert system.dataset.values.shape == (ROWS, len(system.truth.kind))


@given(
    lags=st.lists(st.lists(st.integers(1, 13), max_size=3), min_size=1, max_size=3),
    instant=st.integers(0, 2),
    independent=st.integers(0, 2),
)
def test_kind_is_symmetric_and_lead_antisymmetric(lags: list[list[int]], instant: int, independent: int) -> None:
    truth = lagged_system(rows=11, seed=0, lags=lags, instant=instant, independent=independent).truth
    kind = np.array(truth.kind)
    assert (kind == kind.T).all()
    assert (truth.lead == -truth.lead.T).all()
    assert (truth.lead[(kind == "none") | (kind == "instant")] == 0).all()
    assert (truth.lead[kind == "lead"] != 0).all()


def test_the_leader_is_seen_at_its_lag_and_nowhere_as_well(system: SyntheticSystem) -> None:
    values, truth = system.dataset.values, system.truth
    leads = [(i, j) for i, j in np.argwhere(truth.lead > 0) if truth.kind[i][j] == "lead"]
    assert {int(truth.lead[i, j]) for i, j in leads} == {2, 5, 3, 7}  # 3: between the followers after 2 and 5
    for i, j in leads:
        seen = {lag: abs(correlation(values[:, i], values[:, j], lag)) for lag in range(-11, 12)}
        assert max(seen, key=lambda lag: seen[lag]) == truth.lead[i, j]
        assert seen[int(truth.lead[i, j])] > 0.9


def test_twins_move_together_now(system: SyntheticSystem) -> None:
    values, truth = system.dataset.values, system.truth
    pairs = [(i, j) for i, j in np.ndindex(truth.lead.shape) if truth.kind[i][j] == "instant"]
    assert len(pairs) == 2
    for i, j in pairs:
        assert abs(correlation(values[:, i], values[:, j], 0)) > 0.9


def test_a_square_is_seen_only_by_squaring(system: SyntheticSystem) -> None:
    source, follower = (system.dataset.names.index(name) for name in ("source 0", "square of source 0 after 3"))
    x, y = system.dataset.values[:, source], system.dataset.values[:, follower]
    assert system.truth.kind[source][follower] == "nonlinear"
    assert system.truth.lead[source, follower] == 3
    assert max(abs(correlation(x, y, lag)) for lag in range(-11, 12)) < 0.2
    assert abs(correlation(x**2, y, 3)) > 0.95


def test_a_bent_line_is_followed_better_by_its_bend(system: SyntheticSystem) -> None:
    source, follower = (system.dataset.names.index(name) for name in ("source 1", "tanh of source 1 after 4"))
    x, y = system.dataset.values[:, source], system.dataset.values[:, follower]
    assert system.truth.lead[source, follower] == 4
    assert abs(correlation(np.tanh(2 * x), y, 4)) > abs(correlation(x, y, 4)) + 0.03


def test_unrelated_channels_stay_uncorrelated_at_all_lags(system: SyntheticSystem) -> None:
    values, truth = system.dataset.values, system.truth
    for i, j in np.ndindex(truth.lead.shape):
        if i < j and truth.kind[i][j] == "none":
            assert max(abs(correlation(values[:, i], values[:, j], lag)) for lag in range(-11, 12)) < 0.15


def test_a_system_can_be_split_like_any_data_set(system: SyntheticSystem) -> None:
    splits = split(system.dataset, lookback=96, horizon=24)
    assert splits.train.n_time_features == 0
    assert system.dataset.season == PERIODS[0] == 24


def test_impossible_systems_are_refused() -> None:
    with pytest.raises(InputError, match="lags must be at least 1 step, but 0"):
        lagged_system(rows=11, seed=0, lags=[[0]])
    with pytest.raises(InputError, match=r"unknown coupling 'sqare' \(did you mean 'square'\?\)"):
        lagged_system(rows=11, seed=0, nonlinear=[("sqare", 1)])
    with pytest.raises(InputError, match="rows must be at least 1"):
        lagged_system(rows=0, seed=0)
    with pytest.raises(InputError, match="1 to 12 relations"):
        lagged_system(rows=11, seed=0, independent=13)
    with pytest.raises(InputError, match="1 to 12 relations"):
        lagged_system(rows=11, seed=0, lags=[], instant=0, nonlinear=[], independent=0)
    with pytest.raises(InputError, match="noise"):
        lagged_system(rows=11, seed=0, noise=-1.0)
