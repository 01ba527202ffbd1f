"""Runs of stages that a workspace knows: the versions that each read and wrote, by md5."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.lineage.events import read_events
from storage.lockfile import cache_folder, is_code


@dataclass(frozen=True)
class KnownRun:
    """A run of a stage: the md5 of its data and of its outputs, by path."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def run_cache_entries(root: Path) -> dict[Path, KnownRun]:
    """Return the runs that DVC's run cache would restore, by the file that records each."""
    folder = cache_folder(root).parent.parent / "runs"
    return {path: run for path in sorted(folder.glob("??/*/*")) if (run := _of_stage(_yaml(path.read_bytes())))}


def known_runs(root: Path, lock_files: Iterable[bytes] = ()) -> list[KnownRun]:
    """Return the runs in DVC's run cache, in the lineage events and in versions of dvc.lock."""
    runs = [*run_cache_entries(root).values(), *_in_events(root)]
    for content in lock_files:
        stages = _yaml(content).get("stages")
        runs += [run for stage in (stages.values() if isinstance(stages, dict) else ()) if (run := _of_stage(stage))]
    return runs


def made_from(versions: Iterable[str], runs: Iterable[KnownRun]) -> set[str]:
    """Return the versions and all that was computed from them, directly or through other versions."""
    reached, listed = set(versions), list(runs)
    while True:
        added = {
            md5
            for run in listed
            if not reached.isdisjoint(run.inputs.values())
            for md5 in run.outputs.values()
            if md5 not in reached
        }
        if not added:
            return reached
        reached |= added


def _of_stage(stage: object) -> KnownRun | None:
    """Return the run that an entry of dvc.lock or of the run cache describes; None if it is damaged."""
    if not isinstance(stage, dict):
        return None
    inputs = {path: md5 for path, md5 in _versions(stage.get("deps")) if not is_code(path)}
    return KnownRun(inputs, dict(_versions(stage.get("outs"))))


def _versions(entries: object) -> Iterator[tuple[str, str]]:
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("path"), str) and isinstance(entry.get("md5"), str):
            yield entry["path"], entry["md5"]


def _in_events(root: Path) -> Iterator[KnownRun]:
    for event in read_events(root):
        if event.get("eventType") in {"COMPLETE", "OTHER"}:
            inputs = {path: md5 for path, md5 in _datasets(event.get("inputs")) if not is_code(path)}
            yield KnownRun(inputs, dict(_datasets(event.get("outputs"))))


def _datasets(datasets: object) -> Iterator[tuple[str, str]]:
    for dataset in datasets if isinstance(datasets, list) else ():
        md5 = dataset.get("facets", {}).get("version", {}).get("datasetVersion")
        if md5:
            yield str(dataset.get("name")), str(md5)


def _yaml(content: bytes) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        parsed = json.loads(content) if content[:1] == b"{" else YAML(typ="safe").load(content)
    except (YAMLError, ValueError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
