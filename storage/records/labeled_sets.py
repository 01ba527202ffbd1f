"""Reading of datasets: the purpose of each file, the columns of texts and label, and the numbers of labels."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from storage.errors import InputError, did_you_mean
from storage.records.formats import COMPRESSIONS, FORMATS, WHOLE, is_ignored
from storage.records.labeled_records import LONGEST, records
from storage.records.reader import other_delimiter
from storage.sources.source import AcquiredSource, SourceFile

LABEL = "label"
TEXT_FIELDS = (("text",), ("sentence1", "sentence2"))
LABEL_NAMES = "labels.json"
UNLABELED = ""  # the label of a row without one
TEST_SHARE = 0.5  # share of the examples to test on, in a set without test files

_TRAIN = {"train", "training"}
_VALIDATION = {"valid", "validation", "val", "dev", "development", "eval", "evaluation"}
_TEST = {"test", "tests", "testing", "heldout"}
_WORD = re.compile(r"[a-z]+")
_WHOLE = re.compile(r"-?\d{1,18}")
_UNLABELED = (None, "", -1, "-1")  # values that mean "no label", as in the test files of GLUE


@dataclass(frozen=True)
class Columns:
    """The columns of texts and label; of each list, the first entry that a row has is used.

    `ratings` are label columns that hold any number; it is kept as text and converted to a label later. If `blanks` is
    true, a text may be empty; if `unlabeled` is true, so may a label, which is then read as UNLABELED. `advice` ends
    the message about a row without these columns. `only` names columns and the value that a row must have there, if it
    has the column; other rows are skipped.
    """

    texts: tuple[tuple[str, ...], ...] = TEXT_FIELDS
    labels: tuple[str, ...] = (LABEL,)
    ratings: tuple[str, ...] = ()
    blanks: bool = False
    advice: str = "rename them"
    only: tuple[tuple[str, str], ...] = ()
    unlabeled: bool = False


ANY = Columns()


@dataclass(frozen=True, slots=True)
class LabeledRow:
    """An example: its texts and its label, as they are in the file.

    Attributes:
        row: the row, counted from 1 over all files.
        file: the name of the file.
        place: the row in that file, from 1: in JSON lines and text, the line (including blank ones).
        fields: the columns of the texts.
        column: the column of the label.
    """

    row: int
    texts: tuple[str, ...]
    label: str | int
    file: str = ""
    place: int = 0
    fields: tuple[str, ...] = ()
    column: str = LABEL


@dataclass(frozen=True)
class SplitFiles:
    """The files of a set by purpose; if no file is called train, `train` holds the files with neutral names."""

    train: tuple[SourceFile, ...]
    validation: tuple[SourceFile, ...]
    test: tuple[SourceFile, ...]


def training_files(source: AcquiredSource) -> list[SourceFile]:
    """Return the files to train on: those called train if there are any, and never test files.

    Whole words of its path tell the purpose of a file: `default/test/0000.parquet` and `my_test.csv` are for testing,
    the name `constrained.jsonl` is neutral.
    """
    chosen = split_files(source).train
    if not chosen:
        raise InputError(f"acquire.datasets.{source.name}: {source.spec}: no file to learn from: name one train.jsonl")
    return list(chosen)


def split_files(source: AcquiredSource) -> SplitFiles:
    """Return the files of a set by purpose, each list sorted by name."""
    files = [file for file in source.files if not is_ignored(file.name) and not _names_labels(file)]
    # A hub repository may contain the original files besides the converted ones.
    readable = [file for file in files if is_table(file.name)]
    files = sorted(readable or files, key=lambda file: file.name)
    test = tuple(file for file in files if _words(file) & _TEST)
    validation = tuple(file for file in files if file not in test and _words(file) & _VALIDATION)
    rest = tuple(file for file in files if file not in test and file not in validation)
    return SplitFiles(tuple(file for file in rest if _words(file) & _TRAIN) or rest, validation, test)


def is_table(name: str) -> bool:
    """True if a file has rows and columns, by the suffix of its name."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes[-2:]]
    suffixes = [suffix for suffix in suffixes if suffix not in COMPRESSIONS]
    return bool(suffixes) and FORMATS.get(suffixes[-1]) not in (None, *WHOLE)


def _words(file: SourceFile) -> set[str]:
    return set(_WORD.findall(file.name.lower()))


def _names_labels(file: SourceFile) -> bool:
    return PurePosixPath(file.name).name.split(".")[0].lower() == "labels"


def label_names(source: AcquiredSource, root: Path) -> list[str] | None:
    """Return the names of the labels in order, or None if the set has no labels.json."""
    for file in source.files:
        if PurePosixPath(file.name).name == LABEL_NAMES:
            try:
                names = orjson.loads((root / file.path).read_bytes())
            except orjson.JSONDecodeError:
                names = None
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{root / file.path}: not a list of names: write the labels in order, as JSON strings")
            return names
    return None


def read_rows(files: Sequence[SourceFile], root: Path, columns: Columns = ANY) -> Iterator[LabeledRow]:
    """Yield the examples of all files, file by file."""
    before = 0
    for file in files:
        path = str(root / file.path)
        row = 0
        for row, record in records(Path(path), file.name):
            if any(record.get(name, value) != value for name, value in columns.only):
                continue
            where = f"{path}: row {row}"
            fields, column = _columns_of(where, record, columns)
            rated = column in columns.ratings
            label = _rating(where, record[column]) if rated else _label(where, record[column], columns)
            texts = _texts(where, record, fields, blanks=columns.blanks)
            yield LabeledRow(before + row, texts, label, file.name, row, fields, column)
        before += row


