"""Templates and verbalizers: how an example is written as text for the backbone (ALGORITHM §1–2, paper appendix A).

A template is text with `{fields}`, centroid slots `{μ0}`, `{μ1}`, … and at most one sentinel `<X>`. It has two forms:

    sentinel     for plain T5: `<X>` is `<extra_id_0>`, and the target is `<extra_id_0> label`
    instruction  for instruction-tuned backbones: an instruction sentence, no sentinel; the target is the label word
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from storage.errors import InputError, did_you_mean

Form = Literal["sentinel", "instruction"]
SENTINEL = "<extra_id_0>"
MARK = "<X>"
CHOICES = ("A", "B", "C", "D")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Text:
    """The place of the text of one field; `number` counts the fields in the order of the example's texts."""

    number: int


@dataclass(frozen=True)
class Slot:
    """A position of the encoder's input for a vector instead of a token: the centroid of choice `number`."""

    number: int


@dataclass(frozen=True)
class Sentinel:
    """The place where plain T5 fills in the label."""


Piece = str | Text | Slot | Sentinel
Span = tuple[int, int]


@dataclass(frozen=True)
class Rendered:
    """An example as one string, with the spans (in characters) of its texts and slots, in the order of numbers."""

    text: str
    texts: tuple[Span, ...]
    slots: tuple[Span, ...]


@dataclass(frozen=True)
class Template:
    """Pieces in reading order, and the verbalizer: the word of each label.

    Attributes:
        fields: the names of the texts, in the order of an example's texts.
        slots: the number of centroid slots.
        verbalizer: label → word.
    """

    pieces: tuple[Piece, ...]
    fields: tuple[str, ...]
    slots: int
    verbalizer: tuple[str, ...]

    @property
    def form(self) -> Form:
        """`sentinel` if there is a sentinel among the pieces, otherwise `instruction`."""
        return "sentinel" if any(isinstance(piece, Sentinel) for piece in self.pieces) else "instruction"

    def target(self, label: int) -> str:
        """Return the text that the decoder should give for a label."""
        word = self.verbalizer[label]
        return f"{SENTINEL} {word}" if self.form == "sentinel" else word

    def render(self, texts: Sequence[str], slots: Sequence[str]) -> Rendered:
        """Return an example as one string; `slots` are the placeholders of the centroids."""
        if len(texts) != len(self.fields) or len(slots) != self.slots:
            counts = f"{len(texts)} texts and {len(slots)} centroids"
            raise InputError(f"template: takes {len(self.fields)} texts and {self.slots} centroids, not {counts}")
        text_spans, slot_spans = [(0, 0)] * len(texts), [(0, 0)] * len(slots)
        parts: list[str] = []
        end = 0
        for piece in self.pieces:
            match piece:
                case Text(number):
                    part = texts[number]
                    text_spans[number] = (end, end + len(part))
                case Slot(number):
                    part = slots[number]
                    slot_spans[number] = (end, end + len(part))
                case Sentinel():
                    part = SENTINEL
                case literal:
                    part = literal
            parts.append(part)
            end += len(part)
        return Rendered("".join(parts), tuple(text_spans), tuple(slot_spans))


def parse_template(text: str, fields: Sequence[str], verbalizer: Sequence[str]) -> Template:
    """Return the template for a text, in which `{{` and `}}` mean braces; raise InputError if it is invalid."""
    pieces: list[Piece] = []
    used: list[str] = []
    for literal, name in _parsed(text):
        before, *after = literal.split(MARK)
        pieces += [before, *(piece for part in after for piece in (Sentinel(), part))]
        if name is None:
            continue
        slot = re.fullmatch(r"μ(\d+)", name)
        if slot is None and name not in fields:
            raise InputError(f"template {text!r}: {_no_field(name, fields)}")
        pieces.append(Slot(int(slot[1])) if slot else Text(list(fields).index(name)))
        used.append(name)
    _check(text, pieces, used, fields, verbalizer)
    slots = sum(isinstance(piece, Slot) for piece in pieces)
    return Template(tuple(piece for piece in pieces if piece != ""), tuple(fields), slots, tuple(verbalizer))


