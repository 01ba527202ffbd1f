"""Texts to label, row by row: JSON lines, CSV, TSV, Parquet or plain lines, from a file or a stream of any size."""

import codecs
import csv
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from storage.errors import InputError, first_line
from storage.parquet import open_parquet
from storage.records.documents import file_kind

FORMATS = ("jsonl", "csv", "tsv", "text", "parquet")
STREAMED = FORMATS[:4]
LONGEST = 10_000_000  # bytes of a row: a file without line breaks, or a quote that never ends, must not fill the memory
_BATCH_ROWS = 64
_BUFFER = 1 << 20

Counted = Callable[[int], None]
"""Takes the number of bytes, as they lie in the file, that were read so far."""


@dataclass(frozen=True)
class Fields:
    """The fields that every row must have: those with its texts, in order, and others that are asked for."""

    texts: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnlabeledRow:
    """A row: its texts in the order of the fields asked for, all that it holds, and its size in bytes."""

    texts: tuple[str, ...]
    record: dict[str, Any]
    size: int


def read_file(path: Path, fields: Fields, form: str | None, counted: Counted) -> Iterator[UnlabeledRow]:
    """The rows of a file; its name says what it is, unless `form` does."""
    kind = file_kind(path.name, str(path)) if form is None else None
    compression = kind.compression if kind else {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with _readable(str(path)):
        if (kind.format if kind else form) == "parquet":
            yield from _parquet(path, fields)
            return
        with path.open("rb", buffering=0) as file:
            counting = io.BufferedReader(_Counting(file, counted), _BUFFER)
            stream: IO[bytes] = counting
            if compression:
                stream = io.BufferedReader(pa.input_stream(counting, compression=compression), _BUFFER)
            yield from read_stream(stream, str(path), fields, kind.format if kind else form)


def read_stream(stream: IO[bytes], where: str, fields: Fields, form: str | None) -> Iterator[UnlabeledRow]:
    """The rows of a stream; without `form` its first line decides: an object is JSON lines, all else is plain lines."""
    lines = _lines(stream, where)
    if form is None:
        first = next(lines, None)
        if first is None:
            return
        form = "jsonl" if first[1].lstrip().startswith("{") else "text"
        lines = _preceded(first, lines)
    if form == "jsonl":
        yield from _json_lines(lines, where, fields)
    elif form == "text":
        yield from _plain_lines(lines, where, fields)
    else:
        yield from _csv(lines, where, fields, "\t" if form == "tsv" else ",")


class _Counting(io.RawIOBase):
    """A file that tells how much of it was read."""

    def __init__(self, file: IO[bytes], counted: Counted) -> None:
        self._file, self._counted, self._done = file, counted, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        taken = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._done += taken
        self._counted(self._done)
        return int(taken)


_Line = tuple[int, str]


def _lines(stream: IO[bytes], where: str) -> Iterator[_Line]:
    """Lines with their numbers, from 1."""
    number = 0
    while line := stream.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise InputError(f"{where}: line {number}: longer than {LONGEST / 1e6:.0f} MB: cut it up, or mend its end")
        try:
            yield number, line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").decode()
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise InputError(f"{where}: line {number}: not UTF-8 (byte 0x{byte:02x}): convert it to UTF-8") from error


def _preceded(first: _Line, rest: Iterator[_Line]) -> Iterator[_Line]:
    yield first
    yield from rest


def _json_lines(lines: Iterator[_Line], where: str, fields: Fields) -> Iterator[UnlabeledRow]:
    for number, line in lines:
        if line.isspace():
            continue
        place = f"{where}: line {number}"
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(f"{place}: not JSON ({error.msg} at column {error.colno}): mend the line") from error
        yield _row(record, len(line), place, fields)


def _plain_lines(lines: Iterator[_Line], where: str, fields: Fields) -> Iterator[UnlabeledRow]:
    if len(fields.texts) != 1 or fields.others:
        wanted = ", ".join((*fields.texts, *fields.others))
        raise InputError(f"{where}: plain lines hold one text, and {wanted} are asked for: write JSON lines or CSV")
    for number, line in lines:
        text = line.rstrip("\r\n")
        yield _row({fields.texts[0]: text}, len(line), f"{where}: line {number}", fields)


def _csv(lines: Iterator[_Line], where: str, fields: Fields, delimiter: str) -> Iterator[UnlabeledRow]:
    csv.field_size_limit(sys.maxsize)  # the size of a whole row is what is limited
    row = held = 0

    def measured() -> Iterator[str]:
        nonlocal held
        for _, line in lines:
            held += len(line)
            if held > LONGEST:
                raise InputError(f"{where}: row {row + 1}: longer than {LONGEST / 1e6:.0f} MB: mend its quotes")
            yield line

    header: list[str] | None = None
    reader = csv.reader(measured(), delimiter=delimiter, strict=True)
    try:
        for values in reader:
            if header is None:
                header = values
            elif values:
                row += 1
                place = f"{where}: row {row} (line {reader.line_num})"
                if len(values) != len(header):
                    raise InputError(
                        f"{place}: {len(values)} fields where the header has {len(header)}: mend its quotes"
                    )
                yield _row(dict(zip(header, values, strict=True)), held, place, fields)
            held = 0
    except csv.Error as error:
        raise InputError(f"{where}: row {row + 1}: not CSV ({error}): mend its quotes") from error


def _parquet(path: Path, fields: Fields) -> Iterator[UnlabeledRow]:
    row = 0
    for batch in open_parquet(path).iter_batches(_BATCH_ROWS, use_threads=False):
        size = batch.nbytes // max(batch.num_rows, 1)
        for record in batch.to_pylist():
            row += 1
            yield _row(record, size, f"{path}: row {row}", fields)


def _row(record: Any, size: int, place: str, fields: Fields) -> UnlabeledRow:
    if not isinstance(record, dict):
        raise InputError(f"{place}: not an object: write one JSON object a line, with {', '.join(fields.texts)}")
    for name in (*fields.texts, *fields.others):
        if name not in record:
            found = ", ".join(map(str, record)) or "none"
            raise InputError(f"{place}: no field {name!r} (found: {found}): give each row one, or name another")
    for name in fields.texts:
        if not isinstance(record[name], str) or not record[name].strip():
            raise InputError(f"{place}: {name} is empty or no text: mend or remove it")
    return UnlabeledRow(tuple(record[name] for name in fields.texts), record, size)


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """What cannot be read, or is damaged, in one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or first_line(error).rstrip(".")
        raise InputError(f"{where}: cannot be read ({reason}): check the file") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{where}: damaged ({first_line(error).rstrip('.')}): replace it") from error
