"""After a crash: what was half written goes; dvc.lock and DVC's list of claims, written in place, are put right."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from storage import paths
from storage.atomic import remove, replacing_file, write_bytes
from storage.errors import InputError
from tasks.stage.contract import SHARD_STORE

if TYPE_CHECKING:
    from flows.dvc_state.dag import Pipeline
    from flows.lock import Holder


def keep_lock_file(root: Path) -> None:
    """Keep dvc.lock as it is before DVC writes it anew."""
    if (root / "dvc.lock").exists():
        with replacing_file(root / paths.DVC_LOCK_COPY) as beside:
            shutil.copyfile(root / "dvc.lock", beside)


def mend(root: Path, dead: Holder) -> None:
    """Put right what the run that died left behind; called by who holds the workspace, before anything else."""
    from flows.dvc_state.dag import Pipeline

    _mend_lock_file(root)
    pipeline = Pipeline(root)
    _mend_claims(pipeline, dead)
    for left in list(partials(root, [output for node in pipeline.nodes() for output in node.outputs])):
        remove(left)


def partials(root: Path, outputs: Iterable[str]) -> Iterator[Path]:
    """What was being written when a run ended before its time; nobody else's while the workspace is held."""
    yield from (root / SHARD_STORE).glob("**/*.partial-*")
    yield from (root / paths.SCRATCH).glob("[!d]*-*")  # not duckdb-PID-N, which may be a living `supmer sql`'s
    for folder in sorted({root / paths.DVC_LOCK_COPY.parent, *((root / output).parent for output in outputs)}):
        yield from folder.glob("*.partial-*")


def _mend_lock_file(root: Path) -> None:
    """Put the kept copy back if the run that died left dvc.lock cut short."""
    from flows.dvc_state.dag import Pipeline

    try:
        Pipeline(root).nodes()
    except InputError:
        if not (root / paths.DVC_LOCK_COPY).exists():
            raise
        shutil.copyfile(root / paths.DVC_LOCK_COPY, root / "dvc.lock")
        click.echo("dvc.lock was cut short by the crash: put back as it was before", err=True)


def _mend_claims(pipeline: Pipeline, dead: Holder) -> None:
    """Drop the claims of the dead from DVC's list, or all of it if it is cut short: DVC would refuse to read it.

    DVC itself drops a claim only where it meets one and no process of its number lives: the number of the run that died
    may be another process's by now.
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
            read = {place: [one for one in held if lives(one)] for place, held in claims.get("read", {}).items()}
            write = {place: held for place, held in claims.get("write", {}).items() if lives(held)}
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
            remove(path)
        else:
            left = {"read": {place: held for place, held in read.items() if held}, "write": write}
            write_bytes(path, orjson.dumps(left))
