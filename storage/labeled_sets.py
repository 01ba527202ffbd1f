"""Reading labeled sets: `{text, label}` or `{sentence1, sentence2, label}` as JSON lines, CSV, TSV or Parquet."""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import pyarrow as pa

from storage.documents import file_kind, is_ignored
from storage.errors import InputError
from storage.parquet import open_parquet
from storage.sources import AcquiredSource, SourceFile

LABEL = "label"
TEXT_FIELDS = (("text",), ("sentence1", "sentence2"))
LABEL_NAMES = "labels.json"

_TEST = ("test", "valid", "validation", "dev")
_BATCH_ROWS = 1_024


@dataclass(frozen=True)
class LabeledRow:
    """One example: its text fields and its label, as they stand in the file; `row` counts from 1 over all files."""

    row: int
    texts: tuple[str, ...]
    label: str | int


def training_files(source: AcquiredSource) -> list[SourceFile]:
    """The files to learn from, by name: those called train where there are any, never those kept for testing."""
    files = [file for file in source.files if not is_ignored(file.name) and _stem(file) != "labels"]
    named = [file for file in files if "train" in _stem(file)]
    chosen = named or [file for file in files if not _stem(file).startswith(_TEST)]
    if not chosen:
        raise InputError(f"acquire.datasets.{source.name}: {source.spec}: no file to learn from: name one train.jsonl")
    return sorted(chosen, key=lambda file: file.name)


def _stem(file: SourceFile) -> str:
    return PurePosixPath(file.name).name.split(".")[0].lower()


def label_names(source: AcquiredSource, root: Path) -> list[str] | None:
    """The labels in order, where the set has a labels.json."""
    for file in source.files:
        if PurePosixPath(file.name).name == LABEL_NAMES:
            names = orjson.loads((root / file.path).read_bytes())
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{root / file.path}: not a list of names: write the labels in order, as JSON strings")
            return names
    return None


def read_rows(files: Sequence[SourceFile], root: Path) -> Iterator[LabeledRow]:
    """The examples of all files, one after the other."""
    before = 0
    for file in files:
        path = root / file.path
        row = 0
        for row, record in enumerate(_records(path, file.name), start=1):
            yield _labeled(path, before, row, record)
        before += row


def _labeled(path: Path, before: int, row: int, record: Any) -> LabeledRow:
    where = f"{path}: row {row}"
    if not isinstance(record, dict):
        raise InputError(f"{where}: not an object with a text and a label: write one JSON object a line")
    fields = next((fields for fields in TEXT_FIELDS if record.keys() >= {*fields}), None)
    if fields is None or LABEL not in record:
        known = " or ".join(", ".join((*fields, LABEL)) for fields in TEXT_FIELDS)
        found = ", ".join(map(str, sorted(map(str, record))))
        raise InputError(f"{where}: needs the fields {known} (found: {found}): rename them")
    texts = tuple(record[field] for field in fields)
    label = record[LABEL]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InputError(f"{where}: {' or '.join(fields)} is empty or no text: mend or remove the row")
    if isinstance(label, bool) or not isinstance(label, str | int) or label == "":
        raise InputError(f"{where}: label {label!r} is neither a whole number nor a name: mend or remove the row")
    return LabeledRow(before + row, texts, label)


def _records(path: Path, name: str) -> Iterator[Any]:
    """The rows of a file as dictionaries."""
    kind = file_kind(name)
    if kind.format == "parquet":
        for batch in open_parquet(path).iter_batches(_BATCH_ROWS, use_threads=False):
            yield from batch.to_pylist()
        return
    if kind.format == "text":
        raise InputError(f"{path}: a text file has no labels: convert it to CSV or JSON lines with a header")
    try:
        with pa.input_stream(path, compression=kind.compression) as stream:
            content = stream.read().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}): check the file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start}): convert the file to UTF-8") from error
    yield from _json_lines(path, content) if kind.format == "jsonl" else _csv(path, content, kind.format)


def _json_lines(path: Path, content: str) -> Iterator[Any]:
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise InputError(f"{path}: line {number}: not JSON ({error.msg}): mend or remove the line") from error


def _csv(path: Path, content: str, kind: str) -> Iterator[Any]:
    csv.field_size_limit(sys.maxsize)
    rows = csv.DictReader(content.splitlines(keepends=True), delimiter="\t" if kind == "tsv" else ",", strict=True)
    try:
        for row in rows:
            if None in row or None in row.values():
                raise InputError(f"{path}: line {rows.line_num}: not as many fields as the header: mend the row")
            yield row
    except csv.Error as error:
        raise InputError(f"{path}: after line {rows.line_num}: not CSV ({error}): mend the row's quotes") from error


def numbered_labels(values: set[str | int], names: list[str] | None, where: str) -> dict[str | int, int]:
    """The number of each label that occurs: its place in labels.json, else its place among the labels in order.

    Numbers written as text (in CSV) are ordered as numbers. A labels.json may be named by numbers or by names.
    """
    numbers = {value: _whole(value) for value in values}
    whole = {value: number for value, number in numbers.items() if number is not None}
    if names is not None:
        given = whole
        if len(whole) < len(values):
            given = {value: names.index(str(value)) for value in values if value in names}
        if len(given) != len(values) or not {*given.values()} <= {*range(len(names))}:
            known = f"labels.json has {len(names)}: {_shown(names)}"
            raise InputError(f"{where}: labels {_shown(values)}, but {known}: mend either")
        return given
    if len(whole) < len(values):
        return {value: place for place, value in enumerate(sorted(values, key=str))}
    order = sorted({*whole.values()})
    return {value: order.index(number) for value, number in whole.items()}


def _whole(value: str | int) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if value.strip().lstrip("-").isdecimal() else None


def _shown(values: set[str | int] | list[str]) -> str:
    return ", ".join(sorted(map(str, values))[:8])
