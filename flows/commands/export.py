"""`supmer export`: a prompt as an adapter that Hugging Face PEFT loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.workspace import silence
from storage import paths
from storage.errors import InputError

if TYPE_CHECKING:
    from storage.prompts.prompt_artifact import PromptArtifact

EXAMPLES = """\b
Examples:
  supmer export --to peft my-adapter --prompt artifacts/tuned/movies/supmer
  supmer export --to peft start --prompt artifacts/prompt/supmer --backbone google-t5/t5-base
"""


@click.command(name="export", epilog=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", required=True, expose_value=False, type=click.Choice(["peft"]), help="What to write.")
@click.option("--prompt", type=click.Path(path_type=Path), metavar="DIR", help="The prompt, if there are several.")
@click.option("--backbone", metavar="NAME|DIR", help="The model, by its name on the hub or its folder.")
@click.option("--any-backbone", is_flag=True, help="Take that model even if its files are not those it was made for.")
def command(folder: Path, prompt: Path | None, backbone: str | None, *, any_backbone: bool) -> None:
    """Write a prompt as a Hugging Face PEFT adapter to DIR; peft.PeftModel.from_pretrained loads it.

    Its README.md has the template, the label words and a program that predicts with it. The adapter names its model:
    where that came from the hub, by its name there; otherwise by the folder it lies in here.
    """
    silence()
    from model.tuning.downstream import KEY, Downstream
    from storage.atomic import making_folder
    from storage.prompts.local_backbone import MadeFor
    from storage.prompts.peft_adapter import Adapter, write_adapter
    from storage.prompts.prompt_artifact import read_prompt
    from tasks.cards.adapter_card import adapter_card

    with making_folder(folder) as partial:
        chosen = prompt if prompt is not None else _only_prompt()
        artifact = read_prompt(chosen)
        task = Downstream.of(artifact.about, chosen) if KEY in artifact.about else None
        base, revision = _base(chosen, artifact, backbone, any_backbone=any_backbone)
        adapter = Adapter(artifact.prompt, base, revision, artifact.about)
        write_adapter(partial, adapter, adapter_card(adapter, str(MadeFor.of(artifact.about)), task))
    tokens, width = artifact.prompt.shape
    click.echo(f"{folder}: a PEFT adapter of {tokens} tokens, width {width}, for {base}")


def _only_prompt() -> Path:
    """The prompt of this workspace, if it has one only."""
    from storage.prompts.prompt_artifact import CONFIG

    found = sorted(path.parent for path in Path(paths.ARTIFACTS).rglob(CONFIG))
    if len(found) == 1:
        return found[0]
    there = ", ".join(map(str, found[:6])) + (" …" if len(found) > 6 else "")
    raise InputError(f"--prompt: which prompt is meant? {paths.ARTIFACTS} has {there or 'none'}: name its folder")


def _base(prompt: Path, artifact: PromptArtifact, given: str | None, *, any_backbone: bool) -> tuple[str, str | None]:
    """The model's name, as PEFT will ask for it, and its revision on the hub."""
    from storage.prompts.local_backbone import MadeFor, backbone_folder
    from storage.sources.source import Kind, parse_spec

    source = MadeFor.of(artifact.about).source
    local = None if given is None else Path(given)
    if local is not None and not local.is_dir():
        source = f"{Kind.HUB}:{given}"
    if source.startswith(f"{Kind.HUB}:") and (local is None or not local.is_dir()):
        spec = parse_spec(source)
        return spec.location, spec.version or None
    folder = backbone_folder(prompt, artifact.about, local, any_backbone=any_backbone).resolve()
    width = _width(folder)
    if width != artifact.prompt.shape[1]:
        raise InputError(
            f"{folder}: has the width {width}, and {prompt} was made for one of {artifact.prompt.shape[1]}"
        )
    return str(folder), None


def _width(folder: Path) -> Any:
    try:
        config = json.loads((folder / "config.json").read_bytes())
        return config.get("d_model", config.get("hidden_size"))
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"{folder}: no config.json of a model in it: give the folder of a transformers model"
        ) from error
