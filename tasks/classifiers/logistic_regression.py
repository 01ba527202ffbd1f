"""Logistic regression on fixed features of texts: one fit for each seed and strength, of which validation chooses."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from model.prompt.prediction import LabelScores
from model.tuning.runs import Point, Tuned
from storage.errors import InputError
from storage.prompts.classifier_artifact import Array, ClassifierArtifact, read_classifier
from tasks.cards.classifier_card import classifier_card
from tasks.labeled.dataset import FewShotSplit, LabeledExample, few_shot_split
from tasks.stage.contract import Record
from tasks.tune.cost import Cost, PeakMemory
from tasks.tune.evaluation import Evaluated
from tasks.tune.method_module import EvaluationJob, TuningJob
from tasks.tune.seed_files import PROMPT_FOLDER, write_curves
from tasks.tune.seed_tuning import SeedTuned

Texts = Sequence[Sequence[str]]
"""The texts of each example, one or two."""
Rows = Any
"""Features [examples, features], as a numpy array or as a sparse matrix of scipy."""
_ITERATIONS = 1000  # the most steps of L-BFGS; a fit on few examples takes some dozens


class Features(Protocol):
    """What turns texts into numbers."""

    @property
    def start(self) -> str:
        """The hash of what the features come from."""

    def rows(self, texts: Texts) -> Rows:
        """Return the features of each example."""

    def artifact(self, tensors: dict[str, Array]) -> ClassifierArtifact:
        """Return the classifier with these weights, and what is needed to compute the features again."""


FeaturesOf = Callable[[Texts], Features]
"""Returns the features that are learned from training texts."""


def tuned_seeds(job: TuningJob, features_of: FeaturesOf) -> dict[str, Record]:
    """Fit every seed with every strength, and write the results of each; return a record for each."""
    records = {}
    for place, seed in enumerate(job.seeds):
        records[str(seed)] = _tuned(job, seed, features_of)
        job.progress((place + 1) / len(job.seeds), f"{job.tuning.dataset}/{job.tuning.method}: seed {seed}")
    return records


def _tuned(job: TuningJob, seed: int, features_of: FeaturesOf) -> Record:
    memory, began = PeakMemory(torch.device("cpu")), time.monotonic()
    split = few_shot_split(job.dataset, job.tuning.shots, seed)
    features = features_of([example.texts for example in split.train])
    fits = _fits(split, features, len(job.dataset.form.labels), job.tuning.learning_rates)
    numbers = sum(tensor.size for tensor in fits[0][0].values())
    cost = Cost(numbers, time.monotonic() - began, memory.peak())
    tuned = SeedTuned(seed, features.start, split, tuple(result for _, result in fits), cost)
    artifacts = [features.artifact(tensors) for tensors, _ in fits]
    about = _about(job, tuned)
    folder = job.folder / str(seed)
    artifacts[tuned.chosen].write(folder / PROMPT_FOLDER, about, classifier_card(about["downstream"]))
    return write_curves(folder, job.tuning, job.dataset, tuned, [artifact.hash for artifact in artifacts])


def _fits(
    split: FewShotSplit, features: Features, labels: int, strengths: Sequence[float]
) -> list[tuple[dict[str, Array], Tuned]]:
    """Return weights and validation of each strength."""
    train, validation = (features.rows([example.texts for example in part]) for part in (split.train, split.validation))
    classes = np.array([example.label for example in split.train])
    fits = []
    for strength in strengths:
        tensors, iterations = fitted(train, classes, labels, strength)
        point = _point(log_probabilities(validation, tensors), split.validation, iterations)
        fits.append((tensors, Tuned(torch.empty(0), point, (), iterations, "ok")))
    return fits


def fitted(rows: Rows, classes: npt.NDArray[np.int64], labels: int, strength: float) -> tuple[dict[str, Array], int]:
    """Return `weights` [labels, features] and `bias` [labels], and the number of steps; on one core, for equal bits."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        model = LogisticRegression(C=strength, max_iter=_ITERATIONS).fit(rows, classes)
    weights, bias = model.coef_, model.intercept_
    if labels == 2:  # scikit-learn has one row for two labels: the second against the first
        weights, bias = np.vstack([np.zeros_like(weights), weights]), np.concatenate([[0.0], bias])
    return {"weights": weights, "bias": bias}, int(model.n_iter_[0])


def log_probabilities(rows: Rows, tensors: dict[str, Array]) -> Array:
    """Return the log-probability of each label, [examples, labels]."""
    logits = np.asarray(rows @ tensors["weights"].T) + tensors["bias"]
    logits -= logits.max(axis=1, keepdims=True)
    result: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return result


def _point(scores: Array, examples: Sequence[LabeledExample], iterations: int) -> Point:
    labels, predicted = np.array([example.label for example in examples]), scores.argmax(axis=1)
    loss = -float(scores[np.arange(len(labels)), labels].mean())
    return Point(iterations, None, loss, float((predicted == labels).mean()), len(set(predicted.tolist())))


def _about(job: TuningJob, tuned: SeedTuned) -> Record:
    tuning, form = job.tuning, job.dataset.form
    return {
        "downstream": {
            "dataset": tuning.dataset,
            "fields": list(form.fields),
            "labels": list(form.labels),
            "method": tuning.method,
            "seed": tuned.seed,
            "strength": tuning.learning_rates[tuned.chosen],
            "shots": tuning.shots,
            "validation_score": tuned.results[tuned.chosen].best.validation_score,
            "start": tuned.start_hash,
            "data": job.dataset.data_hash,
        }
    }


def evaluated(job: EvaluationJob, features_of: Callable[[ClassifierArtifact], Features]) -> Evaluated:
    """Label examples by the classifier of a seed."""
    assert job.tuned is not None  # `tune` wrote it
    artifact = read_classifier(job.tuned)
    known, asked = len(artifact.tensors["bias"]), len(job.words.label_ids)
    if known != asked:
        raise InputError(f"{job.method}: trained on {known} labels, and the set to test on has {asked}: leave it out")
    rows = features_of(artifact).rows([example.texts for example in job.examples])
    scores = log_probabilities(rows, artifact.tensors)
    return Evaluated(job.examples, LabelScores(scores, scores.argmax(axis=1)), artifact.hash)


def with_pairs(vectors: Sequence[Rows], joined: Callable[[Sequence[Rows]], Rows]) -> Rows:
    """Return the features of one text u as they are, and of two texts u and v as (u, v, |u − v|, u · v)."""
    if len(vectors) == 1:
        return vectors[0]
    first, second = vectors
    product = first.multiply(second) if hasattr(first, "multiply") else first * second  # a sparse * is a dot product
    return joined([first, second, abs(first - second), product])
