"""Stage `embed`: a vector for each sentence, from a sentence-transformers model or from the backbone's own encoder."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from model.device import device
from model.sentence_encoder import encode, load_encoder
from storage import paths
from storage.errors import InputError
from storage.parquet import count_rows
from storage.sources.source import read_manifest
from storage.vectors.sentence_vectors import Made, bad_rows, file_hashes, model_hash, spoiled, write_vectors
from tasks.stage.contract import Record, Shard, Stage
from tasks.stage.precision import stage_precision

_FILE = "vectors.parquet"


def run(stage: Stage) -> Record:
    """Embed every shard of sentences, except those that the same model has embedded before."""
    params = stage.params.embed
    source = read_manifest(stage.input(paths.source(params.model)))[0]
    made = {"model": params.model, "model_hash": model_hash(source), "dtype": params.dtype}
    precision = stage_precision(stage, params.precision)
    shards_of_sentences = sorted(stage.input(paths.SENTENCES).glob("*.parquet"))
    if not shards_of_sentences:
        raise InputError(f"{paths.SENTENCES}: no shard there: run `supmer run --force sample`")
    shards = []
    for number, (path, sha256) in enumerate(zip(shards_of_sentences, file_hashes(shards_of_sentences), strict=True)):
        payload = {"sentences": sha256, "batch_size": params.batch_size, "precision": precision, **made}
        hint = {"path": str(path), "folder": str(stage.root / source.folder), "number": number}
        shards.append(Shard(path.stem, payload, count_rows(path), hint))
    results = stage.map("embed", embed, shards, "sentences")
    for path, result in zip(shards_of_sentences, results, strict=True):
        stage.adopt(result, _FILE, paths.EMBEDDINGS, path.name)
    dimension = results[0].record["dimension"]
    rows = sum(result.record["rows"] for result in results)
    return {"rows": rows, "dimension": dimension, "precision": precision, **made}


def embed(payload: Record, folder: Path) -> Record:
    """Embed one shard of sentences."""
    path = Path(payload["path"])
    table = pq.read_table(path, columns=["document_id", "index", "text"], use_threads=False)
    where = device(payload["number"])
    encoder = load_encoder(
        payload["model"], Path(payload["folder"]), payload["model_hash"], where, payload["precision"]
    )
    vectors = encode(encoder, table["text"].to_pylist(), payload["batch_size"])
    with np.errstate(over="ignore"):  # values that do not fit become infinite, and are refused by name below
        stored = vectors.astype(payload["dtype"])
    _refuse_bad(vectors, stored, table, path.name)
    made = Made(payload["model"], payload["model_hash"], encoder.dimension, payload["dtype"])
    return {"rows": write_vectors(folder / _FILE, table, stored, made), "dimension": encoder.dimension}


def _refuse_bad(vectors: npt.NDArray[np.float32], stored: npt.NDArray[np.floating], table: pa.Table, name: str) -> None:
    """Raise InputError for the first sentence whose vector is zero or not finite, before or after it is stored."""
    bad = bad_rows(stored.astype(np.float32))
    if bad.size == 0:
        return
    row = int(bad[0])
    sentence = f"{table['document_id'][row]}:{table['index'][row]}"
    where = f"{paths.SENTENCES}/{name}: row {row + 1}, sentence {sentence}"
    vector, kept = vectors[row], stored[row]
    if np.isfinite(vector).all() and vector.any() and not (np.isfinite(kept).all() and kept.any()):
        raise InputError(f"{where}: its vector does not fit float16: set embed.dtype: float32 in params.yaml")
    raise InputError(
        f"{where}: the model gives {spoiled(vector)} for it: the model is damaged, or not made for this text"
    )
