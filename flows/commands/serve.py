"""`supmer serve`: run the pipeline on a schedule."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from flows.completion import stage_names
from flows.lock import schedule_lock
from flows.options import place_options, set_option
from flows.retries import Retries, retry_options
from flows.run.interrupt import raise_on_signals
from flows.run.request import Places, Request
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
    places, again = Places(workers, runner, address, ranks), Retries(retries, retry_delay)
    request = Request(places, stages, settings=settings, retries=again)
    request.nodes(open_session(settings, keep=False).pipeline)
    from flows.server import prefect_home
    from flows.server.schedule_times import interval, prefect_schedule

    if every:
        interval(every)
    prefect_home.prepare(root)
    when = prefect_schedule(cron, every, timezone)
    asked = shlex.join(["supmer", *sys.argv[1:]])
    with suppress(KeyboardInterrupt), _server(root, port) as access, schedule_lock(root, asked):
        access.use()  # for the runs
        _serve(root, access, when, request, asked)
    click.echo("\nstopped: nothing runs until `supmer serve` is started again")
    sys.stdout.flush()
    os._exit(0)  # Prefect's exit handlers would look for a server that is gone


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


def _serve(root: Path, access: Access, when: Any, request: Request, asked: str) -> None:
    """Let Prefect's runner serve the schedule; raise InputError if somebody deletes it, or the runner ends."""
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()  # Prefect was imported to read the schedule, before the server was known
    from flows.run.pipeline import supmer
    from flows.server.schedule_watch import Watch
    from flows.server.served import Served

    with SyncPrefectClient(access.api, auth_string=access.key) as client:
        served = Served.start(client, supmer, root, when, request.parameters(), asked)
        try:
            click.echo(f"scheduled: {access.origin}/deployments/deployment/{served.deployment}  (Ctrl-C stops)")
            Watch(client, served.deployment).run(served.is_alive)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            served.stop()
