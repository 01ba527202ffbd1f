"""DVC's cache, mistrusted: objects that are not what their name says are dropped before DVC builds on them.

DVC takes a read-only object for whole. Outputs are hard links to objects, so what overwrites an output in place damages
the object too: DVC would keep it when the stage is run again, and link the new output to it.
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
    """Before a stage's new outputs are committed: drop the objects they would be taken for, where those are damaged."""
    with pipeline.locked() as repo:
        hashes = [oid for out in pipeline.stage(name).outs for oid in _written(out)]
        _drop_damaged(repo.cache.local, hashes)


def restore_whole(repo: Any, stage: Any) -> bool:
    """Restore a stage's outputs from DVC's cache, unless an object is damaged: then it is dropped, and nothing done."""
    try:
        _CheckedStageCache(repo).restore(stage)
    except RunCacheNotFoundError:
        return False
    return True


class _CheckedStageCache(StageCache):  # type: ignore[misc]  # DVC is untyped
    """What DVC knows of earlier runs; an object that does not match its name counts as lost."""

    def _create_stage(self, cache: Any, wdir: Any = None) -> Any:
        """The stage to be restored; called before DVC looks whether all of its objects are there."""
        stage = super()._create_stage(cache, wdir)
        damaged = _drop_damaged(self.repo.cache.local, [oid for out in stage.outs for oid in _recorded(out)])
        if not damaged and stage.outs_cached():
            for out in stage.outs:  # DVC would ask a person before it overwrites a changed file, and trust its date
                remove(Path(out.fs_path))
        return stage


def _written(out: Any) -> Iterator[str]:
    """The objects an output becomes, by its files as they are."""
    if not out.isdir():
        yield str(out.get_hash().value)
        return
    tree = listing(out)[1]
    yield str(tree.hash_info.value)
    yield from (str(hash_info.value) for _, _, hash_info in tree)


def _recorded(out: Any) -> Iterator[str]:
    """The objects an output is made of, by its hash."""
    yield str(out.hash_info.value)
    if out.hash_info.isdir:
        try:
            tree = load_object(out.cache, out.hash_info)
        except (OSError, ValueError):  # gone or damaged: it is dropped by its own name
            return
        assert isinstance(tree, Tree)
        yield from (str(hash_info.value) for _, _, hash_info in tree)


def _drop_damaged(store: Any, names: Iterable[str]) -> int:
    """Delete objects whose content is not that of their name; return how many."""
    paths = {name: Path(store.oid_to_path(name)) for name in names}
    there = {name: path for name, path in paths.items() if path.is_file()}
    hashes = Hashes("md5", there.values(), lambda _done, _total: None)
    damaged = [path for name, path in there.items() if hashes[path] != name.removesuffix(DIRECTORY_SUFFIX)]
    for path in damaged:
        path.unlink()
    return len(damaged)
