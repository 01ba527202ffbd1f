"""Removal of earlier versions that hold documents: from DVC's cache, its run cache and the shard store."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from flows.dvc_state.recovery import leftovers
from storage import paths
from storage.atomic import remove
from storage.errors import first_line
from storage.lineage.known_runs import run_cache_entries
from storage.lockfile import cache_folder, object_path
from tasks.stage.contract import SHARD_STORE, USED

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline
    from storage.lineage.document_copies import Copies


@dataclass(frozen=True)
class Purged:
    """The number and size of the objects that were removed from DVC's cache, and the number of removed shards."""

    objects: int
    bytes: int
    shards: int


@dataclass(frozen=True)
class RemoteCopy:
    """The number of objects that a DVC remote still holds; None, with the reason, if it cannot be asked."""

    remote: str
    objects: int | None
    problem: str | None = None


def purge(pipeline: Pipeline, copies: Copies) -> Purged:
    """Remove the copies here; every stage must be fresh, and the caller holds the workspace lock.

    What a kill leaves is removed when this is called again: the entries of the run cache go last.
    """
    root, cache = pipeline.root, cache_folder(pipeline.root)
    with pipeline.locked():
        objects = [path for md5 in copies.objects if (path := object_path(cache, md5)).is_file()]
        size = sum(path.stat().st_size for path in objects)
        nodes = pipeline.nodes()
        shards = list(_unused_shards(root, {node.name for node in nodes}))
        for path in (*shards, *leftovers(root, [out for node in nodes for out in node.outputs])):
            remove(path)
        remove(root / paths.OWN_TUNING)  # unfinished tunings may have started from an earlier prompt
        for path in objects:
            path.unlink()
        for path, run in run_cache_entries(root).items():
            if not copies.versions.isdisjoint(run.outputs.values()):
                path.unlink()
                with contextlib.suppress(OSError):  # it holds other runs
                    path.parent.rmdir()
    return Purged(len(objects), size, len(shards))


def _unused_shards(root: Path, stages: Collection[str]) -> Iterator[Path]:
    """Yield the finished shards that no current output is made of, with all of stages that dvc.yaml no longer has."""
    for store in sorted((root / SHARD_STORE).glob("*")):
        used: set[Path] = set()
        if store.name in stages:
            try:
                used = {store / name for name in orjson.loads((store / USED).read_bytes())}
            except (OSError, ValueError):
                continue  # the stage has not ended here
        yield from (folder for folder in store.glob("*/*") if folder not in used)


def remote_copies(pipeline: Pipeline, objects: Collection[str]) -> list[RemoteCopy]:
    """Return how many of the objects each DVC remote holds."""
    return [_remote_copy(pipeline, name, objects) for name in pipeline.repo.config["remote"]]


def _remote_copy(pipeline: Pipeline, name: str, objects: Collection[str]) -> RemoteCopy:
    try:
        store = pipeline.repo.cloud.get_remote_odb(name)
        return RemoteCopy(name, len(set(store.oids_exist(list(objects)))) if objects else 0)
    except Exception as error:  # noqa: BLE001 - a remote fails in many ways, and each is an answer
        return RemoteCopy(name, None, first_line(error))
