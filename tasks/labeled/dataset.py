"""Datasets for tuning: an acquired source or a user's file is read as examples, from which few shots are drawn.

Draws follow from a hash of the seed and the texts, never from the position of a row, so the order and number of files
have no effect. The rules are in docs/datasets.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import orjson

from model.text.datasets import SHORT, USUAL_COLUMNS, DatasetForm, dataset_form, own_form
from storage.counts import counted, listed
from storage.errors import InputError, did_you_mean
from storage.records.labeled_sets import (
    Columns,
    LabeledRow,
    SplitFiles,
    files_to_test,
    first_columns,
    label_names,
    numbered_labels,
    read_rows,
    split_files,
    text_hash,
)
from storage.sources.source import AcquiredSource
from tasks.labeled.numbered_rows import Halves, LeftOut, Numbered, by_form, by_values, halved, halves


@dataclass(frozen=True, slots=True)
class LabeledExample:
    """One example: its place (`file:row`), its texts in the order of the form's fields, and its label."""

    example_id: str
    texts: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class LabeledDataset:
    """A dataset that was read.

    Attributes:
        train: examples that few shots are drawn from; no text occurs twice or is in `test`.
        test: examples for testing alone, as they are in the files.
        data_hash: hash of all examples.
        repeated: rows whose texts are in `train` or `test` already.
        left_out: number of rows that are in neither half, by reason.
        notes: remarks for the user about files beside the data that are used, or are not.
    """

    name: str
    form: DatasetForm
    train: tuple[LabeledExample, ...]
    test: tuple[LabeledExample, ...]
    data_hash: str
    repeated: tuple[LabeledExample, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FewShotSplit:
    """The few examples of one run: those to train on, and those that choose the best checkpoint."""

    train: tuple[LabeledExample, ...]
    validation: tuple[LabeledExample, ...]


@dataclass(frozen=True)
class Wording:
    """A user's template and words for a set without an entry; by default the label names are the words."""

    template: str | None = None
    verbalizer: Mapping[str, str] | None = None
    max_length: int = SHORT


def read_dataset(source: AcquiredSource, root: Path, form: DatasetForm | None = None) -> LabeledDataset:
    """Read an acquired set by `form`, by its entry in the registry, or else by its own label names.

    The test set consists of the files named test. The files named validation serve instead if the form says so (the
    paper tests GLUE and SuperGLUE on them) or if the test files have no labels (GLUE writes −1). A set with neither is
    halved by the hash of its texts.
    """
    where = f"acquire.datasets.{source.name}"
    files = split_files(source)
    form = _fitting(form or dataset_form(source.name), files, root)
    columns = _columns(form)
    tests = files_to_test(files, root, columns, form.test_split if form else "test")
    names = label_names(source, root)
    if not (files.train or tests):
        raise InputError(f"{where}: {source.spec}: no file with labels: name one train.jsonl")
    train, test = list(read_rows(files.train, root, columns)), list(read_rows(tests, root, columns))
    if form:
        parts = halves(train, test, by_form(form, names, where))
    else:
        form, parts = own_form_and_halves(source.name, train, test, names, where, Wording())
    return dataset_of_halves(source.name, form, parts if tests else halved(parts), where)


def _fitting(form: DatasetForm | None, files: SplitFiles, root: Path) -> DatasetForm | None:
    """Return the form whose fields the rows have: `form` or its alternative."""
    if form is None or form.otherwise is None:
        return form
    columns = first_columns(files.train or files.test or files.validation, root)
    known = any(columns >= {*fields} for fields in form.columns or (form.fields,))
    return form if known else form.otherwise


def _columns(form: DatasetForm | None) -> Columns:
    if form is None:
        return Columns(USUAL_COLUMNS)
    texts = form.columns or (form.fields,)
    return Columns(texts, form.label_columns, form.rating_columns, form.leaves_out_blanks, only=form.only)


def columns_to_read(source: AcquiredSource, root: Path) -> Columns:
    """Return the columns by which an acquired set is read for tuning."""
    return _columns(_fitting(dataset_form(source.name), split_files(source), root))


def own_form_and_halves(
    name: str,
    train: Sequence[LabeledRow],
    test: Sequence[LabeledRow],
    names: list[str] | None,
    where: str,
    wording: Wording,
) -> tuple[DatasetForm, Halves]:
    """Return the form and the rows of a set without an entry."""
    rows = train or test
    widths = {len(row.texts) for row in rows}
    if len(widths) > 1:
        raise InputError(f"{where}: some rows have one text, some two: give all the same number")
    # Without label names, the labels of the rows to learn from are taken to be all.
    numbers = numbered_labels({row.label for row in ((*train, *test) if names else rows)}, names, where)
    labels = tuple(names or (str(value) for value, _ in sorted(numbers.items(), key=lambda pair: pair[1])))
    words = _words(labels, wording.verbalizer)
    form = own_form(name, rows[0].fields, labels, wording.template, words, wording.max_length)
    return form, halves(train, test, by_values(numbers, labels, where))


def _words(labels: Sequence[str], verbalizer: Mapping[str, str] | None) -> tuple[str, ...] | None:
    if verbalizer is None:
        return None
    missing = [label for label in labels if label not in verbalizer]
    unknown = [label for label in verbalizer if label not in labels]
    if missing or unknown:
        wrong = [
            f"no label {label!r} in the data{did_you_mean(label, labels)}".replace("; ", ", ") for label in unknown[:1]
        ]
        wrong += [f"no word for {listed(missing)}"] if missing else []
        raise InputError(f"verbalizer: {'; '.join(wrong)}: give a word for each of {listed(labels)}")
    return tuple(verbalizer[label] for label in labels)


def dataset_of_halves(name: str, form: DatasetForm, parts: Halves, where: str) -> LabeledDataset:
    """Return the set of these rows; raise InputError if there are none, or all have the same label."""
    labels = {label for _, label in parts.train}
    if len(labels) == 1:
        only = form.labels[labels.pop()]
        raise InputError(f"{where}: every row to learn from has the label {only!r}, two are needed: add the others")
    if not parts.train and not parts.test:
        raise InputError(f"{where}: no rows in its files: check them")
    train, test, repeated = (_examples(rows) for rows in (parts.train, parts.test, parts.repeated))
    content = _content(form, train, test, repeated)
    return LabeledDataset(name, form, train, test, content, repeated, parts.left_out)


def _examples(rows: Iterable[Numbered]) -> tuple[LabeledExample, ...]:
    return tuple(LabeledExample(f"{row.file}:{row.place}", row.texts, label) for row, label in rows)


def _content(form: DatasetForm, *parts: Sequence[LabeledExample]) -> str:
    """Return the hash of all examples, including their ids, by which they are told apart."""
    digest = sha256(orjson.dumps([form.fields, form.labels]))
    for part in parts:
        digest.update(b"\n")
        for example in part:
            digest.update(orjson.dumps([example.example_id, example.texts, example.label]))
    return digest.hexdigest()


def few_shot_split(dataset: LabeledDataset, shots: int, seed: int) -> FewShotSplit:
    """Draw `shots` examples of each label to train on and as many to validate on, by (texts, shots, seed) alone.

    A label with fewer than twice `shots` examples gives half of them to each part, as in the released code (CB has 16
    of its rarest label in all). Raise InputError if a label has fewer than `shots`.
    """
    train: list[LabeledExample] = []
    validation: list[LabeledExample] = []
    counts = Counter(example.label for example in dataset.train)
    for label, name in enumerate(dataset.form.labels):
        if counts[label] < max(shots, 2):
            wrong = f"label {name!r} has {counted(counts[label], 'example')} to learn from, {max(shots, 2)} are needed"
            raise InputError(f"{dataset.name}: {wrong}: add some, or lower the shots (tune.shots, --shots)")
    ranked = sorted(dataset.train, key=lambda example: text_hash(str(seed), example.texts))
    for label in range(len(dataset.form.labels)):
        own = [example for example in ranked if example.label == label]
        taken = min(shots, len(own) // 2)
        train += own[:taken]
        validation += own[taken : 2 * taken]
    return FewShotSplit(_in_hash_order(train, seed), _in_hash_order(validation, seed))


def _in_hash_order(examples: Iterable[LabeledExample], seed: int) -> tuple[LabeledExample, ...]:
    """Return the examples with labels mixed, in the order of a hash of their texts."""
    return tuple(sorted(examples, key=lambda example: text_hash(str(seed), example.texts)))


def test_examples(dataset: LabeledDataset, limit: int | None, seed: int) -> tuple[LabeledExample, ...]:
    """Return the test set, or `limit` examples of it drawn by seed, in the order of the files."""
    return _drawn(dataset.test, limit, seed)


def left_over_examples(
    dataset: LabeledDataset, split: FewShotSplit, limit: int | None, seed: int
) -> tuple[LabeledExample, ...]:
    """Return the training rows that a few-shot split did not use: the test set of a user's file without one."""
    used = {example.example_id for example in (*split.train, *split.validation)}
    return _drawn([example for example in dataset.train if example.example_id not in used], limit, seed)


def domain_examples(dataset: LabeledDataset, limit: int | None, seed: int) -> tuple[LabeledExample, ...]:
    """Return all examples of a domain that is only tested, repeated rows included, or `limit` of them."""
    return _drawn((*dataset.train, *dataset.repeated, *dataset.test), limit, seed)


def _drawn(examples: Sequence[LabeledExample], limit: int | None, seed: int) -> tuple[LabeledExample, ...]:
    if limit is None or limit >= len(examples):
        return tuple(examples)
    places = sorted(range(len(examples)), key=lambda place: (text_hash(f"test {seed}", examples[place].texts), place))
    return tuple(examples[place] for place in sorted(places[:limit]))
