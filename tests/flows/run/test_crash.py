"""Killed, interrupted, crowded, fed garbage: real processes, real signals, real files.

Killed at exact moments: test_kill.py.
"""

import gzip
import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest

from support.dying import digests, flow_states, outputs, partials, wait_until_gone
from support.workspaces import write_corpus

STOP_SECONDS = 15  # five are promised; other tests run beside this one


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def enlarge(workspace, documents=150):
    write_corpus(workspace.root / "texts" / "large.jsonl", 9, documents)


def start_and_wait_for_shards(workspace, count, **options):
    before = len(workspace.finished_shards("index"))
    process = workspace.start("run", **options)
    wait_for(lambda: len(workspace.finished_shards("index")) >= before + count, process)
    return process


def test_after_kill_9_finished_shards_stay_the_dead_run_is_marked_and_nothing_is_left_running(workspace):
    enlarge(workspace)
    visible = sorted((workspace.root / "data").rglob("*"))
    process = start_and_wait_for_shards(workspace, 5)
    process.kill()
    process.communicate()
    finished = {path: path.stat().st_mtime_ns for path in workspace.finished_shards("index")}
    published = [path for path in sorted((workspace.root / "data").rglob("*")) if ".partial-" not in str(path)]
    assert published == visible  # nothing half-written is to be seen under its name
    wait_until_gone(workspace.root)

    output = workspace.run("run")
    assert "died: marked crashed in Prefect, continuing" in output
    assert "sample   ran" in output
    again = {path: path.stat().st_mtime_ns for path in workspace.finished_shards("index")}
    assert finished.items() <= again.items()
    assert partials(workspace.root) == []
    states = flow_states(workspace)
    assert "CRASHED" in states
    assert "RUNNING" not in states


def test_whatever_runs_between_a_crash_and_the_next_run_the_dead_run_is_marked(served):
    process = served.start("run", "--force", "sample")
    wait_for(lambda: "RUNNING" in flow_states(served), process)
    process.kill()
    process.communicate()
    served.run("gc")
    served.run("status")
    output = served.run("run")  # all is fresh, and still there is something to mend
    assert "died: marked crashed in Prefect, continuing" in output
    assert "RUNNING" not in flow_states(served)
    assert "died" not in served.run("run")


def test_ctrl_c_stops_within_seconds_and_says_how_to_go_on(workspace):
    enlarge(workspace)
    process = start_and_wait_for_shards(workspace, 3, start_new_session=True)
    asked = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - asked < STOP_SECONDS
    assert process.returncode == 128 + signal.SIGINT
    assert "`supmer run` continues from here" in output
    assert "Traceback" not in output
    wait_until_gone(workspace.root)
    assert "sample   ran" in workspace.run("run")
    states = set(flow_states(workspace))
    assert states & {"CANCELLED", "CRASHED"}  # a server that had no time to hear of it is told by the next run
    assert "RUNNING" not in states


def test_a_second_run_is_refused_in_one_line_that_names_the_first(served):
    process = served.start("run", "--force", "sample")
    wait_for(lambda: "RUNNING" in flow_states(served), process)
    process.send_signal(signal.SIGSTOP)  # in the middle, for as long as it takes
    output = served.run("run", "-S", "sample.min_words=58", expect=2)
    assert output.startswith(f"supmer: process {process.pid} (`supmer run --force sample`, since ")
    assert output.count("\n") == 1
    assert "min_words: 50" in (served.root / "params.yaml").read_text()
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output


def truncated_gzip(path):
    whole = gzip.compress(b'{"text": "one"}\n' * 5000)
    path.with_suffix(".jsonl.gz").write_bytes(whole[: len(whole) // 2])


GARBAGE = {
    "a line that is not an object": (lambda path: path.write_text('{"text": "one"}\n[1, 2]\n'), "bad.jsonl", "line 2"),
    "a truncated gzip": (truncated_gzip, "bad.jsonl.gz", ""),
}  # the other kinds of garbage, a truncated Parquet among them: tests/storage/records/test_documents.py


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_in_the_corpus_is_one_line_with_file_and_row_and_once_it_is_gone_nothing_is_lost(served, case):
    make, name, where = GARBAGE[case]
    make(served.root / "texts" / "bad.jsonl")
    sentences = {path: path.read_bytes() for path in (served.root / "data/corpus").rglob("*.parquet")}
    output = served.run("run", expect=2)
    [failed] = [line for line in output.splitlines() if line.startswith("sample   failed")]
    assert name in failed
    assert where in failed
    assert "Traceback" not in output
    assert {path: path.read_bytes() for path in (served.root / "data/corpus").rglob("*.parquet")} == sentences
    (served.root / "texts" / name).unlink()
    output = served.run("run")
    assert "acquire  restored" in output
    assert "sample   cached" in output


def test_a_corpus_that_is_gone_is_one_line_before_anything_starts(workspace):
    (workspace.root / "texts").rename(workspace.root / "elsewhere")
    output = workspace.run("run", expect=2)
    assert "acquire.corpus.own" in output
    assert output.count("\n") == 1


@pytest.fixture
def small_disk(template, tmp_path):
    """A workspace on a disk of its own, with a corpus that has grown."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=150m", "tmpfs", place], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    workspace = template.copied_to(place / "workspace")
    write_corpus(workspace.root / "texts/large.jsonl", 9, 300)
    yield workspace
    subprocess.run(["umount", "-l", place], check=True)


def fill(place, room):
    """Leave only so many bytes free; return the file that takes the others."""
    free = os.statvfs(place)
    ballast = place / "ballast"
    ballast.write_bytes(b"x" * max(free.f_bavail * free.f_frsize - room, 0))
    return ballast


NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root to mount it")


@NEEDS_ROOT
def test_a_disk_that_fills_up_while_shards_are_made_is_one_line_and_changes_no_output(small_disk, prefect_api):
    workspace = replace(small_disk, api=prefect_api)  # the server's database is on another disk: the stage fails
    before = digests(workspace.root / "data/corpus")
    ballast = fill(workspace.root.parent, room=150_000)
    output = workspace.run("run", expect=2)
    assert "sample   failed" in output
    assert "No space left on device" in output
    assert "Traceback" not in output
    assert digests(workspace.root / "data/corpus") == before
    ballast.unlink()
    assert "sample   ran" in workspace.run("run")


@NEEDS_ROOT
def test_wherever_a_full_disk_meets_a_run_every_output_is_the_old_one_or_the_new_one(small_disk):
    root = small_disk.root
    before = outputs(root)
    ballast = fill(root.parent, room=1_000_000)  # two thirds of what the run takes, Prefect's database included
    output = small_disk.run("run", expect=2)
    assert "No space left on device" in output
    assert "Traceback" not in output
    left = outputs(root)
    ballast.unlink()
    assert "sample   ran" in small_disk.run("run")
    after = outputs(root)
    assert left.keys() == before.keys()
    assert [path for path, files in left.items() if files not in (before[path], after[path])] == []
    assert "stages are whole" in small_disk.run("verify")
