"""Finding the backbone of a prompt on this machine, and checking that it is the one the prompt was made for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage import paths
from storage.errors import InputError
from storage.hashing import file_hash, json_hash
from storage.sources.hub import needed_model_files
from storage.sources.source import MANIFEST, Kind, SourceSpec, read_manifest
from storage.vectors.sentence_vectors import model_hash

ACQUIRED = Path(paths.BACKBONE)
SHOWN = 16  # hex digits of a hash in messages


@dataclass(frozen=True)
class MadeFor:
    """The backbone that a prompt was made for: its source spec and the hash of its files, "" if unknown."""

    source: str = ""
    hash: str = ""

    @classmethod
    def of(cls, about: dict[str, Any]) -> "MadeFor":
        """Return the backbone that config.json names: for the tuned prompt, or else for the one it was tuned from."""
        said = next(_named(about), {})
        return cls(str(said.get("source") or ""), str(said.get("hash") or ""))

    @staticmethod
    def is_named(about: dict[str, Any]) -> bool:
        """Return True if config.json has an entry for the backbone, even one that says that it is unknown."""
        return any(True for _ in _named(about))

    def __str__(self) -> str:
        return f"{self.source or 'a backbone'}, files {self.hash[:SHOWN]}" if self.hash else self.source


def _named(about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for holder in (about.get("downstream"), about):
        said = holder.get("backbone") if isinstance(holder, dict) else None
        if isinstance(said, dict):
            yield said


def backbone_folder(prompt: Path, about: dict[str, Any], model: Path | None, *, any_backbone: bool = False) -> Path:
    """Return the folder of a prompt's backbone. Raise InputError if it is not the one the prompt was made for.

    Args:
        prompt: the prompt's folder.
        about: its config.json.
        model: the model's folder; if None, the backbone of the workspace around the prompt or the working directory.
        any_backbone: accept the model whatever the hash of its files is.
    """
    wanted = MadeFor.of(about)
    if "downstream" in about and not any_backbone and not MadeFor.is_named(about):
        raise InputError(
            f"{prompt}: its config.json names no backbone, which every tuned prompt has: restore the file, or give "
            "--any-backbone with the right one"
        )
    folder, hashes = _in_workspace(prompt, wanted) if model is None else _given(model)
    if wanted.hash and not any_backbone:
        _compare(prompt, folder, wanted, hashes)
    return folder


def find_backbone(prompt: Path, about: dict[str, Any], model: Path | None) -> Path:
    """Return the folder of a prompt's backbone, whose files are not compared; raise InputError if there is none."""
    return (_in_workspace(prompt, MadeFor.of(about)) if model is None else _given(model))[0]


def _compare(prompt: Path, folder: Path, wanted: MadeFor, hashes: Iterable[str]) -> None:
    digest = ""
    for digest in hashes:
        if digest == wanted.hash:
            return
    raise InputError(
        f"{folder}: not the backbone that {prompt} was made for ({wanted}; these are {digest[:SHOWN]}): give that one, "
        "or --any-backbone if you know that the weights are the same"
    )


def _in_workspace(prompt: Path, wanted: MadeFor) -> tuple[Path, Iterable[str]]:
    """Return the acquired backbone of the nearest workspace around the prompt, else around the working directory."""
    for start in (prompt.resolve(), Path.cwd()):
        for root in (start, *start.parents):
            if (root / ACQUIRED / MANIFEST).is_file():
                return _acquired(root / ACQUIRED)
    made_for = f" ({wanted})" if str(wanted) else ""
    raise InputError(f"{prompt}: no workspace with a backbone around it: give the backbone{made_for} by --backbone")


def _given(folder: Path) -> tuple[Path, Iterable[str]]:
    """Return the folder and hashes of a given model; `folder` may also be the output of `acquire` that contains it."""
    if (folder / MANIFEST).is_file():
        return _acquired(folder.resolve())
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder: give the folder of a transformers model")
    return folder, _folder_hashes(folder)


def _acquired(output: Path) -> tuple[Path, Iterable[str]]:
    """Return the model in an output of `acquire`; paths in its manifest are relative to the workspace's root."""
    source = read_manifest(output)[0]
    return output.parents[len(ACQUIRED.parts) - 1] / source.folder, [model_hash(source)]


def _folder_hashes(folder: Path) -> Iterator[str]:
    """Yield the possible hashes of a model: of the files needed, as fetched from the hub, and of all files."""
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    needed = sorted(needed_model_files(names, SourceSpec(str(folder), Kind.PATH, str(folder)), "--backbone"))
    hashes: dict[str, str] = {}
    for chosen in [needed] if needed == names else [needed, names]:
        hashes |= {name: file_hash(folder / name) for name in chosen if name not in hashes}
        yield json_hash(sorted([name, hashes[name]] for name in chosen))
