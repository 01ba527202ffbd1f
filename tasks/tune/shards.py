"""The functions of the shards of `tune`: a method is tuned on a dataset, and labels the examples of a test set."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path

import torch

from model.device import device, leave_gpu, make_deterministic
from model.prompt.passes import Passes
from model.t5.backbone import Backbone, load_backbone
from model.t5.precision import Precision
from model.text.tokenization import TemplateTokenizer
from storage.errors import InputError
from storage.file_lock import turn
from storage.sources.source import read_manifest
from storage.tables.tuning_tables import PREDICTIONS, write_table
from tasks.evaluate.classification import summary
from tasks.labeled.dataset import LabeledDataset, domain_examples, read_dataset, test_examples
from tasks.methods import METHODS
from tasks.stage.contract import Record
from tasks.stage.progress import say, tell
from tasks.tune.method_module import (
    Embedder,
    EvaluationJob,
    SpreadModule,
    TestSet,
    TuningJob,
    method_module,
    spread_module,
)
from tasks.tune.plan import Tuning
from tasks.tune.seed_tuning import Work
from tasks.tune.tokenized_form import TokenizedForm, asked_by


def tune_method(payload: Record, folder: Path) -> Record:
    """Tune seeds of one dataset and method together, and write the results of each; return a record for each."""
    tuning = Tuning.from_json(payload["tuning"])
    key = folder.name.partition(".partial-")[0]
    with turn(Path(payload["work"], f"{key}.turn")):
        module = spread_module(tuning.method)
        ranks = module.ranks_for(payload) if module else 1
        if module and (ranks > 1 or payload["group"]):
            records = _tuned_on_ranks(module, payload, folder, ranks)
        else:
            with tuning_job(payload, folder) as job:
                records = method_module(tuning.method).tune(job)
    for seed, record in records.items():
        say(folder, _summary(tuning, seed, record))
    return records


def _tuned_on_ranks(module: SpreadModule, payload: Record, folder: Path, ranks: int) -> Record:
    """Tune on several ranks, when no other worker uses their GPUs."""
    gpus = range(ranks if torch.cuda.is_available() else 0)
    with ExitStack() as held:
        if payload["group"]:  # the other nodes take part in one tuning at a time
            held.enter_context(turn(Path(payload["work"], "nodes.turn")))
        for number in gpus:  # always in this order, so that two workers cannot wait for each other
            held.enter_context(turn(Path(payload["work"], f"gpu-{number}.turn")))
        return module.tune_on_ranks(payload, folder, ranks)


@contextmanager
def tuning_job(payload: Record, folder: Path, *, alone: bool = True) -> Iterator[TuningJob]:
    """Yield the job of a shard; if `alone`, no other worker uses the same GPU meanwhile."""
    tuning, places = Tuning.from_json(payload["tuning"]), payload["places"]
    key = folder.name.partition(".partial-")[0]
    with _ready(payload, tuning.precision, alone=alone) as load:
        acquired = _dataset(places["root"], places["datasets"], tuning.dataset, payload["data"])
        dataset = asked_by(tuning.method, acquired)
        tokenizer = _tokenizer(places["backbone"]).limited(tuning.max_length)
        yield TuningJob(
            tuning,
            payload["seeds"],
            dataset,
            TokenizedForm.of(dataset.form, tuning.form, tokenizer),
            load,
            Path(places["backbone"]),
            Path(places["prompts"]),
            payload["backbone"],
            Work(Path(payload["work"], key), key, payload["checkpoint_seconds"]),
            folder,
            lambda share, note: tell(folder, int(share * tuning.epochs), note),
            lambda line: say(folder, line),
            tests=[_test_set(payload, test)[1] for test in payload["tests"]] if "tests" in payload else None,
            embedder=_embedder(payload),
            shipped=Path(places["shipped"]) if METHODS[tuning.method].start == "shipped" else None,
        )


def _summary(tuning: Tuning, seed: str, record: Record) -> str:
    chosen = record["runs"][record["chosen"]]
    dead = "" if chosen["status"] == "ok" else f" ({chosen['status']})"
    return (
        f"{tuning.dataset}/{tuning.method}: {tuning.shots} shots, seed {seed}: validation "
        f"{chosen['validation_score']:.3f} after step {chosen['best_step']}, "
        f"learning rate {chosen['learning_rate']:g}{dead}"
    )


def test_method(payload: Record, folder: Path) -> Record:
    """Label the test examples of one dataset by one method, and write the predictions."""
    tested_on, tuned_on = payload["tested_on"], payload["test"]["dataset"]
    method = payload["test"]["method"]
    dataset, test_set = _test_set(payload, payload)
    with _ready(payload, payload["test"]["precision"]) as load:
        evaluated = method_module(method).evaluate(_evaluation(payload, test_set, load))
    row = {
        "dataset": tuned_on,
        "tested_on": tested_on,
        "method": method,
        "shots": payload["test"]["shots"],
        "seed": payload["seed"],
        "learning_rate": payload["learning_rate"],
        "data_hash": dataset.data_hash,
    }
    origin = {name: row[name] for name in ("dataset", "tested_on", "method")}
    rows = [row | named(prediction, dataset.form.labels) for prediction in evaluated.rows()]
    write_table(folder / "predictions.parquet", PREDICTIONS, rows, origin)
    labels = [example.label for example in test_set.examples]
    measured = summary(labels, evaluated.scores.predicted.tolist(), len(dataset.form.labels))
    return measured | {
        "score": evaluated.score,
        "examples": len(test_set.examples),
        "metric": dataset.form.metric,
        "tuned_hash": evaluated.tuned_hash,
        "data_hash": dataset.data_hash,
    }


def named(prediction: Record, labels: Sequence[str]) -> Record:
    """Return a prediction with the names of its labels."""
    return prediction | {"label_name": labels[prediction["label"]], "predicted_name": labels[prediction["predicted"]]}


def _test_set(payload: Record, test: Record) -> tuple[LabeledDataset, TestSet]:
    """Return a dataset to test on, and its test examples; `payload` has the places of the files."""
    places, name, method = payload["places"], test["tested_on"], test["test"]["method"]
    dataset = asked_by(method, _dataset(places["root"], places["datasets"], name, test["data"]))
    drawn = test_examples if name == test["test"]["dataset"] else domain_examples
    examples = drawn(dataset, test["limit"], test["draw"])
    if not examples:
        raise InputError(f"acquire.datasets.{name}: no examples to test on: name a file test.jsonl")
    tokenizer = _tokenizer(places["backbone"]).limited(test["max_length"])
    return dataset, TestSet(examples, TokenizedForm.of(dataset.form, test["test"]["form"], tokenizer))


def _evaluation(payload: Record, test_set: TestSet, load: Callable[[], Passes]) -> EvaluationJob:
    test, places, tuned = payload["test"], payload["places"], payload.get("prompt_folder")
    source = None
    if METHODS[test["method"]].examples == "demonstrations":
        source = _dataset(places["root"], places["datasets"], test["dataset"], payload["train_data"])
    return EvaluationJob(
        test["method"],
        test["shots"],
        payload["seed"],
        test_set.examples,
        test_set.words,
        load,
        Path(places["backbone"]),
        source,
        payload["max_length"] + test.get("prompt_tokens", 0),  # as many positions as the tuned methods have
        Path(tuned) if tuned else None,
        _embedder(payload),
    )


def _embedder(payload: Record) -> Embedder | None:
    return Embedder(Path(payload["places"]["embedder"]), payload["embedder"]) if "embedder" in payload else None


@contextmanager
def _ready(payload: Record, precision: Precision, *, alone: bool = True) -> Iterator[Callable[[], Passes]]:
    """Yield a function that loads the backbone on this worker's device; if `alone`, no other uses it meanwhile."""
    torch.set_num_threads(payload["threads"])
    where = device(payload["number"])
    make_deterministic(where)
    taken = alone and where.type == "cuda"
    gpu = turn(Path(payload["work"], f"gpu-{where.index}.turn")) if taken else nullcontext()
    recompute = payload["gradient_checkpointing"]
    with gpu:
        try:
            folder, content = payload["places"]["backbone"], payload["backbone"]["hash"]
            yield lambda: Passes.for_tuning(_backbone(folder, content, precision, recompute=recompute))
        finally:
            if where.type == "cuda":
                _backbone.cache_clear()
                leave_gpu(where)


@lru_cache(maxsize=1)
def _backbone(folder: str, _content: str, precision: Precision, *, recompute: bool) -> Backbone:
    return load_backbone(Path(folder), device(), recompute=recompute, precision=precision)


@lru_cache(maxsize=1)
def _tokenizer(folder: str) -> TemplateTokenizer:
    return TemplateTokenizer.from_folder(Path(folder), 1)


@lru_cache(maxsize=2)
def _dataset(root: str, manifest: str, name: str, _content: str) -> LabeledDataset:
    (source,) = [source for source in read_manifest(Path(manifest)) if source.name == name]
    return read_dataset(source, Path(root))
