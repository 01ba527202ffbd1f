"""Labeled sets of made-up sentences and learned prompts, for the tests of tuning."""

import random

import numpy as np
import orjson
import torch

from model.prompt.regularizer import GradientRegularizer
from storage.hashing import file_hash
from storage.prompts.prompt_artifact import PromptArtifact, write_prompt
from storage.sources.source import AcquiredSource, SourceFile, write_manifest
from support import tiny_tokenizers

WIDTH = 16
WORDS = ("river", "city", "council", "market", "bridge", "garden")


def write_rows(path, count, seed, labels=2, pairs=False):
    """Write sentences that begin with the word of their label."""
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        label = number % labels
        text = f"{WORDS[label]} {tiny_tokenizers.sentence(chance, chance.randint(3, 9))} {seed} {number}"
        texts = {"sentence1": text, "sentence2": tiny_tokenizers.sentence(chance)} if pairs else {"text": text}
        lines.append(orjson.dumps(texts | {"label": label}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines) + b"\n")


def write_sets(folder, names, labels=2, pairs=False):
    """Write a folder with train and test files for each name."""
    for place, name in enumerate(names):
        write_rows(folder / name / "train.jsonl", 24, f"{name}-{place}", labels, pairs)
        write_rows(folder / name / "test.jsonl", 10, f"{name}-{place}-test", labels, pairs)


def link_sets(root, folder, names):
    """Write the manifest that the acquire stage would write for the sets."""
    sources = []
    for name in names:
        files = [
            SourceFile(
                file, str(folder / name / file), (folder / name / file).stat().st_size, file_hash(folder / name / file)
            )
            for file in ("test.jsonl", "train.jsonl")
        ]
        sources.append(AcquiredSource(name, f"path:{folder / name}", "", str(folder / name), tuple(files)))
    write_manifest(root / "data/sources/datasets", "datasets", sources)


def write_learned(folder, tokens, seed, *, regularized):
    """Write a prompt as meta-training does; if `regularized`, with a regularizer that is not the identity."""
    torch.manual_seed(seed)
    prompt = torch.randn(tokens, WIDTH).numpy()
    held = {}
    if regularized:
        regularizer = GradientRegularizer(WIDTH, 4)
        with torch.no_grad():
            regularizer.up.normal_()
        held = {name: np.array(value.numpy()) for name, value in regularizer.state_dict().items()}
    write_prompt(folder, PromptArtifact(prompt, held, {}), "# a prompt\n")
