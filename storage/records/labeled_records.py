"""Reading of the rows of a file of labeled data: JSON lines, CSV, TSV, Parquet, and lines with ratings or questions."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from storage.errors import InputError
from storage.parquet import open_parquet
from storage.records.parts import Part
from storage.records.reader import TEXT_COLUMN, Expected, ParquetRows, Record, TextLines, Values, reader_of

LONGEST = 1_000_000  # characters of a text, bytes of a line: longer ones are not examples to classify
RATED = ("id", "sentiment", "text")  # columns of lines with ratings, if there is no header
QUESTION = re.compile(r"(?P<label>[A-Z]{2,8}):[a-z]+ (?P<text>\S.*)")  # a line of TREC's own files
_BATCH_ROWS = 1_024  # rows of Parquet read at once: more than for documents, because these rows are short


def records(path: Path, name: str) -> Iterator[tuple[int, Values]]:
    """Yield the rows of a file, each with its number as in `Record`; the format is taken from `name`."""
    reader = reader_of(Part(path, name), Expected(longest_line=LONGEST, batch_rows=_BATCH_ROWS))
    if isinstance(reader, TextLines):
        yield from _text_lines(path, reader)
        return
    names = class_names(open_parquet(path).schema_arrow.metadata) if isinstance(reader, ParquetRows) else {}
    for record in reader:
        yield record.row, _with_names(record.values, names) if names else record.values


def _text_lines(path: Path, reader: Iterable[Record]) -> Iterator[tuple[int, Values]]:
    """Yield the rows of a text file: lines of TREC's form if the first one is, or else lines with ratings."""
    lines = iter(reader)
    first = next(lines, None)
    if first is None:
        return
    rows = _questions if QUESTION.fullmatch(first.values[TEXT_COLUMN]) else _rated_lines
    yield from rows(path, chain([first], lines))


def _questions(path: Path, lines: Iterable[Record]) -> Iterator[tuple[int, Values]]:
    """Yield lines such as `NUM:date When did it begin ?`, with the label before the colon.

    Of lines that occur more than once, the last one counts: published files begin with samples of the whole set.
    """
    last = {record.values[TEXT_COLUMN]: record.row for record in lines}
    for line, row in sorted(last.items(), key=itemgetter(1)):
        match = QUESTION.fullmatch(line)
        if match is None and line.strip():
            raise InputError(f"{path}: line {row}: not LABEL:detail and a question, as the first line is: correct it")
        if match:
            yield row, match.groupdict()


def _rated_lines(path: Path, lines: Iterable[Record]) -> Iterator[tuple[int, Values]]:
    """Yield tab-separated lines of id, rating and text, with or without a header; quotes have no special meaning."""
    header: Sequence[str] | None = None
    for record in lines:
        cells = record.values[TEXT_COLUMN].split("\t")
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
            raise InputError(f"{path}: line {record.row}: {wrong} ({', '.join(header)}): correct the line's tabs")
        yield record.row, dict(zip(header, cells, strict=True))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _with_names(values: Values, names: Mapping[str, Sequence[str]]) -> Values:
    """Replace the numbers of labels by their names, in place."""
    for column, labels in names.items():
        number = values.get(column)
        if isinstance(number, int) and 0 <= number < len(labels):
            values[column] = labels[number]
    return values


def class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return the label names of each label column, which the `datasets` library stores in its Parquet schemas."""
    try:
        features: dict[str, Any] = orjson.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError):
        return {}
