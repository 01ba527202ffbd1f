"""Check the arguments of users: convert examples and labels to rows, and keep numbers within their bounds."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TypeVar

from model.tuning.classifier import Texts
from storage.errors import InputError
from storage.records.labeled_sets import LabeledRow

Labels = Sequence[str] | Sequence[int]
Number = TypeVar("Number", int, float)

TEXTS = "texts"  # the name of the examples to learn from, as the argument is called

_FIELDS = (("text",), ("sentence1", "sentence2"))  # names for one text and for two, if no template names any


def labeled_rows(name: str, texts: Sequence[Texts], labels: Labels, fields: tuple[str, ...]) -> list[LabeledRow]:
    """Return a row for each example; raise InputError if one has an empty text or an invalid label.

    Args:
        name: the name of the examples in messages.
        texts: the examples.
        labels: the label of each example.
        fields: the names of an example's texts; (): those of the first example, or the default names.
    """
    if isinstance(texts, str) or isinstance(labels, str):
        raise InputError(f"{name}: give a list of texts and a list of labels")
    if len(texts) != len(labels):
        raise InputError(f"{name}: {len(texts)} examples, but {len(labels)} labels: give one for each")
    rows = []
    for number, (example, label) in enumerate(zip(texts, labels, strict=True)):
        where = f"texts[{number}]" if name == TEXTS else f"{name}: texts[{number}]"
        fields = fields or _usual_fields(example, where)
        given = _texts(example, fields, where)
        rows.append(LabeledRow(number + 1, given, _label(label, where), name, number + 1, fields))
    return rows


def _usual_fields(example: Texts, where: str) -> tuple[str, ...]:
    if isinstance(example, Mapping):
        return tuple(example)
    count = 1 if isinstance(example, str) else len(example)
    if not 1 <= count <= len(_FIELDS):
        raise InputError(f"{where}: has {count} texts: give a template that names its fields")
    return _FIELDS[count - 1]


def _texts(example: Texts, fields: tuple[str, ...], where: str) -> tuple[str, ...]:
    if isinstance(example, Mapping):
        found = tuple(example.get(field, "") for field in fields)
    else:
        found = (example,) if isinstance(example, str) else tuple(example)
    if len(found) != len(fields) or not all(isinstance(text, str) and text.strip() for text in found):
        raise InputError(f"{where}: should be {' and '.join(fields)}, texts that are not empty")
    return found


def _label(label: object, where: str) -> str | int:
    if isinstance(label, str) and label.strip():
        return label
    if isinstance(label, Integral) and not isinstance(label, bool):
        return int(label)
    raise InputError(f"{where}: the label is {label!r}: give a name or an integer")


def positive(name: str, value: int) -> int:
    """Return the value; raise InputError if it is not a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}: {value!r} should be a whole number of 1 or more")
    return int(value)


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """Return the value; raise InputError if it is not one of the choices."""
    if value not in choices:
        raise InputError(f"{name}: {value!r} should be {' or '.join(choices)}")
    return value


def distinct(name: str, values: Sequence[Number], allowed: Callable[[Number], bool]) -> tuple[Number, ...]:
    """Return the numbers; raise InputError if there are none, or if one is repeated or not allowed."""
    if len(values) == 0 or len({*values}) < len(values) or not all(map(allowed, values)):
        raise InputError(f"{name}: {list(values)} should be distinct numbers within their bounds")
    return tuple(values)
