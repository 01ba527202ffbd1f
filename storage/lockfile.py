"""Reading of dvc.yaml, dvc.lock and the directory objects in DVC's cache, without importing DVC."""

import configparser
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from storage.dvcignore import Ignored
from storage.errors import InputError

DIRECTORY_SUFFIX = ".dir"
LOCAL_STAGE = "local"  # a `foreach` over the local sources; `local@corpus-mine` lists the files of one of them
REMOTE_STAGE = "remote"  # the same for sources that are URLs
LISTING_STAGES = (LOCAL_STAGE, REMOTE_STAGE)
CODE_FOLDERS = frozenset({"flows", "model", "storage", "supmer", "tasks"})


def is_code(path: str) -> bool:
    """True if a dependency in dvc.yaml, a file or a folder, is code of the pipeline rather than data."""
    return path.endswith(".py") or PurePosixPath(path).parts[:1] in {(folder,) for folder in CODE_FOLDERS}


@dataclass(frozen=True)
class LockedPath:
    """One dependency or output as dvc.lock records it; a directory's md5 ends in `.dir`."""

    path: str
    md5: str | None
    bytes: int | None
    files: int | None

    @property
    def is_directory(self) -> bool:
        """True if the md5 is that of a directory object."""
        return (self.md5 or "").endswith(DIRECTORY_SUFFIX)


@dataclass(frozen=True)
class DeclaredStage:
    """A stage of dvc.yaml: its description, its data (`outputs`), and its metrics and plots (`reports`).

    `uncached` are the outputs declared with `cache: false`, which DVC does not keep in its cache.
    """

    name: str
    description: str
    outputs: tuple[str, ...]
    reports: tuple[str, ...]
    uncached: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LockedStage:
    """A stage as dvc.lock records its last run."""

    name: str
    inputs: tuple[LockedPath, ...]
    outputs: tuple[LockedPath, ...]
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Pipeline:
    """dvc.yaml and dvc.lock of one workspace."""

    root: Path
    declared: dict[str, DeclaredStage]
    locked: dict[str, LockedStage]

    def outputs(self) -> dict[str, str]:
        """Return the data outputs, each with the stage that makes it, in the order of dvc.yaml."""
        makers = {path: stage.name for stage in self.declared.values() for path in stage.outputs}
        reports = {path for stage in self.declared.values() for path in stage.reports}
        for stage in self.current():
            for output in stage.outputs:
                if output.path not in reports:
                    makers.setdefault(output.path, stage.name)
        return makers

    def artifacts(self) -> dict[str, str]:
        """Return all outputs, including metrics and plots, each with the stage that makes it."""
        reports = {path: stage.name for stage in self.declared.values() for path in stage.reports}
        return self.outputs() | reports

    def current(self) -> list[LockedStage]:
        """Return the locked stages that are still in dvc.yaml."""
        return [stage for stage in self.locked.values() if self.declaration(stage.name)]

    def declaration(self, name: str) -> DeclaredStage | None:
        """Return the declaration of a stage; `tune@sst2` is declared by that name or by a `foreach` named `tune`."""
        return self.declared.get(name) or self.declared.get(name.partition("@")[0])

    def uncached(self) -> set[str]:
        """Return the outputs that DVC does not keep in its cache."""
        return {path for stage in self.declared.values() for path in stage.uncached}

    def locked_output(self, path: str) -> LockedPath | None:
        """Return the entry of an output in dvc.lock, or None if it has none."""
        for stage in self.current():
            for output in stage.outputs:
                if output.path == path:
                    return output
        return None


def read_pipeline(root: Path) -> Pipeline:
    """Read dvc.yaml and, if it exists, dvc.lock."""
    content = _read_yaml(root / "dvc.yaml")
    declared = _mapping(content, "stages", root / "dvc.yaml")
    locked = _mapping(_read_yaml(root / "dvc.lock"), "stages", root / "dvc.lock")
    variables = [_read_yaml(root / name) for name in content.get("vars") or () if isinstance(name, str)]
    expanded = [entry for name, stage in declared.items() for entry in _expanded(name, stage, variables)]
    return Pipeline(
        root,
        {name: _declared_stage(name, stage) for name, stage in expanded},
        {name: _locked_stage(name, stage) for name, stage in locked.items()},
    )


def with_lock_file(pipeline: Pipeline, content: bytes) -> Pipeline:
    """Return the pipeline with the stages of another version of dvc.lock."""
    from ruamel.yaml import YAML

    locked = _mapping(YAML(typ="safe").load(content) or {}, "stages", pipeline.root / "dvc.lock")
    return replace(pipeline, locked={name: _locked_stage(name, stage) for name, stage in locked.items()})


