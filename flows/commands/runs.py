"""`supmer runs`: list the runs of the pipeline with parameters and metrics, or export them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.options import print_json
from flows.terminal import table
from flows.workspace import enter
from storage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.lineage.run_history import PipelineRun

EXAMPLES = """\b
Examples:
  supmer runs
  supmer runs --params sample.budget_mb,metatrain.steps -n 5
  supmer runs --json | jq '.[-1].metrics.tune'
  supmer runs --export tensorboard --to tracked       then: tensorboard --logdir tracked
  supmer runs --export mlflow --to runs.db            then: mlflow ui --backend-store-uri sqlite:///runs.db
  supmer runs --export mlflow --to http://localhost:5000
"""


@click.command(name="runs", epilog=EXAMPLES)
@click.option("-n", "last", type=click.IntRange(min=1), help="Only the last N runs.")
@click.option("--params", "keys", metavar="KEY,…", help="Parameters to show; default: those that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print all parameters, versions and metrics as JSON.")
@click.option(
    "--export",
    "tool",
    type=click.Choice(["mlflow", "tensorboard"]),
    help="Write the runs for MLflow or TensorBoard; needs the extra of that name.",
)
@click.option("--to", "place", metavar="PLACE", help="With --export: a folder; for MLflow a database file or a URI.")
def command(last: int | None, keys: str | None, *, as_json: bool, tool: str | None, place: str | None) -> None:
    """List the runs of the pipeline, newest last: when, which stages ran, parameters that differ, and scores.

    A run is known by its lineage events, and its metrics by DVC's cache. `supmer compare A B` shows what changed.
    """
    if (tool is None) != (place is None):
        raise click.UsageError("--export and --to go together.")
    target = _target(tool, place) if tool and place else ""
    root = enter()
    from storage.lineage.run_history import metrics_of, pipeline_runs

    runs = pipeline_runs(root)[-last:] if last else pipeline_runs(root)
    if not runs:
        raise InputError("no run yet: `supmer run` makes one")
    wanted = _wanted(runs, keys)
    metrics = {run.id: metrics_of(root, run) for run in runs}
    if tool:
        from flows.run_export import export

        click.echo(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {export(tool, runs, metrics, target)}")
    elif as_json:
        print_json([as_record(run) | {"metrics": metrics[run.id]} for run in runs])
    else:
        _print(runs, wanted, metrics)


def as_record(run: PipelineRun) -> dict[str, Any]:
    """Return a run as JSON."""
    names = ("id", "time", "commit", "ran", "parameters", "sources", "code", "outputs", "rows")
    return {name: getattr(run, name) for name in names}


def _target(tool: str, place: str) -> str:
    """Return the place of an export: a URI, or a path from the working directory (for MLflow, an SQLite file)."""
    if tool == "mlflow" and ":/" in place:
        return place
    return f"{'sqlite:///' if tool == 'mlflow' else ''}{Path(place).absolute()}"


def _wanted(runs: Sequence[PipelineRun], keys: str | None) -> list[str]:
    """Return the parameters to show: those asked for, or those that differ between runs."""
    known = dict.fromkeys(key for run in runs for key in run.parameters)
    if keys is None:
        return [key for key in known if len({run.parameters.get(key) for run in runs}) > 1]
    wanted = [key.strip() for key in keys.split(",")]
    for key in wanted:
        if key not in known:
            from storage.errors import did_you_mean

            raise InputError(f"--params: no run has the parameter {key}{did_you_mean(key, known)}")
    return wanted


def _print(runs: Sequence[PipelineRun], wanted: Sequence[str], metrics: dict[str, Any]) -> None:
    rows = [[run.short_id, run.time[:16].replace("T", " "), (run.commit or "–")[:7], _ran(run)] for run in runs]
    for line in table(("run", "time", "commit", "stages that ran"), rows, [False] * 4):
        click.echo(line)
    for title, columns, values in (
        ("parameters that differ", wanted, {run.id: run.parameters for run in runs}),
        ("scores", _scores(metrics), {run_id: of.get("tune", {}) for run_id, of in metrics.items()}),
    ):
        if columns:
            cells = [[name, *(_shown(values[run.id].get(name)) for run in runs)] for name in columns]
            click.echo(f"\n{title}")
            for line in table(("", *(run.short_id for run in runs)), cells, [False, *(True for _ in runs)]):
                click.echo(line)


def _ran(run: PipelineRun) -> str:
    return ", ".join(dict.fromkeys(stage for stage in run.ran if "@" not in stage)) or ", ".join(run.ran)


def _scores(metrics: dict[str, Any]) -> list[str]:
    names = (name for of in metrics.values() for name in of.get("tune", {}))
    return [name for name in dict.fromkeys(names) if name.endswith(".mean")]


def _shown(value: object) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
