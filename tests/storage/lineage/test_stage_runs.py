"""Stages behind outputs: which, in what order, and what the first run that made them took."""

import json

import pytest

from storage.lineage.stage_runs import stages_above
from support.report_room import COMMIT, INPUTS, STAGES, digest, event, write_history


@pytest.fixture
def root(tmp_path):
    write_history(tmp_path)
    return tmp_path


def append(root, *events):
    with (root / "lineage/events.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in events)


def versions(stage):
    return {path: digest(path)[:32] + ".dir" for path in STAGES[stage][1]}


def test_stages_come_after_what_they_read_whatever_their_order_in_dvc_yaml(root):
    stages, read_from = stages_above(root, INPUTS)
    assert [one.name for one in stages] == list(STAGES)
    assert {one.name: one.upstream for one in stages}["metatrain"] == ("acquire", "cluster", "materialize")
    assert read_from == ("acquire", "sample", "cluster", "materialize", "metatrain", "tune")


def test_only_stages_above_the_inputs_are_told(root):
    stages, read_from = stages_above(root, ["data/embeddings"])
    assert [one.name for one in stages] == ["acquire", "sample", "embed"]
    assert read_from == ("embed",)


def test_a_stage_is_told_by_the_first_run_that_made_these_very_outputs(root):
    other = event("sample", versions("sample") | {"data/corpus/documents": "0" * 32}, 1, 7.0)
    lines = (root / "lineage/events.jsonl").read_text()
    (root / "lineage/events.jsonl").write_text(json.dumps(other) + "\n" + lines)
    append(root, event("sample", versions("sample"), 1, 99.0))
    sample = next(one for one in stages_above(root, INPUTS)[0] if one.name == "sample")
    assert (sample.seconds, sample.peak_memory_bytes, sample.git_commit) == (43.5, 400_000_000, COMMIT)
    assert sample.parameters["sample.rate"] == 0.1


def test_without_an_event_what_dvc_knows_is_told(root):
    write_history(root, runs=False)
    stages, _ = stages_above(root, INPUTS)
    assert {one.seconds for one in stages} == {None}
    assert stages[0].bytes == 4 * 123456
