"""The report: one HTML file for people who would rather look, that needs no network and no other file.

    fitted forecaster ──gather──> ReportData (frames and numbers) ──report_html──> text ──write_report──> file

Tables and sentences are in the page as they are, and can be read without a script; drawings are made by report.js when
they are asked for, from data that lies in the page once, as packed JSON, beside plotly, packed, too: so a page is 2 MB
and not 5. All text of the user's goes through `escape` or into the packed JSON, and the page's own policy lets no
script run but the two whose hashes it names, and nothing be fetched. Nothing here knows of torch.

Letters: t rows, h horizon, n channels.
"""

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from html import escape
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from primecast.errors import InputError
from primecast.storage.atomic import write_bytes_atomically

CELLS = 1_000_000
"""Observed values that are put into a page, at most: the last rows of all channels."""
PAIRS = 2000
"""Pairs that are put into a page, the strongest ones."""
MAP = 100
"""Channels of a map; of more, those that most is seen of."""
BARS = 30
NOTHING = "-"
FENCE = 3
"""Interquartile ranges outside the middle half of a channel from which on a value is called an outlier."""
STEPS = {
    "s": ("second", "every second"),
    "min": ("minute", "every minute"),
    "h": ("hour", "hourly"),
    "D": ("day", "daily"),
    "B": ("business day", "business days"),
    "W": ("week", "weekly"),
    **dict.fromkeys(("ME", "MS", "BME", "BMS"), ("month", "monthly")),
    **dict.fromkeys(("QE", "QS", "BQE", "BQS"), ("quarter", "quarterly")),
    **dict.fromkeys(("YE", "YS", "BYE", "BYS"), ("year", "yearly")),
}
"""Code of a pandas frequency -> its unit, and the word for one unit a row."""


@dataclass(frozen=True, eq=False)
class PairMap:
    """A channel × channel frame to be drawn. down, across: what rows and columns are; concentration: how even it is."""

    title: str
    what: str
    frame: pd.DataFrame
    down: str
    across: str
    concentration: str = ""


