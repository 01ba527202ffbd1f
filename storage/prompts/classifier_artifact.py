"""A trained linear classifier as a folder: its numbers, the terms it counts, a description and a card.

classifier.safetensors   `weights` [labels, features], `bias` [labels], further arrays of the features
terms.json               the terms of the features; absent if they are numbers of a sentence vector
supmer.json              task, provenance
README.md                the card
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from storage.atomic import write_bytes
from storage.errors import InputError, first_line
from storage.prompts.weights_artifact import CLASSIFIER_KIND, describe_weights

CLASSIFIER, TERMS = "classifier.safetensors", "terms.json"

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ClassifierArtifact:
    """The numbers of a classifier by name, and the terms that it counts, if it counts any."""

    tensors: dict[str, Array]
    terms: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """The SHA-256 of numbers and terms."""
        return hashlib.sha256(self._bytes() + _text(self.terms)).hexdigest()

    def write(self, folder: Path, about: dict[str, Any], card: str) -> None:
        """Write the folder; the same content gives the same bytes."""
        write_bytes(folder / CLASSIFIER, self._bytes())
        if self.terms:
            write_bytes(folder / TERMS, _text(self.terms))
        describe_weights(folder, about | {"tuned_hash": self.hash}, card, CLASSIFIER_KIND)

    def _bytes(self) -> bytes:
        return save({name: np.ascontiguousarray(value) for name, value in self.tensors.items()})


def read_classifier(folder: Path) -> ClassifierArtifact:
    """Read the folder of a classifier; raise InputError if a file is damaged."""
    try:
        tensors = load((folder / CLASSIFIER).read_bytes())
        terms = json.loads((folder / TERMS).read_bytes()) if (folder / TERMS).is_file() else ()
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{folder}: the classifier cannot be read ({first_line(error)})") from error
    return ClassifierArtifact(tensors, tuple(terms))


def _text(terms: tuple[str, ...]) -> bytes:
    return (json.dumps(terms, ensure_ascii=False) + "\n").encode()
