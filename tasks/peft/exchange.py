"""Conversion of a prompt's folder to the folder of a Hugging Face PEFT adapter, and back."""

import json
import os
from pathlib import Path
from typing import Any

from model.tuning.downstream import KEY, Downstream
from storage.atomic import making_folder
from storage.errors import InputError
from storage.hashing import file_hash
from storage.prompts.local_backbone import MadeFor, backbone_folder
from storage.prompts.peft_adapter import TENSORS, Adapter, read_adapter, write_adapter
from storage.prompts.prefix_artifact import is_prefixes
from storage.prompts.prompt_artifact import PromptArtifact, read_prompt, write_prompt
from storage.prompts.weights_artifact import is_adapter, is_weights, kept_weights, refuse_classifier
from storage.sources.source import Kind, parse_spec
from tasks.cards.adapter_card import adapter_card, imported_card

_RENEWED = ("kind", "version", "prompt_tokens", "width")  # written anew with every prompt


def export_adapter(prompt: Path, folder: Path, backbone: str | None, *, any_backbone: bool = False) -> Adapter:
    """Write a prompt to `folder` as an adapter with its card, and return the adapter.

    Args:
        prompt: the prompt's folder.
        folder: the new folder; must not exist yet.
        backbone: the model, by its name on the hub or its folder; None for the one that the prompt was made for.
        any_backbone: accept a model's folder even if its files differ from those that the prompt was made for.
    """
    _refuse_what_is_no_prompt(prompt)
    with making_folder(folder) as partial:
        artifact = read_prompt(prompt)
        task = Downstream.of(artifact.about, prompt) if KEY in artifact.about else None
        base, revision = _base(prompt, artifact, backbone, any_backbone=any_backbone)
        if revision is None and Path(base).is_absolute():
            base = _beside(Path(base), folder.resolve())
        about = without_places(artifact.about)
        adapter = Adapter(artifact.prompt, base, revision, about)
        write_adapter(partial, adapter, adapter_card(adapter, str(MadeFor.of(about)), task))
    return adapter


def _refuse_what_is_no_prompt(folder: Path) -> None:
    """Raise InputError, which says why, if a tuned folder holds something that is not exported."""
    refuse_classifier(folder)
    if is_weights(folder):
        kept_weights(folder)  # raises InputError if they were not kept
        raise InputError(f"{folder}: holds trained weights: transformers' from_pretrained loads the folder as it is")
    if is_adapter(folder):
        raise InputError(f"{folder}: is a PEFT adapter: peft.PeftModel.from_pretrained loads it as it is")
    if is_prefixes(folder):
        raise InputError(
            f"{folder}: holds prefixes, which PEFT cannot express for T5: it has them in the decoder's "
            "self-attention only, with a position bias, and several layers share them: use `supmer predict`"
        )


def import_adapter(adapter: Path, folder: Path, task: dict[str, Any] | None) -> PromptArtifact:
    """Write an adapter to `folder` as a prompt with its card, and return the prompt.

    Args:
        adapter: the adapter's folder.
        folder: the new folder; must not exist yet.
        task: fields, labels, words, template and maximum length, for an adapter that does not state them; if None, the
            adapter's own, and without these the prompt is a start for tuning.
    """
    with making_folder(folder) as partial:
        read = read_adapter(adapter)
        about = {name: value for name, value in read.about.items() if name not in _RENEWED}
        about["imported_from"] = origin = {"file": TENSORS, "sha256": file_hash(adapter / TENSORS)}
        about.setdefault("backbone", {"source": _source(read), "hash": ""})
        if task is not None:
            about[KEY] = {"dataset": adapter.name} | task
        downstream = Downstream.of(about, adapter) if KEY in about else None
        if downstream is not None:
            about[KEY] |= downstream.to_json()
        artifact = PromptArtifact(read.prompt, {}, about)
        write_prompt(partial, artifact, imported_card(read, origin["file"], origin["sha256"], downstream))
    return artifact


def _base(prompt: Path, artifact: PromptArtifact, given: str | None, *, any_backbone: bool) -> tuple[str, str | None]:
    """Return the model's name, as PEFT will ask for it, and its revision on the hub."""
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


def _beside(model: Path, adapter: Path) -> str:
    """Return a model's folder relative to the adapter's, or its name alone if they lie in different places."""
    common = os.path.commonpath([model, adapter])
    return f"./{model.name}" if common == model.anchor else os.path.relpath(model, adapter)


def without_places(value: Any) -> Any:
    """Return a description in which a folder of this machine is named by its last part only."""
    if isinstance(value, dict):
        return {name: without_places(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_places(inner) for inner in value]
    prefix = f"{Kind.PATH}:"
    if isinstance(value, str) and value.startswith((f"{prefix}/", f"{prefix}~")):
        return prefix + Path(value).name
    return value


def _width(folder: Path) -> Any:
    try:
        config = json.loads((folder / "config.json").read_bytes())
        return config.get("d_model", config.get("hidden_size"))
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise InputError(
            f"{folder}: no config.json of a model in it: give the folder of a transformers model"
        ) from error


def _source(adapter: Adapter) -> str:
    """Return the adapter's model as a source of this project: a folder, or a name on the hub."""
    if not adapter.base or adapter.base.startswith("."):  # none, or a folder beside the adapter, wherever that was
        return ""
    if Path(adapter.base).is_absolute():
        return f"path:{adapter.base}"
    return f"hf:{adapter.base}" + (f"@{adapter.revision}" if adapter.revision else "")
