"""Write to the lineage log what a stage read and wrote, and the record of its work."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Literal

from storage.lineage.events import Artifact, StageEvent, emit, read_events, run_that_made
from storage.parquet import count_rows

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from flows.dvc_state.dag import Node, Pipeline


def announce(
    pipeline: Pipeline,
    node: Node,
    state: Literal["START", "COMPLETE", "FAIL", "OTHER"],
    run_id: str,
    time: datetime,
    record: dict[str, Any],
) -> None:
    """Append one event to the log; COMPLETE and OTHER events list the inputs and outputs with DVC's hashes."""
    stage = pipeline.stage(node.name)
    complete = state in {"COMPLETE", "OTHER"}
    emit(
        pipeline.root,
        StageEvent(
            stage=node.name,
            state=state,
            run_id=run_id,
            time=time,
            inputs=tuple(
                _artifact(pipeline.root, dep) for dep in stage.deps if complete and not hasattr(dep, "params")
            ),
            outputs=tuple(_artifact(pipeline.root, out) for out in stage.outs if complete),
            parameters={name: dep.read_params()[name] for dep in stage.deps for name in getattr(dep, "params", ())},
            git_commit=git_commit(pipeline.root),
            prefect_run_id=_prefect_run(),
            record=record,
        ),
    )


def is_recorded(pipeline: Pipeline, node: Node) -> bool:
    """Return True if the log says which run made the stage's outputs that dvc.lock records."""
    versions = {str(out): str(out.hash_info.value) for out in pipeline.stage(node.name).outs}
    return run_that_made(read_events(pipeline.root), node.name, versions) is not None


def _prefect_run() -> str | None:
    """Return the id of the current Prefect run, or None; Prefect is not imported to find out that there is none."""
    if "prefect" not in sys.modules:
        return None
    from prefect.runtime import flow_run

    run_id: str | None = flow_run.id
    return run_id


def _artifact(root: Path, item: Any) -> Artifact:
    # Count rows only in our own shards: a source belongs to the user and may hold anything.
    shards = list((root / str(item)).rglob("*.parquet")) if item.isdir() and not item.IS_DEPENDENCY else []
    rows = sum(map(count_rows, shards)) if shards else None
    return Artifact(str(item), str(item.get_hash().value), int(item.get_meta().size or 0), rows)


def git_commit(root: Path) -> str | None:
    """Return the commit that is checked out, with a plus sign if the tree has changes; None without git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        asked = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git on this machine
        return None
    return asked.stdout.strip() or None if asked.returncode == 0 else None
