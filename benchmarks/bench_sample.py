"""Measure the speed and memory of the sample stage on a real corpus: `python benchmarks/bench_sample.py`.

A table is printed. Everything is written to a temporary folder and removed. Speeds are in MB of text per second of
processor time (one core), so that other work on the machine has little effect. Runs are interleaved.
"""

import argparse
import hashlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from records import Record
from watched import family, figures_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from stages import SAMPLED  # noqa: E402

from storage import paths  # noqa: E402
from storage.records.documents import read_documents  # noqa: E402
from storage.records.formats import file_kind, is_ignored  # noqa: E402
from storage.records.parts import Part  # noqa: E402
from tasks.params.schema import NearDuplicateParams, Params, SampleParams  # noqa: E402
from tasks.sample import stage as sample  # noqa: E402
from tasks.sample.sentences import sentence_spans  # noqa: E402
from tasks.stage.contract import InlineFanOut, Stage  # noqa: E402

_POLL = 0.02  # seconds between readings of the memory


class Steps:
    """A reporter that keeps the processor time of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def say(self, message: str) -> None:
        """Ignore the message."""

    @contextmanager
    def progress(self, label: str, total: int, unit: str) -> Iterator["Steps"]:
        """Time one step."""
        start = time.process_time()
        yield self
        self.seconds[label] = time.process_time() - start

    def advance(self, amount: int) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


def texts_of(corpus: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(corpus.iterdir()):
        if not is_ignored(path.name):
            for document in read_documents(Part(path, path.name), "text"):
                yield path.name, document.text or ""


def repeat(corpus: Path, target: Path, copies: int) -> None:
    """Write `copies` copies of the corpus, altered so that none is a duplicate of another."""
    for path in sorted(corpus.iterdir()):
        if is_ignored(path.name):
            continue
        kind = file_kind(path.name)
        for copy in range(copies):
            rows = (altered(document.text or "", copy) for document in read_documents(Part(path, path.name), "text"))
            if kind.format == "parquet":
                pq.write_table(pa.table({"text": list(rows)}), target / f"{copy}-{path.name}")
            else:
                plain = path.name.removesuffix(".gz")
                with (target / f"{copy}-{plain}").open("wb") as file:
                    file.writelines(orjson.dumps({"text": text}) + b"\n" for text in rows)


def altered(text: str, copy: int) -> str:
    """Return a text with a third of its words replaced: it costs the same time, but is not a duplicate."""
    if copy == 0:
        return text
    source = random.Random(copy)
    words = text.split(" ")
    for place in range(0, len(words), 3):
        words[place] = words[source.randrange(len(words))]
    return " ".join(words)


def run_stage(corpus: Path, near: bool) -> dict[str, float]:
    """Run the whole stage once in this process, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bench_sample_") as folder:
        root = Path(folder)
        write_manifest(corpus, root)
        steps = Steps()
        params = SampleParams(near_duplicates=NearDuplicateParams(enabled=near))
        stage = Stage(
            name="sample",
            root=root,
            params=Params.model_construct(seed=42, sample=params),
            inputs=[paths.CORPUS, paths.FORGOTTEN],
            outputs=SAMPLED,
            fingerprint="0" * 64,
            code="0" * 64,
            fan_out=InlineFanOut(),
            reporter=steps,
        )
        wall, start = time.perf_counter(), time.process_time()
        record = sample.run(stage)
        spent = {"cpu": time.process_time() - start, "wall": time.perf_counter() - wall}
        return spent | steps.seconds | {"documents": record["documents"], "sentences": record["sentences"]}


def write_manifest(corpus: Path, root: Path) -> None:
    files = []
    for path in sorted(corpus.iterdir()):
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files.append({"name": path.name, "path": str(path.resolve()), "bytes": path.stat().st_size, "sha256": sha256})
    source = {"name": "bench", "spec": "path:.", "licence": "", "folder": str(corpus), "files": files}
    folder = root / paths.CORPUS
    folder.mkdir(parents=True)
    (folder / "source.json").write_bytes(orjson.dumps({"role": "corpus", "sources": [source]}))


def measured(corpus: Path, near: bool) -> dict[str, float]:
    """Run the stage in a fresh process; return its figures with the peak memory of the process and its children."""
    command = [sys.executable, __file__, "--once", "near" if near else "exact", "--corpus", str(corpus)]
    peak = [0]
    figures: dict[str, float] = figures_of(command, lambda pid: _watch(pid, peak), OMP_NUM_THREADS="1")
    return figures | {"peak": peak[0] / 1e6}


def _watch(pid: int, peak: list[int]) -> None:
    for processes in family(pid):
        with suppress(psutil.NoSuchProcess):
            peak[0] = max(peak[0], sum(process.memory_info().rss for process in processes))
        time.sleep(_POLL)


def splitter_seconds(texts: list[str]) -> list[float]:
    seconds = []
    for _ in range(5):
        start = time.process_time()
        for text in texts:
            sentence_spans(text)
        seconds.append(time.process_time() - start)
    return seconds


def line(label: str, megabytes: float, runs: list[dict[str, float]], record: Record) -> None:
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    index, write = middle["sample: index"], middle["sample: write"]
    rest = middle["cpu"] - index - write
    speed = f"{megabytes / middle['cpu']:6.1f} MB/s per core"
    print(
        f"{label:34} {speed}   cpu {middle['cpu']:6.1f} s (index {index:.1f}, select {rest:.1f}, write {write:.1f})"
        f"   wall {middle['wall']:6.1f} s   peak {middle['peak']:5.0f} MB   {middle['sentences']:,.0f} sentences"
    )
    samples = {"cpu_seconds": "cpu", "seconds": "wall", "peak_mb": "peak"}
    row = {name: [run[key] for run in runs] for name, key in samples.items()}
    record.add(way=label.strip(), text_mb=megabytes, sentences=runs[0]["sentences"], **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "data" / "corpus")
    parser.add_argument("--runs", type=int, default=3, help="interleaved runs of the quick measurements")
    parser.add_argument(
        "--copies", type=int, default=10, help="copies of the corpus in the large measurement; 0 skips it"
    )
    parser.add_argument("--once", choices=["near", "exact"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(run_stage(arguments.corpus, arguments.once == "near")))
        return
    if not arguments.corpus.is_dir():
        print(f"{arguments.corpus}: no corpus there: skipped (give one with --corpus)")
        return
    record = Record(__file__, parser, arguments)
    texts = [text for _, text in texts_of(arguments.corpus)]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    seconds = splitter_seconds(texts)
    record.add(way="sentence splitter", text_mb=megabytes, cpu_seconds=seconds)
    speed = megabytes / statistics.median(seconds)
    print(f"{'sentence splitter':34} {speed:6.1f} MB/s per core   {megabytes:.0f} MB of text")
    del texts
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(arguments.runs):
        for near, kept in runs.items():
            kept.append(measured(arguments.corpus, near))
    line("stage, exact duplicates only", megabytes, runs[False], record)
    line("stage, near duplicates too", megabytes, runs[True], record)
    if arguments.copies:
        with tempfile.TemporaryDirectory(prefix="bench_sample_") as folder:
            repeat(arguments.corpus, Path(folder), arguments.copies)
            large = measured(Path(folder), near=True)
        line(f"  the same, {arguments.copies} times the text", megabytes * arguments.copies, [large], record)
        small = statistics.median(run["peak"] for run in runs[True])
        print(f"{'peak memory, large over small':34} {large['peak'] / small:6.2f}")
    record.write()


if __name__ == "__main__":
    main()
