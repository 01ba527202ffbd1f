"""Paired differences: the interval is Student's, and it holds the true difference about as often as it says."""

import numpy as np
import pytest

from tasks.report.comparisons import Difference, averaged, compared_in_words, difference, t_quantile


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (2.5, 3.575), (10, 2.228), (1e6, 1.960)])
def test_the_quantile_is_that_of_the_tables(freedom, quantile):
    assert t_quantile(freedom) == pytest.approx(quantile, abs=2e-3)


def row_of(gains):
    """Return the row of the query for gains [seeds, examples]."""
    seeds, examples = gains.shape
    return {
        "seeds": seeds,
        "examples": examples,
        "difference": gains.mean(),
        "seed_variance": gains.mean(1).var(ddof=1) if seeds > 1 else None,
        "example_variance": gains.mean(0).var(ddof=1),
    }


def test_intervals_hold_the_true_difference_nineteen_times_in_twenty():
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        gains = 2.0 + 3 * generator.normal(size=(5, 1)) + 30 * generator.normal(size=(1, 100))
        found = difference(row_of(gains + 10 * generator.normal(size=(5, 100))))
        held += abs(found.mean - 2.0) <= found.margin
    assert 0.93 <= held / 400 <= 0.995


def test_one_seed_has_the_interval_of_its_examples_alone():
    gains = np.array([[100.0, 0.0, 0.0, -100.0, 100.0, 0.0]])
    found = difference(row_of(gains))
    assert found.error == pytest.approx(gains.std(ddof=1) / 6**0.5)
    assert found.freedom == pytest.approx(5)


def test_equal_predictions_differ_by_nothing_and_nothing_is_not_clear():
    found = difference(row_of(np.zeros((3, 20))))
    assert (found.mean, found.margin, found.is_clear) == (0.0, 0.0, False)


def test_an_average_over_sets_is_surer_than_one_set():
    single = Difference(4.0, 2.0, 50, 5, 100)
    mean = averaged([single] * 4)
    assert mean.mean == 4.0
    assert mean.error == pytest.approx(1.0)
    assert mean.is_clear


def test_sentences_count_seeds_in_words_and_give_the_interval_if_it_is_clear():
    unsure, sure = Difference(1.3, 2.0, 2, 3, 100), Difference(5.0, 1.0, 30, 5, 100)
    assert compared_in_words("SUPMER", "89.3", "PT", "88.0", unsure) == (
        "SUPMER reached 89.3 %, PT 88.0 %; with three seeds that difference could be chance."
    )
    assert compared_in_words("SUPMER", "93.0", "PT", "88.0", sure) == (
        "SUPMER reached 93.0 %, PT 88.0 %; that difference is more than chance (95 % interval +3.0 to +7.0 points)."
    )
    assert compared_in_words("SUPMER", "88.0", "PT", "88.0", sure) == "SUPMER reached 88.0 %, PT 88.0 %: no difference."
