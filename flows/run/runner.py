"""Run the pipeline in this process: start Prefect, mark crashed runs, run the stages, and report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.dvc_state.local_inputs import in_columns, is_listing
from flows.lock import Lock
from flows.retries import Retries
from flows.run.console import ConsoleReporter
from flows.run.interrupt import stop_on_signals
from flows.run.outcome import Outcome
from flows.server import prefect_home
from flows.server.run_server import await_server, importing, start_server
from flows.server.scheduled_run import SCHEDULED
from storage.errors import InputError
from storage.signs_of_life import doing

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node
    from flows.run.session import Session


@dataclass(frozen=True)
class Places:
    """Execution settings of shards: `runner` is threads or dask, `address` an existing Dask scheduler."""

    workers: int
    runner: str = "threads"
    address: str | None = None

    def __post_init__(self) -> None:
        if self.address is not None and "://" not in self.address:
            raise InputError(f"--dask {self.address}: not a scheduler address: write it like tcp://10.0.0.1:8786")


def run_here(
    session: Session,
    lock: Lock,
    nodes: Sequence[Node],
    forced: frozenset[str],
    places: Places,
    retries: Retries,
) -> list[Outcome]:
    """Run the stages, print the outcome of each and return the outcomes."""
    colour = click.get_current_context().color  # threads, in which stages end, have no context
    width = in_columns(node.name for node in nodes)

    def print_outcome(outcome: Outcome) -> None:
        if outcome.verdict != "cached" or not is_listing(outcome.stage):
            click.echo(outcome.line(width), color=colour)

    died = start_prefect(session.root, lock)
    lock.mended = died  # every stage is checked now, and events that the crash prevented are logged
    from flows.run.flow import Run, run_flow

    with shard_runner(places) as runner:
        run = Run(
            pipeline=session.pipeline,
            params=session.params,
            reporter=ConsoleReporter(),
            shard_runner=runner,
            forced=forced,
            print_outcome=print_outcome,
            after_crash=died,
            retries=retries,
        )
        return run_flow(run, nodes, places.workers, os.environ.get(SCHEDULED))


def run_single(session: Session, lock: Lock, node: Node, places: Places) -> None:
    """Run one stage's function on behalf of `dvc repro`."""
    start_prefect(session.root, lock)
    from flows.run.flow import Run, run_function

    with shard_runner(places) as runner:
        run = Run(session.pipeline, session.params, ConsoleReporter(), runner)
        run_function(run, node, places.workers)


def start_prefect(root: Path, lock: Lock) -> bool:
    """Start or find Prefect's server; mark an earlier run that died as crashed, and say so.

    Return True if an earlier run died or was interrupted. Nothing may import Prefect before: it reads its settings from
    the environment once, at import.
    """
    stop_on_signals()
    prefect_home.prepare(root)
    if "PREFECT_API_URL" not in os.environ and not (root / prefect_home.HOME / "prefect.db").exists():
        click.echo("preparing Prefect's database in .prefect (first run only, about half a minute)")
    log = root / prefect_home.HOME / "server.log"
    server = start_server(root, log)
    with doing("starting Prefect"), importing():
        import flows.run.flow  # noqa: F401 - imports Prefect, which takes seconds, while the server starts

        await_server(server, log)
    if lock.dead is None:
        return False
    prefect_home.mark_crashed(root)
    if not lock.dead.interrupted:
        click.echo(
            f"the run of {lock.dead.since} (process {lock.dead.pid}) died: marked crashed in Prefect, continuing"
        )
    return True


@contextmanager
def shard_runner(places: Places) -> Iterator[Any]:
    """Provide the Prefect task runner for shards; a local Dask cluster is started once and closed at the end."""
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
