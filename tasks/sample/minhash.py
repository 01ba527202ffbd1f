"""MinHash over word shingles, cut into bands: texts with an equal band key are near duplicates (Broder 1997).

All arithmetic is on wrapping integers in numpy, over a batch of documents at once: exact, and the same on every
machine.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_SPACE = 0x20
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
_MASK = (1 << 64) - 1
# Maps ASCII letters to lower case and other ASCII characters to space; bytes of other scripts stay as they are.
_FOLD = bytes(byte if byte >= 0x80 or chr(byte).isalnum() else _SPACE for byte in bytes(range(256)).lower())


def band_keys(texts: Sequence[str], shingle_words: int, bands: int, rows: int) -> NDArray[np.uint64]:
    """Return one key for each band of each text, `[texts, bands]`.

    Two texts whose sets of shingles have Jaccard similarity J agree on a given band with probability J^rows.
    """
    if not texts:
        return np.zeros((0, bands), np.uint64)
    hashes, starts = _shingles(texts, shingle_words)
    multipliers, addends = _permutations(bands * rows)
    signature = np.empty((bands * rows, len(texts)), np.uint32)
    permuted = np.empty_like(hashes)
    for number in range(bands * rows):
        np.multiply(hashes, multipliers[number], out=permuted)
        np.add(permuted, addends[number], out=permuted)
        np.minimum.reduceat(permuted, starts, out=signature[number])
    keys = np.zeros((bands, len(texts)), np.uint64)
    for row in range(rows):
        keys = _mixed(keys * np.uint64(_BASE) + signature[row::rows])
    return np.ascontiguousarray(keys.T)


def _shingles(texts: Sequence[str], shingle_words: int) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
    """Return the hashes of all runs of `shingle_words` words, and the start of each text's hashes.

    A text of fewer words is one shingle.
    """
    words, counts = _word_hashes(texts)
    owner = np.repeat(np.arange(len(texts)), counts)
    # Add a zero for each word of a shingle after each text: none reaches into the next text, even from an empty one.
    spread = np.zeros(len(words) + shingle_words * len(texts), np.uint64)
    spread[np.arange(len(words)) + owner * shingle_words] = words
    rolled = np.zeros(len(spread) - shingle_words + 1, np.uint64)
    for place in range(shingle_words):
        rolled = rolled * np.uint64(_BASE) + spread[place : place + len(rolled)]
    shingles = np.maximum(counts - shingle_words + 1, 1)
    starts = np.cumsum(shingles) - shingles
    first = np.cumsum(counts + shingle_words) - (counts + shingle_words)
    places = np.arange(shingles.sum()) + np.repeat(first - starts, shingles)
    return (_mixed(rolled[places]) >> np.uint64(32)).astype(np.uint32), starts


def _word_hashes(texts: Sequence[str]) -> tuple[Words, NDArray[np.intp]]:
    """Return a hash of every word of every text, in order, and the number of words of each text."""
    encoded = [text.encode("utf-8", "surrogatepass").translate(_FOLD) for text in texts]
    data = np.frombuffer(b" " + b" ".join(encoded) + b" ", np.uint8)
    is_letter = data != _SPACE
    edges = np.flatnonzero(is_letter[1:] != is_letter[:-1]) + 1
    begins, ends = edges[::2], edges[1::2]
    powers, inverses = _powers(1 << len(data).bit_length())
    # Prefix sums of byte·base^position; a word's hash is a difference of two, moved back to position 0.
    prefix = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(data * powers[: len(data)], out=prefix[1:])
    hashes = _mixed((prefix[ends] - prefix[begins]) * inverses[begins])
    limits = np.cumsum([len(text) + 1 for text in encoded])
    return hashes, np.diff(np.searchsorted(begins, limits, side="right"), prepend=0)


def _mixed(values: Words) -> Words:
    """Spread every bit over all bits (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@cache
def _powers(length: int) -> tuple[Words, Words]:
    """Return the powers of the base and of its inverse, modulo 2^64."""
    inverse = pow(_BASE, -1, 1 << 64)
    tables = []
    for base in (_BASE, inverse):
        table = np.full(length, base, np.uint64)
        table[0] = 1
        tables.append(np.multiply.accumulate(table))
    return tables[0], tables[1]


@cache
def _permutations(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the odd multipliers and the addends of `count` permutations of the 32-bit numbers."""
    counters = np.arange(1, 2 * count + 1, dtype=np.uint64) * np.uint64(_BASE)
    drawn = (_mixed(counters) >> np.uint64(32)).astype(np.uint32)
    return drawn[:count] | np.uint32(1), drawn[count:]
