"""Reading of texts to classify: JSON lines, CSV, TSV, Parquet or plain lines, from a file or stream of any size."""

import codecs
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from storage.errors import InputError
from storage.records.byte_streams import Counted
from storage.records.formats import COMPRESSIONS, JSON_LINES, TEXT, FileKind
from storage.records.parts import Part
from storage.records.reader import Expected, Reader, Record, TextLines, reader_of, reader_of_lines

LONGEST = 10_000_000  # bytes of a row: a file without line breaks, or an unclosed quote, must not fill the memory


@dataclass(frozen=True)
class Fields:
    """The fields that every row must have: those of its texts, in order, and others that are requested."""

    texts: tuple[str, ...]
    others: tuple[str, ...] = ()

    def expected(self) -> Expected:
        """Return the requirements on every record."""
        advice = "name yours with --text, or give each row one"
        return Expected((*self.texts, *self.others), advice=advice, longest_line=LONGEST, longest_row=LONGEST)


@dataclass(frozen=True, slots=True)
class UnlabeledRow:
    """A row: its texts in the order of the requested fields, all of its values, and its size in bytes."""

    texts: tuple[str, ...]
    record: dict[str, Any]
    size: int


def read_file(path: Path, fields: Fields, form: str | None, counted: Counted) -> Iterator[UnlabeledRow]:
    """Yield the rows of a file; its format is `form`, or is taken from its name."""
    kind = FileKind(form, COMPRESSIONS.get(path.suffix)) if form else None
    yield from _rows(reader_of(Part(path, path.name), fields.expected(), kind=kind, counted=counted), fields)


def read_stream(stream: IO[bytes], where: str, fields: Fields, form: str | None) -> Iterator[UnlabeledRow]:
    """Yield the rows of a stream; without `form`, it is JSON lines if the first line begins an object, else text."""
    first = b""
    if form is None:
        first = stream.readline(LONGEST + 1)
        if not first:
            return
        begins_object = first.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")
        form = JSON_LINES if begins_object else TEXT
    yield from _rows(reader_of_lines(nullcontext(stream), where, form, fields.expected(), first), fields)


def _rows(reader: Reader, fields: Fields) -> Iterator[UnlabeledRow]:
    if isinstance(reader, TextLines) and (len(fields.texts) != 1 or fields.others):
        names = ", ".join((*fields.texts, *fields.others))
        raise InputError(
            f"{reader.where}: plain lines hold one text, and {names} are asked for: write JSON lines or CSV"
        )
    for record in reader:
        yield UnlabeledRow(_texts(reader, record, fields), record.values, record.size)


def _texts(reader: Reader, record: Record, fields: Fields) -> tuple[str, ...]:
    """Return the texts of a record. Raise InputError if one is blank or not a string."""
    for name in fields.texts:
        text = record.values[name]
        if not isinstance(text, str) or not text.strip():
            place = reader.place(record.row)
            raise InputError(f"{place}: {name} is empty or not a string: correct or remove it")
    return tuple(record.values[name] for name in fields.texts)
