"""A dataset in the tokens of one backbone: its template, its label tokens, its examples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from model.prompt.prediction import label_tokens
from model.text.choice_form import choice_form
from model.text.datasets import DatasetForm, dataset_template
from model.text.templates import Form, Template
from model.text.tokenization import TemplateTokenizer
from model.text.tokenized_tasks import Example, Ids
from tasks.labeled.dataset import LabeledDataset, LabeledExample
from tasks.methods import METHODS


@dataclass(frozen=True)
class TokenizedForm:
    """The template of a set in tokens; `label_ids` are the target ids of its labels."""

    template: Template
    tokenizer: TemplateTokenizer
    label_ids: tuple[Ids, ...]

    @classmethod
    def of(cls, dataset: DatasetForm, form: str, tokenizer: TemplateTokenizer) -> "TokenizedForm":
        """Return the set's template in the form that the backbone wants."""
        template = dataset_template(cast("Form", form), dataset)
        return cls(template, tokenizer, label_tokens(tokenizer, template))

    def examples(self, labeled: Sequence[LabeledExample]) -> list[Example]:
        """Return the examples in tokens, in their order."""
        inputs = self.tokenizer.encode(self.template, [example.texts for example in labeled])
        return [
            Example(example.example_id, example.label, np.array(encoded.ids, np.int32), self.label_ids[example.label])
            for example, encoded in zip(labeled, inputs, strict=True)
        ]


def asked_by(method: str, dataset: LabeledDataset) -> LabeledDataset:
    """Return a set with the templates by which a method asks: its own, or multiple choice."""
    row = METHODS.get(method)
    return replace(dataset, form=choice_form(dataset.form)) if row and row.asks == "choice" else dataset


def template_text(dataset: DatasetForm, form: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a set's template and its label words, before tokenization."""
    if form == "sentinel":
        return dataset.sentinel, dataset.words
    return dataset.instruction, dataset.instruction_words
