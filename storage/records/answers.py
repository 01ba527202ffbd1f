"""Writing of predictions as JSON lines, CSV or Parquet, one block at a time."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import InputError, first_line
from storage.records.formats import CSV, FORMATS, JSON_LINES, PARQUET

ANSWER_FORMATS = (CSV, JSON_LINES, PARQUET)
PREDICTED, PROBABILITIES = "predicted", "probabilities"

Answer = dict[str, Any]
"""The kept fields of a row, `predicted`, and `probabilities` by label."""
Write = Callable[[Sequence[Answer]], None]


def answer_format(form: str | None, output: Path | None) -> str:
    """Return the format of the answers: `form`, or by the output's name, or JSON lines."""
    named = FORMATS.get(output.suffix.lower()) if output else None
    chosen = form or (named if named in ANSWER_FORMATS else JSON_LINES)
    if chosen == PARQUET and output is None:
        raise InputError("--format parquet: Parquet cannot be written to standard output: name a file with --output")
    return chosen


@contextmanager
def writing_answers(stream: IO[bytes], form: str) -> Iterator[Write]:
    """Return a function that writes a block of answers to the stream; the file is finished at the end."""
    if form == PARQUET:
        parquet = _Parquet(stream)
        try:
            yield parquet.write
        finally:
            parquet.close()
    else:
        yield _Csv(stream).write if form == CSV else _json_lines(stream)


def _json_lines(stream: IO[bytes]) -> Write:
    def write(answers: Sequence[Answer]) -> None:
        stream.writelines(orjson.dumps(answer, default=str) + b"\n" for answer in answers)

    return write


class _Csv:
    """CSV with a column for each kept field, `predicted`, and the probability of each label."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._header: list[str] = []

    def write(self, answers: Sequence[Answer]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        for answer in answers:
            cells = _flat(answer)
            if not self._header:
                self._header = list(cells)
                writer.writerow(self._header)
            _check_columns(cells, self._header)
            writer.writerow(_cell(cells[name]) for name in self._header)
        self._stream.write(text.getvalue().encode())


def _flat(answer: Answer) -> dict[str, Any]:
    """Return an answer with a column `probability_LABEL` for each label."""
    kept = {name: value for name, value in answer.items() if name != PROBABILITIES}
    columns = {f"probability_{label}": value for label, value in answer[PROBABILITIES].items()}
    if taken := next((name for name in columns if name in kept), None):
        raise InputError(f"the field {taken} would be overwritten: leave it out, or use --format jsonl")
    return kept | columns


def _cell(value: Any) -> Any:
    return orjson.dumps(value, default=str).decode() if isinstance(value, dict | list | bool) else value


def _check_columns(cells: Mapping[str, Any], header: Sequence[str]) -> None:
    for name in (*cells, *header):
        if name not in cells or name not in header:
            raise InputError(f"only some rows have the field {name}: leave it out, or use --format jsonl")


class _Parquet:
    """Parquet, a row group for each block; the first block decides on the types of the kept fields."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._writer: pq.ParquetWriter | None = None

    def write(self, answers: Sequence[Answer]) -> None:
        schema = self._writer.schema if self._writer else None
        if schema:
            for answer in answers:
                _check_columns(answer, schema.names)
        try:
            table = pa.Table.from_pylist(list(answers), schema)
        except (pa.ArrowException, OverflowError) as error:
            reason = first_line(error)
            raise InputError(
                f"a kept field has several types ({reason}): leave it out, or use --format jsonl"
            ) from error
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Finish the file; without any answer it is an empty table."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, pa.schema([(PREDICTED, pa.string())]))
        self._writer.close()
