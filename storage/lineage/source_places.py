"""The places of documents in the files of the corpus."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from storage import paths
from storage.errors import InputError
from storage.hashing import document_id
from storage.queries.views import view_columns
from storage.records.documents import normalized, read_documents
from storage.records.parts import Part
from storage.sources.source import MANIFEST, read_manifest


@dataclass(frozen=True)
class Place:
    """A copy of a document in a file of the corpus; `fetched` if the file is a copy that `acquire` made."""

    document_id: str
    source: str
    path: str
    row: int
    fetched: bool


def source_places(root: Path, connection: duckdb.DuckDBPyConnection, documents: Collection[str]) -> list[Place]:
    """Return where the corpus holds the documents, copies included, as stage `sample` found them."""
    folder = root / paths.CORPUS
    sources = read_manifest(folder) if (folder / MANIFEST).is_file() else []
    files = {(source.name, file.name): file.path for source in sources for file in source.files}
    places = []
    for row in _rows(connection, documents):
        path = files.get((row["source"], row["file"]))
        if path is not None and (root / path).is_file():
            fetched = Path(path).is_relative_to(paths.CORPUS)
            places.append(Place(row["document_id"], row["source"], path, int(row["row"]), fetched))
    return places


def _rows(connection: duckdb.DuckDBPyConnection, documents: Collection[str]) -> Iterator[dict[str, Any]]:
    columns = ("document_id", "source", "file", "row")
    for view in ("documents", "excluded"):
        if view_columns(connection, view):
            chosen = ", ".join(f'"{name}"' for name in columns)
            query = f"SELECT {chosen} FROM {view} WHERE list_contains(?, document_id) ORDER BY ALL"
            for values in connection.execute(query, [list(documents)]).fetchall():
                yield dict(zip(columns, values, strict=True))


def text_at(root: Path, place: Place, text_field: Callable[[str], str]) -> str | None:
    """Return the text of the document at a place, or None if the file does not hold it any more."""
    try:
        texts = (normalized(document.text) for document in read_documents(_part(root, place), text_field(place.source)))
        return next((text for text in texts if document_id(text) == place.document_id), None)
    except InputError:
        return None


def _part(root: Path, place: Place) -> Part:
    return Part(root / place.path, Path(place.path).name)
