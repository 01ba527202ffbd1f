"""`supmer gc`: delete what no commit and no current output needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from flows.dvc_state.recovery import leftovers
from flows.lock import workspace_lock
from flows.workspace import enter
from storage.atomic import remove
from tasks.stage.contract import SHARD_STORE, USED, unused_shards

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline

KEPT = frozenset({".git", ".venv"})


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print how much would be freed.")
def command(dry_run: bool) -> None:
    """Free what no git commit, no experiment and no current output needs.

    That is: objects in DVC's cache, downloads already unpacked, partial outputs and scratch files. The finished shards
    of current outputs stay: they share their bytes with the outputs and let a larger corpus be processed incrementally.

    \b
    Examples:
      supmer gc --dry-run
      supmer gc
    """
    root = enter()
    from flows.dvc_state.dag import Pipeline, dvc_errors

    pipeline = Pipeline(root)
    with workspace_lock(root, "supmer gc", needs_room=False):
        before = _disk_use(root)
        left = list(leftovers(root, [out for node in pipeline.nodes() for out in node.outputs]))
        if not dry_run:
            _remove(left)  # first: DVC needs some room to work, and the disk may be full
        with dvc_errors():
            unused = _unused_bytes(pipeline)
            if not dry_run:
                pipeline.repo.gc(
                    workspace=True, all_commits=pipeline.has_git, all_experiments=pipeline.has_git, force=True
                )
        # After DVC's cache: a shard that shared its bytes with the cache takes up room of its own only now.
        shards = list(_unused(pipeline))
        if dry_run:
            freed = unused + sum(_disk_use(path) for path in (*left, *shards))
        else:
            _remove(shards)
            freed = before - _disk_use(root)
    click.echo(f"{'would free' if dry_run else 'freed'} {freed / 1e6:,.1f} MB")


def _remove(paths_to_remove: Iterable[Path]) -> None:
    for path in paths_to_remove:
        remove(path)


def _unused(pipeline: Pipeline) -> Iterator[Path]:
    """Yield the finished shards that take up room and that a fresh stage does not use; a stale stage may need them."""
    from flows.dvc_state.freshness import assess

    for node in pipeline.nodes():
        store = pipeline.root / SHARD_STORE / node.name
        if (store / USED).exists() and assess(pipeline, node.name).state == "fresh":
            yield from unused_shards(store, {store / name for name in orjson.loads((store / USED).read_bytes())})


def _unused_bytes(pipeline: Pipeline) -> int:
    """Return the bytes of cache objects that neither a commit nor the workspace refers to."""
    repo, git = pipeline.repo, pipeline.has_git
    used = {
        str(info.value) for infos in repo.used_objs(all_commits=git, all_experiments=git).values() for info in infos
    }
    objects = Path(repo.cache.local.path)
    return sum(path.stat().st_size for path in objects.glob("??/*") if path.parent.name + path.name not in used)


def _disk_use(top: Path) -> int:
    """Return the bytes on disk below a folder; a file with several links counts once."""
    if top.is_file():
        return top.stat().st_size
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name not in KEPT]
        for name in files:
            status = Path(folder, name).lstat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total
