"""Invariants that hold between the datasets, as queries that find violations; new stages add theirs here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb

from storage.checks.task_evidence import EVIDENCE
from storage.checks.task_invariants import CLAIMS, TaskClaim
from storage.checks.versions import Agreement
from storage.queries.views import datasets

SHOWN = 3

Check = Callable[[duckdb.DuckDBPyConnection], Iterator[str]]
"""Yields one line for each kind of violation found: what, how many, the first few ids."""


@dataclass(frozen=True)
class Invariant:
    """A check, the views it reads, and the stage that made the data; it is skipped if one of the views is missing."""

    views: tuple[str, ...]
    check: Check
    stage: str


class Violation(NamedTuple):
    """A violated invariant, described in one line, and the stage to run again."""

    line: str
    stage: str


def violations(connection: duckdb.DuckDBPyConnection, offenders: str, what: str) -> Iterator[str]:
    """Yield one line if the query `offenders`, whose first column is an id, returns any row."""
    row = connection.execute(
        f"SELECT count(*), min(id, {SHOWN}) FROM (SELECT COLUMNS(*)::VARCHAR AS id FROM ({offenders}))"
    ).fetchone()
    count, first = row or (0, [])
    if count:
        yield f"{count} {what}: {', '.join(first)}{', …' if count > SHOWN else ''}"


def document_ids_are_unique(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Check that no two kept documents share an id."""
    yield from violations(
        connection,
        "SELECT document_id FROM documents GROUP BY ALL HAVING count(*) > 1",
        "document ids occur more than once in documents",
    )


def sentences_have_documents(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Check that the document of every sentence is kept."""
    yield from violations(
        connection,
        "SELECT DISTINCT document_id FROM sentences ANTI JOIN documents USING (document_id)",
        "documents have sentences but are not in documents",
    )


def sentence_ids_are_unique(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Check that a document has only one sentence at each index."""
    yield from violations(
        connection,
        "SELECT document_id || ':' || index FROM sentences GROUP BY document_id, index HAVING count(*) > 1",
        "sentence ids occur more than once in sentences",
    )


def spans_lie_within_documents(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Check that each span is not empty and lies within its document.

    The end is compared with the document's bytes: a document has at most as many characters as bytes.
    """
    yield from violations(
        connection,
        "SELECT DISTINCT s.document_id || ':' || s.index FROM sentences s JOIN documents d USING (document_id) "
        'WHERE s.start < 0 OR s."end" <= s.start OR s."end" > d.bytes',
        "sentences have a span outside their document",
    )


def _checked(claim: TaskClaim) -> Invariant:
    """Return a claim about tasks as an invariant."""
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


def comparable(root: Path, agreement: Agreement) -> tuple[list[Invariant], dict[str, set[str]]]:
    """Return the invariants whose tables belong together, and the tables of the others by what is in the way."""
    places = {dataset.name: dataset.path for dataset in datasets(root) if dataset.shards} | EVIDENCE
    fit: list[Invariant] = []
    hindered: dict[str, set[str]] = {}
    for invariant in INVARIANTS:
        if not all(view in places for view in invariant.views):
            continue
        if obstacle := agreement.obstacle([places[view] for view in invariant.views]):
            hindered.setdefault(obstacle, set()).update(set(invariant.views) - EVIDENCE.keys())
        else:
            fit.append(invariant)
    return fit, hindered


def broken_invariants(
    connection: duckdb.DuckDBPyConnection, invariants: list[Invariant] | None = None
) -> Iterator[Violation]:
    """Yield the violations of the invariants whose views all exist."""
    listed = "SELECT view_name FROM duckdb_views() UNION SELECT table_name FROM duckdb_tables()"
    there = {str(row[0]) for row in connection.execute(listed).fetchall()}
    for invariant in INVARIANTS if invariants is None else invariants:
        if there.issuperset(invariant.views):
            yield from (Violation(line, invariant.stage) for line in invariant.check(connection))
