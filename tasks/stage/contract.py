"""The stage contract: inputs are declared, outputs are complete or absent, and finished shards are never redone."""

import importlib
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from storage import paths
from storage.atomic import link_or_copy, publish, remove, write_bytes
from storage.hashing import file_hash, json_hash
from tasks.params.schema import Params
from tasks.stage.progress import following

Record = dict[str, Any]
"""A JSON object: what a shard or a stage says of its own work."""

ShardFunction = Callable[[Record, Path], Record]
"""Reads what its payload names, writes its files into the folder it is given, returns a JSON record."""

SHARD_STORE = paths.SHARDS
USED = "used.json"  # the shards that the current outputs are made of
RANKS = "SUPMER_RANKS"  # environment variable: the number of processes that one shard may use, if it can
MARKER = "record.json"  # written last: a shard folder that has it is complete


@dataclass(frozen=True)
class Shard:
    """One unit of a fan-out: seconds of work, never a single row.

    `payload` is everything the result depends on (parameters, content hashes of the inputs): equal payloads and equal
    code mean equal results, and the second is not computed. `hint` is what the function needs but the result does not
    depend on, such as the present location of a file. `weight` is in the progress unit of the step.
    """

    name: str
    payload: Record
    weight: int = 1
    hint: Record = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A shard with its function and its folder in the shard store; plain strings, so that it can be sent as JSON."""

    name: str
    function: str  # "module:name"
    payload: Record
    hint: Record
    folder: str
    weight: int

    def execute(self) -> Record:
        """Do the work, or return the record of work already done; the folder appears complete or not at all."""
        folder = Path(self.folder)
        if (done := finished_record(folder)) is not None:
            return done
        partial = folder.with_name(f"{folder.name}.partial-{uuid.uuid4().hex[:8]}")  # a Dask cluster may try twice
        partial.mkdir(parents=True)
        try:
            module, _, name = self.function.partition(":")
            function: ShardFunction = getattr(importlib.import_module(module), name)
            record = function(self.payload | self.hint, partial)
            files = {
                str(path.relative_to(partial)): {"bytes": path.stat().st_size, "sha256": file_hash(path)}
                for path in _files(partial)
            }
            write_bytes(partial / MARKER, orjson.dumps({"record": record, "files": files}))
            publish(partial, folder)
        finally:
            remove(partial)
        return record


def _reference(function: ShardFunction) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def finished_record(folder: Path) -> Record | None:
    """Return the record of a finished shard; None if there is none, or a file is missing or cut. Nothing is hashed."""
    try:
        marker = orjson.loads((folder / MARKER).read_bytes())
        whole = all((folder / name).stat().st_size == file["bytes"] for name, file in marker["files"].items())
        record: Record = marker["record"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return record if whole else None


def remove_damaged(folders: Iterable[Path]) -> None:
    """Remove finished shards with a file that changed since it was written, so that they are computed again.

    Outputs and DVC's cache share the bytes of a shard: overwriting an output in place damages the shard as well.
    """
    with ThreadPoolExecutor() as pool:
        finished = [folder for folder in folders if (folder / MARKER).is_file()]
        for folder, whole in zip(finished, pool.map(_is_undamaged, finished), strict=True):
            if not whole:
                remove(folder)


def _is_undamaged(folder: Path) -> bool:
    try:
        marker = orjson.loads((folder / MARKER).read_bytes())
        return all(file_hash(folder / name) == file["sha256"] for name, file in marker["files"].items())
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return False


def unused_shards(store: Path, used: Collection[Path]) -> list[Path]:
    """Return the folders in a stage's part of the shard store that are not in use and take up space.

    A finished shard takes none if outputs, or versions in DVC's cache, share the bytes of all its files.
    """
    links = Counter(path.stat().st_ino for path in _files(store))

    def takes_room(folder: Path) -> bool:
        files = [path for path in _files(folder) if path.name != MARKER]
        shared = [path.stat().st_nlink > links[path.stat().st_ino] for path in files]  # by others than shards
        return not (folder / MARKER).is_file() or not shared or not all(shared)

    return [folder for folder in store.glob("*/*") if folder not in used and takes_room(folder)]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class ShardResult:
    """A finished shard: its record, and the folder that holds its files."""

    shard: Shard
    record: Record
    folder: Path


Finished = Callable[[Job, Record], None]


class Progress(Protocol):
    """A progress bar, or a series of log lines."""

    def advance(self, amount: int) -> None:
        """Count `amount` more units as done."""

    def note(self, text: str) -> None:
        """Show a remark about the work under way, beside the count."""


class Reporter(Protocol):
    """The display that a stage reports to."""

    def say(self, message: str) -> None:
        """Print one line."""

    def progress(self, label: str, total: int, unit: str) -> AbstractContextManager[Progress]:
        """Show progress over `total` units while the context is open."""


class SilentReporter:
    """A reporter that shows nothing: for tests, benchmarks and callers with their own display."""

    def say(self, message: str) -> None:
        """Say nothing."""

    @contextmanager
    def progress(self, label: str, total: int, unit: str) -> Iterator[Progress]:  # noqa: ARG002 - the protocol's
        """Show nothing."""
        yield self

    def advance(self, amount: int) -> None:
        """Count nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


class FanOut(Protocol):
    """A place for shards to run: in this thread, on threads and processes, or on a Dask cluster."""

    def run(self, step: str, jobs: Sequence[Job], finished: Finished) -> None:
        """Execute the jobs, and call `finished` in this thread with each job and its record as it ends."""


class InlineFanOut:
    """A fan-out that executes one job after the other in this thread."""

    def run(self, step: str, jobs: Sequence[Job], finished: Finished) -> None:  # noqa: ARG002 - the protocol's
        """Execute the jobs in order."""
        for job in jobs:
            finished(job, job.execute())


