"""Tuning on a user's own file: the same runs as in the stage, without a registry entry and without the pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import orjson
import torch

from model.device import device, make_deterministic
from model.prompt.passes import Passes
from model.t5.backbone import load_backbone
from model.text.tokenization import TemplateTokenizer
from model.tuning.runs import best_rate
from storage.atomic import making_folder, remove, write_bytes
from storage.file_lock import turn
from storage.hashing import json_hash
from storage.prompts.prompt_artifact import PromptArtifact, theta_hash
from tasks.labeled.dataset import LabeledDataset, LabeledExample, few_shot_split, left_over_examples, test_examples
from tasks.stage.contract import Record
from tasks.tune.evaluation import with_prompt
from tasks.tune.initialization import Start, refuse_misfit
from tasks.tune.plan import Tuning
from tasks.tune.seed_files import PROMPT_FOLDER, write_seed
from tasks.tune.seed_tuning import SeedTuned, Setup, Told, Work, tune_seeds
from tasks.tune.tokenized_form import TokenizedForm

RESULTS = "results.json"


@dataclass(frozen=True)
class OwnTuning:
    """A tuning on a user's own examples.

    Attributes:
        seeds: seeds of the draws.
        test_limit: largest number of test examples; None for all.
        backbone: its folder, and its description (`source`, `hash`).
        work: folder of checkpoints, from which an interrupted tuning resumes.
    """

    tuning: Tuning
    seeds: tuple[int, ...]
    dataset: LabeledDataset
    start: Start
    start_name: str
    test_limit: int | None
    backbone: Path
    about: dict[str, str]
    work: Path
    checkpoint_seconds: float


def tune_own(own: OwnTuning, output: Path, told: Told, say: Callable[[str], None]) -> list[Record]:
    """Tune, test, and write the best prompt to `output`; return a row for each seed.

    The test set consists of the examples in test files, or of those that the draw left over.
    """
    for seed in own.seeds:
        few_shot_split(own.dataset, own.tuning.shots, seed)  # report too few examples before a model is loaded
    where = device()
    make_deterministic(where)
    passes = Passes.for_tuning(load_backbone(own.backbone, where, precision=own.tuning.precision))
    if own.start.artifact is not None:
        refuse_misfit(own.start.artifact, own.start_name, passes.backbone.width, own.about)
    tokenizer = TemplateTokenizer.from_folder(own.backbone, own.tuning.max_length)
    words = TokenizedForm.of(own.dataset.form, own.tuning.form, tokenizer)
    setup = Setup(own.tuning, own.dataset, own.start, passes, words)
    key = _key(own)
    alone = own.work / f"{key}.turn"
    with turn(alone):  # the same command run twice at once would share checkpoints
        seeds = tune_seeds(setup, own.seeds, Work(own.work / key, key, own.checkpoint_seconds), told, say)
        rows = [_row(own, setup, tuned) for tuned in seeds]
        best = best_rate([tuned.results[tuned.chosen] for tuned in seeds])  # seeds are compared like learning rates
        _write(output, setup, seeds[best], own, rows)
        remove(own.work / key)
        remove(alone)
    return rows


def _key(own: OwnTuning) -> str:
    """Return a key of everything that the result depends on."""
    start = own.start.artifact
    learned = [theta_hash(start.prompt), _phi_hashes(start)] if start else own.start.initialization
    form = [own.dataset.form.sentinel, own.dataset.form.instruction, own.dataset.form.words]
    content = [own.tuning.to_json(), own.seeds, own.dataset.data_hash, form, learned, own.about, torch.__version__]
    return json_hash(content)[:32]


def _phi_hashes(start: PromptArtifact) -> list[list[str]]:
    return sorted([name, sha256(value.tobytes()).hexdigest()] for name, value in start.regularizer.items())


def _row(own: OwnTuning, setup: Setup, tuned: SeedTuned) -> Record:
    chosen = tuned.results[tuned.chosen]
    row = {
        "seed": tuned.seed,
        "learning_rate": own.tuning.learning_rates[tuned.chosen],
        "validation_score": chosen.best.validation_score,
        "best_step": chosen.best.step,
        "status": chosen.status,
        "score": None,
        "examples": 0,
    }
    examples = _test_set(own, tuned)
    if not examples:
        return row
    evaluated = with_prompt(setup.passes, setup.words, chosen.prompt.cpu().numpy(), examples)
    return row | {"score": evaluated.score, "examples": len(examples)}


def _test_set(own: OwnTuning, tuned: SeedTuned) -> tuple[LabeledExample, ...]:
    """Return the test examples: those of a folder's test files, or those that the draw left over from a file."""
    if own.dataset.test:
        return test_examples(own.dataset, own.test_limit, tuned.seed)
    return left_over_examples(own.dataset, tuned.split, own.test_limit, tuned.seed)


def _write(output: Path, setup: Setup, best: SeedTuned, own: OwnTuning, rows: list[Record]) -> None:
    with making_folder(output) as partial:
        write_seed(partial, setup, best, own.about)
        for path in (partial / PROMPT_FOLDER).iterdir():
            path.rename(partial / path.name)
        (partial / PROMPT_FOLDER).rmdir()
        write_bytes(partial / RESULTS, orjson.dumps(rows, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
