"""Run the pipeline in this process: hold the workspace, mend what a crash left, start Prefect, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows import prefect_home
from flows.interrupt import stop_on_signals
from flows.lock import workspace_lock
from flows.outcome import Outcome
from flows.reporting import ConsoleReporter
from flows.server import start_server, wait_until_ready
from storage.errors import InputError

if TYPE_CHECKING:
    from flows.dag import Node
    from flows.session import Session


def run_here(
    session: Session,
    nodes: Sequence[Node],
    forced: frozenset[str],
    runner: str,
    address: str | None,
    workers: int,
    command: str,
) -> list[Outcome]:
    """Run the stages under the workspace's lock and print what becomes of each."""
    width = max(len(node.name) for node in nodes)
    with prefect_ready(session.root, command):
        from flows.pipeline import Run, run_flow

        run = Run(
            pipeline=session.pipeline,
            params=session.params,
            reporter=ConsoleReporter(),
            shard_runner=shard_runner(runner, address, workers),
            forced=forced,
            told=lambda outcome: click.echo(outcome.line(width)),
        )
        return run_flow(run, nodes, workers)


def run_single(session: Session, node: Node, workers: int) -> None:
    """Run one stage's function, as `dvc repro` asks."""
    with prefect_ready(session.root, f"supmer stage {node.name}"):
        from flows.pipeline import Run, run_function

        run = Run(session.pipeline, session.params, ConsoleReporter(), shard_runner("threads", None, workers))
        run_function(run, node, workers)


@contextmanager
def prefect_ready(root: Path, command: str) -> Iterator[None]:
    """Hold the workspace with Prefect at hand; if an earlier run died, mark it crashed."""
    with workspace_lock(root, command) as dead:
        stop_on_signals()
        prefect_home.prepare(root)
        if not (root / prefect_home.HOME / "prefect.db").exists():
            click.echo("preparing Prefect's database in .prefect (first run only, about half a minute)")
        log = root / prefect_home.HOME / "server.log"
        server = start_server(log)
        import prefect  # noqa: F401 - two seconds of imports, while the server starts

        wait_until_ready(server, log)
        if dead:
            prefect_home.mark_crashed(root)
            click.echo(f"the run of {dead.since} (process {dead.pid}) died: marked crashed in Prefect, going on")
        yield


def shard_runner(runner: str, address: str | None, workers: int) -> Any:
    """The Prefect task runner for shards."""
    prefect_home.require_address(address)
    if runner == "threads" and address is None:
        from prefect.task_runners import ThreadPoolTaskRunner

        return ThreadPoolTaskRunner(max_workers=workers)
    try:
        from prefect_dask import DaskTaskRunner
    except ImportError as error:
        raise InputError("--runner dask needs the dask extra: pip install 'supmer[dask]'") from error
    if address:
        return DaskTaskRunner(address=address)
    return DaskTaskRunner(cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None})
