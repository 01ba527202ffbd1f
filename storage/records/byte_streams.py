"""Streams of the decompressed bytes of a file; damage and missing permission become an InputError."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from storage.errors import InputError, first_line
from storage.unpacking import most_unpacked

BUFFER_BYTES = 1 << 20

Counted = Callable[[int], None]
"""Takes the number of bytes of the file, as they lie on disk, that were read so far."""


@contextmanager
def opened(path: Path, compression: str | None, counted: Counted | None = None) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed. Raise InputError if it is damaged or cannot be read."""
    try:
        with path.open("rb", buffering=BUFFER_BYTES if counted is None else 0) as file:
            plain: IO[bytes] = file
            if counted is not None:
                plain = io.BufferedReader(_CountingFile(file, counted), BUFFER_BYTES)
            if compression is None:
                yield plain
            else:
                source = path if counted is None else plain
                unpacked = pa.input_stream(source, compression=compression)
                yield io.BufferedReader(_LimitedFile(unpacked, path), BUFFER_BYTES)
    except OSError as error:
        if error.errno is None:  # raised by the decompressor
            reason = first_line(error).rstrip(".")
            raise InputError(f"{path}: damaged or cut short ({reason}): replace or remove it") from error
        raise InputError(f"{path}: cannot be read ({error.strerror}): check the file and its rights") from error


class _LimitedFile(io.RawIOBase):
    """A decompressed file; it raises InputError where its content expands further than any text does."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path, self._bytes = file, path, 0
        self._packed = path.stat().st_size
        self._most = most_unpacked(self._packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._file.readinto(buffer))
        self._bytes += count
        if self._bytes > self._most:
            raise InputError(
                f"{self._path}: refused: {self._packed:,} bytes that unpack to more than {self._most:,}: no text is "
                "compressed so far: replace it, or unpack it yourself"
            )
        return count


class _CountingFile(io.RawIOBase):
    """A file that reports the number of bytes read from it."""

    def __init__(self, file: IO[bytes], counted: Counted) -> None:
        self._file, self._counted, self._bytes = file, counted, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._bytes += count
        self._counted(self._bytes)
        return int(count)
