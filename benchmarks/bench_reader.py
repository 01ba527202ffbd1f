"""Compare the speed of the task reader with the speed of a meta step: `python benchmarks/bench_reader.py`.

The meta step is a simple substitute: a frozen 4-layer T5 of width 256 and a prompt of 100 tokens; for each of 4 tasks
one forward and backward pass over 32 support examples, the inner step, and one pass over 32 query examples, each padded
to its longest row (first order, no mixing, no regularizer). Sentences and tokenizer come from a workspace in which
`acquire` and `sample` have run (`--workspace`). The measurements are interleaved. Everything is written to a temporary
folder and removed.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # as `supmer` sets it

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402
from records import Record  # noqa: E402
from transformers import T5Config, T5ForConditionalGeneration  # noqa: E402

from model.text.tokenization import TemplateTokenizer  # noqa: E402
from model.text.tokenized_tasks import pad  # noqa: E402
from storage.parquet import write_shard  # noqa: E402
from storage.tables.task_shards import TaskShards, read_index  # noqa: E402
from tasks.metatrain.task_reader import TaskReader  # noqa: E402

KINDS = {"sp-next": (2, 3), "mc-next": (5, 4), "ss": (1, 4)}  # texts, labels
PROMPT, WIDTH, TASKS = 100, 256, 4
GROUP_TASKS = 64  # tasks per row group, as materialize writes them


def sentences(workspace: Path, count: int) -> list[str]:
    """Return the texts of the first sentences of a corpus."""
    texts: list[str] = []
    for shard in sorted((workspace / "data/corpus/sentences").glob("*.parquet")):
        texts += pq.read_table(shard, columns=["text"]).column(0).to_pylist()
        if len(texts) >= count:
            break
    return texts[:count]


def write_tasks(folder: Path, texts: list[str], tasks: int, size: int) -> None:
    """Write tasks of random sentences in the format of the materialize stage."""
    chance = random.Random(0)
    for kind, (parts, labels) in KINDS.items():
        form = kind[:2]

        def rows(number: int, kind=kind, form=form, parts=parts, labels=labels) -> list[dict]:
            task = f"{form}-train-{number:06d}"
            places = [(role, position) for role in ("support", "query") for position in range(size)]
            return [
                {
                    "task_id": task,
                    "kind": kind,
                    "role": role,
                    "example_id": f"{task}/{role[0]}{position:02d}",
                    "label": position % labels,
                    "labels": labels,
                    "texts": chance.sample(texts, parts),
                    "sentence_ids": [f"{chance.getrandbits(128):032x}:{position}" for _ in range(parts)],
                    "choices": chance.sample(range(250), 4) if form == "ss" else [],
                }
                for role, position in places
            ]

        each = tasks // len(KINDS)
        groups = [range(at, min(at + GROUP_TASKS, each)) for at in range(0, each, GROUP_TASKS)]
        tables = [pa.Table.from_pylist([row for number in group for row in rows(number)]) for group in groups]
        tables = [table.cast(_schema(table.schema)) for table in tables]
        write_shard(folder / f"{form}-train-00000.parquet", tables[0].schema, tables, {})


def _schema(schema: pa.Schema) -> pa.Schema:
    return schema.set(schema.get_field_index("choices"), pa.field("choices", pa.list_(pa.int32())))


def backbone(vocabulary: int) -> T5ForConditionalGeneration:
    """Return a frozen T5 of 4 + 4 layers."""
    torch.manual_seed(0)
    shape = {"d_model": WIDTH, "d_kv": 64, "num_heads": 4, "d_ff": 4 * WIDTH, "num_layers": 4}
    model = T5ForConditionalGeneration(T5Config(vocab_size=vocabulary, decoder_start_token_id=0, **shape))
    return model.eval().requires_grad_(requires_grad=False)


def loss_of(model, prompt, rows):
    """Return the mean loss of some examples with a prompt."""
    padded = pad(rows)
    tokens = model.get_input_embeddings()(torch.from_numpy(padded.input_ids))
    inputs = torch.cat([prompt.expand(len(rows), -1, -1), tokens], dim=1)
    mask = torch.cat([torch.ones(len(rows), PROMPT, dtype=torch.bool), torch.from_numpy(padded.mask)], dim=1)
    return model(inputs_embeds=inputs, attention_mask=mask, labels=torch.from_numpy(padded.target_ids)).loss


def meta_step(model, prompt, tasks) -> None:
    """Take one first-order step, without the optimizer."""
    for task in tasks:
        (inner,) = torch.autograd.grad(loss_of(model, prompt, task.support), prompt)
        adapted = (prompt - 0.1 * inner).detach().requires_grad_()
        torch.autograd.grad(loss_of(model, adapted, task.query), adapted)


def tokens_of(batch) -> int:
    return sum(len(example.input_ids) for task in batch.tasks for example in (*task.support, *task.query))


def timed(work) -> tuple[float, float]:
    """Return the seconds by the clock, and the processor time of all threads."""
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processor


def supply(reader: TaskReader, steps: int) -> tuple[float, float, int]:
    """Return the seconds (clock, processor) and the tokens of reading some batches without using them."""
    total = 0

    def work() -> None:
        nonlocal total
        with reader.stream() as stream:
            total = sum(tokens_of(batch) for batch in islice(stream, steps))

    return (*timed(work), total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, default=ROOT)
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--size", type=int, default=32, help="examples per support set and per query set")
    parser.add_argument("--steps", type=int, default=30, help="batches of 4 tasks to read")
    parser.add_argument("--meta-steps", type=int, default=3, help="meta steps per pass")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--max-length", type=int, default=512)
    options = parser.parse_args()
    texts = sentences(options.workspace, 20_000)
    if not texts:
        raise SystemExit(f"{options.workspace}: no sentences: run `supmer run sample` there, or give --workspace")
    tokenizer = TemplateTokenizer.from_folder(options.workspace / "data/sources/backbone/backbone", options.max_length)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tasks(folder, texts, options.tasks, options.size)
        record = Record(__file__, parser, options)
        report(folder, tokenizer, options, record)
        record.write()


def report(folder: Path, tokenizer: TemplateTokenizer, options: argparse.Namespace, record: Record) -> None:
    """Measure, interleaved, and print the results."""
    print(f"{options.tasks} tasks of 2 × {options.size}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    start = time.perf_counter()
    index = read_index(folder, "train")
    rows = sum(int(starts[-1]) for starts in index.groups)
    print(f"index: {rows:,} rows in {time.perf_counter() - start:.3f} s")
    shards = TaskShards(index, cache_bytes=0)
    cold = [
        timed(lambda number=number: shards.read(number))[0] for number in random.Random(0).sample(range(len(index)), 40)
    ]
    print(f"one task from a row group of {GROUP_TASKS} that is not in memory: {1000 * statistics.median(cold):.1f} ms")
    plain = TaskReader(folder, tokenizer, "sentinel", batch_size=TASKS, prefetch=8)
    mixing = TaskReader(folder, tokenizer, "sentinel", batch_size=TASKS, prefetch=8, partner="same-format")
    model = backbone(32_128)
    prompt = torch.randn(PROMPT, WIDTH, requires_grad=True)
    with plain.stream() as stream:
        ready = [batch.tasks for batch in islice(stream, options.meta_steps)]
    meta_step(model, prompt, ready[0][:1])
    reads, mixed, steps, fed = [], [], [], []
    for _ in range(options.passes):
        reads.append(supply(plain, options.steps))
        mixed.append(supply(mixing, options.steps))
        steps.append(timed(lambda: [meta_step(model, prompt, tasks) for tasks in ready]))
        with mixing.stream() as stream:
            fed.append(timed(lambda: [meta_step(model, prompt, next(stream).tasks) for _ in ready]))
    tasks = TASKS * options.meta_steps
    step, work = (statistics.median(column) / tasks for column in zip(*steps, strict=True))
    print(f"meta step: {1000 * step:.0f} ms per task by the clock, {1000 * work:.0f} ms of processor time")
    for name, runs in (("reader", reads), ("reader with partners", mixed)):
        clock, processor, tokens = (statistics.median(column) for column in zip(*runs, strict=True))
        each = clock / TASKS / options.steps
        own = processor / TASKS / options.steps
        print(
            f"{name}: {1 / each:.1f} tasks/s, {tokens / clock:,.0f} tokens/s, {1000 * own:.0f} ms of processor time "
            f"per task; {step / each:.1f} × as fast as the meta step by the clock, {work / own:.1f} × by processor time"
        )
    counts = {"meta step": tasks, "reader": TASKS * options.steps, "reader with partners": TASKS * options.steps}
    counts["meta step fed by the reader"] = tasks
    for (name, count), runs in zip(counts.items(), (steps, reads, mixed, fed), strict=True):
        record.add(way=name, tasks=count, seconds=[run[0] for run in runs], cpu_seconds=[run[1] for run in runs])
    slower = statistics.median(clock for clock, _ in fed) / tasks / step
    print(f"meta steps fed by the reader with partners: {slower:.2f} × the time with tasks in memory")


if __name__ == "__main__":
    main()
