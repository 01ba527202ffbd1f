"""Kill a run, and read what it leaves in the process table, in Prefect's records and in the workspace."""

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil

from flows.server.prefect_home import workspace_tag
from storage.lockfile import read_pipeline
from storage.prompts.checkpoints import last_checkpoint
from support.following import WEB

KILLED = Path(__file__).with_name("killed.py")
GONE_SECONDS = 10
READY_SECONDS = 120


def kill_at(moment, workspace):
    """Run the pipeline until it is killed at a moment; return its output until then."""
    died = subprocess.run(
        [sys.executable, KILLED, "run", "--workers", "1"],
        cwd=workspace.root,
        env=workspace.environment | moment.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert died.returncode == -9, f"{moment} did not come: {died.stdout}"
    return died.stdout


def kill_when(ready, workspace, *arguments):
    """Run a command until `ready()` is true, then kill it and all its workers, as with `kill -9`."""
    process = workspace.start(*arguments, start_new_session=True)
    deadline = time.monotonic() + READY_SECONDS
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, f"it ended before the moment came: {output}"


def checkpoint_steps(folders):
    """Return the step of the last checkpoint in each of the folders that has one."""
    return [checkpoint.step for folder in folders if (checkpoint := last_checkpoint(folder)[0])]


def processes_of(root):
    """Return the id of every process whose working directory is this workspace."""
    found = []
    for process in psutil.process_iter(["pid"]):
        try:
            if process.cwd() == str(root):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_until_gone(root):
    """Wait until no process is left in this workspace; fail if workers or Prefect's server stay longer than seconds."""
    deadline = time.monotonic() + GONE_SECONDS
    while processes_of(root) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(root) == []


def flow_states(workspace):
    """Return the states of this workspace's flow runs from Prefect's own records."""
    if workspace.api is None:
        with sqlite3.connect(workspace.root / ".prefect/prefect.db") as database:
            return [row[0] for row in database.execute("SELECT state_type FROM flow_run ORDER BY created")]
    mine = {"tags": {"all_": [workspace_tag(workspace.root)]}}
    answer = WEB.post(f"{workspace.api}/flow_runs/filter", json={"flow_runs": mine})
    return [run["state_type"] for run in answer.raise_for_status().json()]


def partials(root):
    """Return every path in a workspace whose name marks it as partially written."""
    return [path for path in root.rglob("*.partial-*") if ".dvc" not in path.parts]


def digests(top):
    files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    return {str(path.relative_to(top)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def outputs(root):
    """Return the digests of the files of each output that exists."""
    return {path: digests(root / path) for path in read_pipeline(root).artifacts() if (root / path).exists()}