def _expanded(
    name: str, stage: Mapping[str, Any], variables: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a stage, or, for a `foreach` over a mapping in a file of `vars`, one stage for each key."""
    if not isinstance(stage.get("foreach"), str):
        yield name, dict(stage)
        return
    key = stage["foreach"].removeprefix("${").removesuffix("}")
    mapping: dict[str, Any] = next((content[key] for content in variables if isinstance(content.get(key), dict)), {})
    for item in mapping:
        body = json.loads(json.dumps(stage["do"]).replace("${key}", str(item)))
        yield f"{name}@{item}", body


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe").load(path.read_bytes())
    except (YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path.name}:{mark.line + 1}" if mark else path.name
        raise InputError(f"{where}: not valid YAML: correct it, or restore it from git") from error
    if content is not None and not isinstance(content, dict):
        raise InputError(f"{path.name}: a mapping is expected, found {type(content).__name__}: restore it from git")
    return content or {}


def _mapping(content: Mapping[str, Any], key: str, path: Path) -> dict[str, dict[str, Any]]:
    entries = content.get(key) or {}
    if not isinstance(entries, dict) or not all(isinstance(value, dict) for value in entries.values()):
        raise InputError(f"{path.name}: `{key}` must map each stage to its entries: restore it from git")
    return entries


def _declared_stage(name: str, stage: Mapping[str, Any]) -> DeclaredStage:
    def paths(key: str) -> tuple[str, ...]:
        entries = (next(iter(entry)) if isinstance(entry, dict) else str(entry) for entry in stage.get(key) or ())
        return tuple(entry.rstrip("/") for entry in entries if "${" not in entry)

    uncached = {
        path.rstrip("/")
        for key in ("outs", "metrics", "plots")
        for entry in stage.get(key) or ()
        if isinstance(entry, dict)
        for path, options in entry.items()
        if isinstance(options, dict) and options.get("cache") is False
    }
    reports = paths("metrics") + paths("plots")
    return DeclaredStage(name, str(stage.get("desc") or ""), paths("outs"), reports, frozenset(uncached))


def _locked_stage(name: str, stage: Mapping[str, Any]) -> LockedStage:
    def paths(key: str) -> tuple[LockedPath, ...]:
        entries = stage.get(key) or ()
        if not isinstance(entries, list | tuple):
            raise _cut_short(name)
        for entry in entries:
            whole = isinstance(entry, dict) and isinstance(entry.get("path"), str)
            if not whole or not isinstance(entry.get("md5", ""), str):  # a hash cut to its first digits is a number
                raise _cut_short(name)
        return tuple(
            # An entry without `hash: md5` is from DVC 2, which converted line endings before it computed the md5.
            LockedPath(
                entry["path"],
                entry.get("md5") if entry.get("hash") == "md5" else None,
                entry.get("size"),
                entry.get("nfiles"),
            )
            for entry in entries
        )

    return LockedStage(name, paths("deps"), paths("outs"), _locked_parameters(name, stage.get("params") or {}))


def _locked_parameters(stage: str, files: Any) -> dict[str, Any]:
    """Return the parameters of all files together; raise InputError if they are no mappings."""
    if not isinstance(files, dict) or not all(isinstance(file, dict) for file in files.values()):
        raise _cut_short(stage)
    return {key: value for file in files.values() for key, value in file.items()}


def _cut_short(stage: str) -> InputError:
    remedy = "restore it from git, or delete it; `supmer run` then restores what DVC's cache holds"
    return InputError(f"dvc.lock: its entry of {stage} is damaged or cut short: {remedy}")


def flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested parameters as a flat dictionary with dotted keys."""
    values: dict[str, Any] = {}
    for key, value in parameters.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values


def cache_folder(root: Path) -> Path:
    """Return the folder of DVC's cached objects, following `cache.dir` in the workspace's DVC configuration."""
    folder = root / ".dvc" / "cache"
    for name in ("config", "config.local"):
        config = configparser.ConfigParser(interpolation=None, strict=False)
        config.read(root / ".dvc" / name, encoding="utf-8")
        chosen = config.get("cache", "dir", fallback="").strip("\"'")
        if chosen:
            folder = (root / ".dvc" / chosen).resolve()
    return folder / "files" / "md5"


def object_path(cache: Path, md5: str) -> Path:
    """Return the path of the object with this md5 in DVC's cache."""
    return cache / md5[:2] / md5[2:]


def directory_object(cache: Path, md5: str) -> dict[str, str] | None:
    """Return the md5 of each file of a directory by relative path, or None if the cache does not hold the object.

    Raises:
        ValueError: if the object is in the cache but damaged.
    """
    try:
        content = object_path(cache, md5).read_bytes()
    except FileNotFoundError:
        return None
    if file_md5(object_path(cache, md5)) + DIRECTORY_SUFFIX != md5:
        raise ValueError(f"{md5}: content does not match its name")
    return {entry["relpath"]: entry["md5"] for entry in json.loads(content)}


def directory_md5(files: Mapping[str, str]) -> str:
    """Return the hash that DVC gives a directory: the md5 of its listing as JSON, sorted by path."""
    listing = [{"md5": files[path], "relpath": path} for path in sorted(files)]
    return hashlib.md5(json.dumps(listing).encode(), usedforsecurity=False).hexdigest() + DIRECTORY_SUFFIX


def file_md5(path: Path) -> str:
    """Return the md5 of a file's bytes, which DVC uses as content address; it is no protection against tampering."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def files_below(root: Path, folder: Path) -> dict[str, Path]:
    """Return the files of a directory by relative path, without those that .dvcignore excludes."""
    ignored = Ignored(root)
    return {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if (path.is_file() or path.is_symlink()) and not ignored(path.relative_to(root).as_posix())
    }
