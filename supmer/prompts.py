"""Prompts on disk: load and save them, export them to Hugging Face PEFT and import them from there."""

from collections.abc import Mapping
from pathlib import Path

from model.text.templates import template_fields
from storage.atomic import making_folder
from storage.prompts.prompt_artifact import PromptArtifact, read_prompt, write_prompt
from tasks.peft.exchange import export_adapter, import_adapter

_DEFAULT_CARD = "# A soft prompt\n\n{tokens} tokens of width {width}, saved by supmer.\n"


def load_prompt(folder: str | Path) -> PromptArtifact:
    """Return the prompt in a folder: `prompt` [P, d], `regularizer` tensors by name, and `about`, its config.json.

    Raise InputError if the folder is incomplete or damaged.
    """
    return read_prompt(Path(folder))


def save_prompt(prompt: PromptArtifact, folder: str | Path, card: str | None = None) -> Path:
    """Write a prompt to a new folder and return the folder.

    Raise InputError if the folder exists already. The same prompt and card give the same bytes.

    Args:
        prompt: as `load_prompt` returns it, or made from an array of float32.
        folder: must not exist yet.
        card: the text of README.md; None: a short default text.
    """
    target = Path(folder)
    tokens, width = prompt.prompt.shape
    with making_folder(target) as partial:
        write_prompt(partial, prompt, card or _DEFAULT_CARD.format(tokens=tokens, width=width))
    return target


def export_peft(
    prompt: str | Path, folder: str | Path, *, backbone: str | Path | None = None, any_backbone: bool = False
) -> Path:
    """Write a prompt to a new folder as a Hugging Face PEFT adapter and return the folder.

    `peft.PeftModel.from_pretrained` loads the adapter; its README.md has a program that predicts with it.

    Args:
        prompt: the prompt's folder.
        folder: must not exist yet.
        backbone: the name of the model on the hub, or its folder; None: the model the prompt was made for.
        any_backbone: accept a model's folder even if its files differ from those the prompt was made for.
    """
    export_adapter(Path(prompt), Path(folder), None if backbone is None else str(backbone), any_backbone=any_backbone)
    return Path(folder)


def push_to_hub(folder: str | Path, repository: str, *, private: bool = False) -> str:
    """Upload an adapter's folder to the Hugging Face hub and return the address of the commit.

    The hub's own settings apply: HF_TOKEN or `hf auth login`, and HF_ENDPOINT.

    Args:
        folder: as `export_peft` wrote it.
        repository: `owner/name`; it is made if it does not exist.
        private: a new repository is private.
    """
    from tasks.peft import push

    return push.push_to_hub(Path(folder), repository, private=private)


def import_peft(
    adapter: str | Path,
    folder: str | Path,
    *,
    template: str | None = None,
    words: Mapping[str, str] | None = None,
    max_length: int = 256,
) -> Path:
    """Write a Hugging Face PEFT adapter to a new folder as a prompt and return the folder.

    An adapter that `export_peft` wrote keeps its task. Any other can only be used as a start for tuning, unless
    `template` and `words` describe its task.

    Args:
        adapter: the adapter's folder; pickled files are not opened.
        folder: must not exist yet.
        template: text with `{fields}`, and with `<X>` where plain T5 fills in a word.
        words: the word of each label.
        max_length: the length of the longest input, in tokens.
    """
    task = None
    if template is not None or words is not None:
        task = {
            "template": template,
            "fields": list(template_fields(template or "")),
            "labels": list(words or {}),
            "words": list((words or {}).values()),
            "max_length": max_length,
        }
    import_adapter(Path(adapter), Path(folder), task)
    return Path(folder)
