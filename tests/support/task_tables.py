"""Made-up shards of tasks, in the form that the materialize stage writes."""

import random

import pyarrow as pa

from storage.parquet import write_shard
from storage.tables.task_table import TASKS
from support.tiny_tokenizers import sentence

KINDS = {  # number of texts, number of labels
    "sp-next": (2, 3),
    "sp-cluster": (2, 2),
    "mc-next": (5, 4),
    "mc-cluster": (5, 4),
    "ss": (1, 4),
    "labeled-stars": (1, 5),
}


def task_rows(kind, number, split="train", support=4, query=4, words=8):
    """Return the rows of one task."""
    form = kind.partition("-")[0]
    texts, labels = KINDS[kind]
    task_id = f"{form}-{split}-{number:06d}"
    generator = random.Random(f"{kind}/{task_id}")
    rows = []
    for role, size in (("support", support), ("query", query)):
        for position in range(size):
            label = position % labels
            ids = [f"{generator.getrandbits(128):032x}:{generator.randrange(9)}" for _ in range(texts)]
            choices = generator.sample(range(20), 4) if form == "ss" else None
            rows.append(
                {
                    "task_id": task_id,
                    "format": form,
                    "kind": kind,
                    "split": split,
                    "role": role,
                    "position": position,
                    "example_id": f"{task_id}/{role[0]}{position:02d}",
                    "label": label,
                    "labels": labels,
                    "texts": [sentence(generator, generator.randint(3, words)) for _ in range(texts)],
                    "sentence_ids": [f"stars:{position}"] if form == "labeled" else ids,
                    "clusters": [choices[label]] if choices else [number % 20] * texts,
                    "choices": choices,
                    "anchor_cluster": None if choices else number % 20,
                }
            )
    return rows


def write_tasks(folder, counts, split="train", tasks_per_group=3, tasks_per_shard=7, **sizes):
    """Write shards with `counts[kind]` tasks of each kind, numbered within their format, and return the folder."""
    by_format = {}
    for kind, count in counts.items():
        by_format.setdefault(kind.partition("-")[0], []).extend([kind] * count)
    for form, kinds in by_format.items():
        tasks = [task_rows(kind, number, split, **sizes) for number, kind in enumerate(kinds)]
        for shard, start in enumerate(range(0, len(tasks), tasks_per_shard)):
            chosen = tasks[start : start + tasks_per_shard]
            groups = [chosen[at : at + tasks_per_group] for at in range(0, len(chosen), tasks_per_group)]
            batches = [pa.Table.from_pylist([row for task in group for row in task], schema=TASKS) for group in groups]
            write_shard(folder / f"{form}-{split}-{shard:05d}.parquet", TASKS, batches, {"stage": "materialize"})
    return folder
