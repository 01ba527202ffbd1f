"""The pipeline as a Prefect flow: `supmer run` calls it, and so does any Prefect worker of a deployment.

    prefect deploy flows/run/pipeline.py:supmer --name mine --pool supmer

Its tasks are the stages of dvc.yaml. Deployments are in prefect.yaml.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import click
from prefect import flow, get_run_logger, tags
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.futures import wait
from prefect.states import Cancelled, Completed, Failed
from pydantic import Field

from flows.lock import WorkspaceBusyError
from flows.retries import Retries
from flows.run.console import ConsoleReporter
from flows.run.interrupt import note_forced, stop_on_signals, stop_when_cancelled
from flows.run.opening import OpenRun, open_run, opened
from flows.run.plan import plan, summary
from flows.run.request import Places, Request, assignments
from flows.run.server_watch import server_watch
from flows.run.shard_runner import shard_runner
from flows.run.stage_runs import Run, current, stage
from flows.server.access import configured
from flows.server.notification import notify
from flows.server.prefect_home import FLOW, describe_run, mark_crashed, prints_logs, workspace_tag
from flows.server.run_server import find_report
from flows.workspace import enter
from storage.errors import InputError
from tasks.stage.workers import worker_processes


@flow(name=FLOW, persist_result=False, on_failure=[notify], on_crashed=[notify])
def supmer(  # noqa: PLR0913, PLR0917 - one for each option of `supmer run`
    stages: tuple[str, ...] = (),
    from_stage: str | None = None,
    until_stage: str | None = None,
    force: tuple[str, ...] = (),
    settings: dict[str, Any] | None = None,
    workers: Annotated[int, Field(ge=1)] | None = None,
    runner: Literal["threads", "dask"] = "threads",
    dask_address: str | None = None,
    ranks: Annotated[int, Field(ge=1)] | None = None,
    retries: Annotated[int, Field(ge=0)] = 0,
    retry_delay: Annotated[float, Field(ge=0)] = 10.0,
) -> State[None]:
    """Bring the stages of dvc.yaml up to date; fresh stages are left alone, and finished shards are kept.

    Args:
        stages: Stages to run, with what they depend on. Empty: all.
        from_stage: Leave out the stages before this one.
        until_stage: Leave out the stages after this one.
        force: Stages that run even if they are fresh.
        settings: Parameters to change in params.yaml, like {"sample.budget_mb": 5}.
        workers: Shards computed at once. Empty: as many as there are cores.
        runner: Where shards run.
        dask_address: Address of a Dask scheduler. Empty: a local cluster, if the runner is dask.
        ranks: Processes that train a prompt. Empty: the number of GPUs, or 1.
        retries: Retries of a failed stage; it continues from its finished shards.
        retry_delay: Seconds to wait before each retry.
    """
    stop_on_signals()
    try:
        request = Request(
            Places(workers or os.cpu_count() or 1, runner, dask_address, ranks),
            stages,
            from_stage,
            until_stage,
            force,
            assignments(settings or {}),
            Retries(retries, retry_delay),
        )
        with _held(request) as run:
            return _run(run)
    except WorkspaceBusyError as busy:
        return Cancelled(name="Skipped", message=f"{busy.holder} is still going")
    except InputError as error:
        get_run_logger().error(str(error))
        if not prints_logs():
            click.echo(f"supmer: {error}", err=True)
        return Failed(message=str(error))


@contextmanager
def _held(request: Request) -> Iterator[OpenRun]:
    """Provide the open workspace: that of `supmer run`, which called the flow, or the one around this process."""
    if (by_caller := opened.get()) is not None:
        yield by_caller
        return
    root = enter()
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    with open_run(root, request, f"Prefect's flow run {context.flow_run.name}", quiet=prints_logs()) as run:
        find_report(root)
        if configured():
            server_watch(root).start()
        if run.lock.dead:
            mark_crashed(root, but=context.flow_run.id)
            run.lock.mended = True
            _say(run, run.obituary)
        yield run


def _say(run: OpenRun, line: str) -> None:
    if line:
        get_run_logger().info(line)
        if not run.quiet:
            click.echo(line)


def _run(opened_run: OpenRun) -> State[None]:
    """Submit a task for each stage, each after those it depends on, and wait for all."""
    session, request = opened_run.session, opened_run.request
    describe_run(session.root, summary(plan(session, opened_run.nodes, request.forced), opened_run.lock.dead))
    note_forced(request.forced)
    stop_when_cancelled()
    request.places.announce_ranks()
    marks = tags(FLOW, workspace_tag(session.root))  # of the steps, which are flow runs too
    with marks, shard_runner(request.places) as shards, worker_processes(request.places.workers):
        run = Run(
            pipeline=session.pipeline,
            params=session.params,
            reporter=ConsoleReporter(quiet=opened_run.quiet),
            shard_runner=shards,
            forced=frozenset(request.forced),
            print_outcome=opened_run.print_outcome,
            after_crash=opened_run.lock.dead is not None,
            retries=request.retries,
            nodes={node.name: node for node in opened_run.nodes},
            outcomes=opened_run.outcomes,
        )
        token = current.set(run)
        try:
            _submit_all(run)
        finally:
            current.reset(token)
    opened_run.settle("it did not start")
    failed = [outcome.stage for outcome in run.outcomes.values() if outcome.verdict == "failed"]
    return Failed(message=f"failed: {', '.join(failed)}") if failed else Completed()


def _submit_all(run: Run) -> None:
    futures: dict[str, Any] = {}
    for name, node in run.nodes.items():
        named: Any = stage.with_options(
            name=name,
            task_run_name=name,
            description=node.description,
            retries=run.retries.times,
            retry_delay_seconds=run.retries.seconds,
        )
        futures[name] = named.submit(name, wait_for=[futures[above] for above in node.upstream if above in futures])
    wait(list(futures.values()))
