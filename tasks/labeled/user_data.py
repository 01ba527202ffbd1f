"""A user's own labeled file or folder, without an entry in a registry: columns and labels may have any names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model.text.datasets import SHORT, USUAL_COLUMNS
from model.text.templates import template_fields
from storage.counts import counted
from storage.errors import InputError
from storage.records.labeled_sets import (
    LABEL_NAMES,
    UNLABELED,
    Columns,
    LabeledRow,
    SplitFiles,
    files_to_test,
    is_table,
    label_names,
    numbered_labels,
    read_rows,
    split_files,
)
from storage.sources.source import AcquiredSource, SourceFile
from tasks.labeled.dataset import LabeledDataset, Wording, dataset_of_halves, own_form_and_halves

TEST = "test"
ADVICE = "name the columns with --text and --label, or rename them"


def read_user_data(
    path: Path,
    text_fields: Sequence[str] = (),
    label_field: str = "label",
    template: str | None = None,
    verbalizer: Mapping[str, str] | None = None,
    *,
    name: str = "",
    max_length: int = SHORT,
) -> LabeledDataset:
    """Read a user's own file, or a folder with train and test files; fields and labels may have any names.

    A single file is for training. If `labels.json` and `test.*` lie beside it, they are used as in a folder, and
    `notes` says so; if they do not fit the file, `notes` says why they are not used. Without test files, the rows that
    a few-shot split leaves may serve as test (`left_over_examples`). Rows without text or label are left out and
    counted (`left_out`).

    Args:
        path: a file of JSON lines, CSV, TSV or Parquet, or a folder of such files.
        text_fields: the columns of the texts; if empty, those in the template, or else the usual ones (`text`,
            `sentence1` and `sentence2`, …).
        label_field: the column of the label.
        template: text with `{fields}`; if None, the texts and a question for the label.
        verbalizer: a word for each label; if None, the names of the labels.
        name: the name of the set; if empty, that of the file.
        max_length: the longest input in tokens.
    """
    files = _user_files(path)
    fields = tuple(text_fields) or template_fields(template or "")
    columns = own_columns((fields,) if fields else USUAL_COLUMNS, label_field)
    split = split_files(files) if path.is_dir() else SplitFiles(files.files, (), ())
    root = Path()
    train, missing = complete_rows(read_rows(split.train, root, columns))
    if not train:
        advice = "name a file in it train.jsonl" if path.is_dir() else "check the file"
        why = f" ({missing.in_words()})" if missing.in_words() else ""
        raise InputError(f"{path}: no rows to learn from{why}: {advice}")
    notes: list[str] = []
    if path.is_dir():
        names = label_names(files, root)
        test, untested = complete_rows(read_rows(files_to_test(split, root, columns, TEST), root, columns))
    else:
        names = _names_beside(path, train, notes)
        test, untested = _tests_beside(path, columns, train, names, notes)
    called = name or path.name.split(".")[0]
    wording = Wording(template, verbalizer, max_length)
    form, parts = own_form_and_halves(called, train, test, names, str(path), wording)
    dataset = dataset_of_halves(called, form, parts, str(path))
    left_out = replace(
        dataset.left_out, blank=missing.texts + untested.texts, unlabeled=missing.labels + untested.labels
    )
    return replace(dataset, notes=tuple(notes), left_out=left_out)


@dataclass(frozen=True)
class Missing:
    """The numbers of rows that cannot be used: those with an empty text, and those with texts and no label."""

    texts: int = 0
    labels: int = 0

    def in_words(self) -> str:
        """Return the numbers in words, or "" if every row can be used."""
        kinds = ((self.texts, "without text"), (self.labels, "without a label"))
        return ", ".join(f"{counted(count, 'row')} {kind}" for count, kind in kinds if count)


def own_columns(texts: tuple[tuple[str, ...], ...], label: str) -> Columns:
    """Return the columns of a user's own file, in which texts and labels may be missing (see `complete_rows`)."""
    return Columns(texts, (label,), blanks=True, advice=ADVICE, unlabeled=True)


def complete_rows(rows: Iterable[LabeledRow]) -> tuple[list[LabeledRow], Missing]:
    """Return the rows that have all texts and a label, and the number of the others."""
    complete: list[LabeledRow] = []
    texts = labels = 0
    for row in rows:
        if not all(map(str.strip, row.texts)):
            texts += 1
        elif row.label == UNLABELED:
            labels += 1
        else:
            complete.append(row)
    return complete, Missing(texts, labels)


def dataset_of_rows(
    name: str, train: Sequence[LabeledRow], test: Sequence[LabeledRow], wording: Wording
) -> LabeledDataset:
    """Return a dataset of rows in memory; without `test`, the rows that a few-shot split leaves may be tested."""
    if not train:
        raise InputError(f"{name}: no examples to learn from: give some")
    form, parts = own_form_and_halves(name, train, test, None, name, wording)
    return dataset_of_halves(name, form, parts, name)


def _user_files(path: Path) -> AcquiredSource:
    """Return a user's file or folder as a source."""
    if not path.exists():
        raise InputError(f"{path}: not there: check the path")
    listed = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    shown = [(file.relative_to(path).as_posix() if path.is_dir() else file.name, file) for file in listed]
    files = tuple(
        SourceFile(name, str(file), file.stat().st_size, "")
        for name, file in shown
        if not any(part.startswith(".") for part in Path(name).parts)
    )
    return AcquiredSource(path.name, str(path), "unknown", str(path), files)


def _names_beside(path: Path, train: Sequence[LabeledRow], notes: list[str]) -> list[str] | None:
    """Return the label names of the labels.json beside a file, if they fit its labels, and note what was done."""
    beside = path.with_name(LABEL_NAMES)
    if not beside.is_file():
        return None
    try:
        names = label_names(_user_files(beside), Path())
        numbered_labels({row.label for row in train}, names, path.name)
    except InputError as error:
        notes.append(f"{beside} is not used ({error})")
        return None
    notes.append(f"{beside} gives the names and the order of the labels")
    return names


def _tests_beside(
    path: Path, columns: Columns, train: Sequence[LabeledRow], names: list[str] | None, notes: list[str]
) -> tuple[list[LabeledRow], Missing]:
    """Return the rows of the files called test beside a file, if they fit it, and note what was done."""
    beside = sorted(
        file
        for file in path.absolute().parent.iterdir()
        if file.name.split(".")[0].lower() == TEST and file.is_file() and is_table(file.name) and file.name != path.name
    )
    if not beside or path.name.split(".")[0].lower() == TEST:
        return [], Missing()
    files = tuple(file for place in beside for file in _user_files(place).files)
    shown = ", ".join(str(path.with_name(file.name)) for file in files)
    try:
        tests = files_to_test(SplitFiles((), (), files), Path(), columns)
        rows, missing = complete_rows(read_rows(tests, Path(), columns))
        own_form_and_halves(path.name, train, rows, names, path.name, Wording())
    except InputError as error:
        notes.append(f"{shown} is not used ({error})")
        return [], Missing()
    notes.append(f"{shown} is the test set" if rows else f"{shown} is not used (no row has a label)")
    return rows, missing
