"""Verification by hashes: outputs and DVC's cache against dvc.lock, source files against their recorded SHA-256."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from storage.errors import InputError
from storage.lockfile import (
    LockedPath,
    LockedStage,
    Pipeline,
    cache_folder,
    directory_md5,
    directory_object,
    files_below,
    object_path,
)

PARQUET_MAGIC = b"PAR1"
CHUNK_BYTES = 1 << 20
RESTORE = "`supmer run` restores or recomputes it"
NAMED = 3  # the most missing objects that a finding names
# `supmer run` alone is not enough: DVC compares date and size, and misses damage that changes neither.
DELETE = "delete it, then `supmer run`: it is restored, or made again where the cache is damaged as well"

Kind = Literal["missing", "changed", "truncated", "extra", "unreadable", "cache", "source", "invariant", "unrecorded"]
Progress = Callable[[int, int], None]
"""Called with bytes hashed so far and bytes in all."""


@dataclass(frozen=True)
class Finding:
    """One problem: its kind, its place, a description, and what to do about it."""

    kind: Kind
    path: str
    detail: str
    remedy: str


@dataclass(frozen=True)
class Expected:
    """A file recorded in dvc.lock; `bytes` is None if its size is not recorded."""

    stage: str
    path: Path
    md5: str
    bytes: int | None


class Meter:
    """Counts the bytes hashed by all threads and reports them to `progress`."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total, self._done, self._progress = total, 0, progress
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Add to the number of bytes hashed."""
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)


class Hashes:
    """Hashes of files, computed on all cores, each inode once; the hash of a file that cannot be read is None."""

    def __init__(self, algorithm: Literal["md5", "sha256"], paths: Iterable[Path], progress: Progress) -> None:
        self._inodes: dict[Path, tuple[int, int]] = {}
        todo: dict[tuple[int, int], tuple[Path, int]] = {}
        for path in paths:
            stat = path.stat()
            self._inodes[path] = (stat.st_dev, stat.st_ino)
            todo[stat.st_dev, stat.st_ino] = (path, stat.st_size)
        meter = Meter(sum(size for _, size in todo.values()), progress)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            digests = pool.map(lambda entry: _digest(algorithm, entry[0], meter), todo.values())
            self._digests = dict(zip(todo, digests, strict=True))

    def __getitem__(self, path: Path) -> str | None:
        return self._digests[self._inodes[path]]

    def same_file(self, first: Path, second: Path) -> bool:
        """True if two paths are links to the same file."""
        return self._inodes[first] == self._inodes[second]


def _digest(algorithm: str, path: Path, meter: Meter) -> str | None:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                meter.add(len(chunk))
    except OSError:
        return None
    return digest.hexdigest()


def verify_outputs(pipeline: Pipeline, progress: Progress) -> Iterator[Finding]:
    """Yield findings about the outputs in dvc.lock and their objects in DVC's cache, by their hashes."""
    cache = cache_folder(pipeline.root)
    expected: list[Expected] = []
    unlisted: list[tuple[LockedStage, LockedPath]] = []  # directories whose listing is not in the cache
    locked = {output.path for stage in pipeline.current() for output in stage.outputs}
    for declared in pipeline.outputs():
        if declared not in locked and (pipeline.root / declared).exists():
            yield Finding("unrecorded", declared, "exists, but dvc.lock does not list it", "`supmer run` records it")
    for stage in pipeline.current():
        for output in stage.outputs:
            yield from _expect(pipeline.root, cache, stage, output, expected, unlisted)
    objects = {file.md5: object_path(cache, file.md5) for file in expected}
    below = [
        path for _, output in unlisted for path in files_below(pipeline.root, pipeline.root / output.path).values()
    ]
    everything = [file.path for file in expected] + list(objects.values()) + below
    hashes = Hashes("md5", (path for path in everything if path.is_file()), progress)
    for file in expected:
        yield from _compare(pipeline.root, file, objects[file.md5], hashes)
    for stage, output in unlisted:
        yield from _compare_unlisted(pipeline.root, stage, output, hashes)
    for md5, path in objects.items():
        if path.is_file() and hashes[path] != md5:
            yield _damaged_object(pipeline.root, path)


