"""`supmer serve`: run the pipeline on a schedule."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from flows.completion import stage_names
from flows.lock import schedule_lock
from flows.options import place_options, set_option
from flows.retries import Retries, retry_options
from flows.run.interrupt import raise_on_signals
from flows.run.session import open_session
from flows.server.access import Access, configured
from flows.workspace import enter


@click.command(epilog="Exit codes: 0 stopped with Ctrl-C, 1 a bug, 2 bad input.")
@click.argument("stages", nargs=-1, shell_complete=stage_names)
@click.option("--cron", metavar="EXPRESSION", help='When to run, for example "0 3 * * *": every day at 03:00.')
@click.option("--every", metavar="INTERVAL", help="How often to run, counted from now: 30m, 1h, 1d.")
@click.option(
    "--timezone", metavar="NAME", show_default="this machine's", help="Time zone of --cron, for example Europe/Berlin."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=4200,
    show_default=True,
    help="Port of the Prefect UI; 0: any free one.",
)
@retry_options(times=2, seconds=60)
@place_options
@set_option
def command(  # noqa: PLR0913, PLR0917 - one argument for each option
    stages: tuple[str, ...],
    cron: str | None,
    every: str | None,
    timezone: str | None,
    port: int,
    retries: int,
    retry_delay: float,
    runner: str,
    address: str | None,
    workers: int,
    ranks: int | None,
    settings: tuple[str, ...],
) -> None:
    """Run the pipeline, or STAGES with what they depend on, on a schedule, until Ctrl-C.

    Each run does the same as `supmer run`: fresh stages are left alone. A run that is due while another is still going
    is skipped; a failed stage is tried again and continues from its finished shards. The command starts a Prefect
    server with its UI, unless `supmer ui` serves this workspace or PREFECT_API_URL names a server.

    \b
    Examples:
      supmer serve --cron "0 3 * * *"
      supmer serve --every 1h --retries 5 --retry-delay 300
      supmer serve sample --every 30m -S sample.budget_mb=5
    """
    root = enter()
    raise_on_signals()
    session = open_session(settings, keep=False)
    from flows.dvc_state.dag import select
    from flows.run.runner import Places

    select(session.pipeline.nodes(), stages, None, None)
    Places(workers, runner, address)
    from flows.server import prefect_home
    from flows.server.schedule_times import interval, prefect_schedule

    if every:
        interval(every)
    prefect_home.prepare(root)
    when = prefect_schedule(cron, every, timezone)
    arguments = [*stages, "--retries", str(retries), "--retry-delay", str(retry_delay), "--runner", runner]
    arguments += ["--workers", str(workers), *(["--dask", address] if address else [])]
    arguments += [
        *(["--ranks", str(ranks)] if ranks else []),
        *(part for setting in settings for part in ("-S", setting)),
    ]
    asked = shlex.join(["supmer", *sys.argv[1:]])
    with schedule_lock(root, asked), suppress(KeyboardInterrupt), _server(root, port) as access:
        access.use()  # for the runs
        _serve(root, access, when, Plan(asked, arguments, Retries(retries, retry_delay)))
    click.echo("\nstopped: nothing runs until `supmer serve` is started again")
    sys.stdout.flush()
    os._exit(0)  # Prefect's exit handlers would look for a server that is gone


@dataclass(frozen=True)
class Plan:
    """The runs of a schedule: the command as typed, the arguments of `supmer run`, and the retries."""

    asked: str
    arguments: list[str]  # of `supmer run`
    retries: Retries


@contextmanager
def _server(root: Path, port: int) -> Iterator[Access]:
    """Provide access to the server that keeps the schedule: an existing server, or one started here."""
    from flows.server.artifacts import report_is_served
    from flows.server.lasting_server import announced, start_lasting_server
    from flows.server.ready import wait_until_ready

    if not configured():
        report_is_served()
    if there := configured() or announced(root):
        wait_until_ready(None, root, there.api)
        yield there
        return
    lasting = start_lasting_server(root, port)
    try:
        yield lasting.access
    finally:
        lasting.leave()


def _serve(root: Path, access: Access, when: Any, plan: Plan) -> None:
    from prefect.client.orchestration import SyncPrefectClient

    from flows.server.schedule import Schedule, register

    with SyncPrefectClient(access.api, auth_string=access.key) as client:
        deployment = register(client, root, when, plan.asked)
        click.echo(f"scheduled: {access.origin}/deployments/deployment/{deployment}  (Ctrl-C stops)")
        schedule = Schedule(client, root, deployment, plan.arguments, plan.retries)
        try:
            schedule.run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            schedule.stop()
