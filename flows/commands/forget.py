"""`supmer forget`: keep documents out of everything from now on, and certify that nothing names them any more."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.lock import workspace_lock
from flows.options import overlaid
from flows.workspace import enter
from storage import paths
from storage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\b
Examples:
  supmer forget 3f9a1c --why "takedown request of 3 May" --dry-run
  supmer forget https://example.org/a-story --why "withdrawn by its author" --yes
  supmer forget --file ids.txt --why "licence ended" --yes
"""


@click.command(name="forget", epilog=EXAMPLES)
@click.argument("documents", nargs=-1, metavar="[DOCUMENT]…")
@click.option("--file", "listing", type=click.Path(path_type=Path), help="A file that names one document on each line.")
@click.option("--why", "reason", required=True, metavar="TEXT", help="The reason; kept in the list and certificate.")
@click.option("--dry-run", is_flag=True, help="Only say what would be affected.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-run", is_flag=True, help="Only write the list; the next `supmer run` honours it.")
def command(documents: tuple[str, ...], listing: Path | None, reason: str, **options: bool) -> None:
    """Forget documents: list them in forgotten.csv, run what they affect, and write a certificate.

    DOCUMENT is an id (at least 6 digits), the document's own `id` or URL in the corpus, its text, or a passage of it.
    The command can be repeated: after an interruption it continues. Earlier versions stay in DVC's cache, and the
    source files are not changed.
    """
    why = " ".join(reason.split())
    if not why:
        raise InputError("--why: is empty: give the reason in a sentence")
    names = [*documents, *(_listed(listing) if listing else ())]
    if not names:
        raise InputError("forget: no document given: name one, or give --file")
    root = enter()
    ids = _located(root, names)
    before = _influence(root, ids)
    for document, counts in before.items():
        named = ", ".join(f"{view} {rows:,}" for view, rows in counts.items() if rows)
        click.echo(f"{document}: {named or 'no table names it'}")
    kept = any(rows for counts in before.values() for view, rows in counts.items() if view != "excluded")
    affected = "sample and all stages after it" if kept else "sample and report: no other stage used them"
    click.echo(f"affected: {affected}")
    if options["dry_run"]:
        return
    if not options["yes"] and not (sys.stdin.isatty() and click.confirm("forget them?")):
        raise InputError("forget: nothing was changed: confirm it, or give --yes")
    versions = _versions(root)
    _write_list(root, ids, why)
    click.echo(f"{paths.FORGOTTEN}: {len(ids)} listed; commit it")
    if options["no_run"]:
        return
    run = subprocess.run([sys.executable, "-m", "flows.cli", "run"], cwd=root, check=False)
    if run.returncode:
        click.echo("the list is written; repeat this command when `supmer run` succeeds: it then certifies", err=True)
        sys.exit(run.returncode)
    _certify(root, ids, why, before, versions)


def _listed(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}): give a text file with one document on each line"
        ) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _located(root: Path, names: Sequence[str]) -> list[str]:
    from storage.lineage.finding import locate
    from storage.queries.views import connect, one_line_errors
    from tasks.sample.corpus_settings import text_field

    fields = partial(text_field, overlaid(root, ())[0].sample)
    with connect(root) as connection, one_line_errors(root):
        return list(dict.fromkeys(locate(root, connection, name, fields) for name in names))


def _influence(root: Path, ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the number of rows of each table that name each document; the list of forgotten documents is no use."""
    from storage.lineage.tracing import exclusions, uses
    from storage.queries.views import connect, datasets, one_line_errors, refuse_damaged
    from storage.records.forgotten import REASON

    with connect(root) as connection, one_line_errors(root):
        refuse_damaged(root, connection)
        views = [dataset.name for dataset in datasets(root) if dataset.shards]
        counted = {}
        for document in ids:
            counts = {use.view: use.rows for view in views if (use := uses(connection, view, document)) is not None}
            listed = [
                row for row in exclusions(connection, document) if row["reason"] == REASON and not row.get("text")
            ]
            if "excluded" in counts:
                counts["excluded"] -= len(listed)
            counted[document] = counts
        return counted


def _versions(root: Path) -> dict[str, str | None]:
    from storage.lockfile import read_pipeline

    return {output.path: output.md5 for stage in read_pipeline(root).current() for output in stage.outputs}


def _write_list(root: Path, ids: Sequence[str], why: str) -> None:
    from storage.records.forgotten import Forgotten, read_forgotten, write_forgotten

    path, today = root / paths.FORGOTTEN, datetime.now(UTC).date().isoformat()
    with workspace_lock(root, "supmer forget"):
        listed = read_forgotten(path)
        added = {document: Forgotten(document, today, why) for document in ids if document not in listed}
        if added:
            write_forgotten(path, listed | added)


def _certify(root: Path, ids: Sequence[str], why: str, before: dict[str, Any], versions: dict[str, str | None]) -> None:
    """Check that no table names the documents and that every stage is fresh; write the certificate, or refuse to."""
    import orjson

    from flows.dvc_state.dag import Pipeline
    from flows.dvc_state.freshness import assess
    from flows.run.lineage_events import git_commit
    from storage.atomic import write_bytes

    after = _influence(root, ids)
    left = [f"{document} in {view}" for document, counts in after.items() for view, rows in counts.items() if rows]
    pipeline = Pipeline(root)
    stale = [node.name for node in pipeline.nodes() if assess(pipeline, node.name).state != "fresh"]
    if left or stale:
        wrong = f"still named: {', '.join(left)}" if left else f"not fresh: {', '.join(stale)}"
        raise InputError(f"forget: no certificate, {wrong}: `supmer run`, then repeat this command")
    now, current = datetime.now(UTC), _versions(root)
    changed = {
        path: {"before": versions.get(path), "after": md5} for path, md5 in current.items() if versions.get(path) != md5
    }
    certificate = {
        "documents": list(ids),
        "why": why,
        "time": now.isoformat(timespec="seconds"),
        "git_commit": git_commit(root),
        "rows_before": before,
        "rows_after": after,
        "outputs": changed,
        "checks": [
            "no row of any table names the documents",
            "every stage is fresh: all outputs come from these tables",
        ],
        "not_removed": "earlier versions in DVC's cache, remotes and git; the files of the sources",
    }
    path = root / paths.CERTIFICATES / f"{now:%Y%m%dT%H%M%SZ}-{ids[0][:8]}.json"
    write_bytes(path, orjson.dumps(certificate, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    click.echo(f"{path.relative_to(root)}: no table names them any more; {len(changed)} outputs changed")
