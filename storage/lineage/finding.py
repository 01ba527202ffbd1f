"""Finding a document by its id, by its own `id` or URL in the corpus, or by its text."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import duckdb

from storage import paths
from storage.errors import InputError
from storage.hashing import document_id
from storage.lineage.tracing import CANDIDATES, ID, SHORTEST_PREFIX, find_document
from storage.queries.views import view_columns
from storage.records.documents import normalized
from storage.records.formats import WHOLE, file_kind, is_ignored
from storage.records.parts import Part
from storage.records.reader import reader_of
from storage.sources.source import MANIFEST, read_manifest

_OWN_IDS = ("id", "url", "uri", "link")
_WHOLE_ID = 32


def locate(
    root: Path, connection: duckdb.DuckDBPyConnection, names: Sequence[str], text_field: Callable[[str], str]
) -> list[str]:
    """Return the id of the only document that each name names. Raise InputError if there is none, or several.

    A name is a document id (at least 6 digits; a whole id may be of a document that is not in the corpus), the value of
    the document's own `id` or URL, its text, or a passage that only it has. `text_field` returns the field that holds
    the texts of a corpus. The files of the corpus are read, once for all, only if a name is none of the others, or is a
    number, which may begin the id of one document and be the own id of another.
    """
    found = {name: _in_tables(connection, name) for name in dict.fromkeys(map(str.strip, names))}
    unsure = {name for name, documents in found.items() if not documents or _may_be_own_id(name)}
    owned = _by_own_id(root, unsure, text_field) if unsure else {}
    return list(dict.fromkeys(_only(name, documents | owned.get(name, set())) for name, documents in found.items()))


def _may_be_own_id(name: str) -> bool:
    return name.isdecimal() and len(name) < _WHOLE_ID


def _in_tables(connection: duckdb.DuckDBPyConnection, name: str) -> set[str]:
    """Return the documents that a name names by id, text or passage."""
    if ID.fullmatch(name.lower()) and ":" not in name and len(name) >= SHORTEST_PREFIX:
        try:
            return {find_document(connection, name)}
        except InputError:
            if len(name) == _WHOLE_ID:
                return {name.lower()}
    exact = document_id(normalized(name))
    return {exact} if _is_listed(connection, exact) else _with_passage(connection, name)


def _only(name: str, documents: set[str]) -> str:
    if not documents:
        raise InputError(f"{_short(name)}: no document has this id, own id, URL or text: check it")
    if len(documents) > 1:
        listed = ", ".join(sorted(documents)[:CANDIDATES])
        raise InputError(f"{_short(name)}: several documents have it: name them by id: {listed}")
    return next(iter(documents))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:60]}…"


def _is_listed(connection: duckdb.DuckDBPyConnection, document: str) -> bool:
    return any(
        connection.execute(f"SELECT 1 FROM {view} WHERE document_id = ? LIMIT 1", [document]).fetchone()
        for view in ("documents", "excluded")
        if view_columns(connection, view)
    )


def _with_passage(connection: duckdb.DuckDBPyConnection, passage: str) -> set[str]:
    """Return the documents of which a sentence, or the text that was left out, contains a passage of several words."""
    words = " ".join(passage.split())
    if " " not in words:
        return set()
    return {
        str(row[0])
        for view in ("sentences", "excluded")
        if view_columns(connection, view)
        for row in connection.execute(
            f"SELECT DISTINCT document_id FROM {view} WHERE contains(text, ?) LIMIT {CANDIDATES + 1}", [words]
        ).fetchall()
    }


def _by_own_id(root: Path, wanted: Collection[str], text_field: Callable[[str], str]) -> dict[str, set[str]]:
    """Return the documents whose own id or URL, in the files of the corpus, is one of `wanted`, by that value."""
    folder = root / paths.CORPUS
    found: dict[str, set[str]] = {}
    for source in read_manifest(folder) if (folder / MANIFEST).is_file() else []:
        field = text_field(source.name)
        for file in source.files:
            if is_ignored(file.name) or file_kind(file.name).format in WHOLE:
                continue
            for record in reader_of(Part(root / file.path, file.name)):
                for name in {str(record.values.get(column)) for column in _OWN_IDS} & set(wanted):
                    found.setdefault(name, set()).add(document_id(normalized(str(record.values.get(field) or ""))))
    return found
