"""Tasks that are rewritten as they are read, so that they resemble the sets that prompts are tuned on.

A stored pair becomes a sentence and an edited, altered or negated copy of it, for questions about meaning: do two
sentences say the same, does one follow from the other? The sentences of stored clusters are named by words of their
own, and lose those words. Texts are drawn from the sentences of the stored task, so its example and sentence ids still
say where they come from.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from model.text.templates import PAIR, Form, Template, listed, parse_template
from storage.tables.task_shards import StoredExample, StoredTask

_WORD = re.compile(r"[a-z]{3,}")
_CLAUSE_END = (",", ";", ":", "—")
_LONG_WORD = 5  # letters of a word that carries meaning, roughly
WORDS = 8  # words that a cluster may be named by
_DROPPED = 0.18  # share of the words that an edit drops
_NEGATED_ANCHORS = 0.25  # share of the anchors that are negated themselves: a "not" must not give the answer away
_AUXILIARY = re.compile(r"\b(?:is|are|was|were|will|would|can|could|should|must|may|might|has|had|does|did)\b(?!n't)")
_NEGATION = re.compile(r"\b(?:not|never) |n't\b")


@dataclass(frozen=True)
class Question:
    """A question about a sentence and an edited copy.

    Attributes:
        words: the label words: for an edited copy, for a negated copy or one with foreign words, and for a text that
            says something else or more. With two words, the second serves for both of the latter.
        wordings: instructions with the fields s1 and s2; `{words}` lists the label words.
        joined: the share of examples whose first text is two sentences, one of which was edited.
        one_way: True if the second text may say less than the first, but not more.
    """

    words: tuple[str, ...]
    wordings: tuple[str, ...]
    joined: float = 0.0
    one_way: bool = False


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
    Question(("yes", "no"), _FOLLOWS, joined=0.6, one_way=True),
    Question(("yes", "no", "maybe"), _FOLLOWS, joined=0.6, one_way=True),
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
        if draw.random() < _NEGATED_ANCHORS:
            anchor = negated(anchor, draw) or anchor
        beyond = label == 2 or (label == 1 and len(question.words) == 2 and draw.random() < 0.5)
        said = anchor
        if beyond and question.one_way and draw.random() < 0.5:
            said, other = _part_and_whole(anchor, second, draw) or (anchor, other)
        first = said
        if draw.random() < question.joined:
            first = f"{said} {second}" if draw.random() < 0.5 else f"{second} {said}"
        copy = other if beyond else edited(anchor, draw) if label == 0 else _opposed_copy(anchor, first, other, draw)
        yield replace(example, label=label, texts=(first, copy))


def _part_and_whole(anchor: str, second: str, draw: np.random.Generator) -> tuple[str, str] | None:
    """Return a part of the anchor and the anchor, which says more; None if a second sentence says it, too."""
    part = " ".join(_cropped(anchor.split(), draw))
    return (part, anchor) if _long_words(anchor) - _long_words(f"{part} {second}") else None


def _opposed_copy(anchor: str, first: str, other: str, draw: np.random.Generator) -> str:
    """Return a copy of the anchor, edited or not, that is negated or has words that `first` lacks.

    If it can be neither, return the other sentence.
    """
    copy = edited(anchor, draw) if draw.random() < 0.5 else anchor
    opposite = negated(copy, draw) if draw.random() < 0.5 else None
    return opposite or altered(copy, first, other, draw) or other


def negated(text: str, draw: np.random.Generator) -> str | None:
    """Return the text without its first negation, or with a "not" after one of its auxiliary verbs.

    Return None if it has neither.
    """
    if _NEGATION.search(text):
        return _NEGATION.sub("", text, count=1)
    places = [found.end() for found in _AUXILIARY.finditer(text)]
    if not places:
        return None
    place = places[draw.integers(len(places))]
    return f"{text[:place]} not{text[place:]}"


def edited(text: str, draw: np.random.Generator) -> str:
    """Return a text that says nothing that the given one does not: a part of it, with words dropped, or reordered."""
    words = text.split()
    if len(words) < 6:
        return text
    way = draw.integers(3)
    if way == 0:
        words = _cropped(words, draw)
    elif way == 1:
        chances = zip(words, draw.random(len(words)), strict=True)
        kept = [word for word, chance in chances if chance > _DROPPED or _NEGATION.search(f"{word} ")]
        words = kept if len(kept) > 2 else words
    else:
        place = int(draw.integers(2, len(words) - 1))
        words = words[place:] + words[:place]
    joined = " ".join(words).strip(" ,;:—.")
    return f"{joined[:1].upper()}{joined[1:]}."


def _long_words(text: str) -> set[str]:
    return {word for word in (word.strip(".,;:").lower() for word in text.split()) if len(word) >= _LONG_WORD}


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


def cluster_words(tasks: Iterable[StoredTask], is_token: Callable[[str], bool]) -> dict[int, tuple[str, ...]]:
    """Return, for each cluster of single-sentence tasks, words that its sentences have more often than the others'.

    The best come first; a word is one token (`is_token`). A sentence counts once, however many tasks have it.
    """
    words: dict[int, Counter[str]] = {}
    sizes = Counter[int]()
    seen: set[tuple[str, ...]] = set()
    for example in (example for task in tasks for example in task.examples):
        if example.sentence_ids not in seen:
            seen.add(example.sentence_ids)
            cluster = example.choices[example.label]
            sizes[cluster] += 1
            words.setdefault(cluster, Counter()).update({*_WORD.findall(" ".join(example.texts).lower())})
    total = sum(words.values(), Counter[str]())
    return {
        cluster: _telling(own, total, sizes[cluster], sizes.total(), is_token) for cluster, own in sorted(words.items())
    }


def _telling(
    own: Counter[str], total: Counter[str], size: int, sentences: int, is_token: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return the most telling words of a cluster of `size` sentences, by a log-odds ratio and their number.

    They are in at least two and one in a hundred of its sentences, twice as often as in all.
    """
    least = max(2, size / 100)

    def score(word: str) -> float:
        outside = _odds(total[word] - own[word], sentences - size)
        return _odds(own[word], size) - outside + math.log(own[word])

    often = (word for word, count in own.items() if count >= least and count * sentences >= 2 * total[word] * size)
    ranked = sorted(often, key=lambda word: (-score(word), word))
    return tuple(islice((word for word in ranked if is_token(word)), WORDS))


def own_words(
    clusters: Sequence[int], words: Mapping[int, Sequence[str]], draw: np.random.Generator
) -> tuple[str, ...]:
    """Return a different word for each cluster, drawn from its own; a cluster without one left gets its number."""
    names: list[str] = []
    for number, cluster in enumerate(clusters, start=1):
        left = [word for word in words.get(cluster, ()) if word not in names]
        names.append(left[draw.integers(len(left))] if left else str(number))
    return tuple(names)


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
