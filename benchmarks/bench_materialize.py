"""Measure the speed and memory of making anchor tasks: `python benchmarks/bench_materialize.py`.

The corpus is synthetic (documents of 25 sentences, words by Zipf's law, random clusters), with 10 k and 1 M sentences.
The whole stage runs in a fresh process with two worker processes, as in `supmer run` but without Prefect. Wall time is
divided into the pool (DuckDB, once per corpus) and the drawing (aim: 50,000 examples/s on 2 cores). If the machine has
other work, compare the workers' processor time, which gives the speed of a core, including imports. Memory is the peak
of all processes together: `own` is without mapped files, `with mapped` adds the pages of the pool, which the system
takes back when it needs memory.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from records import Record
from watched import Usage, figures_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from storage import paths  # noqa: E402
from tasks.materialize import stage as materialize  # noqa: E402
from tasks.params.schema import MaterializeParams, Params  # noqa: E402
from tasks.stage import workers as pool  # noqa: E402
from tasks.stage.contract import Stage  # noqa: E402

WORKERS = 2
DOCUMENT = 25  # sentences
SHARD_DOCUMENTS = 4_000  # about 12 MB of text
SENTENCES_PER_CLUSTER = 2_000  # of which the 5 % in validation documents must be enough for a task
_POLL = 0.05  # seconds between readings of the memory


class Steps:
    """A reporter that adds up the wall time of the drawing."""

    def __init__(self) -> None:
        self.draw = 0.0

    def say(self, message: str) -> None:
        """Ignore the message."""

    @contextmanager
    def progress(self, label: str, total: int, unit: str) -> Iterator["Steps"]:
        start = time.perf_counter()
        yield self
        self.draw += time.perf_counter() - start

    def advance(self, amount: int) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


class Workers:
    """A fan-out that runs jobs on worker processes."""

    def run(self, step, jobs, finished):
        with pool.worker_processes(WORKERS), ThreadPoolExecutor(WORKERS) as threads:
            for job, record in zip(jobs, threads.map(pool.execute, jobs), strict=True):
                finished(job, record)


def write_corpus(root: Path, sentences: int) -> int:
    """Write the tables of the earlier stages; return the bytes of text."""
    rng = np.random.default_rng(0)
    words = np.array(
        ["".join(chr(97 + letter) for letter in rng.integers(0, 26, size)) for size in rng.integers(2, 11, 20_000)]
    )
    total = 0
    documents = sentences // DOCUMENT
    kinds = max(min(sentences // SENTENCES_PER_CLUSTER, 250), 4)
    for number, first in enumerate(range(0, documents, SHARD_DOCUMENTS)):
        count = min(SHARD_DOCUMENTS, documents - first)
        ids = [f"{place:032x}" for place in rng.permutation(count) + first]
        rows = count * DOCUMENT
        lengths = rng.integers(8, 32, rows)
        chosen = iter(words[np.minimum(rng.zipf(1.3, lengths.sum()) - 1, len(words) - 1)].tolist())
        texts = [" ".join(next(chosen) for _ in range(length)) for length in lengths]
        total += sum(map(len, texts))
        key = {
            "document_id": pa.array(np.repeat(ids, DOCUMENT)),
            "index": pa.array(np.tile(np.arange(DOCUMENT), count), pa.int32()),
        }
        clusters = {name: pa.array(rng.integers(0, kinds, rows), pa.int32()) for name in ("sp", "mc", "ss")}
        split = np.where(np.arange(count) % 20 == 0, "validation", "train")
        tables = {
            paths.DOCUMENTS: {"document_id": pa.array(ids), "split": pa.array(split)},
            paths.SENTENCES: key | {"text": pa.array(texts)},
            paths.ASSIGNMENTS: key | clusters,
        }
        for folder, columns in tables.items():
            (root / folder).mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(columns), root / folder / f"bench--{number:05d}.parquet", compression="zstd")
    return total


def run_stage(root: Path, tasks: int, size: int) -> dict[str, float]:
    """Run the whole stage once."""
    steps = Steps()
    params = MaterializeParams(
        support_size=size, query_size=size, train_tasks=tasks, validation_tasks=max(tasks // 100, 3)
    )
    stage = Stage(
        name="materialize",
        root=root,
        params=Params.model_construct(seed=42, materialize=params),
        inputs=[paths.ASSIGNMENTS, paths.DOCUMENTS, paths.SENTENCES],
        outputs=[paths.TASKS, paths.MATERIALIZE_METRICS],
        fingerprint="0" * 64,
        code=str(time.time_ns()),
        fan_out=Workers(),
        reporter=steps,
    )
    start = time.perf_counter()
    record = materialize.run(stage)
    return {"wall": time.perf_counter() - start, "draw": steps.draw, "examples": record["examples"]}


def measured(root: Path, tasks: int, size: int) -> dict[str, float]:
    """Run the stage in a fresh process; return its figures with the peak memory of the process and its children."""
    command = [sys.executable, __file__, "--once", str(root), "--tasks", str(tasks), "--size", str(size)]
    usage = Usage(_POLL)
    figures: dict[str, float] = figures_of(command, usage.watch)
    spent = {"workers": usage.all_seconds - usage.main_seconds, "main": usage.main_seconds}
    return figures | {"own": usage.own / 1e6, "mapped": usage.mapped / 1e6} | spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--tasks", type=int, default=12_000, help="training tasks, evenly divided over the formats")
    parser.add_argument("--size", type=int, default=32, help="examples per set")
    parser.add_argument("--quick", action="store_true", help="10,000 sentences and 3,000 tasks")
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(run_stage(arguments.once, arguments.tasks, arguments.size)))
        return
    record = Record(__file__, parser, arguments)
    if arguments.quick:
        arguments.sentences, arguments.tasks = [10_000], 3_000
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for sentences in arguments.sentences:
        with tempfile.TemporaryDirectory(prefix="bench_materialize_") as folder:
            record.add(**report(Path(folder), sentences, arguments.tasks, arguments.size))
    record.write()


def report(root: Path, sentences: int, tasks: int, size: int) -> dict[str, object]:
    megabytes = write_corpus(root, sentences) / 1e6
    run = measured(root, tasks, size)
    before = run["wall"] - run["draw"]
    examples = run["examples"]
    print(f"{sentences:>9,} sentences, {megabytes:.0f} MB of text")
    print(f"          pool       {before:6.1f} s   {sentences / before:,.0f} sentences/s")
    print(f"          draw       {run['draw']:6.1f} s   {examples:,.0f} examples, {examples / run['draw']:,.0f}/s")
    cores = f"{examples / run['workers']:,.0f} examples/s per core"
    print(f"          workers    {run['workers']:6.1f} s of processor time   {cores}")
    print(f"          main       {run['main']:6.1f} s of processor time, most of it for the pool")
    print(f"          stage      {run['wall']:6.1f} s   {examples / run['wall']:,.0f} examples/s")
    print(f"          peak       {run['own']:6.0f} MB own, {run['mapped']:.0f} MB with mapped")
    row = {"sentences": sentences, "text_mb": megabytes, "examples": examples, "seconds": [run["wall"]]}
    row |= {"draw_seconds": [run["draw"]], "worker_cpu_seconds": [run["workers"]], "main_cpu_seconds": [run["main"]]}
    return row | {"peak_mb": run["own"], "mapped_peak_mb": run["mapped"]}


if __name__ == "__main__":
    main()
