"""Mutations of bytes and of JSON values, drawn by hypothesis."""

import copy
from typing import Any

from hypothesis import strategies as st

NASTY: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 7, 1 << 16, 1 << 31, 1 << 63, 10**30, -(10**30), 0.5, -0.5, 1e-320, 1e308),
    *(float("inf"), float("nan"), "", "a", "0", "-1", "NaT", "nan", "2024-01-01", "2262-04-11T23:00:00", "h", "-3D"),
    *("\ud800", "a\nb", "../../etc/passwd", "x" * 5000, "prime", "gat", "lift", "numpy", "polars", "UTC", "test"),
    *([], {}, [[]], [None], ["a", "a"], {"": ""}, {"a": {"a": []}}),
]
"""Values that are none of what a field holds, or only look like it."""


def damaged(data: st.DataObject, whole: bytes) -> bytes:
    """Return the bytes with some of them overwritten, inserted or left out; the header is hit as often as the rest."""
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(
            st.integers(0, max(0, min(len(changed), data.draw(st.sampled_from([16, 4096, len(whole)]))) - 1))
        )
        length = data.draw(st.sampled_from([0, 1, 1, 8, len(changed)]))
        changed[where : where + length] = data.draw(st.binary(max_size=9))
    return bytes(changed)


def mutated(data: st.DataObject, value: Any) -> Any:
    """Return a JSON value with one or two of its parts, at any depth, replaced, deleted, doubled or added."""
    changed = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(1, 2))):
        places = list(_places(changed))
        parent, name = data.draw(st.sampled_from(places))
        action = data.draw(st.sampled_from(["replace", "replace", "replace", "move", "delete", "add"]))
        if action == "delete":
            del parent[name]
        elif action == "replace":
            drawn = data.draw(st.one_of(st.sampled_from(NASTY), st.integers(-9, 99), st.text(max_size=5)))
            parent[name] = copy.deepcopy(drawn)  # which the next mutation may change
        elif action == "move":
            other, others_name = data.draw(st.sampled_from(places))
            parent[name] = copy.deepcopy(other[others_name])
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[name]))
        else:
            parent[data.draw(st.text(max_size=5))] = copy.deepcopy(parent[name])
        if not changed:
            break
    return changed


def _places(value: Any) -> Any:
    """Yield all places of a JSON value as (mapping or list, name or number)."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, name
        if isinstance(part, dict | list):
            yield from _places(part)
