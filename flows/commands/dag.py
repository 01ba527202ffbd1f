"""`supmer dag`: the pipeline as text or Mermaid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from flows.workspace import enter

if TYPE_CHECKING:
    from flows.dag import Node


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "mermaid"]), default="text", help="How to draw it.")
def command(form: str) -> None:
    """Draw the pipeline of dvc.yaml: stages in the order they run, with what each reads and writes."""
    from flows.dag import Pipeline

    nodes = Pipeline(enter()).nodes()
    click.echo("\n".join(mermaid(nodes) if form == "mermaid" else text(nodes)))


def text(nodes: Sequence[Node]) -> list[str]:
    """One block a stage."""
    lines = []
    for node in nodes:
        after = f"  ← {', '.join(node.upstream)}" if node.upstream else ""
        lines += [click.style(node.name, bold=True) + after, f"    {node.description}"]
        lines += [f"    reads   {path}" for path in node.inputs if not path.endswith(".py")]
        lines += [f"    writes  {path}" for path in node.outputs]
    return lines


def mermaid(nodes: Sequence[Node]) -> list[str]:
    """A Mermaid flowchart."""
    lines = ["flowchart LR"]
    for node in nodes:
        lines.append(f'    {node.name}["{node.name}"]')
        lines += [f"    {above} --> {node.name}" for above in node.upstream]
    return lines
