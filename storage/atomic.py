"""Atomic writes: a file or folder is written under a temporary name beside its place, then renamed into it."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import InputError


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; rename it to `path` on success, delete it on failure.

    Libraries do not name the file when the disk is full; the OSError raised here does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial-{uuid.uuid4().hex[:8]}")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)}: make room, then run again", str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replacing_file(path) as beside:
        beside.write_bytes(content)


def refuse_place(folder: Path) -> None:
    """Raise InputError if a new folder cannot be created at `folder`, or if something already exists there."""
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder}: already exists: name a new folder")
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot create a folder in {above}: name another place")


@contextmanager
def making_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary path to create a folder at; rename it to `folder`, which must not exist yet, on success."""
    refuse_place(folder)
    beside = folder.with_name(f".{folder.name}.partial-{uuid.uuid4().hex[:8]}")
    try:
        yield beside
        publish(beside, folder)
    finally:
        remove(beside)


def publish(partial: Path, final: Path) -> None:
    """Move a finished file or folder to `final`; rename what was there to a temporary name first, then delete it.

    A rename cannot replace a folder that is not empty. A crash between the two renames leaves `final` absent and
    `partial` whole, never a mixture.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    old = final.with_name(f".{final.name}.partial-old-{uuid.uuid4().hex[:8]}")
    if final.exists() or final.is_symlink():
        final.rename(old)
    partial.rename(final)
    remove(old)


def remove(path: Path) -> None:
    """Delete a file, link or folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to `source`, or a copy of it if the file system does not allow the link."""
    if target.exists() and target.samefile(source):
        return
    with replacing_file(target) as beside:
        try:
            beside.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, beside)
