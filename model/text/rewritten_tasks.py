"""Tasks that are rewritten as they are read, so that they resemble the sets that prompts are tuned on.

A stored pair becomes a sentence and an edited copy of it, for questions about meaning: do two sentences say the same,
does one follow from the other? The sentences of stored clusters get words of their own as labels, and lose those words.
Everything is drawn from the sentences of the stored task, so its example and sentence ids still say where a text comes
from.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.text.templates import PAIR, Form, Template, listed, parse_template
from storage.tables.task_shards import StoredExample, StoredTask

_WORD = re.compile(r"[a-z]{3,}")
_CLAUSE_END = (",", ";", ":", "—")
_LONG_WORD = 5  # letters of a word that carries meaning, roughly
_DROPPED = 0.18  # share of the words that an edit drops


@dataclass(frozen=True)
class Question:
    """A question about a sentence and an edited copy.

    Attributes:
        words: the label words: for an edited copy, for a copy with foreign words, and for another sentence. With two
            words, the second serves for both of the latter.
        wordings: instructions with the fields s1 and s2; `{words}` lists the label words.
        joined: the share of examples whose first text is two sentences, one of which was edited.
    """

    words: tuple[str, ...]
    wordings: tuple[str, ...]
    joined: float = 0.0


_FOLLOWS = (
    "{{s1}} Does it follow that {{s2}} Answer {words}:",
    "{{s1}} Is it true that {{s2}} Answer {words}:",
    "Text: {{s1}} Statement: {{s2}} Does the statement follow from the text? Answer {words}:",
)
_SAME = (
    "Do these two sentences mean the same? Sentence 1: {{s1}} Sentence 2: {{s2}} Answer {words}:",
    "Sentence 1: {{s1}} Sentence 2: {{s2}} Do they say the same thing? Answer {words}:",
    "Is sentence 2 a paraphrase of sentence 1? Sentence 1: {{s1}} Sentence 2: {{s2}} Answer {words}:",
)
QUESTIONS = (
    Question(("yes", "no"), _SAME),
    Question(("yes", "no"), _SAME),  # half of the tasks ask for the same meaning
    Question(("yes", "no"), _FOLLOWS, joined=0.6),
    Question(("yes", "no", "maybe"), _FOLLOWS, joined=0.6),
)


def edited_pairs(stored: StoredTask, draw: np.random.Generator) -> tuple[StoredTask, Question]:
    """Return a task of pairs whose second text is an edited copy of the first, or is not, with its question.

    Labels are balanced in each set, as in the stored task.
    """
    question = QUESTIONS[draw.integers(len(QUESTIONS))]
    examples = tuple(
        example
        for role in ("support", "query")
        for example in _rewritten([one for one in stored.examples if one.role == role], question, draw)
    )
    return replace(stored, labels=len(question.words), examples=examples), question


def asked_meaning(form: Form, question: Question, words: Sequence[str], draw: np.random.Generator) -> Template:
    """Return the template of a task of `edited_pairs` with these label words, which may differ from the question's."""
    if form == "sentinel":
        return parse_template("{s1} <X>. {s2}", PAIR, words)
    named = words if tuple(words) == question.words else [words[place] for place in draw.permutation(len(words))]
    wording = question.wordings[draw.integers(len(question.wordings))]
    return parse_template(wording.format(words=listed(named)), PAIR, words)


def _rewritten(
    examples: Sequence[StoredExample], question: Question, draw: np.random.Generator
) -> Iterator[StoredExample]:
    """Yield the examples of a set with new texts and labels; the next example's anchor serves as another sentence."""
    labels = draw.permutation(np.arange(len(examples)) % len(question.words))
    for number, (example, label) in enumerate(zip(examples, labels.tolist(), strict=True)):
        anchor, second = example.texts
        other = examples[(number + 1) % len(examples)].texts[0] if len(examples) > 1 else second
        first = anchor
        if draw.random() < question.joined:
            first = f"{anchor} {second}" if draw.random() < 0.5 else f"{second} {anchor}"
        is_other = label == 2 or (label == 1 and len(question.words) == 2 and draw.random() < 0.5)
        second = (
            other if is_other else edited(anchor, draw) if label == 0 else _altered_copy(anchor, first, other, draw)
        )
        yield replace(example, label=label, texts=(first, second))


