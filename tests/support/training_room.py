"""A tiny backbone, made-up tasks and centroids, and trainings that use them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from transformers import T5Config, T5ForConditionalGeneration

from storage import paths
from storage.parquet import write_shard
from storage.tables.cluster_tables import CENTROID_VECTORS, centroids_schema
from storage.vectors.sentence_vectors import vector_array
from support import tiny_tokenizers
from support.task_tables import write_tasks
from support.vector_corpus import Corpus
from support.workspaces import Workspace, lay_out
from tasks.metatrain.training import Job
from tasks.metatrain.variants import trainings
from tasks.params.learning_schema import MetatrainParams

WIDTH = 16
COUNTS = {"sp-next": 6, "sp-cluster": 6, "mc-next": 6, "ss": 6}
RUN_SETTINGS = (  # of a short training by `supmer run`, on the paper's tasks and with its objective from the start
    "metatrain.template=sentinel",
    "metatrain.formats=[sp, mc, ss]",
    "metatrain.rewritten_formats=[]",
    "metatrain.plain_steps=0",
    "metatrain.prompt_tokens=3",
    "metatrain.steps=24",
    "metatrain.validate_every=12",
    "metatrain.checkpoint_steps=4",
    "metatrain.max_length=64",
    "metatrain.regularizer.rank=4",
)


def save_models(folder):
    """Save the same model as `backbone` and as `embedder`; return the folder."""
    for role in ("backbone", "embedder"):
        save_backbone(folder / role)
    return folder


def save_backbone(folder, **changes):
    """Save a random T5 with strong cross-attention and a tokenizer that has the sentinels; return the folder."""
    tokenizer = tiny_tokenizers.unigram()
    torch.manual_seed(0)
    shape = {"d_model": WIDTH, "d_kv": 4, "d_ff": 32, "num_heads": 4, "num_layers": 2} | changes
    config = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, pad_token_id=0, **shape)
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for block in model.decoder.block:
            for layer in (block.layer[1].EncDecAttention.v, block.layer[1].EncDecAttention.o):
                layer.weight.mul_(4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_centroids(folder, clusters=20):
    vectors = np.random.default_rng(0).standard_normal((clusters, WIDTH)).astype(np.float32)
    schema, column = centroids_schema(WIDTH, WIDTH), vector_array(vectors)
    sizes = [9] * clusters
    columns = [["ss"] * clusters, list(range(clusters)), sizes, sizes, [[]] * clusters, column, column]
    table = pa.table(columns, schema=schema)
    write_shard(folder / "centroids.parquet", schema, [table], {"stage": "cluster"}, vectors=CENTROID_VECTORS)


def workspace_of(stage, folder, api):
    """Return a workspace for real runs in `folder` whose only stage is `stage`, with models but no data."""
    root, models = folder / "workspace", save_models(folder / "models")
    root.mkdir()
    lay_out(root, models, [stage])
    Corpus(root, {}).link_models(models)
    workspace = Workspace(root, api)
    workspace.git("init", "--quiet")
    return workspace


def training_workspace(folder, api):
    """Return a workspace for real runs whose only stage is metatrain, with what earlier stages would have left."""
    workspace = workspace_of("metatrain", folder, api)
    for split in ("train", "validation"):
        write_tasks(workspace.root / paths.TASKS, COUNTS, split)
    write_centroids(workspace.root / paths.CENTROIDS)
    return workspace


def furnish(root, support=4, query=4):
    """Write everything that a training reads to `root`, and return `root`."""
    save_backbone(root / "backbone")
    write_centroids(root / "centroids")
    for split in ("train", "validation"):
        write_tasks(root / "tasks", COUNTS, split, support=support, query=query)
    return root


def metatrain_params(**changes):
    small = {"prompt_tokens": 3, "steps": 12, "validate_every": 4, "max_length": 64, "template": "sentinel"}
    section = small | {"regularizer": {"rank": 4}, "inner": {"form": "rms"}, "initialization": "normal"} | changes
    return MetatrainParams.model_validate(section)


def job(root: Path, work: Path, **changes):
    """Return the job of training one variant, with a checkpoint every three steps; in float32 unless it is changed."""
    own = {
        name: changes.pop(name) for name in ("key", "checkpoint_steps", "chunk_tokens", "threads") if name in changes
    }
    training = trainings(metatrain_params(**changes), 8, changes.get("precision") or "float32")[0]
    made = Job(
        training=training,
        seed=5,
        key="key",
        tasks=root / "tasks",
        backbone=root / "backbone",
        centroids=root / "centroids",
        work=work,
        threads=1,
        checkpoint_steps=3,
        checkpoint_seconds=1e6,
        chunk_tokens=None,
        gradient_checkpointing=False,
    )
    return replace(made, **own)
