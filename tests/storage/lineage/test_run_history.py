"""Runs are read from lineage events and dvc.lock, with all stages behind them; two of them can be compared."""

from datetime import UTC, datetime

import pytest

from storage.errors import InputError
from storage.lineage.events import Artifact, StageEvent, emit
from storage.lineage.run_differences import Difference, run_differences
from storage.lineage.run_history import find_run, locked_run, metrics_of, pipeline_runs
from storage.lockfile import cache_folder, directory_md5, file_md5, object_path, read_pipeline

DVC_YAML = """
stages:
  local: {cmd: x, outs: [inputs/corpus-mine.json]}
  sample: {cmd: x, deps: [inputs], outs: [data/corpus], metrics: [data/metrics/sample.json]}
  tune: {cmd: x, deps: [data/corpus], outs: [data/scores], metrics: [data/metrics/tune.json]}
"""
LOCK = """
schema: '2.0'
stages:
  sample:
    cmd: x
    deps: [{path: tasks/sample, hash: md5, md5: code2}]
    params: {params.yaml: {sample: {min_words: 5, near: {rows: 8}}}}
    outs: [{path: data/corpus, hash: md5, md5: corpus2.dir}]
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / ".dvc").mkdir()
    return tmp_path


def metric(root, text):
    """Put a metrics file into DVC's cache; return its version."""
    beside = root / "metrics.json"
    beside.write_text(text)
    md5 = file_md5(beside)
    place = object_path(cache_folder(root), md5)
    place.parent.mkdir(parents=True, exist_ok=True)
    beside.rename(place)
    return md5


def complete(root, stage, flow, inputs, outputs, parameters=None, rows=None):
    emit(
        root,
        StageEvent(
            stage,
            "COMPLETE",
            f"00000000-0000-4000-8000-{len(stage):012d}",
            datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
            tuple(Artifact(path, md5, 1, None) for path, md5 in inputs.items()),
            tuple(Artifact(path, md5, 1, (rows or {}).get(path)) for path, md5 in outputs.items()),
            parameters or {},
            "a" * 40,
            flow,
        ),
    )


@pytest.fixture
def history(root):
    """Two runs: the second ran sample and tune again, but not the listing of the corpus."""
    listing = directory_md5({"corpus-mine.json": "listing"})
    complete(root, "local", "first-run", {"/data": "texts.dir"}, {"inputs/corpus-mine.json": "listing"})
    for number, run in ((1, "first-run"), (2, "second-run")):
        made = {"data/corpus": f"corpus{number}.dir", "data/metrics/sample.json": metric(root, f'{{"n": {number}}}')}
        read = {"inputs": listing, "tasks/sample": f"code{number}"}
        complete(root, "sample", run, read, made, {"sample": {"min_words": 3 + number}}, {"data/corpus": number * 10})
        scores = {"data/metrics/tune.json": metric(root, f'{{"movies": {{"pt": {{"mean": 0.{number}}}}}}}')}
        complete(root, "tune", run, {"data/corpus": made["data/corpus"]}, scores, {"seed": 1})
    return pipeline_runs(root)


def test_a_run_has_the_stages_that_ran_in_it_and_those_behind_them(history):
    assert [(run.id, run.ran) for run in history] == [
        ("first-run", ("local", "sample", "tune")),
        ("second-run", ("sample", "tune")),
    ]
    assert set(history[1].stages) == {"local", "sample", "tune"}
    assert history[1].parameters == {"sample.min_words": "5", "seed": "1"}
    assert history[1].sources == {"/data": "texts.dir"}
    assert history[1].code == {"tasks/sample": "code2"}


def test_metrics_are_those_that_the_run_wrote(root, history):
    assert metrics_of(root, history[0]) == {"sample": {"n": 1}, "tune": {"movies.pt.mean": 0.1}}
    assert metrics_of(root, history[1]) == {"sample": {"n": 2}, "tune": {"movies.pt.mean": 0.2}}


def test_metrics_that_dvc_s_cache_lost_are_left_out(root, history):
    object_path(cache_folder(root), history[0].outputs["data/metrics/sample.json"]).unlink()
    assert set(metrics_of(root, history[0])) == {"tune"}


def test_two_runs_differ_in_parameters_data_code_and_metrics(root, history):
    first, second = history
    differences = run_differences(first, second, (metrics_of(root, first), metrics_of(root, second)))
    assert differences.parameters == [Difference("sample.min_words", "4", "5")]
    assert differences.data == [Difference("data/corpus", 10, 20)]
    assert differences.code == [Difference("tasks/sample", "code1", "code2")]
    assert differences.metrics == [Difference("sample: n", 1, 2), Difference("tune: movies.pt.mean", 0.1, 0.2)]
    assert differences.unshared == []


def test_a_run_does_not_differ_from_itself(root, history):
    metrics = metrics_of(root, history[0])
    differences = run_differences(history[0], history[0], (metrics, metrics))
    assert not any((differences.parameters, differences.data, differences.code, differences.metrics))


def test_dvc_lock_is_compared_like_a_run_and_stages_of_one_side_are_named(root, history):
    (root / "dvc.lock").write_text(LOCK)
    now = locked_run(read_pipeline(root), history)
    differences = run_differences(history[1], now, ({}, {}))
    assert differences.parameters == [Difference("sample.near.rows", None, "8")]
    assert differences.data == [Difference("inputs", history[1].stages["sample"].data["inputs"], None)]
    assert differences.unshared == ["local", "tune"]
    assert now.rows == {"data/corpus": 20}


def test_a_run_is_found_by_the_beginning_of_its_id(history):
    assert find_run(history, "second").id == "second-run"
    assert find_run(history, "sec") is None  # too short
    with pytest.raises(InputError, match=r"^same: several runs begin so"):
        find_run(
            [history[0].__class__("same-1", "", None, (), {}), history[0].__class__("same-2", "", None, (), {})], "same"
        )


def test_a_workspace_without_events_has_no_runs(root):
    assert pipeline_runs(root) == []
