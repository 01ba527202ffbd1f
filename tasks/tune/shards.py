"""The shards of `tune` as they run: a method tuned on a dataset, and what it gives on a test set."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path

import torch

from model.device import device, leave_gpu, make_deterministic
from model.prompt.passes import Passes
from model.t5.backbone import Backbone, load_backbone
from model.text.tokenization import TemplateTokenizer
from storage.errors import InputError
from storage.file_lock import turn
from storage.prompts.prompt_artifact import read_prompt
from storage.sources.source import read_manifest
from storage.tables.tuning_tables import PREDICTIONS, write_table
from tasks.labeled.dataset import LabeledDataset, LabeledExample, domain_examples, read_dataset, test_examples
from tasks.methods import FEW_SHOT, ZERO_SHOT
from tasks.stage.contract import Record
from tasks.stage.progress import say, tell
from tasks.tune.evaluation import Tested, with_demonstrations, with_nothing, with_prompt
from tasks.tune.initialization import read_start, refuse_misfit
from tasks.tune.plan import Tuning
from tasks.tune.seed_files import write_seed
from tasks.tune.seed_tuning import SeedTuned, Setup, Work, tune_seeds
from tasks.tune.tokenized_form import TokenizedForm


def tune_method(payload: Record, folder: Path) -> Record:
    """Tune seeds of one dataset and method together, and write the results of each; return a record for each."""
    tuning, places = Tuning.from_json(payload["tuning"]), payload["places"]
    key = folder.name.partition(".partial-")[0]
    work = Work(Path(payload["work"], key), key, payload["checkpoint_seconds"])
    with _ready(payload) as passes, turn(Path(payload["work"], f"{key}.turn")):
        dataset = _dataset(places["root"], places["datasets"], tuning.dataset, payload["data"])
        start = read_start(tuning.method, tuning.prompt_tokens, Path(places["prompts"]), len(dataset.form.fields))
        if start.artifact is not None:
            where = f"tune.methods: {tuning.method}"
            refuse_misfit(start.artifact, where, passes.backbone.width, payload["backbone"])
        tokenizer = _tokenizer(places["backbone"]).limited(tuning.max_length)
        setup = Setup(tuning, dataset, start, passes, TokenizedForm.of(dataset.form, tuning.form, tokenizer))
        found = tune_seeds(
            setup,
            payload["seeds"],
            work,
            lambda share, note: tell(folder, int(share * tuning.epochs), note),
            lambda line: say(folder, line),
        )
    for one in found:
        say(folder, _told(setup, one))
    return {str(one.seed): write_seed(folder / str(one.seed), setup, one, payload["backbone"]) for one in found}


def _told(setup: Setup, one: SeedTuned) -> str:
    chosen, rate = one.results[one.chosen], setup.tuning.learning_rates[one.chosen]
    dead = "" if chosen.status == "ok" else f" ({chosen.status})"
    return (
        f"{setup.name}: {setup.tuning.shots} shots, seed {one.seed}: validation {chosen.best.validation_score:.3f} "
        f"after step {chosen.best.step}, learning rate {rate:g}{dead}"
    )


def test_method(payload: Record, folder: Path) -> Record:
    """Predict the test examples of one dataset, and write the predictions."""
    tested_on, tuned_on = payload["tested_on"], payload["test"]["dataset"]
    places = payload["places"]
    dataset = _dataset(places["root"], places["datasets"], tested_on, payload["data"])
    drawn = test_examples if tested_on == tuned_on else domain_examples
    examples = drawn(dataset, payload["limit"], payload["draw"])
    if not examples:
        raise InputError(f"acquire.datasets.{tested_on}: no examples to test on: name a file test.jsonl")
    tokenizer = _tokenizer(places["backbone"]).limited(payload["max_length"])
    words = TokenizedForm.of(dataset.form, payload["test"]["form"], tokenizer)
    with _ready(payload) as passes:
        found = _tested(payload, passes, words, examples)
    row = {
        "dataset": tuned_on,
        "tested_on": tested_on,
        "method": payload["test"]["method"],
        "shots": payload["test"]["shots"],
        "seed": payload["seed"],
        "learning_rate": payload["learning_rate"],
        "data_hash": dataset.data_hash,
    }
    origin = {name: row[name] for name in ("dataset", "tested_on", "method")}
    write_table(folder / "predictions.parquet", PREDICTIONS, [row | one for one in found.rows()], origin)
    return {
        "score": found.score,
        "examples": len(examples),
        "metric": dataset.form.metric,
        "tuned_hash": found.tuned_hash,
        "data_hash": dataset.data_hash,
    }


def _tested(payload: Record, passes: Passes, words: TokenizedForm, examples: Sequence[LabeledExample]) -> Tested:
    test, places = payload["test"], payload["places"]
    if test["method"] == ZERO_SHOT:
        return with_nothing(passes, words, examples)
    if test["method"] == FEW_SHOT:
        source = _dataset(places["root"], places["datasets"], test["dataset"], payload["train_data"])
        # As many positions as prompt and input of the tuned methods have.
        room = payload["max_length"] + test["prompt_tokens"]
        return with_demonstrations(passes, words, source, (test["shots"], payload["seed"]), room, examples)
    return with_prompt(passes, words, read_prompt(Path(payload["prompt_folder"])).prompt, examples)


@contextmanager
def _ready(payload: Record) -> Iterator[Passes]:
    """The backbone on this worker's device, which it has to itself if it is a GPU."""
    torch.set_num_threads(payload["threads"])
    where = device(payload["number"])
    make_deterministic(where)
    alone = turn(Path(payload["work"], f"gpu-{where.index}.turn")) if where.type == "cuda" else nullcontext()
    recompute = payload["gradient_checkpointing"]
    with alone:
        try:
            backbone = _backbone(payload["places"]["backbone"], payload["backbone"]["hash"], recompute=recompute)
            yield Passes.for_tuning(backbone)
        finally:
            if where.type == "cuda":
                _backbone.cache_clear()
                leave_gpu(where)


@lru_cache(maxsize=1)
def _backbone(folder: str, _content: str, *, recompute: bool) -> Backbone:
    return load_backbone(Path(folder), device(), recompute=recompute)


@lru_cache(maxsize=1)
def _tokenizer(folder: str) -> TemplateTokenizer:
    return TemplateTokenizer.from_folder(Path(folder), 1)


@lru_cache(maxsize=2)
def _dataset(root: str, manifest: str, name: str, _content: str) -> LabeledDataset:
    (source,) = [one for one in read_manifest(Path(manifest)) if one.name == name]
    return read_dataset(source, Path(root))
