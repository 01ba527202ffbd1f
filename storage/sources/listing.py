"""Listings of sources that change by themselves, on which `acquire` depends: `inputs/KEY.json`.

The stage `local` writes one for each `path:` source, with names, sizes and hashes. The stage `remote` writes one for
each URL, with names, sizes and the versions that the storage states (ETags). Neither copies or fetches a file.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from storage.atomic import write_bytes
from storage.errors import InputError
from storage.sources.source import Kind, NamedSource, WantedSources, named_sources, select

LISTINGS = "inputs"


@dataclass(frozen=True)
class ListedFile:
    """A file of a listed source; `name` is relative to the source. A local file has a hash, an object an ETag."""

    name: str
    bytes: int
    sha256: str = ""
    etag: str = ""


def local_sources(acquire: WantedSources) -> dict[str, NamedSource]:
    """Return the `path:` sources by key, in the order of their parameters: `{"corpus-mine": …}`."""
    return {key_of(source): source for source in named_sources(acquire) if source.spec.kind is Kind.PATH}


def remote_sources(acquire: WantedSources) -> dict[str, NamedSource]:
    """Return the sources that are URLs by key, in the order of their parameters."""
    return {key_of(source): source for source in named_sources(acquire) if source.spec.kind.is_remote}


def key_of(source: NamedSource) -> str:
    """Return the name of a source in dvc.yaml: `backbone`, `corpus-mine`."""
    return source.parameter.removeprefix("acquire.").replace(".", "-", 1)


def parameter_of(key: str) -> str:
    """Return the parameter of a key: `acquire.corpus.mine` for `corpus-mine`."""
    return f"acquire.{key.replace('-', '.', 1)}"


def listing_path(key: str) -> str:
    """Return the path of the listing of a source, relative to the workspace."""
    return f"{LISTINGS}/{key}.json"


def write_listing(path: Path, files: Iterable[ListedFile]) -> None:
    """Write the listing of a source; the same files give the same bytes, wherever they are."""
    listed = [{key: value for key, value in asdict(file).items() if value != ""} for file in files]
    write_bytes(path, orjson.dumps({"files": listed}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_listing(root: Path, source: NamedSource) -> list[ListedFile]:
    """Return the files of a source that match its `path=` patterns, from its listing."""
    path = root / listing_path(key_of(source))
    try:
        files = {file["name"]: ListedFile(**file) for file in orjson.loads(path.read_bytes())["files"]}
    except FileNotFoundError:
        raise InputError(f"{path}: not there: run `supmer run acquire`") from None
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a listing of files ({error}): delete it, then `supmer run`") from error
    chosen = select(files, source.spec.patterns, f"{source.parameter}: {source.spec.location}")
    return [files[name] for name in sorted(chosen)]
