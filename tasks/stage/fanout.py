"""Shards as Prefect tasks: results are kept as JSON and keyed by content, so that a later run finds them."""

import traceback
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import INPUTS, TASK_SOURCE
from prefect.futures import as_completed
from prefect.task_runners import TaskRunner
from prefect.tasks import exponential_backoff

from storage.errors import InputError, TransientError
from tasks.stage import workers
from tasks.stage.contract import Finished, Job, Record, finished_record

RETRIES = 3


def _may_pass(_task: object, _run: object, state: Any) -> bool:
    """True if a failure is worth a retry: outside trouble is, bad input and bugs are not."""
    try:
        state.result()
    except (TransientError, ConnectionError, TimeoutError):
        return True
    except BaseException:  # noqa: BLE001 - only asks for the kind of error; Prefect raises it again
        return False
    return False


def run_shard(name: str, key: str, job: dict[str, Any]) -> Record:  # noqa: ARG001 - name and key are for Prefect
    """Execute one job; the kept result is found by `key` (stage, step and content hash)."""
    return workers.execute(Job(**job))


shard = task(
    name="shard",
    task_run_name="{name}",
    persist_result=True,
    result_serializer="json",
    # Prefect's default policy would redo every shard after a crash, because its key contains the run.
    cache_policy=INPUTS - "job" - "name" + TASK_SOURCE,
    retries=RETRIES,
    retry_delay_seconds=exponential_backoff(backoff_factor=1),
    retry_condition_fn=_may_pass,
)(run_shard)


@dataclass(frozen=True)
class PrefectFanOut:
    """Run shards on a Prefect task runner, inside a flow run of their own."""

    runner: TaskRunner[Any]

    def run(self, step: str, jobs: Sequence[Job], finished: Finished) -> None:
        """Submit all jobs and report them as they end; the first failure ends the step."""
        run_id = uuid.uuid4().hex
        _steps[run_id] = (jobs, finished)
        try:
            name = f"{step}: {len(jobs)} shard{'s' * (len(jobs) != 1)}"
            named = flow(name=step, flow_run_name=name, task_runner=self.runner, persist_result=False)
            step_flow: Any = named(_fan_out)
            step_flow(run_id)
        finally:
            del _steps[run_id]


# Each shard is sent to a Dask worker with the flow; objects that cannot be sent (a terminal, a callback) stay here.
_steps: dict[str, tuple[Sequence[Job], Finished]] = {}


def _fan_out(run_id: str) -> None:
    jobs, finished = _steps[run_id]
    waiting: dict[Any, Job] = {}
    try:
        for job in jobs:
            waiting[_start(job)] = job
        for future in as_completed(list(waiting)):
            job = waiting[future]
            finished(job, _seen(job, future.result()))
    except BaseException as error:
        for future in waiting:
            future.wrapped_future.cancel()
        if _is_of_dask(error):
            raise TransientError(_lost(error)) from error
        raise


def _is_of_dask(error: BaseException) -> bool:
    """True if Dask itself failed: its scheduler does not answer, or a shard has killed every worker that had it.

    The errors are of Dask's own types, or an OSError that its client raises.
    """
    if type(error).__module__.startswith("distributed."):
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, OSError) and str(frame.f_globals.get("__name__")).startswith("distributed.")


def _lost(error: BaseException) -> str:
    reason = "a shard killed several workers: is there enough memory?"
    if type(error).__name__ != "KilledWorker":
        reason = "its scheduler does not answer"
    return f"the Dask cluster failed ({reason}): finished shards are kept: start it again, then `supmer run`"


def _start(job: Job) -> Any:
    """Submit a job; a result that Prefect has kept counts only if the shard's files are there and complete."""
    folder = Path(job.folder)
    key = "/".join(folder.parts[-3:])
    return shard.with_options(refresh_cache=finished_record(folder) is None).submit(job.name, key, asdict(job))


def _seen(job: Job, record: Record) -> Record:
    if finished_record(Path(job.folder)) is None:
        raise InputError(
            f"{job.folder}: finished by a worker but not visible here: workers must share this file system"
        )
    return record
