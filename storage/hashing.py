"""Content hashes: SHA-256 of files, of texts and of JSON values."""

import hashlib
from pathlib import Path
from typing import Any

import orjson

DOCUMENT_ID_LENGTH = 32  # hex digits: with 128 bits, billions of documents do not collide


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_hash(value: Any) -> str:
    """Return the SHA-256 of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def document_id(text: str) -> str:
    """Return the stable id of a document: the first digits of the SHA-256 of its text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DOCUMENT_ID_LENGTH]