@dataclass(frozen=True, eq=False)
class ReportData:
    """All that a report shows. What is None is left out; `notes` has the sentence that says why, by section.

    frame:    the rows as they were given, oldest first, gaps as NaN.
    forecast: the rows to come, a column per target. bounds: level -> lowest and highest, frames like `forecast`.
    scores:   a row per channel and the last one, "overall", as `Backtest.scores`. earlier: the forecasts of a backtest,
              long, as `Backtest.forecasts`.
    pairs:    leader, follower, steps, time, strength, as `Relations.pairs`. maps: of attention and primer.
    sensor_ablation: per sensor mean, largest, channel, as `SensorAblation.summary`.
    held_out: windows, mse, mae, naive_mse, naive_mae of the test rows in scaled units, where known.
    settings: section -> name -> value: what made it.
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


# ---------------------------------------------------------------- from a fitted forecaster


def gather(
    forecaster: Any,
    frame: pd.DataFrame,
    *,
    title: str,
    level: Sequence[float] = (80, 95),
    windows: int = 20,
    future: object = None,
    adaptive: bool = False,
) -> ReportData:
    """What a fitted Forecaster has to say of these rows: those it was fitted on, or newer ones of the same channels.

    frame: wide, as `read_table` gives it. windows: origins of the backtest, fewer where rows do not suffice. A part
    that these rows do not suffice for is left out, with the reason in its place. future, adaptive: as for `predict`.
    """
    notes: dict[str, str] = {}
    frame = _ordered(frame.rename(columns=str))
    targets = list(forecaster.roles_.targets)
    try:
        wide = forecaster.predict(frame, level=level, future=future, adaptive=adaptive)
    except InputError as error:  # too few held-out windows for the widest interval, or too few rows at all
        wide, level = forecaster.predict(frame, future=future), ()
        notes["bounds"] = str(error)
    bounds = {one: (_side(wide, targets, "lo", one), _side(wide, targets, "hi", one)) for one in level}
    backtest, notes["backtest"] = _tried(
        *(
            lambda count=count: forecaster.backtest(frame, windows=count, level=level, adaptive=adaptive)
            for count in range(windows, 0, -1)
        )
    )
    relations, notes["relations"] = _tried(lambda: forecaster.relations(frame))
    sensor_ablation, notes["sensor_ablation"] = _tried(lambda: forecaster.sensor_ablation(frame))
    facts = forecaster.facts_
    return ReportData(
        title=title,
        frame=frame,
        forecast=wide[targets],
        bounds=bounds,
        scores=None if backtest is None else backtest.scores,
        earlier=None if backtest is None else backtest.forecasts,
        pairs=None if relations is None else relations.pairs(),
        maps=() if relations is None else _maps(relations),
        sensor_ablation=None if sensor_ablation is None else sensor_ablation.summary,
        held_out=facts["scores"],
        settings={
            "model": facts["model"],
            "arguments": {k: v for k, v in forecaster.get_params().items() if v is not None and k != "progress"},
            "rows": {name: f"{first} to {last}" for name, (first, last) in facts["data"]["periods"].items()},
            "versions": facts["versions"],
        },
        notes={section: why for section, why in notes.items() if why},
    )


def _tried(*ways: Any) -> tuple[Any, str]:
    """What the first way that works gives, and nothing; or nothing, and what the first one said."""
    first = ""
    for way in ways:
        try:
            return way(), ""
        except InputError as error:
            first = first or str(error)
    return None, first


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Oldest first, numbers, and an index that knows its step if it has one."""
    frame = frame.sort_index().apply(pd.to_numeric).astype(float)
    if isinstance(frame.index, pd.DatetimeIndex) and frame.index.freq is None:
        with suppress(ValueError):
            frame.index = pd.DatetimeIndex(frame.index, freq="infer")
    return frame


def _side(wide: pd.DataFrame, targets: Sequence[str], side: str, level: float) -> pd.DataFrame:
    return wide[[f"{name}-{side}-{level:g}" for name in targets]].set_axis(list(targets), axis="columns")


def _maps(relations: Any) -> list[PairMap]:
    maps = []
    if relations.attention is not None:
        maps.append(
            PairMap(
                title="Attention",
                what="With which weight a channel looks at another, over layers, heads and held-out windows.",
                frame=relations.attention,
                down="who looks",
                across="at whom",
                concentration=_concentrated(relations, "Most of it goes to"),
            )
        )
    if relations.primer is not None:
        shares = relations.primer.div(relations.primer.sum(axis="columns"), axis="index")
        maps.append(
            PairMap(
                title="Primer",
                what="How far the filter of a pair is from the mean filter; 0 everywhere: all pairs are treated alike.",
                frame=relations.primer,
                down="who looks",
                across="at whom",
                concentration=_concentrated(replace(relations, attention=shares), "Most special is the view of"),
            )
        )
    return maps


def _concentrated(relations: Any, most: str) -> str:
    channels = len(relations.attention)
    if channels < 2 or relations.attention.isna().any(axis=None):  # a primer of which nothing deviates has no shares
        return ""
    found = relations.concentration()
    text = (
        f"Concentration index {1 - found.entropy:.3f} (0: all channels get the same, 1: one gets everything). {most} "
        f"{found.channel}: {100 * found.fraction:.0f} % of all; even would be {100 / channels:.0f} %."
    )
    if found.calendar > 0.005:
        text += f" The calendar gets {100 * found.calendar:.0f} % beside the channels."
    return text


# ---------------------------------------------------------------- what was found in the data


