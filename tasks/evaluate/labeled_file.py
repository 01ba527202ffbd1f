"""The examples of a labeled file for a tuned prompt: texts by the prompt's fields, labels by the prompt's labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.errors import InputError, did_you_mean
from storage.records.labeled_sets import LabeledRow, label_names, numbered_labels, read_rows, whole_number
from storage.sources.source import AcquiredSource, SourceFile
from tasks.labeled.user_data import Missing, complete_rows, own_columns


@dataclass(frozen=True)
class EvaluationExample:
    """An example: its row in the file, from 1, its texts, and the number of its label."""

    row: int
    texts: tuple[str, ...]
    label: int


def read_examples(
    path: Path, fields: Sequence[str], label: str, labels: Sequence[str], names: Path | None = None
) -> tuple[list[EvaluationExample], Missing]:
    """Return the examples of a file in order, and the number of rows without text or label, which are left out.

    Raise InputError for a label that the prompt does not know.

    Args:
        path: a file of JSON lines, CSV, TSV or Parquet.
        fields: the columns of the texts, in the order of the prompt's fields.
        label: the column of the label; it holds names of labels, or positions counted from 0.
        labels: the names of the prompt's labels, in order.
        names: a labels.json, if positions count in its order instead of the prompt's.
    """
    file = SourceFile(path.name, str(path), path.stat().st_size, "")
    rows, missing = complete_rows(read_rows([file], Path(), own_columns((tuple(fields),), label)))
    if not rows:
        raise InputError(f"{path}: {missing.in_words() or 'no rows in it'}, none to measure: check the file")
    numbers = _numbers(path, rows, labels, names)
    return [EvaluationExample(row.place, row.texts, numbers[row.label]) for row in rows], missing


def _numbers(path: Path, rows: Sequence[LabeledRow], labels: Sequence[str], names: Path | None) -> dict[str | int, int]:
    """Return the number of each label in the file."""
    values = {row.label for row in rows}
    if names is not None:
        listed = SourceFile(names.name, str(names), names.stat().st_size, "")
        order = label_names(AcquiredSource(path.name, str(path), "", "", (listed,)), Path()) or []
        places = numbered_labels(values, order, str(path))
        return {value: _known(path, rows, value, order[place], labels) for value, place in places.items()}
    by_name = {str(value) in labels for value in values}
    if by_name != {True} and all(whole_number(value) is not None for value in values):
        return {value: _position(path, rows, value, labels) for value in values}
    return {value: _known(path, rows, value, str(value), labels) for value in values}


def _known(path: Path, rows: Sequence[LabeledRow], value: str | int, name: str, labels: Sequence[str]) -> int:
    if name not in labels:
        raise _unknown(path, rows, value, labels, did_you_mean(name, labels))
    return labels.index(name)


def _position(path: Path, rows: Sequence[LabeledRow], value: str | int, labels: Sequence[str]) -> int:
    number = whole_number(value)
    if number is None or not 0 <= number < len(labels):
        raise _unknown(path, rows, value, labels, "")
    return number


def _unknown(path: Path, rows: Sequence[LabeledRow], value: str | int, labels: Sequence[str], hint: str) -> InputError:
    place = next(row.place for row in rows if row.label == value)
    known = f"the prompt's labels are {', '.join(labels)}"
    return InputError(f"{path}: row {place}: unknown label {value!r} ({known}): correct it{hint}")