def _expect(
    root: Path,
    cache: Path,
    stage: LockedStage,
    output: LockedPath,
    expected: list[Expected],
    unlisted: list[tuple[LockedStage, LockedPath]],
) -> Iterator[Finding]:
    """Add the files of an output to `expected`; yield what is visible without hashing: missing outputs, extra files."""
    path = root / output.path
    if output.md5 is None:
        yield Finding("changed", output.path, "dvc.lock holds no md5 of it", f"`supmer run --force {stage.name}`")
    elif not path.exists():
        yield Finding("missing", output.path, f"output of {stage.name} is gone", RESTORE)
    elif not output.is_directory:
        expected.append(Expected(stage.name, path, output.md5, output.bytes))
    else:
        try:
            listing = directory_object(cache, output.md5)
        except (ValueError, KeyError, TypeError):
            listing = None
            yield _damaged_object(root, object_path(cache, output.md5))
        if listing is None:
            unlisted.append((stage, output))
            return
        expected += [Expected(stage.name, path / name, md5, None) for name, md5 in listing.items()]
        for name in sorted(files_below(root, path).keys() - listing.keys()):
            yield Finding("extra", f"{output.path}/{name}", f"{stage.name} did not write it", "remove it")


def _compare(root: Path, file: Expected, cached: Path, hashes: Hashes) -> Iterator[Finding]:
    where = str(file.path.relative_to(root))
    if not file.path.is_file():
        yield Finding("missing", where, f"file of {file.stage} is gone", RESTORE)
        return
    digest = hashes[file.path]
    if digest is None:
        yield Finding("unreadable", where, "cannot be read", "make it readable")
    elif digest != file.md5:
        recorded = file.bytes
        if recorded is None and cached.is_file() and not hashes.same_file(file.path, cached):
            recorded = cached.stat().st_size
        yield _difference(file.path, where, recorded, f"md5 {digest}, dvc.lock has {file.md5}")
    elif _lacks_footer(file.path):
        yield Finding("truncated", where, "a Parquet file without its footer", f"`supmer run --force {file.stage}`")


def _difference(path: Path, where: str, recorded: int | None, detail: str) -> Finding:
    size = path.stat().st_size
    if recorded is not None and size < recorded:
        return Finding("truncated", where, f"{size:,} of {recorded:,} bytes", DELETE)
    if _lacks_footer(path):
        return Finding("truncated", where, "a Parquet file without its footer", DELETE)
    return Finding("changed", where, detail, DELETE)


def _compare_unlisted(root: Path, stage: LockedStage, output: LockedPath, hashes: Hashes) -> Iterator[Finding]:
    """Compare a directory as a whole, because its listing is lost."""
    folder = root / output.path
    files = files_below(root, folder)
    cut = [name for name, path in files.items() if path.is_file() and _lacks_footer(path)]
    for name in cut:
        yield Finding("truncated", f"{output.path}/{name}", "a Parquet file without its footer", DELETE)
    actual = directory_md5({name: hashes[path] or "" for name, path in files.items() if path.is_file()})
    if actual != output.md5 and not cut:
        counts = f"{len(files)} files, dvc.lock has {output.files}"
        yield Finding("changed", output.path, f"content of {stage.name}'s folder changed ({counts})", DELETE)


def _lacks_footer(path: Path) -> bool:
    if path.suffix != ".parquet":
        return False
    with path.open("rb") as file:
        head = file.read(len(PARQUET_MAGIC))
        file.seek(max(path.stat().st_size - len(PARQUET_MAGIC), 0))
        return head != PARQUET_MAGIC or file.read() != PARQUET_MAGIC


