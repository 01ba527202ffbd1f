"""Stage events as OpenLineage events; imported only when a stage runs, because importing takes half a second."""

import os
from typing import Any

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    execution_parameters_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    set_producer,
    source_code_location_job,
)

from storage.lineage.events import Artifact, StageEvent
from storage.lockfile import flat

PRODUCER = "https://github.com/supmer/supmer"
DEFAULT_NAMESPACE = "supmer"
set_producer(PRODUCER)


@attr.define
class StageRunFacet(RunFacet):  # type: ignore[misc] # the client's classes are not typed
    """The resources that a run of a stage took, and the reason why it ran (docs/lineage.md)."""

    record: dict[str, Any]
    prefectRunId: str | None = None  # noqa: N815 - OpenLineage writes its fields in camel case

    @staticmethod
    def _get_schema() -> str:
        return f"{PRODUCER}/blob/main/docs/lineage.md#supmer_stage"


def run_event(event: StageEvent) -> RunEvent:
    """Return the event as an object of OpenLineage's client; datasets are named by their path in the workspace."""
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE
    return RunEvent(
        eventType=RunState[event.state],
        eventTime=event.time.isoformat(),
        run=Run(event.run_id, _run_facets(event)),
        job=Job(namespace, event.stage, _job_facets(event)),
        inputs=[_input(namespace, artifact) for artifact in event.inputs],
        outputs=[_output(namespace, artifact) for artifact in event.outputs],
        producer=PRODUCER,
    )


def _run_facets(event: StageEvent) -> dict[str, Any]:
    parameters = [
        execution_parameters_run.ExecutionParameter(key=key, value=str(value))
        for key, value in flat(event.parameters).items()
    ]
    facets: dict[str, Any] = {
        "supmer_stage": StageRunFacet(event.record, event.prefect_run_id),
        "executionParameters": execution_parameters_run.ExecutionParametersRunFacet(parameters),
    }
    if event.state in {"FAIL", "ABORT"}:
        message = str(event.record.get("error") or event.record.get("why") or "the stage failed")
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "PYTHON")
    return facets


def _job_facets(event: StageEvent) -> dict[str, Any]:
    facets: dict[str, Any] = {"jobType": job_type_job.JobTypeJobFacet("BATCH", "SUPMER", jobType="STAGE")}
    if event.git_commit:  # the commit of the workspace's own repository, which may have no remote
        facets["sourceCodeLocation"] = source_code_location_job.SourceCodeLocationJobFacet(
            type="git", url=f"git:{event.git_commit.rstrip('+')}:dvc.yaml", path="dvc.yaml", version=event.git_commit
        )
    return facets


def _version(artifact: Artifact) -> dict[str, Any]:
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(artifact.md5)}


def _input(namespace: str, artifact: Artifact) -> InputDataset:
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=artifact.rows, size=artifact.bytes
    )
    return InputDataset(
        namespace, artifact.path, facets=_version(artifact), inputFacets={"inputStatistics": statistics}
    )


def _output(namespace: str, artifact: Artifact) -> OutputDataset:
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=artifact.rows, size=artifact.bytes
    )
    return OutputDataset(
        namespace, artifact.path, facets=_version(artifact), outputFacets={"outputStatistics": statistics}
    )
