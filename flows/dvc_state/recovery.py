"""Recovery after a crash: delete partial outputs, and repair dvc.lock and DVC's list of claims, written in place."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from storage import paths
from storage.atomic import remove, replacing_file, write_bytes
from storage.errors import InputError
from storage.lineage.events import abort_unfinished
from tasks.stage.contract import SHARD_STORE

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline
    from flows.lock import Holder


def keep_lock_file(root: Path) -> None:
    """Keep a copy of dvc.lock before DVC rewrites it."""
    if (root / "dvc.lock").exists():
        with replacing_file(root / paths.DVC_LOCK_COPY) as beside:
            shutil.copyfile(root / "dvc.lock", beside)


def mend(root: Path, dead: Holder) -> None:
    """Repair what the dead run left behind; call this first, while holding the workspace lock."""
    from flows.dvc_state.dag import Pipeline

    _mend_lock_file(root)
    pipeline = Pipeline(root)
    _mend_claims(pipeline, dead)
    for left in list(partials(root, [output for node in pipeline.nodes() for output in node.outputs])):
        remove(left)
    ended = "was interrupted" if dead.interrupted else "was killed"
    with suppress(InputError, OSError):  # a full disk must not keep the next run from starting
        abort_unfinished(root, f"process {dead.pid} (`{dead.command}`, since {dead.since}) {ended}")


def partials(root: Path, outputs: Iterable[str]) -> Iterator[Path]:
    """Yield the files and folders that a dead run was writing; call this while holding the workspace lock."""
    yield from (root / SHARD_STORE).glob("**/*.partial-*")
    yield from (root / paths.SCRATCH).glob("[!d]*-*")  # not duckdb-PID-N: a live `supmer sql` may use it
    for folder in sorted({root / paths.DVC_LOCK_COPY.parent, *((root / output).parent for output in outputs)}):
        yield from folder.glob("*.partial-*")


def leftovers(root: Path, outputs: Iterable[str]) -> Iterator[Path]:
    """Yield downloads already unpacked, scratch files and partial outputs; call this while holding the lock."""
    for scratch in (paths.DOWNLOADS, paths.SCRATCH):
        if (path := root / scratch).exists():
            yield path
    yield from partials(root, outputs)


def _mend_lock_file(root: Path) -> None:
    """Restore the copy of dvc.lock if the dead run left a truncated file."""
    from flows.dvc_state.dag import Pipeline

    copy, path = root / paths.DVC_LOCK_COPY, root / "dvc.lock"
    try:
        Pipeline(root).nodes()
        if not copy.exists() or not path.exists() or path.read_bytes().endswith(b"\n"):  # a cut file may be valid YAML
            return
    except InputError:
        if not copy.exists():
            raise
    shutil.copyfile(copy, path)
    click.echo("dvc.lock was cut short by the crash: restored as it was before", err=True)


def _mend_claims(pipeline: Pipeline, dead: Holder) -> None:
    """Remove the claims of dead processes from DVC's list; delete a truncated list, which DVC would refuse to read.

    DVC itself drops a claim only when it meets one whose process id is unused; another process may have the id of the
    dead run by now.
    """
    import psutil
    from dvc.lock import make_lock
    from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK

    from flows.dvc_state.dag import dvc_errors

    folder = Path(pipeline.repo.tmp_dir)
    path = folder / RWLOCK_FILE

    def lives(claim: dict[str, Any]) -> bool:
        return claim["pid"] != dead.pid and psutil.pid_exists(claim["pid"])

    with dvc_errors(), make_lock(str(folder / RWLOCK_LOCK), tmp_dir=str(folder)):
        if not path.exists():
            return
        try:
            claims = orjson.loads(path.read_bytes())
            read = {
                place: [reader for reader in claimed if lives(reader)]
                for place, claimed in claims.get("read", {}).items()
            }
            write = {place: claimed for place, claimed in claims.get("write", {}).items() if lives(claimed)}
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
            remove(path)
        else:
            left = {"read": {place: claimed for place, claimed in read.items() if claimed}, "write": write}
            write_bytes(path, orjson.dumps(left))
