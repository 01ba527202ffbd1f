"""`supmer forget --purge` in real processes: the stages run again, the text is gone here, and a certificate says so."""

from dataclasses import replace

import duckdb
import orjson
import pytest

from storage.lockfile import cache_folder
from storage.records.forgotten import read_forgotten

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(workspace, prefect_api):
    return replace(workspace, api=prefect_api)


def holders(root, passage):
    """Return the Parquet files of the cache, the shards and the outputs with a text that contains the passage."""
    shards, outputs = (root / ".supmer/shards").rglob("*.parquet"), (root / "data/corpus").rglob("*.parquet")
    found = []
    for path in (*cache_folder(root).glob("??/*"), *shards, *outputs):
        if path.read_bytes()[:4] == b"PAR1":
            table = duckdb.read_parquet(str(path))
            if "text" in table.columns and passage in str(table.project("text").fetchall()):
                found.append(path)
    return found


def test_a_document_is_forgotten_to_the_end_and_the_call_can_be_repeated(workspace):
    root = workspace.root
    text = orjson.loads((root / "texts/first.jsonl").read_bytes().splitlines()[3])["text"]
    passage = text.split(". ")[1]
    assert holders(root, passage)
    workspace.git("add", "dvc.lock", "lineage")
    workspace.git("commit", "--quiet", "-m", "A run")

    told = workspace.run("forget", text, "--why", "a takedown", "--purge", "--dry-run")
    assert "affected: sample and all stages after it" in told
    assert read_forgotten(root / "forgotten.csv") == {}

    told = workspace.run("forget", passage, "--why", "a takedown", "--purge", "--yes")
    [document] = read_forgotten(root / "forgotten.csv")
    assert holders(root, passage) == []
    assert "still there: texts/first.jsonl, row 4: a file of source own: remove it there" in told
    assert "still there: 1 git commit (" in told
    [path] = (root / "lineage/forgotten").glob("*.json")
    certificate = orjson.loads(path.read_bytes())
    assert (certificate["documents"], certificate["why"]) == ([document], "a takedown")
    assert certificate["rows_before"][document]["documents"] == 1
    assert not any(certificate["rows_after"][document].values())
    assert "data/corpus/sentences" in certificate["outputs"]
    assert certificate["purged"]["objects"] > 0

    assert "verified: " in workspace.run("verify")
    assert "up to date" in workspace.run("status", program="dvc")
    told = workspace.run("forget", document, "--why", "a takedown", "--purge", "--yes")
    assert "purged: 0 objects of DVC's cache" in told
    assert "still there: 1 git commit (" in told
