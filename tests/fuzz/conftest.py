"""Print how many fuzzed inputs had each outcome, after the tests."""

import pytest

from tests.fuzz.outcomes import COUNTS, INPUTS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not INPUTS:
        return
    terminalreporter.section("outcomes of fuzzed inputs")
    for kind, counts in sorted(COUNTS.items()):
        shown = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), reverse=True))
        terminalreporter.write_line(f"{kind}: {counts.total()} inputs: {shown}")
    terminalreporter.write_line(f"all: {sum(counts.total() for counts in COUNTS.values())} inputs")
