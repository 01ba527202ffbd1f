"""Compare the embed stage, with Prefect, with a bare SentenceTransformer.encode of the same sentences.

Run: python benchmarks/bench_embed.py [--embedder FOLDER] [--sentences FOLDER] [--shards 4] [--rows 500] [--rounds 3]
Both embed the same shards, alternately and several times; the medians are compared. The stage reads Parquet, embeds in
worker processes through Prefect and writes Parquet. `encode` gets all sentences at once, with the model's default batch
and all cores, and writes nothing. Loading the model and starting Prefect are not timed for either.

`--precision` compares encoders in float32 and bfloat16 instead: the embedder, and the backbone by this project's pass
and by transformers'. They take turns in one process with one thread; the medians are of processor time. Without units
for bfloat16, only float32 is measured.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from records import Record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from storage import paths  # noqa: E402
from storage.hashing import file_hash  # noqa: E402
from storage.sources.source import AcquiredSource, SourceFile, write_manifest  # noqa: E402
from tasks.embed import stage as embed  # noqa: E402
from tasks.params.schema import EmbedParams, Params  # noqa: E402
from tasks.stage.contract import SilentReporter, Stage  # noqa: E402

SOURCE = "data/sources/embedder"


def lay_out(scratch, embedder, sentences, shards, rows):
    """Make a workspace with the embedder and the first rows of some shards; return the texts."""
    names = sorted(path.relative_to(embedder).as_posix() for path in embedder.rglob("*") if path.is_file())
    files = tuple(SourceFile(name, "", 0, file_hash(embedder / name)) for name in names)
    source = AcquiredSource("embedder", "path:embedder", "", str(embedder.resolve()), files)
    write_manifest(scratch / SOURCE, "embedder", [source])
    folder = scratch / paths.SENTENCES
    folder.mkdir(parents=True)
    texts = []
    files_there = sorted(sentences.glob("*.parquet"))
    for number in range(shards):
        table = pq.read_table(files_there[number % len(files_there)]).slice(number // len(files_there) * rows, rows)
        pq.write_table(table, folder / f"{number:05d}.parquet")
        texts += table["text"].to_pylist()
    return texts


def stage_seconds(scratch, workers, round_number):
    from prefect.task_runners import ThreadPoolTaskRunner

    from tasks.stage.fanout import PrefectFanOut

    stage = Stage(
        name="embed",
        root=scratch,
        params=Params.model_construct(embed=EmbedParams(model="embedder", precision="float32")),
        inputs=(paths.SENTENCES, SOURCE),
        outputs=(paths.EMBEDDINGS,),
        fingerprint="0" * 64,
        code=f"round-{round_number}",  # a new key, so that no shard of an earlier round counts as done
        fan_out=PrefectFanOut(ThreadPoolTaskRunner(max_workers=workers)),
        reporter=SilentReporter(),
    )
    start = time.perf_counter()
    stage.start()
    embed.run(stage)
    stage.publish()
    return time.perf_counter() - start


def compare(scratch, texts, embedder, workers, rounds):
    from sentence_transformers import SentenceTransformer

    from flows.server import prefect_home
    from flows.server.run_server import await_server, start_server
    from tasks.stage.workers import worker_processes

    prefect_home.prepare(scratch)
    server = start_server(scratch, scratch / "server.log")
    await_server(server, scratch / "server.log")
    model = SentenceTransformer(str(embedder), device="cpu", local_files_only=True)
    model.encode(texts[:32], show_progress_bar=False)
    bare, staged = [], []
    with worker_processes(workers):
        stage_seconds(scratch, workers, "warm")
        for index in range(rounds):
            start = time.perf_counter()
            model.encode(texts, show_progress_bar=False)
            bare.append(time.perf_counter() - start)
            staged.append(stage_seconds(scratch, workers, index))
    return bare, staged


class TransformersEncoder:
    """The backbone's encoder by transformers' own forward pass, in float32."""

    def __init__(self, folder):
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True)
        self._encoder, self.dimension = model.get_encoder().eval(), model.config.hidden_size

    def lengths(self, texts):
        return [len(ids) for ids in self._tokenizer(list(texts)).input_ids]

    def forward(self, texts):
        tokens = self._tokenizer(list(texts), padding=True, return_tensors="pt")
        mask = tokens.attention_mask.unsqueeze(-1)
        return (self._encoder(**tokens).last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)


def compare_precisions(embedder, backbone, texts, rounds, record):
    import numpy as np
    import torch

    from model.sentence_encoder import BackboneEncoder, SentenceEncoder, encode
    from model.t5.precision import bfloat16_units

    torch.set_num_threads(1)
    cpu, plain = torch.device("cpu"), "backbone, transformers"
    encoders = {plain: TransformersEncoder(backbone)}
    for precision in ("float32", "bfloat16") if bfloat16_units(cpu) else ("float32",):
        encoders[f"backbone, {precision}"] = BackboneEncoder(backbone, cpu, precision)
        encoders[f"embedder, {precision}"] = SentenceEncoder(embedder, cpu, precision)
    taken, vectors = {name: [] for name in encoders}, {}
    for _ in range(rounds + 1):
        for name, encoder in encoders.items():
            start, processor = time.perf_counter(), time.process_time()
            vectors[name] = encode(encoder, texts)
            taken[name].append((time.perf_counter() - start, time.process_time() - processor))
    samples = {name: list(zip(*runs[1:], strict=True)) for name, runs in taken.items()}  # the first makes kernels
    medians = {name: statistics.median(cpu) for name, (_, cpu) in samples.items()}
    print(f"{len(texts):,} sentences, one thread, medians of {rounds} rounds of processor time")
    for name, seconds in sorted(medians.items()):
        base = plain if name.startswith("backbone") else "embedder, float32"
        exact = vectors[base]
        norms = np.linalg.norm(vectors[name], axis=1) * np.linalg.norm(exact, axis=1)
        cosine = ((vectors[name] * exact).sum(1) / norms).min()
        print(
            f"  {name:24} {len(texts) / seconds:8.1f} sentences/s, {medians[base] / seconds:5.2f} × {base}, "
            f"lowest cosine {cosine:.5f}"
        )
        clock, cpu = samples[name]
        precision = "bfloat16" if name.endswith("bfloat16") else "float32"
        figures = {"seconds": clock, "cpu_seconds": cpu, "cosine": float(cosine)}
        record.add(way=name, sentences=len(texts), precision=precision, **figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", type=Path, default=ROOT / "data/sources/embedder/embedder")
    parser.add_argument("--sentences", type=Path, default=ROOT / paths.SENTENCES)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rows", type=int, default=500, help="sentences per shard")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", action="store_true", help="compare float32 and bfloat16 instead")
    parser.add_argument("--backbone", type=Path, default=ROOT / "data/sources/backbone/backbone")
    arguments = parser.parse_args()
    if not arguments.embedder.is_dir() or not any(arguments.sentences.glob("*.parquet")):
        print("skipped: run `supmer run sample` first, or give --embedder and --sentences")
        return
    record = Record(__file__, parser, arguments)
    if arguments.precision:
        files = sorted(arguments.sentences.glob("*.parquet"))[: arguments.shards]
        texts = [text for file in files for text in pq.read_table(file)["text"].to_pylist()[: arguments.rows]]
        compare_precisions(arguments.embedder, arguments.backbone, texts, arguments.rounds, record)
        record.write()
        return
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="bench_embed_") as scratch:
        texts = lay_out(Path(scratch), arguments.embedder, arguments.sentences, arguments.shards, arguments.rows)
        samples = compare(Path(scratch), texts, arguments.embedder, workers, arguments.rounds)
    for way, seconds in zip(("SentenceTransformer.encode", "the stage, with Prefect"), samples, strict=True):
        record.add(way=way, sentences=len(texts), seconds=seconds)
    record.write()
    bare, staged = map(statistics.median, samples)
    load = os.getloadavg()[0]
    print(
        f"{len(texts):,} sentences, {arguments.shards} shards, {workers} workers, medians of {arguments.rounds} rounds"
    )
    print(f"  SentenceTransformer.encode   {len(texts) / bare:8.1f} sentences/s")
    print(f"  the stage, with Prefect      {len(texts) / staged:8.1f} sentences/s   {bare / staged:.2f} x (aim: 1.1)")
    print(f"  load average at the end {load:.1f}")


if __name__ == "__main__":
    main()
