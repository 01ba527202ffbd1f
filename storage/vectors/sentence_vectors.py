"""Sentence vectors: Parquet shards of fixed-size lists that record their model, read in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage import paths
from storage.errors import InputError
from storage.hashing import file_hash, json_hash
from storage.parquet import open_parquet, provenance, write_shard
from storage.sources.source import AcquiredSource

Vectors = npt.NDArray[np.float32]
"""[rows, dimension]."""

BATCH_ROWS = 4_096
_GROUP_ROWS = 8_192  # rows of a row group, the least that a reader must hold in memory
_TYPES = {"float16": pa.float16(), "float32": pa.float32()}


@dataclass(frozen=True)
class Made:
    """The model that made a shard of vectors; it is the same for all shards of a dataset."""

    model: str
    model_hash: str
    dimension: int
    dtype: str


def model_hash(source: AcquiredSource) -> str:
    """Return the hash of the names and content hashes of a model's files; it does not depend on the model's folder."""
    return json_hash(sorted([file.name, file.sha256] for file in source.files))


def vector_type(dimension: int, dtype: str = "float32") -> pa.DataType:
    """Return the Arrow type of a vector."""
    return pa.list_(_TYPES[dtype], dimension)


def vector_array(vectors: npt.NDArray[Any], dtype: str = "float32") -> pa.Array:
    """Return an array [rows, dimension] as an Arrow column."""
    flat = pa.array(np.ascontiguousarray(vectors, dtype=dtype).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=vector_type(vectors.shape[1], dtype))


def vector_matrix(column: pa.Array) -> Vectors:
    """Return an Arrow column of vectors as a float32 array [rows, dimension]."""
    flat = column.flatten().to_numpy(zero_copy_only=False)
    matrix: Vectors = flat.reshape(len(column), column.type.list_size).astype(np.float32, copy=False)
    return matrix


def embeddings_schema(dimension: int, dtype: str = "float32") -> pa.Schema:
    """Return the schema of the table of stage embed, which has a vector for each sentence."""
    return pa.schema(
        [("document_id", pa.string()), ("index", pa.int32()), ("embedding", vector_type(dimension, dtype))]
    )


def write_vectors(path: Path, ids: pa.Table, vectors: npt.NDArray[Any], made: Made) -> int:
    """Write the vectors of the sentences in `ids` (document_id, index), in their order; return their number."""
    schema = embeddings_schema(made.dimension, made.dtype)

    def groups() -> Iterator[pa.Table]:
        for start in range(0, ids.num_rows, _GROUP_ROWS):
            part = ids.slice(start, _GROUP_ROWS)
            column = vector_array(vectors[start : start + _GROUP_ROWS], made.dtype)
            yield pa.table([part["document_id"], part["index"], column], schema=schema)

    said = {"stage": "embed", "model": made.model, "model_hash": made.model_hash}
    said_of_numbers = {"dimension": made.dimension, "dtype": made.dtype}
    return write_shard(path, schema, groups(), said | said_of_numbers, vectors=["embedding"])


def read_vectors(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[int, pa.RecordBatch, Vectors]]:
    """Yield batches: the number of the first row, the record batch with the requested columns, and the vectors."""
    first = 0
    wanted = [*columns, "embedding"]
    for batch in open_parquet(path).iter_batches(BATCH_ROWS, columns=wanted, use_threads=False):
        yield first, batch, vector_matrix(batch.column("embedding"))
        first += batch.num_rows


def bad_rows(vectors: Vectors) -> npt.NDArray[np.int64]:
    """Return the rows whose vector is zero or not finite: it has no direction, and k-means cannot use it."""
    norms = np.einsum("nd,nd->n", vectors, vectors)
    return np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))


def spoiled(vector: npt.NDArray[np.floating]) -> str:
    """Return a description of what is wrong with a bad row."""
    return "NaN or infinity" if not np.isfinite(vector).all() else "zeros" if not vector.any() else "absurd numbers"


def refuse_bad_vectors(vectors: Vectors, place: str, first: int) -> None:
    """Raise InputError, with the number of the row, if a vector is zero or not finite."""
    bad = bad_rows(vectors)
    if bad.size:
        row = int(bad[0])
        what = "is zero" if not vectors[row].any() else "holds NaN or infinity, or absurdly large numbers"
        raise InputError(f"{place}: row {first + row + 1}: the vector {what}: run `supmer run --force embed`")


def made_by(shards: Iterable[Path]) -> Made:
    """Return the model that made the vectors of a dataset. Raise InputError if its shards have different models."""
    first: tuple[Path, Made] | None = None
    for path in shards:
        said = provenance(path)
        try:
            made = Made(said["model"], said["model_hash"], said["dimension"], said["dtype"])
        except KeyError:
            message = "does not say which model made its vectors: run `supmer run --force embed`"
            raise InputError(f"{path}: {message}") from None
        if first is None:
            first = (path, made)
        elif made != first[1]:
            raise InputError(f"{path}: not made in the same way as {first[0].name}: run `supmer run --force embed`")
    if first is None:
        raise InputError(f"{paths.EMBEDDINGS}: no shard there: run `supmer run embed`")
    return first[1]


def file_hashes(shards: Sequence[Path]) -> list[str]:
    """Return the content hashes of files, which are read in parallel."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(file_hash, shards))
