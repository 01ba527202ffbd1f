"""Links to local sources: `inputs/ROLE/NAME/<file>`, one for each file, so that DVC sees what `path:` sources hold."""

import os
from collections.abc import Iterator
from pathlib import Path

from storage.errors import InputError
from storage.sources import Kind, NamedSource, WantedSources, named_sources, select

INPUTS = "inputs"


def sync_links(root: Path, acquire: WantedSources) -> None:
    """Make the links under `root`/inputs those of the local sources, no more and no fewer; quick if they are."""
    wanted: dict[str, str] = {}
    for source in named_sources(acquire):
        if source.spec.kind is Kind.PATH:
            wanted |= {f"{source.links}/{name}": target for name, target in local_files(root, source).items()}
    present = {f"{INPUTS}/{name}": path for name, path in _links(str(root / INPUTS))}
    for name, path in present.items():
        if name not in wanted:
            Path(path).unlink(missing_ok=True)
    if present.keys() - wanted.keys():
        _drop_empty_folders(root / INPUTS)
    for name, target in wanted.items():
        if name not in present or os.readlink(present[name]) != target:  # noqa: PTH115 - a Path each is slow
            _link(root / name, target)


def missing_sources(root: Path, acquire: WantedSources) -> list[NamedSource]:
    """The `path:` sources that are not there."""
    local = [source for source in named_sources(acquire) if source.spec.kind is Kind.PATH]
    return [source for source in local if not (root / Path(source.spec.location).expanduser()).exists()]


def local_files(root: Path, source: NamedSource) -> dict[str, str]:
    """The files of a `path:` source in order, {name within the source: absolute path}; hidden files do not count."""
    base = os.path.abspath(root / Path(source.spec.location).expanduser())  # noqa: PTH100 - links in it stay as they are
    if not Path(base).exists():
        raise InputError(
            f"{source.parameter}: {base}: no such file or folder: give one that is there, "
            f"-S {source.parameter}=path:/folder/or/file"
        )
    _check_apart(root, source, base)
    try:
        if Path(base).is_file():
            return _single_file(source, base)
        found = dict(_regular_files(base, "", (), source.parameter))
    except PermissionError as error:
        raise InputError(f"{source.parameter}: {error.filename}: may not be read: change its permissions") from error
    if not found:
        raise InputError(f"{source.parameter}: {base}: holds no files: give a folder with files in it")
    chosen = sorted(select(found, source.spec.patterns, f"{source.parameter}: {base}"))
    return _usable(source, {name: found[name] for name in chosen})


def _single_file(source: NamedSource, base: str) -> dict[str, str]:
    if source.spec.patterns:
        raise InputError(f"{source.parameter}: {base}: is a file: path= chooses from a folder, leave it out")
    return _usable(source, {Path(base).name: base})


def _usable(source: NamedSource, files: dict[str, str]) -> dict[str, str]:
    """The files, if each may be read and has a name that a manifest can hold."""
    for name, path in files.items():
        if not os.access(path, os.R_OK):
            raise InputError(f"{source.parameter}: {path}: may not be read: change its permissions")
        if not name.isascii() and name.encode(errors="replace") != name.encode(errors="surrogateescape"):
            raise InputError(f"{source.parameter}: {name!r}: its name is not UTF-8: rename it")
    return files


def _check_apart(root: Path, source: NamedSource, base: str) -> None:
    """A source that holds the links, or lies among them, would be made of its own links."""
    inputs, real = (root / INPUTS).resolve(), Path(base).resolve()
    if inputs.is_relative_to(real) or real.is_relative_to(inputs):
        raise InputError(f"{source.parameter}: {base}: overlaps with {inputs}: keep the files in a folder of their own")


def _regular_files(folder: str, prefix: str, above: tuple[str, ...], parameter: str) -> Iterator[tuple[str, str]]:
    """Every visible file at any depth, links followed; a link that leads nowhere or to a folder above is refused."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_file():
                yield prefix + entry.name, entry.path
            elif entry.is_dir():
                real = os.path.realpath(entry.path)
                if real in above:
                    raise InputError(f"{parameter}: {entry.path}: links to a folder above itself: remove the link")
                yield from _regular_files(entry.path, f"{prefix}{entry.name}/", (*above, real), parameter)
            elif entry.is_symlink():
                raise InputError(f"{parameter}: {entry.path}: a link that leads nowhere: mend or remove it")


def _links(folder: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every link under a folder, by its name relative to it."""
    if not Path(folder).is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield prefix + entry.name, entry.path
            elif entry.is_dir():
                yield from _links(entry.path, f"{prefix}{entry.name}/")


def _drop_empty_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        if Path(path) != folder and not any(Path(path).iterdir()):
            Path(path).rmdir()


def _link(path: Path, target: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.symlink_to(target)
    except (FileExistsError, NotADirectoryError) as error:
        if path.is_symlink() and path.readlink() == Path(target):
            return  # another command made it meanwhile
        raise InputError(f"{path}: in the way of a link to {target}: move it, links alone belong there") from error
