"""A corpus of invented stories, and the stage `sample` run on it."""

import hashlib
import random
from pathlib import Path

import orjson
import pyarrow.parquet as pq

from storage import paths
from tasks.params.schema import NearDuplicateParams, Params, SampleParams
from tasks.sample import stage as sample
from tasks.stage.contract import MARKER, InlineFanOut, SilentReporter, Stage

OUTPUTS = [
    paths.DOCUMENTS,
    paths.EXCLUDED,
    paths.SENTENCES,
    paths.SAMPLE_METRICS,
    paths.EXCLUDED_PLOT,
    paths.SENTENCE_WORDS_PLOT,
]
NOUNS = (
    "river",
    "garden",
    "engine",
    "letter",
    "captain",
    "window",
    "market",
    "soldier",
    "bridge",
    "village",
    "mountain",
)
VERBS = (
    "crossed",
    "painted",
    "repaired",
    "carried",
    "watched",
    "followed",
    "measured",
    "described",
    "opened",
    "counted",
)


class BackwardFanOut:
    """The last job first: results must not depend on the order of work."""

    def run(self, _step, jobs, finished):
        for job in reversed(jobs):
            finished(job, job.execute())


def story(seed: int, sentences: int = 12) -> str:
    source = random.Random(seed)
    return " ".join(
        f"The {source.choice(NOUNS)} of the {source.choice(NOUNS)} {source.choice(VERBS)} the {source.choice(NOUNS)} "
        f"with {source.choice(NOUNS)} number {source.randrange(10**6)} in it."
        for _ in range(sentences)
    )


def lines(texts) -> bytes:
    return b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts)


class SampleRoom:
    """A folder with a corpus and a way to run the stage on it."""

    def __init__(self, root: Path):
        self.root = root
        self.files: dict[tuple[str, str], Path] = {}

    def add(self, name: str, content: bytes, source: str = "own") -> None:
        path = self.root / "inputs" / source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.files[source, name] = path

    def manifest(self, backward: bool = False) -> None:
        sources: dict[str, list] = {}
        for (source, name), path in sorted(self.files.items(), reverse=backward):
            content = path.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            file = {"name": name, "path": str(path.relative_to(self.root)), "bytes": len(content), "sha256": sha256}
            sources.setdefault(source, []).append(file)
        listed = [
            {"name": name, "spec": "path:x", "licence": "", "folder": f"inputs/{name}", "files": files}
            for name, files in sources.items()
        ]
        folder = self.root / paths.CORPUS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "source.json").write_bytes(orjson.dumps({"role": "corpus", "sources": listed}))

    def run(self, seed=1, fan_out=None, backward=False, **changes):
        self.manifest(backward)
        near = NearDuplicateParams(**changes.pop("near", {}))
        params = SampleParams(**{"min_words": 10, "near_duplicates": near} | changes)
        stage = Stage(
            name="sample",
            root=self.root,
            params=Params.model_construct(seed=seed, sample=params),
            inputs=[paths.CORPUS, paths.FORGOTTEN],
            outputs=OUTPUTS,
            fingerprint="f" * 64,
            code="c" * 64,
            fan_out=fan_out or InlineFanOut(),
            reporter=SilentReporter(),
        )
        stage.start()
        record = sample.run(stage)
        stage.publish()
        stage.settle()
        return record

    def rows(self, output: str) -> list[dict]:
        return [row for path in sorted((self.root / output).iterdir()) for row in pq.read_table(path).to_pylist()]

    def contents(self, *outputs: str) -> dict[str, bytes]:
        files = [path for output in outputs or OUTPUTS for path in self._files(self.root / output)]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}

    def markers(self, step: str) -> dict[str, int]:
        store = self.root / ".supmer" / "shards" / "sample" / step
        return {path.parent.name: path.stat().st_mtime_ns for path in store.glob(f"*/{MARKER}")}

    @staticmethod
    def _files(path: Path) -> list[Path]:
        return sorted(path.iterdir()) if path.is_dir() else [path]
