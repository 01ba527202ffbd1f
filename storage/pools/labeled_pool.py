"""A dataset that tasks are drawn from: its texts, and its example numbers by split, group and label."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from storage.atomic import write_bytes
from storage.counts import counted
from storage.errors import InputError
from storage.hashing import json_hash
from storage.pools.row_arrays import Integers, Rows, RowWriter, map_array
from storage.records.labeled_sets import (
    ANY,
    Columns,
    LabeledRow,
    first_columns,
    label_names,
    numbered_labels,
    read_rows,
    rows_for_testing,
    training_files,
)
from storage.sources.source import AcquiredSource, SourceFile

_KINDS = {"label": "i4", "row": "i8"}
_BATCH_ROWS = 8_192
_SUMMARY = "set.json"
_CELLS = "cells"
_FEWEST_LABELS = 2


@dataclass(frozen=True)
class LabeledSet:
    """A set that was read: `rows` examples of `fields` texts each, labels 0 to `labels` − 1.

    Attributes:
        content: hash of everything that was read.
        files: names of the files that were read.
        duplicates: rows left out because an earlier row has the same texts.
        conflicts: duplicates whose label differs from that of the earlier row.
        tested: rows left out because `tune` tests on them.
    """

    name: str
    rows: int
    fields: int
    labels: int
    content: str
    files: tuple[str, ...] = ()
    duplicates: int = 0
    conflicts: int = 0
    tested: int = 0


def write_set(folder: Path, source: AcquiredSource, root: Path, tuned: Columns) -> LabeledSet:
    """Read a set into `folder`, without duplicates and without the rows that `tune` tests on (with columns `tuned`)."""
    files = training_files(source)
    where = f"acquire.datasets.{source.name}"
    _check_columns(files, root, where)
    values = {row.label for row in read_rows(files, root)}
    if len(values) < _FEWEST_LABELS:
        raise InputError(
            f"{where}: {counted(len(values), 'label')} in {counted(len(files), 'file')}, two are needed: check them"
        )
    numbers = numbered_labels(values, label_names(source, root), where)
    tested = frozenset(rows_for_testing(source, root, tuned))
    rest = (row for row in read_rows(files, root) if row.row not in tested)
    fields = 0
    seen = _Seen(numbers)
    with RowWriter(folder, _KINDS) as writer:
        for batch in _batches(filter(seen.first, rest)):
            widths = {len(row.texts) for row in batch} | ({fields} if fields else set())
            if len(widths) > 1:
                raise InputError(f"{where}: some rows have one text, some two: give all the same number")
            fields = widths.pop()
            columns = {
                "label": np.repeat([numbers[row.label] for row in batch], fields),
                "row": np.repeat([row.row for row in batch], fields),
            }
            writer.append(pa.array([text for row in batch for text in row.texts]), columns)
    if not fields:
        raise InputError(f"{where}: its {len(tested)} rows are all for testing: add rows, or name a file test.jsonl")
    content = json_hash([[file.sha256 for file in files], sorted(map(str, numbers.items())), sorted(tested)])
    labels = max(numbers.values()) + 1
    used = tuple(file.name for file in files)
    left_out = (seen.duplicates, seen.conflicts, len(tested))
    return LabeledSet(source.name, writer.rows // fields, fields, labels, content, used, *left_out)


def _check_columns(files: list[SourceFile], root: Path, where: str) -> None:
    """Raise InputError if the columns are not the usual ones; only `tune` knows other columns (docs/datasets.md)."""
    columns = first_columns(files, root)
    wanted = [{*fields, *ANY.labels} for fields in ANY.texts]
    if columns and not any(columns >= fields for fields in wanted):
        known = " or ".join(", ".join((*fields, *ANY.labels)) for fields in ANY.texts)
        raise InputError(
            f"{where}: labeled tasks need the fields {known} (found: {', '.join(sorted(map(str, columns)))}); "
            "the fields that tune knows for a set are not used here: acquire a copy with these fields"
        )


@dataclass
class _Seen:
    """The texts seen so far, with their labels."""

    numbers: Mapping[str | int, int]
    duplicates: int = 0
    conflicts: int = 0
    _labels: dict[int, int] = field(default_factory=dict)

    def first(self, row: LabeledRow) -> bool:
        """True if a row is the first with its texts; otherwise it is counted as a duplicate."""
        label = self.numbers[row.label]
        key = hash(row.texts)  # 64 bits suffice; the hash is never stored
        earlier = self._labels.get(key)
        if earlier is None:
            self._labels[key] = label
            return True
        self.duplicates += 1
        self.conflicts += earlier != label
        return False


def _batches(rows: Iterator[LabeledRow]) -> Iterator[list[LabeledRow]]:
    batch: list[LabeledRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


class LabeledPool:
    """A set that was read, memory-mapped; with its groups if `write_groups` was called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = Rows(folder, _KINDS)
        path = folder / _SUMMARY
        summary = orjson.loads(path.read_bytes()) if path.exists() else {"set": None, "cells": {}}
        self.set = LabeledSet(**summary["set"]) if summary["set"] else None
        self._cells: dict[str, int] = summary["cells"]

    def texts(self, examples: Integers, fields: int) -> pa.Array:
        """Return the texts of some examples, all fields of one example before those of the next."""
        return self._rows.take_texts((examples[:, None] * fields + np.arange(fields)).ravel())

    def labels(self, fields: int) -> Integers:
        """Return the label of each example."""
        values: Integers = self._rows["label"][::fields].astype(np.int64)
        return values

    def row_numbers(self, examples: Integers, fields: int) -> Integers:
        """Return the row of each example in its files."""
        values: Integers = self._rows["row"][examples * fields]
        return values

    def cells(self) -> dict[str, Integers]:
        """Return the examples of each cell: {`split/group/label`: examples}."""
        ends = np.cumsum([*self._cells.values()])
        return dict(zip(self._cells, np.split(map_array(self._folder / _CELLS, np.int64), ends[:-1]), strict=True))


def write_groups(folder: Path, labeled: LabeledSet, cells: dict[str, Integers]) -> None:
    """Write the cells that tasks are drawn from, and a summary of the set."""
    write_bytes(folder / _CELLS, np.concatenate([*cells.values()]).astype(np.int64).tobytes())
    summary = {"set": asdict(labeled), "cells": {name: len(examples) for name, examples in cells.items()}}
    write_bytes(folder / _SUMMARY, orjson.dumps(summary))
