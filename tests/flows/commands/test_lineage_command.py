"""`supmer lineage` on a real DVC repository with real Parquet files."""

import hashlib
import json
import re

import pytest

from storage.lockfile import read_pipeline


@pytest.fixture
def workspace(audited):
    return audited


def test_the_tree_ends_in_sources_with_hash_and_licence(supmer, workspace):
    code, out, _ = supmer("lineage", "data/examples")
    lines = out.splitlines()
    sha256 = hashlib.sha256((workspace / "data/sources/corpus/news/news.txt").read_bytes()).hexdigest()
    assert code == 0
    assert lines[0].startswith("data/examples  ")
    assert "2 rows, md5 " in lines[0]
    assert (
        lines[1] == "└─ materialize: no lineage event for this version (it was made without supmer, or the log is gone)"
    )
    assert lines[2].startswith("   └─ data/corpus/sentences")
    assert "sample: " in lines[3]
    assert "parameters: seed=3" in lines[4]
    assert "code: make.py" in lines[5]
    assert "source news: wheel:news==1.0, licence MIT" in out
    assert f"sha256 {sha256}" in out
    assert "ran 2026-01-02 03:04:05 UTC, 2.2 s, git abcdef012345 with uncommitted changes, Prefect run prefect-9" in out


def test_a_stage_name_gives_all_its_outputs_and_repeats_no_subtree(supmer):
    _, out, _ = supmer("lineage", "sample")
    tops = [line for line in out.splitlines() if line.startswith("data/")]
    assert [line.split()[0] for line in tops] == [
        "data/corpus/documents",
        "data/corpus/excluded",
        "data/corpus/sentences",
        "data/metrics.json",
    ]
    assert out.count("sample (above)") == 3


def test_a_file_inside_an_artifact_is_found_from_a_subfolder(supmer, workspace, monkeypatch):
    monkeypatch.chdir(workspace / "data/corpus")
    _, out, _ = supmer("lineage", "documents/0.parquet")
    md5 = hashlib.md5((workspace / "data/corpus/documents/0.parquet").read_bytes(), usedforsecurity=False)
    assert out.startswith(f"data/corpus/documents/0.parquet is a file of data/corpus/documents, md5 {md5.hexdigest()}")


def test_json_nests_stages_and_inputs(supmer):
    (tree,) = json.loads(supmer("lineage", "sentences", "--json")[1])
    assert tree["stage"]["parameters"] == {"seed": 3}
    (corpus,) = tree["stage"]["inputs"]
    assert corpus["sources"][0]["licence"] == "MIT"
    assert corpus["stage"]["prefect_run_id"] == "prefect-9"
    assert corpus["rows"] == 77


def test_an_input_that_was_remade_since_is_pointed_out(supmer, workspace):
    md5 = read_pipeline(workspace).locked["materialize"].inputs[0].md5
    before, materialize, after = (workspace / "dvc.lock").read_text().partition("  materialize:")
    (workspace / "dvc.lock").write_text(before + materialize + after.replace(md5, "0" * 32 + ".dir", 1))
    _, out, _ = supmer("lineage", "examples")
    assert re.search(rf"data/corpus/sentences  \S+ kB, md5 {'0' * 32}.dir", out)
    assert f"an earlier version was used; the workspace has md5 {md5}" in out


def test_without_argument_artifacts_are_listed(supmer):
    _, out, _ = supmer("lineage")
    assert re.search(r"^data/corpus/documents +sample +\S+ kB +[0-9a-f]{32}\.dir$", out, re.MULTILINE)
    assert re.search(r"^data/prompt +metatrain +– +not made yet$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        ("data/prompt", "supmer: data/prompt: not made yet: `supmer run metatrain` makes it\n"),
        ("data/corpus/documnts", "did you mean data/corpus/documents"),
        ("zzz", "neither an output of dvc.yaml nor a stage: `supmer lineage` lists them"),
    ],
)
def test_what_is_not_there_is_one_line(supmer, artifact, message):
    code, _, err = supmer("lineage", artifact)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
