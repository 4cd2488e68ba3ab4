"""Files: from a CSV, Parquet, Feather or Excel file to its table as it stands there; numbers in text become numbers.

Of a text file the encoding (UTF-8, UTF-16, else Latin-1), the separator (comma, semicolon, tab, bar or white space),
the decimal sign and the thousands separators are found. Where the cells allow two readings, `decimal` must say so.
"""

import io
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from primecast.data.formats import MOST_BYTES, uncompressed
from primecast.errors import InputError, check_known

HEADERS = ("infer", 0, None)
"""Whether the first row has the names: yes unless it looks like data, yes, no."""
SEPARATORS = ",;\t|"
NOTHING = ["?", "-", "--"]
"""Cells that stand for a missing value, beside those that pandas knows, such as NA and the empty cell."""
LONGEST_PATH = 1024
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
THOUSANDS = r"(?!0)\d{1,3}(?:,\d{3})+"
SPACES = r"[\s'\u2019\u00a0\u202f]"  # between groups of three digits in many countries


@dataclass(frozen=True)
class FileFormat:
    """How a file was written. remarks: what is worth saying of it."""

    decimal: str | None = None
    remarks: tuple[str, ...] = ()


def is_text(column: "pd.Series[str]") -> bool:
    """Return whether the column may hold text."""
    return pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)


def path_of(given: str | Path) -> Path:
    """Return the path of a file that is there; refuse the text of a table, a folder, a device."""
    text = str(given)
    if "\n" in text or "\0" in text or len(text) > LONGEST_PATH:
        raise InputError(
            f"{text[:20]!r}... ({len(text)} characters) is no path but looks like the text of a table; write it to a "
            "file, or give pandas.read_csv(io.StringIO(text))"
        )
    path = Path(text)
    if path.is_file():
        return path
    if path.exists():
        raise InputError(f"{text!r} is {'a folder' if path.is_dir() else 'no regular file'}; give the path of a table")
    raise InputError(f"there is no file {text!r}")


def read_file(path: Path, *, header: int | str | None, decimal: str | None) -> tuple[pd.DataFrame, FileFormat]:
    """Return the table of a file and how it was written. header, decimal: see `open_table`."""
    if header not in HEADERS:
        raise InputError(
            f"header is {header!r}; it must be 'infer', 0 (the first row has the names) or None (no names)"
        )
    if decimal is not None:
        check_known("decimal sign", decimal, (".", ","))
    if path.suffix in BINARY:
        kind, package, reader = BINARY[path.suffix]
        return _read_binary(path, kind, package, reader), FileFormat()
    return _read_text(path, header=header, decimal=decimal)


# ---------------------------------------------------------------- Parquet, Feather, Excel


def _read_excel(path: Path) -> pd.DataFrame:
    with zipfile.ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > MOST_BYTES:
        raise InputError(f"{path} unpacks to {size} bytes; at most {MOST_BYTES} are read; save it as CSV")
    return pd.read_excel(path, engine="openpyxl")


def _read_parquet(path: Path) -> pd.DataFrame:
    found = import_module("pyarrow.parquet").read_metadata(path)
    if found.num_rows * found.num_columns * 8 > 8 * MOST_BYTES:
        raise InputError(
            f"{path} says {found.num_rows} rows of {found.num_columns} columns, more than are read at once"
        )
    return pd.read_parquet(path, engine="pyarrow")


BINARY: dict[str, tuple[str, str, Callable[[Path], pd.DataFrame]]] = {
    ".parquet": ("a Parquet", "pyarrow", _read_parquet),
    ".pq": ("a Parquet", "pyarrow", _read_parquet),
    ".feather": ("a Feather", "pyarrow", pd.read_feather),
    ".xlsx": ("an Excel", "openpyxl", _read_excel),
}
"""Ending of a file -> what it is, the package that pandas needs for it, its reader."""
EXTRAS = {"pyarrow": "parquet", "openpyxl": "excel"}


