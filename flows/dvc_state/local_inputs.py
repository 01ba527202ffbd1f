"""Slots in words: which local source each `inputs/NN` of dvc.yaml stands for, now and when the stage last ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dvc_data.hashfile.build import build
from dvc_data.hashfile.db import add_update_tree

from flows.dvc_state.dag import Pipeline
from storage.sources.local import SLOTS, slots_of
from storage.sources.source import NamedSource

SECTION = "acquire"


@dataclass(frozen=True)
class Slots:
    """The slots of a stage: in use by params.yaml (`now`) and by dvc.lock (`before`), each with its source."""

    now: dict[str, NamedSource] = field(default_factory=dict)
    before: dict[str, NamedSource] = field(default_factory=dict)

    def stands_for_nothing(self, path: str) -> bool:
        """Whether a dependency is a slot that is not in use."""
        return path in SLOTS and path not in self.now


def slots_in(stage: Any) -> Slots:
    """The slots of a stage; none if it does not depend on the sources."""
    for dep in stage.deps:
        if SECTION in getattr(dep, "params", ()):
            now, before = dep.read_params(flatten=False), dep.hash_info.value or {}
            return Slots(slots_of(now.get(SECTION)), slots_of(before.get(SECTION)))
    return Slots()


def keep_listings(pipeline: Pipeline, name: str) -> None:
    """Keep the listing of every linked folder, names and hashes, in DVC's cache: to tell later which files changed."""
    with pipeline.locked():
        for dep in pipeline.stage(name).deps:
            if str(dep) in SLOTS and dep.isdir():
                add_update_tree(dep.local_cache, listing(dep)[1])


def listing(item: Any) -> tuple[Any, Any]:
    """Size and listing of a folder as it is now; its files are not copied anywhere."""
    _, meta, tree = build(item.local_cache, item.fs_path, item.fs, "md5", ignore=item.dvcignore, dry_run=True)
    return meta, tree
