"""Measures of a classifier: accuracy, F1, confusion matrix, calibration, intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.stage.contract import Record

Z_95 = 1.959963984540054  # the normal distribution has 95 % of its mass within so many standard deviations
BINS = 10
RESAMPLES = 1_000

Counts = NDArray[np.int64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Balance:
    """The most frequent label of a set, and its share: the accuracy of always answering it."""

    label: int
    share: float


def confusion_matrix(labels: Sequence[int], predicted: Sequence[int], count: int) -> Counts:
    """Return the number of examples by true label (row) and predicted label (column), [count, count]."""
    matrix = np.zeros((count, count), np.int64)
    np.add.at(matrix, (np.asarray(labels, int), np.asarray(predicted, int)), 1)
    return matrix


def accuracy(matrix: Counts) -> float:
    """Return the share of correct predictions."""
    return float(np.trace(matrix) / max(matrix.sum(), 1))


def macro_f1(matrix: Counts) -> float:
    """Return the mean of the labels' F1; labels that are neither true nor predicted anywhere do not count."""
    present = matrix.sum(0) + matrix.sum(1) > 0
    return float(f1_scores(matrix)[present].mean()) if present.any() else 0.0


def f1_scores(matrix: Counts) -> NDArray[np.float64]:
    """Return the F1 of each label; 0 for a label that is neither true nor predicted anywhere."""
    scores: NDArray[np.float64] = 2 * np.diag(matrix) / np.maximum(matrix.sum(0) + matrix.sum(1), 1)
    return scores


def balance(labels: Sequence[int]) -> Balance:
    """Return the most frequent label and its share; of equally frequent labels, the first."""
    counts = np.bincount(np.asarray(labels, int))
    return Balance(int(counts.argmax()), float(counts.max() / counts.sum()))


def wilson_interval(correct: int, total: int) -> Interval:
    """Return the 95 % interval of a share by Wilson's score, which holds for few examples and shares near 0 or 1."""
    if not total:
        return 0.0, 1.0
    share, spread = correct / total, Z_95 * Z_95 / total
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def macro_f1_interval(matrix: Counts, seed: int = 0) -> Interval:
    """Return the 95 % interval of macro F1 by the bootstrap over examples (1,000 draws, reproducible)."""
    total = int(matrix.sum())
    if not total:
        return 0.0, 1.0
    draws = np.random.default_rng(seed).multinomial(total, matrix.ravel() / total, RESAMPLES)
    scores = [macro_f1(draw.reshape(matrix.shape)) for draw in draws]
    low, high = np.quantile(scores, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class CalibrationBin:
    """Predictions of similar confidence: their number, mean confidence, and share of correct ones."""

    examples: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """The fit of probabilities to frequencies.

    Attributes:
        error: the expected calibration error: the mean distance of confidence and accuracy over the bins.
        brier: the Brier score: the mean squared distance of the probabilities and the true label.
        log_loss: the mean negative logarithm of the true label's probability.
        bins: the bins of confidence that hold examples, lowest first.
    """

    error: float
    brier: float
    log_loss: float
    bins: tuple[CalibrationBin, ...]


def calibration(labels: Sequence[int], probabilities: NDArray[Any]) -> Calibration:
    """Return the calibration of probabilities [n, labels], in ten bins of equal width."""
    true, shares = np.asarray(labels, int), np.asarray(probabilities, np.float64)
    confidence, correct = shares.max(1), shares.argmax(1) == true
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = tuple(
        CalibrationBin(int(inside.sum()), float(confidence[inside].mean()), float(correct[inside].mean()))
        for place in range(BINS)
        if (inside := places == place).any()
    )
    error = sum(part.examples * abs(part.confidence - part.accuracy) for part in bins) / len(true)
    brier = float(((shares - np.eye(shares.shape[1])[true]) ** 2).sum(1).mean())
    own = np.maximum(shares[np.arange(len(true)), true], np.finfo(np.float64).tiny)
    return Calibration(float(error), brier, float(-np.log(own).mean()), bins)


def summary(labels: Sequence[int], predicted: Sequence[int], count: int) -> Record:
    """Return macro F1 and the class balance, as the table of scores holds them."""
    return {
        "macro_f1": macro_f1(confusion_matrix(labels, predicted, count)),
        "majority_share": balance(labels).share,
    }
