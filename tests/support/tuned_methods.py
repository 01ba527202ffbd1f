"""What tests of every way of tuning share: fixtures, runs that die in mid-training, and predictions in two ways."""

from contextlib import contextmanager

import duckdb
import numpy as np
import orjson
import pytest

from model.tuning.classifier import PromptedClassifier
from storage import paths
from storage.atomic import remove
from support.tuning_room import furnish, run_tune, tuning_corpus
from support.vector_corpus import contents


class KilledError(BaseException):
    """The end of a process, which no `except Exception` notices."""


def rooms(tune, sets=("first",)):
    """Return the fixtures `furniture` (models and sets, once a module) and `corpus` (a workspace with a copy)."""

    @pytest.fixture(scope="module")
    def furniture(tmp_path_factory):
        return furnish(tmp_path_factory.mktemp("furniture"), sets)

    @pytest.fixture
    def corpus(tmp_path, furniture):
        return tuning_corpus(tmp_path, furniture, tune, sets)

    return furniture, corpus


@contextmanager
def dying_after(steps, tuner):
    """Let the process die instead of taking another step, when a class of tuners has taken some."""
    plain, taken = tuner.advance, 0

    def advance(self):
        nonlocal taken
        if taken == steps:
            raise KilledError
        taken += 1
        plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuner, "advance", advance)
        yield


def die_in_training(corpus, steps, tuner, **changes):
    """Run the stage with a checkpoint after every step, until it dies."""
    with dying_after(steps, tuner), pytest.raises(KilledError):
        run_tune(corpus, checkpoint_seconds=1e-6, **changes)


def assert_resumed_to_the_same_bytes(corpus, steps, tuner, **changes):
    """Die, run again, and compare with a run that nothing disturbed."""
    die_in_training(corpus, steps, tuner, **changes)
    run_tune(corpus, **changes)
    resumed = [contents(corpus.root / folder) for folder in (paths.TUNED_PROMPTS, paths.PREDICTIONS)]
    remove(corpus.root / ".supmer")
    run_tune(corpus, checkpoint_seconds=60, **changes)
    assert [contents(corpus.root / folder) for folder in (paths.TUNED_PROMPTS, paths.PREDICTIONS)] == resumed


def classified(folder, furniture, **options):
    """Return the classifier of a tuned folder, and its predictions for the test texts of the first set."""
    classifier = PromptedClassifier.from_pretrained(folder, **options)
    lines = (furniture / "sets/first/test.jsonl").read_text("utf-8").splitlines()
    return classifier, classifier.predict([orjson.loads(line)["text"] for line in lines])


def stored_predictions(corpus, tuned_hash, columns="predicted"):
    """Return what the stage stored about the same texts, in their order."""
    return duckdb.sql(
        f"SELECT {columns} FROM '{corpus.root / paths.PREDICTIONS}/**/*.parquet' "
        f"WHERE tuned_hash = '{tuned_hash}' AND tested_on = 'first' "
        "ORDER BY CAST(split_part(example_id, ':', 2) AS INT)"
    ).fetchall()


def assert_predicts_as_the_stage(corpus, furniture, folder, tuned_hash, precision):
    """Compare the probabilities of a classifier with those that the stage found in the same precision."""
    options = {"backbone": furniture / "models/backbone", "any_backbone": True, "precision": precision}
    classifier, found = classified(folder, furniture, **options)
    stored = stored_predictions(corpus, tuned_hash, "predicted, log_probabilities")
    assert [classifier.labels.index(prediction.label) for prediction in found] == [label for label, _ in stored]
    for prediction, (_, scores) in zip(found, stored, strict=True):
        likely = np.exp(np.array(scores) - max(scores))
        assert list(prediction.probabilities.values()) == pytest.approx(likely / likely.sum(), abs=1e-5)
