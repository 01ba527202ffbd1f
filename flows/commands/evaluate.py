"""`supmer evaluate`: measure a tuned prompt on a labeled file."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.options import precision_option, print_json
from flows.workspace import silence
from storage.counts import counted
from storage.errors import InputError
from storage.signs_of_life import doing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model.t5.precision import WantedPrecision
    from model.tuning.classifier import Prediction, PromptedClassifier
    from tasks.evaluate.labeled_file import EvaluationExample
    from tasks.labeled.user_data import Missing

EXAMPLES = """\b
Examples:
  supmer evaluate --prompt artifacts/tuned/movies/supmer --data labeled.csv
  supmer evaluate --prompt my-prompt --data labeled.csv --text review --label stars
  supmer evaluate --prompt my-prompt --data labeled.jsonl --json | jq .accuracy.value
"""
BLOCK = 256
PROGRESS_SECONDS = 2.0
ERRORS = 5


@click.command(name="evaluate", epilog=EXAMPLES)
@click.option("--prompt", required=True, type=click.Path(path_type=Path), help="Folder of a tuned prompt.")
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), help="Labeled file: JSON lines, CSV, TSV, Parquet."
)
@click.option(
    "--text", "texts", multiple=True, metavar="FIELD", help="Column of the text; one for each field, in order."
)
@click.option("--label", default="label", show_default=True, metavar="FIELD", help="Column of the label.")
@click.option(
    "--backbone", type=click.Path(path_type=Path), help="Folder of the model; default: the workspace's backbone."
)
@click.option("--any-backbone", is_flag=True, help="Use that model even if the prompt was tuned for other files.")
@precision_option("auto")
@click.option("--json", "as_json", is_flag=True, help="Print the measures as JSON.")
def command(  # noqa: PLR0913 - one argument for each option
    prompt: Path,
    data: Path,
    texts: tuple[str, ...],
    label: str,
    backbone: Path | None,
    *,
    any_backbone: bool,
    precision: WantedPrecision | None,
    as_json: bool,
) -> None:
    """Measure a tuned prompt on labeled examples: accuracy, macro F1, confusion matrix, calibration.

    Labels are the names of the prompt's labels, or numbers that count them from 0. A `labels.json` beside the file says
    what numbers mean, if it is there. Rows without text or label are left out and counted. Intervals hold 95 %:
    Wilson's for accuracy, a bootstrap over examples for F1.
    """
    silence()
    examples, missing, labels = _read(prompt, data, texts, label)
    if missing.in_words():
        click.echo(f"{data}: left out: {missing.in_words()}", err=True)
    click.echo(f"evaluate: {counted(len(examples), 'example')}; loading the model", err=True)
    with doing("evaluate: loading torch and the model"), warnings.catch_warnings():
        from model.device import device
        from model.t5.precision import choose
        from model.tuning.classifier import PromptedClassifier

        choice = choose(precision or "auto", device())
        warnings.simplefilter("ignore", UserWarning)  # it is printed below
        classifier = PromptedClassifier.from_pretrained(
            prompt, backbone, any_backbone=any_backbone, precision=choice.precision
        )
    click.echo(f"evaluate: precision {choice}", err=True)
    if choice.warning:
        click.echo(f"warning: {choice.warning}", err=True)
    predictions = _predicted(classifier, examples)
    measured = _measured(examples, predictions, labels) | {"prompt": str(prompt), "data": str(data)}
    measured["left_out"] = {"without_text": missing.texts, "without_label": missing.labels}
    if as_json:
        print_json(measured)
    else:
        _show(measured)


def _read(
    prompt: Path, data: Path, texts: tuple[str, ...], label: str
) -> tuple[list[EvaluationExample], Missing, tuple[str, ...]]:
    """Read the examples and the prompt's labels, without torch: a typo is answered at once."""
    from model.tuning.downstream import Downstream
    from storage.prompts.task_description import description_of
    from storage.records.labeled_sets import LABEL_NAMES
    from tasks.evaluate.labeled_file import read_examples

    if not data.is_file():
        raise InputError(f"{data}: no such file: give the path of the labeled data")
    task = Downstream.of(description_of(prompt), prompt)
    fields = task.template.fields
    if texts and len(texts) != len(fields):
        raise InputError(f"--text: {prompt} takes {', '.join(fields)}: give one --text for each, in that order")
    beside = data.with_name(LABEL_NAMES)
    names = beside if beside.is_file() else None
    if names:
        click.echo(f"{names} gives the names and the order of the labels", err=True)
    return *read_examples(data, texts or fields, label, task.labels, names), task.labels


