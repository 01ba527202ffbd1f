"""Tune a prompt on texts and labels that are in memory; no workspace is needed."""

import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import Any, cast, get_args

from model.device import device
from model.t5.precision import Precision, WantedPrecision, choose
from model.text.datasets import SHORT
from model.text.templates import template_fields
from model.tuning.classifier import PromptedClassifier, Texts
from storage import paths
from storage.atomic import refuse_place
from storage.errors import InputError
from storage.prompts.local_backbone import ACQUIRED
from storage.prompts.weights_artifact import is_weights
from storage.sources.source import MANIFEST, read_manifest
from supmer.arguments import TEXTS, Labels, distinct, labeled_rows, one_of, positive
from tasks.labeled.dataset import LabeledDataset, Wording
from tasks.labeled.user_data import dataset_of_rows
from tasks.methods import INITIALIZATIONS, METHODS, Method
from tasks.own_examples.backbone import backbone_about, folder_source, template_form
from tasks.own_examples.method import OwnMethod, prompt_method, table_method
from tasks.own_examples.options import left_out_in_words
from tasks.own_examples.tuning import OwnTuning, tune_own
from tasks.params.learning_schema import TuneParams
from tasks.tune.plan import Tuning
from tasks.tune.tokenized_form import asked_by

Progress = Callable[[float, str], None]

_START, _RATES = "vocabulary", "tune.learning_rates"
_CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True)
class SeedResult:
    """The result of one draw of the examples, at the learning rate that validation chose.

    Attributes:
        validation_score: accuracy on the validation examples, by which the learning rate and the step were chosen.
        best_step: the step of the prompt that was kept.
        status: "ok", or a word for how the run ended.
        score: accuracy on the test examples; None if there are none.
        examples: number of test examples.
        macro_f1: mean of the labels' F1 on the test examples; None if there are none.
        majority_share: share of the most frequent label among the test examples: the accuracy of always giving it.
    """

    seed: int
    learning_rate: float
    validation_score: float
    best_step: int
    status: str
    score: float | None
    examples: int
    macro_f1: float | None = None
    majority_share: float | None = None


@dataclass(frozen=True)
class TuneResult:
    """A tuned prompt and how it was chosen.

    Attributes:
        folder: the folder of the prompt; it is the prompt of the seed with the best validation score.
        backbone: the model's folder.
        seeds: a result for each seed.
        precision: the precision of the backbone's products, "float32" or "bfloat16".
        left_out: the examples that were not used, such as repeated texts, with reasons; "" if all were used.
    """

    folder: Path
    backbone: Path
    seeds: tuple[SeedResult, ...]
    precision: Precision
    left_out: str = ""

    @property
    def score(self) -> float | None:
        """The mean accuracy on the test examples over all seeds; None if there were no test examples."""
        scores = [seed.score for seed in self.seeds if seed.score is not None]
        return fmean(scores) if scores else None

    def classifier(self) -> PromptedClassifier:
        """Load the tuned prompt as a classifier."""
        backbone = None if is_weights(self.folder) else self.backbone  # trained weights are their own backbone
        return PromptedClassifier.from_pretrained(self.folder, backbone, precision=self.precision)


