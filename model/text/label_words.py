"""Label words that vary from task to task, so that only a task's support set tells what a label is called.

With the same words in every task a prompt can ignore the support sets and learn the tasks by heart. Words drawn anew
for each task leave it nothing to learn by heart: before the inner step the best it can do is chance.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model.text.templates import CHOICES, SINGLE, Form, Template, asked_pair, labeled_text, parse_template
from model.text.tokenization import TemplateTokenizer
from storage.errors import InputError
from storage.tables.task_shards import StoredTask

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


def named_clusters(stored: StoredTask, draw: np.random.Generator) -> StoredTask:
    """Return a task of single sentences whose labels are its clusters instead of the places of their centroids.

    Two or more of its clusters are kept, as many as the draw says; with words for labels it is few-shot classification
    of sentences by topic.
    """
    clusters = sorted({cluster for example in stored.examples for cluster in example.choices})
    kept = sorted(draw.choice(clusters, draw.integers(2, len(clusters), endpoint=True), replace=False).tolist())
    examples = tuple(
        replace(example, label=kept.index(example.choices[example.label]), choices=())
        for example in stored.examples
        if example.choices[example.label] in kept
    )
    return replace(stored, labels=len(kept), examples=examples)


def asked_cluster(form: Form, words: Sequence[str], draw: np.random.Generator) -> Template:
    """Return the template of such a task; an instruction names the words in an order that tells nothing."""
    named = [words[place] for place in draw.permutation(len(words))]
    return parse_template(labeled_text(form, SINGLE, named), SINGLE, words)


def drawn_words(bank: Sequence[str], count: int, draw: np.random.Generator) -> tuple[str, ...]:
    """Return so many different words of the bank."""
    return tuple(bank[place] for place in draw.choice(len(bank), count, replace=False))


def reworded(template: Template, kind: str, bank: Sequence[str], draw: np.random.Generator) -> Template:
    """Return the template with label words drawn for one task.

    Choices keep their letters in the text and answer with another's: a permutation. Pairs get words of the bank; an
    instruction names them in an order of its own, which tells nothing about what they mean.
    """
    labels = template.verbalizer
    if labels == CHOICES[: len(labels)]:
        return replace(template, verbalizer=tuple(labels[place] for place in draw.permutation(len(labels))))
    words = drawn_words(bank, len(labels), draw)
    if template.form == "sentinel":
        return replace(template, verbalizer=words)
    named = tuple(words[place] for place in draw.permutation(len(words)))
    return asked_pair(kind, words, named)
