"""From tasks to scores on tiny models: PPT, Unified-PPT, MetaPT and all labeled mixtures are learned and tuned."""

import json

import pytest

from storage import paths
from storage.prompts.prompt_artifact import prompt_hash, read_prompt
from support.task_tables import write_tasks
from support.training_room import COUNTS, save_models, write_centroids
from support.tuning_room import link_sets, run_tune, write_sets
from support.vector_corpus import Corpus
from tasks.metatrain import stage as metatrain
from tasks.methods import METHODS

pytestmark = pytest.mark.usefixtures("one_core")

LEARNED = ["ppt", "unified-ppt", "metapt", "supmer-labeled", "ppt-mixed", "metapt-mixed", "supmer-mixed"]
METATRAIN = {
    "prompt_tokens": 3,
    "steps": 2,
    "validate_every": 2,
    "max_length": 300,
    "regularizer": {"rank": 4},
    "ppt": {"steps": 2, "validate_every": 2, "batch_size": 4, "max_length": 300},
    "variants": LEARNED,
}
TUNE = {
    "datasets": ["first", "pairs", "five"],
    "methods": LEARNED,
    "shots": 2,
    "seeds": [10],
    "learning_rates": [0.1],
    "batch_size": 4,
    "epochs": 1,
    "max_length": 200,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("template", ["sentinel", "instruction"])
def test_every_learned_method_goes_from_tasks_to_scores(tmp_path, models, template):
    write_sets(tmp_path / "sets", ["first"])
    write_sets(tmp_path / "sets", ["pairs"], labels=3, pairs=True)
    write_sets(tmp_path / "sets", ["five"], labels=5)
    names = ("first", "pairs", "five")
    corpus = Corpus(
        tmp_path,
        {
            "metatrain": METATRAIN | {"template": template},
            "tune": TUNE,
            "materialize": {"labeled": {"datasets": ["first"]}},
            "acquire": {"datasets": dict.fromkeys(names, "path:x")},
        },
    )
    corpus.link_models(models)
    link_sets(tmp_path, tmp_path / "sets", names)
    for split in ("train", "validation"):
        write_tasks(tmp_path / paths.TASKS, COUNTS | {"labeled-stars": 6}, split, support=5, query=5)
    write_centroids(tmp_path / paths.CENTROIDS)
    outputs = [paths.PROMPTS, paths.TRAINING_STEPS, paths.HELD_OUT, paths.KINDS, paths.METATRAIN_PLOTS]
    corpus.run(metatrain, [paths.TASKS, paths.CENTROIDS, paths.BACKBONE], [*outputs, paths.METATRAIN_METRICS])
    run_tune(corpus)
    metrics = json.loads((tmp_path / paths.TUNE_METRICS).read_text())
    assert {name: set(scores) for name, scores in metrics.items()} == {f"{one}, 2 shots": {*LEARNED} for one in names}
    for dataset, fields in (("first", 1), ("pairs", 2), ("five", 1)):
        for method in LEARNED:
            downstream = read_prompt(tmp_path / paths.TUNED_PROMPTS / dataset / method).about["downstream"]
            start = tmp_path / paths.PROMPTS / METHODS[method].prompt_for(fields)
            assert downstream["start"] == prompt_hash(start)
            asks_letters = downstream["words"] == list("ABCDEF")[: len(downstream["labels"])]
            assert asks_letters == (method == "unified-ppt")
