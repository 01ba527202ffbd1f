"""Parquet shards: written atomically, with their schema and their provenance in the file itself."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.atomic import replacing_file
from storage.errors import InputError, first_line

PROVENANCE_KEY = b"supmer.provenance"
ROW_GROUP_ROWS = 65_536


def write_shard(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch | pa.Table],
    provenance: Mapping[str, Any],
    vectors: Sequence[str] = (),
) -> int:
    """Write one shard atomically and return its number of rows.

    `vectors` names columns of fixed-size lists of floats. Their numbers do not repeat, so a dictionary would only cost
    time (with float16, writing and reading would take six times as long). The bytes depend only on schema, batches and
    provenance; there are no dates or host names in them, so equal inputs give equal files.
    """
    rows = 0
    described = schema.with_metadata({PROVENANCE_KEY: orjson.dumps(dict(provenance), option=orjson.OPT_SORT_KEYS)})
    leaves = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in vectors}
    options: dict[str, Any] = {"compression": "zstd", "store_schema": True}
    if vectors:
        options |= {"use_dictionary": [name for name in schema.names if name not in vectors]}
        options |= {"column_encoding": leaves}
    with replacing_file(path) as beside, pq.ParquetWriter(beside, described, **options) as writer:
        for batch in batches:
            table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            rows += table.num_rows
            writer.write_table(table.cast(schema).replace_schema_metadata(described.metadata), ROW_GROUP_ROWS)
    return rows


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file. Raise InputError if it is damaged."""
    try:
        file = pq.ParquetFile(path)
        _ = file.schema_arrow.names  # made from the footer only now; damage there may be invalid types or names
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = first_line(error).rstrip(".")
        raise InputError(f"{path}: not a whole Parquet file ({reason}): replace or remove it") from error
    return file


def provenance(path: Path) -> dict[str, Any]:
    """Return the provenance that a shard was written with."""
    metadata = open_parquet(path).schema_arrow.metadata or {}
    record: dict[str, Any] = orjson.loads(metadata.get(PROVENANCE_KEY, b"{}"))
    return record


def count_rows(path: Path) -> int:
    """Return the number of rows of a shard, from its footer."""
    return int(open_parquet(path).metadata.num_rows)
