"""`supmer sample --preview` shows what the filters keep and drop, and changes nothing."""

import json

import pytest
from click.testing import CliRunner

from flows.cli import cli
from support.sample_room import lines, story
from support.workspaces import REPOSITORY


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A workspace with params.yaml of the offline profile and a corpus of its own."""
    root = tmp_path / "workspace"
    (root / "inputs").mkdir(parents=True)
    (root / ".dvc").mkdir()
    (root / "dvc.yaml").write_text((REPOSITORY / "dvc.yaml").read_text())
    text = (REPOSITORY / "profiles" / "offline-tiny.yaml").read_text()
    corpus = tmp_path / "texts"
    corpus.mkdir()
    kept = story(1).replace("river", "brook") + " Short end."
    (corpus / "a.jsonl").write_bytes(lines([kept, "too few words", kept, story(2)]))
    (root / "params.yaml").write_text(text)
    monkeypatch.chdir(root)
    return root


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and ".dvc" not in path.parts}


def run(root, *arguments):
    before = contents(root)
    mine = f"acquire.corpus={{mine: 'path:{root.parent / 'texts'}'}}"
    result = CliRunner().invoke(cli, ["sample", *arguments, "-S", mine])
    assert contents(root) == before
    return result


def test_kept_and_dropped_documents_are_shown_with_place_and_reason(workspace):
    result = run(workspace, "--preview", "1")
    assert result.exit_code == 0, result.output
    assert result.output.count("\nkept: mine/a.jsonl row 1") == 1
    assert "row 4" not in result.output  # one document for each reason
    assert "\ntoo_short (3 words): mine/a.jsonl row 2\n  too few words\n" in result.output
    assert "\nduplicate (mine/a.jsonl row 1): mine/a.jsonl row 3\n" in result.output
    assert "12 of 13 sentences kept; dropped (2 words): Short end." in result.output


def test_settings_are_tried_and_not_kept(workspace):
    result = run(workspace, "--preview", "1", "--json", "-S", "sample.min_words=2", "-S", "sample.language=null")
    reasons = [document["reason"] for document in json.loads(result.stdout)]
    assert reasons == [None, None, "duplicate", None]


def test_no_more_documents_are_read_than_asked_for(workspace):
    assert len(json.loads(run(workspace, "--preview", "1", "--json", "--documents", "2").stdout)) == 2


def test_a_corpus_that_is_not_fetched_yet_is_named(workspace):
    result = CliRunner().invoke(cli, ["sample", "--preview", "1"])
    assert result.exit_code != 0
    assert str(result.exception) == "acquire.corpus.stories: not fetched yet: `supmer run acquire` fetches it"
