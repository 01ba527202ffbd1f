"""The measures of a classifier agree with their definitions."""

import numpy as np
import pytest

from tasks.evaluate.classification import (
    accuracy,
    balance,
    calibration,
    confusion_matrix,
    f1_scores,
    macro_f1,
    macro_f1_interval,
    wilson_interval,
)

TRUE, PREDICTED = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 0, 2]


def test_the_confusion_matrix_has_true_labels_as_rows():
    matrix = confusion_matrix(TRUE, PREDICTED, 4)
    assert matrix.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert accuracy(matrix) == pytest.approx(4 / 6)
    assert f1_scores(matrix).tolist() == pytest.approx([4 / 6, 2 / 4, 1, 0])
    assert macro_f1(matrix) == pytest.approx((4 / 6 + 2 / 4 + 1) / 3)  # a label that never occurs does not count


def test_the_balance_is_the_share_of_the_most_frequent_label():
    assert (balance(TRUE).label, balance(TRUE).share) == (0, 0.5)


def test_wilsons_interval_is_the_published_one():
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_the_interval_of_macro_f1_holds_it_and_shrinks_with_more_examples():
    few, many = confusion_matrix(TRUE, PREDICTED, 3), 100 * confusion_matrix(TRUE, PREDICTED, 3)
    low, high = macro_f1_interval(few)
    assert low < macro_f1(few) <= high
    assert macro_f1_interval(many)[1] - macro_f1_interval(many)[0] < (high - low) / 4
    assert macro_f1_interval(few) == (low, high)


def test_calibration_is_zero_for_probabilities_that_are_frequencies():
    shares = np.array([[0.75, 0.25]] * 4)
    fit = calibration([0, 0, 0, 1], shares)
    assert fit.error == pytest.approx(0)
    assert fit.brier == pytest.approx((3 * 2 * 0.0625 + 2 * 0.5625) / 4)
    assert calibration([1, 1, 1, 1], shares).error == pytest.approx(0.75)
    assert [part.examples for part in fit.bins] == [4]
