"""Reading documents: JSON lines, Parquet, CSV and plain text, as streams, each document with its place in its file."""

import codecs
import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import pyarrow as pa

from storage.errors import InputError
from storage.parquet import open_parquet

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "text",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
READABLE = "JSON lines (.jsonl, .ndjson, .json), .csv, .tsv and .txt, each also as .gz or .zst, and .parquet"
_BATCH_ROWS = 64  # few, because one row may be a whole book
_BUFFER = 1 << 20


class Document(NamedTuple):
    """One document as it stands in its file: `row` counts from 1, `offset` is in bytes of the decompressed file."""

    text: str | None
    file: str
    row: int
    offset: int | None


class FileKind(NamedTuple):
    """What a file's name says of it."""

    format: str
    compression: str | None


@dataclass(frozen=True)
class Part:
    """A file, or a part of it that can be read by itself.

    `start` and `stop` are bytes of JSON lines or row groups of Parquet; None is the end.
    Rows are counted within the part: what lies before it is known only when its other parts have been read.
    """

    path: Path
    name: str
    start: int = 0
    stop: int | None = None


def is_ignored(name: str) -> bool:
    """Whether a file only accompanies the data (README, licence, hidden file)."""
    base = name.rsplit("/", 1)[-1]
    return base.startswith((".", "README", "LICENSE", "LICENCE")) or base.lower().endswith(".md")


def file_kind(name: str, where: str = "") -> FileKind:
    """The format and compression of a file, by its name; `where` is what a person is told of it."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes[-2:]]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    found = FORMATS.get(suffixes[-1]) if suffixes else None
    if found is None or (compression and found == "parquet"):
        raise InputError(
            f"{where or name}: unknown kind of file; what is read: {READABLE}: convert it, or leave it out with path="
        )
    return FileKind(found, compression)


def read_documents(part: Part, text_field: str) -> Iterator[Document]:
    """The documents of a file or of a part of one, in order, one at a time."""
    kind = file_kind(part.name)
    if kind.format == "parquet":
        return _read_parquet(part, text_field)
    if kind.format == "jsonl":
        return _read_json_lines(part, kind.compression, text_field)
    if kind.format == "text":
        return _read_text(part, kind.compression)
    return _read_csv(part, kind.compression, text_field, "\t" if kind.format == "tsv" else ",")


def cut(path: Path, name: str, size: int) -> list[Part]:
    """A file in parts of about `size` bytes, where its format can be entered in the middle."""
    kind = file_kind(name)
    if kind.format == "parquet":
        return _cut_parquet(path, name, size)
    if kind.format != "jsonl" or kind.compression:
        return [Part(path, name)]
    length = _size(path)
    return [Part(path, name, start, min(start + size, length)) for start in range(0, max(length, 1), size)]


def _cut_parquet(path: Path, name: str, size: int) -> list[Part]:
    """Runs of whole row groups of about `size` bytes."""
    metadata = open_parquet(path).metadata
    parts, start, held = [], 0, 0
    for group in range(metadata.num_row_groups):
        length = metadata.row_group(group).total_byte_size
        if held and held + length > size:
            parts.append(Part(path, name, start, group))
            start, held = group, 0
        held += length
    return [*parts, Part(path, name, start, metadata.num_row_groups)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): check that it is there and readable") from error


@contextmanager
def _opened(part: Part, compression: str | None) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file; damage and denial become one line."""
    try:
        if compression is None:
            with part.path.open("rb", buffering=_BUFFER) as plain:
                yield plain
        else:
            with io.BufferedReader(pa.input_stream(part.path, compression=compression), _BUFFER) as stream:
                yield stream
    except OSError as error:
        if error.errno is None:  # the decompressor's own complaint
            raise InputError(f"{part.path}: damaged or cut short ({_reason(error)}): replace or remove it") from error
        raise InputError(f"{part.path}: cannot be read ({error.strerror}): check the file and its rights") from error


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def _read_json_lines(part: Part, compression: str | None, text_field: str) -> Iterator[Document]:
    with _opened(part, compression) as stream:
        offset = 0
        if part.start:  # a line belongs to the part in which it begins
            stream.seek(part.start - 1)
            offset = part.start - 1 + len(stream.readline())
        for row, line in enumerate(stream, start=1):
            if part.stop is not None and offset >= part.stop:
                return
            content = line.removeprefix(codecs.BOM_UTF8) if offset == 0 else line
            if not content.isspace():
                yield Document(_json_text(part, row, content, text_field), part.name, row, offset)
            offset += len(line)


