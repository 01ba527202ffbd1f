"""The task of a tuned prompt: the part of its config.json with the template and the labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.text.templates import Template, parse_template
from storage.errors import InputError

KEY = "downstream"


@dataclass(frozen=True)
class Downstream:
    """A classification task with its template and label words.

    Attributes:
        dataset: the dataset that the prompt was tuned on.
        labels: the names of the labels, in order.
        text: the template as it was written, with `<X>` where plain T5 fills in the label.
        template: the parsed template, with its fields and the word of each label.
        max_length: the longest input in tokens, without the prompt.
    """

    dataset: str
    labels: tuple[str, ...]
    text: str
    template: Template
    max_length: int

    @classmethod
    def of(cls, about: dict[str, Any], where: Path) -> "Downstream":
        """Return the task of a prompt's config.json; raise InputError if anything is missing or wrong."""
        values = about.get(KEY)
        if not isinstance(values, dict):
            raise InputError(f"{where}: its config.json names no task: it is a start for tuning, not a tuned prompt")
        fields, labels, words = (_names(values, name, where) for name in ("fields", "labels", "words"))
        text, length = values.get("template"), values.get("max_length")
        if not isinstance(text, str):
            raise _wrong(where, "template", text, "a text with {fields}")
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise _wrong(where, "max_length", length, "a number of tokens")
        if len({*labels}) < len(labels):
            raise _wrong(where, "labels", list(labels), "names that differ")
        if len(labels) != len(words):
            raise _wrong(where, "words", list(words), f"one for each of the labels {', '.join(labels)}")
        try:
            template = parse_template(text, fields, words)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if template.slots:
            raise _wrong(where, "template", text, "a template without centroids")
        return cls(str(values.get("dataset", "")), labels, text, template, length)

    def to_json(self) -> dict[str, Any]:
        """Return the task in the form that `of` reads."""
        return {
            "dataset": self.dataset,
            "fields": list(self.template.fields),
            "labels": list(self.labels),
            "words": list(self.template.verbalizer),
            "template": self.text,
            "form": self.template.form,
            "max_length": self.max_length,
        }


def _names(values: dict[str, Any], name: str, where: Path) -> tuple[str, ...]:
    value = values.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise _wrong(where, name, value, "a list of names")
    if not all(isinstance(item, str) for item in value):
        raise _wrong(where, name, value, "a list of names")
    return tuple(value)


def _wrong(where: Path, name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{where}: {KEY}.{name} in config.json is {value!r}, which should be {wanted}")
