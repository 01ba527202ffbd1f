"""Units of reading: the corpus is cut by content alone, so that a new file leaves the units of other files unchanged.

Text files that share a unit are the exception: see `_grouped`.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.errors import InputError
from storage.records.formats import WHOLE, file_kind, is_ignored
from storage.records.parts import Part, cut
from storage.sources.source import AcquiredSource, SourceFile
from tasks.stage.contract import Record

_GROUP_FILES = 1024  # text files in a group, on average
_NAME_LENGTH = 96
_SHOWN = 3  # ignored files that are named
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Unit:
    """The input of one shard function: a part of a large file, or a group of text files.

    `number` counts the units of a file; `size` is in bytes on disk.
    """

    source: str
    parts: tuple[Part, ...]
    hashes: tuple[str, ...]
    number: int
    size: int

    @property
    def name(self) -> str:
        """The name of the unit's file; for a group, of its first file."""
        return self.parts[0].name

    def payload(self) -> Record:
        """Return everything that the unit's content depends on."""
        parts = [
            {"name": part.name, "sha256": sha256, "start": part.start, "stop": part.stop}
            for part, sha256 in zip(self.parts, self.hashes, strict=True)
        ]
        return {"parts": parts}

    def hint(self) -> Record:
        """Return the present location of the unit."""
        return {"paths": [str(part.path) for part in self.parts]}


def parts_of(payload: Record) -> list[Part]:
    """Return the parts of a unit, from its payload and hint."""
    return [
        Part(Path(path), part["name"], part["start"], part["stop"])
        for part, path in zip(payload["parts"], payload["paths"], strict=True)
    ]


def cut_corpus(sources: Sequence[AcquiredSource], root: Path, size: int) -> list[Unit]:
    """Return all units of the corpus by source, file and position; text files come last in their source."""
    units: list[Unit] = []
    for source in sorted(sources, key=lambda source: source.name):
        files = sorted((file for file in source.files if not is_ignored(file.name)), key=lambda file: file.name)
        texts: list[SourceFile] = []
        others: list[SourceFile] = []
        for file in files:
            (texts if _format(source.name, file) in WHOLE else others).append(file)
        for file in others:
            units.extend(_cut_file(source.name, file, root, size))
        units.extend(_grouped(source.name, texts, root, size))
    return units


def ignored_in_words(sources: Sequence[AcquiredSource]) -> Iterator[str]:
    """Yield a line for each corpus with files that are not read."""
    for source in sources:
        names = sorted(file.name for file in source.files if is_ignored(file.name))
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            yield f"{source.name}: not read, as they describe the data: {', '.join(names[:_SHOWN])}{more}"


def _format(source: str, file: SourceFile) -> str:
    return file_kind(file.name, f"acquire.corpus.{source}: {file.path}").format


def _cut_file(source: str, file: SourceFile, root: Path, size: int) -> Iterator[Unit]:
    path = _checked(file, root)
    parts = cut(path, file.name, size)
    for number, part in enumerate(parts):
        yield Unit(source, (part,), (file.sha256,), number, max(file.bytes // len(parts), 1))


def _grouped(source: str, files: Sequence[SourceFile], root: Path, size: int) -> Iterator[Unit]:
    """Yield text files in groups; a group ends at a file whose name's hash says so, or when it is full.

    A new file thus changes its own group and, if groups were full, those after it up to the next file that ends a group
    by its name.
    """
    group: list[SourceFile] = []
    filled = 0
    for place, file in enumerate(files):
        group.append(file)
        filled += file.bytes
        marked = int(hashlib.sha256(file.name.encode()).hexdigest()[:8], 16) % _GROUP_FILES == 0
        if marked or place == len(files) - 1 or filled >= size:
            parts = tuple(Part(_checked(other, root), other.name) for other in group)
            yield Unit(source, parts, tuple(other.sha256 for other in group), 0, filled)
            group, filled = [], 0


def _checked(file: SourceFile, root: Path) -> Path:
    """Return the path of a file; raise InputError unless it is still the file that was acquired."""
    path = root / file.path
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): check the file, or run acquire again") from error
    if size != file.bytes:
        raise InputError(f"{path}: {size} bytes where acquire found {file.bytes}: run acquire again")
    return path


def shard_name(source: str, file: str, number: int) -> str:
    """Return the name of a file's shard: readable, and different for different files."""
    readable = _UNSAFE.sub("-", f"{source}--{file.replace('/', '__')}")[:_NAME_LENGTH]
    apart = hashlib.sha256(f"{source}/{file}".encode()).hexdigest()[:8]
    return f"{readable}-{apart}-{number:05d}.parquet"
