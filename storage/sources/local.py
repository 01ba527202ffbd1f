"""Local sources: the files of each `path:` source."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from storage.dvcignore import IGNORE_FILE, Ignored
from storage.errors import InputError
from storage.sources.listing import LISTINGS, local_sources
from storage.sources.source import NamedSource, WantedSources, expanded, select

_NOT_LOOKED_INTO = {".git", ".hg"}  # DVC ignores them
_OUTSIDE = "_"  # replaces the path of a folder outside the workspace when patterns of .dvcignore are matched


def all_files(root: Path, source: NamedSource) -> dict[str, str]:
    """Return all files of a source, ignoring its patterns: {name within the source: absolute path}."""
    return local_files(root, replace(source, spec=replace(source.spec, patterns=())))


def missing_sources(root: Path, acquire: WantedSources) -> list[NamedSource]:
    """Return the `path:` sources that do not exist."""
    return [source for source in local_sources(acquire).values() if not local_path(root, source).exists()]


def local_path(root: Path, source: NamedSource) -> Path:
    """Return the absolute path of a `path:` source, without resolving links."""
    return Path(os.path.abspath(root / expanded(source.spec.location)))  # noqa: PTH100 - Path.absolute keeps `..`


def in_words(root: Path, source: NamedSource) -> str:
    """Return a description of a local source for messages: `acquire.corpus.mine (/data/texts)`."""
    return f"{source.parameter} ({local_path(root, source)})"


def written_folder(root: Path, source: NamedSource) -> str:
    """Return the folder of a local source's files as written in params.yaml, which is the same on every machine."""
    location = PurePosixPath(source.spec.location)
    return str(location.parent if local_path(root, source).is_file() else location)


def local_files(root: Path, source: NamedSource) -> dict[str, str]:
    """Return the files of a `path:` source without hidden ones, sorted: {name within the source: absolute path}."""
    base = local_path(root, source)
    if not base.is_dir() and not base.is_file():
        raise InputError(
            f"{source.parameter}: {base}: no such file or folder: give one that exists, "
            f"-S {source.parameter}=path:/folder/or/file"
        )
    _check_apart(root, source, base)
    inside = base.is_relative_to(root)
    listing = _Found(source.parameter, Ignored(root), base.relative_to(root).as_posix() if inside else _OUTSIDE)
    try:
        if base.is_file():
            if source.spec.patterns:
                raise InputError(f"{source.parameter}: {base}: is a file: path= chooses from a folder, leave it out")
            listing.check(base.name, str(base))
            return {base.name: str(base)}
        listing.walk(str(base))
    except PermissionError as error:
        raise InputError(f"{source.parameter}: {error.filename}: may not be read: change its permissions") from error
    if not listing.files:
        raise InputError(
            f"{source.parameter}: {base}: holds no files{listing.left_out()}: give a folder with files in it"
        )
    chosen = sorted(select(listing.files, source.spec.patterns, f"{source.parameter}: {base}"))
    return {name: listing.files[name] for name in chosen}


@dataclass
class _Found:
    """The files found in a folder; raises InputError for entries that DVC cannot hash or would skip.

    `place` is the folder relative to the workspace, or `_OUTSIDE`. DVC applies .dvcignore only within the workspace:
    files elsewhere that match it are excluded here, but DVC must still be able to hash them.
    """

    parameter: str
    ignored: Ignored
    place: str
    files: dict[str, str] = field(default_factory=dict)
    hidden: int = 0
    excluded: int = 0

    def walk(self, folder: str, prefix: str = "", *, hidden: bool = False, excluded: bool = False) -> None:
        """Add every file at any depth; hidden files are only counted, and checked because DVC hashes them."""
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
        """Raise InputError if a file cannot be read, or if its name is not UTF-8, as a manifest requires."""
        if not Path(path).is_file():
            if Path(path).is_symlink():
                raise self._refused(path, "a link whose target does not exist: correct or remove it")
            raise self._refused(path, "neither a file nor a folder: remove it")
        if not os.access(path, os.R_OK):
            raise self._refused(path, "may not be read: change its permissions")
        if not name.isascii() and name.encode(errors="replace") != name.encode(errors="surrogateescape"):
            raise self._refused(repr(name), "its name is not UTF-8: rename it")

    def left_out(self) -> str:
        """Return a note on hidden and excluded files for an error message, or "" if there are none."""
        kinds = ((self.hidden, "hidden"), (self.excluded, f"named in {IGNORE_FILE}"))
        counted = [f"{count} {kind}" for count, kind in kinds if count]
        return f" that count ({', '.join(counted)})" if counted else ""

    def _refused(self, path: str, reason: str) -> InputError:
        return InputError(f"{self.parameter}: {path}: {reason}")


def _check_apart(root: Path, source: NamedSource, base: Path) -> None:
    """Raise InputError if a source overlaps with the listings, or if .dvcignore hides it from DVC."""
    listings, real = (root / LISTINGS).resolve(), base.resolve()
    if listings.is_relative_to(real) or real.is_relative_to(listings):
        raise InputError(
            f"{source.parameter}: {base}: overlaps with {listings}: keep the files in a folder of their own"
        )
    if base.is_relative_to(root) and Ignored(root)(f"{base.relative_to(root).as_posix()}{'/' * base.is_dir()}"):
        raise InputError(f"{source.parameter}: {base}: {IGNORE_FILE} hides it from DVC: keep the files elsewhere")
