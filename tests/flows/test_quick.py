"""What must be quick imports nothing heavy; how quick it is, benchmarks/bench_orchestration.py measures."""

import subprocess
import sys

import pytest

HEAVY = {"prefect", "torch", "transformers", "pyarrow", "duckdb", "openlineage", "sentence_transformers"}


def imported(workspace, *arguments):
    """The top-level packages that a command imports."""
    program = f"import sys; sys.argv = ['supmer', *{arguments!r}]; from flows.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program],
        cwd=workspace.root,
        env=workspace.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    names = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("arguments", [("run",), ("status",), ("why", "sample"), ("dag",)])
def test_deciding_that_nothing_is_to_be_done_imports_neither_prefect_nor_torch(workspace, arguments):
    assert not imported(workspace, *arguments) & HEAVY


def test_help_imports_not_even_dvc(workspace):
    assert not imported(workspace, "--help") & (HEAVY | {"dvc", "pydantic"})
