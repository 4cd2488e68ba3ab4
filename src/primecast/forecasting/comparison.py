"""How sure the order of a leaderboard is: paired block-bootstrap intervals over the test windows.

They are those of the studies, see `primecast.analysis.statistics`: of one pair of trainings, so of the data and not of
seeds.
"""

import math
from collections.abc import Mapping

from primecast.analysis.statistics import block_sums, cell_counts, cell_size, compare
from primecast.training.loop import Scores

COMPARED = ("mse_change", "mse_low", "mse_high", "verdict")
"""Relative difference of a forecast's test MSE from that of the whole, the ends of its 95 % interval, and in a word."""


def compare_all(
    candidates: Mapping[str, Scores], whole: Scores, *, lookback: int, horizon: int
) -> dict[str, dict[str, float | str | None]]:
    """Return how the MSE of each candidate differs from that of the whole; None where there are too few windows."""
    cell = min(cell_size(whole.windows), max(1, whole.windows // 8))
    counts = cell_counts(whole.windows, cell)
    result: dict[str, dict[str, float | str | None]] = {}
    for name, one in candidates.items():
        candidate, baseline = (block_sums(side.window_mse, cell)[None] for side in (one, whole))
        found = compare(candidate, baseline, counts, block=lookback + horizon, overlap=horizon)
        numbers = (found.relative, found.relative_low, found.relative_high)
        finite = [number if math.isfinite(number) else None for number in numbers]
        verdict = None if finite[1] is None else found.verdict  # too few windows tell nothing, not "no difference"
        result[name] = dict(zip(COMPARED, (*finite, verdict), strict=True))
    return result
