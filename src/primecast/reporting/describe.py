"""Descriptions in words: what a table holds, and numbers and durations as text."""

import math
import re

import numpy as np
import pandas as pd
from jaxtyping import Bool
from markupsafe import Markup, escape

from primecast.errors import stamp

FENCE = 3
"""An outlier is more than so many interquartile ranges below the lower or above the upper quartile of its channel."""


def inspect(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per channel: missing, longest_gap, outliers, constant, min, median, max.

    A channel with an interquartile range of 0 has no outliers.
    """
    gaps = frame.isna().to_numpy()
    lower, upper = frame.quantile(0.25), frame.quantile(0.75)
    reach = FENCE * (upper - lower)
    outside = ((frame < lower - reach) | (frame > upper + reach)) & (reach > 0)
    table = pd.DataFrame(
        {
            "missing": gaps.sum(axis=0),
            "longest_gap": [_longest(column) for column in gaps.T],
            "outliers": outside.sum().to_numpy(),
            "constant": (frame.max() == frame.min()).to_numpy(),
        },
        index=frame.columns,
    )
    return table.assign(min=frame.min(), median=frame.median(), max=frame.max())


def _longest(gaps: Bool[np.ndarray, "t"]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], gaps, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def number(value: float) -> str:
    """Return a number with four significant digits and separated thousands.

    >>> number(2.0), number(0.12345), number(12345.6), number(0.0), number(math.nan)
    ('2.000', '0.1235', '12,346', '0', '-')
    """
    if math.isnan(value):
        return "-"
    if value == 0 or not 1e-4 <= abs(value) < 1e7:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"


def percent(fraction: float, form: str = ".1f") -> str:
    """Return a fraction in percent; no line ends before the sign.

    >>> percent(0.1234), percent(-0.5, "+.0f"), percent(math.nan)
    ('12.3\\xa0%', '-50\\xa0%', '-')
    """
    return "-" if math.isnan(fraction) else f"{100 * fraction:{form}}\N{NO-BREAK SPACE}%"


def stamps(index: pd.Index) -> list[str]:
    """Return dates of one length: with the time of the day, if any of them is not midnight.

    >>> stamps(pd.DatetimeIndex(["2024-01-31 00:00", "2024-01-31 06:00"]))
    ['2024-01-31 00:00', '2024-01-31 06:00']
    """
    found = [stamp(time) for time in index]
    longest = max(map(len, found))
    return [text + " 00:00:00"[: longest - 10] if len(text) == 10 < longest else text for text in found]


def whole(text: str) -> Markup:
    """Return a text as HTML in which no line ends within a date or an option of a command.

    >>> print(whole("12 rows, since 2024-01-31 06:00 (na, --na) & <b>"))
    12 rows, since <span class="whole">2024-01-31 06:00</span> (na, <span class="whole">--na</span>) &amp; &lt;b&gt;
    """
    return Markup(
        re.sub(
            r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?|--\w+", r'<span class="whole">\g<0></span>', str(escape(text))
        )
    )


def duration(time: object, steps: int) -> str:
    """Return a lead in days, hours, minutes and seconds, or in steps.

    >>> duration(pd.Timedelta(minutes=90), 6), duration(None, 2), duration(None, 1)
    ('1 h 30 min', '2 steps', '1 step')
    """
    if not isinstance(time, pd.Timedelta):
        return f"{steps} step{'' if steps == 1 else 's'}"
    parts = zip(("d", "h", "min", "s"), time.components[:4], strict=True)
    return " ".join(f"{count} {unit}" for unit, count in parts if count) or "0 s"