def _altered_copy(anchor: str, first: str, other: str, draw: np.random.Generator) -> str:
    """Return a copy of the anchor, edited or not, with words that `first` lacks; the other sentence if it has none."""
    copy = edited(anchor, draw) if draw.random() < 0.5 else anchor
    return altered(copy, first, other, draw) or other


def edited(text: str, draw: np.random.Generator) -> str:
    """Return a text that says nothing that the given one does not: a part of it, with words dropped, or reordered."""
    words = text.split()
    if len(words) < 6:
        return text
    way = draw.integers(3)
    if way == 0:
        words = _cropped(words, draw)
    elif way == 1:
        kept = [word for word, chance in zip(words, draw.random(len(words)), strict=True) if chance > _DROPPED]
        words = kept if len(kept) > 2 else words
    else:
        place = int(draw.integers(2, len(words) - 1))
        words = words[place:] + words[:place]
    joined = " ".join(words).strip(" ,;:—.")
    return f"{joined[:1].upper()}{joined[1:]}."


def _cropped(words: Sequence[str], draw: np.random.Generator) -> list[str]:
    """Return a clause at the beginning or the end; without punctuation, at least three fifths of the words."""
    clauses = [place + 1 for place, word in enumerate(words[:-3]) if place >= 3 and word.endswith(_CLAUSE_END)]
    if not clauses:
        return list(words[: int(draw.integers(len(words) * 3 // 5, len(words)))])
    place = clauses[draw.integers(len(clauses))]
    return list(words[:place]) if draw.random() < 0.7 else list(words[place:])


def altered(text: str, said: str, other: str, draw: np.random.Generator) -> str | None:
    """Return the text with one to three long words replaced by long words of another that are not in `said`.

    Return None if that is not possible.
    """
    words = text.split()
    places = [place for place, word in enumerate(words) if len(word) >= _LONG_WORD]
    known = {word.strip(".,;:").lower() for word in said.split()}
    foreign = [word.strip(".,;:") for word in other.split() if len(word) >= _LONG_WORD]
    foreign = [word for word in foreign if word and word.lower() not in known]
    if not places or not foreign:
        return None
    for place in draw.choice(places, min(len(places), int(draw.integers(1, 4))), replace=False):
        words[place] = foreign[draw.integers(len(foreign))]
    return " ".join(words)


def own_words(stored: StoredTask, is_token: Callable[[str], bool]) -> tuple[str, ...]:
    """Return a word for each label that its sentences have more often than those of the other labels.

    Words of one token (`is_token`) are preferred. A label whose sentences have no word left gets its number.
    """
    found = [Counter[str]() for _ in range(stored.labels)]
    for example in stored.examples:
        found[example.label].update({word for text in example.texts for word in _WORD.findall(text.lower())})
    counts = Counter(example.label for example in stored.examples)
    total = sum(found, Counter[str]())
    words: list[str] = []
    for label, own in enumerate(found):
        outside = len(stored.examples) - counts[label]

        def score(word: str, own: Counter[str] = own, size: int = counts[label], outside: int = outside) -> float:
            return _odds(own[word], size) - _odds(total[word] - own[word], outside) + math.log(own[word])

        left = [word for word in own if word not in words]
        ranked = sorted(left, key=lambda word: (not is_token(word), -score(word), word))
        words.append(ranked[0] if ranked else str(label + 1))
    return tuple(words)


def without_words(stored: StoredTask, words: Sequence[str]) -> StoredTask:
    """Return the task without these words in its texts, so that a label is not found by looking for its word.

    A text that would be left with fewer than three words stays as it is.
    """
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", re.IGNORECASE)

    def shortened(text: str) -> str:
        left = pattern.sub("", text).split()
        return " ".join(left) if len(left) > 2 else text

    return replace(
        stored,
        examples=tuple(replace(one, texts=tuple(shortened(text) for text in one.texts)) for one in stored.examples),
    )


def _odds(count: int, size: int) -> float:
    """Return the logarithm of the odds of a word in `count` of `size` sentences, smoothed."""
    return math.log((count + 0.5) / (size - count + 0.5))
