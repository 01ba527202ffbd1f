"""Check that no table names a document on the list of forgotten ones."""

from collections.abc import Collection, Iterator

import duckdb

from storage import paths
from storage.checks.verification import Finding
from storage.checks.versions import Agreement
from storage.errors import InputError
from storage.lineage.tracing import names_one_of, refers_to
from storage.lockfile import Pipeline, file_md5
from storage.queries.views import connect, datasets, identifier, view_columns
from storage.records.forgotten import REASON, read_forgotten


def verify_forgotten(pipeline: Pipeline, stale: Collection[str] = ()) -> Iterator[Finding]:
    """Yield a finding for each table, made since the list was last changed, that names a forgotten document."""
    path = pipeline.root / paths.FORGOTTEN
    try:
        documents = list(read_forgotten(path))
    except InputError as error:
        yield Finding("changed", paths.FORGOTTEN, str(error).partition(": ")[2], "restore it from git")
        return
    read = {used.path: used.md5 for stage in pipeline.current() for used in stage.inputs}
    if not documents or read.get(paths.FORGOTTEN) != file_md5(path):  # `sample` has not run with this list yet
        return
    agreement = Agreement(pipeline, stale)
    with connect(pipeline.root) as connection:
        for dataset in datasets(pipeline.root):
            if dataset.shards and not agreement.obstacle([dataset.path, paths.DOCUMENTS]):
                rows = _rows_that_name(connection, dataset.name, documents)
                if rows:
                    detail = f"{rows:,} rows name documents that are forgotten"
                    yield Finding("invariant", dataset.path, detail, f"`supmer run --force {dataset.stage}`")


def _rows_that_name(connection: duckdb.DuckDBPyConnection, view: str, documents: Collection[str]) -> int:
    columns = {name: kind for name, kind in view_columns(connection, view).items() if refers_to(name)}
    if not columns:
        return 0
    tests = " OR ".join(names_one_of(name, kind) for name, kind in columns.items())
    noted = f"NOT (reason = '{REASON}' AND text IS NULL) AND " if view == "excluded" else ""
    row = connection.execute(
        f"SELECT count(*) FROM {identifier(view)} WHERE {noted}({tests})", {"ids": list(documents)}
    ).fetchone()
    return int(row[0]) if row else 0
