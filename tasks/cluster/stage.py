"""Stage `cluster`: k-means over the sentence vectors for each format, centroids in both spaces, nearest sentences.

The stage reads the vectors in three passes, each a fan-out over shards: `draw` checks them and takes those that k-means
is trained on (`train`, one shard for each format); `assign` finds the nearest centroid of every sentence; `describe`
writes the tables after small clusters are merged or dropped. Centroids, sizes (compared with min_size) and nearest
sentences depend on training documents alone: nothing of a validation document reaches a training task.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage import paths
from storage.atomic import remove, write_bytes
from storage.errors import InputError
from storage.hashing import file_hash
from storage.parquet import count_rows, write_shard
from storage.sources.source import read_manifest
from storage.tables import cluster_tables
from storage.task_formats import FORMATS
from storage.vectors.sentence_vectors import Made, file_hashes, made_by, model_hash, vector_array
from tasks.cluster.assignment import ASSIGNMENTS, NEAREST, RAW, TALLY, assign, describe
from tasks.cluster.backbone_centroids import Means, backbone_means
from tasks.cluster.kmeans import CENTROIDS, DRAWN, draw, train
from tasks.cluster.small_clusters import Settled, Tally, figures, settle
from tasks.stage.contract import Record, Shard, ShardResult, Stage
from tasks.stage.precision import stage_precision

_ALL = 2**64 - 1  # every key is at most this


@dataclass(frozen=True)
class Corpus:
    """The shards of the three tables, side by side, with their content hashes and numbers of rows."""

    names: list[str]
    paths: Mapping[str, list[Path]]
    hashes: Mapping[str, list[str]]
    rows: list[int]

    def shards(self, payload: Record, hint: Record) -> list[Shard]:
        """Return one shard of work for each shard of the corpus."""
        made = []
        for number, name in enumerate(self.names):
            content = {table: hashes[number] for table, hashes in self.hashes.items()}
            places = {f"{table}_path": str(files[number]) for table, files in self.paths.items()}
            made.append(Shard(Path(name).stem, payload | content, self.rows[number], hint | places))
        return made


def run(stage: Stage) -> Record:
    """Cluster the vectors, merge or drop small clusters, and write the tables."""
    corpus, made = _corpus(stage)
    # With the backbone's own vectors, k-means centroids are in its space already (ALGORITHM §2).
    precision = None if made.model == "backbone" else stage_precision(stage, stage.params.cluster.precision)
    drawn = _drawn(stage, corpus, made)
    centroids = _trained(stage, drawn)
    hashes = {name: file_hash(path) for name, path in centroids.items()}
    hint = {"centroids_paths": {name: str(path) for name, path in centroids.items()}}
    assigned = stage.map("assign", assign, corpus.shards({"centroids": hashes}, hint), "sentences")
    settled = _settled(stage, assigned, centroids)
    work = stage.root / paths.SCRATCH / f"cluster-{stage.fingerprint[:16]}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        described = _described(stage, corpus, made, assigned, settled, work)
        if precision is None:
            means = np.stack([clusters.centroids for clusters in settled.values()])
        else:
            texts, hashes_of_texts = corpus.paths["sentences"], corpus.hashes["sentences"]
            means = backbone_means(stage, texts, hashes_of_texts, described, work, precision)
    finally:
        remove(work)
    for name, result in zip(corpus.names, described, strict=True):
        stage.adopt(result, ASSIGNMENTS, paths.ASSIGNMENTS, name)
    _write_centroids(stage, made, settled, means)
    _write_nearest(stage, made, described)
    return _write_figures(stage, corpus, drawn, settled) | ({"precision": precision} if precision else {})


def _corpus(stage: Stage) -> tuple[Corpus, Made]:
    """Return the shards; raise InputError unless the configured model made the vectors, one for each sentence."""
    files = {name: sorted(stage.input(_TABLES[name]).glob("*.parquet")) for name in ("embeddings", "sentences")}
    made = made_by(files["embeddings"])
    wanted = stage.params.embed.model
    source = read_manifest(stage.input(paths.source(wanted)))[0]
    if (made.model, made.model_hash) != (wanted, model_hash(source)):
        raise InputError(
            f"{paths.EMBEDDINGS}: made by the {made.model} {made.model_hash[:8]}, but embed.model is the {wanted} "
            f"{model_hash(source)[:8]} of {paths.SOURCES}: run `supmer run embed`"
        )
    rows = [count_rows(path) for path in files["sentences"]]
    if [path.name for path in files["embeddings"]] != [path.name for path in files["sentences"]] or rows != [
        count_rows(path) for path in files["embeddings"]
    ]:
        raise InputError(
            f"{paths.EMBEDDINGS}: not the vectors of the sentences in {paths.SENTENCES}: run `supmer run embed`"
        )
    files["documents"] = [stage.input(paths.DOCUMENTS) / path.name for path in files["sentences"]]
    for path in files["documents"]:
        if not path.is_file():
            raise InputError(
                f"{paths.DOCUMENTS}/{path.name}: not there, but has sentences: `supmer run --force sample`"
            )
    hashes = {name: file_hashes(listed) for name, listed in files.items()}
    return Corpus([path.name for path in files["sentences"]], files, hashes, rows), made


_TABLES = {"documents": paths.DOCUMENTS, "embeddings": paths.EMBEDDINGS, "sentences": paths.SENTENCES}


def _drawn(stage: Stage, corpus: Corpus, made: Made) -> list[ShardResult]:
    """Draw slightly more vectors than k-means is trained on; `train` cuts the exact number over all shards."""
    params = stage.params.cluster
    points = params.clusters * params.points_per_cluster
    share = (points + 6 * math.sqrt(points)) / max(sum(corpus.rows) * _training_share(corpus), 1)
    payload = {"seed": stage.params.seed, "dimension": made.dimension}
    payload["limit"] = _ALL if share >= 1 else int(share * _ALL)
    shards = [
        Shard(shard.name, shard.payload, shard.weight, shard.hint | {"place": f"{paths.EMBEDDINGS}/{name}"})
        for shard, name in zip(corpus.shards(payload, {}), corpus.names, strict=True)
    ]
    results = stage.map("draw", draw, shards, "sentences")
    training = sum(result.record["training"] for result in results)
    if training < params.clusters:
        raise InputError(
            f"params.yaml: cluster.clusters: {params.clusters}: more than the {training:,} training sentences: "
            "lower it, or add text"
        )
    return results


def _training_share(corpus: Corpus) -> float:
    """Return the share of training documents in the corpus, by sentences."""
    train = total = 0
    for path in corpus.paths["documents"]:
        table = pq.read_table(path, columns=["split", "sentences"], use_threads=False)
        total += pc.sum(table["sentences"]).as_py() or 0
        train += pc.sum(table.filter(pc.equal(table["split"], "train"))["sentences"]).as_py() or 0
    return train / max(total, 1)


def _trained(stage: Stage, drawn: Sequence[ShardResult]) -> dict[str, Path]:
    """Return the files of the centroids of each format."""
    chosen = stage.params.cluster.model_dump(include={"clusters", "points_per_cluster", "iterations"})
    files = [result.folder / DRAWN for result in drawn]
    payload = chosen | {"seed": stage.params.seed, "drawn": file_hashes(files)}
    hint = {"drawn_paths": [str(path) for path in files]}
    shards = [Shard(name, payload | {"format": name}, hint=hint) for name in FORMATS]
    results = stage.map("train", train, shards, "formats")
    return {name: result.folder / CENTROIDS for name, result in zip(FORMATS, results, strict=True)}


def _settled(stage: Stage, assigned: Sequence[ShardResult], centroids: Mapping[str, Path]) -> dict[str, Settled]:
    """Add up the tallies in the order of the shards, and merge or drop small clusters."""
    loaded = {name: np.load(path) for name, path in centroids.items()}
    tallies = {name: Tally.empty(*means.shape) for name, means in loaded.items()}
    for result in assigned:
        with np.load(result.folder / TALLY) as arrays:
            for name, tally in tallies.items():
                tally += Tally.of(arrays, name)  # noqa: PLW2901 - in place
    return {name: settle(name, tally, loaded[name], stage.params.cluster) for name, tally in tallies.items()}


def _described(
    stage: Stage,
    corpus: Corpus,
    made: Made,
    assigned: Sequence[ShardResult],
    settled: Mapping[str, Settled],
    work: Path,
) -> list[ShardResult]:
    """Return the final assignments, nearest sentences and samples of every shard."""
    plan = work / "plan.npz"
    arrays: dict[str, Any] = {f"{name}_into": clusters.into for name, clusters in settled.items()}
    arrays |= {f"{name}_centroids": clusters.centroids for name, clusters in settled.items()}
    np.savez(plan, **arrays)
    params = stage.params.cluster
    payload = {
        "seed": stage.params.seed,
        "nearest": params.nearest_sentences,
        "picked": 0 if made.model == "backbone" else params.backbone_sentences,
        "plan": file_hash(plan),
        "provenance": _provenance(stage, made),
    }
    shards = []
    for shard, result in zip(corpus.shards(payload, {"plan_path": str(plan)}), assigned, strict=True):
        raw = result.folder / RAW
        content = shard.payload | {"raw": file_hash(raw)}
        shards.append(Shard(shard.name, content, shard.weight, shard.hint | {"raw_path": str(raw)}))
    return stage.map("describe", describe, shards, "sentences")


def _provenance(stage: Stage, made: Made) -> Record:
    chosen = {"seed": stage.params.seed, "params": stage.params.cluster.model_dump(exclude={"precision"})}
    return {"stage": "cluster", "model": made.model, "model_hash": made.model_hash} | chosen


def _write_centroids(stage: Stage, made: Made, settled: Mapping[str, Settled], means: Means) -> None:
    schema = cluster_tables.centroids_schema(made.dimension, means.shape[2])

    def tables() -> list[pa.Table]:
        made_of = []
        for place, (name, clusters) in enumerate(settled.items()):
            kept = clusters.kept
            columns = [
                [name] * len(kept),
                kept,
                clusters.final.size[kept],
                clusters.final.training[kept],
                [clusters.merged(cluster) for cluster in kept],
                vector_array(clusters.centroids[kept]),
                vector_array(means[place, kept]),
            ]
            made_of.append(pa.table(columns, schema=schema))
        return made_of

    path = stage.output(paths.CENTROIDS) / "centroids.parquet"
    write_shard(path, schema, tables(), _provenance(stage, made), vectors=cluster_tables.CENTROID_VECTORS)


def _write_nearest(stage: Stage, made: Made, described: Sequence[ShardResult]) -> None:
    """Write the nearest sentences of each cluster over all shards; each text is listed once."""
    best = cluster_tables.NEAREST.empty_table()
    for result in described:
        both = pa.concat_tables([best, pq.read_table(result.folder / NEAREST, use_threads=False)])
        both = both.sort_by([(name, "ascending") for name in ("format", "cluster", "distance", "document_id", "index")])
        best = _first_texts(both, stage.params.cluster.nearest_sentences)
    path = stage.output(paths.NEAREST) / "nearest.parquet"
    write_shard(path, cluster_tables.NEAREST, [best], _provenance(stage, made))


def _first_texts(table: pa.Table, count: int) -> pa.Table:
    """Return, for each cluster of a sorted table, the first `count` rows with different texts, ranked from 1."""
    seen: dict[tuple[str, int], set[str]] = {}
    rows, ranks = [], []
    listed = zip(*(table[name].to_pylist() for name in ("format", "cluster", "text")), strict=True)
    for row, (name, cluster, text) in enumerate(listed):
        texts = seen.setdefault((name, cluster), set())
        if len(texts) < count and text not in texts:
            texts.add(text)
            rows.append(row)
            ranks.append(len(texts))
    place = table.schema.get_field_index("rank")
    return table.take(rows).set_column(place, "rank", pa.array(ranks, pa.int32()))


def _write_figures(
    stage: Stage, corpus: Corpus, drawn: Sequence[ShardResult], settled: Mapping[str, Settled]
) -> Record:
    training = sum(result.record["training"] for result in drawn)
    metrics: Record = {"sentences": sum(corpus.rows), "training_sentences": training}
    metrics |= {name: figures(clusters) for name, clusters in settled.items()}
    write_bytes(stage.output(paths.CLUSTER_METRICS), orjson.dumps(metrics, option=orjson.OPT_INDENT_2) + b"\n")
    lines = ["format,rank,size,cluster,outcome,into"]
    for name, clusters in settled.items():
        largest_first = np.argsort(-clusters.tally.training, kind="stable").tolist()
        for rank, cluster in enumerate(largest_first, start=1):
            outcome = clusters.outcome(cluster)
            into = clusters.into[cluster] if outcome in {"kept", "merged"} else ""
            lines.append(f"{name},{rank},{clusters.tally.training[cluster]},{cluster},{outcome},{into}")
    write_bytes(stage.output(paths.CLUSTER_SIZES_PLOT), "\n".join([*lines, ""]).encode())
    return {"rows": sum(corpus.rows)} | metrics
