"""Frames of one's own: from a file or a DataFrame to a checked, regular, wide frame, and on to a data set.

    CSV, Parquet ──read_table──> wide frame ──validate──> float64, regular index, gaps by policy ──> dataset_from_frame
    long frame (unique_id, ds, y) ──widen──^                          forecasts ──lengthen──> long frame

A wide frame has one numeric column per channel and a DatetimeIndex, or an integer index that counts in equal steps, of
which nothing is known but the order: no calendar, no season. Whatever is wrong with a frame is said in a sentence that
names the first offender and the way out. Missing values are never filled unasked; the ways to ask are POLICIES.

Letters: t rows, n channels.
"""

import io
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from primecast.data.formats import to_numbers, uncompressed
from primecast.data.windows import Dataset, Ratio
from primecast.errors import InputError, format_list, unknown

POLICIES = {
    "error": "missing values are refused",
    "interpolate": "time interpolation between neighbours, the nearest value at the edges",
    "ffill": "the last value before the gap; a gap at the start takes the first value after it",
    "mask": "as ffill where a forecast looks, and no error is counted where the truth is missing",
}
TIME_NAMES = ("ds", "date", "time", "datetime", "timestamp", "date_time", "index")
LONG_COLUMNS = {"unique_id", "ds", "y"}
NUMBERS = {"integer", "floating", "mixed-integer", "mixed-integer-float", "decimal", "boolean", "complex"}
"""Kinds of content, as pandas infers them, that it would take for nanoseconds since 1970 if it were asked for dates."""
EITHER_FIRST = r"^\D*(\d{1,2})[-./ ](\d{1,2})[-./ ]\d"
"""Dates in which day and month can be taken for one another: 05/02/2024, Mon 5.2.24 13:00."""
SEASONS = {
    "s": 86400,
    "min": 1440,
    "h": 24,
    "D": 7,
    "B": 5,
    "W": 52,
    **dict.fromkeys(("ME", "MS", "BME", "BMS"), 12),
    **dict.fromkeys(("QE", "QS", "BQE", "BQS"), 4),
}
"""Steps of the season that a frequency usually has: of the day, the week, the year."""
STEP_NAMES = {"s": "seconds", "min": "minutes", "h": "hours", "D": "days", "B": "business days", "W": "weeks"}
SHORTEST = 3
"""Rows: two steps are the least from which a sampling step can be inferred."""

Index = pd.DatetimeIndex | pd.RangeIndex
"""What a checked frame has its rows numbered by."""


class ConstantChannelWarning(UserWarning):
    """Some channels never change; they carry nothing to learn from, and their forecast is their constant."""


# ---------------------------------------------------------------- reading


def read_table(
    path: Path | str, *, id: str | None = None, time: str | None = None, value: str | None = None
) -> pd.DataFrame:
    """A CSV file (may be .gz or .xz) or a Parquet file as a wide frame in the file's order; long files are widened.

    Comma, semicolon (then also decimal commas) and tab are told apart by the header. The time column is the one
    named `time`; else one with a usual name, such as date or ds; else the first text column that holds dates. A file is
    long if `id` or `value` is named, or if it has the columns unique_id, ds and y, which they are where not named. A
    nameless column that only numbers the rows, as pandas writes it, is dropped.
    """
    return open_file(path, id=id, time=time, value=value)[0]