def inspect(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per channel: missing, longest (gap), outliers, constant, least, median, greatest.

    An outlier lies more than FENCE interquartile ranges below the lower or above the upper quartile. A channel of which
    half the values are the same has no such range, and no outliers are looked for.
    """
    gaps = frame.isna().to_numpy()
    lower, upper = frame.quantile(0.25), frame.quantile(0.75)
    reach = FENCE * (upper - lower)
    outside = ((frame < lower - reach) | (frame > upper + reach)) & (reach > 0)
    table = pd.DataFrame(
        {
            "missing": gaps.sum(axis=0),
            "longest": [_longest(column) for column in gaps.T],
            "outliers": outside.sum().to_numpy(),
            "constant": (frame.max() == frame.min()).to_numpy(),
        },
        index=frame.columns,
    )
    return table.assign(least=frame.min(), median=frame.median(), greatest=frame.max())


def _longest(gaps: np.ndarray) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], gaps, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def step_words(index: pd.Index) -> str:
    """What one row is, in words.

    >>> step_words(pd.date_range("2024", periods=3, freq="15min")), step_words(pd.RangeIndex(3))
    ('every 15 minutes', 'numbered rows')
    """
    freq = getattr(index, "freq", None)
    if freq is None:
        return "irregular" if isinstance(index, pd.DatetimeIndex) else "numbered rows"
    if type(freq) is pd.DateOffset:  # made of parts, such as hours=3, it has no code
        parts = (unit.removesuffix("s") if count == 1 else f"{count} {unit}" for unit, count in freq.kwds.items())
        return f"every {', '.join(parts)}"
    code = freq.rule_code.split("-")[0]
    if code not in STEPS:
        return str(freq.freqstr)
    unit, word = STEPS[code]
    return word if freq.n == 1 else f"every {freq.n} {unit}s"


def number(value: float) -> str:
    """Four digits that count; thousands are marked.

    >>> number(2.0), number(0.12345), number(12345.6), number(0.0), number(math.nan)
    ('2.000', '0.1235', '12,346', '0', '-')
    """
    if math.isnan(value):
        return NOTHING
    if value == 0 or not 1e-4 <= abs(value) < 1e7:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"


def stamp(time: object) -> str:
    """A date as short as it can be said; a number as it is.

    >>> stamp(pd.Timestamp("2024-01-31")), stamp(pd.Timestamp("2024-01-31 23:00")), stamp(7)
    ('2024-01-31', '2024-01-31 23:00', '7')
    """
    if not isinstance(time, pd.Timestamp):
        return str(time)
    if time == time.normalize():
        return f"{time:%Y-%m-%d}"
    return f"{time:%Y-%m-%d %H:%M}" if not (time.second or time.microsecond) else f"{time:%Y-%m-%d %H:%M:%S}"


def duration(time: object, steps: int) -> str:
    """A lead in the largest units that say it.

    >>> duration(pd.Timedelta(minutes=90), 6), duration(None, 2), duration(None, 1)
    ('1 h 30 min', '2 steps', '1 step')
    """
    if not isinstance(time, pd.Timedelta):
        return f"{steps} step{'' if steps == 1 else 's'}"
    parts = zip(("d", "h", "min", "s"), time.components[:4], strict=True)
    return " ".join(f"{count} {unit}" for unit, count in parts if count) or "0 s"


# ---------------------------------------------------------------- the page


def write_report(data: ReportData, path: Path | str) -> None:
    """Write the page; needs the extra `report`."""
    text = report_html(data)

    write_bytes_atomically(Path(path), text.encode("utf-8", "xmlcharrefreplace"))


def report_html(data: ReportData) -> str:
    """The whole page as text."""
    script = resources.files("primecast.reporting").joinpath("report.js").read_text(encoding="utf-8")
    style = resources.files("primecast.reporting").joinpath("report.css").read_text(encoding="utf-8")
    plotly = plotly_script()
    hashes = " ".join(f"'sha256-{_b64(hashlib.sha256(text.encode()).digest())}'" for text in (script, plotly))
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    sections = (_header, _forecast, _trust, _leads, _inside, _loss, _found, _settings)
    body = "\n".join(section(data) for section in sections)
    payload = json.dumps(_payload(data), allow_nan=False, separators=(",", ":"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="primecast">
<title>{escape(data.title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
<script type="text/plain" id="data">{_packed(payload)}</script>
<script type="text/plain" id="plotly">{_packed(plotly)}</script>
<script>{script}</script>
</body>
</html>
"""


def plotly_script() -> str:
    """plotly.js as the Python package ships it: the whole of it, since it has no smaller bundle."""
    try:
        return str(import_module("plotly.offline").get_plotlyjs())
    except ImportError as error:
        raise InputError("a report needs plotly: pip install 'primecast[report]'") from error


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _packed(text: str) -> str:
    """Without a time stamp inside, so that the same data makes the same page."""
    return _b64(gzip.compress(text.encode(), compresslevel=9, mtime=0))


# ---------------------------------------------------------------- its data


def _payload(data: ReportData) -> dict[str, Any]:
    targets = list(data.forecast.columns)
    channels = targets + [name for name in data.frame.columns if name not in data.forecast.columns]
    place = {name: number for number, name in enumerate(channels)}
    horizon = len(data.forecast)
    rows = max(3 * horizon, min(len(data.frame), CELLS // len(targets), 336 + 5 * horizon))
    recent = data.frame.iloc[-rows:]
    digits = [_digits(data.frame[name]) for name in targets]
    pairs = data.pairs
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
        "pairs": None if pairs is None else _edges(pairs.head(PAIRS), place),
        "pairsInAll": 0 if pairs is None else len(pairs),
        "maps": [_map(one, place) for one in data.maps],
        "sensor_ablation": None if data.sensor_ablation is None else _bars(data.sensor_ablation),
    }


def _digits(column: "pd.Series[float]") -> int:
    """Decimal places that show a hundred-thousandth of the channel's range."""
    span = float(column.max() - column.min())
    return 5 - math.floor(math.log10(span)) if math.isfinite(span) and span > 0 else 6


def _numbers(values: np.ndarray, places: int) -> list[float | None]:
    rounded = np.round(values.astype(np.float64), places).tolist()
    return [value if math.isfinite(value) else None for value in rounded]


def _times(index: pd.Index, offset: timedelta | None) -> list[Any]:
    """Dates on a clock that stays at this offset, so that no hour comes twice or is left out; else numbers."""
    if not isinstance(index, pd.DatetimeIndex):
        return [int(number) for number in index]
    stamps = index if offset is None else (index.tz_convert("UTC") + offset).tz_localize(None)
    return [stamp.isoformat(sep=" ") for stamp in stamps]


def _origins(earlier: pd.DataFrame, first: object, columns: Any, offset: timedelta | None) -> list[dict[str, Any]]:
    """The forecasts that lie within the rows that are drawn."""
    found = []
    for _, part in earlier[earlier["cutoff"] >= first].groupby("cutoff", sort=True):
        wide = part.pivot(index="ds", columns="unique_id", values="primecast")
        found.append({"times": _times(wide.index, offset), "values": columns(wide)})
    return found


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
        "down": one.down,
        "across": one.across,
    }


def _bars(sensor_ablation: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {"sensor": str(sensor), "mean": round(float(mean), 6), "largest": round(float(largest), 6), "channel": channel}
        for sensor, mean, largest, channel in sensor_ablation.head(BARS).itertuples()
    ]


# ---------------------------------------------------------------- its sections


def _header(data: ReportData) -> str:
    frame, found = data.frame, inspect(data.frame)
    missing, outliers = int(found["missing"].sum()), int(found["outliers"].sum())
    constant = found.index[found["constant"]]
    most = str(found["outliers"].idxmax())
    facts = [
        ("rows", f"{len(frame):,}", f"{stamp(frame.index[0])} to {stamp(frame.index[-1])}"),
        ("channels", f"{frame.shape[1]:,}", f"{data.forecast.shape[1]} are forecast"),
        ("step", step_words(frame.index), _zone(frame.index)),
        ("missing values", f"{missing:,}", f"longest gap {found['longest'].max()} rows" if missing else "no gaps"),
        ("outliers", f"{outliers:,}", f"most in {most}" if outliers else "none found"),
        ("constant channels", f"{len(constant)}", ", ".join(map(str, constant[:3])) or "all of them move"),
    ]
    cards = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(small)}</small></dd></div>"
        for name, value, small in facts
    )
    links = "".join(
        f'<a href="#{target}">{text}</a>'
        for target, text in (
            ("future", "Forecast"),
            ("trust", "Backtest"),
            ("leads", "Who leads whom"),
            ("inside", "What the model looks at"),
            ("loss", "Lost sensors"),
            ("rows", "The data"),
            ("settings", "Settings"),
        )
    )
    return f"""<header>
<p class="kicker">primecast report</p>
<h1>{escape(data.title)}</h1>
<p class="lede">{_lede(data)}</p>
<p class="note" id="broken" hidden></p>
<noscript><p class="note">Drawings need JavaScript; all tables are below.</p></noscript>
<dl class="facts">{cards}</dl>
<nav aria-label="Sections">{links}</nav>
</header>"""


