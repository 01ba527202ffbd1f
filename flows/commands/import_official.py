"""`supmer import-official`: convert the authors' released checkpoints to a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from storage.counts import counted

if TYPE_CHECKING:
    from storage.prompts.prompt_artifact import PromptArtifact

EXAMPLES = """\b
Example:
  supmer import-official --prompt prompt_t5base.pt --regularizer gradient_edit_t5base.pt official-t5-base
"""

CARD = """# A soft prompt of SUPMER's authors

Converted by `supmer import-official` from the checkpoints released with *Self-supervised Meta-Prompt Learning with
Meta-Gradient Regularization for Few-shot Generalization* (Pan et al., Findings of EMNLP 2023),
github.com/beepkh/SUPMER.

| | |
|---|---|
| prompt | {tokens} tokens of width {width}, from `{prompt_file}` (SHA-256 `{prompt_hash}`) |
| regularizer | {regularizer} |

The numbers are those of the files, as float32. The files do not say which backbone the prompt was trained for, only
their names do: it must be that one, and have the width {width}.
"""

REGULARIZER = """
## The regularizer

It is the authors' own (`"regularizer": "released"` in config.json), not the one of the paper's text: layers
max(0, U·V·x + c) without the identity, and one gate with a hidden layer. It cannot be written as g + U·V·g + c with a
gate σ(W·H̄ + b), so its tensors are kept as they are, and `model/tuning/official.py` computes with them. The gate's
last layer has its sign turned: theirs is the share of the raw gradient, ours that of h.

Two things of the released code are not in its files and not copied: its H̄ counts padding, and its downstream
configuration rescales the whole gradient at once, where its meta-training rescales row by row, as is done here.
"""


@click.command(name="import-official", epilog=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--prompt", required=True, type=click.Path(path_type=Path), help="A released prompt_*.pt: θ.")
@click.option("--regularizer", type=click.Path(path_type=Path), help="The gradient_edit_*.pt that goes with it: φ.")
def command(folder: Path, prompt: Path, regularizer: Path | None) -> None:
    """Convert released checkpoints (prompt_*.pt, gradient_edit_*.pt) to a prompt in DIR.

    Only tensors are read from the files; no code in them is run.
    """
    from model.tuning.official import read_official
    from storage.atomic import making_folder
    from storage.prompts.prompt_artifact import PromptArtifact, write_prompt

    with making_folder(folder) as partial:
        released = read_official(prompt, regularizer)
        origin = {"prompt": _origin(prompt)} | ({"regularizer": _origin(regularizer)} if regularizer else {})
        artifact = PromptArtifact(released.prompt, released.regularizer, {**released.about, "imported_from": origin})
        write_prompt(partial, artifact, _card(artifact, origin))
    tokens, width = released.prompt.shape
    click.echo(
        f"{folder}: a prompt of {counted(tokens, 'token')}, width {width}, "
        f"{'with' if regularizer else 'without'} regularizer"
    )


def _origin(path: Path) -> dict[str, str]:
    from storage.hashing import file_hash

    return {"file": path.name, "sha256": file_hash(path)}


def _card(artifact: PromptArtifact, origin: dict[str, Any]) -> str:
    tokens, width = artifact.prompt.shape
    said = "none"
    if artifact.regularizer:
        layers = sum(name.endswith(".up") for name in artifact.regularizer)
        rank, hidden = artifact.regularizer["layers.0.up"].shape[1], len(artifact.regularizer["gate_hidden.bias"])
        file, digest = origin["regularizer"]["file"], origin["regularizer"]["sha256"]
        said = f"{layers} layers of rank {rank}, a gate over {hidden}, from `{file}` (SHA-256 `{digest}`)"
    card = CARD.format(
        tokens=tokens,
        width=width,
        prompt_file=origin["prompt"]["file"],
        prompt_hash=origin["prompt"]["sha256"],
        regularizer=said,
    )
    return card + (REGULARIZER if artifact.regularizer else "")
