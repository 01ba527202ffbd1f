"""Stage `materialize`: anchor tasks from the clustered sentences, and tasks from datasets, as Parquet shards.

First the corpus becomes a pool: sentences by number, memory-mapped, and for each format their numbers by cluster (in
DuckDB, `storage.pools.sentence_pool`). Then worker processes draw shards of tasks from the pool, each task by its own
seed.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from storage import paths
from storage.atomic import remove, write_bytes
from storage.counts import counted
from storage.errors import InputError
from storage.hashing import json_hash
from storage.pools.sentence_pool import Pool, PoolWriter, ShardFiles
from storage.vectors.sentence_vectors import file_hashes
from tasks.materialize.labeled_tasks import labeled_tasks
from tasks.materialize.plan import check, pool_formats, sizes_of, sizes_record, task_counts, unmade
from tasks.materialize.task_writer import SHARD, write_tasks
from tasks.stage.contract import Record, Shard, ShardResult, Stage

_SHARD_TASKS = 500


def run(stage: Stage) -> Record:
    """Write the tasks of every format and split."""
    counts = task_counts(stage.params.materialize)
    for line in unmade(stage.params.materialize, counts):
        stage.reporter.say(line)
    work = stage.root / paths.SCRATCH / f"materialize-{stage.fingerprint[:16]}"
    try:
        anchors, unlabeled = _anchor_tasks(stage, counts, work / "pool")
        groups, labeled = labeled_tasks(stage, counts, work / "labeled")
    finally:
        remove(work)
    for result in (*unlabeled, *labeled):
        stage.adopt(result, SHARD, paths.TASKS, f"{result.shard.name}.parquet")
    summary = _summary(counts, [*unlabeled, *labeled]) | anchors | {"kinds": anchors.get("kinds", {}) | groups}
    write_bytes(stage.output(paths.MATERIALIZE_METRICS), orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
    return {"rows": summary["examples"]} | summary


def _anchor_tasks(
    stage: Stage, counts: Mapping[tuple[str, str], int], folder: Path
) -> tuple[Record, list[ShardResult]]:
    """Build the pool and draw the anchor tasks from it; return the figures of the pool, and the shards."""
    formats = pool_formats(counts)
    if not formats:
        return {}, []
    params = stage.params.materialize
    sizes = sizes_of(params)
    shards = list(_corpus_shards(stage))
    with PoolWriter(folder) as writer:
        sentences = writer.gather(shards)
        without = f", {writer.left_out:,} of training documents left out: validation documents have them, too"
        stage.reporter.say(f"materialize: {counted(sentences, 'sentence')}{without if writer.left_out else ''}")
        writer.list_anchors(formats, hard=sizes.hard > 0)
    figures = {"left_out": writer.left_out, "kinds": check(Pool(folder), counts, sizes)}
    content = json_hash(file_hashes([path for shard in shards for path in vars(shard).values()]))
    payload = {"pool": content, "seed": stage.params.seed, "sizes": sizes_record(sizes)}
    wanted = {key: count for key, count in counts.items() if key[0] in formats}
    return figures, stage.map("draw", write_tasks, _task_shards(wanted, payload, folder), "tasks")


def _corpus_shards(stage: Stage) -> Iterator[ShardFiles]:
    """Yield the shards of the corpus by name, each with its clusters."""
    documents, sentences, assignments = (
        stage.input(path) for path in (paths.DOCUMENTS, paths.SENTENCES, paths.ASSIGNMENTS)
    )
    for path in sorted(sentences.glob("*.parquet")):
        shard = ShardFiles(documents / path.name, path, assignments / path.name)
        if not shard.assignments.is_file():
            raise InputError(f"{shard.assignments}: not there, but {path.name} has sentences: `supmer run cluster`")
        yield shard


def _task_shards(counts: Mapping[tuple[str, str], int], payload: Record, pool: Path) -> Iterator[Shard]:
    for (name, split), count in counts.items():
        for number, first in enumerate(range(0, count, _SHARD_TASKS)):
            tasks = min(_SHARD_TASKS, count - first)
            own = {"format": name, "split": split, "first": first, "tasks": tasks}
            yield Shard(f"{name}-{split}-{number:05d}", payload | own, tasks, {"pool_path": str(pool)})


def _summary(counts: Mapping[tuple[str, str], int], results: Sequence[ShardResult]) -> Record:
    tasks: Record = {}
    for (name, split), count in counts.items():
        tasks.setdefault(split, {})[name] = count
    wrong, hard = (sum(result.record.get(key, 0) for result in results) for key in ("wrong", "hard"))
    return {
        "tasks": sum(counts.values()),
        "examples": sum(result.record["rows"] for result in results),
        "by_format": tasks,
        "hard_negative_share": round(hard / wrong, 4) if wrong else None,
    }