def _read_binary(path: Path, kind: str, package: str, reader: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    try:
        import_module(package)
        return reader(path)
    except ImportError as error:
        raise InputError(
            f"reading {path} needs {package}: pip install 'primecast[{EXTRAS[package]}]', or save it as CSV"
        ) from error
    except InputError:
        raise
    except (ValueError, OSError, KeyError, NotImplementedError, zipfile.BadZipFile) as error:  # pyarrow's are of these
        raise InputError(f"{path} is not {kind} table: {error}") from error


# ---------------------------------------------------------------- text


def _read_text(path: Path, *, header: int | str | None, decimal: str | None) -> tuple[pd.DataFrame, FileFormat]:
    content, encoding = _as_utf8(uncompressed(path))
    start = content[: 1 << 16].decode("utf-8", errors="ignore")
    lines = [line for line in start.splitlines() if line.strip()][:50]
    sep = _separator(lines)
    if header == "infer" and lines:
        _check_header(lines[0], sep, path)

    def parse(sign: str) -> pd.DataFrame:
        try:
            return _parse(content, sep=sep, decimal=sign, header=None if header is None else 0)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
            raise InputError(f"{path} is not a CSV table: {str(error).strip()}") from error

    frame = parse(decimal or ".")
    if decimal is None:
        decimal = _decimal_sign(frame, semicolons=sep == ";", path=path)
        frame = parse(",") if decimal == "," else frame
    remarks = [f"read as {encoding}"] if encoding else []
    remarks += ["decimal commas"] if decimal == "," else []
    for name in frame.columns:
        if is_text(frame[name]):
            frame[name] = numbers_in_text(frame[name], decimal=decimal)
    empty = frame.isna().all(axis="columns")
    if empty.any() and len(frame.columns):
        frame = frame[~empty].reset_index(drop=True)
        remarks.append(f"{int(empty.sum())} empty rows left out")
    return frame, FileFormat(decimal, tuple(remarks))


def _as_utf8(content: bytes) -> tuple[bytes, str | None]:
    """Return a text in UTF-8 without a byte order mark, and the name of its encoding where that is another."""
    if content.startswith(b"\xef\xbb\xbf"):
        content = content[3:]
    wide = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}.get(content[:2])
    if wide is None and len(content) > 3 and content[0] and content[2] and not (content[1] or content[3]):
        wide = "utf-16-le"  # without its mark
    for encoding, name in (
        (wide or "utf-8", "UTF-16" if wide else None),
        ("cp1252", "Latin-1"),
        ("latin-1", "Latin-1"),
    ):
        try:
            text = content.decode(encoding)
        except UnicodeError:
            continue
        return (content if name is None else text.encode("utf-8", errors="replace")), name
    raise AssertionError("Latin-1 gives every byte a meaning")


def _separator(lines: Sequence[str]) -> str:
    """Return the separator of the header; white space where it has no other and the next row has as many words."""
    if not lines:
        return ","
    bare = [re.sub(r'"[^"]*"', "q", line) for line in lines[:2]]
    sep = max(SEPARATORS, key=bare[0].count)
    words = [line.split() for line in bare]
    if sep == "," and len(words[0]) > 1 and all(re.fullmatch(r"[+-]?\d*,?\d+", word) for word in words[0]):
        return r"\s+"  # numbers with decimal commas between blanks, and no header
    # R writes names of rows, but no name above them.
    if sep not in bare[0] and len(words[0]) > 1 and len(words[-1]) - len(words[0]) in (0, 1):
        return r"\s+"
    return sep


