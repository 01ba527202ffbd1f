"""`supmer trace`: follow an example, sentence or document back to its file and offset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from flows.options import print_json
from flows.terminal import printable, size
from flows.workspace import enter
from storage import paths
from storage.counts import counted

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

EXAMPLES = """\b
Examples:
  supmer trace 3f9a1c
  supmer trace 3f9a1c:4 --json
  supmer trace sp-train-000123/q07
  supmer trace movies/test.csv:12
"""


@click.command(name="trace", epilog=EXAMPLES)
@click.argument("example")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(example: str, *, as_json: bool) -> None:
    """Follow EXAMPLE back to its document, source, file and offset.

    EXAMPLE is any id that a table shows: of a document (at least its first 6 digits), a sentence (DOCUMENT:INDEX), a
    task, a training example, a tested example (FILE:ROW of `predictions`, or DATASET/FILE:ROW), or a hash of a prompt
    or of data (at least its first 12 digits).
    """
    root = enter()
    from storage.lineage.tracing import find_example, refuse_unknown_example
    from storage.queries.views import connect, datasets, one_line_errors, refuse_damaged

    with connect(root) as connection, one_line_errors(root):
        refuse_damaged(root, connection)
        views = [dataset.name for dataset in datasets(root) if dataset.shards]
        examples = find_example(connection, views, example)
        if not examples and (others := _others(root, connection, example)):
            (print_json if as_json else _print_others)(others)
            return
        if not examples:
            refuse_unknown_example(connection, example)
        ids = dict.fromkeys(sentence for row in examples.values() for sentence in row.sentence_ids) or [example]
        traces = [_trace(root, connection, sentence) for sentence in ids]
    if as_json:
        listed = {view: list(row.sentence_ids) for view, row in examples.items()}
        facts = {view: row.facts for view, row in examples.items()}
        click.echo(json.dumps({"examples": listed, "facts": facts, "traces": traces}, indent=2, default=str))
        return
    for view, row in examples.items():
        click.echo(f"example {example} of {view}: sentences {', '.join(row.sentence_ids)}")
        if row.facts:
            click.echo("  " + ", ".join(f"{name} {printable(value)}" for name, value in row.facts.items()))
    for trace in traces:
        _print(trace)


def _others(root: Path, connection: DuckDBPyConnection, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return what an id names that is neither a training example nor of the corpus; empty if it names nothing."""
    from storage.errors import InputError
    from storage.lineage.tested import find_hash, find_task, find_tested
    from storage.lineage.tracing import find_document

    if examples := find_task(connection, name):
        return {"task": examples}
    if tested := find_tested(root, connection, name):
        return {"tested": tested}
    try:
        find_document(connection, name)
    except InputError:
        if hashes := find_hash(root, connection, name):
            return {"hashes": hashes}
        if ":" in name and {".", "/"} & set(name):
            raise InputError(
                f"{name}: no prediction is about it: `predictions` names a tested example FILE:ROW; put DATASET/ "
                "before it if several sets have such a file"
            ) from None
    return {}


def _print_others(others: dict[str, list[dict[str, Any]]]) -> None:
    for row in others.get("task", []):
        facts = ", ".join(f"{name} {row[name]}" for name in ("role", "kind", "label") if row.get(name) is not None)
        click.echo(f"example {row['example_id']}: {facts}, sentences {', '.join(row.get('sentence_ids') or ())}")
    for row in others.get("tested", []):
        click.echo(click.style(f"tested example {row['example_id']} of {row['dataset']}", bold=True))
        for text in row.get("texts") or ():
            click.echo(f"  text      {printable(text)}")
        click.echo(f"  label     {row.get('label_name') or row['label']}")
        file = row["file"]
        click.echo(f"  file      {printable(file['path'])}, row {row['row']}" if file else "  file      not recorded")
        if file:
            click.echo(f"            {size(file['bytes'])}, sha256 {file['sha256']}")
        for count in row["predictions"]:
            click.echo(f"  {count['method']}: {count['right']} of {count['predictions']} predictions are right")
    for row in others.get("hashes", []):
        where = row.get("folder") or f"{row['rows']:,} rows of {row['view']} ({', '.join(row['runs'])})"
        click.echo(f"{row['hash']}: {row['what']}: {printable(where)}")


def _trace(root: Path, connection: DuckDBPyConnection, identity: str) -> dict[str, Any]:
    from storage.errors import InputError
    from storage.lineage.tracing import clusters_of, document_record, exclusions, find_document, sentences_around

    prefix, colon, index = identity.partition(":")
    if colon and index.isdecimal() and (labeled := _labeled_example(root, prefix, int(index))):
        return {"dataset": prefix, "row": int(index)} | labeled
    if colon and not index.isdecimal():
        raise InputError(f"{identity}: the index of a sentence, after the colon, is a number from 0")
    document = find_document(connection, prefix)
    record = document_record(connection, document)
    trace: dict[str, Any] = {"document_id": document, "document": record}
    trace["excluded"] = exclusions(connection, document)
    if colon:
        trace["sentence"] = int(index)
        trace["sentences"] = sentences_around(connection, document, int(index))
        if int(index) not in {row["index"] for row in trace["sentences"]}:
            raise InputError(f"{identity}: no such sentence is kept: {_sentence_range(record)}")
        trace["clusters"] = clusters_of(connection, document, int(index))
    origins = [record] if record else trace["excluded"]
    trace["origins"] = [_origin(root, row) for row in origins]
    return trace


