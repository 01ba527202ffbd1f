"""Measure sample, cluster and materialize at millions of sentences: `python benchmarks/bench_scale.py`.

The texts are made: documents of 25 sentences of 8 to 32 words, each sentence different, frequent English words among
them so that the filter of languages works as it would. The vectors are made too, with 8 dimensions, because only their
number matters here. Tasks are 6,000 for each million sentences, as in the profiles of the paper. Each stage runs in a
fresh process with two workers, as in `supmer run` but without Prefect. Aims: processor time grows no faster than the
number of sentences, and peak memory at 20 million is at most 1.5 times that at 1 million. Memory is that of all
processes together, without mapped files, whose pages the system takes back when it needs memory.
At 20 million the files take about 15 GB of disk in the temporary folder.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from bench_materialize import Workers
from bench_sample import write_manifest
from records import Record, Row
from watched import Usage, figures_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from stages import SAMPLED, silent_stage  # noqa: E402

from storage import paths  # noqa: E402
from storage.sources.source import AcquiredSource, SourceFile, read_manifest  # noqa: E402
from storage.sources.source import write_manifest as write_sources  # noqa: E402
from storage.vectors.sentence_vectors import Made, model_hash, write_vectors  # noqa: E402
from tasks.cluster import stage as cluster  # noqa: E402
from tasks.materialize import stage as materialize  # noqa: E402
from tasks.sample import stage as sample  # noqa: E402

DOCUMENT, FILE_DOCUMENTS = 25, 12_000  # sentences of a document, documents of a file
DIMENSION, CENTRES = 8, 400
TASKS_PER_MILLION = 6_000
FREQUENT = ["the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as", "they", "be"]
STAGES = {
    "sample": (sample, [paths.CORPUS, paths.FORGOTTEN], SAMPLED),
    "cluster": (
        cluster,
        [paths.DOCUMENTS, paths.SENTENCES, paths.EMBEDDINGS, paths.BACKBONE],
        [paths.ASSIGNMENTS, paths.CENTROIDS, paths.NEAREST, paths.CLUSTER_METRICS, paths.CLUSTER_SIZES_PLOT],
    ),
    "materialize": (
        materialize,
        [paths.ASSIGNMENTS, paths.DOCUMENTS, paths.SENTENCES, paths.DATASETS],
        [paths.TASKS, paths.MATERIALIZE_METRICS],
    ),
}
_POLL = 0.25  # seconds between readings of the memory


def sentence_pool(rng: np.random.Generator) -> list[str]:
    """Return beginnings of sentences: words by Zipf's law, the most frequent of them English."""
    made = ["".join(chr(97 + letter) for letter in rng.integers(0, 26, size)) for size in rng.integers(2, 11, 20_000)]
    words = np.array([*FREQUENT, *made])
    lengths = rng.integers(8, 32, 100_000)
    chosen = iter(words[np.minimum(rng.zipf(1.3, lengths.sum()) - 1, len(words) - 1)].tolist())
    return [" ".join(next(chosen) for _ in range(length)).capitalize() for length in lengths]


def write_corpus(root: Path, sentences: int) -> float:
    """Write the documents as JSON lines; return the MB of text."""
    rng = np.random.default_rng(0)
    pool = sentence_pool(rng)
    folder = root / "texts"
    folder.mkdir()
    total, documents = 0, sentences // DOCUMENT
    for first in range(0, documents, FILE_DOCUMENTS):
        count = min(FILE_DOCUMENTS, documents - first)
        picks = rng.integers(0, len(pool), count * DOCUMENT).tolist()
        with (folder / f"{first // FILE_DOCUMENTS:04d}.jsonl").open("w", encoding="ascii") as file:
            for number in range(count):
                start = number * DOCUMENT
                place = (first + number) * DOCUMENT
                chosen = picks[start : start + DOCUMENT]
                text = " ".join([f"{pool[pick]} {place + offset}." for offset, pick in enumerate(chosen)])
                total += len(text)
                file.write(f'{{"text": "{text}"}}\n')
    write_manifest(folder, root)
    backbone = AcquiredSource(
        "backbone", "path:x", "", "data/sources/backbone/backbone", (SourceFile("x", "", 1, "0"),)
    )
    write_sources(root / paths.BACKBONE, "backbone", [backbone])
    write_sources(root / paths.DATASETS, "datasets", [])
    return total / 1e6


