"""`supmer predict`: label new texts with a tuned prompt."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from flows.options import precision_option
from flows.workspace import silence
from storage.counts import counted, speed
from storage.errors import InputError
from storage.records.formats import CSV, JSON_LINES, NAMES, PARQUET
from storage.signs_of_life import doing

if TYPE_CHECKING:
    from model.t5.precision import WantedPrecision
    from model.tuning.classifier import Prediction, PromptedClassifier
    from storage.records.answers import Answer, Write
    from storage.records.byte_streams import Counted
    from storage.records.unlabeled_texts import UnlabeledRow

EXAMPLES = """\b
Examples:
  supmer predict --prompt artifacts/tuned/movies/supmer --data new.jsonl
  supmer predict --prompt artifacts/tuned/movies/supmer --data new.csv --text review --keep id --output labels.jsonl
  supmer predict --prompt artifacts/tuned/movies/supmer --data new.csv --text review --output labels.parquet
  echo "great film" | supmer predict --prompt artifacts/tuned/movies/supmer --data -
  supmer predict --prompt my-prompt --backbone /models/t5-base --data new.txt
"""

BLOCK_BYTES = 4_000_000  # most bytes of rows in a block, whatever their number
PROGRESS_SECONDS = 5.0
STANDARD_INPUT = "standard input"


@dataclass(frozen=True)
class Wanted:
    """A request: the data and its format, the fields to read, the rows per block, and the fields to copy."""

    data: str
    input_format: str | None
    fields: tuple[str, ...]
    block: int
    keep: tuple[str, ...]
    keep_all: bool


@click.command(name="predict", epilog=EXAMPLES)
@click.option(
    "--prompt", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of a tuned prompt."
)
@click.option("--data", required=True, metavar="FILE", help="File with the texts; - reads standard input.")
@click.option(
    "--text",
    multiple=True,
    metavar="FIELD",
    help="Field with the text; give one for each field of the template, in order.",
)
@click.option("--input-format", type=click.Choice(NAMES), help="Format of the data; default: by the file's name.")
@click.option(
    "--format",
    "form",
    type=click.Choice((CSV, JSON_LINES, PARQUET)),
    show_default="by the output's name, or else jsonl",
    help="Format of the answers.",
)
@click.option("--keep", multiple=True, metavar="FIELD", help="Also write this field of each row. May be repeated.")
@click.option("--keep-all", is_flag=True, help="Also write every field of each row.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write to, instead of standard output."
)
@click.option(
    "--backbone",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the model; default: the workspace's backbone.",
)
@click.option("--any-backbone", is_flag=True, help="Use that model even if the prompt was tuned for other files.")
@precision_option("auto")
@click.option("--block", type=click.IntRange(min=1), default=1024, show_default=True, help="Rows read at a time.")
def command(
    prompt: Path,
    text: tuple[str, ...],
    form: str | None,
    output: Path | None,
    backbone: Path | None,
    precision: WantedPrecision | None,
    *,
    any_backbone: bool,
    **rest: Any,
) -> None:
    """Label new texts: write for each, in order, its label and the probability of every label.

    The data is JSON lines, CSV, TSV (each also .gz or .zst), Parquet, or plain lines, one text per line. Without
    --input-format, standard input is read as JSON lines if its first line is an object, and as plain lines otherwise.
    Files of any size are read and written one block at a time; --block 1 answers line by line.
    """
    silence()
    from storage.records.answers import answer_format

    form = answer_format(form, output)
    _check_data(rest["data"])
    _check_output(output)
    wanted = Wanted(fields=_fields(prompt, text), **rest)
    _check_start(wanted, prompt, backbone)
    with doing("predict: loading torch and the model"), warnings.catch_warnings():
        from model.device import device  # torch from here on: a typo has been answered by now
        from model.t5.precision import choose
        from model.tuning.classifier import PromptedClassifier

        choice = choose(precision or "auto", device())
        warnings.simplefilter("ignore", UserWarning)  # it is printed below
        classifier = PromptedClassifier.from_pretrained(
            prompt, backbone, any_backbone=any_backbone, precision=choice.precision
        )
    if precision is not None:  # otherwise nothing is printed beside the answers
        click.echo(f"precision {choice}", err=True)
    if choice.warning:
        click.echo(f"warning: {choice.warning}", err=True)
    from storage.records.answers import writing_answers

    with _writing(output) as stream, writing_answers(stream, form) as write:
        labeled = _predict(classifier, wanted, stream, write)
    if output is not None and labeled:
        click.echo(f"{output}: {counted(labeled, 'answer')}", err=True)


def _fields(prompt: Path, text: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields to read. Raise InputError if the folder holds no tuned prompt, or has other fields."""
    from model.tuning.downstream import Downstream
    from storage.prompts.task_description import description_of

    fields = Downstream.of(description_of(prompt), prompt).template.fields
    if text and len(text) != len(fields):
        raise InputError(f"--text: {prompt} takes {', '.join(fields)}: give one --text for each, in that order")
    return text or fields