def _zone(index: pd.Index) -> str:
    zone = getattr(index, "tz", None)
    return f"time zone {zone}" if zone is not None else "no time zone given"


def _lede(data: ReportData) -> str:
    """The one sentence for those who read only one."""
    ahead = data.forecast.index
    text = f"The next <strong>{len(ahead)} steps</strong>, until {stamp(ahead[-1])}."
    scores = data.held_out
    if not scores or not (scores["naive_mse"] and scores["naive_mae"]):
        return text
    gains = [1 - scores[name] / scores[f"naive_{name}"] for name in ("mse", "mae")]
    squared, absolute = (f"{abs(100 * gain):.0f} % {'smaller' if gain >= 0 else 'larger'}" for gain in gains)
    return text + (
        f" Over {int(scores['windows']):,} forecasts of rows that training had not seen, the squared error was "
        f"<strong>{squared}</strong> than that of repeating the last season, the absolute error {absolute}."
    )


def _forecast(data: ReportData) -> str:
    levels = " and ".join(f"{level:g} %" for level in sorted(data.bounds))
    band = f"The band holds {levels} of the truths, if errors stay as they were on held-out rows." if levels else ""
    toggle = (
        '<label><input type="checkbox" id="before"> forecasts of the backtest</label>' if _has_earlier(data) else ""
    )
    first = escape(str(data.forecast.columns[0]))
    return f"""<section id="future">
<h2>Forecast</h2>
<p class="soft">{escape(band)}{_note(data, "bounds")}</p>
<figure>
<div class="head"><h3 id="chosen" dir="auto" aria-live="polite">{first}</h3>{toggle}</div>
<div class="plot" id="forecast"></div>
</figure>
<div class="panel">
<input type="search" id="search" placeholder="Find a channel" aria-label="Find a channel" autocomplete="off">
<div class="cards" id="cards"></div>
<p class="soft" id="found" aria-live="polite" style="margin:.5rem 0 0"></p>
</div>
</section>"""


