"""`supmer sample`: preview what the filters of stage `sample` keep and drop, before anything runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.options import overlaid, print_json, set_option
from flows.terminal import cut, printable, table
from flows.workspace import enter
from storage.counts import counted
from storage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.records.parts import Part
    from tasks.params.schema import AcquireParams
    from tasks.sample.preview import Previewed

EXAMPLES = """\b
Examples:
  supmer sample --preview 5
  supmer sample --preview 3 -S sample.min_words=20
  supmer sample --preview 5 -S acquire.corpus.mine=path:/data/texts -S sample.corpora.mine.text_field=body
"""
KEPT = "kept"
TEXT_WIDTH = 100


@click.command(name="sample", epilog=EXAMPLES)
@click.option("--preview", "shown", type=click.IntRange(min=1), required=True, metavar="N", help="Documents to show.")
@click.option(
    "--documents",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Documents of each corpus to read, from its beginning.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the documents that were read as JSON.")
@set_option
def command(shown: int, documents: int, *, as_json: bool, settings: tuple[str, ...]) -> None:
    """Show what the filters of `sample` keep and drop: N documents that stay, and N for each reason to drop one.

    Nothing is written: -S only asks what would be. Near duplicates and the draw (sample.budget_mb) are not shown, as
    they need the whole corpus. `supmer run sample` runs the stage.
    """
    root = enter()
    params = overlaid(root, settings)[0]
    corpora, missing = _corpora(root, params.acquire)
    from storage import paths
    from storage.records.forgotten import read_forgotten
    from tasks.sample.preview import preview

    judged = list(preview(corpora, params.sample, read_forgotten(root / paths.FORGOTTEN), documents))
    if as_json:
        print_json([asdict(document) for document in judged])
        return
    for line in missing:
        click.echo(line, err=True)
    _print(judged, shown)


def _corpora(root: Path, acquire: AcquireParams) -> tuple[dict[str, list[Part]], list[str]]:
    """Return the files of each corpus that can be read now, and a line for each that cannot."""
    from storage import paths
    from storage.records.parts import Part
    from storage.sources.local import local_files
    from storage.sources.source import MANIFEST, Kind, named_sources, read_manifest

    folder = root / paths.CORPUS
    manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else []
    acquired = {(source.name, source.spec): source.files for source in manifest}
    corpora: dict[str, list[Part]] = {}
    missing = []
    for source in named_sources(acquire):
        if source.role != "corpus":
            continue
        if source.spec.kind is Kind.PATH:
            listed = local_files(root, source)
            corpora[source.name] = [Part(root / path, name) for name, path in listed.items()]
        elif files := acquired.get((source.name, acquire.corpus[source.name])):
            corpora[source.name] = [Part(root / file.path, file.name) for file in files]
        else:
            missing.append(f"{source.parameter}: not fetched yet: `supmer run acquire` fetches it")
    if not corpora:
        raise InputError("\n".join(missing))
    return corpora, missing


def _print(judged: Sequence[Previewed], shown: int) -> None:
    if not judged:
        raise InputError("no document in the corpus: add documents, or check acquire.corpus in params.yaml")
    corpora = list(dict.fromkeys(document.corpus for document in judged))
    counts = Counter((document.reason or KEPT, document.corpus) for document in judged)
    reasons = [KEPT, *sorted({document.reason for document in judged if document.reason})]
    rows = [[reason, *(counts[reason, corpus] for corpus in corpora)] for reason in reasons]
    for line in table(["", *corpora], rows, [False, *(True for _ in corpora)]):
        click.echo(line)
    for reason in reasons:
        for document in [document for document in judged if (document.reason or KEPT) == reason][:shown]:
            _print_document(document, reason)


def _print_document(document: Previewed, reason: str) -> None:
    detail = f" ({document.detail})" if document.detail else ""
    click.echo(f"\n{reason}{detail}: {printable(document.corpus)}/{printable(document.file)} row {document.row}")
    click.echo(f"  {cut(printable(document.text), TEXT_WIDTH)}")
    if document.reason is None:
        total = len(document.sentences) + len(document.dropped_sentences)
        click.echo(
            f"  {len(document.sentences)} of {counted(total, 'sentence')} kept{_first(document.dropped_sentences)}"
        )


def _first(dropped: Sequence[str]) -> str:
    """Return the first dropped sentence in words, or "" if there is none."""
    if not dropped:
        return ""
    words = dropped[0].count(" ") + 1
    return f"; dropped ({counted(words, 'word')}): {cut(printable(dropped[0]), TEXT_WIDTH // 2)}"
