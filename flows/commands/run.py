"""`supmer run`: bring the pipeline up to date."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from flows.lock import workspace_lock
from flows.mending import mend_lock_file
from flows.options import set_option
from flows.outcome import Outcome
from flows.session import Session, open_session
from flows.workspace import enter
from storage.errors import InputError

if TYPE_CHECKING:
    from flows.dag import Node


@click.command(epilog="Exit codes: 0 done, 1 a bug, 2 bad input, 130 interrupted.")
@click.argument("stages", nargs=-1)
@click.option("--from", "start", metavar="STAGE", help="Leave out what comes before STAGE.")
@click.option("--until", "end", metavar="STAGE", help="Leave out what comes after STAGE.")
@click.option("--force", "forced", metavar="STAGE", multiple=True, help="Run STAGE even if it is fresh.")
@click.option("--dry-run", is_flag=True, help="Only say what would run, and why.")
@click.option("--runner", type=click.Choice(["threads", "dask"]), default="threads", help="Where shards run.")
@click.option("--dask", "address", metavar="ADDRESS", help="An existing Dask scheduler; without it, a local cluster.")
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count(), show_default="cores", help="Shards at once.")
@set_option
def command(  # noqa: PLR0913, PLR0917 - one argument an option
    stages: tuple[str, ...],
    start: str | None,
    end: str | None,
    forced: tuple[str, ...],
    dry_run: bool,
    runner: str,
    address: str | None,
    workers: int,
    settings: tuple[str, ...],
) -> None:
    """Run the pipeline, or STAGES with what they depend on; fresh stages are left alone.

    \b
    Examples:
      supmer run                             everything that is not fresh
      supmer run sample                      sample and what it needs
      supmer run --force sample --dry-run    what that would do
      supmer run -S sample.budget_mb=5       change a parameter (kept in params.yaml), then run
    """
    if dry_run:
        session = open_session(settings, keep=False)
        _say_plan(session, _chosen(session, stages, start, end, forced), forced)
        return
    root = enter()
    with workspace_lock(root, shlex.join(["supmer", *sys.argv[1:]])) as lock:
        if lock.dead:
            mend_lock_file(root)
        session = open_session(settings, keep=True)
        nodes = _chosen(session, stages, start, end, forced)
        if not forced and not lock.dead and (fresh := _all_fresh(session, nodes)):
            _tell_all(fresh)
            return
        from flows.runner import Places, run_here

        _end(run_here(session, lock, nodes, frozenset(forced), Places(workers, runner, address)))


def _end(outcomes: Sequence[Outcome]) -> None:
    """Say what to do next, and leave with the code that fits."""
    for outcome in outcomes:
        if outcome.traceback:
            click.echo(outcome.traceback, err=True)
    if any(outcome.traceback for outcome in outcomes):
        click.echo("this is a bug in supmer: please report it with the lines above", err=True)
        sys.exit(1)
    if any(outcome.verdict in {"failed", "skipped"} for outcome in outcomes):
        click.echo("nothing finished is lost: once this is mended, `supmer run` goes on from here", err=True)
        sys.exit(2)
    click.echo("done: `supmer sql` lists the tables, `supmer lineage` says what they were made from")


def _chosen(
    session: Session, stages: Sequence[str], start: str | None, end: str | None, forced: Sequence[str]
) -> list[Node]:
    from flows.dag import require, select

    every = session.pipeline.nodes()
    nodes = select(every, stages, start, end)
    for name in forced:
        require([node.name for node in every], name)
        if name not in {node.name for node in nodes}:
            raise InputError(f"--force {name}: that stage is not among those asked for")
    if not nodes:
        raise InputError("no stage is left of what was asked for: see `supmer dag`")
    return nodes


def _all_fresh(session: Session, nodes: Sequence[Node]) -> list[Outcome]:
    """The outcomes if there is nothing to do, decided before Prefect is imported; else nothing."""
    from flows.freshness import assess

    outcomes = []
    for node in nodes:
        freshness = assess(session.pipeline, node.name)
        if freshness.state != "fresh":
            return []
        outcomes.append(Outcome(node.name, "cached", freshness.reasons))
    return outcomes


def _tell_all(outcomes: Sequence[Outcome]) -> None:
    width = max(len(outcome.stage) for outcome in outcomes)
    for outcome in outcomes:
        click.echo(outcome.line(width))


def _say_plan(session: Session, nodes: Sequence[Node], forced: Sequence[str]) -> None:
    from flows.plan import plan

    width = max(len(node.name) for node in nodes)
    for step in plan(session, nodes, forced):
        click.echo(step.line(width))
