"""dvc.lock after a crash: DVC writes it in place, so a copy is kept while it does."""

import shutil
from pathlib import Path

import click

from storage.atomic import replacing_file
from storage.errors import InputError

COPY = Path(".supmer", "dvc.lock")


def keep_lock_file(root: Path) -> None:
    """Keep dvc.lock as it is before DVC writes it anew."""
    if (root / "dvc.lock").exists():
        with replacing_file(root / COPY) as beside:
            shutil.copyfile(root / "dvc.lock", beside)


def mend_lock_file(root: Path) -> None:
    """Put the kept copy back if the run that died left dvc.lock cut short."""
    from flows.dag import Pipeline

    try:
        Pipeline(root).nodes()
    except InputError:
        if not (root / COPY).exists():
            raise
        shutil.copyfile(root / COPY, root / "dvc.lock")
        click.echo("dvc.lock was cut short by the crash: put back as it was before", err=True)
