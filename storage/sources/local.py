"""Local sources as DVC sees them: `inputs/01` and on, one link to the folder or file of each `path:` source.

The slots stand in dvc.yaml, because dependencies cannot be computed there. One that is not in use links to a file
that is always there: a link too, because `dvc exp run` cannot put a file back where a link to a folder stands.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

from storage.atomic import write_bytes
from storage.dvcignore import IGNORE_FILE, Ignored
from storage.errors import InputError
from storage.sources.source import Kind, NamedSource, WantedSources, expanded, named_sources, select

INPUTS = "inputs"
SLOTS = tuple(f"{INPUTS}/{number:02}" for number in range(1, 33))

UNUSED = f"{INPUTS}/unused"
UNUSED_TEXT = "A slot that links here stands for no source.\n"  # some text: DVC warns of every dependency that is empty

_NOT_LOOKED_INTO = {".git", ".hg"}  # DVC does not
_ANY_SLOT = f"{INPUTS}/_/"
_NOWHERE = PurePosixPath(UNUSED).name


def local_slots(acquire: WantedSources) -> dict[str, NamedSource]:
    """The slots in use, each with its source; sources come in the order of their parameters."""
    local = [source for source in named_sources(acquire) if source.spec.kind is Kind.PATH]
    if len(local) > len(SLOTS):
        raise InputError(
            f"params.yaml: acquire: {len(local)} local sources, and dvc.yaml has {len(SLOTS)} slots ({SLOTS[0]} to "
            f"{SLOTS[-1]}): put files of several sources into one folder"
        )
    return dict(zip(SLOTS, local, strict=False))


def slots_of(section: Mapping[str, Any] | None) -> dict[str, NamedSource]:
    """The slots that an `acquire` section, as YAML or dvc.lock has it, puts to use; none if it is not valid today."""
    try:
        return local_slots(cast("WantedSources", SimpleNamespace(**section))) if section else {}
    except (InputError, AttributeError, TypeError):
        return {}


def sync_links(root: Path, acquire: WantedSources) -> None:
    """Make the slots under `root`/inputs lead to the local sources, once all of these are found usable."""
    wanted = local_slots(acquire)
    for source in wanted.values():
        local_files(root, source)
    if not (root / UNUSED).exists():
        write_bytes(root / UNUSED, UNUSED_TEXT.encode())
    for slot in SLOTS:
        _link(root / slot, _target(wanted[slot]) if slot in wanted else _NOWHERE)


def missing_sources(root: Path, acquire: WantedSources) -> list[NamedSource]:
    """The `path:` sources that are not there."""
    local = [source for source in named_sources(acquire) if source.spec.kind is Kind.PATH]
    return [source for source in local if not local_path(root, source).exists()]


def local_path(root: Path, source: NamedSource) -> Path:
    """Where a `path:` source lies; links on the way stay as they are."""
    return Path(os.path.abspath(root / expanded(source.spec.location)))  # noqa: PTH100 - Path.absolute keeps `..`


def in_words(root: Path, source: NamedSource) -> str:
    """A local source for a person: `acquire.corpus.mine (/data/texts)`."""
    return f"{source.parameter} ({local_path(root, source)})"


def inputs_in_words(paths: Iterable[str], root: Path, used: dict[str, NamedSource]) -> list[str]:
    """Dependencies for a person: a slot by its source, a slot that is not in use not at all."""
    return [in_words(root, used[path]) if path in used else path for path in paths if path in used or path not in SLOTS]


def written_folder(root: Path, source: NamedSource) -> str:
    """The folder that holds a local source's files, as params.yaml has it: the same text on every machine."""
    location = PurePosixPath(source.spec.location)
    return str(location.parent if local_path(root, source).is_file() else location)


def local_files(root: Path, source: NamedSource) -> dict[str, str]:
    """The files of a `path:` source in order, {name within the source: absolute path}; hidden files do not count."""
    base = local_path(root, source)
    if not base.is_dir() and not base.is_file():
        raise InputError(
            f"{source.parameter}: {base}: no such file or folder: give one that is there, "
            f"-S {source.parameter}=path:/folder/or/file"
        )
    _check_apart(root, source, base)
    found = _Found(source.parameter, Ignored(root))
    try:
        if base.is_file():
            if source.spec.patterns:
                raise InputError(f"{source.parameter}: {base}: is a file: path= chooses from a folder, leave it out")
            found.check(base.name, str(base))
            return {base.name: str(base)}
        found.walk(str(base))
    except PermissionError as error:
        raise InputError(f"{source.parameter}: {error.filename}: may not be read: change its permissions") from error
    if not found.files:
        raise InputError(
            f"{source.parameter}: {base}: holds no files{found.left_out()}: give a folder with files in it"
        )
    chosen = sorted(select(found.files, source.spec.patterns, f"{source.parameter}: {base}"))
    return {name: found.files[name] for name in chosen}


