"""Label words that vary from task to task, so that only a task's support set tells what its labels are called.

With the same words in every task, a prompt can ignore the support sets and learn the tasks by heart. With words drawn
anew for each task it cannot: before the inner step it can be no better than chance.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model.text.templates import CHOICES, SINGLE, Form, Template, asked_pair, labeled_text, listed, parse_template
from model.text.tokenization import TemplateTokenizer
from storage.errors import InputError
from storage.tables.task_shards import StoredTask

BANK = 256  # words to draw from
_WORD = re.compile(r"[a-z]{3,}")
_LEAST = 8  # words that a bank must have


def word_bank(tokenizer: TemplateTokenizer, size: int = BANK) -> tuple[str, ...]:
    """Return the first words of the vocabulary that are one token each and have at least three lower-case letters.

    Raise InputError if there are too few of them to draw from.
    """
    bank: dict[str, None] = {}  # a set that keeps the vocabulary's order
    for word in tokenizer.words():
        if _WORD.fullmatch(word) and tokenizer.length(word) == 1:
            bank[word] = None
        if len(bank) == size:
            break
    if len(bank) < _LEAST:
        raise InputError(
            f"the backbone's tokenizer has {len(bank)} words of one token, but varied label words need {_LEAST}: "
            "set metatrain.varied_label_words to []"
        )
    return tuple(bank)


def named_clusters(stored: StoredTask, draw: np.random.Generator) -> tuple[StoredTask, tuple[int, ...]]:
    """Return a task of single sentences whose labels are clusters, not positions of centroids, and these clusters.

    A random number of its clusters, at least two, is kept. With words for labels, such a task is few-shot
    classification of sentences by topic.
    """
    clusters = sorted({cluster for example in stored.examples for cluster in example.choices})
    kept = sorted(draw.choice(clusters, draw.integers(2, len(clusters), endpoint=True), replace=False).tolist())
    examples = tuple(
        replace(example, label=kept.index(example.choices[example.label]), choices=())
        for example in stored.examples
        if example.choices[example.label] in kept
    )
    return replace(stored, labels=len(kept), examples=examples), tuple(kept)


# Instructions of one wording would teach a prompt that wording.
_WORDINGS = (
    "Which label fits, {words}? {{s0}} Answer:",
    "Is this text about {words}? {{s0}} Answer:",
    "What is the topic of this text: {words}? {{s0}} Topic:",
    "{{s0}} Is this {words}? Answer:",
    "Choose the right word for the text: {words}. Text: {{s0}} Answer:",
    "Does this sentence belong to {words}? {{s0}} Answer:",
    "What kind of text is this, {words}? {{s0}} Answer:",
)


def asked_cluster(form: Form, words: Sequence[str], draw: np.random.Generator) -> Template:
    """Return the template of a task of `named_clusters`.

    An instruction is one of several wordings, and names the words in a random order.
    """
    if form == "sentinel":
        return parse_template(labeled_text(form, SINGLE, words), SINGLE, words)
    named = listed([words[place] for place in draw.permutation(len(words))])
    wording = _WORDINGS[draw.integers(len(_WORDINGS))]
    return parse_template(wording.format(words=named), SINGLE, words)


def drawn_words(bank: Sequence[str], count: int, draw: np.random.Generator) -> tuple[str, ...]:
    """Return `count` different words of the bank."""
    return tuple(bank[place] for place in draw.choice(len(bank), count, replace=False))


def reworded(template: Template, kind: str, bank: Sequence[str], draw: np.random.Generator) -> Template:
    """Return the template with label words drawn for one task.

    Choices keep their letters in the text, but the letters of the answers are permuted. Pairs get words of the bank; an
    instruction names them in a random order, which says nothing about their meaning.
    """
    labels = template.verbalizer
    if labels == CHOICES[: len(labels)]:
        return replace(template, verbalizer=tuple(labels[place] for place in draw.permutation(len(labels))))
    words = drawn_words(bank, len(labels), draw)
    if template.form == "sentinel":
        return replace(template, verbalizer=words)
    named = tuple(words[place] for place in draw.permutation(len(words)))
    return asked_pair(kind, words, named)
