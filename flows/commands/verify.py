"""`supmer verify`: re-hash every output against dvc.lock."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.terminal import printable, size
from flows.workspace import enter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.checks.verification import Finding, Progress

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
    """Re-hash outputs, sources and cached objects, and check that datasets agree; exit with 1 if anything is wrong."""
    root = enter()
    from storage.lockfile import read_pipeline

    pipeline = read_pipeline(root)
    outputs = sum(len(stage.outputs) for stage in pipeline.current())
    findings = []
    for finding in _findings(root, whole_cache=whole_cache, memory_mb=memory_mb):
        findings.append(finding)
        if not as_json:
            kind = click.style(f"{finding.kind:<10}", fg="red")
            click.echo(f"{kind} {finding.path}: {printable(finding.detail)}: {finding.remedy}")
    if as_json:
        click.echo(json.dumps({"outputs": outputs, "findings": [asdict(finding) for finding in findings]}, indent=2))
    elif not findings:
        made = [pipeline.declaration(stage.name) for stage in pipeline.current()]
        unmade = [name for name, declaration in pipeline.declared.items() if declaration not in made]
        rest = f"; not made yet: {', '.join(unmade)}" if unmade else ""
        click.echo(f"verified: {outputs} outputs of {len(pipeline.current())} stages are whole{rest}")
    else:
        click.echo(f"{len(findings)} wrong", err=True)
    if findings:
        sys.exit(1)


def _findings(root: Path, *, whole_cache: bool, memory_mb: int) -> Iterator[Finding]:
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
    checks = [
        verify_outputs(pipeline, _progress("outputs")),
        verify_cached(pipeline),
        verify_sources(pipeline, _progress("sources")),
    ]
    if whole_cache:
        checks.append(verify_cache(root, _progress("cache")))
    for finding in (finding for check in checks for finding in check):
        if (finding.kind, finding.path) not in seen:
            seen.add((finding.kind, finding.path))
            yield finding
    yield from verify_invariants(root, memory_mb)


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
