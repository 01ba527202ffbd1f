"""The models that the program makes itself."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from model.convert.tiny_models import save_tiny_embedder, save_tiny_t5
from storage.hashing import file_hash
from storage.sources.made_text import TOPICS, stories
from tasks.acquire.stage import check_backbone, check_embedder

pytestmark = pytest.mark.slow


def hashes(folder):
    return {path.name: file_hash(path) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("made")


def test_the_t5_is_a_model_that_has_learned_and_is_the_same_for_the_same_seed(folder):
    losses = save_tiny_t5(folder / "one", steps=25)
    assert losses["last_loss"] < losses["first_loss"] - 0.5
    assert check_backbone(folder / "one")["width"] == 48
    save_tiny_t5(folder / "again", steps=25)
    assert hashes(folder / "one") == hashes(folder / "again")


def test_the_embedder_tells_topics_apart_and_is_the_same_for_the_same_seed(folder):
    save_tiny_embedder(folder / "words")
    assert check_embedder(folder / "words") == {"dimension": 32}
    model = SentenceTransformer(str(folder / "words"), device="cpu", local_files_only=True)
    count = len(TOPICS)
    vectors = model.encode(list(stories(2 * count, seed=77)), show_progress_bar=False)
    nearest = (vectors[:count] @ vectors[count:].T).argmax(1)
    assert np.mean(nearest == np.arange(count)) > 0.9
    save_tiny_embedder(folder / "again-words")
    assert hashes(folder / "words") == hashes(folder / "again-words")


def test_a_text_of_unknown_words_has_a_vector_too(folder):
    model = SentenceTransformer(str(folder / "words"), device="cpu", local_files_only=True)
    assert np.linalg.norm(model.encode(["Ünïcödé ☃"], show_progress_bar=False)[0]) > 0.9
