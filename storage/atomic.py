"""Whole or absent: every file and folder is written beside its place and renamed into it."""

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
    """Yield a path beside `path` to write to; on success it takes the place of `path`, on failure it is gone.

    Libraries do not name the file when the disk is full; here it is known.
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
    """Write a file whole."""
    with replacing_file(path) as beside:
        beside.write_bytes(content)


def refuse_place(folder: Path) -> None:
    """Refuse the place of a new folder where something is already, or where none can be made."""
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder}: is there already: name a folder that is not")
    above = next(one for one in folder.absolute().parents if one.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: no folder can be made in {above}: name another place")


@contextmanager
def making_folder(folder: Path) -> Iterator[Path]:
    """Yield a path beside `folder` to make the folder at; on success it becomes `folder`, which must not be there."""
    refuse_place(folder)
    beside = folder.with_name(f".{folder.name}.partial-{uuid.uuid4().hex[:8]}")
    try:
        yield beside
        publish(beside, folder)
    finally:
        remove(beside)


def publish(partial: Path, final: Path) -> None:
    """Move a finished file or folder to its place; what stood there is moved out of the way first, then deleted.

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
    """Delete a file, link or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source` without doubling the disk where the file system allows it."""
    if target.exists() and target.samefile(source):
        return
    with replacing_file(target) as beside:
        try:
            beside.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, beside)
