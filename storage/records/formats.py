"""The format and compression of files, by their names, and the names of files that are not data."""

from pathlib import Path
from typing import NamedTuple

from storage.errors import InputError

JSON_LINES, CSV, TSV, PARQUET, TEXT = "jsonl", "csv", "tsv", "parquet", "text"
MARKDOWN, HTML = "markdown", "html"
FORMATS = {
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
    ".json": JSON_LINES,
    ".csv": CSV,
    ".tsv": TSV,
    ".parquet": PARQUET,
    ".txt": TEXT,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".html": HTML,
    ".htm": HTML,
}
PAGES = (MARKDOWN, HTML)
WHOLE = (TEXT, *PAGES)  # in a corpus, each such file is one document
NAMES = (JSON_LINES, CSV, TSV, TEXT, PARQUET)
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
READABLE = (
    "JSON lines (.jsonl, .ndjson, .json), .csv, .tsv and .txt, in a corpus also .md and .html, each also as .gz or "
    ".zst, and .parquet"
)


class FileKind(NamedTuple):
    """The format and the compression of a file."""

    format: str
    compression: str | None


def file_kind(name: str, where: str = "") -> FileKind:
    """Return the format and compression of a file, by its name; `where` replaces the name in the error message."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes[-2:]]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    file_format = FORMATS.get(suffixes[-1]) if suffixes else None
    if file_format is None or (compression and file_format == PARQUET):
        raise InputError(
            f"{where or name}: unknown kind of file; what is read: {READABLE}: convert it, or leave it out with path="
        )
    return FileKind(file_format, compression)


def is_ignored(name: str) -> bool:
    """True if a file is not data (README, licence, hidden file)."""
    return name.rsplit("/", 1)[-1].startswith((".", "README", "LICENSE", "LICENCE"))
