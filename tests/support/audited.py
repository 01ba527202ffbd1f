"""A real DVC repository with real Parquet files, small enough that DVC itself can make it."""

import hashlib
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime

from storage.lineage.events import Artifact, StageEvent, emit
from storage.lockfile import read_pipeline

PIPELINE = """\
stages:
  acquire:
    cmd: {python} make.py acquire
    deps: [make.py]
    params: [acquire]
    outs: [data/sources/corpus]
  sample:
    cmd: {python} make.py sample
    deps: [data/sources/corpus, make.py]
    params: [seed]
    outs: [data/corpus/documents, data/corpus/excluded, data/corpus/sentences]
    metrics: [data/metrics.json]
  materialize:
    cmd: {python} make.py materialize
    deps: [data/corpus/sentences]
    outs: [data/examples]
  metatrain:
    cmd: "false"
    deps: [data/examples]
    outs: [data/prompt]
"""

TEXTS = ("First of the kept. Second of the kept. Third one.", "Another kept text. It ends.", "bad")

MAKE = """
import hashlib, json, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq

TEXTS = {texts!r}
IDS = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in TEXTS]

def save(folder, name, table):
    Path(folder).mkdir(parents=True, exist_ok=True)
    pq.write_table(table, Path(folder, name))

def acquire():
    folder = Path("data/sources/corpus/news")
    folder.mkdir(parents=True)
    (folder / "news.txt").write_text("\\n".join(TEXTS))
    content = (folder / "news.txt").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    file = dict(name="news.txt", path=str(folder / "news.txt"), bytes=len(content), sha256=sha256)
    source = dict(name="news", spec="wheel:news==1.0", licence="MIT", folder=str(folder), files=[file])
    Path("data/sources/corpus/source.json").write_text(json.dumps(dict(role="corpus", sources=[source])))

def sample():
    rows = [dict(document_id=i, source="news", file="news.txt", row=n, offset=n * 10, bytes=len(t),
                 words=len(t.split()), sentences=t.count("."), split="train", shard=0)
            for n, (i, t) in enumerate(zip(IDS, TEXTS))]
    save("data/corpus/documents", "0.parquet", pa.Table.from_pylist(rows[:1]))
    save("data/corpus/documents", "1.parquet", pa.Table.from_pylist(rows[1:2]))
    excluded = [dict(document_id=IDS[2], source="news", file="news.txt", row=2, offset=None, reason="too_short",
                     detail="1 word", duplicate_of=None, text=TEXTS[2]),
                dict(document_id=IDS[0], source="news", file="news.txt", row=3, offset=None, reason="exact_duplicate",
                     detail=None, duplicate_of=IDS[0], text=TEXTS[0])]
    save("data/corpus/excluded", "0.parquet", pa.Table.from_pylist(excluded))
    sentences = []
    for i, text in zip(IDS[:2], TEXTS):
        start = 0
        for index, part in enumerate(text.split(". ")):
            end, words = start + len(part), len(part.split())
            sentences.append(dict(document_id=i, index=index, start=start, end=end, words=words, text=part))
            start += len(part) + 2
    save("data/corpus/sentences", "0.parquet", pa.Table.from_pylist(sentences))
    Path("data/metrics.json").write_text("{{}}")

def materialize():
    first, second = IDS[:2]
    choices = [first + ":1", second + ":0"]
    rows = [dict(example_id="sp-next-0", anchor_sentence_id=first + ":0", choice_sentence_ids=choices),
            dict(example_id="sp-next-1", anchor_sentence_id=first + ":1", choice_sentence_ids=[first + ":2"])]
    save("data/examples/train", "0.parquet", pa.Table.from_pylist(rows))

globals()[sys.argv[1]]()
"""

FIRST, SECOND, BAD = (hashlib.sha256(text.encode()).hexdigest()[:32] for text in TEXTS)


def dvc(root, *arguments):
    environment = os.environ | {"DVC_NO_ANALYTICS": "1"}
    subprocess.run([sys.executable, "-m", "dvc", *arguments, "-q"], cwd=root, env=environment, check=True)


def announce(root, stage):
    locked = read_pipeline(root).locked[stage]
    artifact = {
        kind: tuple(Artifact(item.path, item.md5 or "", item.bytes or 0, rows) for item in items)
        for kind, items, rows in (("inputs", locked.inputs, None), ("outputs", locked.outputs, 77))
    }
    emit(
        root,
        StageEvent(
            stage=stage,
            state="COMPLETE",
            run_id=str(uuid.uuid4()),
            time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            **artifact,
            git_commit="abcdef0123456789+",
            prefect_run_id="prefect-9",
            record={"seconds": 2.25},
        ),
    )


def lay_out_audited(root):
    """Make a workspace in which `dvc repro` has run three stages, one of them with a lineage event."""
    dvc(root, "init", "--no-scm")
    dvc(root, "config", "cache.type", "copy")
    (root / ".dvc/config.local").write_text("[core]\nno_scm = true\n")
    (root / "dvc.yaml").write_text(PIPELINE.format(python=sys.executable))
    (root / "make.py").write_text(MAKE.format(texts=TEXTS))
    (root / "params.yaml").write_text("seed: 3\nacquire: {corpus: 'wheel:news==1.0'}\n")
    dvc(root, "repro", "materialize")
    announce(root, "acquire")


def overwrite(path, content):
    path.chmod(0o644)
    path.write_bytes(content)
