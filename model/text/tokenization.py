"""Tokenize examples with any fast tokenizer: the template is rendered, and only its texts are cut to the length.

The whole string is tokenized at once, so the ids are those of `tokenizer(text)`, with the same spaces and with the
special tokens that the tokenizer adds at the end.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenizers import Encoding, Tokenizer

from model.text.templates import SENTINEL, Form, Rendered, Span, Template
from storage.errors import InputError

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
_PLACEHOLDERS = (
    "pad_token",
    "unk_token",
    "eos_token",
)  # the first that a tokenizer has is the placeholder of a centroid


class FastTokenizer(Protocol):
    """The part of transformers' fast tokenizers that is used here."""

    backend_tokenizer: Tokenizer
    pad_token: str | None
    unk_token: str | None
    eos_token: str | None


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tokenized example.

    Attributes:
        ids: the input, [n ≤ max_length].
        slots: the positions in `ids` of the centroids, in the order of the choices.
        kept: the number of characters kept of each text.
        full_length: the number of tokens before the cut.
    """

    ids: list[int]
    slots: tuple[int, ...]
    kept: tuple[int, ...]
    full_length: int


class TemplateTokenizer:
    """Tokenizes examples for one backbone, with at most `max_length` tokens each (without the prompt)."""

    def __init__(self, tokenizer: Tokenizer, placeholder: str, max_length: int) -> None:
        self._tokenizer = Tokenizer.from_str(
            tokenizer.to_str()
        )  # a copy, so that the caller's tokenizer keeps its settings
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if self._tokenizer.token_to_id(placeholder) is None:
            raise InputError(
                f"the backbone's tokenizer has no token for its own {placeholder}: acquire the backbone again"
            )
        known = [token for token in (placeholder, SENTINEL) if self._tokenizer.token_to_id(token) is not None]
        self._tokenizer.add_special_tokens(known)  # always one token each, whatever is next to them
        self.placeholder = placeholder
        self.max_length = max_length
        special = [token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special]
        longest_first = sorted(filter(None, special), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    @classmethod
    def of(cls, tokenizer: FastTokenizer, max_length: int) -> "TemplateTokenizer":
        """Return a tokenizer made from a fast tokenizer of transformers."""
        names = {name: getattr(tokenizer, name) for name in _PLACEHOLDERS}
        return cls(tokenizer.backend_tokenizer, _placeholder(names, "this tokenizer"), max_length)

    @classmethod
    def from_folder(cls, folder: Path, max_length: int) -> "TemplateTokenizer":
        """Return the tokenizer in a model's folder, without importing transformers.

        Raise InputError if it cannot be read.
        """
        file, settings = folder / TOKENIZER, folder / SETTINGS
        if not file.is_file():
            raise InputError(f"{folder}: has no {TOKENIZER}: only backbones with a fast tokenizer can be used")
        try:
            tokenizer = Tokenizer.from_file(str(file))
            names = json.loads(settings.read_text()) if settings.is_file() else {}
        except Exception as error:  # tokenizers raises plain Exception
            raise InputError(
                f"{file}: cannot be read ({error}): get it again with `supmer run --force acquire`"
            ) from error
        return cls(tokenizer, _placeholder(names, str(folder)), max_length)

    def limited(self, max_length: int) -> "TemplateTokenizer":
        """Return a copy with another limit."""
        other = copy(self)
        other.max_length = max_length
        return other

    def require(self, form: Form) -> None:
        """Raise InputError if the form needs a sentinel and the tokenizer has none."""
        if form == "sentinel" and self._tokenizer.token_to_id(SENTINEL) is None:
            raise InputError(
                f"the backbone's tokenizer has no {SENTINEL}: set metatrain.template to instruction in params.yaml"
            )

    def target(self, template: Template, label: int) -> list[int]:
        """Return the ids that the decoder should give: the sentinel, if any, and the label word; no end token."""
        return list(self._tokenizer.encode(template.target(label), add_special_tokens=False).ids)

    def length(self, text: str) -> int:
        """Return the number of tokens of a text, without the special tokens that the tokenizer adds."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def knows(self, text: str) -> bool:
        """True if the tokens of a text spell it, without a character that the vocabulary lacks."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        spelled, written = (
            "".join(unicodedata.normalize("NFKC", part).split()) for part in (self._tokenizer.decode(ids), text)
        )
        return spelled.lower() == written.lower()

    def words(self) -> Iterator[str]:
        """Yield the text of each token of the vocabulary, without spaces around it, in the order of ids."""
        vocabulary = self._tokenizer.get_vocab()
        for token in sorted(vocabulary, key=lambda token: vocabulary[token]):
            yield self._tokenizer.decode([vocabulary[token]]).strip()

    def plain(self, text: str) -> str:
        """Return a text without special tokens: a space is put into everything that looks like one."""
        return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}" if len(match[0]) > 1 else " ", text)

    def encode(self, template: Template, rows: Sequence[Sequence[str]]) -> list[Encoded]:
        """Tokenize many examples of one template, given by their texts, in their order."""
        slots = [self.placeholder] * template.slots
        rendered = [template.render([self.plain(text) for text in texts], slots) for texts in rows]
        encodings = self._tokenizer.encode_batch([example.text for example in rendered])
        return [self._fitted(example, encoding) for example, encoding in zip(rendered, encodings, strict=True)]

    def _fitted(self, rendered: Rendered, encoding: Encoding) -> Encoded:
        ids: list[int] = encoding.ids
        kept = tuple(end - start for start, end in rendered.texts)
        if len(ids) <= self.max_length and not rendered.slots:
            return Encoded(ids, (), kept, len(ids))
        offsets: list[Span] = encoding.offsets
        if len(ids) > self.max_length:
            own = [_tokens_within(offsets, span) for span in rendered.texts]
            room = self.max_length - len(ids) + sum(map(len, own))
            if room < sum(map(bool, own)):
                least = len(ids) - sum(map(len, own)) + sum(map(bool, own))
                raise InputError(
                    f"max_length = {self.max_length} is too short for {rendered.text[:60]!r}…: its template with one "
                    f"token of each text takes {least} tokens"
                )
            lengths = shortened([len(tokens) for tokens in own], room)
            cut = {token for tokens, length in zip(own, lengths, strict=True) for token in tokens[length:]}
            kept = tuple(
                offsets[tokens[length]][0] - start if length < len(tokens) else end - start
                for tokens, length, (start, end) in zip(own, lengths, rendered.texts, strict=True)
            )
            ids = [token for position, token in enumerate(ids) if position not in cut]
            offsets = [span for position, span in enumerate(offsets) if position not in cut]
        slots = tuple(offsets.index(span) for span in rendered.slots)
        return Encoded(ids, slots, kept, len(encoding))


def shortened(lengths: Sequence[int], room: int) -> list[int]:
    """Return the lengths after removing tokens, one at a time from the longest text, until their sum is at most `room`.

    Of equal lengths, the last is shortened first. All are cut to the same level; tokens left over go to the texts that
    were cut, one each, from the first.
    """
    if sum(lengths) <= room:
        return list(lengths)
    level, open_room = 0, room
    for rank, length in enumerate(sorted(lengths)):
        fair = open_room // (len(lengths) - rank)
        level = fair
        if length > fair:
            break
        open_room -= length
    cut = [min(length, level) for length in lengths]
    spare = room - sum(cut)
    for number, length in enumerate(lengths):
        if spare and length > level:
            cut[number] += 1
            spare -= 1
    return cut


def _tokens_within(offsets: Sequence[Span], span: Span) -> list[int]:
    """Return the positions of the tokens that lie wholly in a span; those across its edge belong to the template."""
    start, end = span
    return [position for position, (first, last) in enumerate(offsets) if start <= first < last <= end]


def _placeholder(names: object, where: str) -> str:
    known = names if isinstance(names, dict) else {}
    for name in _PLACEHOLDERS:
        token = known.get(name)
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str) and content:
            return content
    raise InputError(f"{where}: its tokenizer has none of {', '.join(_PLACEHOLDERS)}: give it a pad token")
