"""`supmer run`: bring the pipeline up to date."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING

import click

from flows.commands.join import takes_part
from flows.completion import stage_names
from flows.dvc_state.local_inputs import in_columns, is_listing
from flows.options import PARAMS_FILE, node_options, place_options, print_json, set_option, stage_option
from flows.retries import Retries, retry_options
from flows.run.opening import open_run
from flows.run.outcome import Outcome
from flows.run.request import Places, Request
from flows.run.session import Session, open_session
from flows.workspace import enter
from storage import paths
from storage.signs_of_life import doing
from tasks.stage.nodes import hosted, wanted_group

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node


@click.command(epilog="Exit codes: 0 done, 1 a bug, 2 bad input, 130 interrupted.")
@click.argument("stages", nargs=-1, shell_complete=stage_names)
@stage_option("--from", "start", help="Leave out the stages before STAGE.")
@stage_option("--until", "end", help="Leave out the stages after STAGE.")
@stage_option("--force", "forced", multiple=True, help="Run STAGE even if it is fresh.")
@click.option("--dry-run", is_flag=True, help="Only print what would run, and why.")
@click.option("--cost", is_flag=True, help="With --dry-run: estimate what the stages that would run cost here.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as JSON; progress goes to standard error.")
@place_options
@node_options
@retry_options(times=0, seconds=10)
@set_option
def command(  # noqa: PLR0913, PLR0917 - one argument for each option
    stages: tuple[str, ...],
    start: str | None,
    end: str | None,
    forced: tuple[str, ...],
    dry_run: bool,
    cost: bool,
    as_json: bool,
    runner: str,
    address: str | None,
    workers: int,
    ranks: int | None,
    nodes: int | None,
    rendezvous: str | None,
    retries: int,
    retry_delay: float,
    settings: tuple[str, ...],
) -> None:
    """Run the pipeline, or STAGES with what they depend on; fresh stages are left alone.

    \b
    Examples:
      supmer run                             everything that is not fresh
      supmer run sample                      sample and what it needs
      supmer run --force sample --dry-run    what that would do
      supmer run --dry-run --cost            and how long it would take
      supmer run metatrain --ranks 2         train with two processes
      supmer run metatrain --nodes 2 --rendezvous 10.0.0.1:29400   with `supmer join 10.0.0.1:29400` there
      supmer run --retries 3                 try a failed stage again, from its finished shards
      supmer run --json | jq '.[].verdict'   what became of each stage, for a program
      supmer run -S sample.budget_mb=5       change a parameter (kept in params.yaml), then run
    """
    if cost and not dry_run:
        raise click.UsageError("--cost goes with --dry-run.")
    places, again = Places(workers, runner, address, ranks), Retries(retries, retry_delay)
    request = Request(places, stages, start, end, forced, settings, again)
    if dry_run:
        with doing("run: comparing files with dvc.lock"):
            session = open_session(settings, keep=False)
            _say_plan(session, request.nodes(session.pipeline), forced, cost=cost, as_json=as_json)
        return
    root = enter()
    group = wanted_group(nodes, rendezvous)
    if takes_part(group):
        return
    aside = redirect_stdout(sys.stderr) if as_json else nullcontext()
    with aside, hosted(group), open_run(root, request, shlex.join(["supmer", *sys.argv[1:]])) as run:
        with doing("run: comparing files with dvc.lock"):
            outcomes = [] if forced or run.lock.dead else _all_fresh(run.session, run.nodes)
        fresh = bool(outcomes)
        if fresh:
            _tell_all(outcomes)
        else:
            from flows.run.runner import run_here

            places.announce_ranks()
            outcomes = run_here(run)
    if as_json:
        print_json([outcome.as_json() for outcome in outcomes])
    if not fresh:
        _end(outcomes, quiet=as_json)
    if not as_json and any(outcome.stage == "report" for outcome in outcomes):
        click.echo(f"the report: {root / paths.REPORT_PAGE}")


def _end(outcomes: Sequence[Outcome], *, quiet: bool) -> None:
    """Say what to do next; exit with 1 after a bug, with 2 if a stage failed or was skipped."""
    for outcome in outcomes:
        if outcome.traceback:
            click.echo(outcome.traceback, err=True)
    if any(outcome.traceback for outcome in outcomes):
        click.echo("this is a bug in supmer: please report it with the lines above", err=True)
        sys.exit(1)
    if any(outcome.verdict in {"failed", "skipped"} for outcome in outcomes):
        click.echo("finished work is kept: correct this, then `supmer run` continues from here", err=True)
        sys.exit(2)
    if not quiet:
        click.echo("done: `supmer sql` lists the tables, `supmer lineage` says what they were made from")


def _all_fresh(session: Session, nodes: Sequence[Node]) -> list[Outcome]:
    """Return the outcomes if every stage is fresh, else []; this needs no Prefect, which takes seconds to import."""
    from flows.dvc_state.freshness import assess

    outcomes = []
    for node in nodes:
        freshness = assess(session.pipeline, node.name)
        if freshness.state != "fresh":
            return []
        outcomes.append(Outcome(node.name, "cached", freshness.reasons))
    return outcomes


def _tell_all(outcomes: Sequence[Outcome]) -> None:
    shown = [outcome for outcome in outcomes if not is_listing(outcome.stage)]
    width = in_columns(outcome.stage for outcome in shown)
    for outcome in shown:
        click.echo(outcome.line(width))


def _say_plan(session: Session, nodes: Sequence[Node], forced: Sequence[str], *, cost: bool, as_json: bool) -> None:
    from flows.run.plan import plan, print_steps

    steps = plan(session, nodes, forced)
    running = [step.stage for step in steps if step.action == "run" and not is_listing(step.stage)]
    estimated = None
    if cost and running:
        from flows.commands.cost import run_cost

        estimated = run_cost(session.root, session.params, PARAMS_FILE, None, None, running)
    if as_json:
        costs = {stage.stage: stage.as_json() for stage in estimated.stages} if estimated else {}
        print_json([step.as_json() | ({"cost": costs.get(step.stage)} if cost else {}) for step in steps])
        return
    print_steps(steps)
    if estimated:
        from flows.commands.cost import show

        show(estimated, explain=False, as_json=False)
