"""Reading of anchor tasks from Parquet, one at a time in any order, with an index and a cache of row groups.

The index maps each task to its rows. It is small (18 bytes per task) and is read from two columns. To read a task, its
row group is decoded; the row groups used last stay in memory, up to a limit in bytes. Tasks can therefore be read in
any order in bounded memory, at the cost of at most one decoding per task. Shards of tasks are best written in row
groups of a few dozen tasks.
"""

import hashlib
import os
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.errors import InputError

SHARD_NAME = re.compile(r"(?P<format>[a-z]+)-(?P<split>train|validation)-\d+\.parquet")
COLUMNS = ("task_id", "role", "example_id", "label", "labels", "texts", "sentence_ids", "choices")
CACHE_BYTES = 256 << 20
OPEN_FILES = 64
_FOOTER_END = 8  # bytes: the length of the footer in four bytes, then "PAR1"


@dataclass(frozen=True, slots=True)
class StoredExample:
    """An example: its texts in order, the ids of their sentences, and the clusters of its choices (format ss)."""

    example_id: str
    role: str
    label: int
    texts: tuple[str, ...]
    sentence_ids: tuple[str, ...]
    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task as it was written: first its support, then its query examples; `labels` is the number of labels."""

    task_id: str
    format: str
    kind: str
    labels: int
    examples: tuple[StoredExample, ...]


@dataclass(frozen=True)
class TaskIndex:
    """The place of every task, in the order of shard names and rows; arrays have one entry per task.

    Attributes:
        shards: the files.
        groups: for each shard, the first row of each row group, and the shard's number of rows at the end.
        shard: number of the task's shard.
        first: first row of the task in the shard.
        rows: number of rows of the task.
        kind: number of the task's kind in `kinds`.
        kinds: kinds found, with their format.
    """

    shards: tuple[Path, ...]
    groups: tuple[NDArray[np.int64], ...]
    shard: NDArray[np.int32]
    first: NDArray[np.int64]
    rows: NDArray[np.int32]
    kind: NDArray[np.int16]
    kinds: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return len(self.shard)

    def format_of(self, number: int) -> str:
        """Return the format of a task."""
        return self.kinds[int(self.kind[number])][1]

    def of_formats(self, formats: Collection[str]) -> NDArray[np.int64]:
        """Return the numbers of the tasks of these formats, ascending."""
        wanted = [number for number, (_, name) in enumerate(self.kinds) if name in formats]
        return np.flatnonzero(np.isin(self.kind, wanted))

    def of_kind(self, name: str) -> NDArray[np.int64]:
        """Return the numbers of the tasks of a kind, ascending."""
        wanted = [number for number, (kind, _) in enumerate(self.kinds) if kind == name]
        return np.flatnonzero(np.isin(self.kind, wanted))

    def fingerprint(self) -> str:
        """Return a hash of the chosen tasks and of the shards' footers, which hold sizes, bounds and provenance."""
        digest = hashlib.sha256()
        for array in (self.shard, self.first, self.rows, self.kind):
            digest.update(array.tobytes())
        for shard in self.shards:
            with _whole(shard), shard.open("rb") as file:
                file.seek(-_FOOTER_END, os.SEEK_END)
                length = int.from_bytes(file.read(4), "little")
                file.seek(-_FOOTER_END - length, os.SEEK_END)
                digest.update(file.read(length))
        return digest.hexdigest()[:16]


def read_index(
    folder: Path, split: str, formats: Collection[str] | None = None, kinds: Collection[str] | None = None
) -> TaskIndex:
    """Return the index of a split, for the given formats and kinds or for all. Raise InputError if it has no tasks."""
    shards = []
    for path in sorted(folder.glob("*.parquet")):
        name = SHARD_NAME.fullmatch(path.name)
        if name and name["split"] == split and (formats is None or name["format"] in formats):
            shards.append((path, name["format"]))
    numbers: dict[tuple[str, str], int] = {}
    scanned = [_scan(path, form, number, numbers) for number, (path, form) in enumerate(shards)]
    parts = [runs for runs, _ in scanned]
    there = list(numbers)
    if kinds is not None:
        wanted = [number for number, (kind, _) in enumerate(there) if kind in kinds]
        parts = [part[np.isin(part["kind"], wanted)] for part in parts]
    tasks = np.concatenate(parts) if parts else np.empty(0, _RUN)
    if not len(tasks):
        raise InputError(_nothing(folder, split, formats, kinds, sorted({kind for kind, _ in there})))
    columns = {name: np.ascontiguousarray(tasks[name]) for name in ("shard", "first", "rows", "kind")}
    paths, groups = tuple(path for path, _ in shards), tuple(starts for _, starts in scanned)
    return TaskIndex(shards=paths, groups=groups, kinds=tuple(there), **columns)


