"""Trained weights as a folder that can be shared: a transformers folder, with a description and a model card.

model.safetensors, config.json, tokenizer files    as transformers reads them; absent if the weights were not kept
adapter_model.safetensors, adapter_config.json     instead of them, for a LoRA adapter, as PEFT reads them
supmer.json                                        backbone, task, provenance
README.md                                          the model card
"""

import json
from pathlib import Path
from typing import Any

from storage.atomic import write_bytes
from storage.errors import InputError, first_line
from storage.prompts.prompt_artifact import CARD, CONFIG, VERSION

DESCRIPTION = "supmer.json"
WEIGHTS_KIND, ADAPTER_KIND, CLASSIFIER_KIND = "supmer-weights", "supmer-lora", "supmer-classifier"


def is_weights(folder: Path) -> bool:
    """Return True if a folder holds, or describes, trained weights."""
    return bool(_kind(folder) == WEIGHTS_KIND)


def is_adapter(folder: Path) -> bool:
    """Return True if a folder holds a tuned LoRA adapter."""
    return bool(_kind(folder) == ADAPTER_KIND)


def refuse_classifier(folder: Path) -> None:
    """Raise InputError if a folder holds a linear classifier, which does not use the backbone."""
    if _kind(folder) == CLASSIFIER_KIND:
        raise InputError(
            f"{folder}: holds a linear classifier, which is there to compare with: give the folder of a tuned prompt"
        )


def _kind(folder: Path) -> Any:
    try:
        about = json.loads((folder / DESCRIPTION).read_bytes())
    except (OSError, ValueError):
        return None
    return about.get("kind") if isinstance(about, dict) else None


def has_weights(folder: Path) -> bool:
    """Return True if the weights that a folder describes were kept."""
    return (folder / CONFIG).is_file()


def describe_weights(folder: Path, about: dict[str, Any], card: str, kind: str = WEIGHTS_KIND) -> None:
    """Write the description and the card beside the weights, or alone if the weights are not kept."""
    described = {"kind": kind, "version": VERSION, **about}
    text = json.dumps(described, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_bytes(folder / DESCRIPTION, text.encode())
    write_bytes(folder / CARD, card.encode())


def read_weights(folder: Path) -> dict[str, Any]:
    """Return the description of trained weights; raise InputError if it is damaged."""
    return _read(folder, WEIGHTS_KIND)


def read_adapter_description(folder: Path) -> dict[str, Any]:
    """Return the description of a tuned LoRA adapter; raise InputError if it is damaged."""
    return _read(folder, ADAPTER_KIND)


def _read(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from error
    if not isinstance(about, dict) or about.get("kind") != kind or about.get("version") != VERSION:
        raise InputError(f"{path}: does not describe {kind} of version {VERSION}")
    return about


def kept_weights(folder: Path) -> dict[str, Any]:
    """Return the description of weights that are there; raise InputError if they were not kept."""
    about = read_weights(folder)
    if not has_weights(folder):
        raise InputError(f"{folder}: its weights were not kept: set tune.fine_tuning.keep to true, then run tune again")
    return about
