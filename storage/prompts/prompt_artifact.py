"""A learned prompt as a folder that can be shared: θ and φ as safetensors, a description, and a model card.

prompt.safetensors        θ: `prompt` [P, d]
regularizer.safetensors   φ: `up` [d, r], `down` [r, d], `shift` [d], `gate.weight`, `gate.bias`; absent without ψ
config.json               shapes, backbone, template form, training parameters, provenance
README.md                 the model card
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from storage.atomic import write_bytes
from storage.errors import InputError, first_line
from storage.hashing import file_hash

PROMPT, REGULARIZER, CONFIG, CARD = "prompt.safetensors", "regularizer.safetensors", "config.json", "README.md"
KIND, VERSION = "supmer-prompt", 1
PREFIXES_KIND = "supmer-prefixes"
KINDS = (KIND, PREFIXES_KIND)

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PromptArtifact:
    """θ [P, d], φ by parameter name (empty without a regularizer), and the content of config.json."""

    prompt: Array
    regularizer: dict[str, Array] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def gate(self) -> str:
        """The form of the gate: vector or scalar."""
        return "scalar" if len(self.regularizer["gate.bias"]) == 1 else "vector"


def write_prompt(folder: Path, artifact: PromptArtifact, card: str) -> None:
    """Write the folder of a prompt; the same content gives the same bytes."""
    tokens, width = artifact.prompt.shape
    config = {"kind": KIND, "version": VERSION, "prompt_tokens": tokens, "width": width, **artifact.about}
    write_bytes(folder / PROMPT, _prompt_bytes(artifact.prompt))
    if artifact.regularizer:
        tensors = {name: np.ascontiguousarray(value) for name, value in artifact.regularizer.items()}
        write_bytes(folder / REGULARIZER, save(tensors))
    else:
        (folder / REGULARIZER).unlink(missing_ok=True)
    write_description(folder, config, card)


def write_description(folder: Path, config: dict[str, Any], card: str) -> None:
    """Write the two files that describe an artifact: config.json and the model card."""
    write_bytes(folder / CONFIG, (json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())
    write_bytes(folder / CARD, card.encode())


def read_prompt(folder: Path) -> PromptArtifact:
    """Read the folder of a prompt. Raise InputError, with the name of the file, if anything in it is wrong."""
    about = read_config(folder / CONFIG)
    if about.get("kind") != KIND:
        raise InputError(
            f"{folder / CONFIG}: describes prefixes, not a prompt: give the folder of a prompt, with {PROMPT}"
        )
    tensors = read_tensors(folder / PROMPT)
    if tensors.keys() != {"prompt"} or tensors["prompt"].ndim != 2:
        raise InputError(f"{folder / PROMPT}: should hold one matrix called prompt: is this a supmer prompt?")
    prompt = tensors["prompt"]
    if list(prompt.shape) != [about.get("prompt_tokens"), about.get("width")]:
        shape = f"{about.get('prompt_tokens')} × {about.get('width')}"
        raise InputError(f"{folder / PROMPT}: is {prompt.shape[0]} × {prompt.shape[1]}, but {CONFIG} says {shape}")
    regularizer = folder / REGULARIZER
    return PromptArtifact(prompt, read_tensors(regularizer) if regularizer.is_file() else {}, about)


def prompt_hash(folder: Path) -> str:
    """Return the SHA-256 of the file of θ, by which results refer to their prompt."""
    return file_hash(folder / PROMPT)


def theta_hash(prompt: Array) -> str:
    """Return the `prompt_hash` that a prompt would have if it were written."""
    return hashlib.sha256(_prompt_bytes(prompt)).hexdigest()


def _prompt_bytes(prompt: Array) -> bytes:
    return save({"prompt": np.ascontiguousarray(prompt)})


def read_config(path: Path) -> dict[str, Any]:
    """Return the config.json of a prompt or of prefixes; raise InputError if it is of neither."""
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise InputError(f"{path.parent}: no {path.name} in it: give the folder of a prompt") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from error
    if not isinstance(config, dict) or config.get("kind") not in KINDS or config.get("version") != VERSION:
        raise InputError(f"{path}: does not describe a supmer prompt of version {VERSION}")
    return config


def read_tensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a file; raise InputError if they are not finite float32 numbers."""
    try:
        tensors = load(path.read_bytes())
    except (OSError, SafetensorError, KeyError) as error:  # KeyError: a number type that numpy lacks
        raise InputError(f"{path}: cannot be read ({first_line(error)}): the prompt is not whole") from error
    for name, value in tensors.items():
        if value.dtype != np.float32 or not np.isfinite(value).all():
            raise InputError(f"{path}: {name} should hold finite float32 numbers")
    return tensors


def refuse_other_backbone(about: dict[str, Any], where: str, backbone: Mapping[str, str]) -> None:
    """Raise InputError, beginning with `where`, if config.json says that a prompt was learned for another backbone.

    Args:
        about: the prompt's config.json; an imported prompt may know its backbone only by name, or not at all.
        where: the prompt's place.
        backbone: the backbone that is there, its `source` and `hash`.
    """
    learned = about.get("backbone")
    if isinstance(learned, dict) and learned.get("hash") and learned["hash"] != backbone["hash"]:
        raise InputError(
            f"{where}: was learned for {learned.get('source')} ({str(learned['hash'])[:12]}), the backbone here is "
            f"{backbone['source']} ({backbone['hash'][:12]}): give a prompt that was learned for this backbone, or set "
            "acquire.backbone to the other"
        )
