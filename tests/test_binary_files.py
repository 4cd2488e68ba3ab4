"""Parquet, Feather and Excel files that hold, or say that they hold, far more than they look like are not read."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from primecast.errors import InputError
from primecast.frames import binary_files, text_files
from primecast.frames.read import open_table

ROWS = 100_003


def refused(path: Path, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        open_table(path)
    assert "\n" not in str(error.value)


def write(path: Path, batch: Any) -> None:
    """Write a batch as it is, which pandas and pyarrow.feather would not."""
    with pytest.importorskip("pyarrow.ipc").new_file(str(path), batch.schema) as file:
        file.write_batch(batch)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a megabyte too much."""
    monkeypatch.setattr(binary_files, "MOST_BYTES", 1 << 19)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_feather_file_that_unpacks_to_too_much_is_refused(
    compression: Literal["zstd", "lz4", "uncompressed"], tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "plant.feather"
    pd.DataFrame({"a": np.zeros(ROWS)}).to_feather(path, compression=compression)
    refused(path, "plant.feather unpacks to more than 524288 bytes, the most that is read at once; save it as CSV")


def test_a_feather_file_with_columns_of_nothing_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    nothing = arrow.Array.from_buffers(arrow.null(), (1 << 31) - 1, [None])
    write(tmp_path / "plant.feather", arrow.record_batch([nothing], names=["a"]))
    refused(tmp_path / "plant.feather", "says 2147483647 rows of 1 columns, more than are read at once")


def test_a_feather_file_whose_batch_says_that_it_unpacks_to_very_much_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "plant.feather"
    pd.DataFrame({"a": np.zeros(1009)}).to_feather(path, compression="zstd")
    content = path.read_bytes()
    size = struct.pack("<q", 1009 * 8)  # stands before the compressed buffer
    assert content.count(size) == 1
    path.write_bytes(content.replace(size, struct.pack("<q", 1 << 50)))
    refused(path, "unpacks to more than 268435456 bytes")
    path.write_bytes(content.replace(size, struct.pack("<q", -2)))
    refused(path, "plant.feather is not a Feather table: a size in it is negative")
    path.write_bytes(content[:-30] + b"\xff" * 10 + content[-20:])
    refused(path, "plant.feather is not a Feather table: ")


def test_a_feather_file_whose_texts_reach_beyond_their_buffer_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "plant.feather"
    write(path, arrow.record_batch([arrow.array(["abc", "de"])], names=["a"]))
    offsets, content = struct.pack("<3i", 0, 3, 5), path.read_bytes()
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, struct.pack("<3i", 0, 1 << 30, 5)))
    refused(path, "plant.feather is not a Feather table: ")


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
def test_a_feather_file_of_dates_numbers_and_categories_is_read(
    compression: Literal["zstd", "lz4", "uncompressed"], tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    index = pd.date_range("2024-01-01", periods=97, freq="h", name="time")
    frame = pd.DataFrame({"a": np.arange(97.0), "b": np.ones(97, dtype=np.float32)}, index=index)
    categories = pd.Categorical(["x", "y"] * 48 + ["x"])
    path = tmp_path / "plant.feather"
    frame.assign(c=categories).reset_index().to_feather(path, compression=compression, chunksize=13)
    read = open_table(path, drop=["c"]).frame
    pd.testing.assert_frame_equal(read, frame, check_freq=False, check_dtype=False)


@pytest.mark.usefixtures("small")
def test_a_parquet_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "plant.parquet"
    pd.DataFrame({"a": np.zeros(ROWS)}).to_parquet(path)
    refused(path, "plant.parquet unpacks to more than 524288 bytes")
    pd.DataFrame({"a": ["x" * 1009] * 1009}).to_parquet(path)  # one long text, 1009 times
    refused(path, "plant.parquet unpacks to more than 524288 bytes")


def test_a_parquet_file_that_lies_about_its_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(text_files, "MOST_CELLS", 1009)
    path = tmp_path / "plant.parquet"
    pd.DataFrame({"a": np.zeros(ROWS)}).to_parquet(path, index=False)
    content = path.read_bytes()
    footer = len(content) - 8 - struct.unpack("<i", content[-8:-4])[0]
    rows = bytes([2 * ROWS & 127 | 128, 2 * ROWS >> 7 & 127 | 128, 2 * ROWS >> 14])  # as the file writes its numbers
    first = content.index(b"\x16" + rows, footer)  # of the whole table; those of its parts follow
    assert content.count(rows, first) >= 2
    path.write_bytes(content[: first + 1] + bytes([2 | 128, 128, 0]) + content[first + 4 :])
    refused(path, f"says {ROWS} rows of 1 columns, more than are read at once")


def test_an_excel_file_with_a_cell_far_away_is_refused(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "plant.xlsx"
    book = openpyxl.Workbook()
    book.active.append(["date", "a"])
    book.active.cell(1_048_576, 16_384, 1)
    book.save(path)
    refused(path, "has cells as far as row 1048576 and column 16384, more than 16777216 cells; delete those far from")


def test_an_excel_file_that_unpacks_to_too_much_or_lies_about_it_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "plant.xlsx"
    pd.DataFrame({"date": ["2024-01-01"], "a": [1]}).to_excel(path, index=False)
    plain = path.read_bytes()
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/bomb.bin", b"\0" * (1 << 26))
    assert path.stat().st_size < 1 << 17
    refused(path, r"plant.xlsx unpacks to \d+ bytes; at most 67108864 are read; save it as CSV")
    with zipfile.ZipFile(io.BytesIO(plain)) as archive:
        name, size = "xl/worksheets/sheet1.xml", archive.getinfo("xl/worksheets/sheet1.xml").file_size
    at = plain.index(b"PK\x01\x02")
    at = plain.rindex(b"PK\x01\x02", at, plain.index(name.encode(), at))
    assert struct.unpack_from("<I", plain, at + 24)[0] == size
    path.write_bytes(plain[: at + 24] + struct.pack("<I", size // 2) + plain[at + 28 :])
    refused(path, "plant.xlsx is not an Excel table: ")
