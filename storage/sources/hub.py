"""Repositories of the Hugging Face hub: the needed files at one commit, linked from the hub's local cache."""

import glob
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from storage.atomic import link_or_copy
from storage.errors import InputError, TransientError, first_line
from storage.sources.source import SINGLE_ROLES, SourceSpec, select

CARD = "README.md"

_BUSY = (408, 425, 429)  # these and every 5xx: statuses that may change on a retry
_PLAIN = re.compile(r".*\.(json|txt|model)")  # configuration, vocabulary, sentencepiece
_PICKLED = re.compile(r"pytorch_model.*\.bin")
_OTHER_COPIES = {"onnx", "openvino", "tf", "flax", "coreml", "original"}  # folders with other copies of the weights
_LICENCE = re.compile(r"^license:\s*[\"']?([^\"'\n]+)", re.MULTILINE)


@dataclass(frozen=True)
class Repository:
    """A fetched repository: the commit of the revision, the licence on the card, and the names of the files."""

    commit: str
    licence: str
    files: tuple[str, ...]


def fetch_repository(spec: SourceSpec, role: str, folder: Path, parameter: str) -> Repository:
    """Put the needed files of a repository into `folder`, from the hub or from its local cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import IncompleteSnapshotError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # the stage shows its own progress
    repo_type = "model" if role in SINGLE_ROLES else "dataset"
    with _explained(spec, parameter):
        try:
            cached = snapshot_download(
                spec.location, repo_type=repo_type, revision=spec.version or None, allow_patterns=[CARD]
            )
        except IncompleteSnapshotError as error:  # there is no network, and the cache lacks the card
            cached = error.snapshot_path
        snapshot = Path(cached)
        choose = needed_model_files if repo_type == "model" else _data_files
        wanted = sorted(choose(_listing(spec, repo_type, snapshot), spec, parameter))
        snapshot_download(
            spec.location,
            repo_type=repo_type,
            revision=snapshot.name,
            allow_patterns=[glob.escape(name) for name in wanted],
        )
    for name in wanted:
        link_or_copy((snapshot / name).resolve(), folder / name)
    return Repository(snapshot.name, _licence(snapshot / CARD), tuple(wanted))


def needed_model_files(names: Iterable[str], spec: SourceSpec, parameter: str) -> set[str]:
    """Return configuration, tokenizer, and one copy of the weights in each folder: safetensors, or else pickled."""
    listed = [name for name in names if not _is_hidden(name)]
    if spec.patterns:
        return set(select(listed, spec.patterns, f"{parameter}: {spec.text}"))
    listed = [name for name in listed if not _OTHER_COPIES & set(PurePosixPath(name).parts[:-1])]
    safe = {name for name in listed if name.endswith(".safetensors")}
    folders_with_safe = {PurePosixPath(name).parent for name in safe}
    pickled = {
        name
        for name in listed
        if _PICKLED.fullmatch(PurePosixPath(name).name) and PurePosixPath(name).parent not in folders_with_safe
    }
    if not safe and not pickled:
        raise InputError(f"{parameter}: {spec.text}: holds no safetensors or PyTorch weights: choose another model")
    plain = {name for name in listed if _PLAIN.fullmatch(PurePosixPath(name).name)}
    indexes = {name for name in plain if name.endswith(".bin.index.json")} if not pickled else set()
    return safe | pickled | (plain - indexes)


def _data_files(names: Iterable[str], spec: SourceSpec, parameter: str) -> set[str]:
    """Return the files that match the patterns; without patterns, all but the card, licences and programs."""
    listed = [name for name in names if not _is_hidden(name)]
    if not spec.patterns:
        listed = [name for name in listed if name != CARD and not re.fullmatch(r"LICEN[CS]E.*|.*\.py", name)]
    if not listed:
        raise InputError(f"{parameter}: {spec.text}: holds no data files")
    return set(select(listed, spec.patterns, f"{parameter}: {spec.text}"))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _listing(spec: SourceSpec, repo_type: str, snapshot: Path) -> list[str]:
    """Return the files of a commit, from the hub's listing, or from the cached files if there is no listing."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        tree = get_cached_repo_tree(spec.location, repo_type=repo_type, revision=snapshot.name)
    except CachedRepoTreeNotFoundError:
        return [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
    return [file.path for file in tree]


def _licence(card: Path) -> str:
    """Return the licence in the front matter of a model or dataset card, or "unknown"."""
    if not card.is_file():
        return "unknown"
    _, _, rest = card.read_text(encoding="utf-8", errors="replace").partition("---\n")
    match = _LICENCE.search(rest.partition("\n---")[0])
    return match[1].lstrip("- ").strip() if match else "unknown"


@contextmanager
def _explained(spec: SourceSpec, parameter: str) -> Iterator[None]:
    """Convert the hub's exceptions to errors of one line that say what to do."""
    import httpx2
    from huggingface_hub import constants, errors

    instead = f"give a folder: -S {parameter}=path:/folder"
    where = f"{parameter}: {spec.text}"
    try:
        yield
    except errors.GatedRepoError as error:
        page = f"{constants.ENDPOINT}/{spec.location}"
        raise InputError(f"{where}: gated: accept its terms at {page} and run `hf auth login`, or {instead}") from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(f"{where}: no such repository, or a private one (`hf auth login`), or {instead}") from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{where}: no revision {spec.version!r} in it: name a branch, a tag or a commit") from error
    except errors.LocalEntryNotFoundError as error:
        if constants.HF_HUB_OFFLINE:
            raise InputError(
                f"{where}: missing or incomplete in the hub's cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE "
                f"is set: unset it, or {instead}"
            ) from error
        raise TransientError(f"{where}: the hub did not answer: check the network, try again, or {instead}") from error
    except errors.HFValidationError as error:
        raise InputError(f"{where}: not the name of a repository ({first_line(error)})") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        kind = TransientError if status in _BUSY or status >= 500 else InputError
        raise kind(f"{where}: the hub answered {status}: {first_line(error)}: try again, or {instead}") from error
    except httpx2.HTTPError as error:
        raise TransientError(f"{where}: the hub cannot be reached ({first_line(error)}), or {instead}") from error
