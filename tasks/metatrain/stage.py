"""Stage `metatrain`: learn a prompt initialization θ* and a gradient regularizer φ* from the tasks, for each variant.

A variant is a shard of minutes to days. It keeps checkpoints and resumes from them after any interruption; its result
is the same, byte for byte, as that of an undisturbed run on the same device.
"""

import os
from contextlib import nullcontext
from pathlib import Path

import orjson
from pyarrow import csv

from storage import paths
from storage.atomic import replacing_file, write_bytes
from storage.file_lock import turn
from storage.parquet import write_shard
from storage.prompts.prompt_artifact import PromptArtifact, write_prompt
from storage.sources.source import AcquiredSource, read_manifest
from storage.tables.task_shards import read_index
from storage.tables.training_log import STEPS, VALIDATION, best_kinds, kind_table, step_table, validation_table
from storage.vectors.sentence_vectors import file_hashes, model_hash
from tasks.cards.prompt_card import prompt_card
from tasks.metatrain.variants import Training, trainings
from tasks.stage.contract import RANKS, SHARD_STORE, Record, Shard, Stage
from tasks.stage.nodes import GROUP, Group
from tasks.stage.precision import say_restarts, stage_precision

WORK = SHARD_STORE / "metatrain" / "checkpoints"  # in the shard store, which drops unfinished work no longer wanted
HINTS = ("threads", "checkpoint_steps", "checkpoint_seconds", "chunk_tokens", "gradient_checkpointing")
_STEPS, _VALIDATION, _KINDS = "steps.parquet", "validation.parquet", "kinds.parquet"
_CURVE, _PROMPT = "curve.csv", "prompt"


def run(stage: Stage) -> Record:
    """Train every variant as a shard of its own, so that adding a variant trains only that one."""
    source = read_manifest(stage.input(paths.BACKBONE))[0]
    examples = int(read_index(stage.input(paths.TASKS), "train").rows[0])
    precision = stage_precision(stage, stage.params.metatrain.precision)
    wanted = trainings(stage.params.metatrain, examples, precision)
    shards = [_shard(stage, source, training, len(wanted)) for training in wanted]
    say_restarts(stage, "train", train_variant, shards, stage.root / WORK, "training")
    results = stage.map("train", train_variant, shards, "steps", live=True)
    summary: Record = {}
    for result in results:
        name = result.shard.name
        for file in result.record["files"]:
            stage.adopt(result, f"{_PROMPT}/{file}", paths.PROMPTS, f"{name}/{file}")
        stage.adopt(result, _STEPS, paths.TRAINING_STEPS, f"{name}.parquet")
        stage.adopt(result, _VALIDATION, paths.HELD_OUT, f"{name}.parquet")
        stage.adopt(result, _KINDS, paths.KINDS, f"{name}.parquet")
        stage.adopt(result, _CURVE, paths.METATRAIN_PLOTS, f"{name}.csv")
        summary[name] = {key: value for key, value in result.record.items() if key != "files"}
    write_bytes(
        stage.output(paths.METATRAIN_METRICS),
        orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE),
    )
    return {"rows": sum(record["steps"] for record in summary.values()), "precision": precision} | summary


def _shard(stage: Stage, source: AcquiredSource, training: Training, side_by_side: int) -> Shard:
    """Return a variant as a shard: everything it depends on, and as hints where that lies and how it is computed."""
    params, tasks = stage.params.metatrain, stage.input(paths.TASKS)
    content = {split: read_index(tasks, split, training.formats).fingerprint() for split in ("train", "validation")}
    centroids = sorted(stage.input(paths.CENTROIDS).glob("*.parquet"))
    payload = {
        "training": training.to_json(),
        "seed": stage.params.seed,
        "tasks": content,
        "backbone": {"source": source.spec.partition("#")[0], "hash": model_hash(source)},
        "centroids": file_hashes(centroids),
    }
    hint = {
        "paths": {
            "tasks": str(tasks),
            "backbone": str(stage.root / source.folder),
            "centroids": str(stage.input(paths.CENTROIDS)),
        },
        "work": str(stage.root / WORK),
        "ranks": os.environ.get(RANKS, ""),
        "group": os.environ.get(GROUP, ""),
        "threads": max(len(os.sched_getaffinity(0)) // side_by_side, 1),
        "checkpoint_steps": params.checkpoint_steps,
        "checkpoint_seconds": params.checkpoint_seconds,
        "chunk_tokens": params.chunk_tokens,
        "gradient_checkpointing": params.gradient_checkpointing,
    }
    return Shard(training.variant, payload, training.steps, hint)


def train_variant(payload: Record, folder: Path) -> Record:
    """Train one variant in this process or on several ranks, and write its prompt and its log."""
    from tasks.stage.progress import say, tell

    variant = str(payload["training"]["variant"])
    tell(folder, 0, f"{variant}: loading torch and the backbone")
    import torch

    from model.device import device, leave_gpu
    from model.meta.held_out import KindScores, chance_warning
    from model.meta.ranks import Ranks
    from tasks.metatrain.torchrun import train_on_ranks
    from tasks.metatrain.training import Job, train
    from tasks.stage.torchrun import rank_count

    key = folder.name.partition(".partial-")[0]
    settings = {name: payload[name] for name in ("training", "seed", *HINTS)} | payload["paths"]
    job = Job.from_json(settings | {"key": key, "work": str(Path(payload["work"], key))})
    gpus = torch.cuda.device_count()
    ranks, group = rank_count(payload["ranks"], gpus), Group.of(payload["group"])
    # A training uses every GPU and node, so variants take turns; and only one process at a time trains in a folder.
    shared = gpus or group
    with turn(Path(payload["work"], "gpus.turn")) if shared else nullcontext(), turn(job.work / "turn"):
        if ranks > 1 or group:
            trained = train_on_ranks(job, ranks, folder, group)
        else:
            trained = train(job, Ranks(), lambda done, note: tell(folder, done, note), lambda line: say(folder, line))
        leave_gpu(device())
    _write_log(folder, payload, job.work)
    kinds = best_kinds(job.work / VALIDATION)
    warning = chance_warning(job.training.variant, [KindScores.from_json(kind) for kind in kinds])
    if warning:
        say(folder, warning)
    record: Record = {
        "held_out_loss": trained.best.loss,
        "start_loss": trained.start_loss,
        "best_step": trained.best.step,
        "steps": trained.steps,
        "kinds": kinds,
    }
    prompt = trained.arrays.pop("prompt")
    about = {key: payload[key] for key in ("training", "seed", "tasks", "backbone")} | {"result": record}
    write_prompt(folder / _PROMPT, PromptArtifact(prompt, trained.arrays, about), prompt_card(about, prompt.shape))
    return record | {"files": sorted(path.name for path in (folder / _PROMPT).iterdir())}


def _write_log(folder: Path, payload: Record, work: Path) -> None:
    """Write the log as Parquet, and as a file that `dvc plots` reads."""
    variant = payload["training"]["variant"]
    origin = {"stage": "metatrain", "variant": variant, "seed": payload["seed"]}
    steps = step_table(work / STEPS, variant)
    tables = {_STEPS: steps, _VALIDATION: validation_table(work / VALIDATION, variant)}
    for name, table in (tables | {_KINDS: kind_table(work / VALIDATION, variant)}).items():
        write_shard(folder / name, table.schema, [table], origin)
    with replacing_file(folder / _CURVE) as beside:
        csv.write_csv(steps.drop_columns(["variant"]), beside)
