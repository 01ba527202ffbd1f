"""Objects of S3, of Google Cloud Storage and of web servers, through fsspec: listed, and fetched piece by piece.

Credentials and endpoints come from the environment of each library (`AWS_…`, `GOOGLE_APPLICATION_CREDENTIALS`, a
`.netrc`): no spec, listing or manifest holds any.
"""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from storage.errors import InputError, TransientError, first_line
from storage.file_lock import turn
from storage.hashing import json_hash
from storage.sources.listing import ListedFile
from storage.sources.source import Kind, NamedSource

PIECE_BYTES = 16 * 2**20  # fetched at once; a killed download continues after the last whole piece
_PACKAGES = {Kind.S3: "s3fs", Kind.GS: "gcsfs", Kind.HTTPS: "aiohttp"}
_CREDENTIALS = {
    Kind.S3: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    Kind.GS: "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    Kind.HTTPS: "a line for the host in ~/.netrc",
}
_LONGEST_NAME = 255  # bytes, of most file systems
_LIBRARIES = {"aiobotocore", "aiohttp", "botocore", "gcsfs", "google", "requests", "s3fs", "ssl", "fsspec"}


def require_package(parameter: str, kind: Kind) -> None:
    """Raise InputError, naming the extra, if the package that reads a kind of URL is not installed."""
    if importlib.util.find_spec(_PACKAGES[kind]) is None or (
        kind is not Kind.HTTPS and importlib.util.find_spec(f"dvc_{kind}") is None
    ):
        raise InputError(f"{parameter}: a {kind}:// source needs the {kind} extra: pip install 'supmer[{kind}]'")


def list_objects(source: NamedSource) -> list[ListedFile]:
    """Return the objects of a source without hidden ones, sorted by name, with the versions that the storage states."""
    location = source.spec.location
    with explained(source.parameter, location):
        if source.spec.kind is Kind.HTTPS:
            info = _file_system(source).info(location)
            return [_listed(source, unquote(PurePosixPath(urlsplit(location).path).name), info)]
        system = _file_system(source)
        base = system._strip_protocol(location)  # noqa: SLF001 - fsspec has no other name for it
        system.invalidate_cache()
        listed = system.find(base, detail=True)
    found = [
        _listed(source, path.removeprefix(base).lstrip("/") if path != base else PurePosixPath(base).name, info)
        for path, info in sorted(listed.items())
        if info["type"] == "file" and not path.endswith("/")
    ]
    shown = [file for file in found if not any(part.startswith(".") for part in PurePosixPath(file.name).parts)]
    if not shown:
        raise InputError(f"{source.parameter}: {location}: no such object, and no folder with objects in it")
    _check_names(source, [file.name for file in shown])
    return shown


def _listed(source: NamedSource, name: str, info: dict[str, Any]) -> ListedFile:
    etag = next((str(info[key]) for key in ("ETag", "etag", "Content-MD5") if info.get(key)), "").strip('"')
    if info.get("size") is None or not etag:
        missing = "no size" if info.get("size") is None else "no ETag, by which a change could be noticed"
        raise InputError(f"{source.parameter}: {_url(source, name)}: the server states {missing}: use path: for a copy")
    return ListedFile(name, int(info["size"]), etag=etag)


def _check_names(source: NamedSource, names: list[str]) -> None:
    """Raise InputError for names that cannot be files of one folder, although they can be keys of a bucket."""
    taken = set(names)
    for name in names:
        parts = name.split("/")
        if any(part in {"", ".", ".."} or len(part.encode()) > _LONGEST_NAME for part in parts) or "\0" in name:
            raise InputError(f"{source.parameter}: {source.spec.location}: {name!r} cannot be a file: rename it")
        folders = ("/".join(parts[:end]) for end in range(1, len(parts)))
        if clash := next((folder for folder in folders if folder in taken), None):
            raise InputError(
                f"{source.parameter}: {source.spec.location}: {clash!r} is an object and also the folder of {name!r}: "
                "rename one"
            )


