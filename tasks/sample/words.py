"""Counting of words as by `len(text.split())`, with a check that the spaces between them are regular."""

from typing import NamedTuple

import numpy as np

# Sums of two neighbouring codes identify the gap: 6 is a blank line, a larger sum is no regular gap.
_SPACE, _BREAK, _ODD, _BLANK_LINE = 5, 3, 8, 6
_CODES = bytes(
    _SPACE if byte == 0x20 else _BREAK if byte == 0x0A else _ODD if byte < 0x80 and chr(byte).isspace() else 0
    for byte in range(256)
)
_ASCII = bytes(range(0x80))
_OTHER_SPACES = frozenset(chr(code) for code in range(0x80, 0x3001) if chr(code).isspace())


class Words(NamedTuple):
    """The number of words of a text; `regular` is True if only single spaces and line breaks separate them.

    In a regular text, the number of words of a line is the number of its spaces plus one.
    """

    number: int
    regular: bool


def words_of(text: str, encoded: bytes) -> Words:
    """Count the words of a text without white space around it, given with its UTF-8 bytes."""
    if len(encoded) != len(text) and not _OTHER_SPACES.isdisjoint(encoded.translate(None, _ASCII).decode()):
        return Words(len(text.split()), regular=False)
    if len(encoded) < 2:
        return Words(len(encoded), regular=True)
    codes = np.frombuffer(encoded.translate(_CODES), np.uint8)
    sums = codes[:-1] + codes[1:]
    most = int(sums.max())
    if most > _BLANK_LINE:
        return Words(len(text.split()), regular=False)
    gaps = int(np.count_nonzero(codes))
    if most == _BLANK_LINE:
        gaps -= int(np.count_nonzero(sums == _BLANK_LINE))
    return Words(gaps + 1, regular=True)
