"""A prompt that is shipped with its provenance: the folder of a prompt, the list of its documents, and hashes.

documents.parquet   every document that the prompt was learned from: id, source, file, row, split
SHA256SUMS          the SHA-256 of every other file, as `sha256sum --check` reads it
config.json         as of any prompt, with the key `shipped`: sources, parameters, scores, licence
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage import paths
from storage.atomic import write_bytes
from storage.errors import InputError, first_line
from storage.hashing import file_hash
from storage.prompts.prompt_artifact import CONFIG, read_prompt

DOCUMENTS, HASHES = "documents.parquet", "SHA256SUMS"
SHIPPED = "shipped"  # the key of config.json
SCHEMA = pa.schema(
    [
        ("document_id", pa.string()),
        ("source", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("split", pa.string()),
    ]
)


def write_documents(folder: Path, documents: pa.Table) -> None:
    """Write the list of documents; ids are random, so all other columns together take little room."""
    encoded = {"use_dictionary": ["source", "file", "split"], "column_encoding": {"row": "DELTA_BINARY_PACKED"}}
    sink = pa.BufferOutputStream()
    pq.write_table(documents.cast(SCHEMA), sink, compression="zstd", compression_level=19, **encoded)
    write_bytes(folder / DOCUMENTS, sink.getvalue().to_pybytes())


def write_hashes(folder: Path) -> None:
    """Write the hashes of all files of a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.name != HASHES)
    write_bytes(folder / HASHES, "".join(f"{file_hash(folder / name)}  {name}\n" for name in names).encode())


def shipped_folders(root: Path) -> list[Path]:
    """Return the shipped prompts below `prompts/` of a workspace; a person may keep other prompts there."""
    folder = root / paths.SHIPPED_PROMPTS
    there = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in there if any((path / name).is_file() for name in (HASHES, DOCUMENTS)))


def shipped_folder(root: Path, name: str, where: str) -> Path:
    """Return the folder of a shipped prompt by name. Raise InputError, beginning with `where`, if there is none."""
    folder = root / paths.SHIPPED_PROMPTS / name
    if not (folder / CONFIG).is_file():
        there = ", ".join(sorted(path.parent.name for path in folder.parent.glob(f"*/{CONFIG}")))
        listed = f"there are {there}" if there else "`supmer ship` makes one"
        raise InputError(f"{where}: no prompt in {paths.SHIPPED_PROMPTS}/{name}: {listed}")
    return folder


def read_documents(folder: Path) -> pa.Table:
    """Return the list of documents. Raise InputError if it cannot be read."""
    try:
        return pq.read_table(folder / DOCUMENTS, schema=SCHEMA)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{folder / DOCUMENTS}: cannot be read ({first_line(error)})") from error


def shipped_from(root: Path, document: str) -> dict[str, str]:
    """Return the shipped prompts of a workspace that were learned from a document, each with the document's split."""
    splits = {}
    for folder in shipped_folders(root):
        if not (folder / DOCUMENTS).is_file():
            continue
        rows = pq.read_table(folder / DOCUMENTS, columns=["split"], filters=[("document_id", "=", document)])
        if rows.num_rows:
            splits[str(folder.relative_to(root))] = str(rows["split"][0])
    return splits


def shipping_record(folder: Path) -> dict[str, Any] | None:
    """Return what config.json says about the shipping; None if the folder is no shipped prompt."""
    if not (folder / HASHES).is_file():
        return None
    record = read_prompt(folder).about.get(SHIPPED)
    return record if isinstance(record, dict) else None


def problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that is wrong, and what is wrong with it."""
    if not (folder / HASHES).is_file():
        yield HASHES, "is missing"
        return
    hashes = dict(_parsed((folder / HASHES).read_text("utf-8", errors="replace")))
    there = {path.name for path in folder.iterdir()} - {HASHES}
    for name in sorted(hashes.keys() | there):
        if name not in there:
            yield name, "is missing"
        elif name not in hashes:
            yield name, f"is not listed in {HASHES}"
        elif (found := file_hash(folder / name)) != hashes[name]:
            yield name, f"SHA-256 {found[:16]}, {HASHES} has {hashes[name][:16]}"
    yield from _content_problems(folder)


def _parsed(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        yield name, digest


def _content_problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what is wrong in files whose hashes may be right: numbers, description, list of documents."""
    try:
        record, documents = shipping_record(folder), read_documents(folder)
    except InputError as error:
        yield CONFIG, str(error)
        return
    if record is None:
        yield CONFIG, f"has no entry {SHIPPED}"
        return
    ids = documents["document_id"]
    if len(ids) != record.get("documents"):
        yield DOCUMENTS, f"has {len(ids):,} documents, {CONFIG} says {record.get('documents')}"
    if len(ids.unique()) != len(ids):
        yield DOCUMENTS, "names a document twice"
    known = {source["name"] for source in record.get("sources", []) if source.get("role") == "corpus"}
    for name in sorted({*documents["source"].unique().to_pylist()} - known):
        yield DOCUMENTS, f"names the source {name}, which {CONFIG} does not describe"
