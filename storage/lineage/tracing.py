"""Tracing of rows: from an id to its text, document and file, and from a document to every row made from it."""

import re
from dataclasses import dataclass
from typing import Any

import duckdb

from storage.errors import InputError
from storage.queries.views import identifier, view_columns

SHORTEST_PREFIX = 6
CANDIDATES = 10
FIRST_IDS = 5
SPAN_COLUMNS = 'document_id, index, start, "end", words, text'
TASKS = "tasks"  # the view over data/tasks
ASSIGNMENTS = "assignments"  # the view over data/clusters/assignments
FACTS = {"VARCHAR", "SMALLINT", "INTEGER", "BIGINT", "INTEGER[]"}  # column types with short values
ID = re.compile(r"([0-9a-f]+)(?::(\d+))?")
EXAMPLE = re.compile(r"(?P<task>[a-z]+-(?:train|validation)-\d+)(?P<place>/.*)?")


@dataclass(frozen=True)
class Use:
    """The rows of a view that come from a document."""

    view: str
    columns: tuple[str, ...]
    rows: int
    first: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """A training example: the ids of its sentences, and the other values of its row (kind, label, clusters, …)."""

    sentence_ids: tuple[str, ...]
    facts: dict[str, Any]


def find_document(connection: duckdb.DuckDBPyConnection, beginning: str) -> str:
    """Return the full id of the only document, kept or excluded, whose id starts with `beginning`."""
    prefix = beginning.lower()
    if not ID.fullmatch(prefix) or ":" in prefix or len(prefix) < SHORTEST_PREFIX:
        raise InputError(f"{beginning}: not a document id: at least {SHORTEST_PREFIX} hex digits are needed")
    views = [view for view in ("documents", "excluded") if view_columns(connection, view)]
    if not views:
        raise InputError("no documents yet: `supmer run sample` makes them")
    union = " UNION ".join(f"SELECT document_id FROM {view} WHERE starts_with(document_id, $prefix)" for view in views)
    ids = [
        str(row[0])
        for row in connection.execute(
            f"{union} ORDER BY document_id LIMIT {CANDIDATES + 1}", {"prefix": prefix}
        ).fetchall()
    ]
    if not ids:
        raise InputError(f"{beginning}: no such document, neither kept nor excluded")
    if len(ids) > 1:
        more = ", …" if len(ids) > CANDIDATES else ""
        raise InputError(
            f"{beginning}: several ids begin with it, give more digits: {', '.join(ids[:CANDIDATES])}{more}"
        )
    return ids[0]


def find_example(connection: duckdb.DuckDBPyConnection, views: list[str], example: str) -> dict[str, Example]:
    """Return the rows whose `example_id` is `example`, by view."""
    examples: dict[str, Example] = {}
    for view in views:
        columns = view_columns(connection, view)
        naming = [name for name in columns if refers_to(name) == "sentence"]
        if columns.get("example_id") != "VARCHAR" or not naming:
            continue
        facts = [name for name, kind in columns.items() if name not in {"example_id", *naming} and kind in FACTS]
        chosen = ", ".join(identifier(name) for name in (*naming, *facts))
        row = _one(connection, f"SELECT {chosen} FROM {identifier(view)} WHERE example_id = ?", [example])
        if row is None:
            continue
        cells = [row[name] for name in naming]
        ids = [sentence for cell in cells for sentence in (cell if isinstance(cell, list) else [cell]) if sentence]
        known = {name: row[name] for name in facts if row[name] is not None}
        examples[view] = Example(tuple(dict.fromkeys(ids)), known)
    return examples


