"""The errors that are meant for people: what was given cannot be used, or a training cannot go on.

Their message is a sentence: the thing, the value given, the values allowed or the way out. The commands print it alone
and leave with exit code 2 or 1; anything else that is raised is a defect of primecast and keeps its traceback.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from difflib import get_close_matches

MOST = 80
"""Names that `unknown` lists."""
SHOWN = 48
"""Characters of a value that `show` shows."""


class InputError(ValueError):
    """What was given cannot be used; the message says what, why, and what can be done."""


class TrainingError(RuntimeError):
    """Training cannot go on; the message says where it stood and why, as far as can be seen."""


def unknown(what: str, given: object, allowed: Iterable[object]) -> InputError:
    """The error for a name that is not in a registry; it lists the names that are.

    >>> str(unknown("model", "itransfromer", ["itransformer", "dlinear"]))
    "unknown model 'itransfromer' (did you mean 'itransformer'?); allowed: dlinear, itransformer"
    >>> str(unknown("data set", "etth1", ["ETTh1", "Weather"]))
    "unknown data set 'etth1' (did you mean 'ETTh1'?); allowed: ETTh1, Weather"
    >>> str(unknown("column", "Q", ["Q in m3", "level"]))
    "unknown column 'Q' (did you mean 'Q in m3'?); allowed: Q in m3, level"
    """
    names = sorted(str(name) for name in allowed)
    folded = {name.casefold(): name for name in names}
    text = show(given).strip("'\"").casefold()
    near = get_close_matches(text, folded, n=1)
    if not near and text:
        near = [name for name in folded if name.startswith(text)]
        near = near if len(near) == 1 else []
    hint = f" (did you mean {folded[near[0]]!r}?)" if near else ""
    return InputError(f"unknown {what} {show(given)}{hint}; allowed: {format_list(names, most=MOST)}")


def check_known(what: str, given: object, allowed: Collection[object]) -> None:
    """Refuse a name that is not in a registry, with the error `unknown`."""
    if not isinstance(given, str) or given not in allowed:
        raise unknown(what, given, allowed)


def show(value: object) -> str:
    """A value as a message shows it: its repr, on one line and not longer than that.

    >>> show(10**99)
    '100000000000000000000000000000000000000000000000...'
    """
    try:
        text = repr(value)
        text = " ".join(text.split()) if "\n" in text else text  # of arrays, tensors and tables
    except Exception:  # ValueError of an integer with more than 4300 digits; anything of a class that is not ours
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def format_list(names: Collection[object], *, most: int = 8) -> str:
    """The first few names, and how many there are when these are not all."""
    shown = ", ".join(map(str, list(names)[:most])) or "none"
    return f"{shown}, ... ({len(names)} in all)" if len(names) > most else shown


def stamp(time: object) -> str:
    """Return a date as short as possible; a number as it is.

    >>> stamp(datetime(2024, 1, 31)), stamp(datetime(2024, 1, 31, 23)), stamp(7)
    ('2024-01-31', '2024-01-31 23:00', '7')
    """
    if not isinstance(time, datetime):  # as pandas' Timestamp is
        return str(time)
    return f"{time:%Y-%m-%d %H:%M:%S}".removesuffix(" 00:00:00").removesuffix(":00")
