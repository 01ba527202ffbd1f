"""Turns: one process at a time, also after the file was removed or its holder was killed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from storage.file_lock import turn

path, log, seconds, removes = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "remove"
with turn(path):
    with log.open("a") as file:
        print("in", file=file, flush=True)
        time.sleep(seconds)
        print("out", file=file, flush=True)
    if removes:
        path.unlink()
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start(seconds, after="keep"):
        arguments = [tmp_path / "deep" / "turn", tmp_path / "log", str(seconds), after]
        started.append(subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], cwd=REPOSITORY))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("after", ["keep", "remove"])
def test_processes_take_turns_whether_the_file_stays_or_is_removed(start, tmp_path, after):
    processes = [start(0.2, after) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert (tmp_path / "log").read_text().split() == ["in", "out"] * 4


def test_the_turn_of_a_killed_process_is_over(start, tmp_path):
    dead = start(600)
    while not (tmp_path / "log").exists() or "in" not in (tmp_path / "log").read_text():
        time.sleep(0.05)
    dead.kill()
    dead.wait()
    assert start(0).wait(60) == 0
