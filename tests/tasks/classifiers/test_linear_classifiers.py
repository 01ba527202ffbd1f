"""Linear classifiers beside the prompts: same draws, tests and tables; pairs of texts; what cannot be is refused."""

import shutil

import duckdb
import numpy as np
import pytest

from model.convert.tiny_models import save_tiny_embedder
from model.tuning.classifier import PromptedClassifier
from storage import paths
from storage.errors import InputError
from storage.prompts.classifier_artifact import read_classifier
from support.tuning_room import furnish, tuning_corpus, write_rows, write_sets
from support.tuning_room import run_tune as run
from support.vector_corpus import contents
from tasks.classifiers.logistic_regression import fitted, log_probabilities, with_pairs
from tasks.classifiers.tfidf import TermWeights

pytestmark = pytest.mark.usefixtures("one_core")

METHODS = ["tfidf", "embedding"]
SMALL = {"methods": METHODS, "logistic_regression": {"strengths": [0.1, 10.0]}}


@pytest.fixture(scope="module")
def furniture(tmp_path_factory):
    folder = furnish(tmp_path_factory.mktemp("furniture"))
    shutil.rmtree(folder / "models" / "embedder")
    save_tiny_embedder(folder / "models" / "embedder", 1)
    return folder


@pytest.fixture
def corpus(tmp_path, furniture):
    return tuning_corpus(tmp_path, furniture, SMALL)


def rows(corpus, table, columns):
    return duckdb.sql(f"SELECT {columns} FROM '{corpus.root / table}/**/*.parquet' ORDER BY ALL").fetchall()


def test_both_are_fitted_tested_and_described_with_their_cost(corpus):
    record = run(corpus)
    scores = record["scores"]["first, 4 shots"]
    assert set(scores) == {*METHODS}
    assert scores["tfidf"]["mean"] > 0.5  # the first word tells the label, but all words occur in all texts
    costs = rows(corpus, paths.COSTS, "method, seed, parameters > 0, seconds > 0")
    assert costs == [(name, seed, True, True) for name in sorted(METHODS) for seed in (10, 20)]
    folder = corpus.root / paths.TUNED_PROMPTS / "first/tfidf"
    assert "TF–IDF + logistic regression for first, trained on 4 examples per label" in (
        folder / "README.md"
    ).read_text("utf-8")
    artifact = read_classifier(folder)
    assert artifact.tensors["weights"].shape == (2, len(artifact.terms))


def test_they_get_the_draws_and_test_rows_of_the_prompts(corpus):
    run(corpus, methods=[*METHODS, "pt"], learning_rates=[0.3])
    tested = {
        method: duckdb.sql(
            f"SELECT seed, example_id, label FROM '{corpus.root / paths.PREDICTIONS}/**/*.parquet' "
            f"WHERE method = '{method}' ORDER BY ALL"
        ).fetchall()
        for method in (*METHODS, "pt")
    }
    assert tested["tfidf"] == tested["embedding"] == tested["pt"] != []
    data = rows(corpus, paths.SCORES, "DISTINCT data_hash")
    assert len(data) == 1


def test_the_same_inputs_give_the_same_bytes(corpus):
    from storage.atomic import remove

    run(corpus)
    before = contents(corpus.root / paths.TUNED_PROMPTS), contents(corpus.root / paths.PREDICTIONS)
    remove(corpus.root / ".supmer")
    run(corpus)
    assert (contents(corpus.root / paths.TUNED_PROMPTS), contents(corpus.root / paths.PREDICTIONS)) == before


def test_pairs_of_texts_and_three_labels_are_classified(tmp_path, furniture):
    write_sets(tmp_path / "furniture" / "sets", ["first"], labels=3, pairs=True)
    (tmp_path / "furniture" / "models").symlink_to(furniture / "models")
    corpus = tuning_corpus(tmp_path / "room", tmp_path / "furniture", SMALL)
    assert run(corpus)["scores"]["first, 4 shots"]["tfidf"]["mean"] > 0.3
    read = read_classifier(corpus.root / paths.TUNED_PROMPTS / "first/tfidf")
    assert read.tensors["weights"].shape == (3, 4 * len(read.terms))


def test_a_domain_with_other_labels_is_refused_in_one_line(tmp_path, furniture):
    sets = ("first", "second")
    (tmp_path / "furniture").mkdir()
    (tmp_path / "furniture" / "models").symlink_to(furniture / "models")
    write_sets(tmp_path / "furniture" / "sets", sets)
    write_rows(tmp_path / "furniture/sets/second/test.jsonl", 12, "more", labels=3)
    write_rows(tmp_path / "furniture/sets/second/train.jsonl", 24, "more-train", labels=3)
    domains = {"source": "first", "targets": ["second"]}
    corpus = tuning_corpus(tmp_path / "room", tmp_path / "furniture", SMALL | {"domains": domains}, sets)
    with pytest.raises(InputError, match="tfidf: trained on 2 labels, and the set to test on has 3"):
        run(corpus, methods=["tfidf"])


def test_prediction_with_a_classifier_is_refused_in_one_line(corpus):
    run(corpus, methods=["tfidf"], seeds=[10])
    with pytest.raises(InputError, match="holds a linear classifier, which is there to compare with"):
        PromptedClassifier.from_pretrained(corpus.root / paths.TUNED_PROMPTS / "first/tfidf")


def test_texts_without_a_word_are_refused_in_one_line():
    with pytest.raises(InputError, match="no word in the training texts"):
        TermWeights.of_texts([("?!",), ("…",)])


@pytest.mark.parametrize("labels", [2, 3])
def test_probabilities_are_those_of_scikit_learn(labels):
    from sklearn.linear_model import LogisticRegression

    chance = np.random.default_rng(1)
    features, classes = chance.normal(size=(24, 5)), np.arange(24) % labels
    tensors, _ = fitted(features, classes, labels, 1.0)
    expected = LogisticRegression(C=1.0, max_iter=1000).fit(features, classes).predict_log_proba(features)
    np.testing.assert_allclose(log_probabilities(features, tensors), expected, atol=1e-9)


def test_a_pair_has_both_vectors_their_difference_and_their_product():
    first, second = np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]])
    assert with_pairs([first, second], np.hstack).tolist() == [[1, 2, 3, 5, 2, 3, 3, 10]]
