"""Filters for documents: a few tests after Gopher (Rae et al. 2021), each with a name and a parameter."""

import re
import string
from collections.abc import Iterator
from typing import NamedTuple

import py3langid

from tasks.params.schema import SampleParams
from tasks.sample.words import Words, words_of

_SAMPLES = (300, 1_500)  # characters in which English words are counted: first few, then more
_MODEL_SAMPLE = 600  # the model takes 1 µs for a character, and 600 are enough
_CLEAR_SHARE = 0.12  # share of the words; running English has 0.25 and more, other languages below 0.02
_NOT_LETTERS = re.compile(r"[\W\d_]+")
_ASCII = bytes(range(128))
_ASCII_SPACE = b" \t\n\r\x0b\x0c"
_ASCII_LETTERS = string.ascii_letters.encode()
# Words of English alone: no other language in Latin script has them.
_ENGLISH_WORDS = """the of and to that for with was from by are this which were has have had been their his she they
    would there about could should through these those because when what who how your our its"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())


class Rejection(NamedTuple):
    """The reason to leave a document out: the name of the test, and the figure that failed it."""

    reason: str
    detail: str


class Inspection(NamedTuple):
    """The result of the filters: the words, and the first test that failed, if any."""

    words: Words
    rejection: Rejection | None


def inspect(text: str, encoded: bytes, params: SampleParams) -> Inspection:
    """Apply every test to a document, given with its UTF-8 bytes; the first failure counts."""
    words = words_of(text, encoded)
    return Inspection(words, next(_rejections(text, encoded, words.number, params), None))


def _rejections(text: str, encoded: bytes, words: int, params: SampleParams) -> Iterator[Rejection]:
    """Yield the failed tests in order; no test is made before it is needed."""
    if not words:
        yield Rejection("empty", "no text")
    if words < params.min_words:
        yield Rejection("too_short", f"{words} words")
    if words > params.max_words:
        yield Rejection("too_long", f"{words} words")
    length = (len(text) + 1) / words - 1  # without the space after each word
    if not params.min_mean_word_length <= length <= params.max_mean_word_length:
        yield Rejection("word_length", f"{length:.1f} characters a word")
    letters = alphabetic_share(text, encoded)
    if letters < params.min_alphabetic_share:
        yield Rejection("not_alphabetic", f"{letters:.2f} of the characters are letters")
    repeated = repeated_line_share(text)
    if repeated > params.max_repeated_line_share:
        yield Rejection("repeated_lines", f"{repeated:.2f} of the lines repeat another")
    if params.language is not None and (language := language_of(text, params.language)) != params.language:
        yield Rejection("language", language)


def alphabetic_share(text: str, encoded: bytes) -> float:
    """Return the share of letters among the characters that are not white space."""
    others = encoded.translate(None, _ASCII_LETTERS)
    letters = len(encoded) - len(others)
    visible = len(text) - len(others) + len(others.translate(None, _ASCII_SPACE))
    if len(encoded) != len(text):
        letters += len(_NOT_LETTERS.sub("", others.translate(None, _ASCII).decode()))
    return letters / max(visible, 1)


def repeated_line_share(text: str) -> float:
    """Return the share of lines that occurred before, among the lines that are not blank."""
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def language_of(text: str, expected: str) -> str:
    """Return the ISO 639-1 code of the text's language, judged by its beginning.

    Clear English is recognized by its function words, at a hundredth of the cost of the model; other texts by the
    model.
    """
    if expected == "en":
        for length in _SAMPLES:
            words = text[:length].lower().split()
            if sum(map(_ENGLISH.__contains__, words)) >= _CLEAR_SHARE * len(words):
                return "en"
    code: str = py3langid.classify(text[:_MODEL_SAMPLE])[0]
    return code


def known_languages() -> frozenset[str]:
    """Return the codes that the language filter can recognize."""
    return frozenset(code for code, _ in py3langid.rank("text"))
