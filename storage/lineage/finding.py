"""Finding a document by its id, by its own `id` or URL in the corpus, or by its text."""

from collections.abc import Callable, Iterator
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


def locate(root: Path, connection: duckdb.DuckDBPyConnection, name: str, text_field: Callable[[str], str]) -> str:
    """Return the id of the only document that `name` names. Raise InputError if there is none, or several.

    `name` is a document id (at least 6 digits; a whole id may be of a document that is not in the corpus), the value of
    the document's own `id` or URL, its text, or a passage that only it has. `text_field` returns the field that holds
    the texts of a corpus.
    """
    plain = name.strip()
    if ID.fullmatch(plain.lower()) and ":" not in plain and len(plain) >= SHORTEST_PREFIX:
        try:
            return find_document(connection, plain)
        except InputError:
            if len(plain) == _WHOLE_ID:
                return plain.lower()
    exact = document_id(normalized(plain))
    found = {exact} if _is_listed(connection, exact) else _with_passage(connection, plain)
    found = found or set(_by_own_id(root, plain, text_field))
    if not found:
        raise InputError(f"{_short(plain)}: no document has this id, own id, URL or text: check it")
    if len(found) > 1:
        listed = ", ".join(sorted(found)[:CANDIDATES])
        raise InputError(f"{_short(plain)}: several documents have it: name them by id: {listed}")
    return found.pop()


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


def _by_own_id(root: Path, wanted: str, text_field: Callable[[str], str]) -> Iterator[str]:
    """Yield the documents whose own id or URL, in the files of the corpus, is `wanted`."""
    folder = root / paths.CORPUS
    for source in read_manifest(folder) if (folder / MANIFEST).is_file() else []:
        for file in source.files:
            if is_ignored(file.name) or file_kind(file.name).format in WHOLE:
                continue
            for record in reader_of(Part(root / file.path, file.name)):
                if any(str(record.values.get(column)) == wanted for column in _OWN_IDS):
                    yield document_id(normalized(str(record.values.get(text_field(source.name)) or "")))
