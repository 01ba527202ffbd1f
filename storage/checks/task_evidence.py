"""Further tables that tasks are checked against: the positions of rows, the counts of tasks, the labeled sources.

Each becomes a table or view of the connection. If the data does not exist yet or cannot be read, the table is left
out, and the claims that need it are skipped.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa

from storage import paths
from storage.errors import InputError
from storage.queries.views import datasets, read_parquet, view_columns
from storage.records.labeled_sets import LabeledRow, label_names, numbered_labels, read_rows, training_files
from storage.sources.source import MANIFEST, AcquiredSource, read_manifest

EVIDENCE = {
    "placed_tasks": paths.TASKS,
    "promised_tasks": paths.MATERIALIZE_METRICS,
    "labeled_rows": paths.DATASETS,
}
"""The tables that this module adds, each with the output that it is made from."""

_BATCH_ROWS = 8_192
_ROWS = pa.schema([("name", pa.string()), ("id", pa.string()), ("texts", pa.list_(pa.string())), ("label", pa.int16())])


def add_evidence(root: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Add the tables `placed_tasks`, `promised_tasks` and `labeled_rows`, each if its data exists."""
    tasks = next((dataset for dataset in datasets(root) if dataset.path == paths.TASKS and dataset.shards), None)
    if tasks is None or not view_columns(connection, tasks.name):  # not made yet, or its first shard is damaged
        return
    scan = read_parquet(tasks, "filename = true, file_row_number = true")
    connection.execute(
        f"CREATE TEMP VIEW placed_tasks AS SELECT task_id, role, position, filename, file_row_number FROM {scan}"
    )
    if (root / paths.MATERIALIZE_METRICS).is_file():
        _add_counts(root / paths.MATERIALIZE_METRICS, connection)
    if (root / paths.DATASETS / MANIFEST).is_file():
        _add_labeled(root, connection)


def _add_counts(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    try:
        by_format = orjson.loads(path.read_bytes())["by_format"]
        rows = [(name, split, int(count)) for split, counts in by_format.items() for name, count in counts.items()]
    except (ValueError, KeyError, AttributeError, TypeError):
        return  # `supmer verify` reports a damaged file, whose hash differs
    connection.execute("CREATE TEMP TABLE promised_tasks (format VARCHAR, split VARCHAR, tasks BIGINT)")
    connection.executemany("INSERT INTO promised_tasks VALUES (?, ?, ?)", rows)


def _add_labeled(root: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Add the examples of every dataset that tasks were made from, as they are in its files."""
    used = connection.execute("SELECT DISTINCT kind FROM tasks WHERE format = 'labeled'").fetchall()
    names = {str(kind).partition("-")[2] for (kind,) in used}
    connection.execute("CREATE TEMP TABLE labeled_rows (name VARCHAR, id VARCHAR, texts VARCHAR[], label SMALLINT)")
    for source in read_manifest(root / paths.DATASETS):
        if source.name in names:
            try:
                for batch in _batches(root, source):
                    connection.register("batch", batch)
                    connection.execute("INSERT INTO labeled_rows FROM batch")
                    connection.unregister("batch")
            except (InputError, OSError):  # changed files are reported when their hashes are checked
                connection.execute("DELETE FROM labeled_rows WHERE name = ?", [source.name])


def _batches(root: Path, source: AcquiredSource) -> Iterator[pa.Table]:
    files = training_files(source)
    numbers = numbered_labels({row.label for row in read_rows(files, root)}, label_names(source, root), source.name)
    batch: list[LabeledRow] = []

    def table() -> pa.Table:
        return pa.table(
            [
                [source.name] * len(batch),
                [f"{source.name}:{row.row}" for row in batch],
                [list(row.texts) for row in batch],
                [numbers[row.label] for row in batch],
            ],
            schema=_ROWS,
        )

    for row in read_rows(files, root):
        batch.append(row)
        if len(batch) == _BATCH_ROWS:
            yield table()
            batch = []
    if batch:
        yield table()
