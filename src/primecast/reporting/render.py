"""Render the report: one HTML file that needs no network and no other file.

    fitted Forecaster ──gather──> ReportData (frames and numbers) ──report_html──> text ──write_report──> file

Tables and sentences are HTML, from templates/report.html, and can be read without JavaScript. report.js draws the
figures from the data and from plotly, both gzipped inside the page, which makes a page of 2 MB instead of 5. All text
of the user is escaped by jinja2 or is inside the gzipped JSON, and the page's content security policy allows no script
but its own two, by their hashes, and no request. Nothing here imports torch.

Letters: t rows, h horizon, n channels.
"""

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from primecast.errors import InputError, stamp
from primecast.reporting.describe import FENCE, duration, inspect, number, percent, whole
from primecast.reporting.summary import FAILURE, Suspects, concerns, coverage_by_hour, next_values, without_suspects
from primecast.storage.atomic import write_bytes_atomically

CELLS = 1_000_000
"""Observed values in a page, at most: the last rows of all channels."""
PAIRS = 2000
"""Pairs in a page, the strongest ones: so many leads, and so many pairs without one."""
MAP = 100
"""Channels of a map, at most: those with the largest sums."""
LISTED = 50
"""Cells in the table below a map, the largest ones."""
FLAT = 0.1
"""A map has no structure where no value differs from the mean by more than this fraction of it."""
BARS = 30
"""Sensors in the figure of sensor ablation, the worst ones."""


