"""`supmer uses`: list what a document influenced, directly and indirectly."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING

import click

from flows.terminal import printable, table
from flows.workspace import enter
from storage import paths

if TYPE_CHECKING:
    from storage.lineage.influence import Influence

EXAMPLES = """\b
Example:
  supmer uses 3f9a1c
"""


@click.command(name="uses", epilog=EXAMPLES)
@click.argument("document")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(document: str, *, as_json: bool) -> None:
    """List all influence of DOCUMENT (its id, or at least the first 6 digits), direct and indirect.

    Direct: the rows that name it, centroids that are means of its sentences, prompts whose tasks hold them. Indirect:
    other prompts of the same corpus, what was tuned from an influenced prompt, its scores and predictions, the report.
    """
    root = enter()
    from storage.lineage.influence import influence
    from storage.lineage.tracing import exclusions, find_document, uses
    from storage.prompts.shipped_prompt import shipped_from
    from storage.queries.views import connect, datasets, one_line_errors, refuse_damaged

    with connect(root) as connection, one_line_errors(root):
        refuse_damaged(root, connection)
        full = find_document(connection, document.partition(":")[0])
        stages = {dataset.name: dataset.stage for dataset in datasets(root) if dataset.shards}
        document_uses = [use for view in stages if (use := uses(connection, view, full)) is not None]
        excluded = exclusions(connection, full)
        reached = influence(root, connection, full)
    shipped = shipped_from(root, full)
    if as_json:
        listed = [asdict(use) | {"stage": stages[use.view]} for use in document_uses]
        direct = {"centroids": reached.centroids, "prompts": reached.direct_prompts, "shipped": shipped}
        indirect = {
            "prompts": [prompt.path for prompt in reached.indirect_prompts],
            "tuned": reached.tuned,
            "rows": reached.rows,
            "report": reached.report,
        }
        found = {"document_id": full, "uses": listed, "excluded": excluded}
        click.echo(json.dumps(found | {"direct": direct, "indirect": indirect}, indent=2, default=_plain))
        return
    click.echo(f"document {full}")
    click.echo("direct")
    rows = [
        (use.view, use.rows, stages[use.view], ", ".join(use.first) + (", …" if use.rows > len(use.first) else ""))
        for use in document_uses
    ]
    for line in table(("view", "rows", "stage", "first"), rows, (False, True, False, False), indent="  "):
        click.echo(line)
    for row in excluded:
        click.echo(f"  excluded: {printable(row['reason'])} ({printable(row.get('detail') or 'no detail')})")
    _print(reached, shipped)


def _plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _print(reached: Influence, shipped: dict[str, str]) -> None:
    """Print the influence on centroids and prompts, and what follows from it."""
    for centroid in reached.centroids:
        click.echo(f"  centroids: {centroid}")
    for prompt in reached.direct_prompts:
        click.echo(
            f"  {prompt.path}: {prompt.training:,} training and {prompt.held_out:,} held-out examples "
            f"({', '.join(prompt.formats)})"
        )
    for folder, split in shipped.items():
        click.echo(f"  {folder}: shipped, learned from documents of which it is one ({split})")
    click.echo("indirect")
    for prompt in reached.indirect_prompts:
        click.echo(f"  {prompt.path}: its tasks were drawn from clusters of the same corpus")
    for folder in reached.tuned:
        click.echo(f"  {folder}: tuned or exported from one of these prompts")
    if reached.rows:
        click.echo("  rows measured with them: " + ", ".join(f"{view} {rows:,}" for view, rows in reached.rows.items()))
    if reached.report:
        click.echo(f"  {paths.REPORT_PAGE}: describes these results")
    if not (reached.indirect_prompts or reached.tuned or reached.rows or reached.report):
        click.echo("  nothing")
