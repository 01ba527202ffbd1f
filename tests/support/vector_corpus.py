"""A workspace after `acquire` and `sample`: tiny models, and documents whose sentences are made of a few words."""

import random
from dataclasses import dataclass, field

import pyarrow as pa

from storage import paths
from storage.hashing import document_id, file_hash
from storage.parquet import write_shard
from storage.sources.source import AcquiredSource, SourceFile, write_manifest
from storage.tables.corpus_tables import DOCUMENTS, SENTENCES
from tasks.params.schema import Params
from tasks.stage.contract import InlineFanOut, SilentReporter, Stage

WORDS = ("A", "sentence", "to", "see", "other")
MANIFESTS = [paths.BACKBONE, paths.EMBEDDER]


class BackwardFanOut:
    """A fan-out that runs the last job first: results must not depend on the order of jobs."""

    def run(self, _step, jobs, finished):
        for job in reversed(jobs):
            finished(job, job.execute())


@dataclass
class Corpus:
    """A workspace in which stages can be run; `done` lists the jobs that the last run computed, `said` its lines."""

    root: object
    sections: dict
    done: list = field(default_factory=list)
    said: list = field(default_factory=list)

    def add_shard(self, name, documents, sentences=12, validation=1):
        """Write a shard of documents of random words; the last `validation` of them are for validation."""
        source = random.Random(name)
        rows, listed = [], []
        for number in range(documents):
            texts = [" ".join(source.choices(WORDS, k=source.randint(2, 9))) + f" {number}" for _ in range(sentences)]
            identity = document_id(f"{name}/{number}")
            split = "validation" if number >= documents - validation else "train"
            listed.append({"document_id": identity, "sentences": sentences, "split": split})
            rows += [{"document_id": identity, "index": index, "text": text} for index, text in enumerate(texts)]
        write_shard(self.root / paths.DOCUMENTS / name, DOCUMENTS, [pa.Table.from_pylist(listed, DOCUMENTS)], {})
        write_shard(self.root / paths.SENTENCES / name, SENTENCES, [pa.Table.from_pylist(rows, SENTENCES)], {})

    def link_models(self, models):
        for role in ("backbone", "embedder"):
            names = sorted(path.name for path in (models / role).iterdir() if path.is_file())
            files = [SourceFile(name, "", 1, file_hash(models / role / name)) for name in names]
            source = AcquiredSource(role, "path:x", "", str(models / role), tuple(files))
            write_manifest(self.root / paths.source(role), role, [source])

    def run(self, module, inputs, outputs, fan_out=None, **sections):
        """Run a stage to its end and return its record."""
        self.sections = {
            name: self.sections.get(name, {}) | sections.get(name, {}) for name in {*self.sections, *sections}
        }
        acquire = {"backbone": "hf:a/b", "embedder": "hf:a/b", "corpus": {"own": "path:x"}}
        acquire |= self.sections.get("acquire", {})
        name = module.__name__.split(".")[1]  # tasks.NAME.stage
        stage = Stage(
            name=name,
            root=self.root,
            params=Params(**{"precision": "float32"} | self.sections | {"acquire": acquire}),  # whatever machine it is
            inputs=[*inputs, *MANIFESTS],
            outputs=outputs,
            fingerprint="f" * 64,
            code="c" * 64,
            fan_out=Noting(fan_out or InlineFanOut(), self),
            reporter=Listing(self.said),
        )
        self.done.clear()
        self.said.clear()
        stage.start()
        record = module.run(stage)
        stage.publish()
        stage.settle()
        return record


@dataclass
class Listing(SilentReporter):
    """A reporter that keeps the lines it is told."""

    lines: list

    def say(self, message):
        self.lines.append(message)


@dataclass
class Noting:
    """A fan-out that records which jobs had not been done before."""

    inner: object
    corpus: Corpus

    def run(self, step, jobs, finished):
        from pathlib import Path

        self.corpus.done += [f"{step}/{job.name}" for job in jobs if not Path(job.folder).exists()]
        self.inner.run(step, jobs, finished)


def contents(folder):
    """Return the content of every file below a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
