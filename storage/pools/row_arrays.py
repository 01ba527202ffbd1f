"""Numbered rows on disk as memory-mapped arrays: a worker can read any row without loading the others."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_TEXTS = "texts.utf8"
_ENDS = "texts.ends"


def map_array(path: Path, kind: npt.DTypeLike) -> Array:
    """Return a file of numbers as a memory-mapped array; an empty file gives an empty array."""
    if path.stat().st_size == 0:
        return np.empty(0, kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))  # a plain array, because indexing a memmap is slow


class RowWriter:
    """Writes rows batch by batch: each has a text and some numbers; `kinds` maps columns of numbers to their types."""

    def __init__(self, folder: Path, kinds: Mapping[str, npt.DTypeLike]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows = 0
        self._bytes = 0
        self._kinds = dict(kinds)
        self._files = {name: (folder / name).open("wb") for name in (*kinds, _TEXTS, _ENDS)}
        self._files[_ENDS].write(np.zeros(1, np.int64).tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def append(self, texts: pa.Array, columns: Mapping[str, Array]) -> None:
        """Append a batch: texts without nulls, and one number for each text in every column."""
        texts = texts.cast(pa.large_string())
        _, offsets, content = texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        if content is not None:
            self._files[_TEXTS].write(memoryview(content)[ends[0] : ends[-1]])
        self._files[_ENDS].write((ends[1:] - ends[0] + self._bytes).tobytes())
        for name, kind in self._kinds.items():
            assert len(columns[name]) == len(texts), name
            self._files[name].write(np.ascontiguousarray(columns[name], kind).tobytes())
        self._bytes += int(ends[-1] - ends[0])
        self.rows += len(texts)


class Rows:
    """Rows written by a `RowWriter`: `texts`, and the columns of numbers by name."""

    def __init__(self, folder: Path, kinds: Mapping[str, npt.DTypeLike]) -> None:
        ends = pa.memory_map(str(folder / _ENDS)).read_buffer()
        path = folder / _TEXTS
        content = pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")
        self.texts = pa.LargeStringArray.from_buffers(ends.size // 8 - 1, ends, content)
        self._columns = {name: map_array(folder / name, kind) for name, kind in kinds.items()}

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, column: str) -> Array:
        return self._columns[column]

    def take_texts(self, rows: Integers) -> pa.Array:
        """Return the texts of the given rows, in that order."""
        return self.texts.take(pa.array(rows)).cast(pa.string())
