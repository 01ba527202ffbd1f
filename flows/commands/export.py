"""`supmer export`: write a prompt as an adapter that Hugging Face PEFT loads."""

from __future__ import annotations

from pathlib import Path

import click

from flows.workspace import silence
from storage import paths
from storage.counts import counted
from storage.errors import InputError

EXAMPLES = """\b
Examples:
  supmer export --to peft my-adapter --prompt artifacts/tuned/movies/supmer
  supmer export --to peft my-adapter --prompt artifacts/tuned/movies/supmer --push me/movies-prompt --private
  supmer export --to peft start --prompt artifacts/prompt/supmer --backbone google-t5/t5-base
"""


@click.command(name="export", epilog=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", required=True, expose_value=False, type=click.Choice(["peft"]), help="Format to write.")
@click.option(
    "--prompt",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the prompt; needed if there are several.",
)
@click.option("--backbone", metavar="NAME|DIR", help="The model, by its name on the hub or its folder.")
@click.option("--any-backbone", is_flag=True, help="Use that model even if the prompt was made for other files.")
@click.option("--push", "repository", metavar="OWNER/NAME", help="Upload it to this repository of the hub, too.")
@click.option("--private", is_flag=True, help="With --push: a new repository is private.")
def command(
    folder: Path,
    prompt: Path | None,
    backbone: str | None,
    repository: str | None,
    *,
    any_backbone: bool,
    private: bool,
) -> None:
    """Write a prompt as a Hugging Face PEFT adapter to DIR; peft.PeftModel.from_pretrained loads it.

    Its README.md has the template, the label words and a program that predicts with it. The adapter refers to its model
    by the name on the hub if the model came from there, and otherwise by the model's folder relative to DIR.
    """
    silence()
    from storage.atomic import refuse_place
    from tasks.peft.exchange import export_adapter
    from tasks.peft.push import push_to_hub, refuse_repository

    if private and repository is None:
        raise click.UsageError("--private goes with --push.")
    if repository is not None:
        refuse_repository(repository)
    refuse_place(folder)
    chosen = prompt if prompt is not None else _only_prompt()
    adapter = export_adapter(chosen, folder, backbone, any_backbone=any_backbone)
    tokens, width = adapter.prompt.shape
    click.echo(f"{folder}: a PEFT adapter of {counted(tokens, 'token')}, width {width}, for {adapter.base}")
    if repository is not None:
        if adapter.names_a_folder:
            what = f"the adapter names its model by a folder of this machine, {adapter.base}"
            click.echo(f"warning: {what}: others need --backbone NAME, its name on the hub", err=True)
        click.echo(f"pushed: {push_to_hub(folder, repository, private=private)}")


def _only_prompt() -> Path:
    """Return the only prompt of this workspace; raise InputError if there are several or none."""
    from storage.prompts.prompt_artifact import CONFIG

    folders = sorted(path.parent for path in Path(paths.ARTIFACTS).rglob(CONFIG))
    if len(folders) == 1:
        return folders[0]
    there = ", ".join(map(str, folders[:6])) + (" …" if len(folders) > 6 else "")
    raise InputError(f"--prompt: needed, because {paths.ARTIFACTS} has {there or 'no prompt'}: give the folder of one")
