"""What must hold between the datasets, as queries that find where it does not; later stages add theirs here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import duckdb

from storage.checks.task_invariants import CLAIMS, TaskClaim

SHOWN = 3

Check = Callable[[duckdb.DuckDBPyConnection], Iterator[str]]
"""Yields one line for each kind of violation found: what, how many, the first few ids."""


@dataclass(frozen=True)
class Invariant:
    """A check, the views it reads, and the stage that made what it is about; skipped while a view is not there."""

    views: tuple[str, ...]
    check: Check
    stage: str


class Violation(NamedTuple):
    """An invariant that does not hold, in one line, and the stage to run again."""

    line: str
    stage: str


def violations(connection: duckdb.DuckDBPyConnection, offenders: str, what: str) -> Iterator[str]:
    """One line if the query `offenders`, whose first column is an id, finds any row."""
    row = connection.execute(
        f"SELECT count(*), min(id, {SHOWN}) FROM (SELECT COLUMNS(*)::VARCHAR AS id FROM ({offenders}))"
    ).fetchone()
    count, first = row or (0, [])
    if count:
        yield f"{count} {what}: {', '.join(first)}{', …' if count > SHOWN else ''}"


def document_ids_are_unique(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Two kept documents never share an id."""
    yield from violations(
        connection,
        "SELECT document_id FROM documents GROUP BY ALL HAVING count(*) > 1",
        "document ids stand more than once in documents",
    )


def sentences_have_documents(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Every sentence's document is kept."""
    yield from violations(
        connection,
        "SELECT DISTINCT document_id FROM sentences ANTI JOIN documents USING (document_id)",
        "documents have sentences but are not in documents",
    )


def sentence_ids_are_unique(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """A document has one sentence at an index."""
    yield from violations(
        connection,
        "SELECT document_id || ':' || index FROM sentences GROUP BY document_id, index HAVING count(*) > 1",
        "sentence ids stand more than once in sentences",
    )


def spans_lie_within_documents(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """A span begins before it ends and ends in the document; a document has at most as many characters as bytes."""
    yield from violations(
        connection,
        "SELECT DISTINCT s.document_id || ':' || s.index FROM sentences s JOIN documents d USING (document_id) "
        'WHERE s.start < 0 OR s."end" <= s.start OR s."end" > d.bytes',
        "sentences have a span outside their document",
    )


def _checked(claim: TaskClaim) -> Invariant:
    """A claim about tasks as an invariant."""
    return Invariant(
        claim.views, lambda connection: violations(connection, claim.offenders, claim.broken), "materialize"
    )


INVARIANTS: list[Invariant] = [
    Invariant(("documents",), document_ids_are_unique, "sample"),
    Invariant(("documents", "sentences"), sentences_have_documents, "sample"),
    Invariant(("sentences",), sentence_ids_are_unique, "sample"),
    Invariant(("documents", "sentences"), spans_lie_within_documents, "sample"),
    *map(_checked, CLAIMS),
]


def broken_invariants(
    connection: duckdb.DuckDBPyConnection, invariants: list[Invariant] | None = None
) -> Iterator[Violation]:
    """Each violation of the invariants whose views are there."""
    listed = "SELECT view_name FROM duckdb_views() UNION SELECT table_name FROM duckdb_tables()"
    there = {str(row[0]) for row in connection.execute(listed).fetchall()}
    for invariant in INVARIANTS if invariants is None else invariants:
        if there.issuperset(invariant.views):
            yield from (Violation(line, invariant.stage) for line in invariant.check(connection))