def _has_earlier(data: ReportData) -> bool:
    return data.earlier is not None and len(data.earlier) > 0


def _trust(data: ReportData) -> str:
    parts = ['<section id="trust"><h2>Backtest</h2>']
    if data.scores is None:
        return "\n".join([*parts, _note(data, "backtest"), "</section>"])
    origins = data.earlier["cutoff"].nunique() if data.earlier is not None else 0
    beaten = int((data.scores["mae"] < data.scores["naive_mae"]).iloc[:-1].sum())
    levels = [name.removeprefix("coverage-") for name in data.scores.columns if name.startswith("coverage-")]
    head = ["channel", "MAE", "naive MAE", "gain", "RMSE", "naive RMSE", "MASE"]
    head += [title for level in levels for title in (f"inside {level} %", f"width {level} %")]
    rows = []
    for place in range(-1, len(data.scores) - 1):  # the last row, "overall", comes first
        name, row = data.scores.index[place], data.scores.iloc[place]
        gain = 1 - row["mae"] / row["naive_mae"] if row["naive_mae"] > 0 else math.nan
        cells = [_cell(name), _cell(row["mae"]), _cell(row["naive_mae"]), _gain(gain)]
        cells += [_cell(row[column]) for column in ("rmse", "naive_rmse", "mase")]
        for level in levels:
            cells += [_percent(row[f"coverage-{level}"]), _cell(row[f"width-{level}"])]
        rows.append((cells, "total" if place < 0 else ""))
    parts.append(
        f"<p>Forecasts from {origins} moment{'' if origins == 1 else 's'} in the held-out rows, beside what then "
        f"happened and beside the last season repeated (naive). In MAE, {beaten} of {len(rows) - 1} channels are "
        "better than naive. A MASE below 1 is better than the naive forecast was on the training rows. Units are those "
        "of the data; the row <em>overall</em> mixes them, so trust its MASE and its shares only.</p>"
    )
    return "\n".join([*parts, _table(head, rows), "</section>"])


