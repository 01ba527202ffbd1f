"""Tasks as tables: one row for each example, the sets of a task in sequence, one file for each shard of tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.parquet import write_shard
from storage.pools.row_arrays import Array, Integers
from storage.pools.sentence_pool import Pool
from storage.tables.task_table import TASKS
from storage.task_formats import LABELS
from tasks.materialize.anchor_tasks import Drawer, Drawn
from tasks.materialize.plan import Sizes
from tasks.stage.contract import Record

SHARD = "tasks.parquet"
_GROUP_TASKS = 64  # tasks of a row group, the unit that is kept in memory and that a reader can fetch alone


@dataclass(frozen=True)
class Content:
    """The columns of some tasks, except those that are equal for all tasks; one value for each example."""

    kinds: Sequence[str]  # one value for each task
    labels: Sequence[int]  # number of labels of the kind, one value for each task
    label: Integers
    texts: pa.Array
    sentence_ids: pa.Array
    clusters: pa.Array
    choices: pa.Array
    anchor_cluster: pa.Array


def lists(values: pa.Array, parts: int) -> pa.Array:
    """Return a list of `parts` values for each example."""
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, parts), pa.int32()), values)


def task_table(format_: str, split: str, numbers: Sequence[int], sizes: Sizes, content: Content) -> pa.Table:
    """Return some tasks as rows: support set, then query set, task after task."""
    task_of_row = np.repeat(np.arange(len(numbers)), sizes.total)
    positions = np.concatenate([np.arange(sizes.support), np.arange(sizes.query)])
    roles = ["support"] * sizes.support + ["query"] * sizes.query
    places = [f"/{role[0]}{position:02d}" for role, position in zip(roles, positions.tolist(), strict=True)]
    tasks = pa.array([f"{format_}-{split}-{number:06d}" for number in numbers]).take(pa.array(task_of_row))
    columns = {
        "task_id": tasks,
        "format": pa.repeat(format_, len(task_of_row)),
        "kind": pa.array(content.kinds).take(pa.array(task_of_row)),
        "split": pa.repeat(split, len(task_of_row)),
        "role": pa.array(roles * len(numbers)),
        "position": pa.array(np.tile(positions, len(numbers)), pa.int16()),
        "example_id": pc.binary_join_element_wise(tasks, pa.array(places * len(numbers)), ""),
        "label": pa.array(content.label, pa.int16()),
        "labels": pa.array(np.array(content.labels)[task_of_row], pa.int16()),
        "texts": content.texts,
        "sentence_ids": content.sentence_ids,
        "clusters": content.clusters,
        "choices": content.choices,
        "anchor_cluster": content.anchor_cluster,
    }
    return pa.table([columns[name] for name in TASKS.names], schema=TASKS)


def write_tasks(payload: Record, folder: Path) -> Record:
    """Draw and write one shard of anchor tasks; return its figures."""
    pool = Pool(Path(payload["pool_path"]))
    sizes = Sizes(**payload["sizes"])
    drawer = Drawer(pool, payload["format"], payload["split"], sizes, payload["seed"])
    hard = {"wrong": 0, "hard": 0}

    def tables() -> Iterator[pa.Table]:
        every = range(payload["first"], payload["first"] + payload["tasks"])
        for start in range(0, len(every), _GROUP_TASKS):
            numbers = every[start : start + _GROUP_TASKS]
            drawn = [drawer.draw(number) for number in numbers]
            kinds = [drawer.kind(number) for number in numbers]
            _count_hard(pool, kinds, drawn, hard)
            content = _content(pool, payload["format"], kinds, drawn)
            yield task_table(payload["format"], payload["split"], numbers, sizes, content)

    provenance = {"stage": "materialize"} | {key: payload[key] for key in ("format", "split", "seed", "sizes")}
    rows = write_shard(folder / SHARD, TASKS, tables(), provenance | {"first": payload["first"]})
    return {"rows": rows, "tasks": payload["tasks"]} | hard


def _content(pool: Pool, format_: str, kinds: Sequence[str], drawn: Sequence[Drawn]) -> Content:
    rows = np.concatenate([task.rows for task in drawn])
    examples, parts = rows.shape
    flat = rows.ravel()
    clusters = pool.sentences[format_][flat]
    choices, anchors = pa.nulls(examples, pa.list_(pa.int32())), pa.nulls(examples, pa.int32())
    if format_ == "ss":
        offered = np.concatenate([task.choices for task in drawn if task.choices is not None])
        choices = lists(pa.array(offered.ravel(), pa.int32()), offered.shape[1])
    else:
        anchors = pa.array(np.repeat([task.cluster for task in drawn], len(drawn[0].labels)), pa.int32())
    return Content(
        kinds,
        [LABELS[kind] for kind in kinds],
        np.concatenate([task.labels for task in drawn]),
        lists(pool.sentences.take_texts(flat), parts),
        lists(pool.sentence_ids(flat), parts),
        lists(pa.array(clusters, pa.int32(), mask=clusters < 0), parts),
        choices,
        anchors,
    )


def _count_hard(pool: Pool, kinds: Sequence[str], drawn: Sequence[Drawn], counted: dict[str, int]) -> None:
    """Count the wrong choices of mc-next, and how many of them are from the anchor's document."""
    rows = [task.rows for kind, task in zip(kinds, drawn, strict=True) if kind == "mc-next"]
    if rows:
        documents: Array = pool.sentences["document"][np.concatenate(rows)]
        same = (documents[:, 1:] == documents[:, :1]).sum()
        wrong = documents.shape[1] - 2
        counted["wrong"] += len(documents) * wrong
        counted["hard"] += int(same) - len(documents)  # minus the right choices, which are of the same document, too
