"""Shards as Prefect tasks: results kept as JSON and keyed by content, so that a later run finds them."""

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from prefect import flow, task
from prefect.cache_policies import INPUTS, TASK_SOURCE
from prefect.futures import as_completed
from prefect.task_runners import TaskRunner
from prefect.tasks import exponential_backoff

from storage.errors import InputError, TransientError
from tasks import pool
from tasks.contract import MARKER, Finished, Job, Record

RETRIES = 3


def _may_pass(_task: object, _run: object, state: Any) -> bool:
    """Whether a failure is worth a retry: trouble outside is, bad input and bugs are not."""
    try:
        state.result()
    except (TransientError, ConnectionError, TimeoutError):
        return True
    except BaseException:  # noqa: BLE001 - only asking what it was; Prefect raises it again
        return False
    return False


@task(
    task_run_name="{name}",
    persist_result=True,
    result_serializer="json",
    # Not Prefect's default policy, whose key holds the run: after a crash it would redo every shard.
    cache_policy=INPUTS - "job" - "name" + TASK_SOURCE,
    retries=RETRIES,
    retry_delay_seconds=exponential_backoff(backoff_factor=1),
    retry_condition_fn=_may_pass,
)
def shard(name: str, key: str, job: dict[str, Any]) -> Record:  # noqa: ARG001 - name and key are for Prefect
    """Execute one job; `key` (stage, step and content hash) is what the kept result is found by."""
    return pool.execute(Job(**job))


@dataclass
class PrefectFanOut:
    """Run shards on a Prefect task runner, inside a flow run of their own."""

    runner: TaskRunner[Any]
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self, step: str, jobs: Sequence[Job], finished: Finished) -> None:
        """Submit all jobs and report them as they end; the first failure ends the step."""
        named = cast("Any", flow(name=step, task_runner=self.runner, persist_result=False, validate_parameters=False))
        named(self._submit)(jobs, finished)

    def _submit(self, jobs: Sequence[Job], finished: Finished) -> None:
        waiting = {self._start(job): job for job in jobs}
        try:
            for future in as_completed(list(waiting)):
                job = waiting[future]
                finished(job, self._whole(job, future.result()))
        except BaseException:
            for future in waiting:
                if (cancel := getattr(future.wrapped_future, "cancel", None)) is not None:
                    cancel()
            raise

    @staticmethod
    def _start(job: Job, *, refresh: bool = False) -> Any:
        key = "/".join(Path(job.folder).parts[-3:])
        return shard.with_options(refresh_cache=refresh).submit(job.name, key, asdict(job))

    def _whole(self, job: Job, record: Record) -> Record:
        """A kept result counts only while the shard's files are there: otherwise do it again."""
        if (Path(job.folder) / MARKER).exists():
            return record
        again: Record = self._start(job, refresh=True).result()
        if not (Path(job.folder) / MARKER).exists():
            raise InputError(
                f"{job.folder}: the shard is done but not visible here: workers must share this file system"
            )
        return again
