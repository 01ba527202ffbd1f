"""A Dask worker or its scheduler is killed while shards are made: the same bytes in the end, no shard made twice."""

import shutil
import time

import pytest
import test_kill_stages
from test_kill import finished

from support.dask_cluster import ALONE, Cluster
from support.dying import outputs
from support.killed import Moment

pytestmark = pytest.mark.slow

template = test_kill_stages.template
MOMENTS = {
    "embed": Moment("tasks.embed.stage:embed", "after", nth=1),
    "materialize": Moment("tasks.materialize.task_writer:write_tasks", "after", nth=1),
}


@pytest.fixture
def cluster(served, tmp_path):
    running = Cluster(served, tmp_path)
    yield running
    running.end()


def test_dask_workers_are_killed_in_two_stages_and_others_make_their_shards(served, cluster):
    lock, before = (served.root / "dvc.lock").read_bytes(), outputs(served.root)
    for stage in MOMENTS:
        shutil.rmtree(served.root / ".supmer/shards" / stage)
    doomed = cluster.add_doomed_worker(MOMENTS["embed"])
    forced = [word for stage in MOMENTS for word in ("--force", stage)]
    run = served.start("run", *forced, "--until", "materialize", "--dask", cluster.address)
    assert doomed.wait(200) == -9
    doomed = cluster.add_doomed_worker(MOMENTS["materialize"])
    assert doomed.wait(200) == -9
    cluster.add_worker(*ALONE)
    output, _ = run.communicate(timeout=300)
    assert run.returncode == 0, output
    ran = [line.split()[0] for line in output.splitlines() if line.split()[1:2] == ["ran"]]
    assert ran == list(MOMENTS)
    assert (served.root / "dvc.lock").read_bytes() == lock
    assert outputs(served.root) == before


def test_the_dask_scheduler_is_killed_the_run_ends_with_one_line_and_the_next_goes_on(served, cluster):
    root, before = served.root, outputs(served.root)
    for lost in (".dvc/cache", "data/embeddings", ".supmer/shards/embed"):  # so that embed has to run again
        shutil.rmtree(root / lost)
    cluster.add_worker(*ALONE)
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