def _leads(data: ReportData) -> str:
    head = '<section id="leads"><h2>Who leads whom</h2>'
    if data.pairs is None:
        return f"{head}{_note(data, 'relations')}</section>"
    if not len(data.pairs):
        return f"{head}<p>No pair of channels moves together more than chance would have it.</p></section>"
    strengths = data.pairs["strength"].abs().to_numpy()
    start = 0.0 if len(strengths) <= 30 else math.ceil(100 * strengths[30]) / 100
    rows = [
        (
            [
                _cell(leader, "text"),
                _cell(follower, "text"),
                _cell(duration(time, steps) if steps else "together"),
                _cell(f"{strength:.2f}"),
            ],
            "",
        )
        for leader, follower, steps, time, strength in data.pairs.head(40).itertuples(index=False)
    ]
    table = _table(["leader", "follower", "by", "correlation"], rows, body="pairs", texts=(0, 1))
    return f"""{head}
<p>An arrow goes from the channel that moves first to the one that follows; pairs that chance could explain are not
shown. This is in the data, linear, and no proof of cause.</p>
<div class="panel">
<div class="dials">
<label>correlation at least <input type="range" id="threshold" min="0" max="1" step="0.01" value="{start:g}">
<output id="level" for="threshold"></output></label>
<label><input type="checkbox" id="together" checked> also pairs without a lead</label>
</div>
<div id="graph"></div>
<p class="soft"><span class="key" style="margin-left:0"></span>same direction<span class="key against"></span>opposite
<span class="key together"></span>together, no lead</p>
</div>
{table}
</section>"""


def _inside(data: ReportData) -> str:
    head = '<section id="inside"><h2>What the model looks at</h2>'
    if not data.maps:
        return f"{head}{_note(data, 'relations', 'This model has no map between channels.')}</section>"
    figures = []
    for number, one in enumerate(data.maps):
        cut = f" Of {len(one.frame)} channels the {MAP} of most weight are drawn." if len(one.frame) > MAP else ""
        figures.append(
            f'<figure><h3>{escape(one.title)}</h3><div class="plot" id="map-{number}"></div>'
            f"<figcaption>{escape(one.what)} {escape(one.concentration)}{cut}</figcaption></figure>"
        )
    return f'{head}<div class="maps">{"".join(figures)}</div></section>'


