"""`supmer ship`: write a learned prompt, with its provenance, as a folder to be kept with a project."""

from __future__ import annotations

from pathlib import Path

import click

from flows.terminal import size
from flows.workspace import enter
from storage import paths
from storage.counts import counted
from storage.errors import InputError

EXAMPLES = """\b
Examples:
  supmer ship supmer prompts/my-news
  supmer ship without-mgr ../elsewhere/prompts/plain --licence "CC BY 4.0"
"""


@click.command(name="ship", epilog=EXAMPLES)
@click.argument("variant")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--licence", default="MIT", show_default=True, metavar="TEXT", help="Licence of the prompt.")
def command(variant: str, folder: Path, licence: str) -> None:
    """Write the learned prompt VARIANT to DIR, with everything that a stranger needs to use and to check it.

    DIR gets θ and φ, a card with recipe, data and scores, the list of all documents that it was learned from, and
    hashes. `supmer tune` starts from it (--prompt DIR); `supmer verify` checks the folders in prompts/ of a workspace.
    """
    target = folder.absolute()
    root = enter()
    from storage.atomic import making_folder, refuse_place
    from storage.lineage.provenance import provenance
    from storage.prompts.prompt_artifact import CONFIG, PromptArtifact, read_prompt, write_prompt
    from storage.prompts.shipped_prompt import SHIPPED, write_documents, write_hashes
    from tasks.cards.shipped_card import shipped_card

    refuse_place(target)
    source = root / paths.PROMPTS / variant
    if not (source / CONFIG).is_file():
        there = ", ".join(sorted(path.parent.name for path in (root / paths.PROMPTS).glob(f"*/{CONFIG}")))
        raise InputError(f"{variant}: no prompt in {paths.PROMPTS}/{variant}: {_choice(there)}")
    artifact = read_prompt(source)
    record, documents = provenance(root)
    record |= {"variant": variant, "licence": licence}
    card = shipped_card(artifact.about, artifact.prompt.shape, target.name, record)
    with making_folder(target) as partial:
        about = artifact.about | {SHIPPED: record}
        write_prompt(partial, PromptArtifact(artifact.prompt, artifact.regularizer, about), card)
        write_documents(partial, documents)
        write_hashes(partial)
    taken = sum(path.stat().st_size for path in target.iterdir())
    click.echo(f"{folder}: {variant}, learned from {counted(len(documents), 'document')}, {size(taken)}; commit it")


def _choice(there: str) -> str:
    return f"there are {there}" if there else "`supmer run metatrain` makes one"
