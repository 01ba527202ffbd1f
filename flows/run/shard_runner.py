"""The Prefect task runner of shards: threads that wait for worker processes, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from storage.errors import InputError

if TYPE_CHECKING:
    from flows.run.request import Places


@contextmanager
def shard_runner(places: Places) -> Iterator[Any]:
    """Provide the task runner; a local Dask cluster is started once and closed at the end."""
    if places.runner == "threads" and places.address is None:
        from prefect.task_runners import ThreadPoolTaskRunner

        yield ThreadPoolTaskRunner(max_workers=places.workers)
        return
    try:
        from prefect_dask import DaskTaskRunner
    except ImportError as error:
        raise InputError("--runner dask needs the dask extra: pip install 'supmer[dask]'") from error
    if places.address:
        yield DaskTaskRunner(address=places.address)
        return
    from distributed import LocalCluster

    # Every fan-out step copies the runner, and each copy would start its own cluster: share one by its address.
    with LocalCluster(n_workers=places.workers, threads_per_worker=1, dashboard_address=None) as cluster:
        yield DaskTaskRunner(address=cluster.scheduler_address)