@dataclass(frozen=True, eq=False)
class PairMap:
    """A channel × channel frame to be drawn: the row's channel is the query, the column's the key."""

    title: str
    text: str
    frame: pd.DataFrame
    concentration: str = ""

    @property
    def mean(self) -> float:
        return float(self.frame.to_numpy().mean())

    @property
    def flat(self) -> bool:
        """Whether all values are nearly equal, so that there is nothing to see."""
        return bool((np.abs(self.frame.to_numpy() - self.mean) <= FLAT * abs(self.mean)).all())

    @property
    def pairs(self) -> int:
        """How many pairs of different channels there are."""
        return self.frame.size - len(self.frame)

    def largest(self) -> list[tuple[str, str, float]]:
        """Return query channel, key channel and value of the largest cells off the diagonal."""
        values = self.frame.to_numpy(copy=True)
        np.fill_diagonal(values, np.nan)  # sorted last
        order = np.argsort(-values, axis=None, kind="stable")[: min(LISTED, self.pairs)]
        return [
            (str(self.frame.index[row]), str(self.frame.columns[column]), float(values[row, column]))
            for row, column in zip(*np.unravel_index(order, values.shape), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class ReportData:
    """All that a report shows. What is None is left out; `notes` has the reason, by section.

    frame:    the rows as they were given, oldest first, gaps as NaN.
    forecast: the rows to come, a column per target. bounds: level -> lower and upper bound, frames like `forecast`.
    scores:   "overall" and a row per channel, as `Backtest.scores`. earlier: the forecasts of a backtest,
              long, as `Backtest.forecasts`.
    pairs:    leader, follower, steps, time, strength, as `Relations.pairs`. maps: of attention and primer.
    sensor_ablation: per sensor mean, largest, channel, as `SensorAblation.summary`.
    held_out: windows, mse, mae, naive_mse, naive_mae of the test rows in scaled units, where known.
    settings: section -> name -> value. frequency: of the rows, in words. lookback: rows that a forecast reads.
    units:    channel -> unit, where known. leaderboard: of an ensemble, as `Leaderboard.frame`.
    suspects: channel -> number that may mean missing -> rows that hold it.
    """

    title: str
    frame: pd.DataFrame
    forecast: pd.DataFrame
    bounds: Mapping[float, tuple[pd.DataFrame, pd.DataFrame]] = field(default_factory=dict)
    scores: pd.DataFrame | None = None
    earlier: pd.DataFrame | None = None
    pairs: pd.DataFrame | None = None
    maps: Sequence[PairMap] = ()
    sensor_ablation: pd.DataFrame | None = None
    held_out: Mapping[str, float] | None = None
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    frequency: str = ""
    lookback: int = 0
    units: Mapping[str, str] = field(default_factory=dict)
    leaderboard: pd.DataFrame | None = None
    suspects: Suspects = field(default_factory=dict)


# ---------------------------------------------------------------- the page


def write_report(data: ReportData, path: Path | str) -> None:
    """Write the page; needs the extra `report`."""
    write_bytes_atomically(Path(path), report_html(data).encode("utf-8", "xmlcharrefreplace"))


def report_html(data: ReportData) -> str:
    """Return the whole page as text."""
    files = resources.files("primecast.reporting")
    script, style = (files.joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
    plotly = plotly_script()
    hashes = " ".join(f"'sha256-{_b64(hashlib.sha256(text.encode()).digest())}'" for text in (script, plotly))
    payload = json.dumps(_payload(data), allow_nan=False, separators=(",", ":"))
    return _template().render(
        policy=f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:",
        style=style,
        script=script,
        payload=_packed(payload),
        plotly=_packed(plotly),
        data=data,
        channels=inspect(data.frame),
        gains=_gains(data.held_out),
        next=next_values(data.frame, data.forecast, data.bounds, data.suspects),
        concerns=concerns(
            data.frame,
            lookback=data.lookback,
            scores=data.scores,
            earlier=data.earlier,
            sensor_ablation=data.sensor_ablation,
            forecast=data.forecast,
            bounds=data.bounds,
            suspects=data.suspects,
        ),
        hours=coverage_by_hour(data.earlier),
        limits={"map": MAP, "bars": BARS, "listed": LISTED, "flat": FLAT, "failure": FAILURE},
        **_backtest(data),
        **_leads(data.pairs),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("primecast.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": percent, "stamp": stamp, "setting": _setting, "whole": whole}
    environment.globals |= {"duration": duration, "FENCE": FENCE, "isnan": math.isnan}
    return environment.get_template("report.html")


def plotly_script() -> str:
    """Return plotly.js as the Python package ships it; there is no smaller bundle."""
    try:
        return str(import_module("plotly.offline").get_plotlyjs())
    except ImportError as error:
        raise InputError("a report needs plotly: pip install 'primecast[report]'") from error


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@lru_cache(maxsize=2)  # plotly, which is the same in every page, takes a second
def _packed(text: str) -> str:
    """Compress without a time stamp, so that the same data makes the same page."""
    return _b64(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def _setting(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _gains(scores: Mapping[str, float] | None) -> list[str]:
    """Return how squared and absolute error compare with the seasonal-naive forecast; nothing where that is exact."""
    if not scores or not (scores["naive_mse"] and scores["naive_mae"]):
        return []
    gains = [1 - scores[name] / scores[f"naive_{name}"] for name in ("mse", "mae")]
    return [f"{abs(100 * gain):.0f} % {'smaller' if gain >= 0 else 'larger'}" for gain in gains]


def _backtest(data: ReportData) -> dict[str, Any]:
    """Return the rows of the backtest's table, "overall" first, their interval levels and the number of origins."""
    origins = 0 if data.earlier is None else data.earlier["cutoff"].nunique()
    if data.scores is None:
        return {"scores": [], "levels": [], "origins": origins}
    levels = [name.removeprefix("coverage-") for name in data.scores.columns if name.startswith("coverage-")]
    rows = list(zip(map(str, data.scores.index), data.scores.to_dict("records"), strict=True))
    scores = [
        {**row, "name": name, "gain": 1 - row["mae"] / row["naive_mae"] if row["naive_mae"] > 0 else math.nan}
        for name, row in rows
    ]
    return {"scores": scores, "levels": levels, "origins": origins}


def _leads(pairs: pd.DataFrame | None) -> dict[str, Any]:
    """Return the pairs with a lead, those without, and the correlation above which at most 30 leads are drawn."""
    if pairs is None:
        return {"leads": None, "together": None, "threshold": 0.0}
    leads, together = pairs[pairs["steps"] > 0], pairs[pairs["steps"] == 0]
    threshold = math.ceil(100 * abs(leads["strength"].iloc[30])) / 100 if len(leads) > 30 else 0.0
    return {"leads": leads, "together": together, "threshold": threshold}


# ---------------------------------------------------------------- the data of the figures


def _payload(data: ReportData) -> dict[str, Any]:
    """Return what report.js draws, as JSON values."""
    targets = list(data.forecast.columns)
    channels = targets + [name for name in data.frame.columns if name not in data.forecast.columns]
    place = {name: number for number, name in enumerate(channels)}
    horizon = len(data.forecast)
    rows = max(3 * horizon, min(len(data.frame), CELLS // len(targets), 336 + 5 * horizon))
    recent = data.frame.iloc[-rows:]
    digits = [_digits(data.frame[name]) for name in targets]
    split = _leads(data.pairs)
    hours = coverage_by_hour(data.earlier)
    bars = None if data.sensor_ablation is None else data.sensor_ablation.head(BARS).round(6).to_dict("index")
    offset = recent.index[-1].utcoffset() if isinstance(recent.index, pd.DatetimeIndex) else None

    def columns(frame: pd.DataFrame) -> list[list[float | None]]:
        return [_numbers(frame[name].to_numpy(), places) for name, places in zip(targets, digits, strict=True)]

    return {
        "channels": channels,
        "past": _times(recent.index, offset),
        "ahead": _times(data.forecast.index, offset),
        "values": columns(recent),
        "forecast": columns(data.forecast),
        "bounds": {f"{level:g}": [columns(side) for side in sides] for level, sides in data.bounds.items()},
        "backtest": [] if data.earlier is None else _origins(data.earlier, recent.index[0], columns, offset),
        "stamps": [str(time) for time in data.forecast.index],
        "indexName": str(data.frame.index.name or "time"),
        "units": [data.units.get(name) for name in targets],
        "ranges": [_range(data, name, recent[name]) for name in targets],
        "hours": None if hours is None else {"hour": hours.index.tolist(), "coverage": _coverage(hours)},
        "leads": None if data.pairs is None else _edges(split["leads"].head(PAIRS), place),
        "leadsInAll": 0 if data.pairs is None else len(split["leads"]),
        "together": None if data.pairs is None else _edges(split["together"].head(PAIRS), place),
        "maps": [None if one.flat else _map(one, place) for one in data.maps],
        "sensor_ablation": None if bars is None else [{"sensor": name, **row} for name, row in bars.items()],
    }


def _range(data: ReportData, name: str, recent: "pd.Series[float]") -> list[float] | None:
    """Return the least and the largest number to be drawn of a channel with numbers that may mean missing; else None.

    One such number far from all others would flatten everything else into a line.
    """
    if name not in data.suspects:
        return None
    bounds = [side[name] for sides in data.bounds.values() for side in sides]
    drawn = pd.concat([without_suspects(recent, data.suspects[name]), data.forecast[name], *bounds])
    room = 0.05 * float(drawn.max() - drawn.min())
    found = [float(drawn.min()) - room, float(drawn.max()) + room]
    return found if room > 0 and math.isfinite(room) else None


def _digits(column: "pd.Series[float]") -> int:
    """Return the decimal places that show a hundred-thousandth of the channel's range."""
    span = float(column.max() - column.min())
    return 5 - math.floor(math.log10(span)) if math.isfinite(span) and span > 0 else 6


def _numbers(values: np.ndarray, places: int) -> list[float | None]:
    rounded = np.round(values.astype(np.float64), places).tolist()
    return [value if math.isfinite(value) else None for value in rounded]


def _times(index: pd.Index, offset: timedelta | None) -> list[Any]:
    """Return dates at a fixed UTC offset, so that no hour is repeated or left out; numbers as they are."""
    if not isinstance(index, pd.DatetimeIndex):
        return [int(number) for number in index]
    stamps = index if offset is None else (index.tz_convert("UTC") + offset).tz_localize(None)
    return [stamp.isoformat(sep=" ") for stamp in stamps]


def _origins(
    earlier: pd.DataFrame,
    first: object,
    columns: Callable[[pd.DataFrame], list[list[float | None]]],
    offset: timedelta | None,
) -> list[dict[str, Any]]:
    """Return the forecasts of the backtest whose origins are within the rows that are drawn."""
    found = []
    for _, part in earlier[earlier["cutoff"] >= first].groupby("cutoff", sort=True):
        wide = part.pivot(index="ds", columns="unique_id", values="primecast")
        found.append({"times": _times(wide.index, offset), "values": columns(wide)})
    return found


def _coverage(hours: pd.DataFrame) -> dict[str, list[float]]:
    return {f"{level:g}": hours[level].round(4).tolist() for level in hours.columns}


def _edges(pairs: pd.DataFrame, place: Mapping[str, int]) -> list[list[Any]]:
    return [
        [place[leader], place[follower], int(steps), duration(time, int(steps)), round(float(strength), 4)]
        for leader, follower, steps, time, strength in pairs.itertuples(index=False)
    ]


def _map(one: PairMap, place: Mapping[str, int]) -> dict[str, Any]:
    values = one.frame.to_numpy()
    weight = values.sum(axis=0) + values.sum(axis=1)
    kept = np.sort(np.argsort(-weight, kind="stable")[:MAP])
    shown = one.frame.iloc[kept, kept]
    return {
        "channels": [place[name] for name in shown.columns],
        "values": [_numbers(row, 4) for row in shown.to_numpy()],
    }
