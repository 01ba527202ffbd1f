"""`supmer doctor`: check versions, disk, memory, the hub and ports, and say what to do."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from flows.diagnosis import Check, checks
from flows.options import print_json
from flows.workspace import find_root
from storage.errors import InputError

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.option("--offline", is_flag=True, help="Do not ask the hub.")
def command(*, as_json: bool, offline: bool) -> None:
    """Check what supmer needs on this machine: versions, git, disk, memory, the hub, ports, and the workspace.

    Each line says what was found and, unless it is in order, what to do. Exit code 1 if something keeps supmer from
    working; warnings do not count. Nothing is changed.

    \b
    Example:
      supmer doctor
    """
    try:
        root: Path | None = find_root()
    except InputError:
        root = None
    listed: list[Check] = []
    for check in checks(root, offline=offline):
        listed.append(check)
        if not as_json:
            _print(check)
    if as_json:
        print_json([asdict(check) for check in listed])
    if any(check.state == "problem" for check in listed):
        sys.exit(1)


def _print(check: Check) -> None:
    advice = f": {check.advice}" if check.advice else ""
    click.echo(f"{click.style(f'{check.state:<8}', fg=COLOURS[check.state])} {check.name}: {check.found}{advice}")
