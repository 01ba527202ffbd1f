"""Stage `tune`: few-shot tuning of every dataset by every method, domain generalization, inference without tuning.

The stage has three steps. `tune` is one Prefect task for each dataset and method: it runs all unfinished pairs of seed
and learning rate together through the backbone, and keeps checkpoints. `seed` makes each of its seeds a shard, which
stays valid when seeds are added. `test` predicts a test set with the prompt of one seed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from storage import paths
from storage.atomic import link_or_copy
from storage.errors import InputError
from storage.prompts.prompt_artifact import PROMPT, REGULARIZER
from storage.prompts.shipped_prompt import shipped_folder
from storage.sources.source import AcquiredSource, read_manifest
from storage.vectors.sentence_vectors import file_hashes, model_hash
from tasks.methods import KEEP, METHODS, refuse_missing_package
from tasks.stage.contract import RANKS, SHARD_STORE, Record, Shard, Stage, finished_record
from tasks.stage.nodes import GROUP
from tasks.stage.precision import say_restarts, stage_precision
from tasks.stage.progress import tell
from tasks.tune.plan import Planned, decides_test, longest, planned
from tasks.tune.results import PROMPT_FOLDER, SeedResult, TestResult, write_results
from tasks.tune.tested_examples import write_tested_examples

WORK = SHARD_STORE / "tune" / "checkpoints"  # in the shard store, which drops unfinished work no longer wanted


@dataclass(frozen=True)
class Inputs:
    """The inputs that all shards share: the sources, and their present locations."""

    stage: Stage
    backbone: AcquiredSource
    datasets: dict[str, AcquiredSource]

    @classmethod
    def of(cls, stage: Stage) -> "Inputs":
        """Return the inputs as the acquire stage left them."""
        datasets = {source.name: source for source in read_manifest(stage.input(paths.DATASETS))}
        return cls(stage, read_manifest(stage.input(paths.BACKBONE))[0], datasets)

    def data(self, name: str) -> str:
        """Return the hash of a dataset's files, by name and content."""
        if name not in self.datasets:
            raise InputError(f"tune: {name} is not acquired: name it in acquire.datasets, then `supmer run acquire`")
        return model_hash(self.datasets[name])

    def model(self) -> Record:
        """Return the source and the hash of the backbone."""
        return {"source": self.backbone.spec.partition("#")[0], "hash": model_hash(self.backbone)}

    @cached_property
    def embedder(self) -> AcquiredSource:
        """The sentence embedder."""
        return read_manifest(self.stage.input(paths.EMBEDDER))[0]

    def embedded(self, method: str) -> Record:
        """Return the hash of the sentence embedder, if a method uses it."""
        return {"embedder": model_hash(self.embedder)} if METHODS[method].embeds else {}

    def start(self, method: str) -> dict[str, list[str]]:
        """Return the hashes of θ and φ of the learned prompts that a method may start from, by name."""
        folders = {name: self.stage.input(paths.PROMPTS) / name for name in METHODS[method].prompts}
        if METHODS[method].start == "shipped":
            folders[method] = self.shipped
        for folder in folders.values():
            if not (folder / PROMPT).is_file():
                raise InputError(f"tune.methods: {method}: no prompt in {folder}: `supmer run metatrain` makes it")
        return {
            name: file_hashes([folder / file for file in (PROMPT, REGULARIZER) if (folder / file).is_file()])
            for name, folder in folders.items()
        }

    @property
    def shipped(self) -> Path:
        """The folder of the shipped prompt; raise InputError if it is not there."""
        self.stage.input(paths.SHIPPED_PROMPTS)
        return shipped_folder(self.stage.root, self.stage.params.tune.shipped_prompt or "", "tune.shipped_prompt")

    def hint(self, number: int, side_by_side: int) -> Record:
        """Return the values that shards need but results do not depend on."""
        stage = self.stage
        return {
            "places": {
                "root": str(stage.root),
                "datasets": str(stage.input(paths.DATASETS)),
                "prompts": str(stage.input(paths.PROMPTS)),
                "backbone": str(stage.root / self.backbone.folder),
                "embedder": str(stage.root / self.embedder.folder),
                "shipped": str(stage.root / paths.SHIPPED_PROMPTS / (stage.params.tune.shipped_prompt or "")),
            },
            "work": str(stage.root / WORK),
            "checkpoint_seconds": stage.params.tune.checkpoint_seconds,
            "gradient_checkpointing": stage.params.metatrain.gradient_checkpointing,
            "threads": max(len(os.sched_getaffinity(0)) // max(side_by_side, 1), 1),
            "number": number,
            "ranks": os.environ.get(RANKS, ""),
            "group": os.environ.get(GROUP, ""),
        }


def run(stage: Stage) -> Record:
    """Tune, test, and write the results as tables."""
    for method in stage.params.tune.methods:
        refuse_missing_package(method)
    precision = stage_precision(stage, stage.params.tune.precision)
    inputs, plan = Inputs.of(stage), planned(stage.params, precision)
    seeds = _tuned(inputs, [entry for entry in plan if METHODS[entry.tuning.method].trains != "nothing"])
    tests = _tested(inputs, plan, seeds)
    write_tested_examples(stage, inputs.datasets, tests)
    return write_results(stage, plan, seeds, tests) | {"precision": precision}


def _tuned(inputs: Inputs, plan: Sequence[Planned]) -> list[SeedResult]:
    """Return every seed of the plan; the missing seeds of a dataset and method are tuned together."""
    stage, shards = inputs.stage, []
    for entry in plan:
        tuning = entry.tuning
        payload: Record = {"tuning": tuning.to_json(), "data": inputs.data(tuning.dataset), "backbone": inputs.model()}
        payload |= {"start": inputs.start(tuning.method)} | inputs.embedded(tuning.method)
        if METHODS[tuning.method].trains == "weights" and not tuning.settings.get(KEEP):
            payload["tests"] = [_test(inputs, entry, name) for name in entry.tested_on]
        shards += [(entry, Shard(f"{entry.name}-{seed}", payload | {"seed": seed})) for seed in entry.seeds]
    missing = stage.unfinished("seed", take_seed, [shard for _, shard in shards])
    groups = _groups(inputs, [(entry, shard) for entry, shard in shards if shard in missing])
    say_restarts(stage, "tune", tune_method, groups, stage.root / WORK, "tuning")
    tuned = stage.map("tune", tune_method, groups, "epochs", live=True) if groups else []
    done = {result.shard.name: result for result in tuned}
    ready = [
        replace(shard, hint={"group": str(done[entry.name].folder)}) if shard in missing else shard
        for entry, shard in shards
    ]
    results = stage.map("seed", take_seed, ready, "seeds")
    return [SeedResult(entry, result) for (entry, _), result in zip(shards, results, strict=True)]


def _groups(inputs: Inputs, missing: Sequence[tuple[Planned, Shard]]) -> list[Shard]:
    """Return one shard for each dataset and method that has something to tune."""
    by_name: dict[str, list[tuple[Planned, Shard]]] = {}
    for entry, shard in missing:
        by_name.setdefault(entry.name, []).append((entry, shard))
    groups = []
    for number, (name, members) in enumerate(by_name.items()):
        entry, first = members[0]
        payload = first.payload | {"seeds": [shard.payload["seed"] for _, shard in members]}
        del payload["seed"]
        groups.append(Shard(name, payload, entry.tuning.epochs, inputs.hint(number, len(by_name))))
    return groups


def tune_method(payload: Record, folder: Path) -> Record:
    """Tune seeds of one dataset and method together; return a record for each."""
    tuning = payload["tuning"]
    tell(folder, 0, f"{tuning['dataset']}/{tuning['method']}: loading torch and the backbone")
    from tasks.tune.shards import tune_method as tuned  # only the workers import torch

    return tuned(payload, folder)


def take_seed(payload: Record, folder: Path) -> Record:
    """Make the results of one seed a shard of its own."""
    group, seed = Path(payload["group"]), str(payload["seed"])
    for path in sorted((group / seed).rglob("*")):
        if path.is_file():
            link_or_copy(path, folder / path.relative_to(group / seed))
    done = finished_record(group)
    assert done is not None  # the step before wrote it
    record: Record = done[seed]
    return record


def _tested(inputs: Inputs, plan: Sequence[Planned], seeds: Sequence[SeedResult]) -> list[TestResult]:
    """Return the test of every seed of every method on each of its test sets."""
    tuned: dict[tuple[str, int | None], SeedResult] = {(seed.planned.name, seed.seed): seed for seed in seeds}
    wanted = [(entry, seed, name) for entry in plan for seed in entry.seeds for name in entry.tested_on]
    shards = [
        _test_shard(inputs, entry, tuned.get((entry.name, seed)), seed, name, (number, len(wanted)))
        for number, (entry, seed, name) in enumerate(wanted)
    ]
    results = inputs.stage.map("test", test_method, shards, "tests")
    return [TestResult(entry, seed, name, result) for (entry, seed, name), result in zip(wanted, results, strict=True)]


def _test(inputs: Inputs, entry: Planned, tested_on: str) -> Record:
    """Return the values that decide the examples of a test and the way they are asked."""
    params = inputs.stage.params
    return {
        "test": decides_test(entry.tuning),
        "tested_on": tested_on,
        "data": inputs.data(tested_on),
        "limit": params.tune.test_examples,
        "draw": params.seed,
        "max_length": longest(params, tested_on),
    }


def _test_shard(
    inputs: Inputs, entry: Planned, tuned: SeedResult | None, seed: int | None, tested_on: str, place: tuple[int, int]
) -> Shard:
    payload = _test(inputs, entry, tested_on) | {
        "seed": seed,
        "backbone": inputs.model(),
        "learning_rate": tuned.learning_rate if tuned else None,
        "prompt": tuned.tuned_hash if tuned else None,
        **inputs.embedded(entry.tuning.method),
    }
    if METHODS[entry.tuning.method].examples == "demonstrations":
        payload["train_data"] = inputs.data(entry.tuning.dataset)
    hint = inputs.hint(*place)
    if tuned:
        hint["prompt_folder"] = str(tuned.result.folder / PROMPT_FOLDER)
    name = f"{entry.name}-{seed}-on-{tested_on}" if seed is not None else f"{entry.name}-on-{tested_on}"
    return Shard(name, payload, hint=hint)


def test_method(payload: Record, folder: Path) -> Record:
    """Predict the test examples of one dataset."""
    from tasks.tune.shards import test_method as tested  # only the workers import torch

    return tested(payload, folder)
