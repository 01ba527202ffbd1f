"""Export of runs to MLflow and TensorBoard, by their own libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from storage.errors import InputError, first_line
from storage.lineage.run_history import PipelineRun

Metrics = Mapping[str, Mapping[str, Any]]
EXPERIMENT, RUN_TAG = "supmer", "supmer.run"
_UNSAFE = re.compile(r"[^\w./ -]+")
_LONGEST = 500  # characters of a parameter in MLflow


def export(tool: str, runs: Sequence[PipelineRun], metrics: Mapping[str, Metrics], place: str) -> str:
    """Write runs to a folder or tracking server; return what was done. A run that is there already is left alone."""
    try:
        return (_to_mlflow if tool == "mlflow" else _to_tensorboard)(runs, metrics, place)
    except ModuleNotFoundError as error:
        raise InputError(f"--export {tool}: {error.name} is missing: pip install 'supmer[{tool}]'") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != tool:  # the tool's own complaint about the place
            raise
        raise InputError(f"--to {place}: {first_line(error)}") from error


def _numbers(metrics: Metrics) -> Iterator[tuple[str, float]]:
    """Yield the metrics that are numbers, under names that both tools accept."""
    for stage, values in metrics.items():
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield f"{stage}/{_UNSAFE.sub('_', name)}", float(value)


def _to_mlflow(runs: Sequence[PipelineRun], metrics: Mapping[str, Metrics], uri: str) -> str:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
    new = 0
    for run in runs:
        if client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run.id}'"):
            continue
        new += 1
        ended = int(datetime.fromisoformat(run.time).timestamp() * 1000)
        made = client.create_run(experiment_id, start_time=ended, run_name=run.short_id).info.run_id
        tags = {RUN_TAG: run.id, "mlflow.source.git.commit": run.commit or "", "supmer.stages": ", ".join(run.ran)}
        client.log_batch(
            made,
            [Metric(name, value, ended, 0) for name, value in _numbers(metrics[run.id])],
            tags=[RunTag(name, value) for name, value in tags.items()],
        )
        values = [Param(name, value[:_LONGEST]) for name, value in run.parameters.items()]
        for start in range(0, len(values), 100):  # the most that a server takes at once
            client.log_batch(made, params=values[start : start + 100])
        client.set_terminated(made, end_time=ended)
    return f"{new} new in MLflow's experiment {EXPERIMENT}"  # not the URI, which may hold a password


def _to_tensorboard(runs: Sequence[PipelineRun], metrics: Mapping[str, Metrics], folder: str) -> str:
    import tensorboard  # noqa: F401 - torch's message about its absence says less
    from torch.utils.tensorboard import SummaryWriter

    new = 0
    for run in runs:
        place = Path(folder, run.id)
        if place.is_dir():
            continue
        new += 1
        with SummaryWriter(str(place)) as writer:
            writer.add_hparams(run.parameters, dict(_numbers(metrics[run.id])), run_name=".")
            writer.add_text("run", f"{run.time}, commit {run.commit}, stages {', '.join(run.ran)}")
    return f"{new} new in {folder}"