def _predicted(classifier: PromptedClassifier, examples: Sequence[EvaluationExample]) -> list[Prediction]:
    predictions: list[Prediction] = []
    told = time.monotonic()
    for start in range(0, len(examples), BLOCK):
        predictions += classifier.predict([example.texts for example in examples[start : start + BLOCK]])
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            click.echo(f"  evaluate: {len(predictions):,} of {counted(len(examples), 'example')}", err=True)
    return predictions


def _measured(
    examples: Sequence[EvaluationExample], predictions: Sequence[Prediction], labels: Sequence[str]
) -> dict[str, Any]:
    from dataclasses import asdict

    import numpy as np

    from tasks.evaluate import classification as measures

    true = [example.label for example in examples]
    probabilities = np.array([[prediction.probabilities[name] for name in labels] for prediction in predictions])
    predicted = [labels.index(prediction.label) for prediction in predictions]
    matrix = measures.confusion_matrix(true, predicted, len(labels))
    majority = measures.balance(true)
    support = matrix.sum(1)
    wrong = [number for number, label in enumerate(true) if predicted[number] != label]
    wrong.sort(key=lambda number: -probabilities[number].max())
    return {
        "examples": len(true),
        "accuracy": _with_interval(
            measures.accuracy(matrix), measures.wilson_interval(int(np.trace(matrix)), len(true))
        ),
        "macro_f1": _with_interval(measures.macro_f1(matrix), measures.macro_f1_interval(matrix)),
        "majority": {"label": labels[majority.label], "share": majority.share},
        "labels": [
            {"label": name, "examples": int(support[place]), "f1": float(score)}
            for place, (name, score) in enumerate(zip(labels, measures.f1_scores(matrix), strict=True))
        ],
        "confusion": {"rows": "true", "columns": "predicted", "labels": list(labels), "counts": matrix.tolist()},
        "calibration": asdict(measures.calibration(true, probabilities)),
        "confident_errors": [
            {
                "row": examples[number].row,
                "texts": list(examples[number].texts),
                "label": labels[true[number]],
                "predicted": labels[predicted[number]],
                "probability": float(probabilities[number].max()),
            }
            for number in wrong[:ERRORS]
        ],
    }


def _with_interval(value: float, interval: tuple[float, float]) -> dict[str, Any]:
    return {"value": value, "low": interval[0], "high": interval[1]}


def _show(measured: dict[str, Any]) -> None:
    from flows.terminal import table

    majority, fit = measured["majority"], measured["calibration"]
    click.echo(f"examples     {measured['examples']:,}")
    for name, key in (("accuracy", "accuracy"), ("macro F1", "macro_f1")):
        value = measured[key]
        click.echo(f"{name:<12} {value['value']:.3f}  (95 % interval {value['low']:.3f} to {value['high']:.3f})")
    click.echo(f"majority     {majority['share']:.3f}  (always answering {majority['label']})")
    click.echo(f"calibration  error {fit['error']:.3f}, Brier score {fit['brier']:.3f}, log loss {fit['log_loss']:.3f}")
    if measured["accuracy"]["value"] <= majority["share"]:
        click.echo("warning: the accuracy is at or below that of always giving the most frequent label", err=True)
    counts = measured["confusion"]
    click.echo("\ntrue label by row, predicted label by column")
    rows = [
        [entry["label"], *map(str, row), f"{entry['f1']:.3f}"]
        for entry, row in zip(measured["labels"], counts["counts"], strict=True)
    ]
    for line in table(["", *counts["labels"], "F1"], rows, [False, *([True] * (len(rows) + 1))]):
        click.echo(line)
    if measured["confident_errors"]:
        click.echo("\nmost confident errors")
    for error in measured["confident_errors"]:
        text = " / ".join(error["texts"])
        shown = text if len(text) <= 80 else f"{text[:79]}…"
        given = f"{error['predicted']} ({error['probability']:.2f}) instead of {error['label']}"
        click.echo(f"  row {error['row']}: {given}: {shown}")
