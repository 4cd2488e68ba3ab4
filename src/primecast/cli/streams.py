"""Input and output of the commands: tables from files or stdin; CSV, JSON and text tables; messages on stderr."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from primecast.errors import InputError, format_list, unknown

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    DataFrame = Any  # tests check annotations at run time, which must not import pandas

STREAM = "-"
"""The name of stdin as an input and of stdout as an output."""
SHOWN = 20
"""Rows of a table that are printed; files and JSON have all of them."""


def say(text: str) -> None:
    """Print a message for people on stderr."""
    typer.echo(text, err=True)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print primecast's own warnings as one line each, without the place in the code."""
    from primecast.frames.future_covariates import UnknownFutureWarning
    from primecast.frames.validate import ConstantChannelWarning

    with warnings.catch_warnings():
        for kind in (ConstantChannelWarning, UnknownFutureWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_, **__: say(f"note: {message}")
        yield


# ---------------------------------------------------------------- input


def read(source: str | Path, *, time: str | None, dayfirst: bool | None) -> DataFrame:
    """Read a file, or stdin, as a wide frame."""
    from primecast.frames.read import read_table

    if str(source) != STREAM:
        try:
            return read_table(source, time=time, dayfirst=dayfirst)
        except OSError as error:
            raise InputError(f"cannot read {source}: {error.strerror or error}") from error
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.csv"
        path.write_bytes(sys.stdin.buffer.read())
        try:
            return read_table(path, time=time, dayfirst=dayfirst)
        except InputError as error:
            raise InputError(str(error).replace(str(path), "stdin")) from error


def read_described(
    source: str, *, time: str | None, dayfirst: bool | None, missing: str
) -> tuple[DataFrame, dict[str, Any]]:
    """Read a table, which the Forecaster checks; print and return what was found in it."""
    from primecast.frames.dates import frequency_in_words
    from primecast.frames.validate import POLICIES, describe_gaps
    from primecast.reporting.describe import stamp

    if missing not in POLICIES:
        raise unknown("policy for missing values", missing, POLICIES)
    frame = read(source, time=time, dayfirst=dayfirst)
    index = frame.index
    first, last = index.min(), index.max()
    found = {
        "source": "stdin" if source == STREAM else source,
        "rows": len(frame),
        "first": str(first),
        "last": str(last),
        "step": frequency_in_words(index),
        "time_column": index.name,
        "channels": [str(name) for name in frame.columns],
        "missing": int(frame.isna().to_numpy().sum()),
    }
    say(
        f"{found['source']}: {len(frame)} rows, {found['step']}, from {stamp(first)} to {stamp(last)} "
        f"(time column {index.name!r})\n"
        f"{len(frame.columns)} channels: {format_list(frame.columns)}; {describe_gaps(frame, missing=missing)}"
    )
    return frame, found


# ---------------------------------------------------------------- output


def write_csv(frame: DataFrame, out: str, *, index: bool = True) -> None:
    """Write a frame to a file or to stdout."""
    text = frame.to_csv(index=index, index_label=str(frame.index.name or "time"), lineterminator="\n")
    if out == STREAM:
        typer.echo(text, nl=False)
        return
    from primecast.storage.atomic import write_bytes_atomically

    write_bytes_atomically(Path(out), text.encode())
    say(f"wrote {out}")


def print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, allow_nan=False))


def json_values(frame: DataFrame) -> DataFrame:
    """Return a frame of plain Python values; NaN, which JSON does not have, becomes None."""
    return frame.astype(object).where(frame.notna(), None)


def json_rows(frame: DataFrame, name: str) -> list[dict[str, Any]]:
    """Return one dictionary per row; `name` is the key of the index."""
    rows: Any = json_values(frame.rename_axis(name).reset_index().rename(columns=str)).to_dict(orient="records")
    return rows


def print_table(frame: DataFrame, *, title: str, name: str | None = None) -> None:
    """Print the first rows in columns; `name` is the heading of the index, which is left out without one."""
    shown = frame.head(SHOWN) if name is None else frame.head(SHOWN).rename_axis(name).reset_index()
    typer.echo(title)
    if len(shown):
        typer.echo(shown.to_string(index=False, float_format="{:.4g}".format))
    if len(frame) > SHOWN:
        typer.echo(f"... {len(frame) - SHOWN} more; --out or --json have all")
