"""The ancestry of a prompt's or adapter's folder outside the outputs: the prompt of the pipeline it comes from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage import paths
from storage.hashing import file_hash
from storage.lineage.events import read_events
from storage.lineage.prompt_folders import PromptFolder, learned_prompts, other_prompts, read_folder
from storage.lockfile import DIRECTORY_SUFFIX, Pipeline, cache_folder, directory_object, object_path
from storage.prompts.prompt_artifact import PROMPT
from storage.prompts.shipped_prompt import shipped_folders

_TUNING = ("dataset", "method", "shots", "seed", "learning_rate", "data")


@dataclass(frozen=True)
class FolderOrigin:
    """The origin of a folder.

    Attributes:
        path: the folder, as it was given.
        kind: what it holds.
        hash: its hash.
        relation: how it was made from the prompt: `exported from`, `tuned from`; None if neither is known.
        prompt: the folder of that prompt in this workspace; None if no current prompt has the hash.
        artifact: the output that the prompt is part of; None for a shipped prompt.
        earlier: the earlier version of the output that has the prompt, in words; None if there is none.
        facts: what its description says about tuning and backbone.
    """

    path: str
    kind: str
    hash: str | None
    relation: str | None
    prompt: str | None
    artifact: str | None
    earlier: str | None
    facts: dict[str, Any]


def folder_origin(pipeline: Pipeline, name: str, folder: PromptFolder) -> FolderOrigin:
    """Return the origin of a folder, by the hashes of the workspace's prompts."""
    candidates = (("exported from", folder.hash), ("tuned from", folder.start))
    for relation, wanted in candidates:
        for prompt in _prompts(pipeline.root):
            if wanted is not None and prompt.hash == wanted:
                path = prompt.path.relative_to(pipeline.root)
                artifact = next((output for output in pipeline.artifacts() if path.is_relative_to(output)), None)
                return FolderOrigin(name, folder.kind, folder.hash, relation, str(path), artifact, None, _facts(folder))
    for relation, wanted in candidates:
        if wanted is not None and (earlier := _earlier_version(pipeline.root, wanted)):
            return FolderOrigin(name, folder.kind, folder.hash, relation, None, None, earlier, _facts(folder))
    return FolderOrigin(name, folder.kind, folder.hash, None, None, None, None, _facts(folder))


def _prompts(root: Path) -> list[PromptFolder]:
    """Return the prompts that others may come from: tuned and learned ones of the pipeline, then shipped ones."""
    tuned = [folder for folder in other_prompts(root) if folder.path.is_relative_to(root / paths.ARTIFACTS)]
    shipped = [folder for path in shipped_folders(root) if (folder := read_folder(path))]
    return [*tuned, *learned_prompts(root), *shipped]


def _facts(folder: PromptFolder) -> dict[str, Any]:
    facts = {name: folder.downstream[name] for name in _TUNING if folder.downstream.get(name) is not None}
    for holder in (folder.downstream, folder.about):
        backbone = holder.get("backbone")
        if isinstance(backbone, dict) and backbone.get("source"):
            return facts | {"backbone": backbone["source"]}
    return facts


def _earlier_version(root: Path, wanted: str) -> str | None:
    """Return in words which version in DVC's cache has the prompt with this hash: output, md5, time and commit."""
    cache = cache_folder(root)
    for path in sorted(cache.glob(f"??/*{DIRECTORY_SUFFIX}")):
        md5 = path.parent.name + path.name
        try:
            files = directory_object(cache, md5) or {}
        except (ValueError, KeyError, TypeError):
            continue
        for name, file in files.items():
            stored = object_path(cache, file)
            if Path(name).name == PROMPT and stored.is_file() and file_hash(stored) == wanted:
                return f"{Path(name).parent}, in an earlier version (md5 {md5}{_made(root, md5)})"
    return None


def _made(root: Path, md5: str) -> str:
    """Return when a version was made and from which commit, by the lineage events."""
    for event in read_events(root):
        for output in event.get("outputs", []) if event.get("eventType") == "COMPLETE" else ():
            if output.get("facets", {}).get("version", {}).get("datasetVersion") == md5:
                commit = event.get("job", {}).get("facets", {}).get("sourceCodeLocation", {}).get("version")
                from_commit = f", git {commit[:12].rstrip('+')}" if commit else ""
                return f" of {output.get('name')}, made {str(event.get('eventTime'))[:19]}{from_commit}"
    return ""
