"""Text files: from the bytes of a CSV to its table as it stands there.

Found are the encoding (UTF-8, UTF-16, else Latin-1), what stands above the names (comments, titles), the separator
(comma, semicolon, tab, bar or white space), the decimal sign, thousands separators, and units in cells or under the
names. Where the cells allow two readings, `decimal` must say so.
"""

import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from primecast.data.formats import PACKED
from primecast.errors import InputError, format_list, show
from primecast.frames.date_columns import holds_dates
from primecast.frames.numbers import (
    DATA,
    NOTHING,
    decimal_sign,
    is_text,
    make_missing,
    numbers_in_text,
    with_two_rows_of_names,
    without_unit,
    without_unit_rows,
)
from primecast.frames.time_columns import TIME_NAMES, part_of, turn_the_table

SEPARATORS = ",;\t|"
COMMENTS = ("#", "%")
MOST_CELLS = 1 << 24
"""Of a table in a compressed file that is smaller: each takes up to 50 bytes of memory, and may be hardly any in it."""
MOST_COLUMNS = 1 << 16
MOST_FOOTER = 3
"""Rows below the last date, at most, that are left out."""
MOST_ABOVE = 50
"""Lines at the start of a file among which titles and names are looked for."""
MOST_TITLE = 2
"""Cells of a title: what it names, and its value."""
RULE = re.compile(r"\s*[|+]?[-=]{2}[-=+|:\s]*")
"""A line that is drawn between names and rows by programs that print tables."""
ANNOTATIONS = ("#group", "#datatype", "#default")
"""Lines of InfluxDB above the names of each of its tables."""
NO_NAMES = ("", *NOTHING, "na", "n/a", "#n/a", "nan", "null", "none", "true", "false", *("inf", "-inf", "+inf"))
"""Words, in lower case, that stand among numbers and name nothing."""
FULL_DATE = r"\d{4}|\d *[-./] *\d+ *[-./] *\d|\d[ -]?[A-Za-z]{3,}[ -]?\d"
MOST_DATES_AS_NAMES = 2
"""Dates in the row of names: more are those of a table that has a row for each series."""
MINUS = "\u2212".encode() + rb"(?=[\d.,])"
"""The minus sign of typesetters before a number."""
DATA_TOO = r"[+-]?\d+(?:\.\d*)? *%|[+-]?\d*(?:,\d+)+(?:\.\d*)?"


@dataclass(frozen=True)
class FileFormat:
    """How a file was written. remarks: what is worth saying of it. units: column -> unit."""

    decimal: str | None = None
    remarks: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)


def read_text(
    path: Path, content: bytes, *, header: int | str | None, decimal: str | None, na: Sequence[object]
) -> tuple[pd.DataFrame, FileFormat]:
    """Return the table of a text file and how it was written; see `open_table`."""
    content, encoding = _as_utf8(content)
    content = re.sub(MINUS, b"-", content)
    if not content.strip():
        raise InputError(f"{path} is empty")
    if b"\0" in content[: 1 << 16]:
        raise InputError(f"{path} is no text; give a CSV, Parquet, Feather or Excel file")
    content, remarks = _from_names_on(content)
    start = content[: 1 << 16].decode("utf-8", errors="ignore")
    lines = [line for line in start.splitlines() if line.strip()][:50]
    sep = _separator(lines)
    _check_size(content, sep, path)
    if header == "infer" and lines:
        _check_header(lines, sep, path)

    def parse(sign: str) -> pd.DataFrame:
        try:
            return _parse(content, sep=sep, decimal=sign, header=None if header is None else 0)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
            raise InputError(
                f"{path} is not a CSV table: {str(error).strip()}; delete the lines above the names and below the rows"
            ) from error

    frame = parse(decimal or ".")
    if decimal is None:
        decimal = decimal_sign(_bare(frame)[0], semicolons=sep == ";", path=path)
        frame = parse(",") if decimal == "," else frame
    if encoding:
        remarks.append(f"read as {encoding}")
    if decimal == ",":
        remarks.append("decimal commas")
    empty = frame.isna().all(axis="columns")
    if empty.any() and len(frame.columns):
        frame = frame[~empty].reset_index(drop=True)
        remarks.append(f"{int(empty.sum())} empty rows left out")
    frame, form = with_numbers(frame, decimal=decimal, na=na)
    return frame, FileFormat(decimal, (*remarks, *form.remarks), form.units)


