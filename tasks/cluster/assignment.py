"""Assignment of sentences to clusters, by shard: first the nearest centroid, then the tables without small clusters."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from storage.parquet import write_shard
from storage.tables import cluster_tables
from storage.task_formats import FORMATS
from storage.vectors.sentence_vectors import read_vectors
from tasks.cluster.kmeans import is_training, keys_of, one_core, training_documents
from tasks.cluster.small_clusters import DROPPED, Tally
from tasks.stage.contract import Record

RAW = "raw.npy"
TALLY = "tally.npz"
ASSIGNMENTS = "assignments.parquet"
NEAREST = "nearest.parquet"
PICKS = "picks.npy"

PICK = np.dtype([("format", "i1"), ("cluster", "i4"), ("key", "u8"), ("shard", "i4"), ("row", "i4")])
"""A sentence of the sample from which a cluster's centroid in the backbone's space is estimated."""

Labels = npt.NDArray[np.int32]


def assign(payload: Record, folder: Path) -> Record:
    """Write the nearest centroid of every sentence of one shard in each format [rows, 3], and the tallies."""
    training = training_documents(Path(payload["documents_path"]))
    centroids = [np.load(payload["centroids_paths"][name]) for name in FORMATS]
    tallies = [Tally.empty(*means.shape) for means in centroids]
    labels: list[Labels] = []
    with one_core() as faiss:
        indexes = []
        for means in centroids:
            indexes.append(faiss.IndexFlatL2(means.shape[1]))
            indexes[-1].add(means)
        for _, batch, vectors in read_vectors(Path(payload["embeddings_path"]), ["document_id"]):
            mask = is_training(batch, training)
            nearest = [index.search(vectors, 1)[1][:, 0] for index in indexes]
            kept = vectors[mask].astype(np.float64)
            squares = np.einsum("nd,nd->n", kept, kept)
            for tally, clusters in zip(tallies, nearest, strict=True):
                tally.add(clusters, mask, kept, squares)
            labels.append(np.stack(nearest, axis=1).astype(np.int32))
    np.save(folder / RAW, np.concatenate(labels) if labels else np.empty((0, len(FORMATS)), np.int32))
    arrays: dict[str, Any] = {}
    for name, tally in zip(FORMATS, tallies, strict=True):
        arrays |= tally.arrays(name)
    np.savez(folder / TALLY, **arrays)
    return {"rows": sum(map(len, labels))}


def describe(payload: Record, folder: Path) -> Record:
    """Write one shard's final assignments, its sentences nearest to each centroid, and its part of the samples."""
    plan = np.load(payload["plan_path"])
    raw: Labels = np.load(payload["raw_path"])
    into = [plan[f"{name}_into"] for name in FORMATS]
    final = np.stack([fates[raw[:, place]] for place, fates in enumerate(into)], axis=1)
    sentences = pq.read_table(payload["sentences_path"], columns=["document_id", "index", "text"], use_threads=False)
    columns = [pa.array(labels, pa.int32(), mask=labels == DROPPED) for labels in final.T]
    table = pa.table([sentences["document_id"], sentences["index"], *columns], schema=cluster_tables.ASSIGNMENTS)
    write_shard(folder / ASSIGNMENTS, cluster_tables.ASSIGNMENTS, [table], payload["provenance"])
    distances, mask = _distances(payload, plan, final)
    near = _nearest(sentences, final, distances, mask, payload["nearest"])
    write_shard(folder / NEAREST, cluster_tables.NEAREST, [near], {})
    ids, index = (sentences[name].combine_chunks() for name in ("document_id", "index"))
    keys = keys_of(ids, index, payload["seed"], "backbone")
    picks = [_picks(place, final[:, place], keys, mask, payload["picked"]) for place in range(len(FORMATS))]
    np.save(folder / PICKS, np.concatenate(picks))
    return {"rows": table.num_rows}


def _distances(payload: Record, plan: Any, final: Labels) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return each sentence's distance to its centroid in each format [rows, 3], and the mask of training sentences."""
    training = training_documents(Path(payload["documents_path"]))
    centroids = [plan[f"{name}_centroids"] for name in FORMATS]
    distances = np.zeros(final.shape, np.float32)
    mask = np.zeros(len(final), np.bool_)
    for first, batch, vectors in read_vectors(Path(payload["embeddings_path"]), ["document_id"]):
        rows = slice(first, first + batch.num_rows)
        mask[rows] = is_training(batch, training)
        for place, means in enumerate(centroids):
            apart = vectors - means[final[rows, place]]
            distances[rows, place] = np.sqrt(np.einsum("nd,nd->n", apart, apart))
    return distances, mask


def _groups(
    labels: Labels, by: npt.NDArray[Any], mask: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield each cluster with the rows of its training sentences, in ascending order of `by`."""
    rows = np.flatnonzero(mask & (labels != DROPPED))
    rows = rows[np.lexsort((by[rows], labels[rows]))]
    clusters, starts = np.unique(labels[rows], return_index=True)
    if len(rows):  # numpy splits an empty array into one part, not none
        yield from zip(clusters.tolist(), np.split(rows, starts[1:]), strict=True)


def _nearest(
    sentences: pa.Table,
    final: Labels,
    distances: npt.NDArray[np.float32],
    mask: npt.NDArray[np.bool_],
    count: int,
) -> pa.Table:
    """Return, for each cluster, the `count` nearest training sentences with different texts; ranks are not set yet."""
    parts = []
    texts = sentences["text"].combine_chunks()
    for place, name in enumerate(FORMATS):
        for cluster, group in _groups(final[:, place], distances[:, place], mask):
            rows: dict[str, int] = {}
            for row in group.tolist():
                rows.setdefault(texts[row].as_py(), row)
                if len(rows) == count:
                    break
            chosen = sentences.take(list(rows.values()))
            apart = pa.array(distances[list(rows.values()), place])
            named = [
                pa.array([value] * len(rows), kind) for value, kind in ((name, pa.string()), (cluster, pa.int32()))
            ]
            ranks = pa.array([0] * len(rows), pa.int32())
            values = [*named, ranks, chosen["document_id"], chosen["index"], apart, chosen["text"]]
            parts.append(pa.table(values, schema=cluster_tables.NEAREST))
    return pa.concat_tables(parts) if parts else cluster_tables.NEAREST.empty_table()


def _picks(
    place: int, labels: Labels, keys: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_], count: int
) -> npt.NDArray[Any]:
    """Return, for each cluster of one format, the `count` training sentences with the lowest keys."""
    picks_of_clusters = [np.empty(0, PICK)]
    for cluster, group in _groups(labels, keys, mask) if count else ():
        rows = group[:count]
        picks = np.zeros(len(rows), PICK)
        picks["format"], picks["cluster"], picks["key"], picks["row"] = place, cluster, keys[rows], rows
        picks_of_clusters.append(picks)
    return np.concatenate(picks_of_clusters)
