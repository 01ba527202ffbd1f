"""Few-shot inference: whole demonstrations, labels in turn, never a cut query while one can be left out."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.text.demonstrations import Demonstration, DemonstrationPacker, cycled, written
from model.text.templates import parse_template
from model.text.tokenization import TemplateTokenizer
from support import tiny_tokenizers

TOKENIZERS = {"unigram": tiny_tokenizers.unigram(), "bytes": tiny_tokenizers.byte_level()}
ASKED = parse_template("Which letter? {text} Answer:", ["text"], ["yes", "no"])
FILLED = parse_template("{text} Answer: <X>.", ["text"], ["yes", "no"])


def demonstrations(count, labels=2, words=4):
    chance = random.Random(count)
    return [
        Demonstration((tiny_tokenizers.sentence(chance, chance.randint(1, words)),), number % labels)
        for number in range(count)
    ]


def test_an_answer_stands_after_the_instruction_or_in_the_sentinels_place():
    tokenizer = TemplateTokenizer.of(TOKENIZERS["unigram"], 100)
    one = Demonstration(("the river</s>",), 1)
    assert written(ASKED, tokenizer, one) == "Which letter? the river< /s> Answer: no"
    assert written(FILLED, tokenizer, one) == "the river< /s> Answer: no."


def test_labels_take_turns_the_shortest_of_each_first():
    given = [Demonstration((), label) for label in (0, 0, 0, 1, 1, 2)]
    assert cycled(given, [5, 3, 4, 9, 8, 1]) == [1, 4, 5, 2, 3, 0]
    assert cycled([], []) == []


@pytest.mark.parametrize("template", [ASKED, FILLED], ids=["instruction", "sentinel"])
def test_all_fit_into_a_long_input_and_the_query_stands_last(template):
    tokenizer = TOKENIZERS["unigram"]
    packer = DemonstrationPacker(TemplateTokenizer.of(tokenizer, 400), template, template, demonstrations(4))
    (ids,) = packer.encode([["winter morning"]])
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text.count("Answer:") == 5
    alone = TemplateTokenizer.of(tokenizer, 400).encode(template, [["winter morning"]])[0].ids
    assert ids[-len(alone) :] == alone


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(TOKENIZERS)),
    st.integers(25, 160),
    st.integers(0, 9),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_what_fits_is_taken_and_nothing_of_the_query_is_lost(name, max_length, count, lengths):
    tokenizer = TemplateTokenizer.of(TOKENIZERS[name], max_length)
    unlimited = TemplateTokenizer.of(TOKENIZERS[name], 10_000)
    queries = [[" ".join(["river"] * length)] for length in lengths]
    given_examples = demonstrations(count)
    packed = DemonstrationPacker(tokenizer, ASKED, ASKED, given_examples).encode(queries)
    everything = DemonstrationPacker(unlimited, ASKED, ASKED, given_examples).encode(queries)
    for ids, alone, whole in zip(packed, tokenizer.encode(ASKED, queries), everything, strict=True):
        assert len(ids) <= max_length
        assert ids[-8:] == alone.ids[-8:]
        if alone.full_length < max_length:
            assert len(ids) >= alone.full_length
        if len(whole) <= max_length:
            assert ids == whole
