"""`supmer verify`: re-hash every output against dvc.lock."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.lock import holder_in_words, is_free
from flows.terminal import printable, size
from flows.workspace import enter
from storage.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.checks.verification import Finding, Progress
    from storage.lockfile import Pipeline

PROGRESS_SECONDS = 2.0


EXAMPLES = """\b
Examples:
  supmer verify
  supmer verify --cache
"""


@click.command(name="verify", epilog=EXAMPLES)
@click.option("--cache", "whole_cache", is_flag=True, help="Check all of DVC's cache, earlier versions included.")
@click.option("--memory-mb", type=click.IntRange(min=64), default=2048, show_default=True, help="DuckDB's memory.")
@click.option("--json", "as_json", is_flag=True, help="Print findings as JSON.")
def command(*, whole_cache: bool, memory_mb: int, as_json: bool) -> None:
    """Re-hash outputs, sources, cached objects and the prompts in prompts/; exit with 1 if anything is wrong.

    The tables must agree with each other too.

    An output of another version, as after `git checkout`, is stale and not wrong; `supmer run` restores it.
    """
    root = enter()
    from storage.checks.verification import HARMLESS
    from storage.lockfile import read_pipeline

    pipeline = read_pipeline(root)
    if not is_free(root):
        click.echo(f"{holder_in_words(root)} is running here: outputs may change while they are checked", err=True)
    wrong: list[Finding] = []
    harmless: list[Finding] = []
    for finding in _findings(root, whole_cache=whole_cache, memory_mb=memory_mb):
        (harmless if finding.kind in HARMLESS else wrong).append(finding)
        if not as_json:
            kind = click.style(f"{finding.kind:<10}", fg="yellow" if finding.kind in HARMLESS else "red")
            click.echo(f"{kind} {finding.path}: {printable(finding.detail)}: {finding.remedy}")
    outputs = sum(len(stage.outputs) for stage in pipeline.current())
    if as_json:
        listed = {"findings": [asdict(finding) for finding in wrong], "stale": [asdict(one) for one in harmless]}
        click.echo(json.dumps({"outputs": outputs} | listed, indent=2))
    elif wrong:
        click.echo(f"{len(wrong)} wrong{_stale(harmless)}", err=True)
    else:
        click.echo(_summary(pipeline, outputs, harmless))
    if wrong:
        sys.exit(1)


def _summary(pipeline: Pipeline, outputs: int, harmless: list[Finding]) -> str:
    made = [pipeline.declaration(stage.name) for stage in pipeline.current()]
    unmade = [name for name, declaration in pipeline.declared.items() if declaration not in made]
    rest = f"; not made yet: {', '.join(unmade)}" if unmade else ""
    stale = {finding.path for finding in harmless if finding.kind == "stale"}
    whole = outputs - sum(output.path in stale for stage in pipeline.current() for output in stage.outputs)
    from storage.prompts.shipped_prompt import shipped_folders

    shipped = len(shipped_folders(pipeline.root))
    prompts = f", {shipped} shipped prompt{'' if shipped == 1 else 's'} too" if shipped else ""
    verified = f"verified: {whole} outputs of {counted(len(pipeline.current()), 'stage')} are whole{prompts}"
    return f"{verified}{_stale(harmless)}{rest}"


def _stale(harmless: list[Finding]) -> str:
    stale = sum(finding.kind == "stale" for finding in harmless)
    return f"; {stale} stale: `supmer run` restores {'it' if stale == 1 else 'them'}" if stale else ""


def _findings(root: Path, *, whole_cache: bool, memory_mb: int) -> Iterator[Finding]:
    from storage.checks.forgotten_documents import verify_forgotten
    from storage.checks.shipped_prompts import verify_shipped
    from storage.checks.verification import (
        verify_cache,
        verify_cached,
        verify_invariants,
        verify_outputs,
        verify_sources,
    )
    from storage.lockfile import read_pipeline

    pipeline = read_pipeline(root)
    seen: set[tuple[str, str]] = set()
    stale: set[str] = set()  # known when the outputs are compared, which is before the other checks begin
    checks = [
        verify_outputs(pipeline, _progress("outputs")),
        verify_cached(pipeline, stale),
        verify_sources(pipeline, _progress("sources"), stale),
        verify_shipped(root),
        verify_forgotten(pipeline, stale),
    ]
    if whole_cache:
        checks.append(verify_cache(root, _progress("cache")))
    for finding in (finding for check in checks for finding in check):
        if (finding.kind, finding.path) not in seen:
            seen.add((finding.kind, finding.path))
            if finding.kind == "stale":
                stale.add(finding.path)
            yield finding
    yield from verify_invariants(root, memory_mb, stale)


def _progress(label: str) -> Progress:
    """Return a function that prints the progress of the hashing on standard error, every two seconds."""
    last, shown = time.monotonic(), False

    def progress(done: int, total: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS or (shown and done == total):
            last, shown = now, True
            end = "\r" if sys.stderr.isatty() and done < total else "\n"
            click.echo(f"  {label}: {size(done)} of {size(total)} hashed{end}", nl=False, err=True)

    return progress
