"""Tuning on a user's own file: the same runs as in the stage, without a registry entry and without the pipeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import orjson
import torch

from model.device import device, make_deterministic
from model.prompt.passes import Passes
from model.t5.backbone import load_backbone
from model.text.tokenization import TemplateTokenizer
from storage.atomic import link_or_copy, making_folder, remove, write_bytes
from storage.file_lock import turn
from storage.hashing import json_hash
from storage.prompts.prompt_artifact import PromptArtifact, theta_hash
from tasks.evaluate.classification import summary
from tasks.labeled.dataset import LabeledDataset, LabeledExample, few_shot_split, left_over_examples, test_examples
from tasks.methods import METHODS
from tasks.own_examples.method import OwnMethod
from tasks.stage.contract import Record
from tasks.tune.method_module import Embedder, EvaluationJob, MethodModule, TuningJob, named_module
from tasks.tune.plan import Tuning
from tasks.tune.results import run_order
from tasks.tune.seed_files import PROMPT_FOLDER
from tasks.tune.seed_tuning import Progress, Work
from tasks.tune.tokenized_form import TokenizedForm

RESULTS = "results.json"
_CHOSEN = ("learning_rate", "validation_score", "best_step")


@dataclass(frozen=True)
class OwnTuning:
    """A tuning on a user's own examples.

    Attributes:
        seeds: seeds of the draws.
        test_limit: largest number of test examples; None for all.
        backbone: its folder, and its description (`source`, `hash`).
        work: folder of checkpoints, from which an interrupted tuning resumes.
        embedder: the sentence embedder, for a method that uses it.
    """

    tuning: Tuning
    seeds: tuple[int, ...]
    dataset: LabeledDataset
    method: OwnMethod
    test_limit: int | None
    backbone: Path
    about: dict[str, str]
    work: Path
    checkpoint_seconds: float
    embedder: Embedder | None = None

    @property
    def trains(self) -> bool:
        """True if the method trains something."""
        return not self.method.row or METHODS[self.method.row].trains != "nothing"

    @property
    def keeps_result(self) -> bool:
        """True if what it trains is written for new texts."""
        return not self.method.row or METHODS[self.method.row].keeps_result


@dataclass(frozen=True)
class _Ready:
    """A tuning with everything loaded."""

    own: OwnTuning
    module: MethodModule
    load: Callable[[], Passes]
    words: TokenizedForm


def tune_own(own: OwnTuning, output: Path, progress: Progress, say: Callable[[str], None]) -> list[Record]:
    """Tune, test, and write the result of the best seed to `output`; return a row for each seed.

    The test set consists of the examples in test files, or of those that the draw left over. A method that trains
    nothing is only tested, and a classifier that is there to compare with is not written.
    """
    for seed in own.seeds:
        few_shot_split(own.dataset, own.tuning.shots, seed)  # report too few examples before a model is loaded
    where = device()
    make_deterministic(where)

    @cache
    def load() -> Passes:
        return Passes.for_tuning(load_backbone(own.backbone, where, precision=own.tuning.precision))

    tokenizer = TemplateTokenizer.from_folder(own.backbone, own.tuning.max_length)
    words = TokenizedForm.of(own.dataset.form, own.tuning.form, tokenizer)
    ready = _Ready(own, named_module(own.method.module), load, words)
    if not own.trains:
        return [_tested(ready, seed, None) for seed in own.seeds]
    return _tuned(ready, output, progress, say)


def _tuned(ready: _Ready, output: Path, progress: Progress, say: Callable[[str], None]) -> list[Record]:
    own, key = ready.own, _key(ready.own)
    alone, results = own.work / f"{key}.turn", own.work / key / "results"
    with turn(alone):  # the same command run twice at once would share checkpoints
        job = TuningJob(
            own.tuning,
            own.seeds,
            own.dataset,
            ready.words,
            ready.load,
            own.backbone,
            own.work,
            own.about,
            Work(own.work / key, key, own.checkpoint_seconds),
            results,
            progress,
            say,
            own.method.start,
            own.method.start_name,
            embedder=own.embedder,
        )
        records = ready.module.tune(job)
        rows = []
        for seed in own.seeds:
            tested = _tested(ready, seed, results / str(seed) / PROMPT_FOLDER)
            rows.append(tested | _chosen(records[str(seed)]))
        best = max(own.seeds, key=lambda seed: run_order(_run(records[str(seed)])))  # the first of equals
        if own.keeps_result:
            _write(output, results / str(best), rows)
        remove(own.work / key)
        remove(alone)
    return rows


def _run(record: Record) -> Record:
    run: Record = record["runs"][record["chosen"]]
    return run


def _chosen(record: Record) -> Record:
    return {name: _run(record)[name] for name in (*_CHOSEN, "status")}


def _key(own: OwnTuning) -> str:
    """Return a key of everything that the result depends on."""
    start = own.method.start
    learned: object = None
    if start is not None:
        artifact = start.artifact
        learned = [theta_hash(artifact.prompt), _phi_hashes(artifact)] if artifact else start.initialization
    form = [own.dataset.form.sentinel, own.dataset.form.instruction, own.dataset.form.words]
    content = [own.tuning.to_json(), own.seeds, own.dataset.data_hash, form, learned, own.about, torch.__version__]
    embedder = [own.embedder.hash] if own.embedder else []
    return json_hash([own.method.module, content, *embedder])[:32]


def _phi_hashes(start: PromptArtifact) -> list[list[str]]:
    return sorted([name, sha256(value.tobytes()).hexdigest()] for name, value in start.regularizer.items())


def _tested(ready: _Ready, seed: int, tuned: Path | None) -> Record:
    """Return the row of a seed, with its score if there are examples to test on."""
    own = ready.own
    chosen: Record = dict.fromkeys(_CHOSEN)
    row = {"seed": seed} | chosen | {"status": "ok", "score": None, "examples": 0}
    row |= {"macro_f1": None, "majority_share": None}
    examples = _test_set(own, seed)
    if not examples:
        return row
    demonstrated = own.method.row and METHODS[own.method.row].examples == "demonstrations"
    job = EvaluationJob(
        own.tuning.method,
        own.tuning.shots,
        seed,
        examples,
        ready.words,
        ready.load,
        own.backbone,
        own.dataset if demonstrated else None,
        own.tuning.max_length + own.tuning.prompt_tokens,
        tuned,
        own.embedder,
    )
    evaluated = ready.module.evaluate(job)
    labels = [example.label for example in examples]
    measured = summary(labels, evaluated.scores.predicted.tolist(), len(own.dataset.form.labels))
    return row | {"score": evaluated.score, "examples": len(examples)} | measured


def _test_set(own: OwnTuning, seed: int) -> Sequence[LabeledExample]:
    """Return the test examples: those of a folder's test files, or those that the draw left over from a file."""
    if own.dataset.test:
        return test_examples(own.dataset, own.test_limit, seed)
    split = few_shot_split(own.dataset, own.tuning.shots, seed)
    return left_over_examples(own.dataset, split, own.test_limit, seed)


def _write(output: Path, best: Path, rows: list[Record]) -> None:
    with making_folder(output) as partial:
        for path in [*best.iterdir(), *(best / PROMPT_FOLDER).iterdir()]:
            if path.is_file():
                link_or_copy(path, partial / path.name)
        write_bytes(partial / RESULTS, orjson.dumps(rows, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
