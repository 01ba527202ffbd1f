"""Readers of records: JSON lines, CSV, TSV, Parquet and text, as streams, each record with its place.

`Reader` is the base class, with a small subclass for each format. `reader_of` chooses the class for a file,
`reader_of_lines` for a stream. They read documents, datasets and unlabeled texts.
"""

import codecs
import csv
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, NamedTuple

import orjson
import pyarrow as pa

from storage.counts import counted
from storage.errors import InputError, did_you_mean, first_line
from storage.parquet import open_parquet
from storage.records.byte_streams import Counted, opened
from storage.records.formats import CSV, HTML, JSON_LINES, MARKDOWN, PAGES, PARQUET, TEXT, TSV, FileKind, file_kind
from storage.records.pages import html_text, markdown_text
from storage.records.parts import Part, rows_before

TEXT_COLUMN = "text"  # the column of text files, unless another one is expected
_BATCH_ROWS = 64  # few, because a row may be as long as a book

Values = dict[str, Any]


class Record(NamedTuple):
    """A record and its place.

    Attributes:
        values: its columns.
        file: the name of its file.
        row: its number, counted from 1 within the part: in JSON lines and text, the line (including blank ones); in
            CSV, the row without header and blank lines; in Parquet, the row.
        offset: the position of its first byte in the decompressed file; None in Parquet.
        size: its length in bytes; in Parquet, the mean length of the rows in its batch.
    """

    values: Values
    file: str
    row: int
    offset: int | None
    size: int


new_tuple = tuple.__new__  # makes a Record or other named tuple in half the time of a call


@dataclass(frozen=True)
class Expected:
    """Requirements on every record.

    Attributes:
        columns: the columns it must have.
        text: the only column that is needed, which holds text or null; the reader may leave out the others.
        advice: the advice in the error message about a record without these columns.
        longest_line: the maximum length of a line in bytes; None means no limit.
        longest_row: the maximum length of a row of CSV or TSV, which may span lines, in bytes; None means no limit.
        batch_rows: the number of Parquet rows that are decoded at once.
    """

    columns: tuple[str, ...] = ()
    text: str | None = None
    advice: str = "rename it"
    longest_line: int | None = None
    longest_row: int | None = None
    batch_rows: int = _BATCH_ROWS


ANY = Expected()


def other_delimiter(names: Iterable[str]) -> str:
    """Return a hint if the only column of a file looks like a header with another delimiter, else ""."""
    only, *more = names or ("",)
    found = next((delimiter for delimiter in (";", "\t", "|") if delimiter in only), None)
    if more or found is None:
        return ""
    shown = "a tab" if found == "\t" else repr(found)
    return f"; {shown} seems to separate its columns: save it with commas, or with tabs as .tsv"


class Reader(ABC):
    """An iterable of the records of a file or stream, for one pass; error messages call the input `where`."""

    called = "column"  # the word for a column in error messages

    def __init__(self, where: str, name: str, expected: Expected) -> None:
        self.where = where
        self.name = name
        self.expected = expected

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order. Raise InputError, with the place, at the first that cannot be read."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Return the place of the record read last, whose row is `row`, for an error message."""

    def _check_columns(self, place: str, names: Iterable[str]) -> None:
        expected = self.expected.columns if self.expected.text is None else (self.expected.text,)
        for name in expected:
            if name not in names:
                wrong = f"no {self.called} {name!r} (found: {', '.join(names) or 'none'})"
                hint = did_you_mean(name, names) or other_delimiter(names)
                raise InputError(f"{place}: {wrong}: {self.expected.advice}{hint}")

    def _not_text(self, place: str, what: str) -> InputError:
        name = self.expected.text
        return InputError(f"{place}: {self.called} {name!r} holds {what}, not text: {self.expected.advice}")


