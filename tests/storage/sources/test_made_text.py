"""Text that the program makes."""

from itertools import islice

from storage.sources.made_text import BLAME, PRAISE, SUBJECTS, TOPICS, reviews, stories


def test_the_same_seed_makes_the_same_text_and_another_seed_another():
    assert list(stories(10, seed=1)) == list(stories(10, seed=1))
    assert set(stories(10, seed=1)).isdisjoint(stories(10, seed=2))
    assert list(islice(stories(99, seed=1), 10)) == list(stories(10, seed=1)), "more documents change none"


def test_a_story_keeps_to_its_topic_and_is_long_enough_for_the_filters():
    for document, name in zip(stories(len(TOPICS), seed=3), sorted(TOPICS), strict=True):
        words = [word.strip(".,").lower() for word in document.split()]
        assert len(words) > 100
        assert set(TOPICS[name].things.split()) & set(words)
        assert "{" not in document


def test_reviews_are_half_praise_half_blame_and_say_so_in_words():
    for subject in SUBJECTS:
        made = list(reviews(40, subject, seed=1))
        assert sum(one.label == "positive" for one in made) == 20
        for one in made:
            words = {word.strip(".,").lower() for word in one.text.split()}
            own, other = (PRAISE, BLAME) if one.label == "positive" else (BLAME, PRAISE)
            assert words & set(own.split())
            assert not words & set(other.split())
