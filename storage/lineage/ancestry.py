"""The ancestry of an artifact: the tree of stages and inputs behind it, from dvc.lock and the lineage events."""

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from storage.errors import InputError
from storage.lineage.events import Acceptance, acceptances, read_events, run_that_made
from storage.lockfile import (
    LISTING_STAGES,
    LOCAL_STAGE,
    LockedPath,
    LockedStage,
    Pipeline,
    cache_folder,
    directory_object,
    flat,
    is_code,
)
from storage.sources.listing import parameter_of
from storage.sources.source import MANIFEST, AcquiredSource, read_manifest


@dataclass(frozen=True)
class StageNode:
    """The run of a stage that made an artifact; what only an event records is None if there is no such event."""

    name: str
    time: str | None
    seconds: float | None
    peak_memory_bytes: int | None
    git_commit: str | None
    prefect_run_id: str | None
    parameters: dict[str, Any]
    code: dict[str, str]
    accepted: tuple[Acceptance, ...]
    inputs: tuple["ArtifactNode", ...]


@dataclass(frozen=True)
class ArtifactNode:
    """An artifact in the version that was used; `stage` is None if no stage makes it.

    `parameter` is the parameter of a local source with its value, and None for other artifacts.
    """

    path: str
    parameter: str | None
    md5: str | None
    bytes: int | None
    rows: int | None
    note: str | None
    sources: tuple[AcquiredSource, ...]
    stage: StageNode | None


def resolve(pipeline: Pipeline, name: str, here: Path) -> list[str]:
    """Return the artifacts that `name` names: a path, a file inside an artifact, a stage or a view.

    A path is relative to `here` or to the workspace. Raise InputError if nothing is found.
    """
    artifacts = pipeline.artifacts()
    absolute = Path(os.path.normpath(here / name))
    candidates = [os.path.normpath(name)]
    if absolute.is_relative_to(pipeline.root):
        candidates.insert(0, str(absolute.relative_to(pipeline.root)))
    for candidate in candidates:
        for path in (candidate, *map(str, Path(candidate).parents)):
            if path in artifacts:
                return [path]
    named = [path for path, stage in artifacts.items() if name in {stage, stage.partition("@")[0]}]
    matching = named or [path for path in artifacts if Path(path).name == name]
    if not matching:
        names = {*artifacts, *artifacts.values(), *(Path(path).name for path in artifacts)}
        near = difflib.get_close_matches(name, sorted(names), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`supmer lineage` lists them"
        raise InputError(f"{name}: neither an output of dvc.yaml nor a stage: {hint}")
    return matching


def file_md5_in(pipeline: Pipeline, artifact: str, file: str) -> str | None:
    """Return the recorded md5 of a file inside a directory artifact, or None if it is not known."""
    locked = pipeline.locked_output(artifact)
    if locked is None or locked.md5 is None or not locked.is_directory:
        return None
    try:
        listing = directory_object(cache_folder(pipeline.root), locked.md5) or {}
    except (ValueError, KeyError, TypeError):
        return None
    return listing.get(str(Path(file).relative_to(artifact)))


class Ancestry:
    """Builds the trees of a workspace; a stage that occurs twice is the same object."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.events = read_events(pipeline.root)
        self._makers = {output.path: stage for stage in pipeline.current() for output in stage.outputs}
        self._stages: dict[str, StageNode] = {}
        self._rows: dict[str, dict[str, int]] = {}

    def tree(self, path: str) -> ArtifactNode:
        """Return the tree of an artifact in its current version."""
        locked = self.pipeline.locked_output(path)
        if locked is None:
            stage = self.pipeline.artifacts()[path]
            raise InputError(f"{path}: not made yet: `supmer run {stage}` makes it")
        return self._artifact(locked)

    def _artifact(self, used: LockedPath, parameter: str | None = None) -> ArtifactNode:
        maker = self._makers.get(used.path) or next(
            (stage for path, stage in self._makers.items() if Path(used.path).is_relative_to(path)), None
        )
        current = self.pipeline.locked_output(used.path)
        note = None
        if current is not None and current.md5 != used.md5:
            note = f"an earlier version was used; the workspace has md5 {current.md5}"
        node = self._stage(maker) if maker else None
        rows = self._row_count(used, maker) if note is None else None
        folder = self.pipeline.root / used.path
        sources = tuple(read_manifest(folder)) if (folder / MANIFEST).is_file() else ()
        return ArtifactNode(used.path, parameter, used.md5, used.bytes, rows, note, sources, node)

    def _stage(self, stage: LockedStage) -> StageNode:
        if stage.name not in self._stages:
            versions = {output.path: output.md5 or "" for output in stage.outputs}
            run = run_that_made(self.events, stage.name, versions)
            self._rows[stage.name] = run.rows if run else {}
            code = {item.path: item.md5 or "" for item in stage.inputs if is_code(item.path)}
            self._stages[stage.name] = StageNode(
                stage.name,
                run.time if run else None,
                run.seconds if run else None,
                run.peak_memory_bytes if run else None,
                run.git_commit if run else None,
                run.prefect_run_id if run else None,
                flat(stage.parameters),
                code,
                tuple(acceptances(self.events, stage.name, versions)),
                tuple(self._inputs(stage)),
            )
        return self._stages[stage.name]

    def _inputs(self, stage: LockedStage) -> Iterator[ArtifactNode]:
        """Yield the inputs of a stage without code; for a folder of outputs of other stages, yield these outputs."""
        name, _, key = stage.name.partition("@")
        for item in stage.inputs:
            if is_code(item.path):
                continue
            for output in list(self._outputs_below(item)) or [item]:
                written = f"{'path:' * (name == LOCAL_STAGE)}{item.path}"
                source = f"{parameter_of(key)}={written}" if name in LISTING_STAGES else None
                yield self._artifact(output, source)

    def _outputs_below(self, used: LockedPath) -> Iterator[LockedPath]:
        """Yield the outputs in a folder that a stage read, in the versions it read."""
        outputs = [path for path in sorted(self._makers) if path != used.path and Path(path).is_relative_to(used.path)]
        if not outputs or used.md5 is None:
            return
        try:
            listing = directory_object(cache_folder(self.pipeline.root), used.md5) or {}
        except (ValueError, KeyError, TypeError):
            listing = {}
        for path in outputs:
            current = self.pipeline.locked_output(path)
            md5 = listing.get(str(Path(path).relative_to(used.path)), current.md5 if current else None)
            yield replace(current, md5=md5) if current else LockedPath(path, md5, None, None)

    def _row_count(self, used: LockedPath, maker: LockedStage | None) -> int | None:
        known = self._rows.get(maker.name, {}).get(used.path) if maker else None
        shards = sorted((self.pipeline.root / used.path).rglob("*.parquet")) if known is None else []
        if not shards:
            return known
        from storage.parquet import count_rows

        try:
            return sum(count_rows(shard) for shard in shards)
        except InputError:
            return None  # a shard is damaged: `supmer verify` names it
