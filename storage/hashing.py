"""The one content hash: SHA-256, of files, of text and of JSON values."""

import hashlib
from pathlib import Path
from typing import Any

import orjson

DOCUMENT_ID_LENGTH = 32  # hex digits: 128 bits keep collisions out of reach at billions of documents


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_hash(value: Any) -> str:
    """SHA-256 of a JSON value, the same whatever the order of its keys."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def document_id(text: str) -> str:
    """The stable id of a document: the head of the SHA-256 of its text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DOCUMENT_ID_LENGTH]
