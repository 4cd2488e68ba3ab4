"""Show what is said of bad input: case by case, the sentences that the tests expect.

    python tools/said.py                          # cases of folders, states, tables, files, arguments and commands
    python tools/said.py tests/test_windows.py    # those of these tests

It runs the tests and prints, for each, the errors and warnings that it catches and the exit codes of commands.
"""

import sys
from typing import Any

import pytest

from primecast.errors import InputError

CASES = ("safety", "resume", "interruption", "store", "frames", "files", "binary_files", "forecaster", "schema", "cli")
LONGEST = 300
"""Characters of a sentence that are shown."""


class Listener:
    """A plugin of pytest that keeps what the tests catch: test -> sentences."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}
        self.case = ""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.case = item.nodeid

    def listen_to(self, kind: type[Any]) -> None:
        """Keep what the contexts of this class catch."""
        leave = kind.__exit__

        def leave_and_keep(context: Any, *raised: Any) -> Any:
            result = leave(context, *raised)
            self.found.setdefault(self.case, []).extend(sentences(raised[1], getattr(context, "list", ())))
            return result

        kind.__exit__ = leave_and_keep


def sentences(error: BaseException | None, warned: Any) -> list[str]:
    """Return what a caught error and caught warnings say."""
    said = [f"{one.category.__name__}: {one.message}" for one in warned]
    if isinstance(error, InputError):
        said.append(f"{type(error).__name__}: {error}")
    if isinstance(error, SystemExit) and error.code:
        said.append(f"exit code {error.code}")
    return said


def main() -> int:
    listener = Listener()
    for kind in (pytest.RaisesExc, type(pytest.warns())):
        listener.listen_to(kind)
    files = sys.argv[1:] or [f"tests/test_{name}.py" for name in CASES]
    code = pytest.main(["-q", "-o", "addopts=", *files], plugins=[listener])
    for case, said in listener.found.items():
        if said:
            print(f"\n{case}", *(f"    {one[:LONGEST]}" for one in dict.fromkeys(said)), sep="\n")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
