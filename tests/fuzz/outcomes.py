"""Fuzzed inputs: each works with the right numbers or is refused in one sentence, and all outcomes are counted.

`make test` draws few inputs, always the same; `make fuzz` draws FUZZ inputs for each test, others every time, and
prints the counts. A failure that is found becomes a case: an `@example` of its test.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, reject, settings

from primecast.errors import InputError, TrainingError

T = TypeVar("T")
INPUTS = int(os.environ.get("PRIMECAST_FUZZ", "0"))
"""How many inputs each test draws; 0: as few as the test itself says."""
COUNTS: dict[str, Counter[str]] = {}
"""How many inputs of each kind had each outcome."""

TYPE_CHECK = "Type-check error whilst checking"
"""Of the tests' own checks of annotations, which come before those of primecast; `make fuzz` is run without them."""


def fuzz(few: int) -> settings:
    """Return the settings of a fuzzing test that draws `few` inputs in `make test`."""
    return settings(
        max_examples=INPUTS or few,
        derandomize=not INPUTS,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
        ],
    )


def outcome(kind: str, call: Callable[[], T]) -> T | None:
    """Return what the call returns; None if it is refused in one sentence. Another error fails the test."""
    counts = COUNTS.setdefault(kind, Counter())
    try:
        result = call()
    except (InputError, TrainingError) as error:
        if TYPE_CHECK in str(error):
            reject()
        wrong = "\n" in str(error) or len(str(error)) <= 10
        counts["refused at length" if wrong else "refused"] += 1
        assert not wrong, str(error)
        return None
    except BaseException as error:
        if TYPE_CHECK in str(error):
            reject()
        counts["raw"] += 1
        raise
    counts["works"] += 1
    return result
