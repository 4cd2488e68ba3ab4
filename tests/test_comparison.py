"""Intervals beside a leaderboard: the paired block bootstrap of the studies over the test windows."""

import numpy as np
import pytest

from primecast.analysis.statistics import block_sums, cell_counts, cell_size, compare
from primecast.forecasting.comparison import compare_all
from primecast.training.loop import Scores

W, H, L = 997, 5, 11


def scores(windows: np.ndarray) -> Scores:
    one = np.full(1, windows.mean())
    return Scores(windows.mean(), windows.mean(), len(windows), one, one, one, one, windows, windows)


def test_intervals_are_those_of_the_studies_and_tell_a_difference_from_noise() -> None:
    generator = np.random.default_rng(0)
    errors = generator.gamma(2.0, size=W)
    candidates = {"worse": errors * 1.2, "alike": generator.permutation(errors), "better": errors - 0.1}
    found = compare_all({name: scores(one) for name, one in candidates.items()}, scores(errors), lookback=L, horizon=H)
    verdicts = {name: one["verdict"] for name, one in found.items()}
    assert verdicts == {"worse": "worse", "alike": "no significant difference", "better": "better"}
    cell = cell_size(W)
    sums = [block_sums(one, cell)[None] for one in (errors * 1.2, errors)]
    wanted = compare(sums[0], sums[1], cell_counts(W, cell), block=L + H, overlap=H)
    assert found["worse"]["mse_low"] == wanted.relative_low and found["worse"]["mse_high"] == wanted.relative_high
    assert found["worse"]["mse_change"] == pytest.approx(0.2)


def test_too_few_windows_for_two_blocks_have_no_interval() -> None:
    errors = np.random.default_rng(0).gamma(2.0, size=17)
    found = compare_all({"other": scores(2 * errors)}, scores(errors), lookback=L, horizon=H)
    assert found["other"] == {
        "mse_change": pytest.approx(1.0), "mse_low": None, "mse_high": None, "verdict": None,
    }  # fmt: skip
