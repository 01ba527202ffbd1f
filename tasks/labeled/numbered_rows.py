"""The rows of a dataset's files with numbered labels and without the rows that must not occur twice."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from model.text.datasets import DatasetForm
from storage.errors import InputError
from storage.records.labeled_sets import LabeledRow, is_tested, whole_number

_BETWEEN_WORDS = re.compile(r"[\s_-]+")


@dataclass(frozen=True)
class LeftOut:
    """The numbers of rows that were read but are in neither half, by reason.

    Attributes:
        blank: rows with an empty text, if the form leaves such rows out, or the data is a user's own.
        unlabeled: rows with a text and no label, if the data is a user's own.
        neutral: rows rated too near to 0 to have a label.
        duplicates: rows whose texts occurred before.
        contradictions: those of `duplicates` that had another label before.
        tested: training rows whose texts are in the test set.
        contradicted: those of `tested` that have another label there.
    """

    blank: int = 0
    neutral: int = 0
    duplicates: int = 0
    contradictions: int = 0
    tested: int = 0
    contradicted: int = 0
    unlabeled: int = 0


Numbered = tuple[LabeledRow, int]
Numbering = Callable[[LabeledRow], int | None]


def by_form(form: DatasetForm, names: Sequence[str] | None, where: str) -> Numbering:
    """Return a function from a row of a set with an entry to its label number, or None for a neutral rating.

    A name stands for itself. A number is a position in labels.json if there is one, or else in the order of its column
    or of the form.
    """
    known = {_plain(label): number for number, label in enumerate(form.labels)}
    known |= {_plain(other): known[_plain(label)] for other, label in form.synonyms.items()}
    named = names if names and any(whole_number(name) is None for name in names) else None

    @cache
    def of_name(column: str, label: str | int) -> int | None:
        place = whole_number(label)
        order = named or form.column_orders.get(column, form.labels)
        name = str(label) if place is None else order[place] if 0 <= place < len(order) else ""
        return known.get(_plain(name))

    def number(row: LabeledRow) -> int | None:
        if row.column in form.rating_columns:
            rating = float(row.label)
            return None if abs(rating) < form.least_rating else int(rating > 0)
        label = of_name(row.column, row.label)
        if label is None:
            raise _unknown(row, where, form.labels)
        return label

    return number


def by_values(numbers: dict[str | int, int], labels: Sequence[str], where: str) -> Numbering:
    """Return a function from a row of a set without an entry to its label number."""

    def number(row: LabeledRow) -> int:
        if row.label not in numbers:
            raise _unknown(row, where, labels)
        return numbers[row.label]

    return number


def _plain(name: str) -> str:
    return _BETWEEN_WORDS.sub("_", name.strip().lower())


def _unknown(row: LabeledRow, where: str, labels: Sequence[str]) -> InputError:
    known = ", ".join(labels[:8]) + (" …" if len(labels) > 8 else "")
    return InputError(f"{where}: {row.file}: row {row.place}: unknown label {row.label!r} (known: {known}): correct it")


@dataclass
class Halves:
    """The rows to draw few shots from, the rows for testing alone, and the rows that repeat either, all with labels."""

    train: list[Numbered]
    test: list[Numbered]
    repeated: list[Numbered]
    left_out: LeftOut


def halves(train: Sequence[LabeledRow], test: Sequence[LabeledRow], number: Numbering) -> Halves:
    """Number the labels, and remove from the training rows those whose texts are tested or occurred before.

    The test set stays as it is. Of training rows with the same texts the first stays, whatever the labels of the
    others.
    """
    blank = sum(not all(map(str.strip, row.texts)) for row in (*train, *test))
    tested, learned = _numbered(test, number), _numbered(train, number)
    neutral = len(train) + len(test) - blank - len(tested) - len(learned)
    in_test = {row.texts: label for row, label in tested}
    seen: dict[tuple[str, ...], int] = {}
    kept: list[Numbered] = []
    repeated: list[Numbered] = []
    for row, label in learned:
        if row.texts in in_test or row.texts in seen:
            repeated.append((row, label))
        else:
            seen[row.texts] = label
            kept.append((row, label))
    leaked = [label != in_test[row.texts] for row, label in repeated if row.texts in in_test]
    twice = [label != seen[row.texts] for row, label in repeated if row.texts in seen]
    left_out = LeftOut(blank, neutral, len(twice), sum(twice), len(leaked), sum(leaked))
    return Halves(kept, tested, repeated, left_out)


def _numbered(rows: Iterable[LabeledRow], number: Numbering) -> list[Numbered]:
    """Return the rows that have texts and a label, with the label's number."""
    return [(row, label) for row in rows if all(map(str.strip, row.texts)) and (label := number(row)) is not None]


def halved(whole: Halves) -> Halves:
    """Halve a set without test files by the hash of its texts, which gives the same halves for any order of rows."""
    apart = [is_tested(row.texts) for row, _ in whole.train]
    test = [numbered for numbered, tested in zip(whole.train, apart, strict=True) if tested]
    train = [numbered for numbered, tested in zip(whole.train, apart, strict=True) if not tested]
    return Halves(train, test, whole.repeated, whole.left_out)
