"""A Dask worker or its scheduler is killed while shards are made: the same bytes in the end, no shard made twice."""

import shutil
import subprocess
import sys
import time

import orjson
import pytest
import test_kill_stages
from test_kill import finished

from support.dying import KILLED, outputs
from support.killed import Moment
from support.workspaces import BIN

pytestmark = pytest.mark.slow

template = test_kill_stages.template
MOMENTS = {
    "embed": Moment("tasks.embed.stage:embed", "after", nth=1),
    "materialize": Moment("tasks.materialize.task_writer:write_tasks", "after", nth=1),
}


class Cluster:
    """A Dask scheduler and workers, as processes of their own."""

    def __init__(self, workspace, folder):
        self.workspace, self.file = workspace, folder / "scheduler.json"
        self.scheduler = self.start([BIN / "dask", "scheduler", "--port", "0"])
        while not self.file.exists():
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        self.address = orjson.loads(self.file.read_bytes())["address"]
        self.workers = []

    def start(self, command, **environment):
        options = ["--scheduler-file", self.file, "--host", "127.0.0.1", "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = self.workspace.environment | environment
        return subprocess.Popen([*command, *options], cwd=self.workspace.root, env=environment, **quiet)

    def add_worker(self, moment=None):
        """Start a worker; it dies as with `kill -9` at the moment, if there is one."""
        program, environment = (
            ([sys.executable, KILLED, "dask"], moment.environment()) if moment else ([BIN / "dask"], {})
        )
        self.workers.append(self.start([*program, "worker", "--no-nanny", "--nthreads", "1"], **environment))
        return self.workers[-1]

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait(20)


@pytest.fixture
def cluster(served, tmp_path):
    running = Cluster(served, tmp_path)
    yield running
    running.end()


@pytest.mark.parametrize("stage", MOMENTS)
def test_a_dask_worker_is_killed_and_another_makes_its_shard(served, cluster, stage):
    lock, before = (served.root / "dvc.lock").read_bytes(), outputs(served.root)
    shutil.rmtree(served.root / ".supmer/shards" / stage)
    doomed = cluster.add_worker(MOMENTS[stage])
    run = served.start("run", "--force", stage, "--until", stage, "--dask", cluster.address)
    assert doomed.wait(200) == -9
    cluster.add_worker()
    output, _ = run.communicate(timeout=300)
    assert run.returncode == 0, output
    assert [line.split()[:2] for line in output.splitlines() if line.startswith(f"{stage} ")] == [[stage, "ran"]]
    assert (served.root / "dvc.lock").read_bytes() == lock
    assert outputs(served.root) == before


def test_the_dask_scheduler_is_killed_the_run_ends_with_one_line_and_the_next_goes_on(served, cluster):
    root, before = served.root, outputs(served.root)
    for lost in (".dvc/cache", "data/embeddings", ".supmer/shards/embed"):  # so that embed has to run again
        shutil.rmtree(root / lost)
    cluster.add_worker()
    run = served.start("run", "--until", "embed", "--dask", cluster.address)
    while not (made := {path: shard for path, shard in finished(root).items() if "/embed/" in str(path)}):
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.02)
    cluster.scheduler.kill()
    output, _ = run.communicate(timeout=300)
    assert run.returncode == 2, output
    assert "the Dask cluster failed (its scheduler does not answer)" in output
    assert "Traceback" not in output
    served.run("run", "--until", "embed", "--workers", "1")
    assert outputs(root) == before
    assert made.items() <= finished(root).items()


def test_an_address_at_which_no_scheduler_answers_is_one_line(served, monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "1s")
    output = served.run("run", "--force", "sample", "--until", "sample", "--dask", "tcp://127.0.0.1:1", expect=2)
    assert "the Dask cluster failed (its scheduler does not answer)" in output
    assert "Traceback" not in output
