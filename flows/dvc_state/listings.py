"""Listings of folders by file name and hash, kept in DVC's cache to tell later which files of a dependency changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvc_data.hashfile.build import build
from dvc_data.hashfile.db import add_update_tree

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline


def keep_listings(pipeline: Pipeline, name: str) -> None:
    """Store the listing of every folder that a stage depends on in DVC's cache; the files are not copied."""
    with pipeline.locked():
        for dep in pipeline.stage(name).deps:
            if not hasattr(dep, "params") and dep.isdir() and not _is_kept(dep):
                add_update_tree(dep.local_cache, listing(dep)[1])


def _is_kept(dep: Any) -> bool:
    return Path(dep.local_cache.oid_to_path(dep.get_hash().value)).exists()


def listing(item: Any) -> tuple[Any, Any]:
    """Return DVC's metadata and listing of a folder as it is now."""
    # Objects in storage are told apart by their ETags: hashing them would fetch them all.
    name = "md5" if item.fs.protocol == "local" else item.hash_name
    _, meta, tree = build(item.local_cache, item.fs_path, item.fs, name, ignore=item.dvcignore, dry_run=True)
    return meta, tree
