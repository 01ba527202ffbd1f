"""Shards on a real Dask cluster."""

import shutil

import pytest

from support.dask_cluster import Cluster


@pytest.fixture
def scheduler(served, tmp_path):
    """The address of a Dask scheduler with a worker."""
    cluster = Cluster(served, tmp_path)
    cluster.add_worker("--nworkers", "1")
    yield cluster.address
    cluster.end()


def test_shards_on_a_dask_cluster_by_address_come_to_the_same_bytes(served, scheduler):
    lock = (served.root / "dvc.lock").read_bytes()
    shutil.rmtree(served.root / ".supmer/shards/sample")
    output = served.run("run", "--force", "sample", "--runner", "dask", "--dask", scheduler)
    assert "sample   ran" in output
    assert (served.root / "dvc.lock").read_bytes() == lock


def test_an_address_that_is_none_is_refused(served):
    output = served.run("run", "--force", "sample", "--dask", "nowhere", expect=2)
    assert "--dask nowhere: not a scheduler address" in output
