"""Runs of the pipeline with parameters, data, code and metrics, read from lineage events, dvc.lock and DVC's cache.

Nothing is stored for this purpose: a run is what the events say of it, and its metrics are the files that it wrote, as
DVC's cache keeps them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from storage.errors import InputError
from storage.lineage.events import read_events
from storage.lockfile import (
    LockedStage,
    Pipeline,
    cache_folder,
    directory_md5,
    file_md5,
    flat,
    is_code,
    object_path,
    read_pipeline,
)

LOCKED = "now"  # the name of the state that dvc.lock records
SHORTEST_ID = 4
_SHOWN_ID = 8


@dataclass(frozen=True)
class StageVersion:
    """A stage as it ran: parameters as text, and the versions (md5) of what it read and wrote, by path."""

    name: str
    parameters: Mapping[str, str]
    code: Mapping[str, str]
    data: Mapping[str, str]
    outputs: Mapping[str, str]
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineRun:
    """A run of the pipeline, with all stages that its results were made by, whether they ran in it or before.

    Attributes:
        id: that of the Prefect flow, or of the stage's event if there was none.
        ran: the stages that ran in it.
        commit: the commit of the workspace, with a plus sign if the tree had changes.
    """

    id: str
    time: str
    commit: str | None
    ran: tuple[str, ...]
    stages: Mapping[str, StageVersion]

    @property
    def short_id(self) -> str:
        """The beginning of the id, as it is shown."""
        return self.id[:_SHOWN_ID] if self.time else self.id

    def only(self, names: Iterable[str]) -> "PipelineRun":
        """Return the run with these stages alone."""
        return replace(self, stages={name: self.stages[name] for name in names})

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of all stages, by dotted key."""
        return {key: value for stage in self.stages.values() for key, value in stage.parameters.items()}

    @property
    def code(self) -> dict[str, str]:
        """The versions of all code, by path."""
        return {path: md5 for stage in self.stages.values() for path, md5 in stage.code.items()}

    @property
    def outputs(self) -> dict[str, str]:
        """The versions of all outputs, by path."""
        return {path: md5 for stage in self.stages.values() for path, md5 in stage.outputs.items()}

    @property
    def sources(self) -> dict[str, str]:
        """The versions of the data that no stage made, by path."""
        made = {str(place) for path in self.outputs for place in (Path(path), *Path(path).parents)}
        read = {path: md5 for stage in self.stages.values() for path, md5 in stage.data.items()}
        return {path: md5 for path, md5 in read.items() if path not in made}

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows of the tables, by path."""
        return {path: rows for stage in self.stages.values() for path, rows in stage.rows.items()}


def pipeline_runs(root: Path) -> list[PipelineRun]:
    """Return the runs that completed a stage, in the order of their ends."""
    makers: dict[tuple[str, str], StageVersion] = {}
    runs: dict[str, PipelineRun] = {}
    for event in read_events(root):
        if event.get("eventType") != "COMPLETE":
            continue
        stage, run_id = _stage_version(event), _run_id(event)
        makers |= dict.fromkeys(stage.outputs.items(), stage)
        earlier = runs.pop(run_id, None)
        stages = dict(earlier.stages) if earlier else {}
        stages |= {made.name: made for made in _behind(stage, makers)}
        ran = (*(earlier.ran if earlier else ()), stage.name)
        commit = event.get("job", {}).get("facets", {}).get("sourceCodeLocation", {}).get("version")
        runs[run_id] = PipelineRun(run_id, str(event.get("eventTime")), commit, ran, stages)
    return list(runs.values())


def locked_run(pipeline: Pipeline, runs: Iterable[PipelineRun], name: str = LOCKED) -> PipelineRun:
    """Return the state that a dvc.lock records, as if it were a run; `runs` know the rows of its tables."""
    known = {(path, run.outputs[path]): rows for run in runs for path, rows in run.rows.items()}
    stages = {stage.name: _locked_version(stage, known) for stage in pipeline.current()}
    return PipelineRun(name, "", None, (), stages)


def find_run(runs: Iterable[PipelineRun], name: str) -> PipelineRun | None:
    """Return the run whose id begins with `name`, or None; raise InputError if there are several."""
    fitting = [run for run in runs if run.id.startswith(name.lower())] if len(name) >= SHORTEST_ID else []
    if len(fitting) > 1:
        raise InputError(
            f"{name}: several runs begin so ({', '.join(run.id for run in fitting[:3])}): write more digits"
        )
    return fitting[0] if fitting else None


def metrics_of(root: Path, run: PipelineRun) -> dict[str, dict[str, Any]]:
    """Return the metrics of a run by stage, flat; a file that DVC's cache no longer has is left out."""
    pipeline, cache = read_pipeline(root), cache_folder(root)
    found = {}
    for name, stage in run.stages.items():
        declared = pipeline.declaration(name)
        for path in declared.reports if declared else ():
            md5 = stage.outputs.get(path)
            if path.endswith(".json") and md5 and (content := _content(root / path, object_path(cache, md5), md5)):
                found[name] = flat(orjson.loads(content))
    return found