@dataclass
class _Found:
    """The files of a folder; what DVC could not hash, or would not look at, is refused by name."""

    parameter: str
    ignored: Ignored
    files: dict[str, str] = field(default_factory=dict)
    hidden: int = 0
    excluded: int = 0

    def walk(self, folder: str, prefix: str = "", *, hidden: bool = False) -> None:
        """Take in every file at any depth; hidden ones are checked, because DVC hashes them, and counted."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name not in _NOT_LOOKED_INTO:
                    self._take(entry, prefix + entry.name, hidden=hidden or entry.name.startswith("."))

    def _take(self, entry: os.DirEntry[str], name: str, *, hidden: bool) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name == ".dvc" and is_folder:
            where = str(Path(entry.path).parent)
            raise self._refused(where, "a DVC workspace of its own, which DVC does not look into: copy the files out")
        if entry.name == IGNORE_FILE:
            raise self._refused(entry.path, "DVC does not allow it in an input: remove it, or use path=")
        if self.ignored(f"{_ANY_SLOT}{name}/" if is_folder else _ANY_SLOT + name):
            self.excluded += 1
        elif is_folder:
            self.walk(entry.path, f"{name}/", hidden=hidden)
        elif entry.is_symlink() and Path(entry.path).is_dir():
            if not hidden:
                remedy = "give that folder as a source of its own"
                raise self._refused(entry.path, f"a link to a folder, which DVC does not follow: {remedy}")
        else:
            self.check(name, entry.path)
            if hidden:
                self.hidden += 1
            else:
                self.files[name] = entry.path

    def check(self, name: str, path: str) -> None:
        """Refuse what cannot be read, or has a name that a manifest cannot hold."""
        if not Path(path).is_file():
            if Path(path).is_symlink():
                raise self._refused(path, "a link that leads nowhere: mend or remove it")
            raise self._refused(path, "neither a file nor a folder: remove it")
        if not os.access(path, os.R_OK):
            raise self._refused(path, "may not be read: change its permissions")
        if not name.isascii() and name.encode(errors="replace") != name.encode(errors="surrogateescape"):
            raise self._refused(repr(name), "its name is not UTF-8: rename it")

    def left_out(self) -> str:
        """What is there and does not count."""
        kinds = ((self.hidden, "hidden"), (self.excluded, f"named in {IGNORE_FILE}"))
        counted = [f"{count} {kind}" for count, kind in kinds if count]
        return f" that count ({', '.join(counted)})" if counted else ""

    def _refused(self, path: str, reason: str) -> InputError:
        return InputError(f"{self.parameter}: {path}: {reason}")


def _check_apart(root: Path, source: NamedSource, base: Path) -> None:
    """A source that holds the links, or lies among them, would be made of its own links."""
    inputs, real = (root / INPUTS).resolve(), base.resolve()
    if inputs.is_relative_to(real) or real.is_relative_to(inputs):
        raise InputError(f"{source.parameter}: {base}: overlaps with {inputs}: keep the files in a folder of their own")


def _target(source: NamedSource) -> str:
    """Where the link leads: relative if the parameter is, so that a workspace can be moved or cloned with its links."""
    location = os.path.normpath(expanded(source.spec.location))
    return location if Path(location).is_absolute() else f"../{location}"


def _link(slot: Path, target: str) -> None:
    """Turn a slot to its target, in one step: other commands may be doing the same."""
    if slot.is_symlink() and os.readlink(slot) == target:  # noqa: PTH115 - the text, not a path made of it
        return
    if slot.exists() and not slot.is_symlink() and not _was_link(slot):
        raise InputError(f"{slot}: in the way of a link to {target}: move it, links alone belong there")
    beside = slot.with_name(f".{slot.name}.partial-{uuid.uuid4().hex[:8]}")
    beside.symlink_to(target)
    beside.replace(slot)


def _was_link(slot: Path) -> bool:
    """Whether an archive was unpacked by a program that makes files of links, with their targets as text."""
    return slot.is_file() and slot.stat().st_size == len(_NOWHERE) and slot.read_text() == _NOWHERE