def _damaged_object(root: Path, path: Path) -> Finding:
    where = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    return Finding("cache", where, "object of DVC's cache does not match its name", DELETE)


def verify_cached(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield a finding for each output that could not be restored because DVC's cache lacks some or all of it."""
    cache = cache_folder(pipeline.root)
    for output in (output for stage in pipeline.current() for output in stage.outputs):
        if output.md5 is None or output.path in pipeline.uncached():
            continue
        if not object_path(cache, output.md5).is_file():
            yield _uncached(output, "does not hold it")
        elif output.is_directory:
            yield from _lacking(cache, output)


def _lacking(cache: Path, output: LockedPath) -> Iterator[Finding]:
    try:
        listing = directory_object(cache, output.md5 or "") or {}
    except (ValueError, KeyError, TypeError):  # already reported as damaged
        return
    lacking = sorted(name for name, md5 in listing.items() if not object_path(cache, md5).is_file())
    if lacking:
        names = ", ".join(lacking[:NAMED]) + (", …" if len(lacking) > NAMED else "")
        yield _uncached(output, f"lacks {len(lacking)} of {len(listing)} files ({names})")


def _uncached(output: LockedPath, how: str) -> Finding:
    return Finding(
        "cache", output.path, f"DVC's cache {how}, so that it could not be restored", "`supmer run` puts it there"
    )


def verify_sources(pipeline: Pipeline, progress: Progress) -> Iterator[Finding]:
    """Yield a finding for each source file that differs from the SHA-256 that `acquire` recorded."""
    from storage.sources.source import MANIFEST, read_manifest

    promised: dict[str, tuple[str, str]] = {}  # by path: the SHA-256, and the manifest that records it
    for output in pipeline.outputs():
        record = f"{output}/{MANIFEST}"
        if not (pipeline.root / record).is_file():
            continue
        try:
            sources = read_manifest(pipeline.root / output)
        except InputError as error:
            yield Finding("source", record, str(error), DELETE)
            continue
        for file in (file for source in sources for file in source.files):
            promised[file.path] = (file.sha256, record)
    paths = {where: pipeline.root / where for where in promised}
    hashes = Hashes("sha256", (path for path in paths.values() if path.is_file()), progress)
    for where, (sha256, record) in promised.items():
        if not paths[where].is_file():
            yield Finding("missing", where, "source file is gone", "put it back, or `supmer run acquire`")
        elif hashes[paths[where]] != sha256:
            detail = f"differs from the sha256 recorded in {record}"
            yield Finding("source", where, detail, "put the file back, or `supmer run` to take it as it is")


def verify_cache(root: Path, progress: Progress) -> Iterator[Finding]:
    """Yield a finding for each damaged object in DVC's cache, including objects of earlier versions."""
    cache = cache_folder(root)
    objects = [path for path in cache.glob("??/*") if path.is_file()]
    hashes = Hashes("md5", objects, progress)
    for path in objects:
        if hashes[path] != (path.parent.name + path.name).removesuffix(".dir"):
            yield _damaged_object(root, path)


def verify_invariants(root: Path, memory_mb: int) -> Iterator[Finding]:
    """Yield a finding for each violated invariant of the datasets."""
    import duckdb

    from storage.checks.invariants import broken_invariants
    from storage.checks.task_evidence import add_evidence
    from storage.queries.views import connect

    with connect(root, memory_mb) as connection:
        try:
            add_evidence(root, connection)
            for line, stage in broken_invariants(connection):
                remedy = f"`supmer run --force {stage}` makes it again; report a bug if this remains"
                yield Finding("invariant", "data", line, remedy)
        except duckdb.Error as error:
            detail = str(error).splitlines()[0]
            remedy = "correct the findings above, then call `supmer verify` again"
            yield Finding("invariant", "data", f"could not be checked: {detail}", remedy)
