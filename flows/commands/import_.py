"""`supmer import`: convert a Hugging Face PEFT adapter to a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flows.workspace import silence
from storage.counts import counted
from storage.errors import InputError

MAX_LENGTH = 256

EXAMPLES = """\b
Examples:
  supmer import --from peft my-adapter my-prompt
  supmer import --from peft my-adapter my-prompt --template "{text} It was <X>." --label bad=terrible --label good=great
"""


@click.command(name="import", epilog=EXAMPLES)
@click.argument("adapter", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("folder", metavar="NEWDIR", type=click.Path(path_type=Path))
@click.option("--from", required=True, expose_value=False, type=click.Choice(["peft"]), help="Format to read.")
@click.option("--template", metavar="TEXT", help="Template: a text with {fields}; <X> stands for T5's sentinel.")
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=WORD", help="A label and its word; give one for each label."
)
@click.option(
    "--max-length", type=click.IntRange(min=1), default=MAX_LENGTH, show_default=True, help="Longest input, in tokens."
)
def command(adapter: Path, folder: Path, template: str | None, labels: tuple[str, ...], max_length: int) -> None:
    """Convert the PEFT prompt-tuning adapter in DIR to a prompt in NEWDIR.

    The adapter must be of type PROMPT_TUNING for an encoder-decoder, with num_transformer_submodules=1, saved as
    safetensors; pickled files are not opened. An adapter that `supmer export` wrote keeps its task. For any other,
    --template and --label describe the task, so that `supmer predict` can use the prompt.
    """
    silence()
    from model.tuning.downstream import KEY
    from storage.atomic import refuse_place
    from tasks.peft.exchange import import_adapter

    refuse_place(folder)
    task = _task(template, labels, max_length) if template is not None or labels else None
    artifact = import_adapter(adapter, folder, task)
    tokens, width = artifact.prompt.shape
    said = "" if KEY in artifact.about else ", without a task"
    click.echo(f"{folder}: a prompt of {counted(tokens, 'token')}, width {width}{said}")


def _task(template: str | None, labels: Sequence[str], max_length: int) -> dict[str, Any]:
    if template is None or len(labels) < 2:
        raise InputError("--template and at least two --label NAME=WORD belong together: give both")
    pairs = [label.partition("=") for label in labels]
    bad = [label for label, (name, _, word) in zip(labels, pairs, strict=True) if not name or not word]
    if bad:
        raise InputError(f"--label {bad[0]}: write NAME=WORD, for example good=great")
    from model.text.templates import template_fields

    fields = list(template_fields(template))
    if not fields:
        raise InputError(f"--template {template!r}: names no field: write {{field}}, or {{{{ and }}}} for braces")
    named = {
        "fields": fields,
        "labels": [name for name, _, _ in pairs],
        "words": [word for _, _, word in pairs],
    }
    return named | {"template": template, "max_length": max_length}