def _check_start(wanted: Wanted, prompt: Path, backbone: Path | None) -> None:
    """Raise InputError if the backbone is not there, or the first row of a file lacks a field."""
    from storage.prompts.local_backbone import find_backbone
    from storage.prompts.task_description import description_of
    from storage.prompts.weights_artifact import is_weights

    if not is_weights(prompt):
        find_backbone(prompt, description_of(prompt), backbone)
    if wanted.data != "-":
        next(_rows(wanted, lambda _bytes: None), None)


def _check_data(data: str) -> None:
    """Raise InputError if the data cannot be read, before the model is loaded."""
    if data != "-" and (not Path(data).exists() or Path(data).is_dir()):
        raise InputError(f"{data}: no such file: give the path of the data, or - for standard input")
    if data == "-" and sys.stdin is None:
        raise InputError(f"{STANDARD_INPUT}: is closed: open it, or name a file with --data")


def _check_output(output: Path | None) -> None:
    """Raise InputError if the output cannot be written."""
    if output is not None and output.is_dir():
        raise InputError(f"{output}: is a folder: name a file to write to")
    if output is None and sys.stdout is None:
        raise InputError("standard output: is closed: open it, or name a file with --output")


@contextmanager
def _writing(output: Path | None) -> Iterator[IO[bytes]]:
    """Open standard output, or a file that is complete or absent in the end."""
    if output is None:
        yield sys.stdout.buffer
        return
    from storage.atomic import replacing_file

    with replacing_file(output) as beside, beside.open("wb") as file:
        yield file


def _predict(classifier: PromptedClassifier, wanted: Wanted, stream: IO[bytes], write: Write) -> int:
    """Label the rows and return their number."""
    progress = _Progress(wanted.data)
    for block in _blocks(_rows(wanted, progress.read), wanted.block):
        predictions = classifier.predict([row.texts for row in block])
        write([_answer(row, prediction, wanted) for row, prediction in zip(block, predictions, strict=True)])
        stream.flush()
        progress.advance(len(block))
    if not progress.done:
        where = STANDARD_INPUT if wanted.data == "-" else wanted.data
        click.echo(f"{where}: is empty: nothing to label", err=True)
    return progress.done


def _rows(wanted: Wanted, note_bytes: Counted) -> Iterator[UnlabeledRow]:
    from storage.records.unlabeled_texts import Fields, read_file, read_stream

    fields = Fields(wanted.fields, wanted.keep)
    if wanted.data != "-":
        return read_file(Path(wanted.data), fields, wanted.input_format, note_bytes)
    if wanted.input_format == PARQUET:
        raise InputError("--input-format parquet: a stream cannot be Parquet: name the file with --data")
    return read_stream(sys.stdin.buffer, STANDARD_INPUT, fields, wanted.input_format)


def _blocks(rows: Iterator[UnlabeledRow], most: int) -> Iterator[list[UnlabeledRow]]:
    """Yield the rows in blocks of limited number and size; rows before a bad row are still answered."""
    block: list[UnlabeledRow] = []
    size = 0
    try:
        for row in rows:
            block.append(row)
            size += row.size
            if len(block) >= most or size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
    except InputError:
        if block:
            yield block
        raise
    if block:
        yield block


def _answer(row: UnlabeledRow, prediction: Prediction, wanted: Wanted) -> Answer:
    from storage.records.answers import PREDICTED, PROBABILITIES

    kept = row.record if wanted.keep_all else {name: row.record[name] for name in wanted.keep}
    taken = [name for name in (PREDICTED, PROBABILITIES) if name in kept]
    if taken:
        raise InputError(f"{wanted.data}: its field {taken[0]} would be overwritten: name the other fields with --keep")
    return {**kept, PREDICTED: prediction.label, PROBABILITIES: prediction.probabilities}


@dataclass
class _Progress:
    """Progress of a prediction, printed on standard error every few seconds."""

    data: str
    done: int = 0
    share: float | None = None
    size: int = 0
    started: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.size = Path(self.data).stat().st_size if self.data != "-" else 0

    def read(self, done: int) -> None:
        """Note that `done` bytes of the file have been read."""
        self.share = done / self.size if self.size else None

    def advance(self, rows: int) -> None:
        """Count `rows` more rows as done."""
        self.done += rows
        now = time.monotonic()
        if now - self.printed >= PROGRESS_SECONDS:
            self.printed = now
            read = f", {self.share:.0%} of {self.data} read" if self.share is not None else ""
            rate = self.done / (now - self.started)
            click.echo(f"  predict: {self.done:,} examples, {speed(rate, 'examples')}{read}", err=True)