def tune(  # noqa: PLR0913 - each is a choice of the user, and all but three have a default
    texts: Sequence[Texts],
    labels: Labels,
    output: str | Path,
    *,
    backbone: str | Path | None = None,
    prompt: str | Path | None = None,
    start: str | Path = _START,
    method: str | None = None,
    template: str | None = None,
    words: Mapping[str, str] | None = None,
    test: tuple[Sequence[Texts], Labels] | None = None,
    form: str | None = None,
    shots: int = 16,
    seeds: Sequence[int] = (10, 20, 30, 40, 50),
    learning_rates: Sequence[float] | None = None,
    epochs: int = 200,
    batch_size: int = 32,
    evaluate_every: int = 10,
    max_length: int = SHORT,
    prompt_tokens: int = 100,
    precision: WantedPrecision = "auto",
    work: str | Path | None = None,
    progress: Progress | None = None,
) -> TuneResult:
    """Tune a prompt on a few labeled examples, write it to a new folder and return the results.

    Every seed draws `shots` examples of each label to train on and as many to validate on. A prompt is tuned for every
    seed with every learning rate; the validation score chooses among the learning rates. The prompt is tested on
    `test`, or on the examples that the seed did not draw.

    The run is deterministic: torch uses deterministic algorithms in this process. Raise InputError if an argument is
    wrong, before a model is loaded where possible.

    Args:
        texts: the examples: one text each or, if the template has several fields, all texts in order or by name.
        labels: the label of each example, all names or all integers.
        output: folder for the prompt; must not exist yet.
        backbone: the folder of a T5 model or of a workspace; None: the workspace around the working directory.
        prompt: the folder of a prompt to start from, for example one in prompts/.
        start: without a prompt: "vocabulary" (rows of random words) or "normal" (noise); the folder of a prompt works
            here too.
        method: a method of the result tables instead of a start, for example "prefix-tuning" or "p-tuning-v2"; one
            that starts from a learned prompt finds it in the workspace.
        template: text with `{fields}`, and with `<X>` where plain T5 fills in a word; None: the texts and a question.
        words: the word that the model says for each label; None: the label's name.
        test: texts and labels to test on.
        form: "sentinel" for plain T5, "instruction" for instruction-tuned models; None: the form of the starting
            prompt, or else "sentinel".
        shots: number of examples of each label to train on, and again to validate on.
        seeds: each seed makes one draw of the examples.
        learning_rates: tried for every seed; None: the paper's for prompts, or those of the method.
        epochs: number of passes over the training examples.
        batch_size: number of examples in a step.
        evaluate_every: number of steps between evaluations; the best prompt is kept.
        max_length: the length of the longest input, in tokens, without the prompt.
        prompt_tokens: number of rows of the prompt, or of positions of a prefix; a starting prompt has its own number.
        precision: of the backbone's products: "float32", "bfloat16", or "auto" for bfloat16 where the device computes
            in it. A UserWarning says what bfloat16 costs on a device without units for it.
        work: folder for checkpoints; after an interruption the same call continues from them. None: none are kept.
        progress: called from time to time with the share that is done and a remark.
    """
    target = Path(output).absolute()
    refuse_place(target)
    plain = _dataset(texts, labels, test, Wording(template, _word_of(words), max_length))
    tokens = positive("prompt_tokens", prompt_tokens)
    root, given = _place(backbone)
    chosen = _method(_chosen_start(start, prompt), method, tokens, root, len(plain.form.fields))
    dataset, row = asked_by(chosen.row, plain), METHODS.get(chosen.row)
    source = read_manifest(root / ACQUIRED)[0] if given is None else folder_source(given)
    choice = choose(cast("WantedPrecision", one_of("precision", precision, get_args(WantedPrecision))), device())
    if choice.warning:
        warnings.warn(choice.warning, stacklevel=2)
    tuning = Tuning(
        dataset=dataset.name,
        method=chosen.name,
        shots=positive("shots", shots),
        form=one_of("form", form or template_form(chosen.start, "sentinel"), ("sentinel", "instruction")),
        prompt_tokens=chosen.tokens or tokens,
        max_length=positive("max_length", max_length),
        learning_rates=distinct(
            "learning_rates",
            _default(row.learning_rates if row else _RATES) if learning_rates is None else learning_rates,
            lambda rate: 0 < rate < float("inf"),
        ),
        batch_size=positive("batch_size", batch_size),
        epochs=positive("epochs", epochs),
        evaluate_every=positive("evaluate_every", evaluate_every),
        precision=choice.precision,
        settings=_settings(row, tokens) if row else {},
    )
    with tempfile.TemporaryDirectory(prefix="supmer-tune-") as temporary:
        own = OwnTuning(
            tuning=tuning,
            seeds=distinct("seeds", seeds, lambda seed: 0 <= seed < 2**31),
            dataset=dataset,
            method=chosen,
            test_limit=None,
            backbone=root / source.folder,
            about=backbone_about(source, chosen.start, chosen.prompt, given),
            work=Path(work or temporary).absolute(),
            checkpoint_seconds=_CHECKPOINT_SECONDS,
        )
        rows = tune_own(own, target, progress or _silent, lambda _line: None)
    results = tuple(SeedResult(**row) for row in rows)
    return TuneResult(target, own.backbone, results, tuning.precision, left_out_in_words(plain.left_out))


def _silent(_share: float, _remark: str) -> None:
    """Ignore the progress."""


def _dataset(
    texts: Sequence[Texts], labels: Labels, test: tuple[Sequence[Texts], Labels] | None, wording: Wording
) -> LabeledDataset:
    fields = template_fields(wording.template or "")
    train_rows = labeled_rows(TEXTS, texts, labels, fields)
    test_rows = labeled_rows("test", *test, fields or train_rows[0].fields) if test and train_rows else []
    return dataset_of_rows(TEXTS, train_rows, test_rows, wording)


def _word_of(words: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if words is None else {str(label): word for label, word in words.items()}


def _chosen_start(start: str | Path, prompt: str | Path | None) -> str | Path:
    if prompt is not None and start != _START:
        raise InputError("start and prompt: a tuning starts from the one or the other: leave one out")
    return start if prompt is None else Path(prompt)


def _method(start: str | Path, method: str | None, tokens: int, root: Path, fields: int) -> OwnMethod:
    """Return the method with its start."""
    if method is not None:
        if start != _START:
            raise InputError("start and method: a tuning starts from the one or the other: leave one out")
        if method in METHODS and not METHODS[method].keeps_result:
            why = "trains nothing" if METHODS[method].trains == "nothing" else "is there to compare with"
            raise InputError(f"method {method}: {why}, no prompt comes of it: the command `supmer tune` tests it")
        return table_method(method, tokens, root / paths.PROMPTS, fields)
    if start in INITIALIZATIONS:
        return table_method(INITIALIZATIONS[str(start)], tokens, root, fields)
    return prompt_method(Path(start))


def _settings(row: Method, tokens: int) -> dict[str, Any]:
    """Return the further parameters of a method at their defaults; a prefix is as long as a prompt would be."""
    return {key: tokens if key.endswith(".length") else _default(key) for key in row.settings}


def _default(key: str) -> Any:
    """Return the default of a key of `tune`."""
    return reduce(getattr, key.split(".")[1:], TuneParams.model_validate({}))


def _place(backbone: str | Path | None) -> tuple[Path, Path | None]:
    """Return the workspace of a backbone, and the model's folder if the backbone is not the workspace's own."""
    if backbone is None:
        here = Path.cwd()
        for root in (here, *here.parents):
            if (root / ACQUIRED / MANIFEST).is_file():
                return root, None
        advice = "`supmer run acquire` in one, or give the folder of a model"
        raise InputError(f"backbone: no workspace with a backbone around {here}: {advice}")
    folder = Path(backbone).absolute()
    return (folder, None) if (folder / ACQUIRED / MANIFEST).is_file() else (folder, folder)
