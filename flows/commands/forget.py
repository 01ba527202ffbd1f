"""`supmer forget`: keep documents out of everything from now on, and certify that nothing names them any more."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.lock import workspace_lock
from flows.options import overlaid
from flows.terminal import printable, size
from flows.workspace import enter
from storage import paths
from storage.counts import counted
from storage.errors import InputError
from storage.signs_of_life import doing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flows.takedown.forgetting import Before, Counts, StillHeld

NAMED = 3  # commits and places that are printed of each kind; the certificate has all
EXAMPLES = """\b
Examples:
  supmer forget 3f9a1c --why "takedown request of 3 May" --dry-run
  supmer forget https://example.org/a-story --why "withdrawn by its author" --yes
  supmer forget --file ids.txt --why "licence ended" --purge --yes
"""


@click.command(name="forget", epilog=EXAMPLES)
@click.argument("documents", nargs=-1, metavar="[DOCUMENT]…")
@click.option("--file", "listing", type=click.Path(path_type=Path), help="A file that names one document on each line.")
@click.option("--why", "reason", required=True, metavar="TEXT", help="The reason; kept in the list and certificate.")
@click.option("--purge", is_flag=True, help="Also delete earlier versions that hold them, from DVC's cache and shards.")
@click.option("--dry-run", is_flag=True, help="Only say what would be affected.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-run", is_flag=True, help="Only write the list; the next `supmer run` honours it.")
def command(documents: tuple[str, ...], listing: Path | None, reason: str, **options: bool) -> None:
    """Forget documents: list them in forgotten.csv, run what they affect, and write a certificate.

    DOCUMENT is an id (at least 6 digits), the document's own `id` or URL in the corpus, its text, or a passage of it.
    The command can be repeated: after an interruption it continues. Files of sources, DVC remotes and git commits are
    never changed; the command names those that still hold the documents.
    """
    why = " ".join(reason.split())
    if not why:
        raise InputError("--why: is empty: give the reason in a sentence")
    if options["purge"] and options["no_run"]:
        raise click.UsageError("--purge needs the run: leave --no-run out.")
    names = [*documents, *(_listed(listing) if listing else ())]
    if not names:
        raise InputError("forget: no document given: name one, or give --file")
    root = enter()
    from flows.takedown.forgetting import state_before
    from tasks.sample.corpus_settings import text_field

    fields = partial(text_field, overlaid(root, ())[0].sample)
    with doing("forget: searching the corpus and the tables"):
        ids = _located(root, names, fields)
        before = state_before(root, ids)
    _say_affected(before.rows, purge=options["purge"])
    if options["dry_run"]:
        return
    if not options["yes"] and not (sys.stdin.isatty() and click.confirm("forget them?")):
        raise InputError("forget: nothing was changed: confirm it, or give --yes")
    _write_list(root, ids, why, before)
    click.echo(f"{paths.FORGOTTEN}: {len(ids)} listed; commit it")
    if options["no_run"]:
        return
    run = subprocess.run([sys.executable, "-m", "flows.cli", "run"], cwd=root, check=False)
    if run.returncode:
        click.echo("the list is written; repeat this command when `supmer run` succeeds: it then certifies", err=True)
        sys.exit(run.returncode)
    with doing("forget: checking that nothing names them any more"):
        _certify(root, ids, why, before, fields, purge=options["purge"])


def _listed(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}): give a text file with one document on each line"
        ) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _located(root: Path, names: Sequence[str], fields: Callable[[str], str]) -> list[str]:
    from storage.lineage.finding import locate
    from storage.queries.views import connect, one_line_errors

    with connect(root) as connection, one_line_errors(root):
        return locate(root, connection, names, fields)


def _say_affected(rows: Counts, *, purge: bool) -> None:
    for document, counts in rows.items():
        named = ", ".join(f"{view} {count:,}" for view, count in counts.items() if count)
        click.echo(f"{document}: {named or 'no table names it'}")
    naming = {view for counts in rows.values() for view, count in counts.items() if count}
    affected = "sample and report" if naming else "sample, which reads the list"
    click.echo(f"affected: {'sample and all stages after it' if naming - {'excluded'} else affected}")
    if purge:
        click.echo("purge: every earlier version of their outputs that holds them, in DVC's cache and among the shards")


def _write_list(root: Path, ids: Sequence[str], why: str, before: Before) -> None:
    from flows.takedown.forgetting import note
    from storage.records.forgotten import Forgotten, read_forgotten, write_forgotten

    path, today = root / paths.FORGOTTEN, datetime.now(UTC).date().isoformat()
    with workspace_lock(root, "supmer forget"):
        note(root, ids, before)
        listed = read_forgotten(path)
        added = {document: Forgotten(document, today, why) for document in ids if document not in listed}
        if added:
            write_forgotten(path, listed | added)


def _certify(
    root: Path, ids: Sequence[str], why: str, before: Before, fields: Callable[[str], str], *, purge: bool
) -> None:
    """Check that nothing names the documents, delete earlier versions if wanted, and write the certificate."""
    from flows.dvc_state.dag import Pipeline
    from flows.takedown.forgetting import copies_of, note, require_forgotten, still_held, write_certificate
    from flows.takedown.purging import purge as purge_copies

    pipeline, purged = Pipeline(root), None
    with workspace_lock(root, "supmer forget"):
        after = require_forgotten(root, ids, pipeline)
        copies = copies_of(root, ids, before, fields)
        if purge:
            before.versions, before.objects = sorted(copies.versions), sorted(copies.objects)
            note(root, ids, before)
            purged = purge_copies(pipeline, copies)
            freed = f"{counted(purged.objects, 'object')} of DVC's cache ({size(purged.bytes)})"
            click.echo(f"purged: {freed} and {counted(purged.shards, 'shard')}")
        held = still_held(root, ids, pipeline, copies, before.folders, fields)
        path = write_certificate(root, ids, why, before, after, held, copies=copies, purged=purged)
    for line in _lines(held):
        click.echo(f"still there: {printable(line)}")
    click.echo(f"{path.relative_to(root)}: no table, task, centroid or prompt names them any more; commit it")


def _lines(held: StillHeld) -> Iterator[str]:
    """Yield a line for each thing that still holds the documents: where, and what to do."""
    for place in held.sources[:NAMED]:
        remedy = "use a source without it" if place.fetched else "remove it there, then `supmer run`"
        yield f"{place.path}, row {place.row}: a file of source {place.source}: {remedy}"
    if len(held.sources) > NAMED:
        yield f"{len(held.sources) - NAMED:,} more places in files of sources: the certificate lists them"
    if held.cached:
        yield f"{counted(held.cached, 'object')} of earlier versions in DVC's cache: --purge deletes them"
    for remote in held.remotes:
        if remote.objects is None:
            yield f"remote {remote.remote}: cannot be asked ({remote.problem}): delete earlier versions there"
        elif remote.objects:
            command = f"dvc gc --workspace --cloud --remote {remote.remote}"
            objects = f"{counted(remote.objects, 'object')} of earlier versions"
            yield f"remote {remote.remote}: {objects}: `{command}` deletes all earlier versions there"
    if held.commits:
        shown = ", ".join(commit[:12] for commit in held.commits[:NAMED]) + (", …" if len(held.commits) > NAMED else "")
        count = counted(len(held.commits), "git commit")
        yield f"{count} ({shown}): dvc.lock or a file names or holds them: rewrite the history if that must go too"
    for folder in held.folders:
        yield f"{folder}: made from a prompt that they influenced: delete it, or make it again"
