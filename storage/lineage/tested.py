"""Ids of tasks, tested examples and prompts: what the tables and the sources say about each."""

import re
from pathlib import Path
from typing import Any

import duckdb

from storage import paths
from storage.lineage.prompt_folders import learned_prompts, other_prompts
from storage.lineage.tracing import TASKS, all_rows
from storage.queries.views import identifier, view_columns
from storage.sources.source import MANIFEST, SourceFile, read_manifest

HASH = re.compile(r"[0-9a-f]{12,64}")
_TESTED = re.compile(r"(?:(?P<dataset>[a-z0-9][a-z0-9_-]*)/)?(?P<example>.+:\d+)")
_HASHES = {
    "prompt_hash": "the prompt that tuning started from",
    "tuned_hash": "a tuned prompt",
    "data_hash": "a dataset",
}
_MEASURED = ("scores", "curves", "predictions")


def find_task(connection: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, Any]]:
    """Return the examples of the task with this id, in order; none if there is no such task."""
    columns = view_columns(connection, TASKS)
    if "task_id" not in columns:
        return []
    shown = [name for name in ("example_id", "role", "kind", "split", "label", "sentence_ids") if name in columns]
    chosen = ", ".join(map(identifier, shown))
    return all_rows(
        connection, f"SELECT {chosen} FROM {TASKS} WHERE task_id = ? ORDER BY role DESC, example_id", [name]
    )


def find_tested(root: Path, connection: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, Any]]:
    """Return the tested examples with this id, `FILE:ROW` or `DATASET/FILE:ROW`; several datasets may have one.

    Each has its dataset, file, row, the label and texts if they are kept, and a count of predictions by method.
    """
    match = _TESTED.fullmatch(name)
    if match is None or "example_id" not in view_columns(connection, "predictions"):
        return []
    tested = []
    for dataset, example in dict.fromkeys([(match["dataset"], match["example"]), (None, name)]):
        rows = all_rows(
            connection,
            "SELECT tested_on AS dataset, example_id, any_value(label) AS label, any_value(data_hash) AS data_hash "
            "FROM predictions WHERE example_id = ? AND (? IS NULL OR tested_on = ?) GROUP BY ALL ORDER BY 1",
            [example, dataset, dataset],
        )
        tested += [_tested(root, connection, row) for row in rows]
    return tested


def _tested(root: Path, connection: duckdb.DuckDBPyConnection, row: dict[str, Any]) -> dict[str, Any]:
    file_name, _, place = row["example_id"].rpartition(":")
    file = _file(root, row["dataset"], file_name)
    found = row | {"row": int(place), "predictions": _predictions(connection, row)}
    found["file"] = {"path": file.path, "bytes": file.bytes, "sha256": file.sha256} if file else None
    if "texts" in view_columns(connection, "tested_examples"):
        query = "SELECT label_name, texts FROM tested_examples WHERE dataset = ? AND example_id = ?"
        found |= next(iter(all_rows(connection, query, [row["dataset"], row["example_id"]])), {})
    return found


def _file(root: Path, dataset: str, name: str) -> SourceFile | None:
    folder = root / paths.DATASETS
    sources = read_manifest(folder) if (folder / MANIFEST).is_file() else []
    return next(
        (file for source in sources if source.name == dataset for file in source.files if file.name == name), None
    )


def _predictions(connection: duckdb.DuckDBPyConnection, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the number of predictions of an example by method, and how many are right."""
    return all_rows(
        connection,
        "SELECT method, count(*) AS predictions, count(*) FILTER (predicted = label) AS right FROM predictions "
        "WHERE tested_on = ? AND example_id = ? GROUP BY 1 ORDER BY 1",
        [row["dataset"], row["example_id"]],
    )


def find_hash(root: Path, connection: duckdb.DuckDBPyConnection, beginning: str) -> list[dict[str, Any]]:
    """Return what has a hash with this beginning: prompts, and the hashes in tables of scores and predictions."""
    prefix = beginning.lower()
    if not HASH.fullmatch(prefix):
        return []
    found: list[dict[str, Any]] = [
        {"hash": folder.hash, "what": folder.kind, "folder": str(folder.path.relative_to(root))}
        for folder in (*learned_prompts(root), *other_prompts(root))
        if folder.hash and folder.hash.startswith(prefix)
    ]
    for view in _MEASURED:
        for column in _HASHES.keys() & view_columns(connection, view).keys():
            found += _measured(connection, view, column, prefix)
    return found


def _measured(connection: duckdb.DuckDBPyConnection, view: str, column: str, prefix: str) -> list[dict[str, Any]]:
    rows = all_rows(
        connection,
        f"SELECT {identifier(column)} AS hash, count(*) AS rows, list_sort(list(DISTINCT dataset || '/' || method)) "
        f"AS runs FROM {view} WHERE starts_with({identifier(column)}, ?) GROUP BY 1 ORDER BY 1",
        [prefix],
    )
    return [{"what": _HASHES[column], "view": view, "column": column, **row} for row in rows]