def fetch_object(
    source: NamedSource, file: ListedFile, target: Path, downloads: Path, told: Callable[[int], None]
) -> None:
    """Write an object to `target`, continuing a download that was killed; `told` hears the bytes that are there.

    Raise InputError if the storage holds another version than the one listed.
    """
    url, listed = _url(source, file.name), f"{source.parameter}: {_url(source, file.name)}"
    partial = downloads / f".{json_hash([url, file.etag, file.bytes])[:32]}.partial-object"
    downloads.mkdir(parents=True, exist_ok=True)
    with turn(partial.with_suffix(".lock")), explained(source.parameter, url):
        system = _file_system(source)
        _check_version(source, system, url, file)
        if source.spec.kind is Kind.HTTPS and not system.info(url).get("partial"):
            system.get_file(url, str(partial))  # the server sends whole files only
        else:
            _append(system, url, file.bytes, partial, told)
        _check_version(source, system, url, file)
        if partial.stat().st_size != file.bytes:
            partial.unlink()
            raise TransientError(f"{listed}: not all of it came: try again")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.replace(target)


def _append(system: Any, url: str, size: int, partial: Path, told: Callable[[int], None]) -> None:
    """Append the missing bytes of an object, piece by piece."""
    with partial.open("ab") as file:
        start = min(file.tell(), size) // PIECE_BYTES * PIECE_BYTES  # a piece may have been cut
        file.truncate(start)
        file.seek(start)
        told(start)
        while start < size:
            piece = system.cat_file(url, start=start, end=min(start + PIECE_BYTES, size))
            file.write(piece)
            file.flush()
            start += len(piece)
            told(start)
            if not piece:
                return


def _check_version(source: NamedSource, system: Any, url: str, file: ListedFile) -> None:
    system.invalidate_cache()
    if _listed(source, file.name, system.info(url)) != file:
        raise InputError(f"{source.parameter}: {url}: changed after it was listed: run again")


def _url(source: NamedSource, name: str) -> str:
    location = source.spec.location
    if source.spec.kind is Kind.HTTPS or not name:
        return location
    with_name = f"{location}/{name}"
    system = _file_system(source)
    if PurePosixPath(location).name == name and not system.exists(with_name):
        return location  # the source is one object
    return with_name


def _file_system(source: NamedSource) -> Any:
    import fsspec

    require_package(source.parameter, source.spec.kind)
    if source.spec.kind is Kind.HTTPS:
        # Proxies and ~/.netrc of the environment count. A large file may take longer than aiohttp's five minutes.
        return fsspec.filesystem("https", client_kwargs={"trust_env": True, "timeout": _patient()})
    return fsspec.filesystem(str(source.spec.kind))


def _patient() -> Any:
    from aiohttp import ClientTimeout

    return ClientTimeout(total=None, sock_connect=60, sock_read=60)


@contextmanager
def explained(parameter: str, location: str) -> Iterator[None]:
    """Convert the exceptions of the storage's libraries to errors of one line that say what to do."""
    where, kind = f"{parameter}: {location}", Kind(location.partition(":")[0])
    try:
        yield
    except (InputError, TransientError):
        raise
    except FileNotFoundError as error:
        raise InputError(f"{where}: not there: correct the URL, or upload the files") from error
    except PermissionError as error:
        raise InputError(f"{where}: access denied: set {_CREDENTIALS[kind]} in the environment") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _LIBRARIES and not isinstance(error, OSError | TimeoutError):
            raise
        if _is_about_credentials(error):
            raise InputError(f"{where}: no credentials that count: set {_CREDENTIALS[kind]}") from error
        reason = first_line(error).rstrip(".: ")
        raise TransientError(f"{where}: no answer ({reason}): check the network and the endpoint, try again") from error


def _is_about_credentials(error: Exception) -> bool:
    status = getattr(error, "status", getattr(error, "code", None))
    return status in (401, 403) or any(
        word in type(error).__name__ for word in ("Credential", "Profile", "Token", "RefreshError")
    )
