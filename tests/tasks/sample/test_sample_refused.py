"""The stage `sample`: a corpus that cannot be used is refused in one line."""

import pytest

from storage import paths
from storage.errors import InputError
from support.sample_room import SampleRoom, lines, story


def message(workspace: SampleRoom, **changes) -> str:
    with pytest.raises(InputError) as error:
        workspace.run(**changes)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_empty_corpus_is_said(workspace):
    workspace.add("a.jsonl", b"\n")
    assert message(workspace) == (
        "data/sources/corpus: no document in 1 file: add documents, or check acquire.corpus in params.yaml"
    )


def test_a_corpus_of_which_nothing_is_left_is_said_with_the_reasons(workspace):
    workspace.add("a.jsonl", lines(["short", "brief", ""]))
    assert message(workspace) == (
        "data/sources/corpus: every one of 3 documents is filtered out (too_short 2, empty 1): relax sample.* filters"
    )


def test_a_budget_below_the_first_text_is_said(workspace):
    workspace.add("a.jsonl", lines([story(1)]))
    assert message(workspace, budget_mb=0.0001).startswith("params.yaml: sample.budget_mb: 0.0001: no text fits (the")


def test_a_file_that_changed_since_it_was_acquired_is_said(workspace):
    workspace.add("a.jsonl", lines([story(1)]))
    workspace.manifest()
    manifest = workspace.root / paths.CORPUS / "source.json"
    workspace.manifest = lambda _backward: None
    (workspace.root / "inputs/own/a.jsonl").write_bytes(b"{}\n")
    assert "3 bytes where acquire found" in message(workspace)
    manifest.unlink()
    assert "source.json" in message(workspace)


def test_an_unknown_kind_of_file_is_refused_with_its_source_and_place(workspace):
    workspace.add("sub/a.docx", b"")
    expected = "acquire.corpus.own: inputs/own/sub/a.docx: unknown kind of file; what is read: "
    assert message(workspace).startswith(expected)


def test_a_bad_line_in_a_later_part_is_named_by_its_line_in_the_file(workspace):
    workspace.add("a.jsonl", lines(story(seed) for seed in range(30)) + b"oops\n")
    assert "a.jsonl: line 31: not JSON" in message(workspace, shard_mb=0.004)