class LineReader(Reader):
    """A reader of lines; `first` is the first line, if it was already read to detect the format."""

    def __init__(
        self, stream: AbstractContextManager[IO[bytes]], where: str, name: str, expected: Expected, first: bytes = b""
    ) -> None:
        super().__init__(where, name, expected)
        self._stream = stream
        self._first = first

    def place(self, row: int) -> str:
        """Return the place as a line number."""
        return f"{self.where}: line {row}"

    def _lines(self, stream: IO[bytes]) -> Iterator[bytes]:
        longest = self.expected.longest_line
        if longest is not None:
            return self._bounded(stream, longest)
        return chain([self._first], stream) if self._first else iter(stream)

    def _bounded(self, stream: IO[bytes], longest: int) -> Iterator[bytes]:
        number, most, readline = 0, longest + 1, stream.readline
        line = self._first or readline(most)
        while line:
            number += 1
            if len(line) > longest:
                raise InputError(f"{self.where}: line {number}: longer than {longest:,} bytes: cut or remove it")
            yield line
            line = readline(most)


def _not_utf8(place: str, error: UnicodeDecodeError) -> InputError:
    """Return the error for bytes that are not UTF-8; it names the first invalid byte."""
    wrong = f"byte {error.start} is 0x{error.object[error.start]:02x}"
    return InputError(f"{place}: not UTF-8 ({wrong}): convert the file to UTF-8")


class JsonLines(LineReader):
    """JSON lines: one object per line, blank lines allowed; a part of a file begins with its first whole line."""

    called = "field"
    part: Part | None = None

    def __iter__(self) -> Iterator[Record]:
        start, stop = (self.part.start, self.part.stop) if self.part else (0, None)
        name, text, columns, loads = self.name, self.expected.text, {*self.expected.columns}, orjson.loads
        with self._stream as stream:
            offset = 0
            if start:  # a line belongs to the part it begins in
                stream.seek(start - 1)
                # No further than the part: a line that goes on beyond it would be scanned to its end by every part.
                skipped = stream.readline() if stop is None else stream.readline(stop - start)
                if stop is not None and not skipped.endswith(b"\n"):
                    return
                offset = start - 1 + len(skipped)
            for row, line in enumerate(self._lines(stream), start=1):
                if stop is not None and offset >= stop:
                    return
                content = line if offset else line.removeprefix(codecs.BOM_UTF8)
                if content and not content.isspace():
                    try:
                        values = loads(content)
                    except orjson.JSONDecodeError as error:
                        raise self._not_json(row, content, error) from error
                    if type(values) is not dict:
                        raise self._not_an_object(row, values)
                    if text is not None and type(values.get(text)) is not str:
                        self._check_text(row, values, text)
                    if columns and not columns <= values.keys():
                        self._check_columns(self.place(row), values)
                    yield new_tuple(Record, (values, name, row, offset, len(line)))
                offset += len(line)

    def place(self, row: int) -> str:
        """Return the place as a line number, counted from the beginning of the file."""
        return super().place(row + (rows_before(self.part) if self.part else 0))

    def _not_json(self, row: int, content: bytes, error: orjson.JSONDecodeError) -> InputError:
        try:
            content.decode()
        except UnicodeDecodeError as unicode_error:
            return _not_utf8(self.place(row), unicode_error)
        wrong = f"{error.msg} at column {error.colno}"
        return InputError(f"{self.place(row)}: not JSON ({wrong}): correct or remove the line")

    def _not_an_object(self, row: int, value: Any) -> InputError:
        wrong = f"{_kind(value)} where an object was expected"
        return InputError(f"{self.place(row)}: {wrong}: write one JSON object per line")

    def _check_text(self, row: int, values: Values, name: str) -> None:
        """Raise InputError if the column of the text is missing, or holds anything but text or null."""
        if name not in values:
            self._check_columns(self.place(row), values)
        if values[name] is not None:
            raise self._not_text(self.place(row), _kind(values[name]))


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


