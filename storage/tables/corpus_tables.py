"""The tables of stage sample: documents, sentences, excluded documents, and the index for the selection."""

from collections.abc import Iterable

import pyarrow as pa

SENTENCES = pa.schema(
    [
        ("document_id", pa.string()),
        ("index", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("words", pa.int32()),
        ("text", pa.string()),
    ]
)
_PLACE = [
    ("document_id", pa.string()),
    ("source", pa.string()),
    ("file", pa.string()),
    ("row", pa.int64()),
    ("offset", pa.int64()),
]
KEPT_DOCUMENTS = pa.schema(
    [
        *_PLACE,
        ("bytes", pa.int64()),
        ("words", pa.int64()),
        ("sentences", pa.int32()),
    ]
)
"""Documents before some of them are put aside for validation."""

DOCUMENTS = pa.schema([*KEPT_DOCUMENTS, ("split", pa.string()), ("shard", pa.string())])
EXCLUDED = pa.schema(
    [
        *_PLACE,
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("duplicate_of", pa.string()),
        ("text", pa.string()),
    ]
)


def index_schema(bands: Iterable[str]) -> pa.Schema:
    """Return the schema of an index of documents; `bands` are the columns with the keys of the MinHash bands."""
    columns = [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("offset", pa.int64()),
        ("document_id", pa.string()),
        ("bytes", pa.int64()),
        ("words", pa.int64()),
        ("regular", pa.bool_()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
    return pa.schema(columns + [(band, pa.uint64()) for band in bands])
