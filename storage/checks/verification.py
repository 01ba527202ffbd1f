"""Verification by hashes: outputs and DVC's cache against dvc.lock, source files against their recorded SHA-256."""

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from storage.checks.versions import Agreement, KnownVersions
from storage.counts import counted
from storage.errors import InputError
from storage.lockfile import (
    DIRECTORY_SUFFIX,
    LockedPath,
    LockedStage,
    Pipeline,
    cache_folder,
    directory_md5,
    directory_object,
    files_below,
    object_path,
    read_pipeline,
)

PARQUET_MAGIC = b"PAR1"
CHUNK_BYTES = 1 << 20
RESTORE = "`supmer run` restores or recomputes it"
NAMED = 3  # the most missing objects that a finding names
# `supmer run` alone is not enough: DVC compares date and size, and misses damage that changes neither.
DELETE = "delete it, then `supmer run`: it is restored, or made again where the cache is damaged as well"

STALE = "`supmer run` restores it, or makes it again"

Kind = Literal[
    "missing", "changed", "truncated", "extra", "unreadable", "cache", "source", "invariant", "unrecorded",
    "stale", "unchecked",
]  # fmt: skip
HARMLESS = frozenset({"stale", "unchecked"})
"""Kinds of findings that are no damage: outputs of another version, and what these kept from being compared."""

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
class _Output:
    """An output of dvc.lock with its files in the workspace, and the md5 of each file that it should have.

    `expected` is None for a directory whose listing is not in the cache, which can only be compared as a whole.
    """

    stage: str
    locked: LockedPath
    path: Path
    files: Mapping[str, Path]
    expected: Mapping[str, str] | None

    def where(self, name: str) -> str:
        """Return the path of a file, relative to the workspace."""
        return f"{self.locked.path}/{name}" if self.locked.is_directory else self.locked.path

    def file(self, name: str) -> Path:
        """Return the place of a file, whether or not it exists."""
        return self.path / name if self.locked.is_directory else self.path


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
    """Yield findings about the outputs in dvc.lock and their objects in DVC's cache, by their hashes.

    An output whose content another run wrote is stale, not damaged.
    """
    cache, known = cache_folder(pipeline.root), KnownVersions(pipeline.root)
    outputs: list[_Output] = []
    for stage in pipeline.current():
        for locked in stage.outputs:
            yield from _found(pipeline.root, cache, stage, locked, outputs)
    unrecorded = list(_unrecorded(pipeline))
    objects = {
        md5: object_path(cache, md5) for output in outputs for md5 in (output.expected or {}).values()
    }  # each is checked once, even if several files share it
    everything = [path for output in (*outputs, *unrecorded) for path in output.files.values()] + list(objects.values())
    hashes = Hashes("md5", (path for path in everything if path.is_file()), progress)
    for output in unrecorded:
        remedy = "`supmer run` records it"
        if _version(output, hashes) in known:
            yield Finding("stale", output.locked.path, "left by another version, and not in dvc.lock", remedy)
        else:
            yield Finding("unrecorded", output.locked.path, "exists, but dvc.lock does not list it", remedy)
    for output in outputs:
        version = _version(output, hashes)
        if version != output.locked.md5 and version in known:
            detail = f"of another version (md5 {version}, dvc.lock has {output.locked.md5})"
            yield Finding("stale", output.locked.path, detail, STALE)
        elif output.expected is None:
            yield from _compare_whole(output, version)
        else:
            yield from _compare(output, output.expected, objects, hashes)
    for md5, path in objects.items():
        if path.is_file() and hashes[path] != md5:
            yield _damaged_object(pipeline.root, path)


def _found(
    root: Path, cache: Path, stage: LockedStage, locked: LockedPath, outputs: list[_Output]
) -> Iterator[Finding]:
    """Add an output to `outputs`, or yield why it cannot be compared: it is missing, or dvc.lock has no hash of it."""
    path = root / locked.path
    if locked.md5 is None:
        yield Finding("changed", locked.path, "dvc.lock holds no md5 of it", f"`supmer run --force {stage.name}`")
    elif not path.exists():
        yield Finding("missing", locked.path, f"output of {stage.name} is gone", RESTORE)
    elif not locked.is_directory:
        outputs.append(_Output(stage.name, locked, path, {path.name: path}, {path.name: locked.md5}))
    else:
        try:
            listing = directory_object(cache, locked.md5)
        except (ValueError, KeyError, TypeError):
            listing = None
            yield _damaged_object(root, object_path(cache, locked.md5))
        outputs.append(_Output(stage.name, locked, path, files_below(root, path), listing))


def _unrecorded(pipeline: Pipeline) -> Iterator[_Output]:
    """Yield the outputs of dvc.yaml that exist although dvc.lock does not list them."""
    locked = {output.path for stage in pipeline.current() for output in stage.outputs}
    for declared, stage in pipeline.outputs().items():
        path = pipeline.root / declared
        if declared not in locked and path.exists():
            files = files_below(pipeline.root, path) if path.is_dir() else {path.name: path}
            suffix = DIRECTORY_SUFFIX if path.is_dir() else ""
            yield _Output(stage, LockedPath(declared, suffix, None, None), path, files, None)