class Delimited(LineReader):
    """A reader of CSV with a header."""

    delimiter = ","

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._bytes = self._line = 0  # read so far
        self._row, self._row_line, self._row_start = 0, 1, 0  # the row that is being read

    def __iter__(self) -> Iterator[Record]:
        csv.field_size_limit(sys.maxsize)  # a field may be a whole document; the limits apply to lines and rows
        header: list[str] = []
        text, place = self.expected.text, 0
        with self._stream as stream:
            # csv.reader takes no more lines than a row needs, so the next row begins where it stopped reading.
            rows = csv.reader(self._text_lines(stream), delimiter=self.delimiter, strict=True)
            try:
                for fields in rows:
                    if not fields:
                        pass
                    elif not header:
                        header = fields
                        self._check_header(header)
                        place = header.index(text) if text is not None else 0
                    else:
                        self._row += 1
                        if len(fields) != len(header):
                            raise self._wrong_number(fields, header)
                        values = dict(zip(header, fields, strict=False)) if text is None else {text: fields[place]}
                        start = self._row_start
                        yield new_tuple(Record, (values, self.name, self._row, start, self._bytes - start))
                    self._row_line, self._row_start = self._line + 1, self._bytes
            except csv.Error as error:
                raise InputError(f"{self.place(self._row + 1)}: not CSV ({error}): correct the row's quotes") from error

    def _check_header(self, header: Sequence[str]) -> None:
        """Raise InputError if the header lacks a column, or has one twice that is read."""
        place, text = f"{self.where}: line {self._row_line}", self.expected.text
        self._check_columns(place, header)
        read = header if text is None else (text,)
        twice = next((name for name in read if name and header.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{place}: the column {twice!r} occurs twice: rename one of the two")

    def _wrong_number(self, fields: Sequence[str], header: Sequence[str]) -> InputError:
        wrong = f"{counted(len(fields), 'field')} where the header has {len(header)}"
        advice = f"correct the row's quotes or delimiters{other_delimiter(header)}"
        return InputError(f"{self.place(self._row)}: {wrong}: {advice}")

    def place(self, row: int) -> str:
        """Return the place as a row number and the line on which the row begins."""
        return f"{self.where}: row {row} (line {self._row_line})"

    def _text_lines(self, stream: IO[bytes]) -> Iterator[str]:
        longest = sys.maxsize if self.expected.longest_row is None else self.expected.longest_row
        for line in self._lines(stream):
            content = line if self._line else line.removeprefix(codecs.BOM_UTF8)
            self._line += 1
            self._bytes += len(line)
            if self._bytes - self._row_start > longest:
                place = self.place(self._row + 1)
                raise InputError(f"{place}: longer than {longest:,} bytes: correct the row's quotes")
            try:
                yield content.decode()
            except UnicodeDecodeError as error:
                raise _not_utf8(f"{self.where}: line {self._line}", error) from error


class TabSeparated(Delimited):
    """A reader of TSV with a header."""

    delimiter = "\t"


class TextLines(LineReader):
    """A reader of plain text in which each line is a record with one column."""

    def __iter__(self) -> Iterator[Record]:
        column = next(iter(self.expected.columns), TEXT_COLUMN)
        offset = 0
        with self._stream as stream:
            for row, line in enumerate(self._lines(stream), start=1):
                content = line if offset else line.removeprefix(codecs.BOM_UTF8)
                try:
                    text = content.decode().rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise _not_utf8(self.place(row), error) from error
                yield new_tuple(Record, ({column: text}, self.name, row, offset, len(line)))
                offset += len(line)


class WholeText(LineReader):
    """A reader of a text file as a single record with one column."""

    def __iter__(self) -> Iterator[Record]:
        with self._stream as stream:
            content = stream.read()
        try:
            text = content.removeprefix(codecs.BOM_UTF8).decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(self.where, error) from error
        yield Record({self.expected.text or TEXT_COLUMN: self._plain(text)}, self.name, 1, 0, len(content))

    def _plain(self, text: str) -> str:
        return text


class MarkdownPage(WholeText):
    """A reader of a Markdown file as a single record, without the markup."""

    def _plain(self, text: str) -> str:
        return markdown_text(text)


class HtmlPage(WholeText):
    """A reader of an HTML file as a single record, without the markup."""

    def _plain(self, text: str) -> str:
        return html_text(text)


class ParquetRows(Reader):
    """A reader of the rows of a Parquet file, or of some of its row groups."""

    def __init__(self, part: Part, expected: Expected) -> None:
        super().__init__(str(part.path), part.name, expected)
        self._part = part

    def place(self, row: int) -> str:
        """Return the place as a row number, counted from the beginning of the file."""
        return f"{self.where}: row {row + rows_before(self._part)}"

    def __iter__(self) -> Iterator[Record]:
        file = open_parquet(self._part.path)
        self._check(file.schema_arrow)
        groups = range(self._part.start, file.num_row_groups if self._part.stop is None else self._part.stop)
        columns = None if self.expected.text is None else [self.expected.text]
        row, name = 0, self.name
        try:
            for batch in file.iter_batches(self.expected.batch_rows, groups, columns, use_threads=False):
                size = batch.nbytes // max(batch.num_rows, 1)
                for values in _rows(batch):
                    row += 1
                    yield new_tuple(Record, (values, name, row, None, size))
        except UnicodeDecodeError as error:
            raise _not_utf8(self.place(row + 1), error) from error
        except (pa.ArrowException, OSError) as error:
            reason = first_line(error).rstrip(".")
            raise InputError(f"{self.where}: damaged Parquet ({reason}): replace or remove it") from error

    def _check(self, schema: pa.Schema) -> None:
        self._check_columns(self.where, schema.names)
        twice = [
            name
            for name in schema.names
            if self.expected.text in {None, name} and schema.names.count(name) > 1  # other columns are not read
        ]
        if twice:
            raise InputError(f"{self.where}: two columns {twice[0]!r}: rename or drop one of them")
        if self.expected.text is not None and not _is_text(column := schema.field(self.expected.text).type):
            raise self._not_text(self.where, str(column))


def _is_text(column: pa.DataType) -> bool:
    value = column.value_type if pa.types.is_dictionary(column) else column
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value))


