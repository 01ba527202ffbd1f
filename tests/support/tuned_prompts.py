"""A tiny backbone with a trained tokenizer, and folders with prompts tuned for it."""

import json

import numpy as np
import torch
from transformers import T5Config, T5ForConditionalGeneration

from storage.hashing import file_hash, json_hash
from storage.prompts.prompt_artifact import PromptArtifact, write_prompt
from storage.sources.source import AcquiredSource, SourceFile, write_manifest
from storage.vectors.sentence_vectors import model_hash
from support.tiny_tokenizers import unigram

WIDTH = 16
TEXTS = ["the river and the city council", "winter morning", "music of the garden, a letter: yes", "no"]
SENTIMENT = {
    "dataset": "movies",
    "fields": ["text"],
    "labels": ["negative", "positive"],
    "words": ["no", "yes"],
    "template": "{text} Answer: <X>.",
    "form": "sentinel",
    "max_length": 24,
}
PAIR = {
    "dataset": "pairs",
    "fields": ["sentence1", "sentence2"],
    "labels": ["entailment", "neutral", "contradiction"],
    "words": ["yes", "maybe", "no of the river"],
    "template": "{sentence1} Which question? {sentence2} Answer:",
    "form": "instruction",
    "max_length": 32,
}


def save_backbone(folder, seed=9, width=WIDTH):
    """Save a random T5 for the tokenizer and return the folder; with seed 9 its answer depends on the text."""
    tokenizer = unigram()
    torch.manual_seed(seed)
    shape = {"d_model": width, "d_kv": 4, "d_ff": 32, "num_heads": 4, "num_layers": 2, "vocab_size": len(tokenizer)}
    form = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    model = T5ForConditionalGeneration(T5Config(**shape, **form, decoder_start_token_id=0, pad_token_id=0))
    with torch.no_grad():
        model.lm_head.weight.normal_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def folder_hash(folder):
    """Return the value of `model_hash` for the files of a folder."""
    return json_hash(sorted([path.name, file_hash(path)] for path in folder.iterdir()))


def save_prompt(folder, backbone, downstream=SENTIMENT, tokens=4, width=WIDTH, source="hf:org/tiny-t5@abc"):
    """Write the folder of a prompt as the tune stage does, and return the folder."""
    prompt = np.random.default_rng(1).normal(size=(tokens, width)).astype(np.float32)
    about = {}
    if downstream:
        made_for = {"source": source, "hash": folder_hash(backbone)}
        about = {"downstream": downstream | {"shots": 16, "seed": 10, "learning_rate": 0.3, "backbone": made_for}}
    write_prompt(folder, PromptArtifact(prompt, {}, about), "# a card\n")
    return folder


def acquire_backbone(root, backbone):
    """Make `root` a workspace whose acquired backbone is the folder `backbone`, and return `root`."""
    files = [
        SourceFile(path.name, str(path), path.stat().st_size, file_hash(path)) for path in sorted(backbone.iterdir())
    ]
    source = AcquiredSource("backbone", f"path:{backbone}", "unknown", str(backbone), tuple(files))
    write_manifest(root / "data/sources/backbone", "backbone", [source])
    assert model_hash(source) == folder_hash(backbone)
    return root


def change_config(folder, change):
    """Edit a prompt's config.json."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
