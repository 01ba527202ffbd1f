"""Run commands in forks of a process that has imported everything: `python -m soak.warm`, a JSON line for each.

A line {"words", "folder", "input", "output", "seconds", "variables"} is answered by {"code", "seconds"}; the code is
that of the shell, or None after too long a time. Starting Python and importing torch would take most of the time of a
case otherwise. Nothing may compute before the fork: threads do not survive it.
"""

import gc
import os
import resource
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from flows.cli import VERBS, cli, main
from storage.errors import InputError

MEMORY_BYTES = 12 * 1024**3  # of addresses: a case that wants more fails with MemoryError
IMPORTED = (
    "duckdb", "dvc.repo", "pyarrow.csv", "pyarrow.parquet", "safetensors.torch", "torch", "transformers",
    "transformers.models.t5.modeling_t5", "flows.dvc_state.dag", "flows.dvc_state.freshness", "flows.run.plan",
    "flows.run.session", "model.tuning.classifier", "model.tuning.official", "soak.alone", "storage.queries.views",
    "storage.lineage.tracing", "tasks.peft.exchange", "tasks.own_examples.tuning",
)  # fmt: skip


def import_all() -> None:
    for verb in VERBS:
        cli.get_command(None, verb)  # type: ignore[arg-type]
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()


def run(case: dict[str, Any]) -> dict[str, Any]:
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(_child(case))
    code: int | None = None
    while time.monotonic() < start + case["seconds"]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.005)
    else:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return {"code": code, "seconds": time.monotonic() - start}


def _child(case: dict[str, Any]) -> int:
    """Be the command: its folder, its standard streams, its arguments; return its exit code."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.chdir(case["folder"])
    os.environ.update(case.get("variables", {}))
    os.dup2(os.open(case["input"], os.O_RDONLY), 0)
    output = os.open(case["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        if case["words"][0] == "alone":
            _alone(*case["words"][1:])
        sys.argv = ["supmer", *case["words"]]
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - Python would print it and end with 1
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    return code


def _alone(stage: str, folder: str) -> None:
    """Run a stage by itself; bad input ends it as it ends a run."""
    from soak import alone

    try:
        getattr(alone, stage)(Path(folder))
    except InputError as error:
        print(f"{stage} failed: {error}")
        sys.exit(2)
    sys.exit(0)


def serve() -> None:
    import_all()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    answers.write(b"ready\n")
    for line in sys.stdin.buffer:
        answers.write(orjson.dumps(run(orjson.loads(line))) + b"\n")
    os._exit(0)  # libraries that were loaded only for the forks would complain about an ordinary end


if __name__ == "__main__":
    serve()