def _rows(batch: pa.RecordBatch) -> Iterable[Values]:
    """Return the rows of a batch; if one is not UTF-8, the rows before it can still be read."""
    try:
        rows: list[Values] = batch.to_pylist()
    except UnicodeDecodeError:
        return (values for number in range(batch.num_rows) for values in batch.slice(number, 1).to_pylist())
    return rows


_BY_FORMAT: dict[str, type[LineReader]] = {
    JSON_LINES: JsonLines,
    CSV: Delimited,
    TSV: TabSeparated,
    MARKDOWN: MarkdownPage,
    HTML: HtmlPage,
}


def reader_of(
    part: Part,
    expected: Expected = ANY,
    text_as: type[LineReader] = TextLines,
    kind: FileKind | None = None,
    counted: Counted | None = None,
) -> Reader:
    """Return the reader for a file or a part of a file.

    Args:
        part: the file or the part of a file.
        expected: the requirements on its records.
        text_as: the reader for text files, by lines or as a whole.
        kind: format and compression, if they are not to be taken from the name.
        counted: called with the number of bytes read so far.
    """
    kind = kind or file_kind(part.name, str(part.path))
    if kind.format == PARQUET:
        return ParquetRows(part, expected)
    if kind.format in PAGES and text_as is not WholeText:
        raise InputError(f"{part.path}: a page of {kind.format} has no rows: convert it to JSON lines or CSV")
    stream = opened(part.path, kind.compression, counted)
    chosen = text_as if kind.format == TEXT else _BY_FORMAT[kind.format]
    reader = chosen(stream, str(part.path), part.name, expected)
    if isinstance(reader, JsonLines):
        reader.part = part
    return reader


def reader_of_lines(
    stream: AbstractContextManager[IO[bytes]], where: str, form: str, expected: Expected = ANY, first: bytes = b""
) -> Reader:
    """Return the reader for a stream in any format but Parquet; `first` is its first line, if already read."""
    return (_BY_FORMAT | {TEXT: TextLines})[form](stream, where, where, expected, first)