@dataclass
class Stage:
    """One run of one stage: its inputs, its outputs, its fan-out.

    Attributes:
        root: the workspace.
        inputs: declared dependencies, relative to `root`.
        outputs: declared outputs, relative to `root`.
        fingerprint: hash of inputs, parameters and code; names the partial outputs.
        code: hash of the code alone; part of every shard's key.
        refresh: recompute shards even if they are finished.
    """

    name: str
    root: Path
    params: Params
    inputs: Sequence[str]
    outputs: Sequence[str]
    fingerprint: str
    code: str
    fan_out: FanOut
    reporter: Reporter
    refresh: bool = False
    _adopted: list[tuple[Path, str, Path]] = field(default_factory=list)
    _used: set[Path] = field(default_factory=set)

    def input(self, path: str) -> Path:
        """Return the path of a declared input."""
        if not any(Path(path).is_relative_to(declared) for declared in self.inputs):
            raise LookupError(f"stage {self.name} does not declare the input {path} in dvc.yaml")
        return self.root / path

    def output(self, path: str) -> Path:
        """Return the path to write a declared output to, beside its final place until the stage is done."""
        if path not in self.outputs:
            raise LookupError(f"stage {self.name} does not declare the output {path} in dvc.yaml")
        final = self.root / path
        partial = final.with_name(f"{final.name}.partial-{self.fingerprint[:16]}")
        partial.parent.mkdir(parents=True, exist_ok=True)
        return partial

    def map(
        self, step: str, function: ShardFunction, shards: Iterable[Shard], unit: str = "shards", *, live: bool = False
    ) -> list[ShardResult]:
        """Run `function` over the shards, except those already done; return results in the order of the shards.

        `live` is for shards of minutes, which report their progress (`tasks.stage.progress.tell`).
        """
        reference, listed = _reference(function), list(shards)
        folders = self._folders(step, function, listed)
        jobs = {
            folder: Job(shard.name, reference, shard.payload, shard.hint, str(folder), shard.weight)
            for shard, folder in zip(listed, folders, strict=True)
        }
        if self.refresh:
            for folder in jobs.keys() - self._used:
                remove(folder)
        else:
            remove_damaged(jobs.keys() - self._used)
        self._used |= jobs.keys()
        records: dict[str, Record] = {}
        total = sum(job.weight for job in jobs.values())
        weights = {folder: job.weight for folder, job in jobs.items()}
        label = self.name if step == self.name else f"{self.name}: {step}"
        with (
            self.reporter.progress(label, total, unit) as bar,
            following(bar, self.reporter.say, weights, live=live) as followed,
        ):

            def finished(job: Job, record: Record) -> None:
                records[job.folder] = record
                followed.finished(Path(job.folder))

            self.fan_out.run(f"{self.name}-{step}", list(jobs.values()), finished)
        return [ShardResult(shard, records[str(folder)], folder) for shard, folder in zip(listed, folders, strict=True)]

    def unfinished(self, step: str, function: ShardFunction, shards: Iterable[Shard]) -> list[Shard]:
        """Return the shards that `map` would have to compute, for work that is better done for several at once."""
        listed = list(shards)
        folders = self._folders(step, function, listed)
        if not self.refresh:
            remove_damaged(set(folders) - self._used)
        return [
            shard
            for shard, folder in zip(listed, folders, strict=True)
            if (self.refresh and folder not in self._used) or finished_record(folder) is None
        ]

    def key(self, function: ShardFunction, shard: Shard) -> str:
        """Return the key of a shard: the hash of its function, code and payload."""
        return json_hash([_reference(function), self.code, shard.payload])[:32]

    def _folders(self, step: str, function: ShardFunction, shards: Sequence[Shard]) -> list[Path]:
        return [self._store / step / self.key(function, shard) for shard in shards]

    def adopt(self, result: ShardResult, file: str, output: str, name: str) -> None:
        """Put a shard's file into an output folder under `name`, sharing its bytes on disk."""
        link_or_copy(result.folder / file, self.output(output) / name)
        self._adopted.append((result.folder / file, output, Path(name)))

    def start(self) -> None:
        """Remove what an earlier attempt left beside the outputs; its finished shards stay."""
        for path in self.outputs:
            final = self.root / path
            for pattern in (f"{final.name}.partial-*", f".{final.name}.partial-*"):
                for left in final.parent.glob(pattern):
                    remove(left)

    def publish(self) -> None:
        """Move every output to its place; an output that the stage did not write is a bug."""
        # Until the stage has settled, the shards of both versions are in use: a crash may leave either version.
        self._list_used(self._used | self._listed())
        for path in self.outputs:
            publish(self.output(path), self.root / path)

    def settle(self) -> None:
        """Share the bytes of the outputs, now linked to DVC's cache, with the shard store, and drop unused shards.

        Shards of versions that DVC's cache still holds stay: such a version may be restored and continued.
        """
        for stored, output, name in self._adopted:
            link_or_copy(self.root / output / name, stored)
        self._list_used(self._used)
        for folder in unused_shards(self._store, self._used):
            remove(folder)

    @property
    def _store(self) -> Path:
        return self.root / SHARD_STORE / self.name

    def _listed(self) -> set[Path]:
        try:
            return {self._store / name for name in orjson.loads((self._store / USED).read_bytes())}
        except FileNotFoundError:
            return set()

    def _list_used(self, folders: set[Path]) -> None:
        write_bytes(
            self._store / USED, orjson.dumps(sorted(str(folder.relative_to(self._store)) for folder in folders))
        )