def _content(path: Path, cached: Path, md5: str) -> bytes | None:
    """Return the bytes of a version of a file, from DVC's cache or from the workspace; None if neither has it."""
    for place in (cached, path):
        if place.is_file() and file_md5(place) == md5:
            return place.read_bytes()
    return None


def _behind(stage: StageVersion, makers: Mapping[tuple[str, str], StageVersion]) -> Iterator[StageVersion]:
    """Yield the stages that made the data of a stage, upstream ones first, and then the stage itself."""
    seen: set[str] = set()

    def visit(version: StageVersion) -> Iterator[StageVersion]:
        if version.name in seen:
            return
        seen.add(version.name)
        for path, md5 in version.data.items():
            for maker in _makers(path, md5, makers):
                yield from visit(maker)
        yield version

    yield from visit(stage)


def _makers(path: str, md5: str, makers: Mapping[tuple[str, str], StageVersion]) -> Iterator[StageVersion]:
    """Yield the stage that made a version, or the stages that made the files of a folder such as `inputs`."""
    if maker := makers.get((path, md5)):
        yield maker
        return
    latest = {made: (version, maker) for (made, version), maker in makers.items() if made.startswith(f"{path}/")}
    listed = {made.removeprefix(f"{path}/"): version for made, (version, _) in latest.items()}
    if listed and directory_md5(listed) == md5:
        yield from (maker for _, maker in latest.values())


def _run_id(event: Mapping[str, Any]) -> str:
    run = event.get("run", {})
    return str(run.get("facets", {}).get("supmer_stage", {}).get("prefectRunId") or run.get("runId"))


def _stage_version(event: Mapping[str, Any]) -> StageVersion:
    listed = event.get("run", {}).get("facets", {}).get("executionParameters", {}).get("parameters", [])
    read, written = _versions(event.get("inputs", [])), _versions(event.get("outputs", []))
    counts = {
        output.get("name"): output.get("outputFacets", {}).get("outputStatistics", {}).get("rowCount")
        for output in event.get("outputs", [])
    }
    return StageVersion(
        str(event.get("job", {}).get("name")),
        {entry["key"]: entry["value"] for entry in listed},
        {path: md5 for path, md5 in read.items() if is_code(path)},
        {path: md5 for path, md5 in read.items() if not is_code(path)},
        written,
        {path: int(rows) for path, rows in counts.items() if rows is not None},
    )


def _versions(datasets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {
        str(dataset.get("name")): str(dataset.get("facets", {}).get("version", {}).get("datasetVersion"))
        for dataset in datasets
    }


def _locked_version(stage: LockedStage, known_rows: Mapping[tuple[str, str], int]) -> StageVersion:
    read = {item.path: item.md5 or "" for item in stage.inputs}
    written = {item.path: item.md5 or "" for item in stage.outputs}
    return StageVersion(
        stage.name,
        {key: str(value) for key, value in flat(stage.parameters).items()},
        {path: md5 for path, md5 in read.items() if is_code(path)},
        {path: md5 for path, md5 in read.items() if not is_code(path)},
        written,
        {path: known_rows[path, md5] for path, md5 in written.items() if (path, md5) in known_rows},
    )
