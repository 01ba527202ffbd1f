"""Label words that vary from task to task, so that only a task's support set tells what a label is called.

With the same words in every task a prompt can ignore the support sets and learn the tasks by heart. Words drawn anew
for each task leave it nothing to learn by heart: before the inner step the best it can do is chance.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model.text.templates import CHOICES, Template, asked_pair
from model.text.tokenization import TemplateTokenizer
from storage.errors import InputError

BANK = 256  # words to draw from
_WORD = re.compile(r"[a-z]{3,}")
_LEAST = 8


def word_bank(tokenizer: TemplateTokenizer, size: int = BANK) -> tuple[str, ...]:
    """Return the first words of the vocabulary that are one token each and of at least three small letters.

    Raise InputError if there are too few of them to draw from.
    """
    bank: list[str] = []
    for word in tokenizer.words():
        if _WORD.fullmatch(word) and tokenizer.length(word) == 1:
            bank.append(word)
        if len(bank) == size:
            break
    if len(bank) < _LEAST:
        raise InputError(
            f"the backbone's tokenizer has {len(bank)} words of one token, {_LEAST} are needed to vary label words: "
            "set metatrain.varied_label_words to []"
        )
    return tuple(dict.fromkeys(bank))


def reworded(template: Template, kind: str, bank: Sequence[str], draw: np.random.Generator) -> Template:
    """Return the template with label words drawn for one task.

    Choices keep their letters in the text and answer with another's: a permutation. Pairs get words of the bank; an
    instruction names them in an order of its own, which tells nothing about what they mean.
    """
    labels = template.verbalizer
    if labels == CHOICES[: len(labels)]:
        return replace(template, verbalizer=tuple(labels[place] for place in draw.permutation(len(labels))))
    words = tuple(bank[place] for place in draw.choice(len(bank), len(labels), replace=False))
    if template.form == "sentinel":
        return replace(template, verbalizer=words)
    named = tuple(words[place] for place in draw.permutation(len(words)))
    return asked_pair(kind, words, named)
