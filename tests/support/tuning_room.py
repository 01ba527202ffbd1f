"""Datasets of made-up sentences, learned prompts, and a workspace in which stage `tune` can be run."""

import random
import shutil

import numpy as np
import orjson
import torch

from model.prompt.regularizer import GradientRegularizer
from storage import paths
from storage.hashing import file_hash
from storage.prompts.prompt_artifact import PromptArtifact, write_prompt
from storage.sources.source import AcquiredSource, SourceFile, write_manifest
from support import tiny_tokenizers
from support.training_room import save_models, workspace_of
from support.vector_corpus import Corpus
from tasks.tune import stage as tune_stage

WIDTH = 16
WORDS = ("river", "city", "council", "market", "bridge", "garden")
INPUTS = [paths.BACKBONE, paths.DATASETS, paths.EMBEDDER, paths.PROMPTS, paths.SHIPPED_PROMPTS]
OUTPUTS = [
    paths.TUNED_PROMPTS,
    paths.COSTS,
    paths.CURVES,
    paths.PREDICTIONS,
    paths.SCORES,
    paths.TESTED_EXAMPLES,
    paths.TUNE_METRICS,
    paths.TUNE_PLOTS,
]
PROTOCOL = {"shots": 4, "seeds": [10, 20], "batch_size": 5, "epochs": 2, "evaluate_every": 2, "max_length": 40}


def furnish(folder, sets=("first",)):
    """Write the models and datasets that tuning reads; return the folder."""
    save_models(folder / "models")
    write_sets(folder / "sets", sets)
    return folder


def tuning_corpus(root, furniture, tune, sets=("first",), metatrain=None):
    """Return a workspace with what `furnish` wrote, and learned prompts if there are any; parameters as few as go."""
    sections = {
        "tune": {"datasets": ["first"]} | PROTOCOL | tune,
        "metatrain": {"template": "sentinel"} | (metatrain or {}),
        "acquire": {"datasets": dict.fromkeys(sets, "path:x")},
    }
    corpus = Corpus(root, sections)
    corpus.link_models(furniture / "models")
    link_sets(root, furniture / "sets", sets)
    if (furniture / "prompt").exists():
        shutil.copytree(furniture / "prompt", root / paths.PROMPTS)
    else:
        (root / paths.PROMPTS).mkdir(parents=True)
    return corpus


def tuning_workspace(folder, api, sets, prompts=()):
    """Return a workspace for real runs whose only stage is tune, with what earlier stages would have left."""
    workspace = workspace_of("tune", folder, api)
    root = workspace.root
    write_sets(root / "sets", sets)
    link_sets(root, root / "sets", sets)
    (root / paths.PROMPTS).mkdir(parents=True)
    for seed, name in enumerate(prompts):
        write_learned(root / paths.PROMPTS / name, 3, seed, regularized=name == "supmer")
    return workspace


def run_tune(corpus, **changes):
    """Run the stage, with changed parameters of `tune`; return its record."""
    return corpus.run(tune_stage, INPUTS, OUTPUTS, tune=changes)


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
