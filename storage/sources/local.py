"""Local sources: the files of each `path:` source, and the listing of them that `acquire` depends on.

The stage `local` writes a listing for each local source, `inputs/KEY.json`: names, sizes and hashes. Nothing is copied.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import orjson

from storage.atomic import write_bytes
from storage.dvcignore import IGNORE_FILE, Ignored
from storage.errors import InputError
from storage.sources.source import Kind, NamedSource, WantedSources, expanded, named_sources, select

LISTINGS = "inputs"

_NOT_LOOKED_INTO = {".git", ".hg"}  # DVC does not
_OUTSIDE = "_"  # stands for a folder outside the workspace where patterns of .dvcignore are matched


@dataclass(frozen=True)
class ListedFile:
    """A file of a local source; `name` is relative to the source."""

    name: str
    bytes: int
    sha256: str


def local_sources(acquire: WantedSources) -> dict[str, NamedSource]:
    """Return the `path:` sources by key, in the order of their parameters: `{"corpus-mine": …}`."""
    return {key_of(source): source for source in named_sources(acquire) if source.spec.kind is Kind.PATH}


def key_of(source: NamedSource) -> str:
    """Return the name of a source in dvc.yaml: `backbone`, `corpus-mine`."""
    return source.parameter.removeprefix("acquire.").replace(".", "-", 1)


def parameter_of(key: str) -> str:
    """Return the parameter behind a key: `corpus-mine` stands for `acquire.corpus.mine`."""
    return f"acquire.{key.replace('-', '.', 1)}"


def listing_path(key: str) -> str:
    """Return where the listing of a local source lies, relative to the workspace."""
    return f"{LISTINGS}/{key}.json"


def write_listing(path: Path, files: Iterable[ListedFile]) -> None:
    """Write the listing of a source; equal files give equal bytes, wherever the source lies."""
    listed = [{"name": file.name, "bytes": file.bytes, "sha256": file.sha256} for file in files]
    write_bytes(path, orjson.dumps({"files": listed}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_listing(root: Path, source: NamedSource) -> list[ListedFile]:
    """Return the files of a source that its `path=` patterns choose, as they were when they were listed."""
    path = root / listing_path(key_of(source))
    try:
        files = {file["name"]: ListedFile(**file) for file in orjson.loads(path.read_bytes())["files"]}
    except FileNotFoundError:
        raise InputError(f"{path}: not there: run `supmer run acquire`") from None
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a listing of files ({error}): delete it, then `supmer run`") from error
    chosen = select(files, source.spec.patterns, f"{source.parameter}: {local_path(root, source)}")
    return [files[name] for name in sorted(chosen)]


def all_files(root: Path, source: NamedSource) -> dict[str, str]:
    """Return every file of a source, whatever its patterns choose: {name within the source: absolute path}."""
    return local_files(root, replace(source, spec=replace(source.spec, patterns=())))


def missing_sources(root: Path, acquire: WantedSources) -> list[NamedSource]:
    """Return the `path:` sources that are not there."""
    return [source for source in local_sources(acquire).values() if not local_path(root, source).exists()]


def local_path(root: Path, source: NamedSource) -> Path:
    """Return where a `path:` source lies; links on the way stay as they are."""
    return Path(os.path.abspath(root / expanded(source.spec.location)))  # noqa: PTH100 - Path.absolute keeps `..`


def in_words(root: Path, source: NamedSource) -> str:
    """Return a local source for a person: `acquire.corpus.mine (/data/texts)`."""
    return f"{source.parameter} ({local_path(root, source)})"


def written_folder(root: Path, source: NamedSource) -> str:
    """Return the folder of a local source's files, as params.yaml has it: the same text on every machine."""
    location = PurePosixPath(source.spec.location)
    return str(location.parent if local_path(root, source).is_file() else location)


def local_files(root: Path, source: NamedSource) -> dict[str, str]:
    """Return the files of a `path:` source in order, {name within the source: absolute path}, without hidden ones."""
    base = local_path(root, source)
    if not base.is_dir() and not base.is_file():
        raise InputError(
            f"{source.parameter}: {base}: no such file or folder: give one that is there, "
            f"-S {source.parameter}=path:/folder/or/file"
        )
    _check_apart(root, source, base)
    inside = base.is_relative_to(root)
    found = _Found(source.parameter, Ignored(root), base.relative_to(root).as_posix() if inside else _OUTSIDE)
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
    """The files of a folder; what DVC could not hash, or would not look at, is refused by name.

    `place` is the folder relative to the workspace, or `_OUTSIDE`. DVC heeds .dvcignore within the workspace alone:
    what it names elsewhere does not count, but must be something that DVC can hash.
    """

    parameter: str
    ignored: Ignored
    place: str
    files: dict[str, str] = field(default_factory=dict)
    hidden: int = 0
    excluded: int = 0

    def walk(self, folder: str, prefix: str = "", *, hidden: bool = False, excluded: bool = False) -> None:
        """Take in every file at any depth; hidden ones are checked, because DVC hashes them, and counted."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name not in _NOT_LOOKED_INTO:
                    is_hidden = hidden or entry.name.startswith(".")
                    self._take(entry, prefix + entry.name, hidden=is_hidden, excluded=excluded)

    def _take(self, entry: os.DirEntry[str], name: str, *, hidden: bool, excluded: bool) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name == ".dvc" and is_folder:
            where = str(Path(entry.path).parent)
            raise self._refused(where, "a DVC workspace of its own, which DVC does not look into: copy the files out")
        if entry.name == IGNORE_FILE:
            raise self._refused(entry.path, "DVC does not allow it in an input: remove it, or use path=")
        if not excluded and self.ignored(f"{self.place}/{name}{'/' * is_folder}"):
            self.excluded += 1
            excluded = True
            if self.place != _OUTSIDE:
                return
        if is_folder:
            self.walk(entry.path, f"{name}/", hidden=hidden, excluded=excluded)
        elif entry.is_symlink() and Path(entry.path).is_dir():
            if not hidden and not excluded:
                remedy = "give that folder as a source of its own"
                raise self._refused(entry.path, f"a link to a folder, which DVC does not follow: {remedy}")
        else:
            self.check(name, entry.path)
            if excluded:
                return
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
    """Refuse a source that overlaps with the listings, or that .dvcignore hides from DVC."""
    listings, real = (root / LISTINGS).resolve(), base.resolve()
    if listings.is_relative_to(real) or real.is_relative_to(listings):
        raise InputError(
            f"{source.parameter}: {base}: overlaps with {listings}: keep the files in a folder of their own"
        )
    if base.is_relative_to(root) and Ignored(root)(f"{base.relative_to(root).as_posix()}{'/' * base.is_dir()}"):
        raise InputError(f"{source.parameter}: {base}: {IGNORE_FILE} hides it from DVC: keep the files elsewhere")
