"""The log of a training run: JSON lines that can be truncated to a checkpoint, converted to Parquet at the end."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import orjson
import pyarrow as pa

from storage.tables.training_tables import HELD_OUT, KINDS, TRAINING_STEPS

STEPS, VALIDATION = "steps.jsonl", "validation.jsonl"


class TrainingLog:
    """Two files of JSON lines in a folder; without a folder (on all ranks but the first) nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self._files: dict[str, IO[bytes]] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._files = {name: (folder / name).open("ab") for name in (STEPS, VALIDATION)}

    def step(self, record: dict[str, float]) -> None:
        """Log a training step."""
        self._write(STEPS, record)

    def validated(self, step: int, loss: float, kinds: list[dict[str, Any]], *, best: bool) -> None:
        """Log a validation after `step` steps, with its scores by kind (`model.meta.held_out.KindScores`)."""
        self._write(VALIDATION, {"step": step, "held_out_loss": loss, "best": best, "kinds": kinds})

    def _write(self, name: str, record: dict[str, Any]) -> None:
        if name in self._files:
            self._files[name].write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def position(self) -> dict[str, int]:
        """Flush the files, and return the bytes written so far, to be stored in a checkpoint."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._files.items()}

    def reaches(self, position: dict[str, int]) -> bool:
        """True if the files are at least as long as they were at a checkpoint."""
        return all(file.seek(0, os.SEEK_END) >= position[name] for name, file in self._files.items())

    def cut(self, position: dict[str, int]) -> None:
        """Delete everything after a checkpoint, because these steps will run again."""
        for name, file in self._files.items():
            file.flush()
            file.truncate(position[name])
            file.seek(0, os.SEEK_END)

    def restart(self) -> None:
        """Delete everything."""
        self.cut(dict.fromkeys(self._files, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of the log."""
    with path.open("rb") as lines:
        for line in lines:
            record: dict[str, Any] = orjson.loads(line)
            yield record


def step_table(path: Path, variant: str) -> pa.Table:
    """Return the steps as a table; the columns are the same for all variants, with nulls for values not measured."""
    return _table(path, variant, TRAINING_STEPS)


def validation_table(path: Path, variant: str) -> pa.Table:
    """Return the validations as a table."""
    return _table(path, variant, HELD_OUT)


def kind_table(path: Path, variant: str) -> pa.Table:
    """Return the scores of held-out tasks by kind as a table, with a row for each validation and kind."""
    records = [
        {"variant": variant, "step": validation["step"]} | kind
        for validation in read_log(path)
        for kind in validation["kinds"]
    ]
    return pa.Table.from_pylist(records, KINDS)


def best_kinds(path: Path) -> list[dict[str, Any]]:
    """Return the scores by kind of the validation with the lowest loss after the start."""
    validations = [validation for validation in read_log(path) if validation["step"] > 0]
    kinds: list[dict[str, Any]] = min(validations, key=lambda validation: validation["held_out_loss"])["kinds"]
    return kinds


def _table(path: Path, variant: str, schema: pa.Schema) -> pa.Table:
    records = [{"variant": variant} | record for record in read_log(path)]
    columns = [pa.array([record.get(field.name) for record in records], field.type) for field in schema]
    return pa.table(columns, schema=schema)
