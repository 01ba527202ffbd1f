"""Trained weights as a folder that can be shared: a transformers folder, with a description and a model card.

model.safetensors, config.json, tokenizer files    as transformers reads them; absent if the weights were not kept
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
WEIGHTS_KIND = "supmer-weights"


def is_weights(folder: Path) -> bool:
    """Return True if a folder holds, or describes, trained weights."""
    try:
        about = json.loads((folder / DESCRIPTION).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("kind") == WEIGHTS_KIND


def has_weights(folder: Path) -> bool:
    """Return True if the weights that a folder describes were kept."""
    return (folder / CONFIG).is_file()


def describe_weights(folder: Path, about: dict[str, Any], card: str) -> None:
    """Write the description and the card beside the weights, or alone if the weights are not kept."""
    described = {"kind": WEIGHTS_KIND, "version": VERSION, **about}
    text = json.dumps(described, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_bytes(folder / DESCRIPTION, text.encode())
    write_bytes(folder / CARD, card.encode())


def read_weights(folder: Path) -> dict[str, Any]:
    """Return the description of trained weights; raise InputError if it is damaged."""
    path = folder / DESCRIPTION
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from error
    if not isinstance(about, dict) or about.get("kind") != WEIGHTS_KIND or about.get("version") != VERSION:
        raise InputError(f"{path}: does not describe weights of version {VERSION}")
    return about


def kept_weights(folder: Path) -> dict[str, Any]:
    """Return the description of weights that are there; raise InputError if they were not kept."""
    about = read_weights(folder)
    if not has_weights(folder):
        raise InputError(f"{folder}: its weights were not kept: set tune.fine_tuning.keep to true, then run tune again")
    return about
