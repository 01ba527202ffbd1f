"""Whole or absent: every file and folder is written beside its place and renamed into it."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; on success it takes the place of `path`, on failure it is gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial-{uuid.uuid4().hex[:8]}")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole."""
    with replacing_file(path) as beside:
        beside.write_bytes(content)


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
