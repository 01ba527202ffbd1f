"""The copies of documents: versions in DVC's cache that name them or hold their text, and what was made from these."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from storage import paths
from storage.errors import InputError
from storage.hashing import document_id
from storage.lineage.known_runs import KnownRun, made_from
from storage.lineage.tracing import names_one_of, refers_to
from storage.lockfile import DIRECTORY_SUFFIX, cache_folder, directory_object, object_path, read_pipeline
from storage.records.documents import normalized, read_documents
from storage.records.forgotten import REASON
from storage.records.formats import is_ignored
from storage.records.parts import Part
from storage.sources.source import MANIFEST

_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Copies:
    """Versions of outputs that hold documents, as md5.

    Attributes:
        versions: directories and files, whether or not the cache still has them.
        objects: the objects in DVC's cache that only these versions use.
    """

    versions: frozenset[str]
    objects: frozenset[str]


def find_copies(
    root: Path, documents: Collection[str], runs: Iterable[KnownRun], text_field: Callable[[str], str]
) -> Copies:
    """Return the versions, apart from the current outputs, that hold the documents or were made from them.

    Tables are searched for the ids of the documents, earlier versions of the corpus for their texts. `text_field`
    returns the field that holds the texts of a corpus.
    """
    cache, listed = cache_folder(root), list(runs)
    current = set(_current_objects(root, cache))
    directories = {md5: files for md5 in _directories(cache) if (files := _files(cache, md5)) is not None}
    naming = _tables_that_name(cache, documents, current)
    named = {md5 for md5, files in directories.items() if not naming.isdisjoint(files.values())}
    corpora = {md5 for run in listed for path, md5 in run.outputs.items() if path == paths.CORPUS} - current
    sources = {md5: _files_that_hold(cache, directories.get(md5, {}), documents, text_field) for md5 in corpora}
    versions = made_from(naming | named, listed) | {md5 for md5, files in sources.items() if files}
    versions -= current
    kept = current | {file for md5, files in directories.items() if md5 not in versions for file in files.values()}
    objects = versions | {file for md5 in versions for file in directories.get(md5, {}).values()}
    return Copies(frozenset(versions), frozenset(md5 for md5 in objects - kept if object_path(cache, md5).is_file()))


def _current_objects(root: Path, cache: Path) -> Iterator[str]:
    for stage in read_pipeline(root).current():
        for output in stage.outputs:
            if output.md5 is not None:
                yield output.md5
                yield from (_files(cache, output.md5) or {}).values()


def _directories(cache: Path) -> Iterator[str]:
    return (path.parent.name + path.name for path in sorted(cache.glob(f"??/*{DIRECTORY_SUFFIX}")))


def _files(cache: Path, md5: str) -> dict[str, str] | None:
    try:
        return directory_object(cache, md5) if md5.endswith(DIRECTORY_SUFFIX) else None
    except (ValueError, KeyError, TypeError):  # damaged: nothing can be restored from it
        return None


def _tables_that_name(cache: Path, documents: Collection[str], current: Collection[str]) -> set[str]:
    """Return the Parquet objects, apart from the current ones, of which a row names one of the documents."""
    naming = set()
    with duckdb.connect(":memory:") as connection:
        for path in sorted(cache.glob("??/*")):
            md5 = path.parent.name + path.name
            if md5 not in current and _is_parquet(path) and _names(connection, path, documents):
                naming.add(md5)
    return naming


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


def _names(connection: duckdb.DuckDBPyConnection, path: Path, documents: Collection[str]) -> bool:
    try:
        columns = connection.execute("DESCRIBE SELECT * FROM read_parquet([$path])", {"path": str(path)}).fetchall()
        tests = [names_one_of(str(name), str(kind)) for name, kind, *_ in columns if refers_to(str(name))]
        if not tests:
            return False
        listed_only = {"reason", "text"} <= {name for name, *_ in columns}
        counted = f"NOT (reason = '{REASON}' AND text IS NULL) AND " if listed_only else ""
        query = f"SELECT 1 FROM read_parquet([$path]) WHERE {counted}({' OR '.join(tests)}) LIMIT 1"
        return connection.execute(query, {"path": str(path), "ids": list(documents)}).fetchone() is not None
    except duckdb.Error:  # damaged: it holds nothing that can be read
        return False


def _files_that_hold(
    cache: Path, files: dict[str, str], documents: Collection[str], text_field: Callable[[str], str]
) -> set[str]:
    """Return the files of a version of the corpus that hold one of the documents."""
    holding = set()
    for name, md5 in files.items():
        path = object_path(cache, md5)
        if name != MANIFEST and path.is_file() and not is_ignored(name) and _holds(path, name, documents, text_field):
            holding.add(md5)
    return holding


def _holds(path: Path, name: str, documents: Collection[str], text_field: Callable[[str], str]) -> bool:
    try:
        return any(
            document_id(normalized(document.text)) in documents
            for document in read_documents(Part(path, name), text_field(name.partition("/")[0]))
        )
    except InputError:  # of another form, or with another text field: no documents of it were read
        return False