def open_file(
    path: Path | str, *, id: str | None, time: str | None, value: str | None, day_first: bool | None = None
) -> tuple[pd.DataFrame, bool | None]:
    """As `read_table`, and how its dates were read; for `day_first` see `as_stamps`."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    frame = _read_parquet(path) if path.suffix in (".parquet", ".pq") else _read_csv(path)
    check_columns(frame)
    if is_long(frame, id=id, value=value):
        return spread(frame, id=id, time=time, value=value, day_first=day_first, source=str(path))
    if time is None and isinstance(frame.index, pd.DatetimeIndex):
        return frame, None
    if time is not None and time not in frame.columns:
        raise unknown(f"time column of {path}", time, frame.columns)
    return date_by(frame, time or _time_column(frame, path), day_first=day_first, source=str(path))


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        text = uncompressed(path).decode("utf-8-sig")
        header, _, rest = text.partition("\n")
        sep = max(",;\t", key=header.count)
        decimal = "," if sep == ";" and "," in rest.partition("\n")[0] else "."
        frame = pd.read_csv(io.StringIO(text), sep=sep, decimal=decimal, low_memory=False)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path} is not a CSV table: {str(error).strip()}") from error

    nameless = frame.columns[0]
    if nameless == "Unnamed: 0" and pd.api.types.is_integer_dtype(frame[nameless]) and frame[nameless].is_unique:
        return frame.drop(columns=nameless)
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, engine="pyarrow")
    except ImportError as error:
        raise InputError(
            f"reading {path} needs pyarrow: pip install 'primecast[parquet]', or save it as CSV"
        ) from error
    except (ValueError, OSError, NotImplementedError) as error:  # pyarrow's own errors are kinds of these
        raise InputError(f"{path} is not a Parquet table: {error}") from error


# ---------------------------------------------------------------- dates


def _time_column(frame: pd.DataFrame, path: Path) -> str:
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    usual = [name for name in text if str(name).strip().lower() in TIME_NAMES]
    for name in usual + [name for name in text if name not in usual]:
        if holds_dates(frame[name]):
            return str(name)
    raise InputError(
        f"{path} has no time column: no column of text holds dates in all rows (columns: {format_list(frame.columns)}); "
        "write them like 2024-01-31 23:00"
    )


def holds_dates(column: "pd.Series[str]") -> bool:
    return as_stamps(column, day_first=False) is not None  # either reading will do


def date_by(frame: pd.DataFrame, time: str, *, day_first: bool | None, source: str) -> tuple[pd.DataFrame, bool | None]:
    """The frame with its column `time` as its index, and how the dates were read."""
    stamps, day_first = stamps_of(frame, time, day_first=day_first, source=source)
    return frame.drop(columns=time).set_axis(stamps, axis="index"), day_first


def stamps_of(
    frame: pd.DataFrame, time: str, *, day_first: bool | None, source: str
) -> tuple[pd.DatetimeIndex, bool | None]:
    """`as_stamps` of a column that must hold dates."""
    column = frame[time]
    read = as_stamps(column, day_first=day_first)
    if read is not None:
        return read
    if _numeric(column):
        raise InputError(
            f"column {time!r} of {source} holds numbers, the first {column.iloc[0]}, and of what they count nothing is "
            f"known; make dates of them with pandas.to_datetime(df[{time!r}], unit='s') if they are Unix seconds "
            "(unit='ms': milliseconds), or with format='%Y%m%d' if they are like 20240131"
        )
    raise InputError(f"column {time!r} of {source} does not hold dates in all rows; write them like 2024-01-31 23:00")


def as_stamps(
    column: "pd.Series[str]", *, day_first: bool | None = None
) -> tuple[pd.DatetimeIndex, bool | None] | None:
    """The column as dates, and whether their day was read first (None where that was no question); None if it has none.

    One reading serves all rows. Where day and month could be either, throughout, it is the one that `day_first` says,
    or else the one by which the dates are regular, or at least in order. Differing UTC offsets become UTC.
    """
    if _numeric(column):
        return None
    if not (len(column) and isinstance(column.iloc[0], str) and re.match(EITHER_FIRST, column.iloc[0])):
        stamps = _parsed(column, day_first=False)
        return None if stamps is None else (stamps, None)
    first, second = column.str.extract(EITHER_FIRST).astype(float).max()
    parsed = {
        reading: _parsed(column, day_first=reading) for reading, month in ((False, first), (True, second)) if month < 13
    }
    read = {reading: stamps for reading, stamps in parsed.items() if stamps is not None}
    if len(read) < 2:
        return next(((stamps, reading) for reading, stamps in read.items()), None)
    if day_first is None and not read[False].equals(read[True]):
        by_order = {reading: _orderliness(stamps) for reading, stamps in read.items()}
        if by_order[False] == by_order[True]:
            raise InputError(
                f"{column.iloc[0]!r} in column {column.name!r} may be {read[True][0]:%d %B %Y} or "
                f"{read[False][0]:%d %B %Y}, and the other rows do not tell; write them like 2024-01-31 23:00, or give "
                "a frame in which pandas.to_datetime(column, dayfirst=...) has read them"
            )
        day_first = by_order[True] > by_order[False]
    return read[bool(day_first)], day_first


def _numeric(column: "pd.Series[str]") -> bool:
    return pd.api.types.infer_dtype(column) in NUMBERS


def _parsed(column: "pd.Series[str]", *, day_first: bool) -> pd.DatetimeIndex | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pandas saying that it is guessing: that is asked of it
        for utc in (False, True):
            try:
                stamps = pd.DatetimeIndex(pd.to_datetime(column, dayfirst=day_first, utc=utc), name=column.name)
            except (ValueError, TypeError, OverflowError):
                continue
            return None if stamps.hasnans else stamps
    return None


def _orderliness(stamps: pd.DatetimeIndex) -> tuple[bool, bool]:
    """Whether they keep one step, and whether they come in order; those of a long frame come once per series."""
    once = stamps.unique()
    return _frequency(once.sort_values()) is not None, once.is_monotonic_increasing or once.is_monotonic_decreasing


# ---------------------------------------------------------------- long and wide


def widen(
    df: pd.DataFrame, *, id_column: str = "unique_id", time_column: str = "ds", value_column: str = "y"
) -> pd.DataFrame:
    """A long frame as a wide one: a column per id, in the order in which ids appear; absent pairs are NaN."""
    names = {"id": id_column, "time": time_column, "value": value_column}
    return spread(df, **names, day_first=None, source="the long frame")[0]


def is_long(frame: pd.DataFrame, *, id: str | None, value: str | None) -> bool:
    return id is not None or value is not None or set(frame.columns) >= LONG_COLUMNS


def spread(
    df: pd.DataFrame, *, id: str | None, time: str | None, value: str | None, day_first: bool | None, source: str
) -> tuple[pd.DataFrame, bool | None]:
    """As `widen`, of columns called unique_id, ds and y where not named, and how the dates were read."""
    id, time, value = id or "unique_id", time or "ds", value or "y"
    for name in (id, time, value):
        if name not in df.columns:
            raise InputError(f"{source} has no column {name!r}; its columns are {format_list(df.columns)}")
    stamps, day_first = stamps_of(df, time, day_first=day_first, source=source)
    df = df.assign(**{time: stamps})
    nobody = df[id].isna()
    if nobody.any():
        raise InputError(
            f"{int(nobody.sum())} rows have no {id!r}, the first at {stamps[nobody.to_numpy()][0]}; say whose they are "
            f"or drop them with df.dropna(subset=[{id!r}])"
        )
    twice = df.duplicated([id, time])
    if twice.any():
        first = df[twice].iloc[0]
        raise InputError(
            f"{int(twice.sum())} rows repeat an id and time, the first {first[id]!r} at {first[time]}; "
            f"keep one, for example with df.drop_duplicates([{id!r}, {time!r}])"
        )
    wide = df.pivot(index=time, columns=id, values=value)
    return wide[df[id].unique()], day_first


def lengthen(
    df: pd.DataFrame, *, id_column: str = "unique_id", time_column: str = "ds", value_column: str = "y"
) -> pd.DataFrame:
    """A wide frame as a long one, channel after channel; missing values stay rows, so nothing is lost."""
    return pd.DataFrame(
        {
            id_column: np.repeat(df.columns.to_numpy(), len(df)),
            time_column: df.index[np.tile(np.arange(len(df)), df.shape[1])],
            value_column: df.to_numpy().ravel(order="F"),
        }
    )


# ---------------------------------------------------------------- checking


def validate(df: pd.DataFrame, *, missing: str = "error") -> pd.DataFrame:
    """The frame as float64 with a regular index that knows its step, or a sentence on what is in the way.

    Rows that run backwards throughout, newest first, are turned round; any other disorder is refused, since it mostly
    means misread dates or pasted files. Missing values are dealt with by the policy `missing`, a name in POLICIES;
    with "mask" they stay NaN, for the caller to know where they were. Channels that never change bring a
    ConstantChannelWarning.
    """
    frame = _checked(df, missing=missing)
    constant = frame.columns[(frame.max() == frame.min()).to_numpy()]
    if len(constant):
        warnings.warn(
            f"these channels never change, their forecast is their constant: {format_list(constant)}",
            ConstantChannelWarning,
            stacklevel=2,
        )
    return frame


def _checked(df: pd.DataFrame, *, missing: str) -> pd.DataFrame:
    if missing not in POLICIES:
        raise unknown("policy for missing values", missing, POLICIES)
    check_columns(df)
    index = _check_index(df)
    regular = _regular(index) if isinstance(index, pd.DatetimeIndex) else _counted(index)
    if not len(df.columns):
        raise InputError("the frame has no columns; give one numeric column per channel")

    values = to_numbers(df.sort_index())  # at most a turn-round: any other disorder is refused above
    frame = pd.DataFrame(values, index=regular, columns=df.columns)
    _check_values(frame, missing)
    return filled(frame, missing)


def check_columns(df: pd.DataFrame) -> None:
    """Every column must have one name, of its own."""
    if df.columns.nlevels > 1:
        raise InputError(
            f"column names have {df.columns.nlevels} levels (a MultiIndex), the first {df.columns[0]!r}; make one name "
            "of each, for example with df.columns = [' '.join(map(str, name)) for name in df.columns]"
        )
    twice = df.columns[df.columns.duplicated()]
    if len(twice):
        raise InputError(f"column names must differ, but these are repeated: {format_list(twice)}")


def check_kind(index: pd.Index) -> None:
    """Rows are dated or numbered."""
    if isinstance(index, pd.PeriodIndex):
        raise InputError("the frame has a PeriodIndex; make stamps of its periods with df.to_timestamp()")
    if not (isinstance(index, pd.DatetimeIndex) or pd.api.types.is_integer_dtype(index.dtype)):
        raise InputError(
            f"the frame has neither dates nor whole numbers as its index but {index.dtype}; set it with "
            "df.set_index('your time column'), parsed by pandas.to_datetime"
        )


def _check_index(df: pd.DataFrame) -> pd.Index:
    """The stamps or numbers, oldest first; there must be enough of them, all known, all different, and in order."""
    index = df.index
    if set(df.columns) >= LONG_COLUMNS:
        raise InputError("the frame looks like a long frame: turn it with primecast.data.widen(df)")
    check_kind(index)
    if len(index) < SHORTEST:
        raise InputError(f"the frame has {len(index)} rows, but at least {SHORTEST} are needed")
    if index.hasnans:
        raise InputError(f"{np.count_nonzero(index.isna())} time stamps are missing (NaT); drop those rows")
    twice = index[index.duplicated()].unique()
    what = "time stamps" if isinstance(index, pd.DatetimeIndex) else "row numbers"
    if len(twice):
        raise InputError(
            f"{len(twice)} {what} occur more than once, the first {format_list(twice[:3])}; keep one row of each, "
            "for example with df[~df.index.duplicated()] or df.groupby(level=0).mean()"
        )
    if not (index.is_monotonic_increasing or index.is_monotonic_decreasing):
        late = int(np.flatnonzero(index[1:] < index[:-1])[0])
        raise InputError(
            f"{what} are not in order: {index[late + 1]} comes after {index[late]}; if the dates were read as "
            "meant, put them in order with df.sort_index()"
        )
    return index.sort_values()


def _counted(index: pd.Index) -> pd.RangeIndex:
    """An integer index that counts in equal steps, or the places where it does not."""
    numbers = index.to_numpy(dtype=np.int64)
    steps = np.diff(numbers)
    usual = int(np.bincount(steps - steps.min()).argmax() + steps.min()) if np.ptp(steps) < 1e6 else int(steps[0])
    breaks = np.flatnonzero(steps != usual)
    if len(breaks):
        shown = ", ".join(f"{numbers[i]} to {numbers[i + 1]}" for i in breaks[:3])
        raise InputError(
            f"row numbers are irregular: the usual step is {usual}, but {_steps(len(breaks))}, the first {shown}; "
            "rows are missing: df.reindex(range(...)) makes them gaps, which missing='interpolate' fills"
        )
    return pd.RangeIndex(numbers[0], numbers[-1] + usual, usual, name=index.name)


def _regular(index: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """The index with its freq, or the places where it breaks its step."""
    freq = _frequency(index)
    if freq is not None:
        return pd.DatetimeIndex(index, freq=freq)
    index = _bare(index)
    steps = index[1:] - index[:-1]
    usual = steps.to_series().mode().iloc[0]
    breaks = np.flatnonzero(steps != usual)
    shown = ", ".join(f"{index[i]} to {index[i + 1]}" for i in breaks[:3])
    calendar = _calendar(index, usual)
    alias = calendar or pd.tseries.frequencies.to_offset(usual).freqstr
    if calendar or ((index - index[0]) % usual == pd.Timedelta(0)).all():
        way_out = f"rows are missing: df.asfreq({alias!r}) makes them gaps, which missing='interpolate' fills"
    else:
        way_out = f"bring them to one step, for example with df.resample({alias!r}).mean()"
    raise InputError(
        f"time stamps are irregular: the usual step is {usual}, but {_steps(len(breaks))}, the first {shown}; {way_out}"
    )


def _calendar(index: pd.DatetimeIndex, usual: pd.Timedelta) -> str | None:
    """Of steps that are not all of one length: the calendar in which all stamps lie."""
    if usual == pd.Timedelta(days=1) and (index.day_of_week < 5).all():
        return "B"
    if usual >= pd.Timedelta(days=28) and index.is_month_start.all():
        return "MS"
    if usual >= pd.Timedelta(days=28) and index.is_month_end.all():
        return "ME"
    return None


def _frequency(index: pd.DatetimeIndex) -> pd.offsets.BaseOffset | None:
    """The step the index knows, or else the one its stamps show."""
    freq = index.freq
    # Of these two pandas has no name that it could read again, and of the first none at all.
    nameless = type(freq) is pd.DateOffset or (isinstance(freq, pd.offsets.Week) and freq.rule_code == "W")
    if freq is not None and not nameless:
        return freq
    return pd.DatetimeIndex(_bare(index), freq="infer").freq if len(index) >= SHORTEST else None


def _bare(index: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """The stamps alone: where there is a freq, pandas asks it instead of them, and fails if it is a DateOffset."""
    return pd.DatetimeIndex(index, freq=None)  # type: ignore[arg-type]  # pandas-stubs know no None


def _check_values(frame: pd.DataFrame, missing: str) -> None:
    infinite = np.isinf(frame.to_numpy())
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise InputError(
            f"{int(infinite.sum())} values are infinite, the first in {frame.columns[column]!r} at {frame.index[row]}; "
            "correct them or make them missing with df.replace([inf, -inf], nan)"
        )
    gaps = frame.isna().sum()
    empty = frame.columns[(gaps == len(frame)).to_numpy()]
    if len(empty):
        raise InputError(f"these channels have no value at all: {format_list(empty)}; drop them")
    if missing == "error" and gaps.any():
        counts = [f"{count} in {name}" for name, count in gaps[gaps > 0].items()]
        raise InputError(
            f"{int(gaps.sum())} values are missing: {format_list(counts)}; choose a policy, "
            f"missing='interpolate' ({POLICIES['interpolate']}), missing='ffill' ({POLICIES['ffill']}) or "
            f"missing='mask' ({POLICIES['mask']})"
        )


def filled(frame: pd.DataFrame, missing: str) -> pd.DataFrame:
    """A checked frame with its gaps filled as the policy says; "error" and "mask" leave them."""
    if missing in ("error", "mask"):
        return frame
    if missing == "interpolate":
        frame = frame.interpolate(method="time" if isinstance(frame.index, pd.DatetimeIndex) else "index")
    return frame.ffill().bfill()


# ---------------------------------------------------------------- time


def future_index(index: Index, horizon: int) -> Index:
    """The next `horizon` stamps, by the same calendar: business days skip week-ends, month ends stay month ends."""
    if horizon < 1:
        raise InputError(f"horizon must be at least 1 step, but {horizon} was given")
    if isinstance(index, pd.RangeIndex):
        return pd.RangeIndex(index.stop, index.stop + horizon * index.step, index.step, name=index.name)
    freq = _frequency(index)
    if freq is None:
        raise InputError(
            f"the step of these {len(index)} time stamps is unknown; pass the frame through validate first"
        )
    return pd.date_range(index[-1], periods=horizon + 1, freq=freq, name=index.name)[1:]


def season_of(index: Index) -> int:
    """Steps of the usual season: the day for what is measured within days, then the week, the year, or none (1).

    A season of which the rows do not hold two is none, and rows that are only numbered have none.
    """
    freq = None if isinstance(index, pd.RangeIndex) else _frequency(index)
    if freq is None:
        return 1
    season, rest = divmod(SEASONS.get(freq.rule_code.split("-")[0], 1), freq.n)
    return season if rest == 0 and 2 * season <= len(index) else 1


def describe_gaps(df: pd.DataFrame, *, missing: str = "interpolate") -> str:
    """One sentence on the missing values of a frame and on what became of them."""
    gaps = df.isna().sum().sort_values(ascending=False, kind="stable")
    freq = _frequency(df.index) if isinstance(df.index, pd.DatetimeIndex) else None
    steps = STEP_NAMES.get(freq.rule_code.split("-")[0], "rows") if freq is not None and freq.n == 1 else "rows"
    if not gaps.any():
        return f"no value is missing in {len(df)} {steps}"
    gaps = gaps[gaps > 0]
    share = "most" if len(gaps) > 3 else "all"
    *others, last = [f"{name} ({count})" for name, count in gaps.head(3).items()]
    where = f"{', '.join(others)} and {last}" if others else last
    became = {
        "error": "left as they are",
        "interpolate": "filled by time interpolation",
        "ffill": "filled forward",
        "mask": "filled forward to look at and left out of every error",
    }
    rows = int(df.isna().any(axis="columns").sum())
    return f"{rows} of {len(df)} {steps} have missing values, {share} of them in {where}, {became[missing]}"


def dataset_from_frame(df: pd.DataFrame, *, name: str = "", season: int | None = None) -> Dataset:
    """A frame as a data set, split 7:1:2, so that one's own data goes the same way as the benchmarks."""
    if season is not None and season < 1:
        raise InputError(f"season must be at least 1 step, but {season} was given")
    frame = _checked(df, missing="error")
    index = frame.index
    assert isinstance(index, pd.DatetimeIndex | pd.RangeIndex)
    return Dataset(
        name=name,
        values=frame.to_numpy(dtype=np.float64),
        index=index if isinstance(index, pd.DatetimeIndex) else None,
        names=tuple(map(str, frame.columns)),
        borders=Ratio(train=0.7, test=0.2),
        season=season_of(index) if season is None else season,
    )


def _steps(count: int) -> str:
    return "1 step differs" if count == 1 else f"{count} steps differ"
