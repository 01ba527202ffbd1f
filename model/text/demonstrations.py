"""Few-shot inference: as many labeled examples as fit before the query; the query's template is never cut."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from model.text.templates import Sentinel, Template
from model.text.tokenization import TemplateTokenizer

_BETWEEN = " "  # T5's tokenizer has no token for a line break


@dataclass(frozen=True)
class Demonstration:
    """A labeled example: its texts, in the order of its template's fields, and its label."""

    texts: tuple[str, ...]
    label: int


def written(template: Template, tokenizer: TemplateTokenizer, demonstration: Demonstration) -> str:
    """Return an example with its answer, which replaces the sentinel or follows the instruction."""
    texts, word = [tokenizer.plain(text) for text in demonstration.texts], template.verbalizer[demonstration.label]
    if template.form == "instruction":
        return f"{template.render(texts, ()).text} {word}"
    answered = replace(template, pieces=tuple(word if isinstance(part, Sentinel) else part for part in template.pieces))
    return answered.render(texts, ()).text


def cycled(demonstrations: Sequence[Demonstration], lengths: Sequence[int]) -> list[int]:
    """Return the numbers of the demonstrations, cycling through the labels, the shortest of each label first.

    In this order the most demonstrations fit.
    """
    order = sorted(range(len(demonstrations)), key=lambda number: lengths[number])
    labels = sorted({demonstration.label for demonstration in demonstrations})
    queues = [[number for number in order if demonstrations[number].label == label] for label in labels]
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


class DemonstrationPacker:
    """Writes queries after demonstrations, in at most the tokenizer's `max_length` tokens.

    Demonstrations are never cut. They are taken in the order of `cycled` up to the first that does not fit, so the
    numbers of examples of two labels differ by at most one. If none fits, the query is written alone, and its texts
    are cut as usual.
    """

    def __init__(
        self,
        tokenizer: TemplateTokenizer,
        demonstrated: Template,
        asked: Template,
        demonstrations: Sequence[Demonstration],
    ) -> None:
        self._tokenizer, self._unlimited, self._asked = tokenizer, tokenizer.limited(sys.maxsize), asked
        texts = [written(demonstrated, tokenizer, demonstration) for demonstration in demonstrations]
        order = cycled(demonstrations, [tokenizer.length(text) for text in texts])
        self._before = [
            _BETWEEN.join([*(texts[number] for number in order[:count]), ""]) for count in range(len(order) + 1)
        ]
        self._lengths = [tokenizer.length(before.removesuffix(_BETWEEN)) for before in self._before]

    def encode(self, queries: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the token ids of each query with its demonstrations before it."""
        alone = self._tokenizer.encode(self._asked, queries)
        return [
            self._packed(query, encoded.ids, self._room(encoded.full_length))
            for query, encoded in zip(queries, alone, strict=True)
        ]

    def _room(self, taken: int) -> int:
        """Return the number of demonstrations that fit before a query of `taken` tokens."""
        fitting = [count for count, length in enumerate(self._lengths) if length + taken <= self._tokenizer.max_length]
        return max(fitting, default=0)

    def _packed(self, query: Sequence[str], alone: list[int], count: int) -> list[int]:
        while count > 0:
            behind = replace(self._asked, pieces=(self._before[count], *self._asked.pieces))
            (encoded,) = self._unlimited.encode(behind, [query])
            if encoded.full_length <= self._tokenizer.max_length:  # tokens may merge or split where two texts meet
                return encoded.ids
            count -= 1
        return alone
