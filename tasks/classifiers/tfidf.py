"""TF–IDF + logistic regression (the method `tfidf`): words and pairs of words of the few training texts, weighted."""

from dataclasses import dataclass, replace
from typing import Any

from storage.errors import InputError
from storage.hashing import json_hash
from storage.prompts.classifier_artifact import Array, ClassifierArtifact
from tasks.classifiers.logistic_regression import Rows, Texts, evaluated, tuned_seeds, with_pairs
from tasks.stage.contract import Record
from tasks.tune.evaluation import Evaluated
from tasks.tune.method_module import EvaluationJob, TuningJob

_FORM = {"ngram_range": (1, 2), "sublinear_tf": True, "token_pattern": r"(?u)\b\w+\b"}


@dataclass(frozen=True)
class TermWeights:
    """The terms of training texts with their weights: `vectorizer` is scikit-learn's."""

    vectorizer: Any

    @classmethod
    def of_texts(cls, texts: Texts) -> "TermWeights":
        """Return the terms of training texts."""
        vectorizer = _vectorizer()
        try:
            vectorizer.fit([text for example in texts for text in example])
        except ValueError:
            raise InputError("TF–IDF: there is no word in the training texts: use another method") from None
        return cls(vectorizer)

    @classmethod
    def of_artifact(cls, artifact: ClassifierArtifact) -> "TermWeights":
        """Return the terms of a stored classifier."""
        vectorizer = _vectorizer(vocabulary=list(artifact.terms))
        vectorizer.idf_ = artifact.tensors["inverse_document_frequencies"]
        return cls(vectorizer)

    @property
    def start(self) -> str:
        """The hash of what the features come from: nothing but the training texts."""
        return json_hash([list(map(str, pair)) for pair in _FORM.items()])

    def rows(self, texts: Texts) -> Rows:
        """Return the weights of the terms of each example, a sparse matrix."""
        from scipy.sparse import csr_matrix, hstack

        fields = [self.vectorizer.transform(column) for column in zip(*texts, strict=True)]
        return csr_matrix(with_pairs(fields, hstack))

    def artifact(self, tensors: dict[str, Array]) -> ClassifierArtifact:
        """Return the classifier with its terms and their weights."""
        classifier = ClassifierArtifact(tensors | {"inverse_document_frequencies": self.vectorizer.idf_})
        return replace(classifier, terms=tuple(self.vectorizer.get_feature_names_out().tolist()))


def _vectorizer(**more: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(**_FORM, **more)


def tune(job: TuningJob) -> dict[str, Record]:
    """Fit every seed with every strength."""
    return tuned_seeds(job, TermWeights.of_texts)


def evaluate(job: EvaluationJob) -> Evaluated:
    """Label examples by their words."""
    return evaluated(job, TermWeights.of_artifact)
