"""Shards on a real Dask cluster."""

import shutil
import subprocess
import time

import pytest

from support.workspaces import BIN


@pytest.fixture
def scheduler(served, tmp_path):
    """A Dask scheduler and a worker, as processes of their own."""
    file = tmp_path / "scheduler.json"
    common = {
        "cwd": served.root,
        "env": served.environment,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    processes = [
        subprocess.Popen(
            [
                BIN / "dask",
                "scheduler",
                "--scheduler-file",
                file,
                "--port",
                "0",
                "--host",
                "127.0.0.1",
                "--no-dashboard",
            ],
            **common,
        ),
        subprocess.Popen(
            [
                BIN / "dask",
                "worker",
                "--scheduler-file",
                file,
                "--nworkers",
                "1",
                "--host",
                "127.0.0.1",
                "--no-dashboard",
            ],
            **common,
        ),
    ]
    while not file.exists():
        assert processes[0].poll() is None
        time.sleep(0.1)
    import orjson

    yield orjson.loads(file.read_bytes())["address"]
    for process in reversed(processes):
        process.terminate()
        process.wait(20)


def test_shards_on_a_dask_cluster_by_address_come_to_the_same_bytes(served, scheduler):
    lock = (served.root / "dvc.lock").read_bytes()
    shutil.rmtree(served.root / ".supmer/shards/sample")
    output = served.run("run", "--force", "sample", "--runner", "dask", "--dask", scheduler)
    assert "sample   ran" in output
    assert (served.root / "dvc.lock").read_bytes() == lock


def test_an_address_that_is_none_is_refused(served):
    output = served.run("run", "--force", "sample", "--dask", "nowhere", expect=2)
    assert "--dask nowhere: not a scheduler address" in output
