"""What a tuned prompt was tuned for: the part of its config.json that says how to ask and what the answers mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.text.templates import Template, parse_template
from storage.errors import InputError

KEY = "downstream"


@dataclass(frozen=True)
class Downstream:
    """A classification task in words.

    Attributes:
        dataset: what it was tuned on.
        labels: the labels' names, in order.
        text: the template as it was written, `<X>` where plain T5 is asked to fill in.
        template: the same, parsed, with its fields and the word of each label.
        max_length: tokens of an input, the prompt not counted.
    """

    dataset: str
    labels: tuple[str, ...]
    text: str
    template: Template
    max_length: int

    @classmethod
    def of(cls, about: dict[str, Any], where: Path) -> "Downstream":
        """From a prompt's config.json; whatever is missing or wrong is an InputError."""
        held = about.get(KEY)
        if not isinstance(held, dict):
            raise InputError(f"{where}: its config.json names no task: it is a start for tuning, not a tuned prompt")
        fields, labels, words = (_names(held, name, where) for name in ("fields", "labels", "words"))
        text, length = held.get("template"), held.get("max_length")
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
            raise _wrong(where, "template", text, "without centroids")
        return cls(str(held.get("dataset", "")), labels, text, template, length)

    def to_json(self) -> dict[str, Any]:
        """What `of` reads."""
        return {
            "dataset": self.dataset,
            "fields": list(self.template.fields),
            "labels": list(self.labels),
            "words": list(self.template.verbalizer),
            "template": self.text,
            "form": self.template.form,
            "max_length": self.max_length,
        }


def _names(held: dict[str, Any], name: str, where: Path) -> tuple[str, ...]:
    value = held.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise _wrong(where, name, value, "a list of names")
    if not all(isinstance(one, str) for one in value):
        raise _wrong(where, name, value, "a list of names")
    return tuple(value)


def _wrong(where: Path, name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{where}: {KEY}.{name} in config.json is {value!r}, which should be {wanted}")
