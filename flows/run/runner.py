"""Run the pipeline in this process: start Prefect, mark crashed runs, and call the flow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.lock import Lock
from flows.run.interrupt import stop_on_signals
from flows.run.opening import OpenRun, opened
from flows.run.outcome import Outcome
from flows.run.server_watch import server_watch
from flows.server import prefect_home
from flows.server.run_server import await_server, importing, start_server
from storage.errors import first_line
from storage.signs_of_life import doing

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node
    from flows.run.request import Places
    from flows.run.session import Session


def run_here(run: OpenRun) -> list[Outcome]:
    """Call the flow for an open workspace, print the outcome of each stage and return the outcomes."""
    root = run.session.root
    run.lock.mended = start_prefect(root, run.lock)  # every stage is checked now, and events are logged
    from prefect import tags

    from flows.run.pipeline import supmer

    token = opened.set(run)
    problem = "it did not start"
    try:
        with tags(prefect_home.FLOW, prefect_home.workspace_tag(root)):
            state: Any = supmer(**run.request.parameters(), return_state=True)
        problem = state.message or str(state.name)
    except Exception as error:  # noqa: BLE001 - reported with the stages that did not run
        problem = first_line(error)
    finally:
        opened.reset(token)
    run.settle(problem)
    return run.ended


def run_single(session: Session, lock: Lock, node: Node, places: Places) -> None:
    """Run one stage's function on behalf of `dvc repro`."""
    start_prefect(session.root, lock)
    from flows.run.console import ConsoleReporter
    from flows.run.shard_runner import shard_runner
    from flows.run.stage_runs import Run, run_function

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
    watch = server_watch(root, server)
    with doing("starting Prefect"), importing():
        import flows.run.pipeline  # noqa: F401 - imports Prefect, which takes seconds, while the server starts

        await_server(server, log)
    watch.start()
    if lock.dead is None:
        return False
    prefect_home.mark_crashed(root)
    if not lock.dead.interrupted:
        click.echo(
            f"the run of {lock.dead.since} (process {lock.dead.pid}) died: marked crashed in Prefect, continuing"
        )
    return True
