"""Execute one stage, in the same way for the Prefect flow and for `dvc repro`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.dvc_state.remote_inputs import reaching
from flows.run.measure import measured
from storage.errors import InputError
from storage.hashing import json_hash
from storage.lockfile import LOCAL_STAGE, REMOTE_STAGE, is_code
from storage.sources.listing import LISTINGS, local_sources, remote_sources
from tasks.params.file import load
from tasks.stage.contract import FanOut, Record, Reporter, Stage

if TYPE_CHECKING:
    from flows.dvc_state.dag import Node, Pipeline
    from tasks.params.schema import Params

DECIDING_LIBRARIES = ("faiss-cpu", "numpy", "py3langid", "pyarrow", "sentence-transformers", "torch", "transformers")


@dataclass(frozen=True)
class Fingerprint:
    """Hashes of what a stage's result depends on: `whole` of inputs, parameters and code, `code` of the code alone."""

    whole: str
    code: str


def fingerprint(pipeline: Pipeline, name: str, params: Params) -> Fingerprint:
    """Return the current fingerprint of a stage; libraries that affect results count as code."""
    with pipeline.locked():
        stage = pipeline.stage(name)
        inputs = _hashes(stage)
        own_code = {path: value for path, value in inputs.items() if is_code(path)}  # a first local source adds none
        if LISTINGS in inputs:  # the listed files must not change either while the stage runs
            for key in local_sources(params.acquire):
                inputs |= _hashes(pipeline.stage(f"{LOCAL_STAGE}@{key}"))
            for key in remote_sources(params.acquire):
                inputs |= _hashes(pipeline.stage(f"{REMOTE_STAGE}@{key}"))
        sections = [section for dep in stage.deps for section in getattr(dep, "params", ())]
    values = params.model_dump(mode="json")
    libraries = {library: version(library) for library in DECIDING_LIBRARIES}
    whole = json_hash([inputs, {name: _at(values, name) for name in sections}, libraries])
    return Fingerprint(whole, json_hash([own_code, libraries]))


def _hashes(stage: Any) -> dict[str, str]:
    with reaching(stage):
        return {str(dep): dep.get_hash().value for dep in stage.deps if not hasattr(dep, "params")}


def _at(values: Any, key: str) -> Any:
    """Return a section or, for a dotted key, one of its values."""
    for part in key.split("."):
        values = values[part]
    return values


def prepare(
    pipeline: Pipeline, node: Node, params: Params, fan_out: FanOut, reporter: Reporter, *, refresh: bool = False
) -> Stage:
    """Return a stage of dvc.yaml bound to the current inputs, parameters and code."""
    now = fingerprint(pipeline, node.name, params)
    return Stage(
        name=node.name,
        root=pipeline.root,
        params=params,
        inputs=node.inputs,
        outputs=node.outputs,
        fingerprint=now.whole,
        code=now.code,
        fan_out=fan_out,
        reporter=reporter,
        refresh=refresh,
    )


def refuse_changed(pipeline: Pipeline, stage: Stage) -> None:
    """Raise InputError if the inputs, parameters or code of a stage have changed since it was prepared."""
    now = fingerprint(pipeline, stage.name, load(pipeline.root / "params.yaml"))
    if now.whole != stage.fingerprint:
        raise InputError(
            f"params.yaml, an input or the code of {stage.name} changed while it ran: its result is not recorded; "
            "run again, finished shards are kept"
        )


def execute(stage: Stage, allowed: Callable[[], None]) -> Record:
    """Run the stage's function, publish its outputs and return its record.

    `allowed` is called before the outputs are published, and raises an exception to prevent that.
    """
    run: Any = import_module(f"tasks.{stage.name.partition('@')[0]}.stage").run
    stage.start()
    with measured() as usage:
        record: Record = run(stage)
        allowed()
        stage.publish()
    took = {"seconds": usage.seconds, "peak_memory_bytes": usage.peak_memory_bytes}
    return record | {"output_bytes": sum(_size(stage.root / path) for path in stage.outputs)} | took


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
