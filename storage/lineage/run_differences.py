"""The differences between two runs of the pipeline: parameters, data, code and metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from storage.lineage.run_history import PipelineRun

Metrics = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Difference:
    """A value that differs; None on the side that lacks it."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class RunDifferences:
    """What differs between two runs.

    Attributes:
        data: sources and tables; versions (md5), or the numbers of rows where these are known and differ.
        code: files and folders of code; versions (md5).
        metrics: metrics of the stages, by `STAGE: name`.
        unshared: stages that only one of the runs has.
    """

    parameters: list[Difference]
    data: list[Difference]
    code: list[Difference]
    metrics: list[Difference]
    unshared: list[str]


def run_differences(before: PipelineRun, after: PipelineRun, metrics: tuple[Metrics, Metrics]) -> RunDifferences:
    """Return what differs between two runs, as far as both have the same stages; `metrics` are those of the two."""
    shared = [name for name in after.stages if name in before.stages]
    first, second = before.only(shared), after.only(shared)
    return RunDifferences(
        _differing(first.parameters, second.parameters),
        [*_differing(first.sources, second.sources), *_tables(first, second)],
        _differing(first.code, second.code),
        _differing(_joined(metrics[0], shared), _joined(metrics[1], shared)),
        sorted(set(before.stages) ^ set(after.stages)),
    )


def _tables(first: PipelineRun, second: PipelineRun) -> list[Difference]:
    """Return the tables whose versions differ: by their rows if these differ, else by their versions."""
    differing = _differing(first.outputs, second.outputs)
    tables = [item for item in differing if item.name in first.rows or item.name in second.rows]
    return [
        Difference(item.name, rows[0], rows[1]) if None not in rows and rows[0] != rows[1] else item
        for item in tables
        if (rows := (first.rows.get(item.name), second.rows.get(item.name)))
    ]


def _joined(metrics: Metrics, stages: Iterable[str]) -> dict[str, Any]:
    return {f"{stage}: {name}": value for stage in stages for name, value in metrics.get(stage, {}).items()}


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    names = dict.fromkeys((*before, *after))
    return [
        Difference(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]
