"""A labeled set in the words and tokens of one backbone: its template, its label tokens, its examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from model.prompt.prediction import label_tokens
from model.text.datasets import DatasetForm, dataset_template
from model.text.templates import Form, Template
from model.text.tokenization import TemplateTokenizer
from model.text.tokenized_tasks import Example, Ids
from tasks.labeled.dataset import LabeledExample


@dataclass(frozen=True)
class TokenizedForm:
    """How examples of a set are written; `label_ids` are the target ids of its labels."""

    template: Template
    tokenizer: TemplateTokenizer
    label_ids: tuple[Ids, ...]

    @classmethod
    def of(cls, dataset: DatasetForm, form: str, tokenizer: TemplateTokenizer) -> "TokenizedForm":
        """In the form that the backbone wants."""
        template = dataset_template(cast("Form", form), dataset)
        return cls(template, tokenizer, label_tokens(tokenizer, template))

    def examples(self, given: Sequence[LabeledExample]) -> list[Example]:
        """In tokens, in their order."""
        encoded = self.tokenizer.encode(self.template, [one.texts for one in given])
        return [
            Example(one.example_id, one.label, np.array(found.ids, np.int32), self.label_ids[one.label])
            for one, found in zip(given, encoded, strict=True)
        ]


def template_text(dataset: DatasetForm, form: str) -> tuple[str, tuple[str, ...]]:
    """The text of a set's template and its label words, as a person wrote them."""
    if form == "sentinel":
        return dataset.sentinel, dataset.words
    return dataset.instruction, dataset.instruction_words
