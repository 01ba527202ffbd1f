"""Centroids in the backbone's space: the mean of its encoder's mean-pooled output over a sample of each cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from model.device import device
from model.sentence_encoder import encode, load_encoder
from model.t5.precision import Precision
from storage import paths
from storage.errors import InputError
from storage.hashing import file_hash
from storage.sources.source import read_manifest
from storage.task_formats import FORMATS
from storage.vectors.sentence_vectors import bad_rows, model_hash, spoiled
from tasks.cluster.assignment import PICK, PICKS
from tasks.stage.contract import Record, Shard, ShardResult, Stage

_VECTORS = "vectors.npy"

Means = npt.NDArray[np.float32]
"""[formats, K, d_model]."""


def lowest(described: Sequence[ShardResult], count: int) -> npt.NDArray[Any]:
    """Return the `count` picks with the lowest keys of each cluster over all shards, ordered by shard and row."""
    best = np.empty(0, PICK)
    for number, result in enumerate(described):
        more = np.load(result.folder / PICKS)
        more["shard"] = number
        both = np.concatenate([best, more])
        both = both[np.lexsort((both["row"], both["shard"], both["key"], both["cluster"], both["format"]))]
        group = both["format"].astype(np.int64) << 32 | both["cluster"]
        _, starts, sizes = np.unique(group, return_index=True, return_counts=True)
        best = both[np.arange(len(both)) - np.repeat(starts, sizes) < count]
    return best[np.argsort(best, order=["shard", "row"])]


def backbone_means(
    stage: Stage,
    sentences: Sequence[Path],
    hashes: Sequence[str],
    described: Sequence[ShardResult],
    work: Path,
    precision: Precision,
) -> Means:
    """Encode the picked sentences, each once even if several formats picked it, and average them by cluster."""
    params = stage.params.cluster
    picks = lowest(described, params.backbone_sentences)
    source = read_manifest(stage.input(paths.BACKBONE))[0]
    made = {"model": "backbone", "model_hash": model_hash(source), "precision": precision}
    shards, rows_of = [], []
    for number in np.unique(picks["shard"]).tolist():
        rows = np.unique(picks["row"][picks["shard"] == number])
        path = work / f"rows-{number}.npy"
        np.save(path, rows)
        payload = {"sentences": hashes[number], "rows": file_hash(path), **made}
        hint = {"path": str(sentences[number]), "rows_path": str(path), "number": number}
        hint["folder"] = str(stage.root / source.folder)
        shards.append(Shard(sentences[number].stem, payload, len(rows), hint))
        rows_of.append((number, rows))
    results = stage.map("backbone", encode_rows, shards, "sentences")
    sums = np.zeros((len(FORMATS), params.clusters, results[0].record["dimension"]))
    counts = np.zeros(sums.shape[:2], np.int64)
    for (number, rows), result in zip(rows_of, results, strict=True):
        vectors = np.load(result.folder / _VECTORS)
        mine = picks[picks["shard"] == number]
        np.add.at(sums, (mine["format"], mine["cluster"]), vectors[np.searchsorted(rows, mine["row"])])
        np.add.at(counts, (mine["format"], mine["cluster"]), 1)
    return (sums / np.maximum(counts, 1)[..., None]).astype(np.float32)


def encode_rows(payload: Record, folder: Path) -> Record:
    """Write the backbone's vectors [rows, d_model] of some sentences of one shard."""
    texts = pq.read_table(payload["path"], columns=["text"], use_threads=False)["text"]
    rows = np.load(payload["rows_path"])
    where = device(payload["number"])
    encoder = load_encoder(
        payload["model"], Path(payload["folder"]), payload["model_hash"], where, payload["precision"]
    )
    vectors = encode(encoder, texts.take(rows).to_pylist())
    if (bad := bad_rows(vectors)).size:
        place = f"{paths.SENTENCES}/{Path(payload['path']).name}: row {int(rows[bad[0]]) + 1}"
        raise InputError(f"{place}: the backbone gives {spoiled(vectors[bad[0]])} for it: is the backbone damaged?")
    np.save(folder / _VECTORS, vectors)
    return {"rows": len(rows), "dimension": encoder.dimension}
