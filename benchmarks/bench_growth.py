"""Measure how the time of each stage grows from 10 MB to 100 MB of text.

Run: python benchmarks/bench_growth.py --corpus FOLDER
The aim is linear growth: ten times the time for ten times the text. The corpus is real and the models are tiny, because
this measures the pipeline, whose time must not grow faster than the text, and not the models, whose cost is per
sentence. The number of tasks grows with the text. Every stage runs in this process on one core, and its processor time
is measured, so that other work on the machine has little effect. Everything is written to a temporary folder and
removed.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import orjson
import torch
from bench_sample import texts_of, write_manifest
from records import Record
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from stages import SAMPLED, silent_stage  # noqa: E402

from storage import paths  # noqa: E402
from storage.hashing import file_hash  # noqa: E402
from storage.sources.source import AcquiredSource, SourceFile  # noqa: E402
from storage.sources.source import write_manifest as write_sources  # noqa: E402
from tasks.cluster import stage as cluster  # noqa: E402
from tasks.embed import stage as embed  # noqa: E402
from tasks.materialize import stage as materialize  # noqa: E402
from tasks.sample import stage as sample  # noqa: E402
from tasks.stage.contract import InlineFanOut  # noqa: E402

SIZES = (10, 100)  # MB of text
TASKS_PER_MB = 100
MODELS = [paths.BACKBONE, paths.EMBEDDER]
STAGES = {
    "sample": (sample, [paths.CORPUS, paths.FORGOTTEN], SAMPLED),
    "embed": (embed, [paths.SENTENCES, *MODELS], [paths.EMBEDDINGS]),
    "cluster": (
        cluster,
        ["data/corpus", paths.EMBEDDINGS, *MODELS],
        [
            *(f"data/clusters/{name}" for name in ("assignments", "centroids", "nearest")),
            "data/metrics/cluster.json",
            "data/plots/cluster_sizes.csv",
        ],
    ),
    "materialize": (
        materialize,
        ["data/clusters", "data/corpus", paths.DATASETS, *MODELS],
        [paths.TASKS, paths.MATERIALIZE_METRICS],
    ),
}


def save_tokenizer(folder: Path) -> None:
    words = {word: number for number, word in enumerate(("<pad>", "</s>", "<unk>", "the", "of", "and", "to", "in"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106 - a word, no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    inputs = ["input_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **named).save_pretrained(folder)


def furnish(root: Path) -> None:
    """Write tiny models where `acquire` would put real ones."""
    torch.manual_seed(0)
    t5 = T5Config(vocab_size=20, d_model=16, d_kv=4, d_ff=16, num_heads=2, num_layers=1, decoder_start_token_id=0)
    bert = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = {
        "backbone": T5ForConditionalGeneration(t5),
        "embedder": BertModel(BertConfig(**bert, intermediate_size=16, max_position_embeddings=64)),
    }
    for role, model in made.items():
        folder = root / "data" / "sources" / role / role
        model.save_pretrained(folder)
        save_tokenizer(folder)
        files = [SourceFile(path.name, "", 1, file_hash(path)) for path in sorted(folder.iterdir())]
        source = AcquiredSource(role, "path:x", "", f"data/sources/{role}/{role}", tuple(files))
        write_sources(folder.parent, role, [source])
    write_sources(root / paths.DATASETS, "datasets", [])


def write_corpus(corpus: Path, folder: Path, megabytes: int) -> float:
    """Write every document of a corpus, or every tenth, to JSON lines files of 5 MB; return the MB of text written."""
    every = max(SIZES) // megabytes
    folder.mkdir(parents=True)
    size, file, number = 0, None, 0
    for place, (_, text) in enumerate(texts_of(corpus)):
        if place % every or size >= megabytes * 1e6:
            continue
        if file is None or file.tell() > 5e6:
            if file:
                file.close()
            file = (folder / f"{number:03d}.jsonl").open("wb")
            number += 1
        file.write(orjson.dumps({"text": text}) + b"\n")
        size += len(text.encode())
    if file:
        file.close()
    return size / 1e6


def seconds_of(root: Path, megabytes: int) -> dict[str, tuple[float, int]]:
    """Return the processor time and the rows of every stage."""
    sections = {
        "acquire": {"backbone": "hf:a/b", "embedder": "hf:a/b", "corpus": {"own": "path:x"}},
        "sample": {"budget_mb": 1e6, "shard_mb": 4},
        "cluster": {"clusters": 100, "backbone_sentences": 64},
        "materialize": {
            "train_tasks": TASKS_PER_MB * megabytes,
            "validation_tasks": 30,
            "support_size": 16,
            "query_size": 16,
        },
    }
    measured = {}
    for name, (module, inputs, outputs) in STAGES.items():
        stage = silent_stage(name, root, sections, inputs, outputs, InlineFanOut())
        start = time.process_time()
        record = module.run(stage)
        measured[name] = (time.process_time() - start, int(record.get("rows") or record.get("sentences") or 0))
        stage.publish()
        print(f"  {megabytes} MB: {name} {measured[name][0]:.1f} s, {measured[name][1]:,} rows", flush=True)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="a folder of text files, 100 MB of text or more")
    options = parser.parse_args()
    torch.set_num_threads(1)
    record = Record(__file__, parser, options)
    measured, sizes = {}, {}
    for megabytes in SIZES:
        with tempfile.TemporaryDirectory(prefix="bench_growth_") as folder:
            root = Path(folder)
            sizes[megabytes] = write_corpus(options.corpus, root / "texts", megabytes)
            write_manifest(root / "texts", root)
            furnish(root)
            measured[megabytes] = seconds_of(root, megabytes)
    small, large = (sizes[megabytes] for megabytes in SIZES)
    print(f"{small:.1f} MB → {large:.1f} MB of text, × {large / small:.1f}")
    for name in STAGES:
        (before, _), (after, _) = (measured[megabytes][name] for megabytes in SIZES)
        print(f"{name:12} {before:7.1f} s → {after:7.1f} s of processor time, × {after / before:.1f}")
        for megabytes in SIZES:
            seconds, rows = measured[megabytes][name]
            record.add(stage=name, text_mb=sizes[megabytes], rows=rows, cpu_seconds=[seconds])
    record.write()


if __name__ == "__main__":
    main()
