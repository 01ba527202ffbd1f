"""Prefect's server is killed in the middle of a run: the run goes on, and Prefect knows of it in the end."""

import time

from support.dying import flow_states, wait_until_gone
from support.following import following
from support.workspaces import write_corpus


def server_of(followed, module, seconds=30):
    """The server among a run's processes; one that is started again takes a moment to be there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for process in followed.family():
            if module in " ".join(process.cmdline()):
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
