import random

import numpy as np
import pytest

from tasks.sample.minhash import band_keys

VOCABULARY = [f"word{number}" for number in range(5_000)]


def pair(similarity: float, source: random.Random, size: int = 300) -> tuple[str, str]:
    """Two texts whose sets of words have the given Jaccard similarity."""
    shared = round(2 * similarity * size / (1 + similarity))
    drawn = source.sample(VOCABULARY, 2 * size - shared)
    return " ".join(drawn[:size]), " ".join(drawn[:shared] + drawn[size:])


@pytest.mark.parametrize("similarity", [0.2, 0.5, 0.8])
def test_agreement_estimates_jaccard_similarity(similarity):
    source = random.Random(7)
    texts = [text for _ in range(60) for text in pair(similarity, source)]
    keys = band_keys(texts, 1, 112, 1)
    assert np.mean(keys[::2] == keys[1::2]) == pytest.approx(similarity, abs=0.02)


def test_bands_find_near_duplicates_and_let_others_be():
    source = random.Random(8)
    near = [text for _ in range(40) for text in pair(0.95, source)]
    far = [text for _ in range(40) for text in pair(0.3, source)]
    found = [np.any(keys[::2] == keys[1::2], axis=1) for keys in (band_keys(near, 1, 14, 8), band_keys(far, 1, 14, 8))]
    assert found[0].all()
    assert not found[1].any()


def test_keys_do_not_depend_on_the_batch():
    texts = ["", "one", "one two three four", "one two three four five six", *(pair(0.5, random.Random(1)))]
    together = band_keys(texts, 5, 4, 2)
    alone = np.vstack([band_keys([text], 5, 4, 2) for text in texts])
    assert np.array_equal(together, alone)
    assert np.array_equal(band_keys(texts[::-1], 5, 4, 2)[::-1], together)


def test_case_and_punctuation_do_not_count():
    keys = band_keys(["Hello, World! It is I -- again.", "hello world it is i again"], 3, 5, 3)
    assert np.array_equal(keys[0], keys[1])


def test_the_order_of_words_counts():
    keys = band_keys(["a b c d e f", "f e d c b a"], 3, 50, 1)
    assert not np.any(keys[0] == keys[1])


def test_keys_are_the_same_on_every_machine():
    keys = band_keys(["It was the best of times, it was the worst of times"], 5, 2, 4)
    assert keys.tolist() == [[13400374967461086452, 8750243455769477043]]


def test_no_texts_no_keys():
    assert band_keys([], 5, 14, 8).shape == (0, 14)