def with_numbers(frame: pd.DataFrame, *, decimal: str, na: Sequence[object]) -> tuple[pd.DataFrame, FileFormat]:
    """Return a table with numbers where its text means numbers, and what was found: units, rows of units."""
    frame, above = without_unit_rows(frame)
    frame, above, joined = with_two_rows_of_names(frame, above)
    frame, below = _without_footer(frame)
    remarks = [*(["two rows of names"] if joined else []), *below]
    if above:
        texts = [" ".join(text for text in row.values() if text) for row in above]
        remarks.append(f"left out under the names: {format_list([repr(text) for text in texts])}")
    frame, units = _bare(make_missing(frame, na))
    for name in frame.columns:
        if is_text(frame[name]):
            frame[name] = numbers_in_text(frame[name], decimal=decimal)
    frame = make_missing(frame, na)  # -9999,0 is a number by now
    if units:
        remarks.append(f"units: {format_list([f'{unit} of {name}' for name, unit in units.items()])}")
    elif len(above) == 1:
        units = {name: unit for name, unit in above[0].items() if unit}
    return frame, FileFormat(decimal, tuple(remarks), units)


def _without_footer(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the frame without the last rows that have no date where all others do, such as sums; and what is said."""
    names = sorted(frame.columns, key=lambda name: str(name).strip().lower() not in TIME_NAMES)
    text = [name for name in names if is_text(frame[name])] if len(frame) > 2 * MOST_FOOTER else []
    time = next((name for name in text if holds_dates(frame[name].head(MOST_FOOTER))), None)
    ends = range(MOST_FOOTER + 1) if time is not None else ()
    count = next((row for row in ends if holds_dates(frame[time].iloc[[-1 - row]])), 0)
    if not count:
        return frame, []
    words = " ".join(str(cell).strip() for cell in frame.iloc[-count].dropna()[:1])
    said = f"{count} row{'s' * (count > 1)} below the last date left out: {show(words)}"
    return frame.iloc[:-count].infer_objects(), [said]


def _bare(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return a copy without the units in cells, and those units."""
    frame, units = frame.copy(), dict[str, str]()
    for name in frame.columns:
        if is_text(frame[name]):
            frame[name], unit = without_unit(frame[name])
            units |= {str(name): unit} if unit else {}
    return frame, units


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


# ---------------------------------------------------------------- names and what stands above them


def _from_names_on(content: bytes) -> tuple[bytes, list[str]]:
    """Return a text without the comments and titles above the names, or the first row; and what is to be said."""
    content = _one_table(content)
    lines = content[: 1 << 16].decode("utf-8", errors="ignore").split("\n")
    ruled = [number for number, line in enumerate(lines[:MOST_ABOVE]) if RULE.fullmatch(line)]
    if ruled:
        kept = (line for number, line in enumerate(content.split(b"\n")) if number not in ruled)
        content = b"\n".join(kept)
        lines = [line for number, line in enumerate(lines) if number not in ruled]
    first = 0
    while first < len(lines) and (not lines[first].strip() or _is_comment(lines[first])):
        first += 1
    if first == len(lines):
        return content, []
    table = [line for line in lines[first:] if line.strip()][:50]
    sep = _separator(table)
    comments = [line.strip().lstrip("#").strip() for line in lines[:first] if line.strip()]
    named = len(comments) > 0 and [line for line in lines[:first] if line.strip()][-1].strip().startswith("#")
    if named and is_data(table[0], sep) and len(cells(comments[-1], sep)) == len(cells(table[0], sep)):
        # Names that begin with a year may have their units below them, which do, too: YY MM DD, yr mo dy.
        starts = [part_of(cells(row, sep)[0]) == "year" for row in comments[-2:]]
        names = comments[-2:] if starts == [True, True] else comments[-1:]
        rest = content.split(b"\n", first)[first]
        return "\n".join([*names, ""]).encode() + rest, ["names from the comment above the rows"]
    first += _titles(lines[first:])
    said = sum(bool(line.strip()) for line in lines[:first])
    return content.split(b"\n", first)[first], [
        f"{said} line{'s' * (said > 1)} above the names left out"
    ] if said else []


def _one_table(content: bytes) -> bytes:
    """Return the tables of InfluxDB, each with annotations and the same names, as one table; another text as it is."""
    if not content.startswith(tuple(one.encode() for one in ANNOTATIONS)):
        return content
    lines = [line for line in content.split(b"\n") if line.strip() and not line.startswith(b"#")]
    return b"\n".join([*lines[:1], *(line for line in lines[1:] if line != lines[0])])


def _is_comment(line: str) -> bool:
    """Return whether a first line is a comment, or the separator as Excel writes it; "#" alone may name a column."""
    return bool(re.match(r"\s*(#(?!\s*[,;\t|])|%\s)|sep=.\s*$", line))


def _titles(lines: Sequence[str]) -> int:
    """Return the number of lines above the first one that has as many separators as the rows."""
    bare = [re.sub(r'"[^"]*"', "q", line).strip("\r") for line in lines]
    shown = [number for number, line in enumerate(bare) if line.strip()][:MOST_ABOVE]
    counted = {sep: [bare[number].count(sep) for number in shown] for sep in SEPARATORS}
    if not any(_usual(counts) for counts in counted.values()):
        counted = {r"\s+": [len(bare[number].split()) - 1 for number in shown]}
    starts = []
    for sep, counts in counted.items():
        usual = _usual(counts)
        if usual:
            place = _below_padded([cells(lines[number], sep) for number in shown], counts.index(usual))
            # Names hold no numbers. Where the first such line does, the one above it is the header: that of R is one
            # shorter than its rows, others have empty columns at their end.
            titles = not any(re.fullmatch(DATA, cell) for cell in cells(lines[shown[place]], sep))
            starts.append((shown[place] if titles else 0, -usual))
    return min(starts)[0] if starts else 0


def _usual(counts: Sequence[int]) -> int:
    """Return what most lines of a table count, of which the later ones are surely rows."""
    return Counter(counts[len(counts) // 2 :]).most_common(1)[0][0]


def _below_padded(rows: Sequence[Sequence[str]], first: int) -> int:
    """Return the first row that is no title padded with empty cells, "Station;Potsdam;;;", as spreadsheets write it."""
    full = _usual([sum(map(bool, row)) for row in rows])

    def is_title(row: Sequence[str]) -> bool:
        count = sum(map(bool, row))
        return count < full and count <= MOST_TITLE and all(row[:count])

    after = next((place for place in range(first, len(rows)) if not is_title(rows[place])), first)
    return first if any(re.fullmatch(DATA, cell) for cell in rows[after]) else after


def cells(line: str, sep: str) -> list[str]:
    parts = re.split(re.escape(sep) if sep in SEPARATORS else sep, line.strip("\r\n"))
    return [part.strip().strip('"').strip() for part in parts]


def is_data(line: str, sep: str) -> bool:
    """Return whether a row holds numbers and dates alone."""
    known = [cell for cell in cells(line, sep) if cell]
    return bool(known) and all(re.fullmatch(DATA, cell) for cell in known)


def _check_header(lines: Sequence[str], sep: str, path: Path) -> None:
    """Refuse a first row of numbers and dates alone: the file has no names."""
    # A word makes it a header; so do whole numbers beside one, which are names of sensors or series.
    known = [cell for cell in cells(lines[0], sep) if cell]
    if not (any(map(_is_date, known)) or names_nothing(known)):
        return
    first = cells(lines[1], sep)[0] if len(lines) > 1 else ""
    corner = not cells(lines[0], sep)[0] and re.fullmatch(r"\d{1,4}[-./]\d{1,2}[-./]\d.*", first)
    if corner and all(re.fullmatch(r"\d+", cell) for cell in known):
        return  # pandas leaves the name of the dates empty
    if not re.fullmatch(DATA, known[0]) and sum(map(_is_date, known[1:])) > MOST_DATES_AS_NAMES:
        raise InputError(turn_the_table(path))
    raise InputError(
        f"the first row of {path} holds no names but {', '.join(known[:3])}{', ...' if known[3:] else ''}; if the "
        "file has no header give header=None, if these are names header=0"
    )


def _check_size(content: bytes, sep: str, path: Path) -> None:
    """Refuse a table of more columns than a model has channels, and a packed one that would fill the memory."""
    sign = sep.encode() if sep in SEPARATORS else b" "
    columns = content.partition(b"\n")[0].count(sign) + 1
    if columns > MOST_COLUMNS:
        raise InputError(f"{path} has {columns} columns, and at most {MOST_COLUMNS} are read")
    cells = content.count(sign) + content.count(b"\n")
    if path.suffix in PACKED and cells > most_cells(path):
        raise InputError(f"{path} has {cells} cells, and packed at most {most_cells(path)} are read; unpack it first")


def most_cells(path: Path) -> int:
    """Return how many cells a compressed file may have: one for each of its bytes, or a number that does no harm."""
    return max(MOST_CELLS, path.stat().st_size)


def names_nothing(row: Sequence[str]) -> bool:
    """Return whether all cells are numbers, dates or stand for nothing: a row of data.

    A word makes it a row of names; so do whole numbers beside one, which are names of sensors or series.
    """
    data = [cell for cell in row if re.fullmatch(rf"{DATA}|{DATA_TOO}", cell) or _is_date(cell)]
    return bool(data) and all(cell in data or cell.lower() in NO_NAMES for cell in row)


def _is_date(cell: str) -> bool:
    """Return whether a cell is a date with a year, a month and a day; pandas takes a 7 and a May for dates, too."""
    full = len(re.findall(r"\d+", cell)) > 1 and re.search(FULL_DATE, cell)
    return bool(full) and holds_dates(pd.Series([cell]))


# ---------------------------------------------------------------- separator and cells


def _separator(lines: Sequence[str]) -> str:
    """Return the separator of the header; white space where it has no other and the next row has as many words."""
    if not lines:
        return ","
    bare = [re.sub(r'"[^"]*"', "q", line) for line in lines[:2]]
    # As often as semicolons between numbers stand the commas within them: then it is the one that leaves numbers whole.
    sep = max(SEPARATORS, key=lambda one: (bare[0].count(one), one in bare[0] and names_nothing(cells(lines[0], one))))
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
