"""The method that starts from a shipped prompt: its own tokens, its hashes, and what is refused in one line."""

import duckdb
import numpy as np
import pytest

from storage import paths
from storage.errors import InputError
from storage.prompts.prompt_artifact import PromptArtifact, prompt_hash, write_prompt
from support.tuning_room import WIDTH, furnish, tuning_corpus, write_learned
from support.tuning_room import run_tune as run
from tasks.params.learning_schema import TuneParams

pytestmark = pytest.mark.usefixtures("one_core")

SMALL = {"methods": ["supmer-shipped"], "shipped_prompt": "news", "learning_rates": [0.3], "seeds": [10]}


@pytest.fixture(scope="module")
def furniture(tmp_path_factory):
    return furnish(tmp_path_factory.mktemp("furniture"))


@pytest.fixture
def corpus(tmp_path, furniture):
    corpus = tuning_corpus(tmp_path, furniture, SMALL)
    write_learned(tmp_path / paths.SHIPPED_PROMPTS / "news", 3, 1, regularized=True)
    return corpus


def starts(corpus):
    table = corpus.root / paths.SCORES
    return duckdb.sql(f"SELECT DISTINCT prompt_hash FROM '{table}/**/*.parquet'").fetchall()


def test_tuning_starts_from_the_shipped_prompt_with_its_own_tokens(corpus):
    run(corpus)
    assert starts(corpus) == [(prompt_hash(corpus.root / paths.SHIPPED_PROMPTS / "news"),)]


def test_a_changed_prompt_is_tuned_again(corpus):
    run(corpus)
    write_learned(corpus.root / paths.SHIPPED_PROMPTS / "news", 3, 2, regularized=False)
    run(corpus)
    assert "tune-tune/first/supmer-shipped-4" in corpus.done
    assert starts(corpus) == [(prompt_hash(corpus.root / paths.SHIPPED_PROMPTS / "news"),)]


def test_a_prompt_that_is_not_there_is_named(corpus):
    with pytest.raises(InputError, match=r"tune\.shipped_prompt: no prompt in prompts/nwes: there are news"):
        run(corpus, shipped_prompt="nwes")


def test_the_method_without_a_prompt_is_refused_with_the_parameters():
    with pytest.raises(ValueError, match=r"names supmer-shipped, .* but tune\.shipped_prompt = null"):
        TuneParams.model_validate({"methods": ["supmer-shipped"]})


def test_a_prompt_of_another_width_is_refused_in_one_line(corpus):
    prompt = PromptArtifact(np.zeros((3, WIDTH + 1), np.float32))
    write_prompt(corpus.root / paths.SHIPPED_PROMPTS / "wide", prompt, "# wide\n")
    with pytest.raises(InputError, match=r"supmer-shipped: its rows have 17 numbers, the backbone .* takes 16"):
        run(corpus, shipped_prompt="wide")
