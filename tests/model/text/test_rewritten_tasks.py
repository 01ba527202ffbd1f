"""Rewritten tasks: an edited copy says no more than its sentence, an altered one does, and names belong to clusters."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.text.rewritten_tasks import (
    QUESTIONS,
    altered,
    asked_meaning,
    cluster_words,
    edited,
    edited_pairs,
    negated,
    own_words,
    without_words,
)
from storage.tables.task_shards import StoredExample, StoredTask

SENTENCES = [
    "The old minister promised lower taxes for farmers, although nobody in parliament believed him anymore.",
    "Heavy rain flooded several villages near the northern river before the army could build barriers.",
    "A young pianist won the national competition, playing three sonatas without a single mistake.",
    "Scientists discovered another planet that circles a distant star within eleven days.",
]


def draw(seed=0):
    return np.random.default_rng(seed)


def words(text):
    return [word.strip(".,;:").lower() for word in text.split()]


def pair_task(support=6, query=6):
    places = [("support", number) for number in range(support)] + [("query", number) for number in range(query)]
    examples = tuple(
        StoredExample(
            f"t/{role[0]}{number:02d}",
            role,
            number % 2,
            (f"{SENTENCES[number % 4]} {role} {number}", f"Another sentence about {role} number {number} here."),
            (f"d{number}:0", f"e{number}:1"),
            (),
        )
        for role, number in places
    )
    return StoredTask("t", "sp", "sp-cluster", 2, examples)


class TestEditing:
    @given(st.sampled_from(SENTENCES), st.integers(0, 10_000))
    def test_an_edited_copy_has_no_word_of_its_own(self, sentence, seed):
        copy = edited(sentence, draw(seed))
        assert not Counter(words(copy)) - Counter(words(sentence))
        assert len(copy.split()) >= 2

    def test_copies_are_cropped_shortened_and_reordered(self):
        copies = [words(edited(SENTENCES[0], draw(seed))) for seed in range(60)]
        whole = words(SENTENCES[0])
        assert any(copy == whole[: len(copy)] and len(copy) < len(whole) for copy in copies)
        assert any(sorted(copy) == sorted(whole) and copy != whole for copy in copies)
        assert any(len(copy) < len(whole) and copy != whole[: len(copy)] for copy in copies)

    @given(st.text(max_size=60), st.text(max_size=60), st.integers(0, 100))
    def test_any_text_can_be_edited_and_altered(self, text, other, seed):
        edited(text, draw(seed))
        altered(text, text, other, draw(seed))

    def test_an_altered_copy_has_one_to_three_words_of_the_other_sentence(self):
        for seed in range(50):
            copy = altered(SENTENCES[0], SENTENCES[0], SENTENCES[1], draw(seed))
            foreign = [word for word in words(copy) if word not in words(SENTENCES[0])]
            assert 1 <= len(foreign) <= 3
            assert set(foreign) <= set(words(SENTENCES[1]))

    def test_without_long_words_nothing_is_altered(self):
        assert altered("It is so.", "It is so.", SENTENCES[0], draw()) is None
        assert altered(SENTENCES[0], SENTENCES[0], "It is so.", draw()) is None

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("The bridge was closed.", "The bridge was not closed."),
            ("The bridge was not closed.", "The bridge was closed."),
            ("They didn't come and never wrote.", "They did come and never wrote."),
            ("She never wrote.", "She wrote."),
            ("Nobody came.", None),
        ],
    )
    def test_a_negated_copy_has_one_negation_more_or_less(self, text, expected):
        assert negated(text, draw()) == expected

    def test_an_edited_copy_keeps_its_negation(self):
        sentence = "The bridge was not closed because heavy lorries needed it every day."
        assert all("not" in words(edited(sentence, draw(seed))) for seed in range(200))


class TestPairs:
    @pytest.mark.parametrize("seed", range(8))
    def test_labels_are_balanced_in_each_set_and_ids_stay(self, seed):
        stored = pair_task()
        task, question = edited_pairs(stored, draw(seed))
        assert task.labels == len(question.words)
        for role in ("support", "query"):
            counts = Counter(example.label for example in task.examples if example.role == role)
            assert set(counts) == set(range(task.labels))
            assert max(counts.values()) == min(counts.values())
        ids = [(example.example_id, example.sentence_ids) for example in stored.examples]
        assert [(example.example_id, example.sentence_ids) for example in task.examples] == ids

    def test_label_0_is_what_the_first_text_says_and_the_others_are_not(self):
        said = 0
        for seed in range(40):
            task, _ = edited_pairs(pair_task(), draw(seed))
            for example in task.examples:
                first, second = (set(words(text)) for text in example.texts)
                if example.label == 0:
                    assert second <= first
                else:
                    assert not second <= first or "not" in first - second
                said += example.label == 0
        assert said

    def test_negations_are_on_both_sides_of_every_label_alike(self):
        """A "not" in the second text must not give the answer away."""
        counts = Counter(
            (example.label == 0, "not" in words(example.texts[1]))
            for seed in range(300)
            for example in edited_pairs(pair_task(), draw(seed))[0].examples
        )
        shares = [counts[is_said, True] / (counts[is_said, True] + counts[is_said, False]) for is_said in (True, False)]
        assert abs(shares[0] - shares[1]) < 0.15

    def test_no_sentence_of_the_query_set_comes_into_the_support_set(self):
        for seed in range(20):
            task, _ = edited_pairs(pair_task(), draw(seed))
            support = [
                word for one in task.examples if one.role == "support" for text in one.texts for word in words(text)
            ]
            assert "query" not in support

    def test_the_same_draw_gives_the_same_task(self):
        assert edited_pairs(pair_task(), draw(3)) == edited_pairs(pair_task(), draw(3))

    def test_a_set_of_one_example_takes_its_own_second_sentence(self):
        task, _ = edited_pairs(pair_task(support=1, query=3), draw(1))
        assert len(task.examples) == 4

    @pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.wordings[0][:12])
    def test_instructions_list_the_words_and_the_sentinel_form_is_the_papers(self, question):
        template = asked_meaning("instruction", question, question.words, draw())
        text = template.render(["One.", "Two."], []).text
        assert all(word in text for word in question.words)
        assert {"One.", "Two."} <= set(text.split())
        assert asked_meaning("sentinel", question, question.words, draw()).form == "sentinel"

    def test_drawn_words_replace_those_of_the_question(self):
        template = asked_meaning("instruction", QUESTIONS[0], ("alpha", "beta"), draw())
        assert template.verbalizer == ("alpha", "beta")
        assert "yes" not in template.render(["One.", "Two."], []).text


class TestOwnWords:
    def task(self, texts):
        """Return a task of two clusters, 7 and 9, in the places 0 and 1."""
        examples = tuple(
            StoredExample(f"t/s{number:02d}", "support", label, (text,), (f"d:{number}",), (7, 9))
            for number, (label, text) in enumerate(texts)
        )
        return StoredTask("t", "ss", "ss", 2, examples)

    def test_words_of_a_cluster_are_those_that_its_sentences_alone_have(self):
        task = self.task(
            [
                (0, "the rain fell over the hills"),
                (0, "more rain for the valley"),
                (1, "the team won the match"),
                (1, "a late match for the team over there"),
            ]
        )
        words = cluster_words([task, task], lambda _word: True)
        assert words == {7: ("rain",), 9: ("match", "team")}

    def test_words_are_one_token_and_at_most_eight(self):
        texts = [(0, "a1 bb rainfall rain " + " ".join(f"w{letter}x" for letter in "abcdefghijk"))] * 2 + [
            (1, "team")
        ] * 2
        words = cluster_words([self.task(texts)], lambda word: word != "rainfall")[7]
        assert len(words) == 8
        assert "rainfall" not in words

    def test_names_are_drawn_differ_and_a_cluster_without_words_gets_its_number(self):
        words = {7: ("rain", "hills"), 9: ("rain",)}
        drawn = {own_words((7, 9, 11), words, draw(seed)) for seed in range(20)}
        assert drawn == {("rain", "2", "3"), ("hills", "rain", "3")}

    def test_the_words_are_taken_out_of_the_texts_and_short_texts_stay(self):
        task = self.task(
            [(0, "Rain fell, and more rain came over the hills"), (1, "the match"), (1, "rainy matches here")]
        )
        texts = [one.texts[0] for one in without_words(task, ("rain", "match")).examples]
        assert texts == ["fell, and more came over the hills", "the match", "rainy matches here"]
