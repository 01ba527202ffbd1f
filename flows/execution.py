"""One stage, executed: the same for the Prefect flow and for `dvc repro`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.measure import measured
from storage.hashing import json_hash
from tasks.contract import FanOut, Record, Reporter, Stage

if TYPE_CHECKING:
    from flows.dag import Node, Pipeline
    from tasks.params import Params


def prepare(
    pipeline: Pipeline, node: Node, params: Params, fan_out: FanOut, reporter: Reporter, *, refresh: bool = False
) -> Stage:
    """Bind a stage of dvc.yaml to today's inputs, parameters and code."""
    with pipeline.locked():
        dvc_stage = pipeline.stage(node.name)
        inputs = {str(dep): dep.get_hash().value for dep in dvc_stage.deps if not hasattr(dep, "params")}
        sections = [name for dep in dvc_stage.deps for name in getattr(dep, "params", ())]
    values = params.model_dump(mode="json")
    return Stage(
        name=node.name,
        root=pipeline.root,
        params=params,
        inputs=node.inputs,
        outputs=node.outputs,
        fingerprint=json_hash({"inputs": inputs, "parameters": {name: values[name] for name in sections}}),
        code=json_hash({path: value for path, value in inputs.items() if path.endswith(".py")}),
        fan_out=fan_out,
        reporter=reporter,
        refresh=refresh,
    )


def execute(stage: Stage) -> Record:
    """Run the stage's function and publish its outputs; return its record with what it took."""
    run: Any = import_module(f"tasks.{stage.name}").run
    stage.start()
    with measured() as usage:
        record: Record = run(stage)
        stage.publish()
    took = {"seconds": usage.seconds, "peak_memory_bytes": usage.peak_memory_bytes}
    return record | {"output_bytes": sum(_size(stage.root / path) for path in stage.outputs)} | took


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