_RUN = np.dtype([("shard", "i4"), ("first", "i8"), ("rows", "i4"), ("kind", "i2")])


def _nothing(
    folder: Path, split: str, formats: Collection[str] | None, kinds: Collection[str] | None, there: list[str]
) -> str:
    if there:
        return (
            f"{folder}: no task of kind {', '.join(sorted(kinds or ()))} in split {split}, there is {', '.join(there)}"
        )
    of = f" of format {', '.join(sorted(formats))}" if formats is not None else ""
    return f"{folder}: no tasks{of} in split {split}: `supmer run materialize` makes them"


def _scan(
    path: Path, form: str, shard: int, kinds: dict[tuple[str, str], int]
) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return a record for each task (run of equal task_id) of a shard, and its row groups; add new kinds to `kinds`."""
    first: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    numbers: list[int] = []
    row, last = 0, None
    with _whole(path), _open(path) as file:
        groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        for batch in file.iter_batches(columns=["task_id", "kind"], use_threads=False):
            ids = batch.column("task_id")
            changed = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(zero_copy_only=False)
            begins = np.flatnonzero(np.concatenate([[ids[0].as_py() != last], changed]))
            names = batch.column("kind").take(pa.array(begins)).to_pylist()
            first.append(begins + row)
            numbers += [kinds.setdefault((name, form), len(kinds)) for name in names]
            row, last = row + len(ids), ids[-1].as_py()
    runs = np.empty(len(numbers), _RUN)
    runs["shard"], runs["first"], runs["kind"] = shard, np.concatenate(first), numbers
    runs["rows"] = np.diff(np.append(runs["first"], row))
    return runs, np.cumsum([0, *groups], dtype=np.int64)


class TaskShards:
    """Reads the tasks of an index by number; not thread-safe."""

    def __init__(self, index: TaskIndex, cache_bytes: int = CACHE_BYTES) -> None:
        self.index = index
        self._limit = cache_bytes
        self._held = 0
        self._groups: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()
        self._files: OrderedDict[int, pq.ParquetFile] = OrderedDict()

    def read(self, number: int) -> StoredTask:
        """Return the task with this number in the index."""
        index = self.index
        shard, first, rows = int(index.shard[number]), int(index.first[number]), int(index.rows[number])
        starts = index.groups[shard]
        low = int(np.searchsorted(starts, first, side="right")) - 1
        high = int(np.searchsorted(starts, first + rows, side="left"))
        tables = [self._group(shard, group) for group in range(low, high)]
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        kind, form = index.kinds[int(index.kind[number])]
        path = index.shards[shard]
        examples = table.slice(first - int(starts[low]), rows).to_pydict()
        if set(examples["task_id"]) != {examples["task_id"][0]}:
            raise InputError(f"{path}: changed while it was read: start again")
        return StoredTask(examples["task_id"][0], form, kind, examples["labels"][0], tuple(_examples(examples)))

    def _group(self, shard: int, group: int) -> pa.Table:
        key = (shard, group)
        if key in self._groups:
            self._groups.move_to_end(key)
            return self._groups[key]
        with _whole(self.index.shards[shard]):
            table = self._file(shard).read_row_group(group, columns=list(COLUMNS), use_threads=False)
        self._groups[key] = table
        self._held += table.nbytes
        while self._held > self._limit and len(self._groups) > 1:
            _, oldest = self._groups.popitem(last=False)
            self._held -= oldest.nbytes
        return table

    def _file(self, shard: int) -> pq.ParquetFile:
        if shard not in self._files:
            self._files[shard] = _open(self.index.shards[shard])
            if len(self._files) > OPEN_FILES:
                self._files.popitem(last=False)[1].close()
        self._files.move_to_end(shard)
        return self._files[shard]

    def close(self) -> None:
        """Close the files and drop the row groups in memory."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._groups.clear()
        self._held = 0


def _examples(columns: dict[str, list[object]]) -> Iterator[StoredExample]:
    names = ("example_id", "role", "label", "texts", "sentence_ids", "choices")
    for example_id, role, label, texts, sentence_ids, choices in zip(*(columns[name] for name in names), strict=True):
        yield StoredExample(example_id, role, label, tuple(texts), tuple(sentence_ids), tuple(choices or ()))


def _open(path: Path) -> pq.ParquetFile:
    with _whole(path):
        file = pq.ParquetFile(path)
    missing = [name for name in (*COLUMNS, "kind") if name not in file.schema_arrow.names]
    if missing:
        raise InputError(
            f"{path}: not a shard of tasks, it has no {', '.join(missing)}: `supmer run --force materialize`"
        )
    return file


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Convert errors to InputError: the shard is missing or damaged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = "gone" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"{path}: damaged or gone ({reason}): `supmer verify` checks all, `supmer run materialize` restores it"
        ) from error
