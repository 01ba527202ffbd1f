"""Datasets asked as multiple choice, the form in which Unified-PPT was pre-trained (ALGORITHM §7).

The label words are options with letters, and the letter is the answer, for any number of labels: after Z comes AA.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice, product
from string import ascii_uppercase

from model.text.datasets import DatasetForm
from model.text.templates import MARK

_ASKED = re.compile(r"\s*Answer[^.?!:{}]*:\s*$")  # how an instruction ends: "Answer:", "Answer yes or no:"


def letters(number: int) -> tuple[str, ...]:
    """Return the letters of so many options: A to Z, then AA, AB, …."""
    every = ("".join(letter) for length in count(1) for letter in product(ascii_uppercase, repeat=length))
    return tuple(islice(every, number))


def choice_form(dataset: DatasetForm) -> DatasetForm:
    """Return a set's form with both templates as multiple choice, and letters as label words.

    The sentinel form is that of pre-training: the texts, then the options. The instruction form keeps the question of
    the set, if it has one.
    """
    answers = letters(len(dataset.labels))
    texts = " ".join(f"{{{name}}}" for name in dataset.fields)
    question = _ASKED.sub("", dataset.instruction) if dataset.instruction else f"{texts}?"
    return replace(
        dataset,
        sentinel=f"{texts}? {_options(answers, dataset.words, '.')}. Answer: {MARK}",
        instruction=f"{question} {_options(answers, dataset.instruction_words, '. ')} Answer with the letter:",
        words=answers,
        instruction_words=answers,
        otherwise=choice_form(dataset.otherwise) if dataset.otherwise else None,
    )


def _options(answers: Sequence[str], words: Sequence[str], between: str) -> str:
    written = [word.replace("{", "{{").replace("}", "}}") for word in words]
    return " ".join(f"{letter}{between}{word}" for letter, word in zip(answers, written, strict=True))