def _parse(content: bytes, *, sep: str, decimal: str, header: int | None) -> pd.DataFrame:
    def parsed(index_col: bool | None) -> pd.DataFrame:
        return pd.read_csv(
            io.BytesIO(content), sep=sep, decimal=decimal, header=header, index_col=index_col, low_memory=False,
            skipinitialspace=True, na_values=NOTHING, encoding="utf-8",
        )  # fmt: skip

    frame = parsed(None)
    if frame.index.nlevels > 1:
        raise InputError(f"its rows have {frame.index.nlevels} cells more than its header")
    if not isinstance(frame.index, pd.RangeIndex):  # each row has one cell more than the header
        trailing = frame.shape[1] > 0 and frame.iloc[:, -1].isna().all()
        frame = parsed(index_col=False) if trailing else frame.reset_index(names="Unnamed: 0")
    if header is None:
        return frame.set_axis([f"channel {number}" for number in range(frame.shape[1])], axis=1)
    return frame.rename(columns=lambda name: str(name).strip())


def _check_header(line: str, sep: str, path: Path) -> None:
    """Refuse a first row of numbers and dates alone: the file has no names."""
    cells = [cell.strip().strip('"').strip() for cell in re.split(re.escape(sep) if sep in SEPARATORS else sep, line)]
    known = [cell for cell in cells if cell]
    # A word makes it a header; so do whole numbers beside one, which are names of sensors or series.
    if known and all(re.fullmatch(rf"{NUMBER}|[+-]?\d*,\d+|\d[\d.:/T+Z -]*\d", cell) for cell in known):
        raise InputError(
            f"the first row of {path} holds no names but {', '.join(known[:3])}{', ...' if known[3:] else ''}; if the "
            "file has no header give header=None, if these are names header=0"
        )


# ---------------------------------------------------------------- numbers in text


def _decimal_sign(frame: pd.DataFrame, *, semicolons: bool, path: Path) -> str:
    """Return the decimal sign that the cells show; refuse a file in which 1,234 may be either number."""
    doubtful = None
    for name in frame.columns:
        if not is_text(frame[name]):
            continue
        cells = frame[name].dropna().astype(str).str.strip()
        cells = cells[cells.str.contains(",", regex=False)]
        if not len(cells) or not cells.str.fullmatch(r"[+-]?[\d.,'\s]*\d[\d.,'\s]*(?:[eE][+-]?\d+)?").all():
            continue
        if cells.str.contains(r",\d{3}\.\d", regex=True).any():
            return "."
        if semicolons or not cells.str.fullmatch(rf"[+-]?{THOUSANDS}").all():
            return ","
        doubtful = doubtful or (name, cells.iloc[0])
    floats = frame.select_dtypes("float").to_numpy()
    fractions = (np.isfinite(floats) & (floats != np.floor(floats))).any()
    if doubtful is not None and not fractions:
        thousands, fraction = doubtful[1].replace(",", ""), doubtful[1].replace(",", ".")
        raise InputError(
            f"{doubtful[1]!r} in column {doubtful[0]!r} of {path} may be {thousands} or {fraction}, and no other cell "
            "decides it; choose with decimal='.' or decimal=','"
        )
    return "."


def numbers_in_text(column: "pd.Series[str]", *, decimal: str = ".") -> "pd.Series[float] | pd.Series[str]":
    """Return a column of text as numbers if all its cells are numbers, padded or with thousands separators."""
    cells = column.where(column.isna(), column.astype(str).str.strip())
    cells = cells.mask(cells.isin([*NOTHING, "", "NA", "NaN", "nan", "null", "NULL", "N/A", "n/a"]))
    group, sign = (r"\.", ",") if decimal == "," else (",", r"\.")
    for separator in (group, SPACES):
        grouped = (
            cells.str.fullmatch(rf"[+-]?\d{{1,3}}(?:{separator}\d{{3}})+(?:{sign}\d*)?").fillna(False).astype(bool)
        )
        cells = cells.mask(grouped, cells.str.replace(separator, "", regex=True))
    if decimal == ",":
        cells = cells.mask(cells.str.contains(r"\.", regex=True).fillna(False).astype(bool), "x")
        cells = cells.str.replace(",", ".", regex=False)
    known = cells.notna()
    if not known.any() or not cells[known].str.fullmatch(NUMBER).all():
        return column
    return pd.to_numeric(cells).astype(np.float64)