def _loss(data: ReportData) -> str:
    head = '<section id="loss"><h2>If a sensor is lost</h2>'
    if data.sensor_ablation is None or not len(data.sensor_ablation):
        return f"{head}{_note(data, 'sensor_ablation', 'With one channel there is nothing else to be hurt.')}</section>"
    points = data.sensor_ablation.index[data.sensor_ablation["largest"] > 0.1]
    told = (
        f"Single points of failure, whose loss raises another channel's squared error by more than 10 %: "
        f"<strong>{', '.join(f'<bdi>{escape(str(name))}</bdi>' for name in points[:12])}</strong>"
        f"{f' and {len(points) - 12} more' if len(points) > 12 else ''}."
        if len(points)
        else "No sensor's loss raises another channel's squared error by more than 10 %: there is no single point of "
        "failure."
    )
    rows = [
        ([_cell(sensor), _percent(mean), _percent(largest), _cell(channel, "text")], "")
        for sensor, mean, largest, channel in data.sensor_ablation.itertuples()
    ]
    table = _table(["sensor lost", "mean growth", "largest growth", "of channel"], rows, texts=(3,))
    cut = f" The {BARS} worst of {len(data.sensor_ablation)} are drawn." if len(data.sensor_ablation) > BARS else ""
    return f"""{head}
<p>{told} A lost sensor reads its mean.{cut}</p>
<figure><div class="plot" id="sensor_ablation"></div></figure>
{_folded("As a table", table)}
</section>"""


def _found(data: ReportData) -> str:
    found = inspect(data.frame)
    rows = [
        (
            [
                _cell(name),
                *(_cell(f"{count:,}") for count in (row["missing"], row["longest"], row["outliers"])),
                *(_cell(float(value)) for value in (row["least"], row["median"], row["greatest"])),
                _cell("never changes" if row["constant"] else ""),
            ],
            "",
        )
        for name, row in found.to_dict(orient="index").items()
    ]
    head = ["channel", "missing", "longest gap", "outliers", "least", "median", "greatest", ""]
    return f"""<section id="rows">
<h2>The data</h2>
<p>An outlier lies more than {FENCE} interquartile ranges outside the middle half of its channel's values. Outliers are
counted, not changed.</p>
{_folded(f"{len(found)} channels", _table(head, rows), opened=len(found) <= 30)}
</section>"""


def _settings(data: ReportData) -> str:
    rows = [
        ([_cell(f"{section}: {name}"), _cell(_shown(value), "text")], "")
        for section, values in data.settings.items()
        for name, value in values.items()
    ]
    return f"""<section id="settings">
<h2>Settings</h2>
{_table(["setting", "value"], rows, texts=(1,))}
<footer>Made by primecast. This page is complete: it fetches nothing and sends nothing.</footer>
</section>"""


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


# ---------------------------------------------------------------- its pieces


def _note(data: ReportData, section: str, otherwise: str = "") -> str:
    text = data.notes.get(section, otherwise)
    return f'<p class="note">{escape(text)}</p>' if text else ""


def _folded(title: str, content: str, *, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{content}</details>"


def _table(
    head: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], *, body: str = "", texts: Sequence[int] = ()
) -> str:
    """rows: cells and the class of the row. body: id of its body. texts: columns that hold text, to be on the left."""
    titles = "".join(f"<th{_class('text' if n in texts else '')}>{escape(title)}</th>" for n, title in enumerate(head))
    lines = "\n".join(f"<tr{_class(kind)}>{''.join(cells)}</tr>" for cells, kind in rows)
    tag = f'<tbody id="{body}">' if body else "<tbody>"
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>{tag}\n{lines}\n</tbody></table></div>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _cell(value: object, kind: str = "") -> str:
    text = number(float(value)) if isinstance(value, float | np.floating) else f"<bdi>{escape(str(value))}</bdi>"
    return f"<td{_class(kind)}>{text}</td>"


def _percent(value: float) -> str:
    return f"<td>{NOTHING}</td>" if math.isnan(value) else f"<td>{100 * value:.1f} %</td>"


def _gain(gain: float) -> str:
    if math.isnan(gain):
        return f"<td>{NOTHING}</td>"
    return f'<td class="{"good" if gain > 0 else "bad"}">{100 * gain:+.0f} %</td>'
