"""Tuned prefixes as a folder that can be shared: keys and values as safetensors, a description, and a model card.

prefixes.safetensors      `PLACE.keys` and `PLACE.values`, [layers, P, heads, size], for the places with prefixes
config.json               shapes, backbone, task, provenance
README.md                 the model card
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from storage.atomic import write_bytes
from storage.errors import InputError
from storage.prompts.prompt_artifact import (
    CONFIG,
    PREFIXES_KIND,
    VERSION,
    Array,
    read_config,
    read_tensors,
    write_description,
)

PREFIXES = "prefixes.safetensors"
PARTS = ("keys", "values")


@dataclass(frozen=True)
class PrefixArtifact:
    """Keys and values by name, as in the file, and the content of config.json."""

    tensors: dict[str, Array]
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def places(self) -> tuple[str, ...]:
        """The places with prefixes, in the order of their names."""
        return tuple(sorted({name.partition(".")[0] for name in self.tensors}))

    @property
    def tokens(self) -> int:
        """The number of prefix positions."""
        return int(next(iter(self.tensors.values())).shape[1])


def is_prefixes(folder: Path) -> bool:
    """Return True if a folder holds prefixes, False if it holds a prompt; raise InputError if it holds neither."""
    return bool(read_config(folder / CONFIG)["kind"] == PREFIXES_KIND)


def write_prefixes(folder: Path, artifact: PrefixArtifact, card: str) -> None:
    """Write the folder of prefixes; the same content gives the same bytes."""
    shapes = {name: list(value.shape) for name, value in artifact.tensors.items()}
    config = {"kind": PREFIXES_KIND, "version": VERSION, "prefix_tokens": artifact.tokens, "shapes": shapes}
    write_bytes(folder / PREFIXES, _bytes(artifact.tensors))
    write_description(folder, {**config, **artifact.about}, card)


def read_prefixes(folder: Path) -> PrefixArtifact:
    """Read the folder of prefixes. Raise InputError, with the name of the file, if anything in it is wrong."""
    about = read_config(folder / CONFIG)
    if about["kind"] != PREFIXES_KIND:
        raise InputError(f"{folder / CONFIG}: describes a prompt, not prefixes: give a folder with {PREFIXES}")
    tensors = read_tensors(folder / PREFIXES)
    shapes = {name: list(value.shape) for name, value in tensors.items()}
    if not shapes or shapes != about.get("shapes"):
        raise InputError(
            f"{folder / PREFIXES}: its tensors {shapes} are not those of {CONFIG}: the folder is not whole"
        )
    artifact = PrefixArtifact(tensors, about)
    if {*tensors} != {f"{place}.{part}" for place in artifact.places for part in PARTS}:
        raise InputError(f"{folder / PREFIXES}: holds {', '.join(tensors)}: should hold keys and values of each place")
    return artifact


def prefixes_hash(tensors: dict[str, Array]) -> str:
    """Return the SHA-256 that the file of some prefixes would have if they were written."""
    return hashlib.sha256(_bytes(tensors)).hexdigest()


def _bytes(tensors: dict[str, Array]) -> bytes:
    return save({name: np.ascontiguousarray(value) for name, value in tensors.items()})
