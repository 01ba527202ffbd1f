"""Few-shot inference: labeled examples written before the query, as many as fit; the query's template is never cut."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from model.text.templates import Sentinel, Template
from model.text.tokenization import TemplateTokenizer

_BETWEEN = " "  # T5's tokenizer knows no line break


@dataclass(frozen=True)
class Demonstration:
    """A labeled example, by its texts in the order of its template's fields."""

    texts: tuple[str, ...]
    label: int


def written(template: Template, tokenizer: TemplateTokenizer, one: Demonstration) -> str:
    """An example with its answer: in the sentinel's place, or after the instruction."""
    texts, word = [tokenizer.plain(text) for text in one.texts], template.verbalizer[one.label]
    if template.form == "instruction":
        return f"{template.render(texts, ()).text} {word}"
    answered = replace(template, pieces=tuple(word if isinstance(part, Sentinel) else part for part in template.pieces))
    return answered.render(texts, ()).text


def cycled(demonstrations: Sequence[Demonstration], lengths: Sequence[int]) -> list[int]:
    """Their numbers, one label after the other in turn, the shortest of each label first, so that most fit."""
    order = sorted(range(len(demonstrations)), key=lambda number: lengths[number])
    labels = sorted({one.label for one in demonstrations})
    queues = [[number for number in order if demonstrations[number].label == label] for label in labels]
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


class DemonstrationPacker:
    """Writes queries behind demonstrations, in at most the tokenizer's `max_length` tokens.

    Demonstrations are taken whole, in the cycled order, up to the first that does not fit: the numbers of examples of
    two labels differ by one at most. Where not even one fits, the query stands alone, cut at its texts as always.
    """

    def __init__(
        self,
        tokenizer: TemplateTokenizer,
        demonstrated: Template,
        asked: Template,
        demonstrations: Sequence[Demonstration],
    ) -> None:
        self._tokenizer, self._unlimited, self._asked = tokenizer, tokenizer.limited(sys.maxsize), asked
        texts = [written(demonstrated, tokenizer, one) for one in demonstrations]
        order = cycled(demonstrations, [tokenizer.length(text) for text in texts])
        self._before = [
            _BETWEEN.join([*(texts[number] for number in order[:count]), ""]) for count in range(len(order) + 1)
        ]
        self._lengths = [tokenizer.length(before.removesuffix(_BETWEEN)) for before in self._before]

    def encode(self, queries: Sequence[Sequence[str]]) -> list[list[int]]:
        """Token ids of each query behind its demonstrations."""
        alone = self._tokenizer.encode(self._asked, queries)
        return [
            self._packed(query, one.ids, self._room(one.full_length)) for query, one in zip(queries, alone, strict=True)
        ]

    def _room(self, taken: int) -> int:
        """How many demonstrations fit beside a query of so many tokens."""
        fitting = [count for count, length in enumerate(self._lengths) if length + taken <= self._tokenizer.max_length]
        return max(fitting, default=0)

    def _packed(self, query: Sequence[str], alone: list[int], count: int) -> list[int]:
        while count > 0:
            behind = replace(self._asked, pieces=(self._before[count], *self._asked.pieces))
            (one,) = self._unlimited.encode(behind, [query])
            if one.full_length <= self._tokenizer.max_length:  # tokens may join where two texts meet, or fall apart
                return one.ids
            count -= 1
        return alone