def place_of(files: Sequence[SourceFile], root: Path, row: int) -> tuple[SourceFile, int] | None:
    """Return the file of an example and its row there, by its row over all files; None if there is no such row."""
    for file in files:
        last = 0
        for last, _ in records(root / file.path, file.name):
            if last == row:
                return file, row
        row -= last
    return None


def are_unlabeled(files: Sequence[SourceFile], root: Path, columns: Columns = ANY) -> bool:
    """True if no row has a label (all are −1, empty or missing); reading stops at the first row that has one."""
    return not any(
        any(record.get(column) not in _UNLABELED for column in columns.labels)
        for file in files
        for _, record in records(root / file.path, file.name)
    )


def files_to_test(
    files: SplitFiles, root: Path, columns: Columns = ANY, preferred: str = "test"
) -> tuple[SourceFile, ...]:
    """Return the files to test on, test files or those of `preferred` first; none if neither split has labels."""
    order = (files.validation, files.test) if preferred == "validation" else (files.test, files.validation)
    return next((some for some in order if some and not are_unlabeled(some, root, columns)), ())


def rows_for_testing(source: AcquiredSource, root: Path, columns: Columns) -> list[int]:
    """Return the rows, over all training files, that are used for testing; none if the set has test files."""
    files = split_files(source)
    if files_to_test(files, root, columns):
        return []
    return [row.row for row in read_rows(files.train, root, columns) if is_tested(row.texts)]


def is_tested(texts: Sequence[str]) -> bool:
    """True if an example of a set without test files is for testing; this depends only on its texts."""
    return int.from_bytes(text_hash("test", texts)[:8]) / 2**64 < TEST_SHARE


def text_hash(salt: str, texts: Sequence[str]) -> bytes:
    """Return a hash of texts for pseudo-random draws; it differs for each salt."""
    return sha256("\0".join((salt, *texts)).encode("utf-8", "surrogatepass")).digest()


def first_columns(files: Sequence[SourceFile], root: Path) -> set[str]:
    """Return the columns of the first row of the files."""
    for file in files:
        for _, record in records(root / file.path, file.name):
            return set(record)
    return set()


def _columns_of(where: str, record: Mapping[str, Any], columns: Columns) -> tuple[tuple[str, ...], str]:
    """Return the columns of the texts and of the label in a row. Raise InputError if it has none."""
    fields = next((fields for fields in columns.texts if all(map(record.__contains__, fields))), None)
    column = next(filter(record.__contains__, columns.labels), None)
    if fields is None or column is None:
        known = " or ".join(", ".join((*fields, columns.labels[-1])) for fields in columns.texts)
        names = ", ".join(sorted(record))
        wanted = [name for fields in columns.texts for name in fields] if fields is None else [columns.labels[-1]]
        meant = next(filter(None, (did_you_mean(name, record) for name in wanted if name not in record)), "")
        meant = other_delimiter(record) or meant
        raise InputError(f"{where}: needs the fields {known} (found: {names}): {columns.advice}{meant}")
    return fields, column


def _texts(where: str, record: Mapping[str, Any], fields: tuple[str, ...], *, blanks: bool) -> tuple[str, ...]:
    texts = tuple(record[field] or "" if blanks else record[field] for field in fields)
    if not all(isinstance(text, str) and (blanks or text.strip()) for text in texts):
        raise InputError(f"{where}: {' or '.join(fields)} is empty or not a string: correct or remove the row")
    if any(len(text) > LONGEST for text in texts):
        raise InputError(f"{where}: a text of more than {LONGEST:,} characters: cut it or remove the row")
    return texts


def _label(where: str, value: Any, columns: Columns) -> str | int:
    """Return a label as a name or a whole number; a table with missing labels gives the whole number 4 as 4.0."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if columns.unlabeled and _is_missing(value):
        return UNLABELED
    if not isinstance(value, str | int) or str(value).strip() == "":
        raise InputError(f"{where}: label {value!r} is neither a whole number nor a name: correct or remove the row")
    return value.strip() if isinstance(value, str) else value


def _is_missing(value: Any) -> bool:
    """True for null, an empty text, and NaN, which tables have in place of a missing label."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _rating(where: str, value: Any) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: rating {value!r} is not a number: correct or remove the row")
    return str(number)


def numbered_labels(values: set[str | int], names: list[str] | None, where: str) -> dict[str | int, int]:
    """Return the number of each label: its position in labels.json, or else its position among the sorted labels.

    Numbers written as text (in CSV) are sorted as numbers. With a labels.json, the files may hold names or positions;
    names that look like numbers (stars, 1 to 5) are taken as names if all labels are among them.
    """
    numbers = {value: whole_number(value) for value in values}
    whole = {value: number for value, number in numbers.items() if number is not None}
    if names is not None:
        places = {value: names.index(str(value)) for value in values if str(value) in names}
        if len(places) < len(values) == len(whole):
            places = whole
        if len(places) != len(values) or not {*places.values()} <= {*range(len(names))}:
            known = f"labels.json has {len(names)}: {_shown(names)}"
            raise InputError(f"{where}: labels {_shown(values)}, but {known}: correct either")
        return places
    if len(whole) < len(values):
        return {value: place for place, value in enumerate(sorted(values, key=str))}
    order = sorted({*whole.values()})
    return {value: order.index(number) for value, number in whole.items()}


def whole_number(value: str | int) -> int | None:
    """Return a label as a whole number, or None if it is not one."""
    if isinstance(value, int):
        return value
    return int(value) if _WHOLE.fullmatch(value.strip()) else None


def _shown(values: set[str | int] | list[str]) -> str:
    return ", ".join(sorted(map(str, values))[:8])
