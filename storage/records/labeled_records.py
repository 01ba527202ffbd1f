"""The rows of one file of labeled data as dictionaries: JSON lines, CSV, TSV, Parquet, or rated text lines."""

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from storage.errors import InputError, first_line
from storage.parquet import open_parquet
from storage.records.documents import file_kind

LONGEST = 1_000_000  # characters of a text, bytes of a line: an example to be classified is no book
RATED = ("id", "sentiment", "text")  # columns of rated lines without a header

_BATCH_ROWS = 1_024
_RATED_KIND = "text"


def records(path: Path, name: str) -> Iterator[Any]:
    """The rows of a file, one after the other; `name` says of what kind it is."""
    kind = file_kind(name, str(path))
    if kind.format == "parquet":
        yield from _parquet(path)
        return
    try:
        with pa.input_stream(path, compression=kind.compression) as stream:
            lines = _lines(path, io.BufferedReader(stream))
            if kind.format == "jsonl":
                yield from _json_lines(path, lines)
            elif kind.format == _RATED_KIND:
                yield from _rated_lines(path, lines)
            else:
                yield from _csv(path, lines, "\t" if kind.format == "tsv" else ",")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)}): check the file") from error


def _lines(path: Path, stream: IO[bytes]) -> Iterator[str]:
    """The lines as text with their ends; one that is too long, or not UTF-8, is refused."""
    number = 0
    while line := stream.readline(LONGEST + 1):
        number += 1
        where = f"{path}: line {number}"
        if len(line) > LONGEST:
            raise InputError(f"{where}: longer than {LONGEST:,} bytes: cut or remove it")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            wrong = f"byte {error.start} is 0x{line[error.start]:02x}"
            raise InputError(f"{where}: not UTF-8 ({wrong}): convert the file to UTF-8") from error


def _json_lines(path: Path, lines: Iterator[str]) -> Iterator[Any]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise InputError(f"{path}: line {number}: not JSON ({error.msg}): mend or remove the line") from error


def _csv(path: Path, lines: Iterator[str], delimiter: str) -> Iterator[Any]:
    csv.field_size_limit(sys.maxsize)  # lines are bounded, and so is each text
    rows = csv.DictReader(lines, delimiter=delimiter, strict=True)
    try:
        for row in rows:
            if None in row or None in row.values():
                raise InputError(f"{path}: line {rows.line_num}: not as many fields as the header: mend the row")
            yield row
    except csv.Error as error:
        raise InputError(f"{path}: after line {rows.line_num}: not CSV ({error}): mend the row's quotes") from error


def _rated_lines(path: Path, lines: Iterator[str]) -> Iterator[Any]:
    """Tab-separated lines of id, rating and text, with or without a header; a quote is a quote and no more."""
    header: Sequence[str] | None = None
    for number, line in enumerate(lines, start=1):
        cells = line.rstrip("\r\n").split("\t")
        if cells == [""]:
            continue
        if header is None:
            if len(cells) != len(RATED):
                raise InputError(f"{path}: a text file has no labels: convert it to CSV or JSON lines with a header")
            header = RATED if _is_number(cells[1]) else [cell.strip().lower() for cell in cells]
            if header is not RATED:
                continue
        if len(cells) != len(header):
            wrong = f"{len(cells)} fields where {len(header)} belong"
            raise InputError(f"{path}: line {number}: {wrong} ({', '.join(header)}): mend the line's tabs")
        yield dict(zip(header, cells, strict=True))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> Iterator[Any]:
    """Rows of Parquet; numbers become names where the file says what they stand for, as the hub's files do."""
    file = open_parquet(path)
    named = class_names(file.schema_arrow.metadata)
    row = 0
    try:
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            for record in batch.to_pylist():
                row += 1
                yield _with_names(record, named)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: after row {row}: not UTF-8: write the file anew") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: damaged Parquet ({first_line(error)}): replace or remove it") from error


def _with_names(record: dict[str, Any], named: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    for column, names in named.items():
        number = record.get(column)
        if isinstance(number, int) and 0 <= number < len(names):
            record[column] = names[number]
    return record


def class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """The names of label columns that the `datasets` library leaves in the schema of its Parquet files."""
    try:
        features = orjson.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {column: one["names"] for column, one in features.items() if one.get("_type") == "ClassLabel"}
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError):
        return {}
