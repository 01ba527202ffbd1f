"""Prefect's server is killed in the middle of a run: the run goes on, and Prefect knows of it in the end."""

import subprocess
import sys
import time
from contextlib import suppress

import psutil

from flows.server.lasting_server import announced
from support.dying import flow_states, wait_until_gone
from support.following import following
from support.workspaces import write_corpus


def server_of(followed, module, seconds=30):
    """The server among a run's processes; one that is started again takes a moment to be there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for process in followed.family():
            with suppress(psutil.Error):  # it has just ended
                if module in process.cmdline():
                    return process
        time.sleep(0.1)
    raise AssertionError(f"no process of {module} within {seconds} s")


def test_a_killed_server_of_a_run_is_started_again_twice_and_the_run_goes_on(workspace):
    write_corpus(workspace.root / "texts" / "large.jsonl", 9, 100)
    with following(workspace, "run", "--workers", "1") as run:
        run.line_with("sample: ")
        for _ in range(2):
            server_of(run, "flows.server.run_server").kill()
            run.line_with("Prefect's server died (killed by signal 9): it is started again")
        run.line_with("sample   ran")
        run.line_with("done: ")
        assert run.process.wait(60) == 0
    said = "\n".join(run.lines)
    assert "Traceback" not in said
    assert "bug" not in said
    assert len(run.lines) < 40, "the log is about the work, not about events that were not sent"
    assert "COMPLETED" in flow_states(workspace)
    assert not {"RUNNING", "PENDING"} & set(flow_states(workspace))
    wait_until_gone(workspace.root)


def test_a_server_that_is_killed_at_its_start_is_started_again(workspace):
    with following(workspace, "run", "--force", "acquire", "--until", "acquire", "--workers", "1") as run:
        server_of(run, "flows.server.run_server").kill()
        run.line_with("Prefect's server died at its start (killed by signal 9): it is started again")
        run.line_with("acquire  ran")
        run.line_with("done: ")
        assert run.process.wait(60) == 0


def test_a_server_that_is_killed_with_the_command_that_kept_it_is_started_again_by_the_run(workspace):
    write_corpus(workspace.root / "texts" / "large.jsonl", 9, 100)
    with following(workspace, "ui", "--port", "0", "--no-browser") as ui:
        ui.line_with("the runs of this workspace: ")
        access = announced(workspace.root)
        with following(workspace, "run", "--workers", "1") as run:
            run.line_with("sample: ")
            for process in ui.family():
                process.kill()
            run.line_with("this run starts it again")
            run.line_with("sample   ran")
            assert announced(workspace.root) == access
            run.line_with("done: ")
            assert run.process.wait(60) == 0
    assert "Traceback" not in "\n".join(run.lines)
    assert "COMPLETED" in flow_states(workspace)
    assert not {"RUNNING", "PENDING"} & set(flow_states(workspace))
    wait_until_gone(workspace.root)


WATCHING = """
import sys, time
from pathlib import Path
from flows.run import server_watch
from flows.run.interrupt import stop_on_signals
from flows.server.access import Access
server_watch.ASK_SECONDS = 0.1
stop_on_signals()
server_watch.ServerWatch(Path.cwd(), Access(sys.argv[1]), None, is_ours=False, away_seconds=0.5).start()
time.sleep(60)
"""


def test_a_server_that_stays_away_ends_a_run_with_one_line(tmp_path):
    command = [sys.executable, "-c", WATCHING, "http://127.0.0.1:9/api"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "supmer: Prefect's server at http://127.0.0.1:9 does not answer any more: start it again: "
        "finished stages and shards are kept; `supmer run` continues from here"
    )
