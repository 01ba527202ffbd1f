"""Checkpoints: one file each, written atomically, the last few kept; a damaged one is passed over.

A file is safetensors with a JSON state in its header, and its name holds the step and a hash of its content. So a file
that was cut or changed is noticed, and the one before it serves.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from storage.atomic import write_bytes

KEPT = 2
_NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: its arrays, and everything else as JSON."""

    step: int
    arrays: dict[str, npt.NDArray[Any]]
    state: dict[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint beside the earlier ones, and drop all but the last few."""
    header = {"state": json.dumps(checkpoint.state, sort_keys=True)}
    arrays = {name: np.asarray(array, order="C") for name, array in checkpoint.arrays.items()}
    content = save(arrays, header)
    path = folder / f"step-{checkpoint.step:09d}-{_digest(content)}.safetensors"
    write_bytes(path, content)
    for _, old in _found(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def put_aside(damaged: Iterable[Path]) -> None:
    """Take damaged checkpoints out of the way, so that they hold no whole one's place."""
    for path in damaged:
        path.rename(path.with_suffix(".damaged"))


def last_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[Path]]:
    """The newest whole checkpoint, if any, and the newer ones that are damaged."""
    damaged: list[Path] = []
    for step, path in _found(folder):
        content = _content(path)
        if _digest(content) == path.name.split("-")[2].partition(".")[0]:
            return Checkpoint(step, load(content), _state(content)), damaged
        damaged.append(path)
    return None, damaged


def _found(folder: Path) -> list[tuple[int, Path]]:
    """Checkpoints of a folder by step, the newest first."""
    named = [(match, path) for path in folder.glob("step-*") if (match := _NAME.fullmatch(path.name))]
    return sorted(((int(match[1]), path) for match, path in named), reverse=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # a disk that gives it no more: as good as damaged
        return b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _state(content: bytes) -> dict[str, Any]:
    """The JSON state in a safetensors header: 8 bytes of its length, then the header, metadata under a name."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    state: dict[str, Any] = json.loads(header["__metadata__"]["state"])
    return state