def _json_text(part: Part, row: int, line: bytes, text_field: str) -> str | None:
    """The text of one JSON line."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        where = f"{part.path}: line {_lines_before(part) + row}"
        try:
            line.decode()
        except UnicodeDecodeError as unicode_error:
            raise _not_utf8(where, unicode_error) from error
        raise InputError(f"{where}: not JSON ({error.msg} at column {error.colno}): mend or remove the line") from error
    if not isinstance(record, dict):
        where = f"{part.path}: line {_lines_before(part) + row}"
        raise InputError(f"{where}: {_kind(record)} where an object was expected: write one JSON object a line")
    if text_field not in record:
        where = f"{part.path}: line {_lines_before(part) + row}"
        raise InputError(f"{where}: no field {text_field!r} {_found(record)}: set sample.text_field")
    text = record[text_field]
    if text is not None and not isinstance(text, str):
        where = f"{part.path}: line {_lines_before(part) + row}"
        raise InputError(f"{where}: field {text_field!r} holds {_kind(text)}, not text: set sample.text_field")
    return text


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _found(names: Iterable[str]) -> str:
    return f"(found: {', '.join(sorted(names)) or 'none'})"


def _not_utf8(where: str, error: UnicodeDecodeError) -> InputError:
    return InputError(f"{where}: not UTF-8 (byte 0x{error.object[error.start]:02x}): convert the file to UTF-8")


def _lines_before(part: Part) -> int:
    """Lines of the file before the part; counted only to say where an error is."""
    return count_rows(Part(part.path, part.name, 0, part.start)) if part.start else 0


def _read_csv(part: Part, compression: str | None, text_field: str, delimiter: str) -> Iterator[Document]:
    csv.field_size_limit(sys.maxsize)  # a field is a document
    with _opened(part, compression) as stream:
        lines = _DecodedLines(stream)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        row = 0
        try:
            for fields in reader:
                if not fields:
                    pass
                elif header is None:
                    header = fields
                    column = _csv_column(part, header, text_field)
                else:
                    row += 1
                    if len(fields) != len(header):
                        wrong = f"{len(fields)} fields where the header has {len(header)}"
                        raise InputError(f"{part.path}: row {row}: {wrong}: mend the row's quotes or delimiters")
                    yield Document(fields[column], part.name, row, lines.record_start)
                lines.record_start = lines.offset
        except csv.Error as error:
            raise InputError(f"{part.path}: row {row + 1}: not CSV ({error}): mend the row's quotes") from error
        except UnicodeDecodeError as error:
            raise _not_utf8(f"{part.path}: row {row + 1}", error) from error


def _csv_column(part: Part, header: Sequence[str], text_field: str) -> int:
    if text_field not in header:
        raise InputError(f"{part.path}: row 0: no column {text_field!r} {_found(header)}: set sample.text_field")
    return header.index(text_field)


class _DecodedLines:
    """Lines of text, and how many bytes were read for them: csv.reader takes no more lines than a record needs."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.offset = 0
        self.record_start = 0

    def __iter__(self) -> "_DecodedLines":
        return self

    def __next__(self) -> str:
        line = next(self._stream)
        content = line.removeprefix(codecs.BOM_UTF8) if self.offset == 0 else line
        self.offset += len(line)
        return content.decode()


def _read_text(part: Part, compression: str | None) -> Iterator[Document]:
    with _opened(part, compression) as stream:
        try:
            text = stream.read().removeprefix(codecs.BOM_UTF8).decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(f"{part.path}: byte {error.start}", error) from error
    yield Document(text, part.name, 1, 0)


def _read_parquet(part: Part, text_field: str) -> Iterator[Document]:
    file = open_parquet(part.path)
    schema = file.schema_arrow
    if text_field not in schema.names:
        raise InputError(f"{part.path}: row 1: no column {text_field!r} {_found(schema.names)}: set sample.text_field")
    held = schema.field(text_field).type
    value = held.value_type if pa.types.is_dictionary(held) else held
    if not (pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)):
        raise InputError(f"{part.path}: row 1: column {text_field!r} holds {held}, not text: set sample.text_field")
    stop = file.num_row_groups if part.stop is None else part.stop
    row = 0
    try:
        for batch in file.iter_batches(_BATCH_ROWS, range(part.start, stop), [text_field], use_threads=False):
            for scalar in batch.column(0):
                row += 1
                yield Document(scalar.as_py(), part.name, row, None)
    except UnicodeDecodeError as error:
        before = sum(file.metadata.row_group(group).num_rows for group in range(part.start))
        raise _not_utf8(f"{part.path}: row {before + row}", error) from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{part.path}: damaged Parquet ({_reason(error)}): replace or remove it") from error


def count_rows(part: Part) -> int:
    """Rows of a part that stands among others in its file: lines (also blank ones), or rows of Parquet."""
    if file_kind(part.name).format == "parquet":
        metadata = open_parquet(part.path).metadata
        stop = metadata.num_row_groups if part.stop is None else part.stop
        return sum(metadata.row_group(group).num_rows for group in range(part.start, stop))
    with part.path.open("rb") as file:
        # A line begins after each line break in [start - 1, stop - 1); before the first line there is none.
        position = max(part.start - 1, 0)
        file.seek(position)
        left = (part.path.stat().st_size if part.stop is None else part.stop) - 1 - position
        rows = 0 if part.start else 1
        while left > 0 and (block := file.read(min(_BUFFER, left))):
            rows += block.count(b"\n")
            left -= len(block)
    return rows
