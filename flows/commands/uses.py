"""`supmer uses`: list the datasets and prompts that used a document."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from flows.terminal import printable, table
from flows.workspace import enter

EXAMPLES = """\b
Example:
  supmer uses 3f9a1c
"""


@click.command(name="uses", epilog=EXAMPLES)
@click.argument("document")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(document: str, *, as_json: bool) -> None:
    """List the rows of every dataset that come from DOCUMENT (its id, or at least the first 6 digits).

    Prompts are listed too, if their training tasks contain a sentence of the document.
    """
    root = enter()
    from storage.lineage.tracing import exclusions, find_document, prompts_with, uses
    from storage.queries.views import connect, datasets, one_line_errors, refuse_damaged

    with connect(root) as connection, one_line_errors(root):
        refuse_damaged(root, connection)
        full = find_document(connection, document.partition(":")[0])
        stages = {dataset.name: dataset.stage for dataset in datasets(root) if dataset.shards}
        document_uses = [use for view in stages if (use := uses(connection, view, full)) is not None]
        excluded = exclusions(connection, full)
        prompts = prompts_with(root, connection, full)
    if as_json:
        listed = [asdict(use) | {"stage": stages[use.view]} for use in document_uses]
        click.echo(
            json.dumps(
                {"document_id": full, "uses": listed, "excluded": excluded, "prompts": prompts}, indent=2, default=str
            )
        )
        return
    click.echo(f"document {full}")
    rows = [
        (use.view, use.rows, stages[use.view], ", ".join(use.first) + (", …" if use.rows > len(use.first) else ""))
        for use in document_uses
    ]
    for line in table(("view", "rows", "stage", "first"), rows, (False, True, False, False), indent="  "):
        click.echo(line)
    for prompt, formats in prompts.items():
        click.echo(f"  prompt {prompt}: among its training tasks ({', '.join(formats)})")
    for row in excluded:
        click.echo(f"  excluded: {printable(row['reason'])} ({printable(row.get('detail') or 'no detail')})")