def template_fields(text: str) -> tuple[str, ...]:
    """Return the fields of a template in its order, or () if it is invalid (`parse_template` says why)."""
    try:
        return tuple(dict.fromkeys(name for _, name in _parsed(text) if name))
    except InputError:
        return ()


def _parsed(text: str) -> list[tuple[str, str | None]]:
    """Return the text between fields and the name of the field after it, None at the end.

    A name is everything between its braces: the header of a CSV file may hold points, colons and brackets.
    """
    parsed: list[tuple[str, str | None]] = []
    literal, end = "", 0
    for match in _BRACES.finditer(text):
        literal += text[end : match.start()]
        end = match.end()
        if match[0] in ("{{", "}}"):
            literal += match[0][0]
        elif match[1]:
            parsed.append((literal, match[1]))
            literal = ""
        else:
            wrong = "{} names no field" if match[0] == "{}" else f"a single {match[0]}"
            raise InputError(f"template {text!r}: {wrong}: write {{field}}, or {{{{ and }}}} for braces")
    return [*parsed, (literal + text[end:], None)]


def _no_field(name: str, fields: Sequence[str]) -> str:
    """Return the complaint about a name that is not among the fields."""
    if (head := re.split("[:!]", name)[0]) in fields:
        return f"{{{head}…}} takes no format: write {{{head}}}"
    return f"no field {name}, there is {', '.join(fields) or 'none'}{did_you_mean(name, fields)}"


def _check(
    text: str, pieces: Sequence[Piece], used: Sequence[str], fields: Sequence[str], verbalizer: Sequence[str]
) -> None:
    twice = [name for name in dict.fromkeys(used) if used.count(name) > 1]
    unused = [name for name in fields if name not in used]
    slots = sorted(piece.number for piece in pieces if isinstance(piece, Slot))
    problem = None
    if twice or unused:
        problem = f"{', '.join(twice or unused)} must be in it exactly once"
    elif slots != list(range(len(slots))):
        problem = f"its centroids must be μ0 to μ{len(slots) - 1}"
    elif sum(isinstance(piece, Sentinel) for piece in pieces) > 1:
        problem = f"{MARK} may be in it once only"
    elif not verbalizer or "" in verbalizer or len(set(verbalizer)) < len(verbalizer):
        problem = f"each label needs a word of its own, not {', '.join(map(repr, verbalizer)) or 'none'}"
    if problem:
        raise InputError(f"template {text!r}: {problem}")


PAIR, CHOICE, SINGLE = ("s1", "s2"), ("s0", "s1", "s2", "s3", "s4"), ("s0",)
_YES_NO, _YES_NO_MAYBE = ("yes", "no"), ("yes", "no", "maybe")
_PAIR_TEXT = "{s1} <X>. {s2}"
_CHOICE_TEXT = "{s0}? A.{s1} B.{s2} C.{s3} D.{s4}. Answer: <X>"
_SINGLE_TEXT = "{s0}? A.{μ0} B.{μ1} C.{μ2} D.{μ3}. Answer: <X>"
_CHOICES_ASKED = "A. {s1} B. {s2} C. {s3} D. {s4} Answer with A, B, C or D:"

_PAIR_ASKED = "Sentence 1: {s1} Sentence 2: {s2} Answer:"
_APART = "maybe if they are of the same text but apart"


def _both(fields: Sequence[str], verbalizer: Sequence[str], sentinel: str, instruction: str) -> dict[Form, Template]:
    return {
        "sentinel": parse_template(sentinel, fields, verbalizer),
        "instruction": parse_template(instruction, fields, verbalizer),
    }


_PAIR_QUESTIONS = {
    "sp-next": "Does sentence 2 come right after sentence 1 in a text?",
    "sp-cluster": "Are these two sentences about the same topic?",
}


def asked_pair(kind: str, words: Sequence[str], named: Sequence[str]) -> Template:
    """Return the instruction for a kind of sentence pairs with other label words, listed in the order of `named`."""
    return parse_template(f"{_PAIR_QUESTIONS[kind]} Answer with {listed(named)}. {_PAIR_ASKED}", PAIR, words)


