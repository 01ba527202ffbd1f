"""Local and remote sources in dvc.yaml: `inputs.yaml` maps each to its path or URL, and each entry becomes a stage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from storage.atomic import remove, replacing_file
from storage.errors import InputError
from storage.lockfile import CODE_FOLDERS, LISTING_STAGES, LOCAL_STAGE, REMOTE_STAGE, read_pipeline
from storage.sources.listing import LISTINGS, listing_path, local_sources, parameter_of, remote_sources
from storage.sources.local import local_files, local_path
from storage.sources.objects import require_package
from storage.sources.source import NamedSource, WantedSources, expanded

MAPPING = "inputs.yaml"
HEADER = (
    "# The local and remote sources of params.yaml, for dvc.yaml. "
    "Written by supmer: change params.yaml, not this file.\n"
)

_OLD_SLOT = re.compile(r"[0-9]{2}|unused")
_OLD_TEXTS = {b"unused", b"A slot that links here stands for no source.\n"}  # links that an archive turned into files
_LONGEST = max(map(len, _OLD_TEXTS))


def is_listing(stage: str) -> bool:
    """Return True if a stage lists the files of a local or remote source."""
    return stage.startswith(tuple(f"{name}@" for name in LISTING_STAGES))


def source_in_words(root: Path, stage: str, path: str) -> str:
    """Return a description of the source that a stage lists: `acquire.corpus.mine (/data/texts)`."""
    name, _, key = stage.partition("@")
    place = path if name == REMOTE_STAGE else os.path.abspath(root / path)  # noqa: PTH100 - Path.absolute keeps `..`
    return f"{parameter_of(key)} ({place})"


def in_columns(stages: Iterable[str]) -> int:
    """Return the width of a column of stage names; the long names of listings may exceed it."""
    names = list(stages)
    return max((len(name) for name in names if not is_listing(name)), default=max(map(len, names), default=0))


def sync(root: Path, acquire: WantedSources) -> bool:
    """Write the local and remote sources to inputs.yaml; return True if it changed.

    Raise InputError, before anything is written, if a source cannot be used.
    """
    _remove_slots(root)
    before = _read_mapping(root)
    sources = check_sources(root, acquire)
    (root / LISTINGS).mkdir(exist_ok=True)
    mapping: dict[str, dict[str, str]] = {LOCAL_STAGE: {}, REMOTE_STAGE: {}}
    for key, source in sources.items():
        if source.spec.kind.is_remote:
            mapping[REMOTE_STAGE][key] = source.spec.location
        else:
            mapping[LOCAL_STAGE][key] = _written(source)
    if before != mapping:
        _write_mapping(root, mapping)
    for listing in (root / LISTINGS).glob("*.json"):
        if f"{LISTINGS}/{listing.name}" not in {listing_path(key) for key in sources}:
            remove(listing)
    return before != mapping


def check_sources(root: Path, acquire: WantedSources) -> dict[str, NamedSource]:
    """Return the local and remote sources by key; raise InputError if one cannot be used. No URL is opened."""
    sources = local_sources(acquire)
    outputs = read_pipeline(root).artifacts() if sources else {}
    for source in sources.values():
        local_files(root, source)
        _check_apart(root, source, outputs)
    remote = remote_sources(acquire)
    for source in remote.values():
        require_package(source.parameter, source.spec.kind)
    return sources | remote


def _written(source: NamedSource) -> str:
    """Return a source's path for dvc.yaml; a relative parameter stays relative, so that the workspace can be moved."""
    return os.path.normpath(expanded(source.spec.location))


def _read_mapping(root: Path) -> dict[str, dict[str, str]] | None:
    """Return the mapping in inputs.yaml; if the file has another form, remove it and return None."""
    path = root / MAPPING
    try:
        content = YAML(typ="safe").load(path.read_bytes())
    except (FileNotFoundError, UnicodeDecodeError, YAMLError):
        content = None
    mappings = content.values() if isinstance(content, dict) and set(content) == set(LISTING_STAGES) else [None]
    if all(isinstance(entries, dict) for entries in mappings):
        return {name: dict(content[name]) for name in LISTING_STAGES}
    remove(path)
    return None


def _write_mapping(root: Path, mapping: dict[str, dict[str, str]]) -> None:
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 1 << 16
    with replacing_file(root / MAPPING) as beside, beside.open("w", encoding="utf-8") as file:
        file.write(HEADER)
        yaml.dump(mapping, file)


def _check_apart(root: Path, source: NamedSource, outputs: dict[str, str]) -> None:
    """Raise InputError if a source overlaps with the outputs of stages or lies in a code folder."""
    real = local_path(root, source).resolve()
    for path, stage in outputs.items():
        output = (root / path).resolve()
        if not path.startswith(f"{LISTINGS}/") and (output.is_relative_to(real) or real.is_relative_to(output)):
            raise InputError(
                f"{source.parameter}: {real}: overlaps with {path}, which {stage} writes: copy the files elsewhere"
            )
    if any(real.is_relative_to(root / folder) for folder in CODE_FOLDERS):
        raise InputError(f"{source.parameter}: {real}: lies among the program's code: keep the files elsewhere")


def _remove_slots(root: Path) -> None:
    """Remove the numbered links of version 0.1, but not the files they point to."""
    slots = sorted(_old_slots(root))
    for slot in slots:
        slot.unlink()
    if slots:
        click.echo(
            f"{LISTINGS}/: numbered links of version 0.1 ({len(slots)}) are removed, the files they led to are not "
            f"touched; {MAPPING} lists local sources now",
            err=True,
        )


def _old_slots(root: Path) -> Iterator[Path]:
    for path in (root / LISTINGS).glob("*"):
        if _OLD_SLOT.fullmatch(path.name) and (path.is_symlink() or _was_link(path)):
            yield path


def _was_link(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _LONGEST and path.read_bytes() in _OLD_TEXTS