def write_embeddings(root: Path) -> None:
    """Write a vector of few dimensions for each sentence, around random centres."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((CENTRES, DIMENSION)).astype(np.float32)
    made = Made("backbone", model_hash(read_manifest(root / paths.BACKBONE)[0]), DIMENSION, "float16")
    (root / paths.EMBEDDINGS).mkdir(parents=True)
    for path in sorted((root / paths.SENTENCES).glob("*.parquet")):
        ids = pq.read_table(path, columns=["document_id", "index"])
        vectors = centres[rng.integers(0, CENTRES, ids.num_rows)] + 0.5 * rng.standard_normal(
            (ids.num_rows, DIMENSION), np.float32
        )
        write_vectors(root / paths.EMBEDDINGS / path.name, ids, vectors, made)


def run_stage(name: str, root: Path, sentences: int) -> Row:
    """Run a stage in this process; return its time."""
    tasks = max(TASKS_PER_MILLION * sentences // 1_000_000, 60)
    module, inputs, outputs = STAGES[name]
    sections = {
        "acquire": {"backbone": "hf:a/b", "embedder": "hf:a/b", "corpus": {"own": "path:x"}},
        "sample": {"budget_mb": 1e6, "shard_mb": 32},
        "embed": {"model": "backbone"},
        "cluster": {"clusters": 250 if sentences >= 1_000_000 else 50},
        "materialize": {"train_tasks": tasks, "validation_tasks": 60},
    }
    stage = silent_stage(name, root, sections, inputs, outputs, Workers())
    start = time.perf_counter()
    record = module.run(stage)
    wall = time.perf_counter() - start
    stage.publish()
    return {"seconds": [wall], "rows": record["rows"]}


def measured(name: str, root: Path, sentences: int) -> Row:
    """Run a stage in a fresh process; return its figures with the peak memory of the process and its workers."""
    command = [sys.executable, __file__, "--once", name, "--root", str(root), "--sentences", str(sentences)]
    usage = Usage(_POLL)
    figures: Row = figures_of(command, usage.watch, OMP_NUM_THREADS="1")
    sizes = {"peak_mb": usage.own / 1e6, "mapped_peak_mb": usage.mapped / 1e6, "peak_without_files": True}
    return figures | {"cpu_seconds": [usage.all_seconds]} | sizes


def report(root: Path, sentences: int, last: str, record: Record) -> None:
    """Make the texts, run the stages in turn until the last one wanted, and keep their figures."""
    megabytes = write_corpus(root, sentences)
    print(f"{sentences:,} sentences, {megabytes:,.0f} MB of text", flush=True)
    for name in STAGES:
        if name == "cluster":
            write_embeddings(root)
        figures = measured(name, root, sentences)
        free = shutil.disk_usage(root).free / 1e9
        print(
            f"  {name:12} {figures['seconds'][0]:8.1f} s   {figures['cpu_seconds'][0]:8.1f} s of processor time   "
            f"{figures['rows']:,} rows   peak {figures['peak_mb']:.0f} MB "
            f"({figures['mapped_peak_mb']:.0f} MB with mapped)   {free:.0f} GB of disk free",
            flush=True,
        )
        record.add(stage=name, sentences=sentences, text_mb=megabytes, **figures)
        if name == last:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--until", choices=STAGES, default="materialize", help="leave out the stages after this one")
    parser.add_argument("--once", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(run_stage(arguments.once, arguments.root, arguments.sentences[0])))
        return
    record = Record(__file__, parser, arguments)
    for sentences in arguments.sentences:
        with tempfile.TemporaryDirectory(prefix="bench_scale_") as folder:
            report(Path(folder), sentences, arguments.until, record)
    record.write()


if __name__ == "__main__":
    main()
