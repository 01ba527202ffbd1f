"""k-means for each format: training vectors are drawn by a hash of their sentences and clustered on one core."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.parquet import write_shard
from storage.tables.cluster_tables import drawn_schema
from storage.task_formats import FORMATS
from storage.vectors.sentence_vectors import Vectors, read_vectors, refuse_bad_vectors, vector_array
from tasks.stage.contract import Record

DRAWN = "drawn.parquet"
CENTROIDS = "centroids.npy"

Keys = npt.NDArray[np.uint64]
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # the constants of splitmix64, a mixer in which every bit counts
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))


def seed_of(seed: int, purpose: str) -> int:
    """Return a seed of 31 bits for one purpose."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:4]) & 0x7FFFFFFF


def keys_of(documents: pa.Array, index: pa.Array, seed: int, purpose: str) -> Keys:
    """Return a seeded 64-bit hash of each sentence (document_id, index); the lowest hashes are a random sample."""
    encoded = documents.dictionary_encode()
    heads = [
        hashlib.sha256(f"{seed}:{purpose}:{value}".encode()).digest()[:8] for value in encoded.dictionary.to_pylist()
    ]
    base = np.array([int.from_bytes(head) for head in heads], np.uint64)[encoded.indices.to_numpy()]
    mixed: Keys = base + (index.to_numpy().astype(np.uint64) + np.uint64(1)) * _SPREAD
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return mixed ^ (mixed >> np.uint64(31))


def training_documents(path: Path) -> pa.Array:
    """Return the ids of a shard's training documents: those not put aside for validation."""
    table = pq.read_table(path, columns=["document_id", "split"], use_threads=False)
    return table.filter(pc.equal(table["split"], "train"))["document_id"].combine_chunks()


def is_training(batch: pa.RecordBatch, training: pa.Array) -> npt.NDArray[np.bool_]:
    """Return the mask of the sentences in a batch that belong to training documents."""
    mask: npt.NDArray[np.bool_] = pc.is_in(batch.column("document_id"), training).to_numpy(zero_copy_only=False)
    return mask


@contextmanager
def one_core() -> Iterator[Any]:
    """Yield faiss limited to one core, so that its sums are the same on every machine and for any number of workers."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)


def draw(payload: Record, folder: Path) -> Record:
    """Check every vector of one shard, and keep the training vectors whose key is at most `limit` for some format."""
    path = Path(payload["embeddings_path"])
    training = training_documents(Path(payload["documents_path"]))
    counted = {"training": 0}

    def drawn() -> Iterator[pa.RecordBatch]:
        for first, batch, vectors in read_vectors(path, ["document_id", "index"]):
            refuse_bad_vectors(vectors, payload["place"], first)
            mask = is_training(batch, training)
            counted["training"] += int(mask.sum())
            ids, index = batch.column("document_id"), batch.column("index")
            keys = [keys_of(ids, index, payload["seed"], name) for name in FORMATS]
            rows = np.flatnonzero(mask & (np.minimum.reduce(keys) <= np.uint64(payload["limit"])))
            columns = [pa.array(key[rows]) for key in keys]
            yield pa.record_batch([*columns, vector_array(vectors[rows])], schema=schema)

    schema = drawn_schema(payload["dimension"])
    rows = write_shard(folder / DRAWN, schema, drawn(), {}, vectors=["embedding"])
    return {"rows": rows} | counted


def train(payload: Record, folder: Path) -> Record:
    """Run k-means for one format over the drawn vectors with the lowest keys; write the centroids [K, dimension]."""
    points = payload["clusters"] * payload["points_per_cluster"]
    vectors = _lowest([Path(path) for path in payload["drawn_paths"]], payload["format"], points)
    with one_core() as faiss:
        kmeans = faiss.Kmeans(
            vectors.shape[1],
            payload["clusters"],
            niter=payload["iterations"],
            seed=seed_of(payload["seed"], payload["format"]),
            # faiss must not sample again, nor warn about small data, which the stage has checked already.
            max_points_per_centroid=points,
            min_points_per_centroid=1,
        )
        kmeans.train(vectors)
    np.save(folder / CENTROIDS, kmeans.centroids)
    return {"points": len(vectors), "objective": float(kmeans.obj[-1])}


def _lowest(paths: list[Path], name: str, points: int) -> Vectors:
    """Return the vectors with the lowest keys in the order of their keys, whatever shards they are in."""
    keys = [pq.read_table(path, columns=[name], use_threads=False)[name].to_numpy() for path in paths]
    ranks = np.empty(sum(map(len, keys)), np.int64)
    ranks[np.argsort(np.concatenate(keys), kind="stable")] = np.arange(len(ranks))
    chosen: Vectors | None = None
    start = 0
    for path in paths:
        for _, batch, vectors in read_vectors(path):
            rank = ranks[start : start + batch.num_rows]
            if chosen is None:
                chosen = np.empty((min(points, len(ranks)), vectors.shape[1]), np.float32)
            chosen[rank[rank < points]] = vectors[rank < points]
            start += batch.num_rows
    assert chosen is not None  # the stage refuses a corpus without training sentences
    return chosen
