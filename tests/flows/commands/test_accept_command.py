"""`supmer accept`: a result stands although its code changed, and nothing else is let through."""

import os
from dataclasses import replace

import orjson
import pytest

from flows.dvc_state.dag import Pipeline
from flows.run.execution import fingerprint
from tasks.params.file import load

WHY = ("--why", "only a comment")


@pytest.fixture
def workspace(workspace, prefect_api):
    return replace(workspace, api=prefect_api)


def change_code(workspace, path="tasks/sample/words.py"):
    with (workspace.root / path).open("a") as file:
        file.write("# a comment\n")


def test_an_accepted_stage_is_fresh_for_both_and_why_tells_the_reason(workspace):
    change_code(workspace)
    (workspace.root / "storage/records/another.py").write_text("")
    records, sample = (len(list((workspace.root / name).glob("*.py"))) for name in ("storage/records", "tasks/sample"))
    changed = [
        f"code storage/records changed: 1 of {records} files (another.py)",
        f"code tasks/sample changed: 1 of {sample} files (words.py)",
    ]
    assert workspace.status()["sample"]["why"] == changed
    before = {path: path.read_bytes() for path in (workspace.root / "data").rglob("*") if path.is_file()}
    accepted = workspace.run("accept", "sample", "--why", " only\na comment ")
    assert accepted == f"sample: accepted as it is: {'; '.join(changed)}\n"
    assert {path: path.read_bytes() for path in (workspace.root / "data").rglob("*") if path.is_file()} == before
    assert "up to date" in workspace.run("status", program="dvc")
    assert workspace.status()["sample"]["action"] == "fresh"
    told = orjson.loads(workspace.run("why", "sample", "--json"))
    [acceptance] = told["accepted"]
    assert (acceptance["reason"], acceptance["changes"]) == ("only a comment", changed)
    assert ": only a comment\n    although code storage/records changed" in workspace.run("why", "sample")
    lineage = workspace.run("lineage", "data/corpus/sentences")
    assert "although code changed: only a comment" in lineage
    assert "sample: ran " in lineage  # the run that made it is still the one that is told
    workspace.run("run", "--force", "sample")
    assert "accepted on" not in workspace.run("why", "sample")


def test_what_is_not_a_change_of_code_alone_is_refused_in_one_line(workspace):
    fresh = workspace.run("accept", "sample", *WHY, expect=2)
    assert fresh == "supmer: sample: is fresh: there is nothing to accept\n"
    assert "did you mean sample?" in workspace.run("accept", "smaple", *WHY, expect=2)
    assert "--why: is empty" in workspace.run("accept", "sample", "--why", " ", expect=2)
    change_code(workspace)
    parameters = workspace.root / "params.yaml"
    text = parameters.read_text()
    parameters.write_text(text.replace("min_words: 50", "min_words: 51"))
    refused = workspace.run("accept", "sample", *WHY, expect=2)
    assert refused.startswith("supmer: sample: more than its code changed (")
    assert "parameter sample.min_words changed: 50 → 51" in refused
    assert refused.count("\n") == 1
    parameters.write_text(text)
    sentences = next((workspace.root / "data/corpus/sentences").glob("*.parquet"))
    content = sentences.read_bytes()
    sentences.unlink()
    assert "output data/corpus/sentences changed" in workspace.run("accept", "sample", *WHY, expect=2)
    sentences.write_bytes(content)
    lock = (workspace.root / "dvc.lock").read_bytes()
    (workspace.root / "dvc.lock").unlink()
    never = workspace.run("accept", "sample", *WHY, expect=2)
    assert never == "supmer: sample: has not run yet, there is no result to accept: `supmer run sample`\n"
    (workspace.root / "dvc.lock").write_bytes(lock)
    workspace.run("accept", "sample", *WHY)


def test_damage_that_dvc_does_not_see_is_found_before_a_result_is_accepted(workspace):
    workspace.status()  # DVC takes note of what the copied files are
    path = next((workspace.root / "data/corpus/sentences").glob("*.parquet"))
    stat = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(8)
        file.write(b"damage")
    path.chmod(stat.st_mode)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    change_code(workspace)
    refused = workspace.run("accept", "sample", *WHY, expect=2)
    assert str(path.relative_to(workspace.root)) in refused


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("tasks/sample/words.py", "sample"),  # below a folder
        ("storage/records/documents.py", "sample"),
        ("storage/hashing.py", "sample"),
        ("storage/sources/wheels.py", "acquire"),
        ("tasks/local/stage.py", "local@corpus-own"),
    ],
)
def test_the_keys_of_shards_change_with_code_below_a_folder(workspace, path, stage):
    params = load(workspace.root / "params.yaml")
    before = fingerprint(Pipeline(workspace.root), stage, params)
    (workspace.root / "tasks/sample/__pycache__").mkdir(exist_ok=True)
    (workspace.root / "tasks/sample/__pycache__/words.pyc").write_text("")
    assert fingerprint(Pipeline(workspace.root), stage, params) == before
    change_code(workspace, path)
    after = fingerprint(Pipeline(workspace.root), stage, params)
    assert after.code != before.code
    assert after.whole != before.whole


def test_the_keys_of_shards_do_not_change_with_data(workspace):
    params = load(workspace.root / "params.yaml")
    before = fingerprint(Pipeline(workspace.root), "acquire", params)
    (workspace.root / "texts/third.jsonl").write_text('{"text": "x"}\n')
    after = fingerprint(Pipeline(workspace.root), "acquire", params)
    assert after.code == before.code
    assert after.whole != before.whole


def test_the_key_of_shards_holds_a_stages_own_code_and_not_that_of_listings(workspace):
    """A first local source must not fetch all other sources again."""
    pipeline, params = Pipeline(workspace.root), load(workspace.root / "params.yaml")
    with_sources = fingerprint(pipeline, "acquire", params)
    none_local = {"backbone": "made:tiny-t5", "embedder": "made:tiny-embedder", "corpus": {}, "datasets": {}}
    without = params.model_copy(update={"acquire": params.acquire.model_copy(update=none_local)})
    assert fingerprint(pipeline, "acquire", without).code == with_sources.code
