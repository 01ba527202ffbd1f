"""Division of files into parts that can be read independently."""

from dataclasses import dataclass
from pathlib import Path

from storage.errors import InputError
from storage.parquet import open_parquet
from storage.records.byte_streams import BUFFER_BYTES
from storage.records.formats import JSON_LINES, PARQUET, file_kind


@dataclass(frozen=True)
class Part:
    """A file, or a part of a file that can be read independently.

    `start` and `stop` are positions in bytes (JSON lines) or numbers of row groups (Parquet); None means the end.
    Rows are counted within the part, because the rows before it are known only after the other parts have been read.
    """

    path: Path
    name: str
    start: int = 0
    stop: int | None = None


def cut(path: Path, name: str, size: int) -> list[Part]:
    """Divide a file into parts of about `size` bytes; a file that must be read from its start is a single part."""
    kind = file_kind(name)
    if kind.format == PARQUET:
        return _cut_parquet(path, name, size)
    if kind.format != JSON_LINES or kind.compression:
        return [Part(path, name)]
    length = _size(path)
    return [Part(path, name, start, min(start + size, length)) for start in range(0, max(length, 1), size)]


def _cut_parquet(path: Path, name: str, size: int) -> list[Part]:
    """Divide a Parquet file into runs of whole row groups of about `size` bytes."""
    metadata = open_parquet(path).metadata
    parts, start, filled = [], 0, 0
    for group in range(metadata.num_row_groups):
        length = metadata.row_group(group).total_byte_size
        if filled and filled + length > size:
            parts.append(Part(path, name, start, group))
            start, filled = group, 0
        filled += length
    return [*parts, Part(path, name, start, metadata.num_row_groups)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): check that it is there and readable") from error


def count_rows(part: Part) -> int:
    """Return the number of rows of a part: lines, including blank ones, or rows of Parquet."""
    if file_kind(part.name).format == PARQUET:
        metadata = open_parquet(part.path).metadata
        stop = metadata.num_row_groups if part.stop is None else part.stop
        return sum(metadata.row_group(group).num_rows for group in range(part.start, stop))
    with part.path.open("rb") as file:
        # A line begins after each line break in [start - 1, stop - 1); the first line of the file has none before it.
        position = max(part.start - 1, 0)
        file.seek(position)
        left = (part.path.stat().st_size if part.stop is None else part.stop) - 1 - position
        rows = 0 if part.start else 1
        while left > 0 and (block := file.read(min(BUFFER_BYTES, left))):
            rows += block.count(b"\n")
            left -= len(block)
    return rows


def rows_before(part: Part) -> int:
    """Return the number of rows in the file before the part; it is counted only for error messages."""
    return count_rows(Part(part.path, part.name, 0, part.start)) if part.start else 0
