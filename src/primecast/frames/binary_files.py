"""How large the table of a Parquet, Feather or Excel file is, found before it is read: few bytes can hold a large one.

Their sizes are stated in several places, which need not agree in a file that is damaged or meant to hurt; what is
checked here is what the readers allocate by.
"""

import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from xml.parsers import expat

from primecast.data.formats import MOST_BYTES
from primecast.errors import InputError
from primecast.frames.text_files import MOST_CELLS, MOST_COLUMNS, most_cells

MAGIC = b"ARROW1"


def check_parquet(path: Path) -> None:
    """Refuse a Parquet file whose table has more cells or takes more memory than is read at once."""
    parquet, compute = import_module("pyarrow.parquet"), import_module("pyarrow.compute")
    types = import_module("pyarrow.types")
    with parquet.ParquetFile(path) as file:
        found, schema = file.metadata, file.schema_arrow
        groups = [found.row_group(number) for number in range(found.num_row_groups)]
        rows = max(found.num_rows, sum(group.num_rows for group in groups))
        _check_cells(path, rows, found.num_columns)
        for group in groups:  # a cell of a list has many values
            _check_cells(path, max((group.column(n).num_values for n in range(group.num_columns)), default=0), 1)
    texts = [field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)]
    size = 0
    with parquet.ParquetFile(path, read_dictionary=texts) as file:  # a long text may stand once there for a million
        for batch in file.iter_batches(batch_size=1 << 12):
            for column in batch.columns:
                size += column.nbytes
                if types.is_dictionary(column.type):
                    lengths = compute.binary_length(column.dictionary).take(column.indices)
                    size += compute.sum(lengths).as_py() or 0
            _check_size(path, size)


def check_feather(path: Path) -> None:
    """Refuse a Feather file whose table has more cells or takes more memory than is read at once, or is damaged."""
    content = path.read_bytes()
    size = 0
    if content[: len(MAGIC)] == MAGIC:  # else Feather of before 2020, which is not compressed
        for rows, columns, unpacked in _batches(content):
            _check_cells(path, rows, columns)
            size += unpacked
            _check_size(path, size)
        with import_module("pyarrow.ipc").open_file(content) as file:
            table = file.read_all()
    else:
        table = import_module("pyarrow.feather").read_table(path)
    _check_cells(path, table.num_rows, table.num_columns)  # columns of nothing take no bytes
    table.validate(full=True)  # offsets beyond a buffer would read memory that is not the table's


def check_excel(path: Path) -> None:
    """Refuse an Excel file that unpacks to too much, or one of whose cells stands too far from the others."""
    with zipfile.ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
        if size > MOST_BYTES // 4:  # its cells are wrapped in markup
            raise InputError(f"{path} unpacks to {size} bytes; at most {MOST_BYTES // 4} are read; save it as CSV")
        for part in archive.infolist():
            if part.filename.endswith(".xml"):
                rows, columns = _reach(archive.read(part))
                if rows * columns > MOST_CELLS:
                    raise InputError(
                        f"{path} has cells as far as row {rows} and column {columns}, more than {MOST_CELLS} cells; "
                        "delete those far from the table, or save it as CSV"
                    )


def _check_cells(path: Path, rows: int, columns: int) -> None:
    if rows * columns > most_cells(path) or columns > MOST_COLUMNS:
        raise InputError(f"{path} says {rows} rows of {columns} columns, more than are read at once")


def _check_size(path: Path, size: int) -> None:
    most = max(MOST_BYTES, 8 * path.stat().st_size)
    if size > most:
        raise InputError(f"{path} unpacks to more than {most} bytes, the most that is read at once; save it as CSV")


def _reach(content: bytes) -> tuple[int, int]:
    """Return the last row and column of a sheet; of another part of an Excel file whatever its XML says."""
    rows, columns = 0, 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal rows, columns
        if name.rpartition(":")[2] in ("c", "row") and "r" in attributes:
            cell = attributes["r"]
            letters = cell.rstrip("0123456789")
            rows = max(rows, int(cell[len(letters) :][:18] or 0))
            column = 0
            for letter in letters[:9].upper():
                column = 26 * column + ord(letter) - 64
            columns = max(columns, column)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    with suppress(expat.ExpatError):  # the reader will say what is wrong
        parser.Parse(content, True)
    return rows, columns


# ---------------------------------------------------------------- the flatbuffers that describe an Arrow file


def _batches(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Return rows, columns and unpacked bytes of each batch that the footer of an Arrow file names."""
    try:
        (length,) = struct.unpack_from("<i", content, len(content) - len(MAGIC) - 4)
        footer = _Table.root(content[-len(MAGIC) - 4 - length : -len(MAGIC) - 4])
        for field in (2, 3):  # dictionaries, batches
            for at in footer.vector(field, size=24):
                yield _batch(content, *struct.unpack_from("<qi", footer.data, at))
    except (struct.error, IndexError) as error:
        raise InputError("its footer is damaged") from error


def _batch(content: bytes, offset: int, metadata: int) -> tuple[int, int, int]:
    prefix = 8 if content[offset : offset + 4] == b"\xff" * 4 else 4  # 4 before Arrow 0.15
    message = _Table.root(content[offset + prefix : offset + metadata])
    body, batch = offset + metadata, message.table(2)
    if message.byte(1) == 2:  # a dictionary: its batch is within
        batch = batch.table(1)
    unpacked, nodes = 0, batch.vector(1, size=16)
    for at in batch.vector(2, size=16):
        start, length = struct.unpack_from("<qq", batch.data, at)
        if batch.has(3) and length:  # compressed: its size stands before it, or -1 where it is as it was
            (size,) = struct.unpack_from("<q", content, body + start)
            length = length if size == -1 else size
        if length < 0:
            raise InputError("a size in it is negative")
        unpacked += length
    return max((struct.unpack_from("<q", batch.data, at)[0] for at in nodes), default=0), len(nodes), unpacked


class _Table:
    """A table of a flatbuffer: a vector of offsets says where each of its fields is."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.fields = at - struct.unpack_from("<i", data, at)[0]

    @classmethod
    def root(cls, data: bytes) -> "_Table":
        return cls(data, struct.unpack_from("<I", data)[0])

    def _offset(self, field: int) -> int:
        (size,) = struct.unpack_from("<H", self.data, self.fields)
        place = 4 + 2 * field
        return int(struct.unpack_from("<H", self.data, self.fields + place)[0]) if place < size else 0

    def has(self, field: int) -> bool:
        return self._offset(field) != 0

    def byte(self, field: int) -> int:
        return self.data[self.at + self._offset(field)] if self.has(field) else 0

    def _follow(self, field: int) -> int:
        at = self.at + self._offset(field)
        return at + int(struct.unpack_from("<I", self.data, at)[0])

    def table(self, field: int) -> "_Table":
        if not self.has(field):
            raise IndexError(field)
        return _Table(self.data, self._follow(field))

    def vector(self, field: int, *, size: int) -> range:
        """Return where its elements of this size are; those that the data can hold."""
        if not self.has(field):
            return range(0)
        at = self._follow(field)
        (count,) = struct.unpack_from("<I", self.data, at)
        if at + 4 + count * size > len(self.data):
            raise IndexError(count)
        return range(at + 4, at + 4 + count * size, size)