def _version(output: _Output, hashes: "Hashes") -> str:
    """Return the md5 of an output's content in the workspace, as DVC computes it."""
    digests = {name: hashes[path] or "" for name, path in output.files.items() if path.is_file()}
    return directory_md5(digests) if output.locked.is_directory else next(iter(digests.values()), "")


def _compare(
    output: _Output, expected: Mapping[str, str], objects: Mapping[str, Path], hashes: "Hashes"
) -> Iterator[Finding]:
    """Compare an output with its listing, file by file."""
    for name in sorted(output.files.keys() - expected.keys()):
        yield Finding("extra", output.where(name), f"{output.stage} did not write it", "remove it")
    for name, md5 in expected.items():
        path, where, cached = output.file(name), output.where(name), objects[md5]
        digest = hashes[path] if path.is_file() else None
        if not path.is_file():
            yield Finding("missing", where, f"file of {output.stage} is gone", RESTORE)
        elif digest is None:
            yield Finding("unreadable", where, "cannot be read", "make it readable")
        elif digest != md5:
            recorded = None if output.locked.is_directory else output.locked.bytes
            if recorded is None and cached.is_file() and not hashes.same_file(path, cached):
                recorded = cached.stat().st_size
            yield _difference(path, where, recorded, f"md5 {digest}, dvc.lock has {md5}")
        elif _lacks_footer(path):
            detail = "a Parquet file without its footer"
            yield Finding("truncated", where, detail, f"`supmer run --force {output.stage}`")


def _difference(path: Path, where: str, recorded: int | None, detail: str) -> Finding:
    size = path.stat().st_size
    if recorded is not None and size < recorded:
        return Finding("truncated", where, f"{size:,} of {recorded:,} bytes", DELETE)
    if _lacks_footer(path):
        return Finding("truncated", where, "a Parquet file without its footer", DELETE)
    return Finding("changed", where, detail, DELETE)


def _compare_whole(output: _Output, version: str) -> Iterator[Finding]:
    """Compare a directory as a whole, because its listing is lost."""
    cut = [name for name, path in output.files.items() if path.is_file() and _lacks_footer(path)]
    for name in cut:
        yield Finding("truncated", output.where(name), "a Parquet file without its footer", DELETE)
    if version != output.locked.md5 and not cut:
        counts = f"{counted(len(output.files), 'file')}, dvc.lock has {output.locked.files}"
        yield Finding("changed", output.locked.path, f"content of {output.stage}'s folder changed ({counts})", DELETE)


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


def verify_cached(pipeline: Pipeline, stale: Collection[str] = ()) -> Iterator[Finding]:
    """Yield a finding for each output that could not be restored because DVC's cache lacks some or all of it.

    For an output in `stale`, the version in dvc.lock may never have been here.
    """
    cache = cache_folder(pipeline.root)
    for output in (output for stage in pipeline.current() for output in stage.outputs):
        if output.md5 is None or output.path in pipeline.uncached() or output.path in stale:
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
        yield _uncached(output, f"lacks {len(lacking)} of {counted(len(listing), 'file')} ({names})")


def _uncached(output: LockedPath, how: str) -> Finding:
    return Finding(
        "cache", output.path, f"DVC's cache {how}, so that it could not be restored", "`supmer run` puts it there"
    )


def verify_sources(pipeline: Pipeline, progress: Progress, stale: Collection[str] = ()) -> Iterator[Finding]:
    """Yield a finding for each source file that differs from the SHA-256 that `acquire` recorded.

    A record in `stale` is of another version, and says nothing about the files that are here.
    """
    from storage.sources.source import MANIFEST, read_manifest

    promised: dict[str, tuple[str, str]] = {}  # by path: the SHA-256, and the manifest that records it
    for output in pipeline.outputs():
        record = f"{output}/{MANIFEST}"
        if output in stale or not (pipeline.root / record).is_file():
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


def verify_invariants(root: Path, memory_mb: int, stale: Collection[str] = ()) -> Iterator[Finding]:
    """Yield a finding for each violated invariant of the datasets.

    Tables that do not belong together are not compared; a finding says which tables, and why.
    """
    import duckdb

    from storage.checks.invariants import broken_invariants, comparable
    from storage.checks.task_evidence import add_evidence
    from storage.queries.views import connect

    invariants, hindered = comparable(root, Agreement(read_pipeline(root), stale))
    for obstacle, views in hindered.items():
        yield Finding("unchecked", "data", f"{', '.join(sorted(views))}: not compared, because {obstacle}", STALE)
    with connect(root, memory_mb) as connection:
        try:
            add_evidence(root, connection)
            for line, stage in broken_invariants(connection, invariants):
                remedy = f"`supmer run --force {stage}` makes it again; report a bug if this remains"
                yield Finding("invariant", "data", line, remedy)
        except duckdb.Error as error:
            detail = str(error).splitlines()[0]
            remedy = "correct the findings above, then call `supmer verify` again"
            yield Finding("invariant", "data", f"could not be checked: {detail}", remedy)
