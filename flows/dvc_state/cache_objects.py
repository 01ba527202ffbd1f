"""Check DVC's cache: delete objects whose content does not match their name before DVC uses them.

DVC assumes that a read-only object is intact. Outputs are hard links to objects, so a program that overwrites an output
in place damages the object too. When the stage runs again, DVC would keep the damaged object and link the new output to
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvc.stage.cache import RunCacheNotFoundError, StageCache
from dvc_data.hashfile import load as load_object
from dvc_data.hashfile.tree import Tree

from flows.dvc_state.listings import listing
from storage.atomic import remove
from storage.checks.verification import Hashes
from storage.lockfile import DIRECTORY_SUFFIX

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline


def drop_damaged_objects(pipeline: Pipeline, name: str) -> None:
    """Delete damaged objects that DVC would take for a stage's new outputs; call this before the commit."""
    with pipeline.locked() as repo:
        hashes = [oid for out in pipeline.stage(name).outs for oid in _written(out)]
        _drop_damaged(repo.cache.local, hashes)


def restore_whole(repo: Any, stage: Any) -> bool:
    """Restore a stage's outputs from DVC's cache and return True.

    If an object is damaged, delete it, restore nothing and return False.
    """
    try:
        _CheckedStageCache(repo).restore(stage)
    except RunCacheNotFoundError:
        return False
    return True


class _CheckedStageCache(StageCache):  # type: ignore[misc]  # DVC is untyped
    """DVC's cache of earlier runs, in which an object that does not match its name counts as missing."""

    def _create_stage(self, cache: Any, wdir: Any = None) -> Any:
        """Return the stage to be restored; DVC calls this before it checks that all objects are there."""
        stage = super()._create_stage(cache, wdir)
        damaged = _drop_damaged(self.repo.cache.local, [oid for out in stage.outs for oid in _recorded(out)])
        if not damaged and stage.outs_cached():
            for out in stage.outs:  # DVC would prompt before it overwrites a changed file, and trusts its date
                remove(Path(out.fs_path))
        return stage


def _written(out: Any) -> Iterator[str]:
    """Yield the names of the objects that an output's current files become."""
    if not out.isdir():
        yield str(out.get_hash().value)
        return
    tree = listing(out)[1]
    yield str(tree.hash_info.value)
    yield from (str(hash_info.value) for _, _, hash_info in tree)


def _recorded(out: Any) -> Iterator[str]:
    """Yield the names of the objects that an output consists of by its recorded hash."""
    yield str(out.hash_info.value)
    if out.hash_info.isdir:
        try:
            tree = load_object(out.cache, out.hash_info)
        except (OSError, ValueError):  # missing or damaged: its own name, yielded above, gets it deleted
            return
        assert isinstance(tree, Tree)
        yield from (str(hash_info.value) for _, _, hash_info in tree)


def _drop_damaged(store: Any, names: Iterable[str]) -> int:
    """Delete the objects whose content does not match their name; return their number."""
    paths = {name: Path(store.oid_to_path(name)) for name in names}
    there = {name: path for name, path in paths.items() if path.is_file()}
    hashes = Hashes("md5", there.values(), lambda _done, _total: None)
    damaged = [path for name, path in there.items() if hashes[path] != name.removesuffix(DIRECTORY_SUFFIX)]
    for path in damaged:
        path.unlink()
    return len(damaged)
