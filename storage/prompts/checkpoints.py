"""Checkpoints: one file each, written atomically; the last few are kept, and damaged ones are skipped.

A file holds safetensors with a JSON state in the header; its name contains the step and a hash of the content. A file
that was truncated or changed is therefore noticed, and the one before it is used.
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
    """The state from which a run can continue: its arrays, and everything else as JSON."""

    step: int
    arrays: dict[str, npt.NDArray[Any]]
    state: dict[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and return its path; delete all but the last few checkpoints of the folder."""
    header = {"state": json.dumps(checkpoint.state, sort_keys=True)}
    arrays = {name: np.asarray(array, order="C") for name, array in checkpoint.arrays.items()}
    content = save(arrays, header)
    path = folder / f"step-{checkpoint.step:09d}-{_digest(content)}.safetensors"
    write_bytes(path, content)
    for _, old in _found(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def put_aside(damaged: Iterable[Path]) -> None:
    """Rename damaged checkpoints, so that they do not count among the checkpoints that are kept."""
    for path in damaged:
        path.rename(path.with_suffix(".damaged"))


def last_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[Path]]:
    """Return the newest intact checkpoint, or None, and the paths of newer ones that are damaged."""
    damaged: list[Path] = []
    for step, path in _found(folder):
        content = _content(path)
        if _digest(content) == path.name.split("-")[2].partition(".")[0]:
            return Checkpoint(step, load(content), _state(content)), damaged
        damaged.append(path)
    return None, damaged


def _found(folder: Path) -> list[tuple[int, Path]]:
    """Return the steps and paths of the checkpoints of a folder, newest first."""
    named = [(match, path) for path in folder.glob("step-*") if (match := _NAME.fullmatch(path.name))]
    return sorted(((int(match[1]), path) for match, path in named), reverse=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the disk cannot read the file: treat it as damaged
        return b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _state(content: bytes) -> dict[str, Any]:
    """Return the JSON state from a safetensors header; the file begins with the header's length in 8 bytes."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    state: dict[str, Any] = json.loads(header["__metadata__"]["state"])
    return state
