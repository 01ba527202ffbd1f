"""A small clustered corpus as the stages before `materialize` write it; it needs no model and can have any size."""

import hashlib
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage import paths
from storage.hashing import document_id
from storage.sources.source import AcquiredSource, SourceFile
from tasks.materialize import stage as materialize
from tasks.params.schema import MaterializeParams, Params
from tasks.stage.contract import InlineFanOut, SilentReporter, Stage

FORMATS = ("sp", "mc", "ss")
OUTPUTS = [paths.TASKS, paths.MATERIALIZE_METRICS]
INPUTS = [
    paths.ASSIGNMENTS,
    paths.DOCUMENTS,
    paths.SENTENCES,
    "data/sources/backbone",
    "data/sources/datasets",
    "data/sources/embedder",
]


def sentences_of(document: int, split: str, count: int, repeated: float, source: random.Random):
    """Return a list of (index, text), with gaps in the index and some texts that other documents contain too.

    One in three of the repeated texts can be in documents of both splits.
    """
    index, found = 0, []
    for number in range(count):
        text = f"Sentence {number} of document {document}."
        if source.random() < repeated:
            owner = "all" if source.random() < 0.33 else split
            text = f"Rights reserved by {owner} {source.randrange(3)}."
        found.append((index, text))
        index += 1 if source.random() < 0.85 else 2
    return found


def write_corpus(root, *, documents=60, sentences=12, clusters=5, shards=2, repeated=0.1, dropped=0.05, seed=0, held=5):
    """Write the three tables and return the root; every `held`-th document is for validation.

    Equal texts have equal clusters.
    """
    source = random.Random(seed)
    tables = {path: [[] for _ in range(shards)] for path in INPUTS[:3]}
    assigned: dict[str, dict] = {}
    for document in range(documents):
        shard = document % shards
        name = document_id(f"{seed}/{document}")
        split = "validation" if document % held == held - 1 else "train"
        found = sentences_of(document, split, sentences, repeated, source)
        tables[paths.DOCUMENTS][shard].append(
            {"document_id": name, "source": "own", "file": "a.jsonl", "row": document + 1, "offset": 0, "bytes": 10**6}
            | {"words": 5 * len(found), "sentences": found[-1][0] + 1, "split": split, "shard": f"own--{shard:05d}"}
        )
        for index, text in found:
            draw = {one: None if source.random() < dropped else source.randrange(clusters) * 3 for one in FORMATS}
            cluster = assigned.setdefault(text, draw)
            key = {"document_id": name, "index": index}
            tables[paths.SENTENCES][shard].append(
                key | {"start": index * 100, "end": index * 100 + len(text), "words": 5, "text": text}
            )
            tables[paths.ASSIGNMENTS][shard].append(key | cluster)
    for path, listed in tables.items():
        for number, rows in enumerate(listed):
            write_table(root / path / f"own--{number:05d}.parquet", rows)
    return root


def write_table(path: Path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    for column in {"index", "words", *FORMATS} & set(table.column_names):
        place = table.column_names.index(column)
        table = table.set_column(place, column, table[column].cast(pa.int32()))
    pq.write_table(table, path)


def stage_of(root, seed=42, fan_out=None, code="0", **changed):
    changed = {"support_size": 6, "query_size": 5, "train_tasks": 30, "validation_tasks": 12} | changed
    return Stage(
        name="materialize",
        root=root,
        params=Params.model_construct(seed=seed, materialize=MaterializeParams(**changed)),
        inputs=INPUTS,
        outputs=OUTPUTS,
        fingerprint="0" * 64,
        code=code,
        fan_out=fan_out or InlineFanOut(),
        reporter=SilentReporter(),
    )


def run_stage(root, say=None, **changed):
    """Run the whole stage, publish its outputs and return its record."""
    stage = stage_of(root, **changed)
    if say is not None:
        stage.reporter.say = say
    stage.start()
    record = materialize.run(stage)
    stage.publish()
    return record


def tasks_table(root):
    files = sorted((root / paths.TASKS).glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def by_task(root):
    """Return the rows of each task, in the order of the files."""
    found: dict[str, list] = {}
    for row in tasks_table(root).to_pylist():
        found.setdefault(row["task_id"], []).append(row)
    return found


def digest(root):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / paths.TASKS).glob("*.parquet"))
    }


def source_of(name, folder):
    """Return a folder as an acquired source."""
    files = [
        SourceFile(path.name, str(path), path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.iterdir())
    ]
    return AcquiredSource(name, f"path:{folder}", "", str(folder), tuple(files))
