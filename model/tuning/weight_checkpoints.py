"""Checkpoints of weights by torch.distributed.checkpoint: folders that any number of ranks can read."""

import json
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from model.meta.ranks import Ranks
from storage.atomic import publish, remove, write_bytes

_STATE = "state.json"


def write_weights(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any], ranks: Ranks) -> None:
    """Write tensors, which may be sharded, and a state; the folder is there when it is whole, and not before."""
    partial = folder.with_name(f".{folder.name}.partial")
    if ranks.first:
        remove(partial)
        partial.parent.mkdir(parents=True, exist_ok=True)
    ranks.same(None)  # the others wait until the place is free
    with _quietly():
        save(dict(tensors), checkpoint_id=partial, no_dist=ranks.count == 1)
    if ranks.first:
        write_bytes(partial / _STATE, json.dumps(state).encode())
        publish(partial, folder)
    ranks.same(None)


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide the warning that there is one process only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def read_state(folder: Path) -> dict[str, Any] | None:
    """Return the state of a checkpoint; None if there is none, or it cannot be read."""
    try:
        state: dict[str, Any] = json.loads((folder / _STATE).read_bytes())
    except (OSError, ValueError):
        return None
    return state


def fill(folder: Path, tensors: dict[str, Tensor], ranks: Ranks) -> bool:
    """Write the numbers of a checkpoint into tensors of the same names; return False if it is damaged."""
    try:
        with _quietly():
            load(dict(tensors), checkpoint_id=folder, no_dist=ranks.count == 1)
    except (
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        EOFError,
        pickle.UnpicklingError,
        CheckpointException,
    ):
        return False
    return True