def listed(words: Sequence[str]) -> str:
    """Return words as a template lists them, `a, b or c`, with braces doubled."""
    return f"{', '.join(words[:-1])} or {words[-1]}".replace("{", "{{").replace("}", "}}")


# The sentinel forms are the paper's: only the support set tells plain T5 which of a format's two kinds a task is. An
# instruction names the kind.
ANCHOR_TEMPLATES: dict[str, dict[Form, Template]] = {
    "sp-next": _both(
        PAIR,
        _YES_NO_MAYBE,
        _PAIR_TEXT,
        f"{_PAIR_QUESTIONS['sp-next']} Answer yes, no, or {_APART}. {_PAIR_ASKED}",
    ),
    "sp-cluster": _both(PAIR, _YES_NO, _PAIR_TEXT, f"{_PAIR_QUESTIONS['sp-cluster']} Answer yes or no. {_PAIR_ASKED}"),
    "mc-next": _both(
        CHOICE, CHOICES, _CHOICE_TEXT, f"Which sentence comes right after this one? {{s0}} {_CHOICES_ASKED}"
    ),
    "mc-cluster": _both(
        CHOICE, CHOICES, _CHOICE_TEXT, f"Which sentence is about the same topic as this one? {{s0}} {_CHOICES_ASKED}"
    ),
    "ss": _both(
        SINGLE,
        CHOICES,
        _SINGLE_TEXT,
        "Which topic is this sentence about? {s0} A. {μ0} B. {μ1} C. {μ2} D. {μ3} Answer with A, B, C or D:",
    ),
}


# Unified-PPT writes every task as multiple choice; mc and ss already are.
UNIFIED_TEMPLATES: dict[str, dict[Form, Template]] = {
    kind: _both(
        PAIR,
        CHOICES[: len(words)],
        "{s1} {s2}? "
        + " ".join(f"{letter}.{word}" for letter, word in zip(CHOICES, words, strict=False))
        + ". Answer: <X>",
        f"{asked} Sentence 1: {{s1}} Sentence 2: {{s2}} "
        + " ".join(f"{letter}. {word}" for letter, word in zip(CHOICES, words, strict=False))
        + " Answer with the letter:",
    )
    for kind, words, asked in (
        ("sp-next", _YES_NO_MAYBE, f"{_PAIR_QUESTIONS['sp-next']} It is {_APART}."),
        ("sp-cluster", _YES_NO, _PAIR_QUESTIONS["sp-cluster"]),
    )
}


def labeled_template(form: Form, fields: int, labels: int, words: Sequence[str] | None = None) -> Template:
    """Return the default template of a dataset: its texts, and the names of its labels.

    Labels without names are counted from 1: every tokenizer has numbers, and star ratings are numbers anyway.
    """
    names = [f"text{number}" for number in range(1, fields + 1)]
    label_words = words or [str(number) for number in range(1, labels + 1)]
    return parse_template(labeled_text(form, names, label_words), names, label_words)


def labeled_text(form: Form, fields: Sequence[str], words: Sequence[str]) -> str:
    """Return the text of the default template of a dataset."""
    body = " ".join(f"{{{name}}}" for name in fields)
    answers = listed(words).replace("{", "{{").replace("}", "}}")
    return f"{body}. Label: {MARK}" if form == "sentinel" else f"Which label fits, {answers}? {body} Answer:"


def anchor_template(kind: str, form: Form, fields: int, labels: int) -> Template:
    """Return the template of a kind of task; for datasets (`labeled-…`) it depends on `fields` and `labels`."""
    if kind.startswith("labeled-"):
        return labeled_template(form, fields, labels)
    if kind not in ANCHOR_TEMPLATES:
        raise InputError(f"{kind}: no such kind of task: there are {', '.join(ANCHOR_TEMPLATES)} and labeled-NAME")
    return ANCHOR_TEMPLATES[kind][form]
