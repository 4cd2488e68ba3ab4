"""Files: from a CSV, Parquet, Feather or Excel file to its table as it stands there; numbers in text become numbers.

The ending of the name says what a file is; what it begins with refuses files of other programs in a sentence.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from primecast.data.formats import uncompressed
from primecast.errors import InputError, check_known
from primecast.frames.binary_files import check_excel, check_feather, check_parquet
from primecast.frames.numbers import decimal_sign, joined_names, make_missing
from primecast.frames.text_files import FileFormat, read_text, with_numbers
from primecast.storage.atomic import refuse_os_errors

HEADERS = ("infer", 0, None)
"""Whether the first row has the names: yes unless it looks like data, yes, no."""
LONGEST_PATH = 1024
LONGEST_REASON = 200
"""Characters of what a reader of another package says of a damaged file."""


def path_of(given: str | Path) -> Path:
    """Return the path of a file that is there; refuse the text of a table, a folder, a device."""
    text = str(given)
    if "\n" in text or "\0" in text or len(text) > LONGEST_PATH:
        raise InputError(
            f"{text[:20]!r}... ({len(text)} characters) is no path but looks like the text of a table; write it to a "
            "file, or give pandas.read_csv(io.StringIO(text))"
        )
    path = Path(text)
    with refuse_os_errors(f"read {text!r}"):  # of a name that no file can have
        if path.is_file():
            return path
        if path.exists():
            kind = "a folder" if path.is_dir() else "no regular file"
            raise InputError(f"{text!r} is {kind}; give the path of a table")
    raise InputError(f"there is no file {text!r}{'; download it first' if '://' in text else ''}")


def read_file(
    path: Path, *, header: int | str | None, decimal: str | None, na: Sequence[object] = ()
) -> tuple[pd.DataFrame, FileFormat]:
    """Return the table of a file and how it was written. header, decimal, na: see `open_table`."""
    if header not in HEADERS:
        raise InputError(
            f"header is {header!r}; it must be 'infer', 0 (the first row has the names) or None (no names)"
        )
    if decimal is not None:
        check_known("decimal sign", decimal, (".", ","))
    ending = path.suffix.lower()
    if ending == ".xlsx":
        frame, remarks = _read_binary(path, "an Excel", "openpyxl", lambda one: _read_excel(one, header))
        if decimal is None:
            decimal = decimal_sign(frame, semicolons=False, path=path)
        frame, form = with_numbers(frame, decimal=decimal, na=na)
        return frame, FileFormat(decimal, (*remarks, *form.remarks), form.units)
    if ending in BINARY:
        return make_missing(_read_binary(path, *BINARY[ending]), na), FileFormat()
    content = uncompressed(path)
    for beginning, remedy in FOREIGN.items():
        if content.lstrip()[: len(beginning)] == beginning:
            raise InputError(f"{path} is no CSV but {remedy}")
    return read_text(path, content, header=header, decimal=decimal, na=na)


FOREIGN: dict[bytes, str] = {
    b"{": "JSON; make a CSV of it with pandas.read_json(path).to_csv('data.csv')",
    b"[{": "JSON; make a CSV of it with pandas.read_json(path).to_csv('data.csv')",
    b"PAR1": "Parquet; give its name the ending .parquet",
    b"ARROW1": "Feather; give its name the ending .feather",
    b"\xd0\xcf\x11\xe0": "an Excel file of before 2007; save it as .xlsx or as CSV",
    b"PK\x03\x04": "Excel; give its name the ending .xlsx",
    b"\x1f\x8b": "packed by gzip; give its name the ending .gz",
    b"\x89HDF": "HDF5 or NetCDF; make a CSV of it with pandas.read_hdf or xarray",
    b"CDF": "NetCDF; make a CSV of it with xarray.open_dataset(path).to_dataframe().to_csv('data.csv')",
    b"\x93NUMPY": "an array of numpy; give fit the array, numpy.load(path)",
    b"<": "HTML or XML; save the table as CSV",
    b"%PDF": "PDF; save the table as CSV",
}
"""What a file of another program begins with -> what it is, and what to do with it."""


# ---------------------------------------------------------------- Parquet, Feather, Excel


def _read_excel(path: Path, header: int | str | None) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the table of the fullest sheet, below the titles that stand above its names."""
    check_excel(path)
    sheets = pd.read_excel(path, engine="openpyxl", sheet_name=None, header=None)
    sheet, cells = max(sheets.items(), key=lambda item: int(item[1].notna().to_numpy().sum()))
    remarks = [f"sheet {sheet!r} of {len(sheets)}"] if len(sheets) > 1 else []
    cells = cells.dropna(axis=0, how="all").dropna(axis=1, how="all").reset_index(drop=True)
    if not len(cells):
        raise InputError(f"{path} has no cell with a value")
    counts = cells.notna().sum(axis=1)
    usual = int(counts[len(counts) // 2 :].mode().iloc[-1])
    corner = (counts == usual - 1) & cells[cells.columns[0]].isna()  # the dates have no name
    first = int(((counts >= usual) | corner).to_numpy().argmax())
    if first:
        remarks.append(f"{first} row{'s' * (first > 1)} above the names left out")
    names = [f"channel {number}" for number in range(cells.shape[1])]
    if header is not None:
        names, given = [], [_name(cell, number) for number, cell in enumerate(cells.iloc[first])]
        for number, name in enumerate(given):
            names.append(name if name not in names else f"{name}.{given[:number].count(name)}")  # as pandas does
        if first and names != given:
            above = ["" if pd.isna(cell) else str(cell).strip() for cell in cells.iloc[first - 1]]
            given[0] = "" if given[0] == "Unnamed: 0" else given[0]
            if (joined := joined_names(above, given)) is not None:
                names, remarks = joined, [*remarks, "two rows of names"]
        first += 1
    frame = cells.iloc[first:].reset_index(drop=True).set_axis(names, axis=1).infer_objects()
    return frame, tuple(remarks)


def _name(cell: object, number: int) -> str:
    """Return the name of a column as CSV files have it: text, 13 for 13.0."""
    if pd.isna(cell):  # type: ignore[call-overload]  # of one cell
        return f"Unnamed: {number}"
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


def _read_parquet(path: Path) -> pd.DataFrame:
    check_parquet(path)
    return pd.read_parquet(path, engine="pyarrow")


def _read_feather(path: Path) -> pd.DataFrame:
    check_feather(path)
    return pd.read_feather(path)


BINARY: dict[str, tuple[str, str, Callable[[Path], pd.DataFrame]]] = {
    ".parquet": ("a Parquet", "pyarrow", _read_parquet),
    ".pq": ("a Parquet", "pyarrow", _read_parquet),
    ".feather": ("a Feather", "pyarrow", _read_feather),
}
"""Ending of a file -> what it is, the package that pandas needs for it, its reader."""
EXTRAS = {"pyarrow": "parquet", "openpyxl": "excel"}


def _read_binary(path: Path, kind: str, package: str, reader: Callable[[Path], Any]) -> Any:
    try:
        import_module(package)
        return reader(path)
    except ImportError as error:
        raise InputError(
            f"reading {path} needs {package}: pip install 'primecast[{EXTRAS[package]}]', or save it as CSV"
        ) from error
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path} is not {kind} table: {error}") from error
    except (MemoryError, RecursionError) as error:
        raise InputError(f"{path} takes more memory to read than there is; save it as CSV") from error
    except Exception as error:  # what a reader of another package says of a damaged file may be of any kind
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is not {kind} table: {reason[:LONGEST_REASON]}") from error
