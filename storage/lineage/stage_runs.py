"""The stages behind a workspace's outputs, with inputs, outputs and resources, from dvc.yaml, dvc.lock and events."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.lineage.events import read_events, run_that_made
from storage.lockfile import LISTING_STAGES, LockedStage, Pipeline, flat, read_pipeline
from storage.parquet import count_rows


@dataclass(frozen=True)
class StageFacts:
    """A stage as recorded in dvc.lock; what only an event records is None if there is no such event.

    Attributes:
        upstream: the stages whose outputs it reads.
        rows: the number of rows in each Parquet folder it wrote, by path.
        bytes: the size of all its outputs.
    """

    name: str
    description: str
    upstream: tuple[str, ...]
    parameters: dict[str, Any]
    rows: dict[str, int]
    bytes: int
    time: str | None
    seconds: float | None
    peak_memory_bytes: int | None
    git_commit: str | None


def stages_above(root: Path, inputs: Sequence[str]) -> tuple[list[StageFacts], tuple[str, ...]]:
    """Return all stages behind `inputs`, upstream ones first, and the names of those that made `inputs` directly."""
    pipeline = read_pipeline(root)
    makers = {
        output.path: stage
        for stage in pipeline.current()
        if stage.name.partition("@")[0] not in LISTING_STAGES  # the report describes sources elsewhere
        for output in stage.outputs
    }
    # A forced run may write the same bytes again. The first run that wrote them is reported, so that the same inputs
    # give the same report.
    events = list(reversed(read_events(root)))
    facts: dict[str, StageFacts] = {}
    depth: dict[str, int] = {}

    def visit(paths: Sequence[str]) -> tuple[str, ...]:
        above = {stage.name: stage for stage in _makers(makers, paths)}
        for name, stage in above.items():
            if name not in facts:
                upstream = visit([item.path for item in stage.inputs])
                depth[name] = max((depth[parent] + 1 for parent in upstream), default=0)
                facts[name] = _facts(pipeline, stage, upstream, events)
        return tuple(sorted(above, key=lambda name: (depth[name], name)))

    read_from = visit(inputs)
    return [facts[name] for name in sorted(facts, key=lambda name: (depth[name], name))], read_from


def _makers(makers: dict[str, LockedStage], paths: Sequence[str]) -> Iterator[LockedStage]:
    for path, stage in makers.items():
        if any(Path(read).is_relative_to(path) or Path(path).is_relative_to(read) for read in paths):
            yield stage


def _facts(
    pipeline: Pipeline, stage: LockedStage, upstream: tuple[str, ...], events: list[dict[str, Any]]
) -> StageFacts:
    run = run_that_made(events, stage.name, {output.path: output.md5 or "" for output in stage.outputs})
    declaration = pipeline.declaration(stage.name)
    rows = {
        output.path: sum(map(count_rows, shards))
        for output in stage.outputs
        if (shards := sorted((pipeline.root / output.path).rglob("*.parquet")))
    }
    return StageFacts(
        stage.name,
        declaration.description if declaration else "",
        upstream,
        flat(stage.parameters),
        rows,
        sum(output.bytes or 0 for output in stage.outputs),
        run.time if run else None,
        run.seconds if run else None,
        run.peak_memory_bytes if run else None,
        run.git_commit if run else None,
    )
