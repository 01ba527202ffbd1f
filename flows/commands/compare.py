"""`supmer compare`: show what changed between two runs in parameters, data, code and scores."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from flows.options import print_json
from flows.terminal import table
from flows.workspace import enter
from storage.counts import counted
from storage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.lineage.run_differences import Difference, RunDifferences
    from storage.lineage.run_history import PipelineRun

EXAMPLES = """\b
Examples:
  supmer compare 3f9a1c20 now         a run of `supmer runs`, and the present outputs
  supmer compare HEAD~1 HEAD          two commits
  supmer compare 3f9a1c20 77ab01de --json
"""
MD5_DIGITS = 7


@click.command(name="compare", epilog=EXAMPLES)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B", default="now")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def command(before: str, after: str, *, as_json: bool) -> None:
    """Show what changed from A to B: parameters, data, code and scores.

    A and B are runs (ids of `supmer runs`), commits, branches or tags (their dvc.lock), or `now`, the present dvc.lock,
    which is also the default of B. Versions come from the lineage and DVC, metrics from DVC's cache.
    """
    root = enter()
    from storage.lineage.run_differences import run_differences
    from storage.lineage.run_history import metrics_of

    first, second = _named(root, before), _named(root, after)
    metrics = metrics_of(root, first), metrics_of(root, second)
    differences = run_differences(first, second, metrics)
    if as_json:
        print_json(asdict(differences))
    else:
        _print(differences, first, second)


def _named(root: Path, name: str) -> PipelineRun:
    """Return the run of an id, of a commit, or of the present dvc.lock. Raise InputError if there is none."""
    from flows.takedown.git_history import lock_file_at
    from storage.lineage.run_history import LOCKED, find_run, locked_run, pipeline_runs
    from storage.lockfile import read_pipeline, with_lock_file

    pipeline, runs = read_pipeline(root), pipeline_runs(root)
    if name == LOCKED:
        if not pipeline.locked:
            raise InputError("now: nothing has run yet: `supmer run` makes dvc.lock")
        return locked_run(pipeline, runs)
    if run := find_run(runs, name):
        return run
    if content := lock_file_at(root, name):
        return locked_run(with_lock_file(pipeline, content), runs, name)
    known = ", ".join(run.short_id for run in runs[-3:]) or "none"
    raise InputError(f"{name}: no run begins so, and no commit of this name has a dvc.lock (last runs: {known})")


def _print(differences: RunDifferences, first: PipelineRun, second: PipelineRun) -> None:
    click.echo(f"A  {_described(first)}\nB  {_described(second)}")
    groups: list[tuple[str, Sequence[Difference], Any]] = [
        ("parameters", differences.parameters, _plain),
        ("data", differences.data, _version),
        ("code", differences.code, _version),
        ("scores and other metrics", differences.metrics, _plain),
    ]
    for title, items, shown in groups:
        differing = f"{len(items)} {'differs' if len(items) == 1 else 'differ'}"
        click.echo(f"\n{title}: {differing if items else 'the same'}")
        rows = [[item.name, shown(item.before), shown(item.after), _change(item)] for item in items]
        for line in table(("", "A", "B", "change"), rows, [False, True, True, True], "  ") if rows else ():
            click.echo(line)
    if differences.unshared:
        click.echo(f"\nnot compared, as only one of the two has them: {', '.join(differences.unshared)}")


def _described(run: PipelineRun) -> str:
    time = f", {run.time[:16].replace('T', ' ')}" if run.time else " (dvc.lock)"
    return f"{run.short_id}{time}{f', commit {run.commit[:12]}' if run.commit else ''}"


def _plain(value: object) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _version(value: object) -> str:
    return "–" if value is None else counted(value, "row") if isinstance(value, int) else str(value)[:MD5_DIGITS]


def _change(item: Difference) -> str:
    if isinstance(item.before, int) and isinstance(item.after, int):
        return f"{item.after - item.before:+,}"
    numbers = isinstance(item.before, int | float) and isinstance(item.after, int | float)
    return f"{item.after - item.before:+.4g}" if numbers else ""
