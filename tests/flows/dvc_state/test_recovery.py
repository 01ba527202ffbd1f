"""What a crash or an interruption leaves in DVC's files and in the workspace's own lock."""

import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime

import pytest

from flows.dvc_state.recovery import keep_lock_file, mend
from flows.lock import LOCK, Holder, stopped, workspace_lock
from storage.errors import InputError
from storage.lineage.events import StageEvent, emit, read_events
from storage.lockfile import read_pipeline

# Of a library that DVC reads its paths with.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")

DEAD = Holder(os.getpid(), "supmer run", "then")  # the number of a run that died, borne by another process now


@pytest.fixture
def claims(audited):
    return audited / ".dvc/tmp/rwlock"


def claim(pid):
    return {"pid": pid, "cmd": "supmer run"}


def test_the_claims_of_the_dead_are_dropped_and_those_of_the_living_stay(audited, claims):
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as living:
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        held = {
            "read": {"/a": [claim(DEAD.pid), claim(living.pid)], "/b": [claim(gone.pid)]},
            "write": {"/c": claim(DEAD.pid), "/d": claim(living.pid)},
        }
        claims.write_text(json.dumps(held))
        mend(audited, DEAD)
        living.stdin.close()
    assert json.loads(claims.read_text()) == {"read": {"/a": [claim(living.pid)]}, "write": {"/d": claim(living.pid)}}


@pytest.mark.parametrize("content", ["", '{"read": {"/a": [{"pi', "[]", '{"read": {"/a": [{"pid": "x"}]}}'])
def test_claims_cut_short_are_dropped_for_dvc_would_refuse_to_read_them(audited, claims, content):
    claims.write_text(content)
    mend(audited, DEAD)
    assert not claims.exists()


def test_what_was_half_written_goes(audited):
    left = [
        audited / "data/corpus/.documents.partial-old-1/0.parquet",
        audited / "data/corpus/sentences.partial-2/0.parquet",
        audited / ".supmer/shards/sample/write/abc.partial-3/out",
        audited / ".supmer/shards/sample/write/abd/.out.partial-4",
        audited / ".supmer/.dvc.lock.partial-5",
        audited / ".supmer/tmp/sample-0123456789abcdef/selection.duckdb",
    ]
    living = audited / ".supmer/tmp/duckdb-1-0/spill"
    for path in (*left, living):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    whole = sorted((audited / "data/corpus/documents").iterdir())
    mend(audited, DEAD)
    assert [path for path in left if path.exists()] == []
    assert living.exists()
    assert sorted((audited / "data/corpus/documents").iterdir()) == whole


def test_an_interrupted_run_is_on_record_as_one_with_something_to_mend(tmp_path):
    (tmp_path / LOCK).parent.mkdir()
    (tmp_path / LOCK).write_bytes(json.dumps({"pid": os.getpid(), "command": "supmer run", "since": "then"}).encode())
    stopped(tmp_path)
    with workspace_lock(tmp_path, "supmer run") as lock:
        assert lock.dead == Holder(os.getpid(), "supmer run", "then", interrupted=True)
        lock.mended = True
    with workspace_lock(tmp_path, "supmer run") as lock:
        assert lock.dead is None


@pytest.mark.parametrize("sign", "[]*?{}")
def test_a_workspace_whose_path_is_a_pattern_is_refused_in_one_line(audited, command_line, monkeypatch, sign):
    root = audited.rename(audited.with_name(f"a{sign}b"))
    monkeypatch.chdir(root)
    code, _, message = command_line("gc")
    expected = f"DVC and DuckDB take {sign} in a path for a pattern: rename or move the workspace"
    assert (code, message) == (2, f"supmer: {root}: {expected}\n")


def test_a_dvc_lock_cut_within_a_hash_of_digits_is_restored(audited, capsys):
    path = audited / "dvc.lock"
    whole = path.read_text()
    keep_lock_file(audited)
    before, _, _ = whole.rpartition("md5: ")
    path.write_text(f"{before}md5: 8571")  # reads as a number
    with pytest.raises(InputError, match=r"dvc\.lock: its entry of \w+ is damaged or cut short: restore it from git"):
        read_pipeline(audited)
    mend(audited, DEAD)
    assert path.read_text() == whole
    assert "dvc.lock was cut short by the crash: restored as it was before" in capsys.readouterr().err


def test_a_dvc_lock_that_is_valid_where_it_is_cut_is_restored(audited):
    path = audited / "dvc.lock"
    whole = path.read_text()
    keep_lock_file(audited)
    before, _, _ = whole.rpartition("    - path: ")
    path.write_text(f"{before}   ")
    read_pipeline(audited)  # nothing is wrong with it but what it lacks
    mend(audited, DEAD)
    assert path.read_text() == whole


HOLDING = """
import sys
from dvc.repo import Repo
with Repo(".").lock:
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_the_line_about_dvc_at_work_names_the_process(audited, command_line):
    command = [sys.executable, "-c", HOLDING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout.readline() == "locked\n"
        code, _, message = command_line("gc")
        holding.stdin.close()
    assert code == 2
    assert message.startswith(f"supmer: DVC is at work in this workspace (process {holding.pid}, `{sys.executable} -c")
    assert message.endswith("has its lock): wait for it, then try again\n")


def test_stages_that_were_killed_get_an_abort_event(audited):
    def states(run):
        return [event["eventType"] for event in read_events(audited) if event["run"]["runId"] == run]

    killed, ended = str(uuid.uuid4()), str(uuid.uuid4())
    for run in (killed, ended):
        emit(audited, StageEvent("sample", "START", run, datetime.now(UTC)))
    emit(audited, StageEvent("sample", "FAIL", ended, datetime.now(UTC)))
    mend(audited, DEAD)
    assert states(killed) == ["START", "ABORT"]
    assert states(ended) == ["START", "FAIL"]
    last = read_events(audited)[-1]
    assert last["job"]["name"] == "sample"
    said = last["run"]["facets"]["supmer_stage"]["record"]["error"]
    assert said == f"process {DEAD.pid} (`supmer run`, since then) was killed"
    mend(audited, DEAD)
    assert states(killed) == ["START", "ABORT"]
