"""Sentence embedding + logistic regression (the method `embedding`): vectors of the sentence embedder as features."""

from dataclasses import dataclass

import numpy as np

from model.device import device
from model.sentence_encoder import encode, load_encoder
from storage.errors import InputError
from storage.prompts.classifier_artifact import Array, ClassifierArtifact
from tasks.classifiers.logistic_regression import Rows, Texts, evaluated, tuned_seeds, with_pairs
from tasks.stage.contract import Record
from tasks.tune.evaluation import Evaluated
from tasks.tune.method_module import Embedder, EvaluationJob, TuningJob


@dataclass(frozen=True)
class SentenceVectors:
    """The vectors of texts, by the sentence embedder in float32."""

    embedder: Embedder

    @property
    def start(self) -> str:
        """The hash of the embedder."""
        return self.embedder.hash

    def rows(self, texts: Texts) -> Rows:
        """Return the vectors of each example, [examples, numbers]."""
        encoder = load_encoder("embedder", self.embedder.folder, self.embedder.hash, device(), "float32")
        fields = [encode(encoder, column).astype(np.float64) for column in zip(*texts, strict=True)]
        return with_pairs(fields, np.hstack)

    def artifact(self, tensors: dict[str, Array]) -> ClassifierArtifact:
        """Return the classifier; the embedder gives its features again."""
        return ClassifierArtifact(tensors)


def _vectors(embedder: Embedder | None) -> SentenceVectors:
    if embedder is None:
        raise InputError("no sentence embedder is there: name one in acquire.embedder, then `supmer run acquire`")
    return SentenceVectors(embedder)


def tune(job: TuningJob) -> dict[str, Record]:
    """Fit every seed with every strength."""
    vectors = _vectors(job.embedder)
    return tuned_seeds(job, lambda _texts: vectors)


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples by their vectors."""
    vectors = _vectors(job.embedder)
    return evaluated(job, lambda _artifact: vectors)
