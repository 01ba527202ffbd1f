"""`supmer dag`: print the pipeline as text or Mermaid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.options import print_json
from flows.workspace import enter
from storage.lockfile import is_code

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "mermaid"]), default="text", help="Output format.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(form: str, as_json: bool) -> None:
    """Draw the pipeline of dvc.yaml: the stages in the order in which they run, with their inputs and outputs.

    \b
    Examples:
      supmer dag
      supmer dag --format mermaid
    """
    from flows.dvc_state.dag import Pipeline

    nodes = Pipeline(enter()).nodes()
    if as_json:
        print_json([asdict(node) for node in nodes])
        return
    click.echo("\n".join(mermaid(nodes) if form == "mermaid" else text(nodes)))


def text(nodes: Sequence[Node]) -> list[str]:
    """Return the lines of a text that has a block for each stage."""
    lines = []
    for node in nodes:
        after = f"  ← {', '.join(node.upstream)}" if node.upstream else ""
        lines += [click.style(node.name, bold=True) + after, f"    {node.description}"]
        lines += [f"    reads   {path}" for path in node.inputs if not is_code(path)]
        lines += [f"    writes  {path}" for path in node.outputs]
    return lines


def mermaid(nodes: Sequence[Node]) -> list[str]:
    """Return the lines of a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for node in nodes:
        lines.append(f'    {_plain(node.name)}["{node.name}"]')
        lines += [f"    {_plain(above)} --> {_plain(node.name)}" for above in node.upstream]
    return lines


def _plain(name: str) -> str:
    """Return a stage's name as a Mermaid identifier, which must not contain @."""
    return name.replace("@", "-")