def _labeled_example(root: Path, name: str, row: int) -> dict[str, Any] | None:
    """Return the facts of a dataset, as `acquire` recorded them, and the file and row of one of its examples.

    Return None if there is no dataset of that name.
    """
    from storage.errors import InputError
    from storage.records.labeled_sets import place_of, training_files
    from storage.sources.source import MANIFEST, read_manifest

    folder = root / paths.DATASETS
    sources = read_manifest(folder) if (folder / MANIFEST).is_file() else []
    source = next((source for source in sources if source.name == name), None)
    if source is None:
        return None
    facts = {"spec": source.spec, "licence": source.licence}
    try:
        place = place_of(training_files(source), root, row)
    except InputError as error:  # the facts of the set are still known
        return facts | {"file": None, "problem": str(error)}
    if place is None:
        return facts | {"file": None, "problem": "its training files have fewer rows"}
    file, row_in_file = place
    return facts | {"file": {"path": file.path, "row": row_in_file, "bytes": file.bytes, "sha256": file.sha256}}


def _sentence_range(record: dict[str, Any] | None) -> str:
    if record is None:
        return "the document was excluded (`supmer trace` without the index says why)"
    return f"the document was cut into {record['sentences']}, and a filter may have dropped some"


def _origin(root: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Return the source and file of a row, with the spec, licence and hash that `acquire` recorded."""
    from storage.lockfile import read_pipeline
    from storage.sources.source import MANIFEST, read_manifest

    origin = {name: row.get(name) for name in ("source", "file", "row", "offset")}
    for folder in read_pipeline(root).outputs():
        if not (root / folder / MANIFEST).is_file():
            continue
        for source in read_manifest(root / folder):
            file = next((file for file in source.files if row["file"] in {file.name, file.path}), None)
            if source.name == row["source"] and file is not None:
                return origin | {
                    "spec": source.spec,
                    "licence": source.licence,
                    "path": file.path,
                    "bytes": file.bytes,
                    "sha256": file.sha256,
                }
    return origin


def _print(trace: dict[str, Any]) -> None:
    if "dataset" in trace:
        _print_labeled(trace)
        return
    label = f"{trace['document_id']}:{trace['sentence']}" if "sentence" in trace else trace["document_id"]
    click.echo(click.style(f"{'sentence' if 'sentence' in trace else 'document'} {label}", bold=True))
    for row in trace.get("sentences", []):
        chosen = row["index"] == trace["sentence"]
        text = f"{row['index']:>5}  {printable(row['text'])}"
        click.echo(f"{'>' if chosen else ' '} {text if chosen else click.style(text, dim=True)}")
        if chosen:
            click.echo(
                f"         characters {row['start']:,}–{row['end']:,} of the document, {counted(row['words'], 'word')}"
            )
    if clusters := trace.get("clusters"):
        listed = ", ".join(f"{name} {'dropped' if cluster is None else cluster}" for name, cluster in clusters.items())
        click.echo(f"  clusters  {listed}")
    if record := trace["document"]:
        facts = ", ".join(f"{record[name]:,} {name}" for name in ("words", "sentences", "bytes") if name in record)
        click.echo(f"  document  {trace['document_id']}, split {record['split']}, {facts}")
    for row in trace["excluded"]:
        _print_exclusion(row, copy=record is not None)
    for origin in trace["origins"]:
        _print_origin(origin)


def _print_labeled(trace: dict[str, Any]) -> None:
    click.echo(click.style(f"dataset {trace['dataset']}, row {trace['row']} of its training files", bold=True))
    click.echo(f"  source    {printable(trace['spec'])}, licence {trace['licence']}")
    file = trace["file"]
    if file is None:
        click.echo(f"  file      not found: {printable(trace['problem'])}")
        return
    click.echo(f"  file      {printable(file['path'])}, row {file['row']}")
    click.echo(f"            {size(file['bytes'])}, sha256 {file['sha256']}")


def _print_exclusion(row: dict[str, Any], *, copy: bool) -> None:
    what = f"a copy in {printable(row['file'])} row {row['row']} was excluded" if copy else "excluded"
    detail = f" ({printable(row['detail'])})" if row.get("detail") else ""
    of = f", duplicate of {row['duplicate_of']}" if row.get("duplicate_of") and not copy else ""
    click.echo(f"  {what}: {printable(row['reason'])}{detail}{of}")


def _print_origin(origin: dict[str, Any]) -> None:
    if "spec" not in origin:
        click.echo(f"  source    {printable(origin['source'])} (no record of it in {paths.SOURCES})")
    else:
        click.echo(
            f"  source    {printable(origin['source'])}: {printable(origin['spec'])}, licence {origin['licence']}"
        )
    place = f"row {origin['row']}" + (f", byte {origin['offset']:,}" if origin["offset"] is not None else "")
    click.echo(f"  file      {printable(origin.get('path') or origin['file'])}, {place}")
    if "sha256" in origin:
        click.echo(f"            {size(origin['bytes'])}, sha256 {origin['sha256']}")
