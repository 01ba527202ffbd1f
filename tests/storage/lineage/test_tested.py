"""Ids of predictions and hashes of prompts lead to their file, text and folder."""

import json

import numpy as np
import pytest

from storage.lineage.folder_ancestry import folder_origin
from storage.lineage.prompt_folders import read_folder
from storage.lineage.tested import find_hash, find_tested
from storage.lockfile import read_pipeline
from storage.prompts.peft_adapter import Adapter, write_adapter
from storage.prompts.prompt_artifact import PromptArtifact, theta_hash, write_prompt
from storage.prompts.shipped_prompt import write_hashes
from storage.queries.views import connect, run_query, summaries
from storage.tables.tuning_tables import PREDICTIONS, TESTED_EXAMPLES, write_table

PIPELINE = """\
stages:
  metatrain: {cmd: x, outs: [artifacts/prompt]}
  tune: {cmd: x, outs: [artifacts/tuned, data/tuning/predictions, data/tuning/tested_examples]}
"""
START, TUNED = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)


@pytest.fixture
def root(tmp_path):
    """A workspace with a learned and a tuned prompt, and predictions of two sets that share the name of a file."""
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    write_prompt(tmp_path / "artifacts/prompt/supmer", PromptArtifact(START), "")
    about = {"downstream": {"start": theta_hash(START), "dataset": "movies", "shots": 4}}
    write_prompt(tmp_path / "artifacts/tuned/movies/supmer", PromptArtifact(TUNED, {}, about), "")
    run = {"method": "supmer", "shots": 4, "seed": 1, "tuned_hash": theta_hash(TUNED), "data_hash": "d" * 64}
    names = ("negative", "positive")
    rows = [
        run
        | {"dataset": "movies", "tested_on": name, "example_id": "test.csv:2", "label": 1, "predicted": guess}
        | {"label_name": names[1], "predicted_name": names[guess]}
        for name, guess in (("movies", 1), ("sms", 0))
    ]
    write_table(tmp_path / "data/tuning/predictions/0.parquet", PREDICTIONS, rows, {})
    tested = [
        {"dataset": "movies", "example_id": "test.csv:2", "label": 1, "label_name": "positive", "texts": ["Fine"]}
    ]
    write_table(tmp_path / "data/tuning/tested_examples/0.parquet", TESTED_EXAMPLES, tested, {})
    folder = tmp_path / "data/sources/datasets"
    folder.mkdir(parents=True)
    file = {"name": "test.csv", "path": "sets/test.csv", "bytes": 9, "sha256": "a" * 64}
    source = {"name": "movies", "spec": "path:sets", "licence": "MIT", "folder": "sets", "files": [file]}
    (folder / "source.json").write_text(json.dumps({"role": "datasets", "sources": [source]}))
    return tmp_path


def test_a_prediction_leads_to_its_text_file_and_row(root):
    with connect(root) as connection:
        movies, sms = find_tested(root, connection, "test.csv:2")
        [only] = find_tested(root, connection, "sms/test.csv:2")
        assert find_tested(root, connection, "test.csv:3") == []
    assert (movies["dataset"], movies["row"], movies["texts"], movies["label_name"]) == (
        "movies",
        2,
        ["Fine"],
        "positive",
    )
    assert movies["file"]["path"] == "sets/test.csv"
    assert movies["predictions"] == [{"method": "supmer", "predictions": 1, "right": 1}]
    assert (sms["file"], only) == (None, sms)


def test_a_hash_leads_to_the_folder_and_the_rows(root):
    with connect(root) as connection:
        found = find_hash(root, connection, theta_hash(TUNED)[:12])
        assert find_hash(root, connection, "not a hash") == []
    assert found[0]["folder"] == "artifacts/tuned/movies/supmer"
    assert (found[1]["view"], found[1]["rows"], found[1]["runs"]) == ("predictions", 2, ["movies/supmer"])


def test_a_view_joins_predictions_with_their_texts(root):
    with connect(root) as connection:
        query = "SELECT tested_on, label_name, predicted_name, texts FROM predictions_text ORDER BY 1"
        rows = [row for batch in run_query(root, connection, query).batches for row in batch]
        assert "predictions_text" in [view.name for view in summaries(root, connection)]
    assert rows == [("movies", "positive", "positive", ["Fine"]), ("sms", "positive", "negative", None)]


def test_an_export_and_a_tuned_folder_lead_to_the_prompt_they_come_from(root, tmp_path):
    write_adapter(root / "adapter", Adapter(TUNED, "org/model", None, {}), "")
    about = {"downstream": {"start": theta_hash(START), "dataset": "mine"}}
    write_prompt(root / "my-prompt", PromptArtifact(TUNED * 3, {}, about), "")
    write_prompt(root / "foreign", PromptArtifact(TUNED * 5), "")
    pipeline = read_pipeline(root)
    origins = [folder_origin(pipeline, name, read_folder(root / name)) for name in ("adapter", "my-prompt", "foreign")]
    assert [(origin.relation, origin.prompt, origin.artifact) for origin in origins] == [
        ("exported from", "artifacts/tuned/movies/supmer", "artifacts/tuned"),
        ("tuned from", "artifacts/prompt/supmer", "artifacts/prompt"),
        (None, None, None),
    ]
    assert origins[1].facts == {"dataset": "mine"}


def test_a_folder_that_was_tuned_from_a_shipped_prompt_leads_to_it(root):
    write_prompt(root / "prompts/news", PromptArtifact(TUNED * 7), "")
    write_hashes(root / "prompts/news")
    about = {"downstream": {"start": theta_hash(TUNED * 7), "dataset": "mine"}}
    write_prompt(root / "my-prompt", PromptArtifact(TUNED * 3, {}, about), "")
    origin = folder_origin(read_pipeline(root), "my-prompt", read_folder(root / "my-prompt"))
    assert (origin.relation, origin.prompt, origin.artifact) == ("tuned from", "prompts/news", None)
