"""Folders of prompts, prefixes, weights and adapters: what they say about themselves, and which artifact they are.

A folder may lie anywhere: among the outputs, where `supmer tune` wrote it, or where `supmer export` put it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage import paths
from storage.errors import InputError
from storage.hashing import file_hash
from storage.lockfile import CODE_FOLDERS
from storage.prompts import peft_adapter
from storage.prompts.prefix_artifact import PREFIXES
from storage.prompts.prompt_artifact import CONFIG, KIND, PREFIXES_KIND, PROMPT, theta_hash
from storage.prompts.weights_artifact import ADAPTER_KIND, DESCRIPTION, WEIGHTS_KIND

_WEIGHTS = "model.safetensors"
_NOT_SEARCHED = CODE_FOLDERS | {"benchmarks", "data", "docs", "profiles", "tests"}
_DEPTH = 4  # folders below the workspace in which prompts are searched


@dataclass(frozen=True)
class PromptFolder:
    """A folder of something learned.

    Attributes:
        path: the folder.
        kind: what it holds, in words.
        hash: the SHA-256 by which tables and descriptions refer to it; None if its numbers were not kept.
        about: its description; empty for an adapter of other origin.
    """

    path: Path
    kind: str
    hash: str | None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def downstream(self) -> dict[str, Any]:
        """The description of the tuning; empty for a prompt that was not tuned."""
        task = self.about.get("downstream")
        return task if isinstance(task, dict) else {}

    @property
    def start(self) -> str | None:
        """The hash of what the tuning started from."""
        start = self.downstream.get("start")
        return start if isinstance(start, str) else None

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of the tasks that a prompt was meta-trained on; empty for others."""
        training = self.about.get("training")
        return tuple(training.get("formats", ())) if isinstance(training, dict) else ()


def read_folder(folder: Path) -> PromptFolder | None:
    """Return what a folder holds, or None if it holds no prompt, prefixes, weights or adapter."""
    if (folder / peft_adapter.CONFIG).is_file():
        return _adapter(folder)
    about = _description(folder / DESCRIPTION)
    if about.get("kind") == WEIGHTS_KIND:
        return PromptFolder(folder, "fine-tuned weights", _hash(folder / _WEIGHTS), about)
    about = _description(folder / CONFIG)
    if about.get("kind") == KIND:
        return PromptFolder(folder, "a prompt", _hash(folder / PROMPT), about)
    if about.get("kind") == PREFIXES_KIND:
        return PromptFolder(folder, "prefixes", _hash(folder / PREFIXES), about)
    return None


def _adapter(folder: Path) -> PromptFolder:
    """Return an adapter; one of prompt tuning has the hash that its prompt has as a file of this project."""
    config = _description(folder / peft_adapter.CONFIG)
    about = _description(folder / DESCRIPTION)
    if about.get("kind") == ADAPTER_KIND:
        return PromptFolder(folder, "a LoRA adapter", _hash(folder / peft_adapter.TENSORS), about)
    kind = f"a PEFT adapter ({config.get('peft_type')})"
    try:
        return PromptFolder(folder, kind, theta_hash(peft_adapter.read_adapter(folder).prompt), about)
    except InputError:  # of another type, or for another task
        return PromptFolder(folder, kind, _hash(folder / peft_adapter.TENSORS), about)


def _description(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def _hash(path: Path) -> str | None:
    return file_hash(path) if path.is_file() else None


def learned_prompts(root: Path) -> list[PromptFolder]:
    """Return the meta-trained prompts of the workspace."""
    return list(_below(root / paths.PROMPTS))


def other_prompts(root: Path) -> list[PromptFolder]:
    """Return what was tuned or exported in the workspace, outputs of `supmer tune` and `supmer export` included."""
    folders = [root / paths.TUNED_PROMPTS]
    for path in sorted(root.iterdir()):
        outputs = (paths.ARTIFACTS, paths.REPORT)
        if path.is_dir() and not path.name.startswith(".") and path.name not in {*_NOT_SEARCHED, *outputs}:
            folders.append(path)
    return [found for folder in folders for found in _below(folder)]


def _below(folder: Path) -> Iterator[PromptFolder]:
    for place, names, _ in os.walk(folder):
        names.sort()
        if len(Path(place).relative_to(folder).parts) >= _DEPTH:
            names.clear()
        if found := read_folder(Path(place)):
            names.clear()
            yield found
