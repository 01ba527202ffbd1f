"""Standard output that takes no more: a full disk behind it, or nobody who reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


def run(*arguments, cwd, **streams):
    program = "from flows.cli import main; main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", program, *arguments], cwd=cwd, env=environment, check=False, **streams)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["lineage"],
        ["verify"],
        ["sql", "SELECT 1", "--format", "csv"],
        ["sql", "SELECT 1", "--format", "json"],
    ],
)
def test_a_full_standard_output_is_one_line_that_says_so(audited, arguments):
    with FULL.open("w") as full:
        done = run(*arguments, cwd=audited, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    said = "supmer: standard output: cannot be written (No space left on device): send it elsewhere, or make room\n"
    assert done.stderr == said


def test_where_not_even_that_can_be_said_the_exit_code_says_it(audited):
    with FULL.open("w") as full:
        assert run("lineage", cwd=audited, stdout=full, stderr=full).returncode == 2


@pytest.mark.parametrize("arguments", [["lineage"], ["sql", "SELECT 1", "--format", "csv"], ["params", "--help"]])
def test_a_reader_who_closes_the_pipe_ends_the_command_without_a_word(audited, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = run(*arguments, cwd=audited, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")