def refuse_unknown_example(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Raise InputError if `name`, which is not the id of an example, has the form of a task or example id."""
    match = EXAMPLE.fullmatch(name)
    if match is None:
        return
    if not view_columns(connection, "tasks"):
        raise InputError(f"{name}: no tasks yet: `supmer run materialize` makes them")
    query = "SELECT max(example_id) AS example, count(*) AS n FROM tasks WHERE task_id = ?"  # "s" sorts after "q"
    task = _one(connection, query, [match["task"]])
    if task and task["n"]:
        what = f"no such example in the task of {task['n']}" if match["place"] else f"a task of {task['n']} examples"
        raise InputError(f"{name}: {what}: name one, such as {match['task']}/s00 or {task['example']}")
    raise InputError(f"{name}: no such task: `supmer show tasks` prints some with their ids")


def clusters_of(connection: duckdb.DuckDBPyConnection, document: str, index: int) -> dict[str, int | None]:
    """Return the cluster of a sentence in the clustering of each format; None if the cluster was dropped."""
    columns = view_columns(connection, ASSIGNMENTS)
    formats = [name for name, kind in columns.items() if kind == "INTEGER" and name != "index"]
    if not formats or not {"document_id", "index"} <= columns.keys():
        return {}
    chosen = ", ".join(map(identifier, formats))
    query = f"SELECT {chosen} FROM {ASSIGNMENTS} WHERE document_id = ? AND index = ?"
    return _one(connection, query, [document, index]) or {}


def document_record(connection: duckdb.DuckDBPyConnection, document: str) -> dict[str, Any] | None:
    """Return the row of a kept document, or None if there is none."""
    if not view_columns(connection, "documents"):
        return None
    return _one(connection, "SELECT * FROM documents WHERE document_id = ?", [document])


def exclusions(connection: duckdb.DuckDBPyConnection, document: str) -> list[dict[str, Any]]:
    """Return the rows of `excluded` with this id: a rejected document, or copies of a kept one."""
    columns = view_columns(connection, "excluded")
    if not columns:
        return []
    kept = ", ".join(identifier(name) for name in columns if name != "text")
    head = ', left("text", 200) AS text' if "text" in columns else ""
    return all_rows(connection, f"SELECT {kept}{head} FROM excluded WHERE document_id = ?", [document])


def sentences_around(connection: duckdb.DuckDBPyConnection, document: str, index: int) -> list[dict[str, Any]]:
    """Return a sentence and the kept sentences before and after it in the document, in order."""
    if not view_columns(connection, "sentences"):
        return []
    return all_rows(
        connection,
        f"WITH own AS (SELECT {SPAN_COLUMNS} FROM sentences WHERE document_id = $document) "
        "FROM own WHERE index IN ($index, (SELECT max(index) FROM own WHERE index < $index), "
        "(SELECT min(index) FROM own WHERE index > $index)) ORDER BY index",
        {"document": document, "index": index},
    )


def uses(connection: duckdb.DuckDBPyConnection, view: str, document: str) -> Use | None:
    """Return the rows of a view that name a document or one of its sentences; None if the view has no such column."""
    columns = view_columns(connection, view)
    naming = {name: kind for name, kind in columns.items() if refers_to(name) and kind in {"VARCHAR", "VARCHAR[]"}}
    if not naming:
        return None
    tests = " OR ".join(names_document(name, kind) for name, kind in naming.items())
    shown = _row_id(columns, next(iter(naming)))
    values = {"document": document, "first": f"{document}:", "after": f"{document};"}
    used = {name: value for name, value in values.items() if f"${name}" in tests}
    row = connection.execute(
        f"SELECT count(*), list(shown ORDER BY position)[:{FIRST_IDS}] FROM "
        f"(SELECT {shown} AS shown, row_number() OVER () AS position FROM {identifier(view)} WHERE {tests})",
        used,
    ).fetchone()
    count, first = row or (0, None)
    return Use(view, tuple(naming), int(count), tuple(str(example) for example in first or ()))


def refers_to(column: str) -> str | None:
    """Return "sentence" or "document" if the column's name says that it holds such ids, else None."""
    match = re.fullmatch(r"(?:.*_)?(sentence|document)_ids?", column)
    return match.group(1) if match else "document" if column == "duplicate_of" else None


def names_document(column: str, kind: str) -> str:
    """Return the SQL condition that a column names a document, or a sentence of it; it binds $document or $first."""
    name = identifier(column)
    if refers_to(column) == "document":
        return f"list_contains({name}, $document)" if kind.endswith("[]") else f"{name} = $document"
    if kind.endswith("[]"):
        return f"len(list_filter({name}, lambda one: starts_with(one, $first))) > 0"
    # ';' follows ':' in ASCII. With a range, unlike a prefix test, Parquet's statistics allow to skip row groups.
    return f"({name} >= $first AND {name} < $after)"


def names_one_of(column: str, kind: str) -> str:
    """Return the SQL condition that a column names one of the documents $ids, or a sentence of one."""
    name = identifier(column)
    if kind.endswith("[]"):
        return f"list_has_any(list_transform({name}, lambda one: split_part(one, ':', 1)), $ids)"
    return f"list_contains($ids, split_part({name}, ':', 1))"


def _row_id(columns: dict[str, str], naming: str) -> str:
    """Return the SQL expression that identifies a row: its own id, else the sentence's id, else the column `naming`."""
    for name in ("example_id", "id", "sentence_id"):
        if name in columns:
            return f"{identifier(name)}::VARCHAR"
    if "document_id" in columns and "index" in columns:
        return "document_id || ':' || \"index\""
    return f"{identifier(naming)}::VARCHAR"


def all_rows(
    connection: duckdb.DuckDBPyConnection, query: str, values: list[Any] | dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of a query as dictionaries."""
    cursor = connection.execute(query, values)
    names = [str(column[0]) for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _one(
    connection: duckdb.DuckDBPyConnection, query: str, values: list[Any] | dict[str, Any]
) -> dict[str, Any] | None:
    return next(iter(all_rows(connection, query, values)), None)
